/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the recorder's own and shared ones, straight from the kernel: the C library's mmap may be one of
 * our hooks, and its allocator is what we record. Threads: any.
 */
#ifndef VARVE_TRACE_GUEST_GUEST_MEMORY_H
#define VARVE_TRACE_GUEST_GUEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_LINE_BYTES 64U /* what a store takes from all other processors */

/// Does the kernel lock what is mapped from now on? Then what is mapped here is unlocked, before a page of it is there.
void recorder_memory_is_locked(bool is_locked);

/// Zeroed pages, never given to the program's allocator; NULL if there is none. Threads: any.
void *recorder_map(size_t bytes);
/// The same for a table that is read at random: in large pages where there are any and it fills them.
void *recorder_map_table(size_t bytes);
void recorder_unmap(void *memory, size_t bytes);

/// Map `bytes` of a file, shared with the collector; `fork_private`: not mapped in fork children.
void *recorder_map_file(int fd, size_t bytes, bool fork_private);
/// The same of a file that is only read here, kept in fork children.
void *recorder_map_file_read(int fd, size_t bytes);

/// A piece of a file, shared with the collector, not mapped in fork children; `offset` at a page.
void *recorder_map_window(int fd, uint64_t offset, size_t bytes);

/// More of a file that is mapped already, without its descriptor: `bytes` from `offset` on, counted from the beginning
/// of the shared mapping `base`. Not mapped in fork children. NULL: no memory, or no address space.
void *recorder_map_more(const void *base, uint64_t offset, size_t bytes);

/// Pages that read as zeros in a fork child, which is how a child notices that it must attach anew.
void *recorder_map_wiped(size_t bytes);
/// The same, for what the process has one of: made by the first call, the same pages for all. NULL: no
/// memory.
void *recorder_map_wiped_once(void **slot, size_t bytes);

/// Copy memory of this process that may not be there, or not for long: false instead of a fault. False too
/// where a sandbox lets nobody look. Costs a system call. Threads: any; async-signal-safe.
bool recorder_read_memory(void *out, uintptr_t address, size_t bytes);

/*
 * Files past the C library: read whole, and made longer without the signals that this may raise. Threads:
 * any.
 */

/// Whole content of a small file, at most `bytes`; returns its length or -1. No allocation.
long recorder_read_file(const char *path, char *buffer, size_t bytes);

/// Path of the program's file, as the first call found it: one that has changed its root can't ask any more. Returns
/// its length without the NUL, 0 if it is unknown.
size_t recorder_executable(char *path, size_t bytes);

/// Around a call that makes a file longer, with signals blocked: past RLIMIT_FSIZE it returns -EFBIG and
/// raises SIGXFSZ. `end` takes that signal back, unless one of the program's own was pending at `begin`.
bool recorder_size_signal_begin(void);
void recorder_size_signal_end(bool was_pending, long result);

/// Blocks behind `bytes` of a file from `offset` on, which nothing was stored in so far: a store into a
/// mapped page of them does not raise SIGBUS then. Signals are blocked. 0 or -errno.
long recorder_file_allocate(int fd, uint64_t offset, uint64_t bytes);
/// Length of a file, without blocks. Signals are blocked. 0 or -errno.
long recorder_file_resize(int fd, uint64_t bytes);

/* The little text that the recorder needs: paths, variables, and numbers of /proc. Async-signal-safe. */

/// printf for paths, cut to fit; async-signal-safe subset: %s and %u only.
void recorder_format(char *buffer, size_t bytes, const char *format, ...);

/// Value of a variable in an environment; NULL: it is not there. `envp` may be NULL.
const char *recorder_variable(char *const *envp, const char *name);

/// The decimal number at the start of `text`, 0 if there is none.
uint64_t recorder_number(const char *text);

#endif
