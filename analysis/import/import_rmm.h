/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs of RMM (RAPIDS Memory Manager) as its logging_resource_adaptor writes them, CSV with a line for each call:
 *   Thread,Time,Action,Pointer,Size,Stream
 *   1979932,14:21:19.998533,allocate,0x30a000000,256,0x2
 * Action: allocate, free, or `allocate failure` with a null pointer. Time: of the day, wall clock; older versions have
 * a colon in front of the microseconds, and the user guide shows seconds since 1970. What was asked of the resource
 * below the adaptor is logged; not what that did, nor its size. Lines stand in the order in which the
 * log's lock was taken.
 */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_RMM_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_RMM_H

#include "analysis/import/import_requests.h"

struct input_stream;

/// Whether the line can be the first one of a log: its header, or a call.
bool rmm_is_line(const char *line, size_t bytes);
/// One log, of one device. The entries' numbers are those of its lines, `first` more. Takes the stream. Errors: those
/// of the stream while nothing of use was read.
int rmm_read(struct input_stream *input, unsigned device, uint64_t first, struct import_requests *requests,
             struct progress *progress, struct varve_message *message);

#endif
