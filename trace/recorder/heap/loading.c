/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's own definitions lead to the hooks, so that objects of RTLD_DEEPBIND are bound to these as all others
 * are: by the loader, before their constructors run, and nothing is to be done when one is opened. So is what dlsym
 * finds in the C library. The C library itself calls by entries that were bound at the start: through the hooks too.
 *
 * What can't be so: an object with an allocator of its own that is opened with RTLD_DEEPBIND, and a namespace, whose C
 * library is another one. Blocks of these are freed there, and their functions get hooks of their own
 * (heap_hooks.h), between the moment when the object is in the list of the loader and that when anything is bound
 * to it. The loader allocates in between, by our hooks. So dlopen and dlmopen, which jump to the real ones (the C
 * library looks at their return address), only note that this thread loads; from there to the first call of a hook that
 * does not come from the loader, hooks look. In a program that was attached to the loader does not allocate by hooks:
 * then these allocators are not recorded.
 *
 * Where another allocator stands before the C library's, a wrapper perhaps, the latter is left alone: what such an
 * object takes from it would be recorded twice. That, and all else that is known to have been missed, is noted.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/recorder/session.h"

#include <dlfcn.h>
#include <link.h>

#define FRAMES_MAX 16U     /* of ours, between a look and the program */
#define OBJECTS_MAX 10000U /* lists that change may look like rings */
#define NAMESPACES_MAX 100U
#define PATIENCE 100U

enum loading_kind {
    LOADING_NOTHING = 0,
    LOADING_DEEP = 1,
    LOADING_NAMESPACE = 2, /* bit mask of the two */
};

/* Of this thread, since its last dlopen or dlmopen. */
static __thread struct {
    uint8_t kind;
    uint8_t patience; /* looks by which nothing is found, until it is believed that nothing was loaded */
    bool has_found;   /* an allocator */
} loading __attribute__((tls_model("initial-exec")));

/* Guarded by the loading_lock of the process, as heap_hooks.h is; both are free in a fork child. */
static bool is_begun;
static const struct link_map *looked_at;         /* the last object that was there before; NULL: not known; atomic */
static bool is_c_library_hooked;                 /* its allocator */
static bool is_in_front;                         /* the program's allocator is another one */
static struct elf_object allocator;              /* that of the program */
static struct loaded_object own, loader, opener; /* code of this library, of the loader, of dlopen */

extern void *__tls_get_addr(void *);

/* As old as that list of namespaces. */
#pragma weak _dl_find_object
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 35)
extern int _dl_find_object(void *address, void *found);
#endif

/* As struct r_debug_extended in <link.h> since glibc 2.35. */
struct name_space {
    struct r_debug base;
    const struct name_space *next;
};

/* ---- definitions ---- */

static bool is_allocator_whole(const struct elf_object *object)
{
    const void *real;
    bool is_whole = true;
#define IS_DEFINED(name, result, parameters)                \
    __builtin_memcpy(&real, &heap_real.name, sizeof(real)); \
    is_whole = is_whole && elf_symbol_in(object, #name) == real;
    HEAP_ALLOCATOR_REQUIRED_LIST(IS_DEFINED)
#undef IS_DEFINED
    return is_whole;
}

/* Those of an allocator in front of the C library's are asked for by nobody that it calls itself. */
static void definitions_of(const struct elf_object *object)
{
    const struct hook_table *table = hook_table();
    const void *definition = elf_symbol_in(object, "malloc");
    const bool is_c_library = elf_symbol_in(object, "__libc_start_main") != NULL;
    const bool is_whole = !is_c_library || is_allocator_whole(object);
    bool is_written = true;
    if (definition != NULL && definition == (const void *)(uintptr_t)heap_real.malloc) {
        allocator = *object;
        is_in_front = !is_c_library;
    }
    if (definition != NULL && is_whole) {
        is_written = elf_definitions_replace(object, table->rows, table->allocator_count);
    }
    if (is_c_library) {
        is_c_library_hooked = is_whole && is_written;
        is_written = elf_definitions_replace(object, table->rows + table->allocator_count,
                                             table->count - table->allocator_count) &&
                     is_written;
    }
    if (!is_written) {
        recorder_note_unhooked(object->path, UNHOOKED_PROTECTED);
    }
}

static int definitions_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct elf_object object;
    (void)bytes;
    if (elf_symbol_tables(info, &object) && object.dynamic != _DYNAMIC) {
        if (context == NULL) {
            definitions_of(&object);
        } else {
            const struct hook_table *table = context;
            (void)elf_definitions_restore(&object, table->rows, table->count);
        }
    }
    return 0;
}

/* At the start of a program in the loader's own list, which does not change. */
static void definitions_replace(void)
{
    struct elf_walk walk;
    struct elf_object object;
    if (heap_is_late) {
        elf_each_object(definitions_visit, NULL);
        return;
    }
    elf_walk_begin(&walk);
    walk.is_still = true;
    while (elf_walk_next(&walk, &object)) {
        if (object.dynamic != _DYNAMIC) {
            definitions_of(&object);
        }
    }
}

/* ---- what was loaded ---- */

/* `is_bound`: too late for hooks. */
static void object_look(const struct elf_object *object, const char *name, bool is_bound)
{
    if (elf_symbol_in(object, "malloc") == NULL || elf_symbol_in(object, "free") == NULL ||
        other_allocators_know(object)) {
        return;
    }
    loading.has_found = true;
    const bool is_hooked = !is_bound && other_allocators_hook(object);
    if (!is_hooked) {
        other_allocators_forgo(object);
    }
    if (!is_hooked || elf_symbol_in(object, "_Znwm") != NULL) { /* operator new, which need not call its malloc */
        recorder_note_unhooked(name, UNHOOKED_ALLOCATOR);
    }
}

/* The C library also unloads what it has loaded for itself, of which no hook knows. */
static int unloads_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    *(unsigned long long *)context = info->dlpi_subs;
    return 1;
}

/* Objects up to here were opened as others are, and what they define is bound as ever. */
static void looked_at_advance(void)
{
    static unsigned long long unloaded; /* objects, ever; atomic */
    unsigned long long now = 0;
    struct link_map map;
    elf_each_object(unloads_visit, &now);
    const bool is_known = __atomic_exchange_n(&unloaded, now, __ATOMIC_ACQ_REL) == now;
    const struct link_map *at = is_known ? __atomic_load_n(&looked_at, __ATOMIC_ACQUIRE) : NULL;
    at = at == NULL ? _r_debug.r_map : at;
    for (unsigned i = 0;
         i < OBJECTS_MAX && recorder_read_memory(&map, (uintptr_t)at, sizeof(map)) && map.l_next != NULL; i++) {
        at = map.l_next;
    }
    __atomic_store_n(&looked_at, at, __ATOMIC_RELEASE);
}

/* Each new object once; they come at the end of the list. */
static void program_look(bool is_bound)
{
    struct link_map last;
    struct elf_walk walk = {.is_still = !is_bound};
    struct elf_object object;
    const struct link_map *from = __atomic_load_n(&looked_at, __ATOMIC_ACQUIRE);
    if (from == NULL || !recorder_read_memory(&last, (uintptr_t)from, sizeof(last))) {
        return;
    }
    walk.next = last.l_next;
    walk.at = from;
    while (elf_walk_next(&walk, &object)) {
        object_look(&object, object.path, is_bound);
        if (!is_c_library_hooked && !(is_in_front && elf_symbol_is_needed(&allocator, &object))) {
            recorder_note_unhooked(object.path, UNHOOKED_DEEPBIND);
        }
    }
    __atomic_store_n(&looked_at, walk.at, __ATOMIC_RELEASE);
}

static bool program_has_new(void)
{
    struct link_map last;
    const struct link_map *from = __atomic_load_n(&looked_at, __ATOMIC_ACQUIRE);
    return from != NULL && recorder_read_memory(&last, (uintptr_t)from, sizeof(last)) && last.l_next != NULL;
}

static void namespace_look(const struct link_map *first, bool is_bound)
{
    struct elf_walk walk = {.next = first, .is_still = !is_bound};
    struct elf_object object;
    const char *name = NULL;
    while (elf_walk_next(&walk, &object)) {
        name = name == NULL ? object.path : name;
        object_look(&object, name, is_bound);
    }
}

static void namespaces_look(bool is_bound)
{
    struct name_space at = {{0}, NULL};
    const struct name_space *next = NULL;
    if (_r_debug.r_version >= 2 && recorder_read_memory(&at, (uintptr_t)&_r_debug, sizeof(at))) {
        next = at.next;
    }
    for (unsigned i = 0; next != NULL && i < NAMESPACES_MAX && recorder_read_memory(&at, (uintptr_t)next, sizeof(at));
         i++) {
        namespace_look(at.base.r_map, is_bound);
        next = at.next;
    }
}

struct look {
    unsigned kind;
    bool is_bound;
};

static void look_now(void *argument)
{
    const struct look *look = argument;
    struct recorder_process *process = recorder_process_page();
    if (process == NULL || !recorder_lock_soon(&process->loading_lock)) {
        return;
    }
    if ((look->kind & LOADING_DEEP) != 0) {
        program_look(look->is_bound);
    }
    if ((look->kind & LOADING_NAMESPACE) != 0) {
        namespaces_look(look->is_bound);
    }
    recorder_unlock(&process->loading_lock);
}

/* ---- when ---- */

static bool is_in(const struct loaded_object *object, uintptr_t pc)
{
    return pc - object->start < object->end - object->start;
}

/* Who has called the hook that we are in. All frames of ours have a frame pointer. */
static uintptr_t caller_of_hook(const uintptr_t *frame)
{
    for (unsigned i = 0; i < FRAMES_MAX && is_in(&own, frame[1]); i++) {
        frame = (const uintptr_t *)frame[0];
    }
    return frame[1] - 1;
}

/* Nothing more will be found by this thread. A signal handler may come while a namespace is being made. */
static void settle(void)
{
    uint32_t state = HEAP_STATE_LOADING;
    struct recorder_process *process = recorder_process_page();
    if ((loading.kind & LOADING_NAMESPACE) != 0 && !loading.has_found && --loading.patience > 0) {
        return;
    }
    loading.kind = LOADING_NOTHING;
    uint32_t left = process != NULL ? __atomic_load_n(&process->loaders, __ATOMIC_ACQUIRE) : 0;
    while (left > 0 && !__atomic_compare_exchange_n(&process->loaders, &left, left - 1, false, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_ACQUIRE)) {
    }
    if (left <= 1) { /* 0: in a fork child */
        __atomic_compare_exchange_n(&heap_state, &state, HEAP_STATE_ON, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

bool loading_look(void)
{
    if (loading.kind == LOADING_NOTHING || recorder_reentrant_depth > 0) {
        return true;
    }
    const uintptr_t caller = caller_of_hook(__builtin_frame_address(0));
    struct look look = {loading.kind, !is_in(&loader, caller)};
    /* dlopen itself frees the message of an earlier one before it begins */
    if (is_in(&opener, caller) || (!look.is_bound && look.kind == LOADING_DEEP && !program_has_new())) {
        return true;
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    if (!recorder_on_stack(look_now, &look)) {
        look_now(&look);
    }
    if (look.is_bound) {
        settle();
    }
    recorder_reentrant_end(&saved);
    return true;
}

static void note_loading(enum loading_kind kind)
{
    uint32_t state = HEAP_STATE_ON;
    struct recorder_signals saved;
    struct recorder_process *process = is_begun ? recorder_process_page() : NULL;
    if (process == NULL || recorder_reentrant_depth > 0 ||
        __atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) < HEAP_STATE_ON ||
        !recorder_lock_soon_blocked(&process->loading_lock, &saved)) {
        return;
    }
    if (loading.kind == LOADING_NOTHING) {
        loading.has_found = false;
        const bool is_first = __atomic_fetch_add(&process->loaders, 1, __ATOMIC_ACQ_REL) == 0;
        if (is_first || __atomic_load_n(&looked_at, __ATOMIC_ACQUIRE) == NULL) {
            looked_at_advance(); /* also where a thread that loaded has ended before it called a hook */
        }
    }
    loading.kind |= (uint8_t)kind;
    loading.patience = PATIENCE;
    __atomic_compare_exchange_n(&heap_state, &state, HEAP_STATE_LOADING, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    recorder_unlock_blocked(&process->loading_lock, &saved);
}

/* For our dlopen and dlmopen (loading_MACHINE.c): the real one. */
void *loading_dlopen(const char *file, int mode);
void *loading_dlmopen(long namespace, const char *file, int mode);

void *loading_dlopen(const char *file, int mode)
{
    void *real;
    (void)heap_ready();
    if (file != NULL && (mode & RTLD_DEEPBIND) != 0) {
        note_loading(LOADING_DEEP);
    }
    __builtin_memcpy(&real, &heap_real.dlopen, sizeof(real));
    return real != NULL ? real : heap_real_find("dlopen");
}

void *loading_dlmopen(long namespace, const char *file, int mode)
{
    void *real;
    (void)mode;
    (void)heap_ready();
    if (file != NULL) {
        note_loading(namespace == LM_ID_BASE ? LOADING_DEEP : LOADING_NAMESPACE);
    }
    if (file != NULL && namespace != LM_ID_BASE && is_begun && _dl_find_object == NULL) {
        recorder_note_unhooked(file, UNHOOKED_NAMESPACE);
    }
    __builtin_memcpy(&real, &heap_real.dlmopen, sizeof(real));
    return real != NULL ? real : heap_real_find("dlmopen");
}

void loading_begin(void)
{
    is_begun = loaded_object_find((uintptr_t)_DYNAMIC, &own) &&
               loaded_object_find((uintptr_t)__tls_get_addr, &loader) && /* which nobody else defines */
               loaded_object_find((uintptr_t)heap_real.dlopen, &opener);
    struct recorder_process *process = is_begun ? recorder_process_page() : NULL;
    if (process == NULL) {
        return;
    }
    recorder_lock(&process->loading_lock);
    definitions_replace();
    if (heap_is_late) {
        namespaces_look(true);
    }
    recorder_unlock(&process->loading_lock);
}

/* Also for a namespace that was made from within another one, by a dlmopen that is not ours. */
void loading_finish(void)
{
    struct recorder_signals saved;
    (void)loading_look();
    struct recorder_process *process = is_begun ? recorder_process_page() : NULL;
    if (process != NULL && recorder_lock_soon_blocked(&process->loading_lock, &saved)) {
        if (__atomic_load_n(&process->loaders, __ATOMIC_ACQUIRE) > 0) {
            program_look(true);
        }
        namespaces_look(true);
        recorder_unlock_blocked(&process->loading_lock, &saved);
    }
}

void loading_end(void)
{
    is_begun = false;
    elf_each_object(definitions_visit, (void *)(uintptr_t)hook_table());
}

void loading_closing(void)
{
    (void)loading_look();
    loading_closed();
}

void loading_closed(void)
{
    __atomic_store_n(&looked_at, NULL, __ATOMIC_RELEASE);
}
