/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_PROFILER_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_PROFILER_H

#include "analysis/import/import_requests.h"

struct input_stream;

/// Numbers of entries are those of the events in the file. Takes the stream; files of any size are read in one go, with
/// 64 bytes for each event of memory or code. Errors: VARVE_ERROR_FORMAT (no trace, or without events of memory),
/// those of the stream.
int profiler_read(struct input_stream *input, struct import_requests *requests, struct progress *progress,
                  struct varve_message *message);

#endif
