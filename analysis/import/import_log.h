/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of other tools, recognised by their first bytes, as trace databases. Called by cli/command_import.c. */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_LOG_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_LOG_H

#include "analysis/import/import_requests.h"

struct input_stream;

enum import_source {
    IMPORT_SOURCE_UNKNOWN,
    IMPORT_SOURCE_PYTORCH,  /* a snapshot: a pickle, or its JSON */
    IMPORT_SOURCE_RMM,      /* import_log.h */
    IMPORT_SOURCE_PROFILER, /* import_log.h */
    IMPORT_SOURCE_DATABASE, /* SQLite: import_log.h, or a trace database */
};

/// What the stream's first bytes are; they stay in it. Errors: those of the stream.
int import_recognise(struct input_stream *input, enum import_source *source_out, struct varve_message *message);
/// A log into a new database; nothing is left behind by an error. `input` is that of the first path, and is taken.
/// Several are logs of RMM, one for each device: its number is in the name (NAME.devN.csv, as RMM makes them), else it
/// is the place in the list.
/// Errors: VARVE_ERROR_FORMAT (one is no log, or there is nothing in it), those of the streams and of the writer.
int import_log(const char *const *paths, size_t count, struct input_stream *input, enum import_source source,
               const char *output, bool may_replace, struct progress *progress, struct import_log_result *result,
               struct varve_message *message);

/*
 * SQLite exports of Nsight Systems (nsys profile --cuda-memory-usage=true, nsys export --type sqlite). Every call of
 * the driver that allocated or freed is a row of CUDA_GPU_MEMORY_USAGE_EVENTS; tables and columns are those of nsys
 * 2021 to 2026, of which older ones lack some. Where a call was traced and sampled, its function, duration, thread and
 * stack come from CUPTI_ACTIVITY_KIND_RUNTIME and CUDA_CALLCHAINS.
 */

/// Numbers of entries are rowids. Errors: VARVE_ERROR_FORMAT (another database, or without that table),
/// those of SQLite.
int nsight_read(const char *path, struct import_requests *requests, struct progress *progress,
                struct varve_message *message);

/*
 * Logs of RMM (RAPIDS Memory Manager) as its logging_resource_adaptor writes them, CSV with a line for each call:
 *   Thread,Time,Action,Pointer,Size,Stream
 *   1979932,14:21:19.998533,allocate,0x30a000000,256,0x2
 * Action: allocate, free, or `allocate failure` with a null pointer. Time: of the day, wall clock; older versions have
 * a colon in front of the microseconds, and the user guide shows seconds since 1970. What was asked of the resource
 * below the adaptor is logged; not what that did, nor its size. Lines stand in the order in which the
 * log's lock was taken.
 */

/// Whether the line can be the first one of a log: its header, or a call.
bool rmm_is_line(const char *line, size_t bytes);
/// One log, of one device. The entries' numbers are those of its lines, `first` more. Takes the stream. Errors: those
/// of the stream while nothing of use was read.
int rmm_read(struct input_stream *input, unsigned device, uint64_t first, struct import_requests *requests,
             struct progress *progress, struct varve_message *message);

/*
 * Traces of PyTorch's profiler with profile_memory=True (Chrome's JSON, as export_chrome_trace and
 * tensorboard_trace_handler write it):
 *   {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 3.5, "args": {"Addr":
 *   …, "Bytes": 512,
 *    "Total Allocated": …, "Total Reserved": …, "Device Type": 1, "Device Id": 0}}
 * Bytes are negative for a free, and those of the allocator's block: a request rounded up, with a remainder that was
 * not worth a split. Device type 0 is the CPU. Events are in no order. [OutOfMemory] events have Bytes that were asked
 * for. A memory event's call site is what was running on its thread at its time: operators, and with with_stack=True
 * Python's functions.
 */

/// Numbers of entries are those of the events in the file. Takes the stream; files of any size are read in one go, with
/// 64 bytes for each event of memory or code. Errors: VARVE_ERROR_FORMAT (no trace, or without events of memory),
/// those of the stream.
int profiler_read(struct input_stream *input, struct import_requests *requests, struct progress *progress,
                  struct varve_message *message);

#endif
