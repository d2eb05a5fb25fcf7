/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files past the C library: read whole, and made longer without the signals that this may raise. Threads:
 * any.
 */
#ifndef VARVE_TRACE_GUEST_GUEST_FILE_H
#define VARVE_TRACE_GUEST_GUEST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
