/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a process to its recording, by what it has mapped: whoever records it, and in whatever way that
 * began. Threads: any.
 */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_MAPPED_RECORDINGS_H
#define VARVE_TRACE_COLLECTOR_SESSION_MAPPED_RECORDINGS_H

#include "trace/collector/session/recording_directory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_mapped {
    char directory[DIRECTORY_PATH_BYTES]; /* TRACE.db.d; "" without a collector */
    uint64_t trace_id;
    int32_t collector; /* 0: it has died, or is of another version */
    bool is_attached;  /* the process, or one that it is a child of, ran already */
    bool is_finishing; /* nothing more is recorded: the database is being written */
    bool is_removed;   /* the recording is finished, or was deleted; the mapping is left */
};

/// The recording whose session page `pid` has mapped. False: it has none, or can't be looked at.
bool session_mapped_find(int32_t pid, struct session_mapped *mapped_out);

/// Is `pid` the collector of that recording: does it hold the lock of its directory? `directory_out` (or NULL) gets
/// that, of DIRECTORY_PATH_BYTES. Numbers are given out again: one alone says nothing.
bool session_collector_is(int32_t pid, uint64_t trace_id, char *directory_out);

/* Who lives, by locks of files and by /proc. */

struct process_identity;
struct session_directory;

/// Somebody holds a lock of the file of `fd`.
bool liveness_is_locked(int fd);
/// On the file system of this file of the session a mapping keeps the locks of its file.
bool liveness_locks_work(const struct session_directory *directory, const char *name);
/// Our own PID namespace, as process_identity has it.
uint64_t liveness_namespace(void);
/// The number, here, of a process of any namespace; 0: there is none. Reads all of /proc.
int32_t liveness_find(const struct process_identity *identity);
/// The same of a process without /proc, which does not know its namespace: of those whose innermost one gave them
/// `pid`, one that has this session mapped; `pid` itself first.
int32_t liveness_find_unplaced(int32_t pid, uint64_t trace_id);
/// Some process other than this one was started with this session in its environment. Reads all of /proc.
bool liveness_has_followers(const char *session);

/* How much memory this machine, or the container, has left. */

/// Bytes that can be had without swapping, or before a control group of this process kills a process; UINT64_MAX if
/// nothing is known. `root` is put before /proc and /sys: "" but in tests.
uint64_t free_memory(const char *root);

/// The control groups of a process, as /proc/PID/cgroup lists them; `pid` 0: of this one. False: not known.
bool free_memory_groups(const char *root, int32_t pid, char *groups, size_t bytes);
/// Bytes that can be had in all of these; UINT64_MAX if nothing is known.
uint64_t free_memory_of_groups(const char *root, const char *groups);

#endif
