/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a process to its recording, by what it has mapped: whoever records it, and in whatever way that
 * began. Threads: any.
 */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_MAPPED_RECORDINGS_H
#define VARVE_TRACE_COLLECTOR_SESSION_MAPPED_RECORDINGS_H

#include "trace/collector/session/recording_directory.h"

#include <stdbool.h>
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

#endif
