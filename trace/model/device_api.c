/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA API handed out: one row per allocation, found again by its address whatever function frees
 * it. Physical memory, which has a handle and mappings, is in device_vmm.c, the rows of both in
 * device_rows.c.
 *
 * A free is recorded before the call, so that nobody else's allocation can come before
 * it; should the call fail, a second record says so, and what the first one ended is there again. model/derive.c
 * calls it.
 */
#include "trace/model/device_rows.h"

#include "base/error.h"
#include "trace/model/device_calls.h"
#include "trace/model/device_labels.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>

/* ---- allocations by address ---- */

static void address_alloc(const struct api_step *step)
{
    const struct event *event = step->step->event;
    unsigned domain = api_makes_row(event) ? api_domain_of(event) : 0;
    step->step->event->id = 0;
    *step->step->last_id = 0;
    if (event->addr == 0) {
        return; /* no bytes were asked for */
    }
    if (domain != 0) {
        derive_size_check(step->step);
    }
    /* What the index still has at the address was freed without an event. */
    uint64_t before = index_remove(&step->index->live, event->addr);
    if (before != 0) {
        api_close(step, before, false);
    }
    index_insert(&step->index->live, event->addr, api_open(step, domain, event->addr));
}

static void address_free(const struct api_step *step)
{
    struct event *event = step->step->event;
    event->id = 0;
    step->undo->block = index_remove(&step->index->live, event->addr);
    if (step->undo->block != 0) {
        api_describe(step, step->undo->block);
        api_close(step, step->undo->block, true);
    }
    *step->step->last_id = 0;
}

static void address_take_back(const struct api_step *step)
{
    const struct api_undo *undo = step->undo;
    if (undo->block == 0 || !api_reopen(step, undo->block, undo->seq)) {
        return;
    }
    uint64_t other = index_remove(&step->index->live, undo->addr);
    if (other != 0) {
        api_close(step, other, false);
    }
    index_insert(&step->index->live, undo->addr, undo->block);
    api_describe_row(step, undo->block);
}

/* ---- the end of a context ---- */

static void device_api_reset(const struct api_step *step)
{
    const struct event *event = step->step->event;
    unsigned context = event->pool & 0xfffU;
    struct index *live = &step->index->live;
    *step->step->last_id = 0;
    for (uint64_t i = 0; i < index_slots(live);) {
        const struct index_slot slot = live->slots[i];
        if (slot.number != 0 && api_is_of(derive_block_row(step->step->derive, slot.number), event->device, context)) {
            api_close(step, slot.number, true);
            index_remove(live, slot.key); /* another one may be in its slot now */
        } else {
            i++;
        }
    }
    vmm_reset(step, event->device, context);
}

/* ---- events ---- */

static bool opens(unsigned kind)
{
    return kind == VARVE_KIND_DEV_ALLOC || kind == VARVE_KIND_DEV_ALLOC_ASYNC || kind == VARVE_KIND_VMM_CREATE ||
           kind == VARVE_KIND_DEV_OOM;
}

static bool closes(unsigned kind)
{
    return kind == VARVE_KIND_DEV_FREE || kind == VARVE_KIND_DEV_FREE_ASYNC || kind == VARVE_KIND_VMM_UNMAP ||
           kind == VARVE_KIND_VMM_RELEASE;
}

/* Is this the failure of the free before it? The event of a failed release has no handle. */
static bool takes_back(const struct event *event, const struct api_undo *undo)
{
    return closes(event->kind) && undo->kind == event->kind && undo->cause == event->cause &&
           (event->addr == 0 || event->addr == undo->addr);
}

/* Counted where the memory is, if that is known, else where the record says. */
static void device_api_fail(const struct api_step *step, bool is_taken_back)
{
    struct derive_step *base = step->step;
    struct event *event = base->event;
    unsigned domain = api_domain_of(event);
    unsigned slot = domain != 0 ? slot_of(domain, event->device) : 0;
    event->id = 0;
    if (is_taken_back) {
        if (event->kind == VARVE_KIND_VMM_UNMAP || event->kind == VARVE_KIND_VMM_RELEASE) {
            vmm_take_back(step);
        } else {
            address_take_back(step);
        }
    }
    if (event->id != 0) {
        slot = slot_of(scratch_peek(&base->derive->scratch, event->id)->domain, event->device);
    }
    if (slot != 0) {
        api_slot_enter_untouched(step, slot);
        totals_fail(&base->totals);
    }
    *base->last_id = 0;
    step->undo->kind = 0;
}

static void event_apply(const struct api_step *step)
{
    switch (step->step->event->kind) {
    case VARVE_KIND_DEV_ALLOC:
    case VARVE_KIND_DEV_ALLOC_ASYNC:
        address_alloc(step);
        break;
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_FREE_ASYNC:
        address_free(step);
        break;
    case VARVE_KIND_VMM_CREATE:
        vmm_create(step);
        break;
    case VARVE_KIND_VMM_MAP:
        vmm_map(step);
        break;
    case VARVE_KIND_VMM_UNMAP:
        vmm_unmap(step);
        break;
    case VARVE_KIND_VMM_RELEASE:
        vmm_release(step);
        break;
    case VARVE_KIND_DEV_RESET:
        device_api_reset(step);
        break;
    default:
        break;
    }
}

/* What the event may need, so that nothing can fail any more. */
static int api_reserve(const struct api_step *step, struct varve_message *message)
{
    struct derive *derive = step->step->derive;
    const struct derive_api *api = step->api;
    int error = index_reserve(&step->index->live) && index_reserve(&step->index->handles) && streams_reserve(derive) &&
                        vmm_reserve(step)
                    ? VARVE_OK
                    : VARVE_ERROR_NO_MEMORY;
    for (size_t i = 0; i < api->slot_count && error == VARVE_OK; i++) {
        error = totals_reserve(&derive->domains[api->slots[i]], step->step->process, step->step->event->process_id,
                               api->slots[i], 0);
    }
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "no memory for one more allocation of the device API");
    }
    error = scratch_reserve(&derive->scratch, 1, message);
    return error == VARVE_OK ? derive_blocks_reserve(derive, message) : error;
}

static int api_begin(struct derive_step *step, struct api_step *api_out, struct varve_message *message)
{
    struct derive_process *process = step->process;
    struct derive_thread *thread = step->thread;
    unsigned side = (step->event->flags & VARVE_FLAG_DUPLICATE) != 0;
    if (process->api == NULL) {
        process->api = calloc(1, sizeof(*process->api));
    }
    if (thread->api == NULL) {
        thread->api = calloc(1, sizeof(*thread->api));
    }
    if (process->api == NULL || thread->api == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to follow the device API");
        return VARVE_ERROR_NO_MEMORY;
    }
    step->last_id = &thread->api->last_id[side];
    *api_out = (struct api_step){
        .step = step, .api = process->api, .index = &process->api->sides[side], .undo = &thread->api->undo[side]};
    return VARVE_OK;
}

/* The time of a free is in a dev_sync: it belongs where the free does. */
static void wait_follow(const struct api_step *step)
{
    struct event *event = step->step->event;
    if (event->cause == step->undo->cause && call_frees(event->cause) && !call_resets(event->cause)) {
        event->device = step->undo->device;
        event->stream = step->undo->stream;
    }
}

/* An event that opens or closes, or tries to. */
static int row_event(struct api_step *api, struct varve_message *message)
{
    struct event *event = api->step->event;
    bool has_failed = (event->flags & VARVE_FLAG_FAILED) || event->kind == VARVE_KIND_DEV_OOM;
    bool is_row = opens(event->kind) || closes(event->kind);
    unsigned domain = api_domain_of(event);
    int error = VARVE_OK;
    if (domain != 0 && ((opens(event->kind) && api_makes_row(event)) || has_failed)) {
        error = api_slot_use(api, domain, message);
    }
    VARVE_THEN(error, api_reserve(api, message));
    if (error != VARVE_OK) {
        return error;
    }
    if (has_failed) {
        device_api_fail(api, takes_back(event, api->undo));
    } else {
        if (is_row) {
            api->undo->kind = closes(event->kind) ? event->kind : 0;
            api->undo->cause = event->cause;
            api->undo->seq = event->seq;
            api->undo->addr = event->addr;
            api->undo->block = 0;
            api->undo->count = 0;
        }
        event_apply(api);
        if (is_row) {
            api->undo->device = event->device;
            api->undo->stream = event->stream;
        }
    }
    api_update_peaks(api);
    return VARVE_OK;
}

int derive_api(struct derive_step *step, struct varve_message *message)
{
    const struct event *event = step->event;
    bool is_row = opens(event->kind) || closes(event->kind) || event->kind == VARVE_KIND_VMM_MAP ||
                  (event->kind == VARVE_KIND_DEV_RESET && !(event->flags & VARVE_FLAG_FAILED));
    if (!is_row && event->kind != VARVE_KIND_DEV_SYNC) {
        return VARVE_OK;
    }
    struct api_step api;
    int error = api_begin(step, &api, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (event->kind == VARVE_KIND_DEV_SYNC) {
        wait_follow(&api);
        return VARVE_OK;
    }
    return row_event(&api, message);
}

bool derive_api_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                const struct event *event)
{
    static const struct api_index unseen; /* nothing is live in it */
    const struct api_index *index = &unseen;
    if (event->flags & VARVE_FLAG_FAILED) {
        return false;
    }
    if (process->api != NULL) {
        index = &process->api->sides[(event->flags & VARVE_FLAG_DUPLICATE) != 0];
    }
    switch (event->kind) {
    case VARVE_KIND_DEV_ALLOC:
    case VARVE_KIND_DEV_ALLOC_ASYNC:
        return index_find(&index->live, event->addr) != 0;
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_FREE_ASYNC:
        return event->addr != 0 && index_find(&index->live, event->addr) == 0;
    default:
        return vmm_is_out_of_order(derive, index, event);
    }
}

/* ---- ends ---- */

void derive_api_end(struct derive_process *process)
{
    for (unsigned side = 0; side < 2 && process->api != NULL; side++) {
        struct api_index *index = &process->api->sides[side];
        index_free(&index->live);
        index_free(&index->handles);
        ranges_clear(&index->mappings);
    }
}

void derive_api_free(struct derive_process *process)
{
    derive_api_end(process);
    if (process->api != NULL) {
        free(process->api->slots);
        free(process->api);
    }
}

void derive_api_thread_free(struct derive_thread *thread)
{
    if (thread->api != NULL) {
        free(thread->api->undo[0].mappings);
        free(thread->api->undo[1].mappings);
        free(thread->api);
    }
}

/* ---- the walker of the invariants ---- */

struct slot_sum {
    uint64_t allocations, bytes;
};

struct walk {
    const struct derive *derive;
    const struct api_index *index;
    uint32_t process_id;
    bool is_duplicate;
    struct slot_sum *slots;
};

static const struct scratch_block *block_at(const struct walk *walk, uint64_t number)
{
    return number >= 1 && number <= walk->derive->blocks.count
               ? scratch_block((struct scratch_row *)scratch_peek(&walk->derive->blocks, number))
               : NULL;
}

/* A block row that an index holds; its scratch row, if it has one, is live and counted here. */
static int device_api_walk_block(const struct walk *walk, const struct scratch_block *block, const uint64_t *addr)
{
    const struct derive *derive = walk->derive;
    if (block == NULL || block->id > derive->scratch.count) {
        return VARVE_ERROR_CORRUPT;
    }
    if (block->id == 0) {
        return VARVE_OK;
    }
    const struct scratch_row *row = scratch_peek(&derive->scratch, block->id);
    bool is_cupti = row->domain == DOMAIN_CUPTI;
    if (row->free_seq != 0 || !domain_is_api(row->domain) || is_cupti != walk->is_duplicate ||
        (addr != NULL && row->addr != *addr) || derive->threads[row->thread_id].process_id != walk->process_id) {
        return VARVE_ERROR_CORRUPT;
    }
    struct slot_sum *sum = &walk->slots[api_slot_of(derive, block)];
    sum->allocations++;
    sum->bytes += row->size;
    return VARVE_OK;
}

static int walk_live(const struct walk *walk)
{
    const struct index *live = &walk->index->live;
    for (uint64_t i = 0; i < index_slots(live); i++) {
        const struct index_slot *slot = &live->slots[i];
        if (slot->number != 0 && device_api_walk_block(walk, block_at(walk, slot->number), &slot->key) != VARVE_OK) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

static int walk_handles(const struct walk *walk)
{
    const struct index *handles = &walk->index->handles;
    for (uint64_t i = 0; i < index_slots(handles); i++) {
        const struct index_slot *slot = &handles->slots[i];
        const struct scratch_block *block = slot->number != 0 ? block_at(walk, slot->number) : NULL;
        if (slot->number != 0 && (device_api_walk_block(walk, block, NULL) != VARVE_OK || block->handle != slot->key ||
                                  (block->refs == 0 && block->maps == 0))) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

/* Of each mapping: how many there are of its memory, and whether it is the first of them. */
static int walk_mappings(const struct walk *walk)
{
    const struct ranges *mappings = &walk->index->mappings;
    struct range range;
    struct range other;
    for (uint64_t at = 0; ranges_first(mappings, at, UINT64_MAX, &range); at = range.end) {
        const struct scratch_block *block = block_at(walk, range.id);
        uint32_t count = 0;
        bool is_first = true;
        for (uint64_t k = 0; ranges_first(mappings, k, UINT64_MAX, &other); k = other.end) {
            count += other.id == range.id;
            is_first = is_first && (other.id != range.id || other.start >= range.start);
        }
        if (block == NULL || block->maps != count || block->handle == 0) {
            return VARVE_ERROR_CORRUPT;
        }
        bool is_named = index_find(&walk->index->handles, block->handle) == range.id;
        if (!is_named && (block->refs != 0 || (is_first && device_api_walk_block(walk, block, NULL) != VARVE_OK))) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

static int walk_index(const struct walk *walk)
{
    if (!index_check(&walk->index->live) || !index_check(&walk->index->handles) ||
        !ranges_check(&walk->index->mappings) || walk_live(walk) != VARVE_OK || walk_handles(walk) != VARVE_OK) {
        return VARVE_ERROR_CORRUPT;
    }
    return walk_mappings(walk);
}

static int sums_check(const struct walk *walk, const struct derive_process *process, struct varve_message *message)
{
    for (unsigned slot = 0; slot < SLOT_LIMIT; slot++) {
        const struct total none = {0}, *found = process_total(process, slot);
        const struct total *total = found != NULL ? found : &none;
        if (domain_is_api(slot_domain(slot)) && (walk->slots[slot].allocations != total->sum.live_allocations ||
                                                 walk->slots[slot].bytes != total->sum.live_bytes)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "process %u, slot %u: %llu live allocations in the index, %llu in the "
                                     "total",
                                     walk->process_id, slot, (unsigned long long)walk->slots[slot].allocations,
                                     (unsigned long long)total->sum.live_allocations);
        }
    }
    return VARVE_OK;
}

int derive_api_check(const struct derive *derive, uint32_t process_id, struct varve_message *message)
{
    const struct derive_process *process = derive->processes[process_id];
    struct walk walk = {.derive = derive, .process_id = process_id};
    if (process->api == NULL) {
        return VARVE_OK;
    }
    walk.slots = calloc(SLOT_LIMIT, sizeof(*walk.slots));
    if (walk.slots == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to check");
    }
    int error = VARVE_OK;
    for (unsigned side = 0; side < 2 && error == VARVE_OK; side++) {
        walk.index = &process->api->sides[side];
        walk.is_duplicate = side == 1;
        error = walk_index(&walk);
    }
    if (error != VARVE_OK) {
        varve_message_set(message, error, "process %u: the indexes of the device API and its rows differ", process_id);
    } else if (!process->has_ended) {
        error = sums_check(&walk, process, message);
    }
    free(walk.slots);
    return error;
}
