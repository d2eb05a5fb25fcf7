/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory and disk the rings of all processes may have together. */
#ifndef VARVE_TRACE_COLLECTOR_MEMORY_BOUNDS_H
#define VARVE_TRACE_COLLECTOR_MEMORY_BOUNDS_H

#include <stddef.h>
#include <stdint.h>

struct collector;

#define BOUNDS_GROUPS 16U /* different sets of control groups that are looked at */

struct collect_bounds {
    uint64_t spill_bytes_asked, spill_bytes_disk; /* for all pieces, as the user says, or 0; on the disk alone */
    uint64_t memory_bytes;                        /* of the memory file system; 0: not known */
    char *groups[BOUNDS_GROUPS];                  /* of the collector and of processes, as /proc/PID/cgroup has them */
    size_t group_count;
};

/// Before the program starts. `spill_bytes_asked`: see above; `spill_bytes_disk`, `memory_bytes`: what the disk and the
/// memory file system have room for.
void collect_bounds_begin(struct collector *collector, uint64_t spill_bytes_asked, uint64_t spill_bytes_disk,
                          uint64_t memory_bytes);
/// A process of this machine's that records: its control groups count from now on.
void collect_bounds_process(struct collector *collector, int32_t pid);
/// Now and then: what is free changes.
void collect_bounds_round(struct collector *collector);
void collect_bounds_end(struct collector *collector);

#endif
