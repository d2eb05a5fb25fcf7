/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place for each of them, with functions that know its number; there are no more namespaces than 16. Inside a call of
 * an allocator nothing is recorded: one that stands before another, as a wrapper, would have its blocks recorded twice.
 * Whoever is still bound to functions of one that was unloaded was unloaded too, so that its place is free again.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/guest/loaded_object.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* X(name): what an allocator may have; the last ones are of C libraries only. */
#define OTHER_FUNCTIONS(X) \
    X(malloc)              \
    X(free)                \
    X(cfree)               \
    X(free_sized)          \
    X(free_aligned_sized)  \
    X(calloc)              \
    X(realloc)             \
    X(reallocarray)        \
    X(posix_memalign)      \
    X(aligned_alloc)       \
    X(memalign)            \
    X(valloc)              \
    X(pvalloc)             \
    X(mmap)                \
    X(mmap64)              \
    X(munmap)              \
    X(mremap)

#define OTHER_PLACES(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

enum other_function {
#define OTHER_ENUM(name) OTHER_##name,
    OTHER_FUNCTIONS(OTHER_ENUM)
#undef OTHER_ENUM
        OTHER_FUNCTION_COUNT
};

#define OTHER_COUNT(place) +1
enum { PLACES = 0 OTHER_PLACES(OTHER_COUNT), FORGONE = 16 };

static const char *const names[] = {
#define OTHER_NAME(name) #name,
    OTHER_FUNCTIONS(OTHER_NAME)
#undef OTHER_NAME
};

static struct heap_real others[PLACES];   /* their own functions; before anybody is bound to the hooks */
static struct elf_object objects[PLACES]; /* `dynamic` NULL: there was none yet */
static const void *forgone[FORGONE];      /* dynamic sections */
static unsigned forgone_count;

/* ---- calls ---- */

/* Signals stay open: a handler that allocates inside an allocator would not live long. */
static inline void inside(int by)
{
    recorder_reentrant_depth += (uint32_t)by;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void other_allocators_note(void *memory, size_t size, size_t alignment, enum varve_cause cause,
                                         const uintptr_t *frame)
{
    inside(-1);
    if (hook_records()) {
        const struct callsite_start start = hook_start(frame);
        heap_note_alloc(memory, size, alignment, cause, &start);
    }
}

static void *other_malloc(const struct heap_real *real, size_t size, const uintptr_t *frame)
{
    inside(1);
    void *memory = real->malloc(size);
    other_allocators_note(memory, size, 0, VARVE_CAUSE_MALLOC, frame);
    return memory;
}

static void other_free(const struct heap_real *real, void *memory)
{
    if (memory != NULL && hook_records()) {
        heap_note_free(memory, VARVE_CAUSE_FREE);
    }
    inside(1);
    real->free(memory);
    inside(-1);
}

static void *other_calloc(const struct heap_real *real, size_t count, size_t size, const uintptr_t *frame)
{
    inside(1);
    void *memory = real->calloc(count, size);
    other_allocators_note(memory, memory != NULL ? count * size : size, 0, VARVE_CAUSE_CALLOC, frame);
    return memory;
}

static void *other_realloc(const struct heap_real *real, void *old, size_t bytes, enum varve_cause cause,
                           const uintptr_t *frame)
{
    const bool is_recorded = old != NULL && hook_records();
    if (is_recorded) {
        heap_note_free(old, VARVE_CAUSE_REALLOC);
    }
    inside(1);
    void *memory = real->realloc(old, bytes);
    if (!is_recorded) {
        other_allocators_note(memory, bytes, 0, cause, frame);
        return memory;
    }
    inside(-1);
    const struct callsite_start start = hook_start(frame);
    heap_note_realloc(old, memory, bytes, cause, hook_callsite(&start));
    return memory;
}

static int other_posix_memalign(const struct heap_real *real, void **memory_out, size_t alignment, size_t size,
                                const uintptr_t *frame)
{
    inside(1);
    const int failed = real->posix_memalign(memory_out, alignment, size);
    other_allocators_note(failed == 0 ? *memory_out : NULL, size, alignment, VARVE_CAUSE_POSIX_MEMALIGN, frame);
    return failed;
}

static void *other_aligned(void *(*function)(size_t, size_t), size_t alignment, size_t size, enum varve_cause cause,
                           const uintptr_t *frame)
{
    inside(1);
    void *memory = function(alignment, size);
    other_allocators_note(memory, size, alignment, cause, frame);
    return memory;
}

static void *other_pages(void *(*function)(size_t), size_t size, enum varve_cause cause, const uintptr_t *frame)
{
    inside(1);
    void *memory = function(size);
    other_allocators_note(memory, size, heap_page_bytes, cause, frame);
    return memory;
}

#define OTHER static __attribute__((noinline))

#define OTHER_DEFINE(place)                                                                                          \
    OTHER void *malloc_##place(size_t size)                                                                          \
    {                                                                                                                \
        return other_malloc(&others[place], size, HOOK_FRAME());                                                     \
    }                                                                                                                \
    OTHER void free_##place(void *memory)                                                                            \
    {                                                                                                                \
        other_free(&others[place], memory);                                                                          \
    }                                                                                                                \
    OTHER void cfree_##place(void *memory)                                                                           \
    {                                                                                                                \
        other_free(&others[place], memory);                                                                          \
    }                                                                                                                \
    OTHER void free_sized_##place(void *memory, size_t size)                                                         \
    {                                                                                                                \
        (void)size;                                                                                                  \
        other_free(&others[place], memory);                                                                          \
    }                                                                                                                \
    OTHER void free_aligned_sized_##place(void *memory, size_t alignment, size_t size)                               \
    {                                                                                                                \
        (void)alignment, (void)size;                                                                                 \
        other_free(&others[place], memory);                                                                          \
    }                                                                                                                \
    OTHER void *calloc_##place(size_t count, size_t size)                                                            \
    {                                                                                                                \
        return other_calloc(&others[place], count, size, HOOK_FRAME());                                              \
    }                                                                                                                \
    OTHER void *realloc_##place(void *old, size_t size)                                                              \
    {                                                                                                                \
        return other_realloc(&others[place], old, size, VARVE_CAUSE_REALLOC, HOOK_FRAME());                          \
    }                                                                                                                \
    OTHER void *reallocarray_##place(void *old, size_t count, size_t size)                                           \
    {                                                                                                                \
        size_t bytes;                                                                                                \
        return other_realloc(&others[place], old, __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes,    \
                             VARVE_CAUSE_REALLOCARRAY, HOOK_FRAME());                                                \
    }                                                                                                                \
    OTHER int posix_memalign_##place(void **memory_out, size_t alignment, size_t size)                               \
    {                                                                                                                \
        return other_posix_memalign(&others[place], memory_out, alignment, size, HOOK_FRAME());                      \
    }                                                                                                                \
    OTHER void *aligned_alloc_##place(size_t alignment, size_t size)                                                 \
    {                                                                                                                \
        return other_aligned(others[place].aligned_alloc, alignment, size, VARVE_CAUSE_ALIGNED_ALLOC, HOOK_FRAME()); \
    }                                                                                                                \
    OTHER void *memalign_##place(size_t alignment, size_t size)                                                      \
    {                                                                                                                \
        return other_aligned(others[place].memalign, alignment, size, VARVE_CAUSE_MEMALIGN, HOOK_FRAME());           \
    }                                                                                                                \
    OTHER void *valloc_##place(size_t size)                                                                          \
    {                                                                                                                \
        return other_pages(others[place].valloc, size, VARVE_CAUSE_VALLOC, HOOK_FRAME());                            \
    }                                                                                                                \
    OTHER void *pvalloc_##place(size_t size)                                                                         \
    {                                                                                                                \
        return other_pages(others[place].pvalloc, size, VARVE_CAUSE_PVALLOC, HOOK_FRAME());                          \
    }                                                                                                                \
    OTHER void *mmap_##place(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)           \
    {                                                                                                                \
        return map_mmap(&others[place], address, bytes, protection, flags, fd, offset, HOOK_FRAME());                \
    }                                                                                                                \
    OTHER int munmap_##place(void *address, size_t bytes)                                                            \
    {                                                                                                                \
        return map_munmap(&others[place], address, bytes, HOOK_FRAME());                                             \
    }                                                                                                                \
    OTHER void *mremap_##place(void *old, size_t old_bytes, size_t bytes, int flags, void *wanted)                   \
    {                                                                                                                \
        return map_mremap(&others[place], old, old_bytes, bytes, flags, wanted, HOOK_FRAME());                       \
    }

OTHER_PLACES(OTHER_DEFINE)

#define OTHER_HOOKS(place)                  \
    {(uintptr_t)malloc_##place,             \
     (uintptr_t)free_##place,               \
     (uintptr_t)cfree_##place,              \
     (uintptr_t)free_sized_##place,         \
     (uintptr_t)free_aligned_sized_##place, \
     (uintptr_t)calloc_##place,             \
     (uintptr_t)realloc_##place,            \
     (uintptr_t)reallocarray_##place,       \
     (uintptr_t)posix_memalign_##place,     \
     (uintptr_t)aligned_alloc_##place,      \
     (uintptr_t)memalign_##place,           \
     (uintptr_t)valloc_##place,             \
     (uintptr_t)pvalloc_##place,            \
     (uintptr_t)mmap_##place,               \
     (uintptr_t)mmap_##place,               \
     (uintptr_t)munmap_##place,             \
     (uintptr_t)mremap_##place},

static const uintptr_t hooks[PLACES][OTHER_FUNCTION_COUNT] = {OTHER_PLACES(OTHER_HOOKS)};

/* ---- places ---- */

static bool is_hooked(unsigned place, const struct elf_object *object)
{
    return (uintptr_t)elf_symbol_in(object, "malloc") == hooks[place][OTHER_malloc];
}

bool other_allocators_know(const struct elf_object *object)
{
    bool is_known = (uintptr_t)elf_symbol_in(object, "malloc") == heap_malloc_hook;
    for (unsigned i = 0; i < PLACES && !is_known; i++) {
        is_known = is_hooked(i, object);
    }
    for (unsigned i = 0; i < FORGONE && !is_known; i++) {
        is_known = forgone[i] == object->dynamic;
    }
    return is_known;
}

void other_allocators_forgo(const struct elf_object *object)
{
    forgone[forgone_count++ % FORGONE] = object->dynamic;
}

/* One that nobody has, or whose object is gone. */
static unsigned place_find(void)
{
    unsigned place = 0;
    while (place < PLACES && objects[place].dynamic != NULL && is_hooked(place, &objects[place])) {
        place++;
    }
    return place;
}

static void real_find(const struct elf_object *object, struct heap_real *real)
{
    void *found;
#define OTHER_FIND(name, result, parameters) \
    found = elf_symbol_in(object, #name);    \
    memcpy(&real->name, &found, sizeof(found));
    HEAP_REQUIRED_LIST(OTHER_FIND)
    HEAP_ALLOCATOR_OPTIONAL_LIST(OTHER_FIND)
    OTHER_FIND(mremap, void *, ())
#undef OTHER_FIND
}

bool other_allocators_hook(const struct elf_object *object)
{
    struct elf_replacement rows[OTHER_FUNCTION_COUNT];
    const unsigned place = place_find();
    unsigned count = 0;
    if (place == PLACES) {
        return false;
    }
    real_find(object, &others[place]);
    for (unsigned i = 0; i < OTHER_FUNCTION_COUNT; i++) {
        const uintptr_t from = (uintptr_t)elf_symbol_in(object, names[i]);
        if (from != 0 && (i != OTHER_reallocarray || others[place].realloc != NULL)) {
            rows[count++] = (struct elf_replacement){.name = names[i], .from = from, .to = hooks[place][i]};
        }
    }
    objects[place] = *object;
    objects[place].may_go = true;
    return elf_definitions_replace(object, rows, count);
}
