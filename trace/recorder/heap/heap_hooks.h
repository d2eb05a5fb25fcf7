/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every hook begins with: may the real function be called, is anything recorded, who called. All inline:
 * with the recorder off a hook is one load, one branch and a jump.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H
#define VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H

#include "trace/guest/reentrant.h"
#include "trace/record.h"
#include "trace/recorder/emit_slow.h"
#include "trace/recorder/heap/heap_real.h"
#include "trace/recorder/heap/loading.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/native_stack.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define HOOK __attribute__((visibility("default"), noinline))

/* The frame of a hook: saved frame pointer and return address, which -fno-omit-frame-pointer guarantees. */
#define HOOK_FRAME() ((const uintptr_t *)__builtin_frame_address(0))

/* The registers of the hook's caller as they will be when the hook returns. */
static inline struct callsite_start hook_start(const uintptr_t *frame)
{
    return (struct callsite_start){.pc = frame[1], .sp = (uintptr_t)(frame + 2), .fp = frame[0]};
}

/* Where the real function is not known yet: the answer of a system call as the C library gives it. */
static inline long hook_answer(long result)
{
    if (result < 0 && result >= -4095) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Off is the state to be fast in: hooks test it first and jump to the real function. */
static inline bool hook_is_off(void)
{
    return __builtin_expect(__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) == HEAP_STATE_OFF, 1);
}

static inline bool hook_can_call(void)
{
    return __builtin_expect(__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) >= HEAP_STATE_OFF, 1) || heap_ready();
}

static inline bool hook_records(void)
{
    const uint32_t state = __atomic_load_n(&heap_state, __ATOMIC_RELAXED);
    return (__builtin_expect(state == HEAP_STATE_ON, 1) || (state == HEAP_STATE_LOADING && loading_look())) &&
           __builtin_expect(recorder_reentrant_depth == 0, 1);
}

/* Is there a session at all, and this thread not at work for it? */
static inline bool hook_is_recording(void)
{
    return preload_is_on && recorder_reentrant_depth == 0;
}

/* The provider of the second sink tidies up at the end of the program: not the program's doing. */
static inline bool hook_is_sink_closing(const uintptr_t *frame)
{
    return __builtin_expect(second_sink_is_closed, 0) && second_sink_owns_code(frame[1]);
}

static inline uint32_t hook_callsite(const struct callsite_start *start)
{
    return __builtin_expect(heap_with_stacks != 0, 0) ? callsite_capture(start) : 0;
}

/*
 * Objects and buffers of a CPython interpreter, which its own allocator cuts from arenas: seen by hooks that the
 * interpreter offers.
 */

/// Once per program, before main and while it has one thread: an interpreter that it is linked with calls our hooks
/// from its first object on.
void python_allocators_hook(void);

/* What the hooks of mmap, munmap and mremap do once `real`, of whichever C library, can be called. */

/// The function itself, recorded. `frame`: that of the hook (HOOK_FRAME). Threads: any.
void *map_mmap(const struct heap_real *real, void *address, size_t bytes, int protection, int flags, int fd,
               off_t offset, const uintptr_t *frame);
int map_munmap(const struct heap_real *real, void *address, size_t bytes, const uintptr_t *frame);
/// `wanted` counts with MREMAP_FIXED only.
void *map_mremap(const struct heap_real *real, void *old, size_t old_bytes, size_t bytes, int flags, void *wanted,
                 const uintptr_t *frame);

/* An allocation and a free into the ring. */

void heap_note_alloc(void *memory, size_t size, size_t alignment, enum varve_cause cause,
                     const struct callsite_start *start);
void heap_note_free(void *memory, enum varve_cause cause);
/// After heap_note_free of `old`; `memory` NULL: it failed, unless `bytes` is 0.
void heap_note_realloc(void *old, void *memory, size_t bytes, enum varve_cause cause, uint32_t callsite);

/*
 * The moment at which the program's own code is over: main returned, exit was called, or a Python interpreter that is
 * the program begins to tear itself down. One event main_end for each process.
 */

/// Once per process image, by its main thread, while the C library's allocations are served from the bootstrap pool, or
/// by an allocator that is not recorded: what is asked for here is freed when nothing of it was recorded.
void main_end_prepare(void);
/// Once, with all libraries that the program is linked with in place: is it a Python interpreter?
void main_end_find_python(void);

/// Main is over, if it was not already. Threads: any; async-signal-safe.
void main_end_emit(void);

/// The program is a Python interpreter that has not begun to tear itself down: main_end_look before a free.
extern bool main_end_is_watched;
void main_end_look(void);

/* A load and a branch where the program is no interpreter. */
static inline void main_end_watch(void)
{
    if (__builtin_expect(__atomic_load_n(&main_end_is_watched, __ATOMIC_RELAXED), 0)) {
        main_end_look();
    }
}

/* The pool that serves allocations while the real functions are being looked up. */

void *heap_bootstrap_alloc(size_t alignment, size_t bytes); /* zeroed; NULL when the pool is used up */
#define HEAP_BOOTSTRAP_BYTES 16384U
extern char heap_bootstrap_pool[HEAP_BOOTSTRAP_BYTES];

static inline bool heap_bootstrap_owns(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)heap_bootstrap_pool < HEAP_BOOTSTRAP_BYTES;
}

size_t heap_bootstrap_size(const void *memory);

#endif
