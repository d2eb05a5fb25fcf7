/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many records of a recording its LTTng trace lacks, by ring and number: lttng_session.h. Called by
 * collector/lttng_recording.c when a recorded process was killed, and after a recovery.
 */
#include "trace/collector/lttng_session.h"

#include <stdlib.h>

struct search {
    struct lttng_ring *rings;
    size_t count;
    struct lttng_ring *last; /* the one of the last range: the next is mostly of it too */
};

static int lttng_missing_compare(const void *left, const void *right)
{
    const struct lttng_ring *a = left;
    const struct lttng_ring *b = right;
    if (a->process != b->process) {
        return a->process < b->process ? -1 : 1;
    }
    return a->ring < b->ring ? -1 : a->ring > b->ring;
}

static void lttng_missing_take_range(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last)
{
    struct search *search = context;
    const struct lttng_ring key = {.process = process, .ring = ring};
    struct lttng_ring *found = search->last;
    if (found == NULL || lttng_missing_compare(found, &key) != 0) {
        found = bsearch(&key, search->rings, search->count, sizeof(key), lttng_missing_compare);
    }
    if (found != NULL) {
        search->last = found;
        last = last < found->last ? last : found->last;
        found->found += first <= last ? last - first + 1 : 0;
    }
}

int lttng_missing_count(struct lttng_ring *rings, size_t count, const char *folder, varve_collect_numbers *numbers,
                        uint64_t *missing_out, struct varve_message *message)
{
    struct search search = {.rings = rings, .count = count};
    *missing_out = 0;
    if (count == 0) {
        return VARVE_OK;
    }
    qsort(rings, count, sizeof(*rings), lttng_missing_compare);
    int error = numbers(folder, lttng_missing_take_range, &search, message);
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        *missing_out += rings[i].records > rings[i].found ? rings[i].records - rings[i].found : 0;
    }
    return error;
}
