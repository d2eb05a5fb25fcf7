/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's own work, by which leaks are looked at: how long it had been active by when, and how many allocations it
 * had made. From one allocation to the next it was active, but for 200 us at most: longer is waiting. Marks lie
 * where a multiple of a time is passed that doubles when there are too many of them. Owned by derive_process;
 * model_state.c adds to it, store/derived_tables.c writes it.
 */
#ifndef VARVE_TRACE_MODEL_PROCESS_WORK_H
#define VARVE_TRACE_MODEL_PROCESS_WORK_H

#include <stdint.h>

#define WORK_MARKS 128U /* even */

#define WORK_PAUSE_NS 200000

struct work_mark {
    uint64_t seq;
    int64_t ns;
    uint64_t active_ns, allocations; /* by then; the first allocation: 0 and 1 */
};

struct work {
    struct work_mark first, last; /* without allocations: there was none */
    uint32_t shift;               /* marks pass multiples of 1 ns << shift */
    uint32_t count;
    struct work_mark marks[WORK_MARKS];
};

/// One more allocation, by an event that is not before the others.
void work_add(struct work *work, uint64_t seq, int64_t ns);

#endif
