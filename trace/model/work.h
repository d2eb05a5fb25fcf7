/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's own work, by which leaks are looked at: how many allocations it had made by when. Marks lie at
 * multiples of a number that doubles when there are too many of them. Owned by derive_process; state.c adds to it,
 * store/derived.c writes it.
 */
#ifndef VARVE_TRACE_MODEL_WORK_H
#define VARVE_TRACE_MODEL_WORK_H

#include <stddef.h>
#include <stdint.h>

#define WORK_MARKS 128U /* even */

struct work_mark {
    uint64_t seq;
    int64_t ns;
};

struct work {
    uint64_t allocations;
    struct work_mark first, last; /* of them */
    uint64_t every;               /* a power of two; 0: there was none */
    uint32_t count;
    struct work_mark marks[WORK_MARKS]; /* of allocation (i + 1) * every */
};

/// Of `count` marks, in `limit` places (even) of `bytes` each, that of number `made` is due: where it goes. -1:
/// nowhere, since it is no multiple of `*every` (a power of two) or, as all places were taken, every second mark was
/// kept and that doubled.
int marks_next(void *marks, size_t bytes, uint32_t limit, uint32_t *count, uint64_t *every, uint64_t made);
/// One more allocation, by an event that is not before the others.
void work_add(struct work *work, struct work_mark mark);

#endif
