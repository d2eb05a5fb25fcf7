/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a process's work: every so many allocations, in a fixed number of places. */
#include "trace/model/work.h"

static void mark_add(struct work *work, int64_t ns)
{
    if (work->count == WORK_MARKS) {
        work->count = WORK_MARKS / 2;
        work->every *= 2;
        for (uint32_t i = 0; i < work->count; i++) {
            work->times_ns[i] = work->times_ns[2 * i + 1];
        }
        return; /* the allocation after an even number of marks has none any more */
    }
    work->times_ns[work->count++] = ns;
}

void work_add(struct work *work, int64_t ns)
{
    if (work->allocations == 0) {
        work->every = WORK_EVERY_MIN;
        work->first_ns = ns;
    }
    work->last_ns = ns;
    if ((++work->allocations & (work->every - 1)) == 0) {
        mark_add(work, ns);
    }
}
