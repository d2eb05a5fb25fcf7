/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is to be recorded from now on: what it is, and what it has mapped, by /proc alone. */
#ifndef VARVE_TRACE_COLLECTOR_ATTACH_TARGET_H
#define VARVE_TRACE_COLLECTOR_ATTACH_TARGET_H

#include "trace/collector/session/mapped.h"

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
    struct target_object libc;
    struct target_object libdl;      /* where the C library's is not all in one */
    struct target_object recorder;   /* libvarve_preload.so */
    struct session_mapped recording; /* that it has mapped, if it is_recorded */
    bool is_recorded;
    char allocators[TARGET_ALLOCATORS][TARGET_PATH_BYTES]; /* other objects that define malloc */
    unsigned allocator_count;
    char command[4096]; /* its command line */
};

/// Is it there and ours, and has it nothing that stands in the way? Errors, each with one line: VARVE_ERROR_NOT_FOUND
/// (no such process), PERMISSION, UNSUPPORTED, BUSY (a debugger has it).
int target_open(struct target *target, int32_t pid, struct varve_message *message);

/// Is `path` the same file for it as for us?
bool target_sees(const struct target *target, const char *path);

/// Address in the process of a function that the object exports; 0: it does not.
uint64_t target_function(const struct target_object *object, const char *name);

#endif
