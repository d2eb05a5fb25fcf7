/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmap, munmap and mremap: the program may unmap or map over any part of what it mapped before, so one event
 * can end several allocations and begin up to two remainders. An mremap is a munmap and an mmap, both with
 * cause mremap; when it fails, the mmap has the old range again. derive.c calls it.
 *
 * What is mapped without access, or without reserve, is address space and no memory: a domain of its own. It is what
 * the call says; an mprotect is not recorded. What is left of a mapping, and what an mremap or a failed munmap puts in
 * its place, has the domain that it had.
 */
#include "trace/model/derive.h"

#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <assert.h>
#include <sys/mman.h>

/* One event in the two domains of mappings. */
struct span {
    struct derive_step steps[2]; /* mmap, address space */
    bool is_entered[2];
    bool has_changed[2];
};

static struct derive_step *span_step(struct span *span, unsigned domain)
{
    unsigned which = domain == DOMAIN_ADDRESS_SPACE;
    assert(span->is_entered[which]);
    span->has_changed[which] = true;
    return &span->steps[which];
}

/* `domain` is the event's own. The other one can only matter where the process has something in it. */
static int span_begin(struct span *span, const struct derive_step *step, enum domain domain, uint32_t ranges,
                      struct varve_message *message)
{
    static const enum domain domains[2] = {DOMAIN_MMAP, DOMAIN_ADDRESS_SPACE};
    int error = scratch_reserve(&step->derive->scratch, ranges, message);
    if (error == VARVE_OK && !ranges_reserve(&step->process->ranges, ranges)) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more mapping");
    }
    *span = (struct span){.steps = {*step, *step}};
    for (unsigned i = 0; i < 2 && error == VARVE_OK; i++) {
        if (domains[i] == domain || step->process->totals[domains[i]] != NULL) {
            span->is_entered[i] = true;
            error = derive_step_enter(&span->steps[i], domains[i], message);
        }
    }
    return error;
}

static void derive_mapping_span_end(const struct span *span)
{
    for (unsigned i = 0; i < 2; i++) {
        if (span->has_changed[i]) {
            totals_update_peak(&span->steps[i].totals);
        }
    }
}

/* End everything in [start, end); parts outside live on as remainders. Returns the first id that ended. */
static uint64_t derive_mapping_span_clear(struct span *span, uint64_t start, uint64_t end)
{
    struct ranges *ranges = &span->steps[0].process->ranges;
    const struct scratch *scratch = &span->steps[0].derive->scratch;
    struct range range;
    uint64_t first_id = 0;
    while (ranges_first(ranges, start, end, &range)) {
        struct derive_step *step = span_step(span, scratch_peek(scratch, range.id)->domain);
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

/* Calls that say nothing about the mapping have no flags, of which a call has one at least. */
static enum domain mapped_domain(const struct event *event, const struct derive_thread *thread)
{
    uint32_t protection = (uint32_t)event->arg;
    uint32_t flags = (uint32_t)(event->arg >> 32);
    if (event->cause != VARVE_CAUSE_MMAP) {
        return event->cause != 0 && thread->unmapped_cause == event->cause ? thread->unmapped_domain : DOMAIN_MMAP;
    }
    return flags != 0 && (protection == PROT_NONE || (flags & MAP_NORESERVE) != 0) ? DOMAIN_ADDRESS_SPACE : DOMAIN_MMAP;
}

int derive_mmap(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    struct span span;
    enum domain domain = mapped_domain(event, step->thread);
    /* Mapping over others opens two remainders at most. */
    int error = span_begin(&span, step, domain, 3, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct derive_step *own = &span.steps[domain == DOMAIN_ADDRESS_SPACE];
    event->id = 0;
    step->thread->last_alloc_id = 0;
    step->thread->unmapped_cause = 0;
    bool has_failed = (event->flags & VARVE_FLAG_FAILED) || event->addr == 0;
    if (!has_failed) {
        derive_size_check(own);
    }
    uint64_t end = event->addr + event->size;
    if (has_failed || end <= event->addr) {
        totals_fail(&own->totals);
        return VARVE_OK;
    }
    derive_mapping_span_clear(&span, event->addr, end);
    event->id = derive_row_open(span_step(&span, domain), event->addr, event->size, event->cause, NULL);
    const struct range range = {.start = event->addr, .end = end, .id = event->id};
    ranges_insert(&step->process->ranges, &range);
    step->thread->last_alloc_id = event->id;
    derive_mapping_span_end(&span);
    return VARVE_OK;
}

int derive_munmap(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    uint64_t end = event->addr + event->size;
    if (end < event->addr) {
        end = UINT64_MAX;
    }
    struct span span;
    int error = span_begin(&span, step, DOMAIN_MMAP, 2, message);
    if (error != VARVE_OK) {
        return error;
    }
    event->id = 0;
    step->thread->unmapped_cause = 0;
    if (event->flags & VARVE_FLAG_FAILED) {
        step->thread->last_alloc_id = 0;
        return VARVE_OK;
    }
    event->id = derive_mapping_span_clear(&span, event->addr, end);
    step->thread->last_alloc_id = 0;
    if (event->id == 0) {
        const bool has_lost_past = step->derive->has_lost_past;
        event->cause = step->process->is_forked && !has_lost_past ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        step->derive->frees_unknown += has_lost_past;
        return VARVE_OK;
    }
    step->thread->unmapped_cause = event->cause;
    step->thread->unmapped_domain = scratch_peek(&step->derive->scratch, event->id)->domain;
    derive_mapping_span_end(&span);
    return VARVE_OK;
}
