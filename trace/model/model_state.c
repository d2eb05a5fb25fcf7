/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event on its way through the derivation: rows that open and close, and the totals that they are counted in. What
 * each kind of event does is in derive_*.c and device_*.c, which call this.
 */
#include "trace/model/model_state.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/allocation_scratch.h"
#include "base/downsample.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* No block is larger than the address space, and what is live stays far from where the sums would wrap. */
#define SIZE_LIMIT (UINT64_C(1) << 48)
#define SUM_LIMIT (UINT64_C(1) << 62)

/* A file beside that of allocations, opened if it is not, with space for `count` more rows. */
static int reserve_beside(const struct derive *derive, struct scratch *scratch, const char *suffix, uint64_t count,
                          struct varve_message *message)
{
    char path[4096 + 16];
    int error = VARVE_OK;
    if (scratch->fd < 0) {
        snprintf(path, sizeof(path), "%s.%s", derive->path, suffix);
        error = scratch_open(scratch, path, message);
        if (error == VARVE_OK) {
            unlink(path); /* nobody has to find it again */
        }
    }
    return error == VARVE_OK ? scratch_reserve(scratch, count, message) : error;
}

int derive_blocks_reserve(struct derive *derive, struct varve_message *message)
{
    return reserve_beside(derive, &derive->blocks, "blocks", 1, message);
}

int derive_storages_reserve(struct derive *derive, struct varve_message *message)
{
    return reserve_beside(derive, &derive->storages.lines, "storages", 2, message);
}

uint64_t derive_row_open(const struct derive_step *step, uint64_t addr, uint64_t size, unsigned source,
                         const struct scratch_row *like)
{
    const struct event *event = step->event;
    struct scratch_row *row;
    uint64_t id = scratch_add(&step->derive->scratch, &row);
    *row = (struct scratch_row){
        .addr = addr,
        .size = size,
        .requested = domain_holds_events(step->domain)             ? 0
                     : like != NULL || domain_is_api(step->domain) ? size
                                                                   : event->requested,
        .alloc_seq = event->seq,
        .source = source,
        .domain = step->domain,
        .alloc_ns = event->ts_ns,
        .callsite = like != NULL ? like->callsite : event->callsite,
        .thread_id = like != NULL ? like->thread_id : event->thread_id,
    };
    totals_open(&step->totals, row);
    work_add(&step->process->work, event->seq, event->ts_ns);
    step->derive->opened++;
    return id;
}

bool derive_row_is_left(const struct derive *derive, const struct scratch_row *row)
{
    const int64_t main_end_ns = process_main_end_ns(derive->processes[derive->threads[row->thread_id].process_id]);
    return row->alloc_ns <= main_end_ns && (row->free_seq == 0 || row->free_ns > main_end_ns);
}

void derive_row_forget(struct derive *derive, uint64_t id)
{
    const bool is_late = derive->forgets_from != 0 && id >= derive->forgets_from;
    if (!is_late && !(derive->forgets_short && scratch_row_is_short(scratch_peek(&derive->scratch, id)))) {
        return;
    }
    /* Without memory for the list the row is kept, which does no harm. */
    if (ARRAY_GROW(derive->forgotten, derive->forgotten_capacity, derive->forgotten_count + 1)) {
        derive->forgotten[derive->forgotten_count++] = id;
    }
}

struct scratch_row *derive_row_close(const struct derive_step *step, uint64_t id)
{
    struct scratch_row *row = scratch_touch(&step->derive->scratch, id);
    assert(row->free_seq == 0);
    row->free_seq = step->event->seq;
    row->free_ns = step->event->ts_ns;
    /* An allocating event has reset that already: only a free makes an allocation temporary. The id may be another
     * thread's by now. */
    row->temporary = *step->last_id == id && row->thread_id == step->event->thread_id;
    totals_close(&step->totals, row);
    if (domain_is_host(step->domain)) {
        derive_row_forget(step->derive, id);
    }
    return row;
}

/* What totals_reserve would find in order, found at once: it is asked for every event. */
static inline bool model_state_has_space(const struct total *total)
{
    return total->samples.count < total->samples.capacity;
}

int derive_step_enter(struct derive_step *step, enum domain domain, struct varve_message *message)
{
    const struct event *event = step->event;
    unsigned slot = slot_of(domain, event->device);
    struct domain_totals *totals = &step->derive->domains[slot];
    struct total **list = step->process->totals[domain];
    struct total *total = list != NULL ? list[slot - slot_first[domain]] : NULL;
    if (total == NULL || event->callsite >= totals->callsite_limit || !model_state_has_space(&totals->all) ||
        !model_state_has_space(total)) {
        int error = totals_reserve(totals, step->process, event->process_id, slot, event->callsite);
        if (error != VARVE_OK) {
            return varve_message_set(message, error, "no memory for totals");
        }
        total = process_total(step->process, slot);
    }
    if (totals->processes > 1 && totals->callsites[event->callsite].owner != total->process_id &&
        !totals_share_reserve(total)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for totals");
    }
    step->domain = domain;
    step->totals = (struct totals_step){.domain = totals,
                                        .process = total,
                                        .seq = event->seq,
                                        .ts_ns = event->ts_ns,
                                        .main_end_ns = process_main_end_ns(step->process)};
    return VARVE_OK;
}

void derive_size_check(const struct derive_step *step)
{
    struct event *event = step->event;
    if (event->size > SIZE_LIMIT || step->totals.domain->all.sum.live_bytes > SUM_LIMIT - event->size) {
        event->size = 0;
        event->requested = domain_is_api(step->domain) ? event->requested : 0;
        step->derive->sizes_refused++;
    }
}

struct domain_slots domain_slots(const struct derive *derive, enum domain domain)
{
    struct domain_slots slots = {.count = 0};
    for (unsigned device = 0; device < domain_devices(domain) && domain != DOMAIN_CUPTI; device++) {
        const struct domain_totals *totals = &derive->domains[slot_of(domain, device)];
        if (totals->callsite_limit > 0) {
            slots.totals[slots.count++] = totals;
            slots.callsite_limit =
                totals->callsite_limit > slots.callsite_limit ? totals->callsite_limit : slots.callsite_limit;
        }
    }
    return slots;
}
