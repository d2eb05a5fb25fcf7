/* SPDX-License-Identifier: Apache-2.0 */
/* Records of all rings into one order of time. */
#ifndef VARVE_TRACE_COLLECTOR_RING_MERGE_H
#define VARVE_TRACE_COLLECTOR_RING_MERGE_H

#include <stdint.h>

/* How long a record that seems to come too early is deferred, in ns. Threads that compete for the CPUs read their
 * clocks up to 16,172 ticks (7 us) early, as the read is not fenced, and may be descheduled between the read and the
 * commit; with 20 us, 2 of 1,000 runs under load on 16 cores had a free before its allocation. */
#define MERGE_HOLD_BACK_NS 200000

struct collector;
struct varve_message;

/// Take every record older than collector->watermark, oldest first.
int merge_run(struct collector *collector, uint64_t *moved_out, struct varve_message *message);

#endif
