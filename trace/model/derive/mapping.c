/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmap, munmap and mremap: the program may unmap or map over any part of what it mapped before, so one event
 * can end several allocations and begin up to two remainders. An mremap is a munmap and an mmap, both with
 * cause mremap; when it fails, the mmap has the old range again. derive.c calls it.
 */
#include "trace/model/derive/mapping.h"

#include "trace/error.h"
#include "trace/model/event.h"
#include "trace/base/ranges.h"
#include "trace/model/scratch.h"
#include "trace/model/state.h"
#include "trace/model/totals.h"
#include "trace/record.h"

#include <sys/mman.h>

/* End everything in [start, end); parts outside live on as remainders. Returns the first id that ended. */
static uint64_t span_clear(struct derive_step *step, uint64_t start, uint64_t end)
{
    struct ranges *ranges = &step->process->ranges;
    struct range range;
    uint64_t first_id = 0;
    while (ranges_first(ranges, start, end, &range)) {
        const struct scratch_row old = *derive_row_close(step, range.id);
        if (first_id == 0) {
            first_id = range.id;
        }
        ranges_remove(ranges, range.start);
        if (range.start < start) {
            struct range front = {.start = range.start, .end = start};
            front.id = derive_row_open(step, front.start, start - front.start, VARVE_CAUSE_REMAINDER, &old);
            ranges_insert(ranges, &front);
        }
        if (range.end > end) {
            struct range back = {.start = end, .end = range.end};
            back.id = derive_row_open(step, back.start, back.end - end, VARVE_CAUSE_REMAINDER, &old);
            ranges_insert(ranges, &back);
        }
    }
    return first_id;
}

static int span_reserve(struct derive_step *step, uint32_t ranges, struct varve_message *message)
{
    int error = scratch_reserve(&step->derive->scratch, ranges, message);
    if (error == VARVE_OK && !ranges_reserve(&step->process->ranges, ranges)) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more mapping");
    }
    return error;
}

int derive_mmap(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    /* Mapping over others opens two remainders at most. */
    int error = span_reserve(step, 3, message);
    if (error != VARVE_OK) {
        return error;
    }
    event->id = 0;
    step->thread->last_alloc_id = 0;
    bool has_failed = (event->flags & VARVE_FLAG_FAILED) || event->addr == 0;
    if (!has_failed) {
        derive_size_check(step);
    }
    uint64_t end = event->addr + event->size;
    if (has_failed || end <= event->addr) {
        totals_fail(&step->totals);
        return VARVE_OK;
    }
    span_clear(step, event->addr, end);
    event->id = derive_row_open(step, event->addr, event->size, event->cause, NULL);
    const struct range range = {.start = event->addr, .end = end, .id = event->id};
    ranges_insert(&step->process->ranges, &range);
    step->thread->last_alloc_id = event->id;
    totals_update_peak(&step->totals);
    return VARVE_OK;
}

int derive_munmap(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    uint64_t end = event->addr + event->size;
    if (end < event->addr) {
        end = UINT64_MAX;
    }
    int error = span_reserve(step, 2, message);
    if (error != VARVE_OK) {
        return error;
    }
    event->id = 0;
    if (event->flags & VARVE_FLAG_FAILED) {
        step->thread->last_alloc_id = 0;
        return VARVE_OK;
    }
    event->id = span_clear(step, event->addr, end);
    step->thread->last_alloc_id = 0;
    if (event->id == 0) {
        event->cause = step->process->is_forked ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        return VARVE_OK;
    }
    if (event->callsite == 0) {
        event->callsite = scratch_peek(&step->derive->scratch, event->id)->callsite;
    }
    totals_update_peak(&step->totals);
    return VARVE_OK;
}
