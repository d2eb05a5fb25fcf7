/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's own work, by which leaks are looked at: how many allocations it had made by when. Marks lie at
 * multiples of a number that doubles when there are too many of them. Owned by derive_process; state.c adds to it,
 * store/derived.c writes it.
 */
#ifndef VARVE_TRACE_MODEL_WORK_H
#define VARVE_TRACE_MODEL_WORK_H

#include <stdint.h>

#define WORK_MARKS 256U    /* even */
#define WORK_EVERY_MIN 64U /* a power of two */

struct work {
    uint64_t allocations;
    int64_t first_ns, last_ns; /* of the first and the last of them */
    uint64_t every;            /* a power of two; 0: there was none */
    uint32_t count;
    int64_t times_ns[WORK_MARKS]; /* of allocation (i + 1) * every */
};

/// One more allocation, at `ns`, which is not before the others.
void work_add(struct work *work, int64_t ns);

#endif
