/* SPDX-License-Identifier: Apache-2.0 */
/* Ring numbers that processes took, and their files. */
#ifndef VARVE_TRACE_COLLECTOR_RING_NUMBERS_H
#define VARVE_TRACE_COLLECTOR_RING_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

struct collector;
struct traced_process;

/// A number without a file: hold the merge at the time before it was taken. False: waited long enough.
bool collect_file_wait(const struct collector *collector, uint64_t *seen_ns, uint64_t *seen_bound, uint64_t *bound);
/// The rings of an interrupted recording that have no file any more and no complete row.
int collect_rings_gone(struct collector *collector);
/// At the end of a process: rings that it made, and that nobody has seen.
int collect_rings_missing(struct collector *collector, const struct traced_process *process);
/// Recovering: open all rings of a process.
int collect_rings_open(struct collector *collector, struct traced_process *process);
/// A ring file that was found: is it one that was given up?
int collect_ring_missing(struct collector *collector, struct traced_process *process, uint32_t index);
/// Open the rings of a process that have come since the last time.
int collect_rings_discover(struct collector *collector, struct traced_process *process, uint64_t *bound);

#endif
