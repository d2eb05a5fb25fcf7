/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call-site file of this process image: entries are appended to mapped windows of it. Guarded by the
 * lock of callsite_here.c, whose holders are called writers here.
 */
#ifndef VARVE_TRACE_STACKS_CALLSITE_WRITER_H
#define VARVE_TRACE_STACKS_CALLSITE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsite_part {
    const void *data;
    size_t bytes;
};

#define CALLSITE_PARTS_MAX 3U
#define CALLSITE_ROOM_BYTES (16U << 10) /* there is this much before the lock is used to append */

/* A piece of the file, mapped; `bytes` is NULL if there is none. */
struct callsite_window {
    unsigned char *bytes;
    size_t size;
    uint64_t offset; /* in the file */
};

/// See callsite_grow_by. Before callsite_file_open, which it holds for. Threads: one, nobody appends.
struct session_growth;
void callsite_file_grow_by(struct session_growth *growth, const void *reserve, uint64_t offset);

/// Make `path` and its first window, forgetting the file before: this process' own if `is_again`, else its
/// parent's, which is not mapped here. Returns VARVE_OK or a negative varve_error. Threads: one, nobody
/// appends.
int callsite_file_open(const char *path, bool is_again);

/// Unmap this process' own, if there is one. Threads: one, nobody appends.
void callsite_file_close(void);

/// Append one entry of at most CALLSITE_PARTS_MAX parts, padded: all of it or nothing. It is in the file
/// afterwards. Returns VARVE_OK or VARVE_ERROR_FULL. Threads: writers.
int callsite_file_append(uint32_t tag, const struct callsite_part *parts, unsigned count);

/// Note in the file that a call site could not be stored. Threads: writers.
void callsite_file_lost(void);

/// Is there too little room to go on? Then `window` says where the next one begins. Threads: writers.
bool callsite_window_is_wanted(struct callsite_window *window);
/// Allocate and map it, if that is possible. Takes as long as the disk does. Threads: any, without the lock.
void callsite_window_open(struct callsite_window *window);
/// Go on in it, if it is there. `window` is then what is not needed any more, to be unmapped. Threads:
/// writers.
void callsite_window_install(struct callsite_window *window);
void callsite_window_unmap(const struct callsite_window *window);

#endif
