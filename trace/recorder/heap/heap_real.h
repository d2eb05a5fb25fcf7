/* SPDX-License-Identifier: Apache-2.0 */
/* The real functions behind our hooks, and whether anything is recorded. */
#ifndef VARVE_TRACE_RECORDER_HEAP_HEAP_REAL_H
#define VARVE_TRACE_RECORDER_HEAP_HEAP_REAL_H

#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

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
    HEAP_STATE_LOADING = 4, /* the same, and some thread loads objects that are to be looked at (loading.h) */
};

/* Read by every hook without a lock; never goes back below OFF, and from there down to it only where heap_is_late. */
extern uint32_t heap_state;

/* There is a session: whatever it records, ends of processes are noted. Set before heap_state leaves NEW. */
extern bool preload_is_on;

/* Nonzero if call sites are wanted; set before heap_state becomes ON. */
extern uint32_t heap_with_stacks;

/* This library was loaded by dlopen into a running program: nothing finds its functions by their names, and whether
 * anything is recorded is decided by varve_preload_attach (heap_attach.h). Set with heap_real. */
extern bool heap_is_late;

/* Of the kernel; set with heap_real. */
extern size_t heap_page_bytes;

/// True once heap_real can be called. False only during the lookup itself: serve the call from the bootstrap
/// pool.
bool heap_ready(void);

/// What the program calls by this name if this library is not asked; NULL: there is nothing. May allocate.
void *heap_real_find(const char *name);

#endif
