/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a process's work: every so many allocations, in a fixed number of places. */
#include "trace/model/work.h"

#include <string.h>

int marks_next(void *marks, size_t bytes, uint32_t limit, uint32_t *count, uint64_t *every, uint64_t made)
{
    if ((made & (*every - 1)) != 0) {
        return -1;
    }
    if (*count < limit) {
        return (int)(*count)++;
    }
    char *rows = marks;
    *count = limit / 2;
    *every *= 2;
    for (uint32_t i = 0; i < *count; i++) {
        memmove(rows + i * bytes, rows + (2 * i + 1) * bytes, bytes);
    }
    return -1; /* behind an even number of marks comes one of the kind that is dropped */
}

void work_add(struct work *work, struct work_mark mark)
{
    if (work->allocations == 0) {
        work->every = 1;
        work->first = mark;
    }
    work->last = mark;
    const int at = marks_next(work->marks, sizeof(mark), WORK_MARKS, &work->count, &work->every, ++work->allocations);
    if (at >= 0) {
        work->marks[at] = mark;
    }
}
