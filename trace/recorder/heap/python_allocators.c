/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyMem_SetAllocator, as of Python 3.5: our functions stand before the interpreter's own, which keep doing the work, so
 * that the program has the layout and nearly the speed that it has without them. They are set before the interpreter
 * begins: nobody allocates then, and what is freed later was seen. PYTHONMALLOC and -X dev make the
 * interpreter replace them.
 *
 * The interpreter calls them with its lock held, for its domains `mem` and `obj`; `raw` is malloc. What it takes from
 * mmap and malloc for them is recorded too, in domains of their own.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_symbol.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <stddef.h>

/* As PyMemAllocatorEx and PyMemAllocatorDomain in Python's cpython/pymem.h. */
struct python_allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *memory, size_t size);
    void (*free)(void *context, void *memory);
};

enum python_domain {
    PYTHON_RAW = 0,
    PYTHON_MEM = 1,
    PYTHON_OBJ = 2,
    PYTHON_DOMAINS = 3,
};

/* The interpreter's own; the context of our functions is one of them. Written before main only. */
static struct python_allocator own[PYTHON_DOMAINS];

static inline void python_allocators_note_alloc(const void *memory, size_t size, enum varve_cause cause,
                                                const uintptr_t *frame)
{
    const struct callsite_start start = hook_start(frame);
    struct varve_record record = {0};
    record.addr = (uintptr_t)memory;
    record.size = size;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_PYTHON_ALLOC, memory == NULL ? VARVE_FLAG_FAILED : 0);
    record.callsite = hook_callsite(&start);
    record.cause = (uint8_t)cause;
    varve_emit(&record);
}

static inline void python_allocators_note_free(const void *memory, enum varve_cause cause)
{
    main_end_watch();
    struct varve_record record = {0};
    record.addr = (uintptr_t)memory;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_PYTHON_FREE, 0);
    record.cause = (uint8_t)cause;
    varve_emit(&record);
}

static void *python_malloc(void *context, size_t size)
{
    const struct python_allocator *allocator = context;
    void *memory = allocator->malloc(allocator->context, size);
    if (hook_is_recording()) {
        python_allocators_note_alloc(memory, size, VARVE_CAUSE_MALLOC, HOOK_FRAME());
    }
    return memory;
}

static void *python_calloc(void *context, size_t count, size_t size)
{
    const struct python_allocator *allocator = context;
    void *memory = allocator->calloc(allocator->context, count, size);
    if (hook_is_recording()) {
        python_allocators_note_alloc(memory, count * size, VARVE_CAUSE_CALLOC, HOOK_FRAME());
    }
    return memory;
}

static __attribute__((noinline)) void note_realloc(const void *old, const void *memory, size_t size, uint32_t callsite)
{
    struct varve_record record = {0};
    bool has_failed = memory == NULL;
    record.addr = has_failed ? (uintptr_t)old : (uintptr_t)memory;
    record.size = size;
    record.arg = (uintptr_t)old;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_PYTHON_REALLOC, has_failed ? VARVE_FLAG_FAILED : 0);
    record.callsite = callsite;
    record.cause = VARVE_CAUSE_REALLOC;
    varve_emit(&record);
}

static void *python_realloc(void *context, void *old, size_t size)
{
    const struct python_allocator *allocator = context;
    if (!hook_is_recording()) {
        return allocator->realloc(allocator->context, old, size);
    }
    void *memory;
    if (old == NULL) {
        memory = allocator->realloc(allocator->context, NULL, size);
        python_allocators_note_alloc(memory, size, VARVE_CAUSE_REALLOC, HOOK_FRAME());
    } else {
        struct callsite_start start = hook_start(HOOK_FRAME());
        python_allocators_note_free(old, VARVE_CAUSE_REALLOC);
        memory = allocator->realloc(allocator->context, old, size);
        note_realloc(old, memory, size, hook_callsite(&start));
    }
    return memory;
}

static void python_free(void *context, void *memory)
{
    const struct python_allocator *allocator = context;
    if (memory != NULL && hook_is_recording()) {
        python_allocators_note_free(memory, VARVE_CAUSE_FREE);
    }
    allocator->free(allocator->context, memory);
}

void python_allocators_hook(void)
{
    void (*get)(int domain, struct python_allocator *allocator);
    void (*set)(int domain, struct python_allocator *allocator);
    static const char *const names[] = {"PyMem_GetAllocator", "PyMem_SetAllocator"};
    struct elf_object object;
    void *found[2];
    if (elf_symbol_object(names[1], &object)) {
        found[0] = elf_symbol_in(&object, names[0]);
        found[1] = elf_symbol_in(&object, names[1]);
    } else if (!elf_file_symbols(".PyRuntime", names, 2, found) || found[1] == NULL) {
        return;
    }
    __builtin_memcpy(&get, &found[0], sizeof(get));
    __builtin_memcpy(&set, &found[1], sizeof(set));
    for (int domain = PYTHON_MEM; get != NULL && domain <= PYTHON_OBJ; domain++) {
        struct python_allocator ours = {&own[domain], python_malloc, python_calloc, python_realloc, python_free};
        get(domain, &own[domain]);
        set(domain, &ours);
    }
}
