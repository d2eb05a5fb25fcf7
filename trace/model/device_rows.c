/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the CUDA API's memory: opening, closing, opening again, and the totals that they are counted in.
 * One event may end rows of several devices and kinds (a reset, an unmapping), and each
 * of their totals must look for a peak once: the slots that an event touches are gathered, and their peaks updated at
 * its end. device_api.c and device_vmm.c call it.
 */
#include "trace/model/device_rows.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/device_labels.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>

/* ---- slots ---- */

unsigned api_domain_of(const struct event *event)
{
    unsigned memory = event->pool >> VARVE_MEMORY_KIND_SHIFT;
    bool is_duplicate = event->flags & VARVE_FLAG_DUPLICATE;
    switch (memory) {
    case VARVE_MEMORY_PAGEABLE:
    case VARVE_MEMORY_PINNED:
        return is_duplicate ? 0 : DOMAIN_PINNED;
    case VARVE_MEMORY_MANAGED:
    case VARVE_MEMORY_MANAGED_STATIC:
        return is_duplicate ? 0 : DOMAIN_MANAGED;
    default:
        return is_duplicate ? DOMAIN_CUPTI : DOMAIN_DEVICE;
    }
}

unsigned api_slot_of(const struct derive *derive, const struct scratch_block *block)
{
    return slot_of(scratch_peek(&derive->scratch, block->id)->domain, block->device);
}

void api_slot_enter_untouched(const struct api_step *api, unsigned slot)
{
    struct derive_step *step = api->step;
    step->domain = slot_domain(slot);
    step->totals.domain = &step->derive->domains[slot];
    step->totals.process = process_total(step->process, slot);
    step->totals.seq = step->event->seq;
    step->totals.ts_ns = step->event->ts_ns;
    step->totals.main_end_ns = process_main_end_ns(step->process);
}

/* The same, with an update. */
static void slot_enter(const struct api_step *step, unsigned slot)
{
    api_slot_enter_untouched(step, slot);
    step->api->touched[slot / 64] |= UINT64_C(1) << slot % 64;
}

void api_update_peaks(const struct api_step *step)
{
    for (size_t i = 0; i < step->api->slot_count; i++) {
        unsigned slot = step->api->slots[i];
        uint64_t bit = UINT64_C(1) << slot % 64;
        if (step->api->touched[slot / 64] & bit) {
            step->api->touched[slot / 64] &= ~bit;
            api_slot_enter_untouched(step, slot);
            totals_update_peak(&step->step->totals);
        }
    }
}

int api_slot_use(const struct api_step *step, unsigned domain, struct varve_message *message)
{
    struct derive_api *api = step->api;
    unsigned slot = slot_of(domain, step->step->event->device);
    if (!ARRAY_GROW(api->slots, api->slot_capacity, api->slot_count + 1)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for totals");
    }
    int error = derive_step_enter(step->step, (enum domain)domain, message);
    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; i < api->slot_count; i++) {
        if (api->slots[i] == slot) {
            return VARVE_OK;
        }
    }
    api->slots[api->slot_count++] = (uint16_t)slot;
    return VARVE_OK;
}

/* ---- rows ---- */

bool api_makes_row(const struct event *event)
{
    return event->cause != VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE &&
           event->cause != VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE &&
           event->cause != VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE;
}

bool api_is_of(const struct scratch_block *block, unsigned device, unsigned context)
{
    return block->device == device && (context == 0 || (!block->is_async && (block->pool & 0xfffU) == context));
}

uint64_t api_open(const struct api_step *step, unsigned domain, uint64_t addr)
{
    struct derive *derive = step->step->derive;
    struct event *event = step->step->event;
    event->id = 0;
    if (domain != 0) {
        slot_enter(step, slot_of(domain, event->device));
        event->id = derive_row_open(step->step, addr, event->size, event->cause, NULL);
        *step->step->last_id = event->id;
    }
    struct scratch_row *line;
    uint64_t number = scratch_add(&derive->blocks, &line);
    *scratch_block(line) = (struct scratch_block){
        .id = event->id,
        .pool = event->pool,
        .stream = event->stream,
        .device = event->device,
        .is_async = event->kind == VARVE_KIND_DEV_ALLOC_ASYNC,
    };
    if (event->id != 0) {
        streams_count(derive, scratch_block(line), STREAM_OPENS);
    }
    return number;
}

void api_close(const struct api_step *step, uint64_t number, bool is_free)
{
    struct derive *derive = step->step->derive;
    const struct scratch_block *block = derive_block_row(derive, number);
    if (block->id == 0 || scratch_touch(&derive->scratch, block->id)->free_seq != 0) {
        return;
    }
    uint64_t last_id = *step->step->last_id;
    if (!is_free) {
        *step->step->last_id = 0; /* only a free makes an allocation temporary */
    }
    slot_enter(step, api_slot_of(derive, block));
    derive_row_close(step->step, block->id);
    streams_count(derive, block, STREAM_CLOSES);
    *step->step->last_id = last_id != block->id ? last_id : 0;
}

bool api_reopen(const struct api_step *step, uint64_t number, uint64_t seq)
{
    struct derive *derive = step->step->derive;
    const struct scratch_block *block = derive_block_row(derive, number);
    struct scratch_row *row = block->id != 0 ? scratch_touch(&derive->scratch, block->id) : NULL;
    if (row == NULL || row->free_seq == 0) {
        return true;
    }
    if (row->free_seq != seq) {
        return false;
    }
    slot_enter(step, api_slot_of(derive, block));
    totals_reopen(&step->step->totals, row);
    streams_count(derive, block, STREAM_REOPENS);
    row->free_seq = 0;
    row->free_ns = 0;
    row->temporary = 0;
    return true;
}

void api_describe(const struct api_step *step, uint64_t number)
{
    const struct derive *derive = step->step->derive;
    struct event *event = step->step->event;
    const struct scratch_block *block = derive_block_row(derive, number);
    event->id = block->id;
    event->device = block->device;
    event->pool = block->pool;
    event->stream = event->kind == VARVE_KIND_DEV_FREE_ASYNC ? event->stream : block->stream;
    if (block->id != 0) {
        event->size = scratch_peek(&derive->scratch, block->id)->size;
    }
}

void api_describe_row(const struct api_step *step, uint64_t number)
{
    if (derive_block_row(step->step->derive, number)->id != 0) {
        api_describe(step, number);
    }
}
