/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operator new and operator delete. The C++ library's own call malloc and free, whose hooks record them, so
 * these are jumped to and leave no frame of ours. Allocators such as jemalloc, tcmalloc and mimalloc bring
 * their own, most of which call nothing that has a hook: what stands in the object that malloc comes from
 * is recorded here.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/stacks/native_stack.h"
#include "trace/record.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

/*
 * Some allocators' operators do call malloc, free or each other by name all the same, in some of their
 * forms or when memory is short: heap_last_recorded and heap_freeing keep such a call from being recorded
 * twice.
 *
 * The real one is the next definition in the order of symbol lookup. Where a C program loads C++ libraries
 * for nobody else (Python's extensions), no definition is global, but ours is: then the caller's object and
 * the libraries that it names decide, as they would without us. No dlsym here: it waits for constructors.
 *
 * A request that ends in an exception passes through our frame and leaves no event; new_handlers, which it
 * may have called, do.
 */

/* X(NAME, function, symbol, alignment, parameters, arguments); size_t is `m`, an unsigned long, where we run
 */
#define CXX_NEW_LIST(X)                                                                                             \
    X(NEW, cxx_new, "_Znwm", 0, (size_t size), (size))                                                              \
    X(NEW_ARRAY, cxx_new_array, "_Znam", 0, (size_t size), (size))                                                  \
    X(NEW_NOTHROW, cxx_new_nothrow, "_ZnwmRKSt9nothrow_t", 0, (size_t size, const void *nothrow), (size, nothrow))  \
    X(NEW_ARRAY_NOTHROW, cxx_new_array_nothrow, "_ZnamRKSt9nothrow_t", 0, (size_t size, const void *nothrow),       \
      (size, nothrow))                                                                                              \
    X(NEW_ALIGNED, cxx_new_aligned, "_ZnwmSt11align_val_t", alignment, (size_t size, size_t alignment),             \
      (size, alignment))                                                                                            \
    X(NEW_ARRAY_ALIGNED, cxx_new_array_aligned, "_ZnamSt11align_val_t", alignment, (size_t size, size_t alignment), \
      (size, alignment))                                                                                            \
    X(NEW_ALIGNED_NOTHROW, cxx_new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", alignment,                \
      (size_t size, size_t alignment, const void *nothrow), (size, alignment, nothrow))                             \
    X(NEW_ARRAY_ALIGNED_NOTHROW, cxx_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", alignment,    \
      (size_t size, size_t alignment, const void *nothrow), (size, alignment, nothrow))

/* X(NAME, function, symbol, parameters, arguments) */
#define CXX_DELETE_LIST(X)                                                                                         \
    X(DELETE, cxx_delete, "_ZdlPv", (void *memory), (memory))                                                      \
    X(DELETE_ARRAY, cxx_delete_array, "_ZdaPv", (void *memory), (memory))                                          \
    X(DELETE_NOTHROW, cxx_delete_nothrow, "_ZdlPvRKSt9nothrow_t", (void *memory, const void *nothrow),             \
      (memory, nothrow))                                                                                           \
    X(DELETE_ARRAY_NOTHROW, cxx_delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void *memory, const void *nothrow), \
      (memory, nothrow))                                                                                           \
    X(DELETE_SIZED, cxx_delete_sized, "_ZdlPvm", (void *memory, size_t size), (memory, size))                      \
    X(DELETE_ARRAY_SIZED, cxx_delete_array_sized, "_ZdaPvm", (void *memory, size_t size), (memory, size))          \
    X(DELETE_ALIGNED, cxx_delete_aligned, "_ZdlPvSt11align_val_t", (void *memory, size_t alignment),               \
      (memory, alignment))                                                                                         \
    X(DELETE_ARRAY_ALIGNED, cxx_delete_array_aligned, "_ZdaPvSt11align_val_t", (void *memory, size_t alignment),   \
      (memory, alignment))                                                                                         \
    X(DELETE_SIZED_ALIGNED, cxx_delete_sized_aligned, "_ZdlPvmSt11align_val_t",                                    \
      (void *memory, size_t size, size_t alignment), (memory, size, alignment))                                    \
    X(DELETE_ARRAY_SIZED_ALIGNED, cxx_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t",                        \
      (void *memory, size_t size, size_t alignment), (memory, size, alignment))                                    \
    X(DELETE_ALIGNED_NOTHROW, cxx_delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",                   \
      (void *memory, size_t alignment, const void *nothrow), (memory, alignment, nothrow))                         \
    X(DELETE_ARRAY_ALIGNED_NOTHROW, cxx_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",       \
      (void *memory, size_t alignment, const void *nothrow), (memory, alignment, nothrow))

#define CXX_ENUM_NEW(NAME, function, symbol, alignment, parameters, arguments) CXX_##NAME,
#define CXX_ENUM_DELETE(NAME, function, symbol, parameters, arguments) CXX_##NAME,
#define CXX_NAME_NEW(NAME, function, symbol, alignment, parameters, arguments) symbol,
#define CXX_NAME_DELETE(NAME, function, symbol, parameters, arguments) symbol,

enum cxx_function { CXX_NEW_LIST(CXX_ENUM_NEW) CXX_DELETE_LIST(CXX_ENUM_DELETE) CXX_FUNCTIONS };

static const char *const names[CXX_FUNCTIONS] = {CXX_NEW_LIST(CXX_NAME_NEW) CXX_DELETE_LIST(CXX_NAME_DELETE)};

#define CACHED 256U /* powers of two */
#define CACHED_OBJECTS 4096U
#define ALLOCATOR_BIT (UINT64_C(1) << 63) /* in an address of the program's half */

/* A definition, and whether its calls are recorded here. */
struct cxx_choice {
    void *function; /* NULL: there is none in this process */
    bool is_recorded;
};

/* Written once, by heap_cxx_prepare. */
uintptr_t heap_malloc_hook;
static struct cxx_choice globals[CXX_FUNCTIONS]; /* what all code of the process sees behind us */
static void (*passed[CXX_FUNCTIONS])(void);      /* the same where nothing is recorded here, else NULL */

/* What a caller's own libraries answered, by the caller's address and by its object, for which a walk through
 * all objects is made; read and written without a lock: key is (caller or object, function) ^ value. Not used
 * while an object is being unloaded, and empty afterwards. */
struct cached {
    uint64_t key;
    uint64_t value; /* address, with ALLOCATOR_BIT if recorded; 0: empty */
};
static struct cached cache[CACHED];
static struct cached object_cache[CACHED_OBJECTS];
static uint32_t objects_closing;

__thread void *heap_last_recorded __attribute__((tls_model("initial-exec")));
__thread void *heap_freeing __attribute__((tls_model("initial-exec")));

/* Whatever its definition leads to by now. */
static bool is_recorded_in(const struct elf_object *object)
{
    const uintptr_t allocate = (uintptr_t)elf_symbol_in(object, "malloc");
    return allocate != 0 && (allocate == (uintptr_t)heap_real.malloc || allocate == heap_malloc_hook);
}

/* ---- what all code sees ---- */

static void scan_definitions(const struct elf_object *object)
{
    for (unsigned i = 0; i < CXX_FUNCTIONS; i++) {
        if (globals[i].function == NULL && (globals[i].function = elf_symbol_in(object, names[i])) != NULL) {
            globals[i].is_recorded = is_recorded_in(object);
        }
    }
}

/* The loader's list itself, which does not change as early as this. */
static bool scan_objects(void)
{
    struct elf_object object;
    bool is_behind = heap_is_late;
    bool is_malloc_before = false;
    for (const struct link_map *map = _r_debug.r_map; map != NULL; map = map->l_next) {
        if (map->l_ld == _DYNAMIC) {
            is_behind = true;
            if (elf_symbol_tables_of_map(map, &object)) {
                heap_malloc_hook = (uintptr_t)elf_symbol_in(&object, "malloc");
            }
        } else if (elf_symbol_tables_of_map(map, &object)) {
            if (is_behind) {
                scan_definitions(&object);
            }
            if (!is_behind || (heap_is_late && map->l_prev == NULL)) {
                is_malloc_before = is_malloc_before || elf_symbol_in(&object, "malloc") != NULL;
            }
        }
    }
    return !is_malloc_before;
}

bool heap_cxx_each_recorded(unsigned *at, const char **name, void **real)
{
    while (*at < CXX_FUNCTIONS && !globals[*at].is_recorded) {
        ++*at;
    }
    if (*at == CXX_FUNCTIONS) {
        return false;
    }
    *name = names[*at];
    *real = globals[(*at)++].function;
    return true;
}

bool heap_cxx_prepare(bool is_recorded)
{
    bool is_malloc_ours = scan_objects();
    void (*function)(void);
    for (unsigned i = 0; i < CXX_FUNCTIONS; i++) {
        globals[i].is_recorded = globals[i].is_recorded && is_recorded;
        if (!globals[i].is_recorded) {
            memcpy(&function, &globals[i].function, sizeof(function));
            __atomic_store_n(&passed[i], function, __ATOMIC_RELEASE);
        }
    }
    return is_malloc_ours;
}

/* ---- what one caller sees ---- */

struct local {
    const char *name;
    uintptr_t caller;
    struct elf_object object; /* the caller's */
    bool has_object;
    bool is_needed; /* `choice` comes from a library that the caller's object names */
    struct cxx_choice choice;
};

static void find_caller(struct local *local)
{
    struct loaded_object object;
    if (!loaded_object_find(local->caller, &object)) {
        return;
    }
    struct elf_walk walk;
    elf_walk_begin(&walk);
    while (!local->has_object && elf_walk_next(&walk, &local->object)) {
        local->has_object = local->object.bias == object.bias;
    }
}

/* The caller's object itself, else a library that it names, else the first that was loaded. */
static bool match_definition(struct local *local, const struct elf_object *object)
{
    void *function = object->dynamic != _DYNAMIC ? elf_symbol_in(object, local->name) : NULL;
    bool is_caller = local->has_object && object->dynamic == local->object.dynamic;
    if (function == NULL) {
        return false;
    }
    bool is_needed = local->has_object && !local->is_needed && elf_symbol_is_needed(object, &local->object);
    if (is_caller || local->choice.function == NULL || is_needed) {
        local->is_needed = is_needed;
        local->choice = (struct cxx_choice){function, is_recorded_in(object)};
    }
    return is_caller;
}

static void look_up_now(void *argument)
{
    struct local *local = argument;
    find_caller(local);
    struct elf_walk walk;
    elf_walk_begin(&walk);
    struct elf_object object;
    bool is_over = false;
    while (!is_over && elf_walk_next(&walk, &object)) {
        is_over = match_definition(local, &object);
    }
}

/* 0: there is none. */
static uint64_t operator_new_look_up(enum cxx_function which, uintptr_t caller)
{
    struct local local = {.name = names[which], .caller = caller - 1};
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    if (!recorder_on_stack(look_up_now, &local)) {
        look_up_now(&local);
    }
    recorder_reentrant_end(&saved);
    return (uintptr_t)local.choice.function | (local.choice.is_recorded ? ALLOCATOR_BIT : 0);
}

static uint64_t operator_new_cached_find(const struct cached *cached, uint64_t key)
{
    uint64_t value = __atomic_load_n(&cached->value, __ATOMIC_ACQUIRE);
    return value != 0 && (__atomic_load_n(&cached->key, __ATOMIC_ACQUIRE) ^ value) == key ? value : 0;
}

static void cached_keep(struct cached *cached, uint64_t key, uint64_t value)
{
    __atomic_store_n(&cached->value, value, __ATOMIC_RELEASE);
    __atomic_store_n(&cached->key, key ^ value, __ATOMIC_RELEASE);
}

static uint64_t choose_by_object(enum cxx_function which, uintptr_t caller)
{
    struct loaded_object object;
    if (!loaded_object_find(caller - 1, &object)) {
        return operator_new_look_up(which, caller);
    }
    uint64_t key = (uintptr_t)object.handle ^ ((uint64_t)which << 56);
    struct cached *cached =
        &object_cache[((uintptr_t)object.handle >> 4 ^ (uintptr_t)object.handle >> 14 ^ which * 131U) % CACHED_OBJECTS];
    uint64_t value = operator_new_cached_find(cached, key);
    if (value == 0) {
        value = operator_new_look_up(which, caller);
        cached_keep(cached, key, value);
    }
    return value;
}

static struct cxx_choice choose_by_caller(enum cxx_function which, uintptr_t caller)
{
    const uint64_t key = caller ^ ((uint64_t)which << 56);
    struct cached *cached = &cache[(caller ^ (caller >> 8) ^ which) % CACHED];
    bool is_usable = __atomic_load_n(&objects_closing, __ATOMIC_ACQUIRE) == 0 &&
                     __atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) >= HEAP_STATE_OFF;
    uint64_t value = is_usable ? operator_new_cached_find(cached, key) : 0;
    if (value == 0 && is_usable) {
        value = choose_by_object(which, caller);
        cached_keep(cached, key, value);
    } else if (value == 0) {
        value = operator_new_look_up(which, caller);
    }
    return (struct cxx_choice){.function = (void *)(uintptr_t)(value & ~ALLOCATOR_BIT),
                               .is_recorded = (value & ALLOCATOR_BIT) != 0 && hook_records()};
}

void heap_cxx_closing(void)
{
    __atomic_add_fetch(&objects_closing, 1, __ATOMIC_ACQ_REL);
}

void heap_cxx_closed(void)
{
    for (unsigned i = 0; i < CACHED; i++) {
        __atomic_store_n(&cache[i].value, 0, __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < CACHED_OBJECTS; i++) {
        if (__atomic_load_n(&object_cache[i].value, __ATOMIC_RELAXED) != 0) {
            __atomic_store_n(&object_cache[i].value, 0, __ATOMIC_RELEASE);
        }
    }
    __atomic_sub_fetch(&objects_closing, 1, __ATOMIC_ACQ_REL);
}

/* ---- the hooks ---- */

static __attribute__((noinline)) struct cxx_choice operator_new_choose(enum cxx_function which, uintptr_t caller)
{
    /* not while our own lookup is at work, on this very thread */
    if (hook_can_call() && globals[which].function != NULL) {
        return (struct cxx_choice){globals[which].function, globals[which].is_recorded && hook_records()};
    }
    return choose_by_caller(which, caller);
}

/* For code that refers to operator new as to something that may be missing, and finds ours. */
static void *new_without_library(size_t size, size_t alignment)
{
    return alignment > 0 ? aligned_alloc(alignment, size) : malloc(size > 0 ? size : 1);
}

static void note_new(void *memory, size_t size, size_t alignment, const struct callsite_start *start)
{
    if (memory == NULL || memory != heap_last_recorded) {
        heap_note_alloc(memory, size, alignment, VARVE_CAUSE_OPERATOR_NEW, start);
    }
}

/* True if the free was recorded now; heap_freeing is then to be reset after the call. */
static bool note_delete(void *memory, const uintptr_t *frame)
{
    if (memory == NULL || memory == heap_freeing || hook_is_sink_closing(frame)) {
        return false;
    }
    heap_note_free(memory, VARVE_CAUSE_OPERATOR_DELETE);
    heap_freeing = memory;
    return true;
}

#define UNPACK(...) __VA_ARGS__

/* Both halves are left by a jump where nothing is recorded here: no frame of ours is in the program's stack.
 */
#define CXX_NEW_HOOK(NAME, hook, symbol, alignment, parameters, arguments)                                          \
    static __attribute__((noinline)) void *hook##_general(UNPACK parameters, const uintptr_t *frame)                \
    {                                                                                                               \
        struct cxx_choice choice = operator_new_choose(CXX_##NAME, frame[1]);                                       \
        struct callsite_start start;                                                                                \
        void *(*real)parameters;                                                                                    \
        void *memory;                                                                                               \
                                                                                                                    \
        memcpy(&real, &choice.function, sizeof(real));                                                              \
        if (choice.function == NULL) {                                                                              \
            return new_without_library(size, alignment);                                                            \
        }                                                                                                           \
        if (!choice.is_recorded) {                                                                                  \
            return real arguments;                                                                                  \
        }                                                                                                           \
        start = hook_start(frame);                                                                                  \
        heap_last_recorded = NULL;                                                                                  \
        memory = real arguments;                                                                                    \
        note_new(memory, size, alignment, &start);                                                                  \
        return memory;                                                                                              \
    }                                                                                                               \
    void *hook parameters __asm__(symbol);                                                                          \
    HOOK void *hook parameters                                                                                      \
    {                                                                                                               \
        void *(*real)parameters = (void *(*)parameters)__atomic_load_n(&passed[CXX_##NAME], __ATOMIC_ACQUIRE);      \
                                                                                                                    \
        return __builtin_expect(real != NULL, 1) ? real arguments : hook##_general(UNPACK arguments, HOOK_FRAME()); \
    }

#define CXX_DELETE_HOOK(NAME, hook, symbol, parameters, arguments)                                           \
    static __attribute__((noinline)) void hook##_general(UNPACK parameters, const uintptr_t *frame)          \
    {                                                                                                        \
        struct cxx_choice choice = operator_new_choose(CXX_##NAME, frame[1]);                                \
        void(*real) parameters;                                                                              \
                                                                                                             \
        memcpy(&real, &choice.function, sizeof(real));                                                       \
        if (choice.function == NULL) {                                                                       \
            free(memory);                                                                                    \
        } else if (!choice.is_recorded || !note_delete(memory, frame)) {                                     \
            real arguments;                                                                                  \
        } else {                                                                                             \
            real arguments;                                                                                  \
            heap_freeing = NULL;                                                                             \
        }                                                                                                    \
    }                                                                                                        \
    void hook parameters __asm__(symbol);                                                                    \
    HOOK void hook parameters                                                                                \
    {                                                                                                        \
        void(*real) parameters = (void(*) parameters)__atomic_load_n(&passed[CXX_##NAME], __ATOMIC_ACQUIRE); \
                                                                                                             \
        if (__builtin_expect(real != NULL, 1)) {                                                             \
            real arguments;                                                                                  \
        } else {                                                                                             \
            hook##_general(UNPACK arguments, HOOK_FRAME());                                                  \
        }                                                                                                    \
    }

/* The calls of the macros end without a semicolon, as they are whole functions. */
CXX_NEW_LIST(CXX_NEW_HOOK)
CXX_DELETE_LIST(CXX_DELETE_HOOK)
