/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a process's work: every so many allocations, in a fixed number of places. */
#include "trace/model/work.h"

static void mark_add(struct work *work, struct work_mark mark)
{
    if (work->count == WORK_MARKS) {
        work->count = WORK_MARKS / 2;
        work->every *= 2;
        for (uint32_t i = 0; i < work->count; i++) {
            work->marks[i] = work->marks[2 * i + 1];
        }
        return; /* the allocation after an even number of marks has none any more */
    }
    work->marks[work->count++] = mark;
}

void work_add(struct work *work, struct work_mark mark)
{
    if (work->allocations == 0) {
        work->every = 1;
        work->first = mark;
    }
    work->last = mark;
    if ((++work->allocations & (work->every - 1)) == 0) {
        mark_add(work, mark);
    }
}
