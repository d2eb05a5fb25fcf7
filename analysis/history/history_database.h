/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What import and replay write of a history into a trace database beyond its events: settings, the time origin,
 * and the segments at the end, as only a snapshot says how large its blocks were. The reader of databases
 * (history_read.h) takes them from there.
 *
 *   key of meta                            value
 *   allocator.conf                         settings in PyTorch's syntax
 *   allocator.max_split_size               bytes, -1: unlimited
 *   allocator.garbage_collection_threshold text of a fraction
 *   allocator.expandable_segments          0 or 1
 *   allocator.roundup_power2_divisions     16 numbers, separated by spaces
 *   history.begin_us                       time of ts_ns 0 in the source's clock
 *   history.segments.N                     final segments of device N: a line for each segment, followed by
 *                                          one for each of its blocks, all numbers hexadecimal:
 *     s ADDR SIZE STREAM POOL POOL SMALL EXPANDABLE ALLOCATED ACTIVE REQUESTED CALLSITE
 *     b ADDR SIZE REQUESTED STATE CALLSITE
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_DATABASE_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_DATABASE_H

#include "analysis/history/history.h"

struct varve_writer;

void history_write_settings(struct varve_writer *writer, const struct history_settings *settings, int64_t begin_us);
/// `callsites`: number in the database of each of the history's stacks; NULL: none.
void history_write_final(struct varve_writer *writer, const struct history *history, unsigned index,
                         const uint32_t *callsites);

#endif
