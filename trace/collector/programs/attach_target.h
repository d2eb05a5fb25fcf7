/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is to be recorded from now on: what it is, and what it has mapped, by /proc alone. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TARGET_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TARGET_H

#include "trace/collector/session/mapped_recordings.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct varve_message;

#define TARGET_PATH_BYTES 4096U
#define TARGET_ALLOCATORS 8U

struct target_object {
    char path[TARGET_PATH_BYTES]; /* "": it has none mapped */
    uint64_t base;                /* address in memory minus address in the file */
    uint64_t inode;
    dev_t device;
};

struct target {
    int32_t pid;
    int32_t tid;       /* a thread of it that lives: files of /proc/PID say nothing once the main thread has ended */
    uint64_t image[3]; /* of the program that it runs: other ones after it has executed one */
    struct target_object libc;
    struct target_object libdl;      /* where the C library's is not all in one */
    struct target_object recorder;   /* libvarve_preload.so */
    struct session_mapped recording; /* that it has mapped, if it is_recorded */
    bool is_recorded;
    bool has_torch;                                        /* a library of PyTorch's */
    char allocators[TARGET_ALLOCATORS][TARGET_PATH_BYTES]; /* other objects that define malloc */
    unsigned allocator_count;
    char command[4096]; /* its command line */
};

enum target_purpose {
    TARGET_TO_RECORD,
    TARGET_TO_LEAVE, /* it has the recorder, which is to let go of it: its files and its user no longer matter */
};

/// Is it there and ours, and has it nothing that stands in the way? Errors, each with one line: VARVE_ERROR_NOT_FOUND
/// (no such process), PERMISSION, UNSUPPORTED, BUSY (a debugger has it, it is stopped, it executes a program).
int target_open(struct target *target, int32_t pid, enum target_purpose purpose, struct varve_message *message);

/// Does thread `tid` of it, which is traced and stopped, run the program that was there when it was opened?
bool target_is_same(const struct target *target, int32_t tid);

/// One command at a time loads the recorder into a process, or takes it out, until `*fd_out` is closed, here and in
/// children. Where it can't be locked what follows will say why. Error: VARVE_ERROR_BUSY, with one line.
int target_lock(int32_t pid, int *fd_out, struct varve_message *message);

/// Is `path` the same file for it as for us?
bool target_sees(const struct target *target, const char *path);

/// Address in the process of a function that the object exports; 0: it does not.
uint64_t target_function(const struct target_object *object, const char *name);

#endif
