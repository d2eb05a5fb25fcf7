/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every hook begins with: may the real function be called, is anything recorded, who called. All inline:
 * with the recorder off a hook is one load, one branch and a jump.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H
#define VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H

#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/reentrant.h"
#include "trace/record.h"
#include "trace/recorder/emit_slow.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/native_stack.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * Objects that no preloaded library stands in front of: of RTLD_DEEPBIND, which ask the libraries that they need
 * first, and of namespaces of their own (dlmopen), with a C library of their own.
 */

/// From now on the definitions that the hooks stand for lead to the hooks, whoever asks. Once heap_real is filled and
/// heap_cxx_prepare was called, before anything is recorded. Threads: one at a time.
void loading_begin(void);
/// No more: names lead again where they led before. Threads: one at a time.
void loading_end(void);

/// For hooks, while heap_state is HEAP_STATE_LOADING: looks at what this thread has loaded since. Always true.
/// Threads: any.
bool loading_look(void);

/// The process ends, or its recording: a last look. Threads: any.
void loading_finish(void);

/// Around the unloading of an object: what is known of the list of objects is not so any more.
void loading_closing(void);
void loading_closed(void);

/*
 * Allocators beside that of the program: the C library of another namespace, that of an object opened with
 * RTLD_DEEPBIND. Each gets hooks that call its own functions, so that its blocks go back to it. Threads: one at a time.
 */

/// Is this one hooked, or given up?
bool other_allocators_know(const struct elf_object *object);

/// Hooks for what `object` defines, for all that is bound to it from now on. False: that can't be done.
bool other_allocators_hook(const struct elf_object *object);

/// It is left alone from now on.
void other_allocators_forgo(const struct elf_object *object);

/* The hooks of this library beside the functions that they stand for, for those whom no name leads to them. */

/* Those of the allocator come first. */
struct hook_table {
    const struct elf_replacement *rows;
    unsigned count;
    unsigned allocator_count;
};

/// Made at the first call, after heap_real was filled and heap_cxx_prepare was called. Threads: one at a time.
const struct hook_table *hook_table(void);

/* The real functions behind our hooks, and whether anything is recorded. */

/* X(name, result, parameters): required ones are in every C library; the others may be missing (NULL). */
#define HEAP_ALLOCATOR_REQUIRED_LIST(X)               \
    X(malloc, void *, (size_t))                       \
    X(free, void, (void *))                           \
    X(calloc, void *, (size_t, size_t))               \
    X(realloc, void *, (void *, size_t))              \
    X(posix_memalign, int, (void **, size_t, size_t)) \
    X(aligned_alloc, void *, (size_t, size_t))

#define HEAP_ALLOCATOR_OPTIONAL_LIST(X)   \
    X(memalign, void *, (size_t, size_t)) \
    X(valloc, void *, (size_t))           \
    X(pvalloc, void *, (size_t))          \
    X(cfree, void, (void *))              \
    X(free_sized, void, (void *, size_t)) \
    X(free_aligned_sized, void, (void *, size_t, size_t))

#define HEAP_SYSTEM_REQUIRED_LIST(X)                        \
    X(mmap, void *, (void *, size_t, int, int, int, off_t)) \
    X(munmap, int, (void *, size_t))

#define HEAP_SPAWN_PARAMETERS \
    (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)

#define HEAP_SYSTEM_OPTIONAL_LIST(X)                                         \
    X(mremap, void *, (void *, size_t, size_t, int, ...))                    \
    X(dlopen, void *, (const char *, int))                                   \
    X(dlmopen, void *, (long, const char *, int))                            \
    X(dlclose, int, (void *))                                                \
    X(prctl, int, (int, ...))                                                \
    X(syscall, long, (long, ...))                                            \
    X(exit, void, (int))                                                     \
    X(quick_exit, void, (int))                                               \
    X(daemon, int, (int, int))                                               \
    X(_exit, void, (int))                                                    \
    X(execve, int, (const char *, char *const *, char *const *))             \
    X(execv, int, (const char *, char *const *))                             \
    X(execvp, int, (const char *, char *const *))                            \
    X(execvpe, int, (const char *, char *const *, char *const *))            \
    X(fexecve, int, (int, char *const *, char *const *))                     \
    X(execveat, int, (int, const char *, char *const *, char *const *, int)) \
    X(posix_spawn, int, HEAP_SPAWN_PARAMETERS)                               \
    X(posix_spawnp, int, HEAP_SPAWN_PARAMETERS)                              \
    X(system, int, (const char *))                                           \
    X(popen, FILE *, (const char *, const char *))

#define HEAP_REQUIRED_LIST(X)       \
    HEAP_ALLOCATOR_REQUIRED_LIST(X) \
    HEAP_SYSTEM_REQUIRED_LIST(X)

#define HEAP_OPTIONAL_LIST(X)       \
    HEAP_ALLOCATOR_OPTIONAL_LIST(X) \
    HEAP_SYSTEM_OPTIONAL_LIST(X)

struct heap_real {
#define HEAP_REAL_FIELD(name, result, parameters) result(*name) parameters;
    HEAP_REQUIRED_LIST(HEAP_REAL_FIELD)
    HEAP_OPTIONAL_LIST(HEAP_REAL_FIELD)
#undef HEAP_REAL_FIELD
};

extern struct heap_real heap_real;

enum heap_state {
    HEAP_STATE_NEW = 0,
    HEAP_STATE_FINDING = 1, /* this or another thread looks the real functions up */
    HEAP_STATE_OFF = 2,     /* found; nothing is recorded */
    HEAP_STATE_ON = 3,
    HEAP_STATE_LOADING = 4, /* the same, and some thread loads objects that are to be looked at (heap_hooks.h) */
};

/* Read by every hook without a lock; never goes back below OFF, and from there down to it only where heap_is_late. */
extern uint32_t heap_state;

/* There is a session: whatever it records, ends of processes are noted. Set before heap_state leaves NEW. */
extern bool preload_is_on;

/* Nonzero if call sites are wanted; set before heap_state becomes ON. */
extern uint32_t heap_with_stacks;

/* This library was loaded by dlopen into a running program: nothing finds its functions by their names, and whether
 * anything is recorded is decided by varve_preload_attach (attach/attach_calls.h). Set with heap_real. */
extern bool heap_is_late;

/* Of a program that runs already (heap_attach.c). All but the first take the loader's lock. Threads: one at a time. */

/// What is to be put into its entries, at most `room`: all hooks, or, where its heap is not recorded, that which sees
/// that objects are unloaded. How many they are.
unsigned heap_attach_rows(bool is_wanted, struct elf_replacement *rows, unsigned room);
/// Names lead to the hooks, but nothing is recorded yet.
void heap_attach_prepare(void);
/// Only once the hooks are in: an allocation that was recorded while some entry of free was still the program's own
/// would never end.
void heap_attach_begin(void);
/// Nothing more is recorded, but by hooks that threads are in, and names lead where they led before.
void heap_attach_end(void);

/* Of the kernel; set with heap_real. */
extern size_t heap_page_bytes;

/// True once heap_real can be called. False only during the lookup itself: serve the call from the bootstrap
/// pool.
bool heap_ready(void);

/// What the program calls by this name if this library is not asked; NULL: there is nothing. May allocate.
void *heap_real_find(const char *name);

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

/* operator new and delete, and what is recorded twice unless the two know of each other. */

/// Find what C++ code will see behind our own, once, before other threads exist and after heap_real was
/// filled; `is_recorded`: the heap is. False: an object in front of us defines malloc, so that the hooks see
/// nothing of what it serves.
bool heap_cxx_prepare(bool is_recorded);

/* Our malloc, whatever else has the name in C; set by heap_cxx_prepare. */
extern uintptr_t heap_malloc_hook;

/// One after the other those that are recorded here: name and definition. `*at` is 0 at first; false: no more.
bool heap_cxx_each_recorded(unsigned *at, const char **name, void **real);

/// Around the unloading of an object: what was found in it is forgotten.
void heap_cxx_closing(void);
void heap_cxx_closed(void);

/* An allocator's operator new or delete may itself call a function that has a hook: the address that a hook
 * of this thread has recorded last, and the one whose operator delete was recorded and is now at work. */
extern __thread void *heap_last_recorded __attribute__((tls_model("initial-exec")));
extern __thread void *heap_freeing __attribute__((tls_model("initial-exec")));

#endif
