/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a process's work, in a fixed number of places: the more of it there was, the further apart. */
#include "trace/model/process_work.h"

/* The time between marks doubles, until there is room for one more. */
static void thin(struct work *work)
{
    while (work->count == WORK_MARKS) {
        uint64_t before = 0;
        work->count = 0;
        work->shift++;
        for (uint32_t i = 0; i < WORK_MARKS; i++) {
            const struct work_mark mark = work->marks[i];
            if (mark.active_ns >> work->shift != before) {
                work->marks[work->count++] = mark;
            }
            before = mark.active_ns >> work->shift;
        }
    }
}

void work_add(struct work *work, uint64_t seq, int64_t ns)
{
    const struct work_mark before = work->last;
    const int64_t since = before.allocations == 0 || ns < before.ns ? 0 : ns - before.ns;
    const uint64_t active_ns = before.active_ns + (uint64_t)(since < WORK_PAUSE_NS ? since : WORK_PAUSE_NS);
    work->last = (struct work_mark){seq, ns, active_ns, before.allocations + 1};
    if (before.allocations == 0) {
        work->first = work->last;
    }
    if (work->count == WORK_MARKS && active_ns >> work->shift != before.active_ns >> work->shift) {
        thin(work);
    }
    if (active_ns >> work->shift != before.active_ns >> work->shift) {
        work->marks[work->count++] = work->last;
    }
}
