/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an allocator's history is kept in a trace database, beyond its events: settings and the time origin in
 * `meta`, and the segments at the end as text in `meta`, for histories whose events do not tell block sizes.
 *
 *   key                                    value
 *   allocator.conf                         settings in PyTorch's syntax
 *   allocator.max_split_size               bytes, -1: unlimited
 *   allocator.garbage_collection_threshold text of a fraction
 *   allocator.expandable_segments          0 or 1
 *   allocator.roundup_power2_divisions     16 numbers, separated by spaces
 *   history.begin_us                       time of ts_ns 0 in the source's clock
 *   history.segments.N                     final segments of device N: see database_final.c
 */
#ifndef VARVE_ANALYSIS_HISTORY_DATABASE_H
#define VARVE_ANALYSIS_HISTORY_DATABASE_H

#include "analysis/history/history.h"

#ifdef __cplusplus
extern "C" {
#endif

struct database;

struct varve_writer;
struct varve_layout;

/* The process whose allocators a database holds: a history is of one. */
#define HISTORY_PROCESS "(SELECT max(process_id) FROM total_stat WHERE domain = 4 AND process_id > 0)"

/* ---- database_meta.c ---- */

void history_write_settings(struct varve_writer *writer, const struct history_settings *settings,
                            int64_t begin_us);
void history_read_settings(struct database *database, struct history_settings *settings, int64_t *begin_us);

/* ---- database_final.c ---- */

/// `callsites`: number in the database of each of the history's stacks; NULL: none.
void history_write_final(struct varve_writer *writer, const struct history *history, unsigned index,
                         const uint32_t *callsites);
/// The stored segments of device `index`; false if there are none. `stacks`: the history's number of each
/// call site of the database. VARVE_ERROR_CORRUPT if the text is damaged.
int history_read_final(struct database *database, struct history *history, unsigned index,
                       const uint32_t *stacks, size_t stack_count, bool *is_found_out,
                       struct varve_message *message);
/// The segments that the events lead to.
int history_take_layout(struct database *database, struct history *history, unsigned index,
                        const struct varve_layout *layout);

#ifdef __cplusplus
}
#endif

#endif
