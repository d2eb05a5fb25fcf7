/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The malloc family of an unmodified program, interposed by LD_PRELOAD. Two rules keep the order of events
 * true to the order of ownership: a free is emitted before the real free, an allocation after the real call
 * has returned. realloc is both: its old block is freed (heap_free, cause realloc) before the call, its
 * result emitted after it. Each hook first asks whether anything is recorded at all; off costs one load and
 * one branch.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/stacks/native_stack.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* heap_hooks.h would declare these with attributes that differ between C libraries. */
void *memalign(size_t alignment, size_t size);
void *pvalloc(size_t size);

/* Of other allocators and of C23. */
void cfree(void *memory);
void free_sized(void *memory, size_t size);
void free_aligned_sized(void *memory, size_t alignment, size_t size);

static size_t product(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes;
}

static inline void malloc_hooks_note_alloc(void *memory, size_t size, size_t alignment, enum varve_cause cause,
                                           const struct callsite_start *start)
{
    struct varve_record record = {0};
    unsigned flags = memory == NULL ? VARVE_FLAG_FAILED : 0;
    record.addr = (uintptr_t)memory;
    record.size = size;
    record.arg = alignment;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_ALLOC, flags);
    record.callsite = hook_callsite(start);
    record.cause = (uint8_t)cause;
    varve_emit(&record);
    heap_last_recorded = memory;
}

static inline void malloc_hooks_note_free(void *memory, enum varve_cause cause)
{
    main_end_watch();
    struct varve_record record = {0};
    record.addr = (uintptr_t)memory;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_FREE, 0);
    record.cause = (uint8_t)cause;
    varve_emit(&record);
}

void heap_note_alloc(void *memory, size_t size, size_t alignment, enum varve_cause cause,
                     const struct callsite_start *start)
{
    malloc_hooks_note_alloc(memory, size, alignment, cause, start);
}

void heap_note_free(void *memory, enum varve_cause cause)
{
    malloc_hooks_note_free(memory, cause);
}

static __attribute__((noinline)) void *malloc_general(size_t size, const uintptr_t *frame)
{
    struct callsite_start start = hook_start(frame);
    if (!hook_can_call()) {
        return heap_bootstrap_alloc(16, size);
    }
    void *memory = heap_real.malloc(size);
    if (hook_records()) {
        malloc_hooks_note_alloc(memory, size, 0, VARVE_CAUSE_MALLOC, &start);
    }
    return memory;
}

HOOK void *malloc(size_t size)
{
    return hook_is_off() ? heap_real.malloc(size) : malloc_general(size, HOOK_FRAME());
}

/* Is there anything to free at all? Reports the free if so. */
static inline bool begin_free(void *memory, const uintptr_t *frame)
{
    if (memory == NULL || heap_bootstrap_owns(memory) || !hook_can_call()) {
        return false;
    }
    if (hook_records() && memory != heap_freeing && !hook_is_sink_closing(frame)) {
        malloc_hooks_note_free(memory, VARVE_CAUSE_FREE);
    }
    return true;
}

static __attribute__((noinline)) void free_general(void *memory, const uintptr_t *frame)
{
    if (begin_free(memory, frame)) {
        heap_real.free(memory);
    }
}

HOOK void free(void *memory)
{
    if (hook_is_off() && !heap_bootstrap_owns(memory)) {
        heap_real.free(memory);
    } else {
        free_general(memory, HOOK_FRAME());
    }
}

/* What the C library does not have it can't have given out another way than free takes back. */
HOOK void cfree(void *memory)
{
    if (begin_free(memory, HOOK_FRAME())) {
        (heap_real.cfree != NULL ? heap_real.cfree : heap_real.free)(memory);
    }
}

HOOK void free_sized(void *memory, size_t size)
{
    if (begin_free(memory, HOOK_FRAME())) {
        if (heap_real.free_sized != NULL) {
            heap_real.free_sized(memory, size);
        } else {
            heap_real.free(memory);
        }
    }
}

HOOK void free_aligned_sized(void *memory, size_t alignment, size_t size)
{
    if (begin_free(memory, HOOK_FRAME())) {
        if (heap_real.free_aligned_sized != NULL) {
            heap_real.free_aligned_sized(memory, alignment, size);
        } else {
            heap_real.free(memory);
        }
    }
}

/* `memory` is what the real function has given. */
static inline void *noted(void *memory, size_t size, size_t alignment, enum varve_cause cause, const uintptr_t *frame)
{
    if (hook_records()) {
        const struct callsite_start start = hook_start(frame);
        malloc_hooks_note_alloc(memory, size, alignment, cause, &start);
    }
    return memory;
}

HOOK void *calloc(size_t count, size_t size)
{
    if (!hook_can_call()) {
        return heap_bootstrap_alloc(16, product(count, size));
    }
    return noted(heap_real.calloc(count, size), product(count, size), 0, VARVE_CAUSE_CALLOC, HOOK_FRAME());
}

static void *bootstrap_realloc(void *old, size_t size)
{
    size_t keep = heap_bootstrap_size(old);
    void *memory = hook_can_call() ? malloc(size) : heap_bootstrap_alloc(16, size);
    if (memory != NULL) {
        memcpy(memory, old, keep < size ? keep : size);
    }
    return memory;
}

/* Apart from its caller: the record is not on the stack while the call site is looked for. */
__attribute__((noinline)) void heap_note_realloc(void *old, void *memory, size_t bytes, enum varve_cause cause,
                                                 uint32_t callsite)
{
    struct varve_record record = {0};
    bool has_failed = memory == NULL && bytes != 0; /* to size 0: freed, with NULL as the answer */
    record.addr = has_failed ? (uintptr_t)old : (uintptr_t)memory;
    record.size = bytes;
    record.arg = (uintptr_t)old;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_REALLOC, has_failed ? VARVE_FLAG_FAILED : 0);
    record.callsite = callsite;
    record.cause = (uint8_t)cause;
    varve_emit(&record);
}

/* What realloc and reallocarray have in common. The C library's reallocarray calls realloc by name, which
 * would come back here: so only realloc is ever called. */
static void *recorded_realloc(void *old, size_t bytes, enum varve_cause cause, const struct callsite_start *start)
{
    void *memory;
    if (old == NULL) {
        memory = heap_real.realloc(NULL, bytes);
        malloc_hooks_note_alloc(memory, bytes, 0, cause, start);
        return memory;
    }
    malloc_hooks_note_free(old, VARVE_CAUSE_REALLOC);
    memory = heap_real.realloc(old, bytes);
    heap_note_realloc(old, memory, bytes, cause, hook_callsite(start));
    return memory;
}

static inline void *general_realloc(void *old, size_t bytes, enum varve_cause cause, const uintptr_t *frame)
{
    struct callsite_start start = hook_start(frame);
    if (heap_bootstrap_owns(old)) {
        return bootstrap_realloc(old, bytes);
    }
    if (!hook_can_call()) {
        return heap_bootstrap_alloc(16, bytes); /* of NULL: nothing else can exist yet */
    }
    return hook_records() ? recorded_realloc(old, bytes, cause, &start) : heap_real.realloc(old, bytes);
}

HOOK void *realloc(void *old, size_t size)
{
    return general_realloc(old, size, VARVE_CAUSE_REALLOC, HOOK_FRAME());
}

HOOK void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return general_realloc(old, bytes, VARVE_CAUSE_REALLOCARRAY, HOOK_FRAME());
}

HOOK int posix_memalign(void **memory_out, size_t alignment, size_t size)
{
    if (!hook_can_call()) {
        *memory_out = heap_bootstrap_alloc(alignment, size);
        return *memory_out != NULL ? 0 : ENOMEM;
    }
    int failed = heap_real.posix_memalign(memory_out, alignment, size);
    noted(failed == 0 ? *memory_out : NULL, size, alignment, VARVE_CAUSE_POSIX_MEMALIGN, HOOK_FRAME());
    return failed;
}

HOOK void *aligned_alloc(size_t alignment, size_t size)
{
    if (!hook_can_call()) {
        return heap_bootstrap_alloc(alignment, size);
    }
    return noted(heap_real.aligned_alloc(alignment, size), size, alignment, VARVE_CAUSE_ALIGNED_ALLOC, HOOK_FRAME());
}

HOOK void *memalign(size_t alignment, size_t size)
{
    if (!hook_can_call() || heap_real.memalign == NULL) {
        return heap_bootstrap_alloc(alignment, size);
    }
    return noted(heap_real.memalign(alignment, size), size, alignment, VARVE_CAUSE_MEMALIGN, HOOK_FRAME());
}

HOOK void *valloc(size_t size)
{
    if (!hook_can_call() || heap_real.valloc == NULL) {
        return heap_bootstrap_alloc(4096, size);
    }
    return noted(heap_real.valloc(size), size, heap_page_bytes, VARVE_CAUSE_VALLOC, HOOK_FRAME());
}

HOOK void *pvalloc(size_t size)
{
    if (!hook_can_call() || heap_real.pvalloc == NULL) {
        return heap_bootstrap_alloc(4096, size);
    }
    return noted(heap_real.pvalloc(size), size, heap_page_bytes, VARVE_CAUSE_PVALLOC, HOOK_FRAME());
}
