/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of a device: cuMemCreate gives it a handle, cuMemMap makes it visible at as many addresses
 * as one likes, and it is gone when nobody has the handle and nothing maps it. So a row is found by handle or
 * by mapping, and ends with whichever goes last. Memory that another process made has a handle and mappings
 * too, and no row.
 *
 * Handles are used again: the driver may give one out as soon as its memory is gone,
 * or, should we have missed a release, while we think that it is not. The newer memory has the handle then;
 * the older one lives on without a name as long as it is mapped. device_api.c calls it.
 */
#include "trace/model/device_rows.h"

#include "base/grown_array.h"
#include "trace/model/model_event.h"
#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>

static struct scratch_block *device_vmm_block_of(const struct api_step *step, uint64_t number)
{
    return derive_block_row(step->step->derive, number);
}

static uint64_t named(const struct api_step *step, uint64_t handle)
{
    return index_find(&step->index->handles, handle);
}

static uint64_t device_vmm_span_end(uint64_t addr, uint64_t size)
{
    return addr + size < addr ? UINT64_MAX : addr + size;
}

/* Nobody has its handle and nothing maps it. True if it had a name. */
static bool memory_end(const struct api_step *step, uint64_t number, bool is_free)
{
    uint64_t handle = device_vmm_block_of(step, number)->handle;
    bool was_named = named(step, handle) == number;
    if (was_named) {
        index_remove(&step->index->handles, handle);
    }
    api_close(step, number, is_free);
    return was_named;
}

/* A mapping goes, and with it the memory, if it was all that held it; returns what memory_end does. */
static bool mapping_end(const struct api_step *step, const struct range *range, bool is_free)
{
    struct scratch_block *block = device_vmm_block_of(step, range->id);
    ranges_remove(&step->index->mappings, range->start);
    block->maps--;
    return block->maps == 0 && block->refs == 0 && memory_end(step, range->id, is_free);
}

/* Mappings that end without an event of their unmapping. */
static void mappings_clear(const struct api_step *step, uint64_t start, uint64_t end)
{
    struct range range;
    while (ranges_first(&step->index->mappings, start, end, &range)) {
        mapping_end(step, &range, false);
    }
}

/* The handle means this memory from now on. */
static void handle_assign(const struct api_step *step, uint64_t number)
{
    uint64_t handle = device_vmm_block_of(step, number)->handle;
    uint64_t before = named(step, handle);
    if (before != 0 && before != number) {
        struct scratch_block *block = device_vmm_block_of(step, before);
        block->refs = 0;
        index_remove(&step->index->handles, handle);
        if (block->maps == 0) {
            api_close(step, before, false);
        }
    }
    if (before != number) {
        index_insert(&step->index->handles, handle, number);
    }
}

/* ---- events ---- */

bool vmm_reserve(const struct api_step *step)
{
    const struct event *event = step->step->event;
    struct api_undo *undo = step->undo;
    if (event->kind == VARVE_KIND_VMM_MAP) {
        return ranges_reserve(&step->index->mappings, 1);
    }
    if (event->kind != VARVE_KIND_VMM_UNMAP) {
        return true;
    }
    if (event->flags & VARVE_FLAG_FAILED) {
        return ranges_reserve(&step->index->mappings, (uint32_t)undo->count);
    }
    uint64_t end = device_vmm_span_end(event->addr, event->size);
    struct range range;
    size_t count = 0;
    for (uint64_t at = event->addr; ranges_first(&step->index->mappings, at, end, &range); at = range.end) {
        count++;
    }
    return ARRAY_GROW(undo->mappings, undo->capacity, count + 1);
}

void vmm_create(const struct api_step *step)
{
    struct event *event = step->step->event;
    uint64_t number = named(step, event->arg);
    bool is_retained = event->cause == VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE;
    bool is_imported = event->cause == VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE;
    event->id = 0;
    *step->step->last_id = 0;
    if (event->arg == 0) {
        return;
    }
    if (is_retained || (is_imported && number != 0)) {
        if (number != 0) {
            struct scratch_block *block = device_vmm_block_of(step, number);
            block->refs += block->refs < UINT32_MAX;
            event->id = block->id;
        }
        return;
    }
    unsigned domain = api_makes_row(event) ? api_domain_of(event) : 0;
    if (domain != 0) {
        derive_size_check(step->step);
    }
    number = api_open(step, domain, 0);
    device_vmm_block_of(step, number)->handle = event->arg;
    device_vmm_block_of(step, number)->refs = 1;
    handle_assign(step, number);
}

void vmm_map(const struct api_step *step)
{
    struct event *event = step->step->event;
    uint64_t end = device_vmm_span_end(event->addr, event->size);
    event->id = 0;
    if (end <= event->addr) {
        return;
    }
    mappings_clear(step, event->addr, end);
    uint64_t number = named(step, event->arg);
    if (number == 0) {
        return;
    }
    struct scratch_block *block = device_vmm_block_of(step, number);
    const struct range range = {.start = event->addr, .end = end, .id = number};
    block->maps++;
    ranges_insert(&step->index->mappings, &range);
    event->id = block->id;
    if (block->id != 0) {
        struct scratch_row *row = scratch_touch(&step->step->derive->scratch, block->id);
        row->addr = row->addr != 0 ? row->addr : event->addr;
    }
}

void vmm_unmap(const struct api_step *step)
{
    struct event *event = step->step->event;
    struct api_undo *undo = step->undo;
    uint64_t end = device_vmm_span_end(event->addr, event->size);
    uint64_t size = event->size;
    uint64_t id = 0;
    struct range range;
    while (ranges_first(&step->index->mappings, event->addr, end, &range)) {
        if (id == 0) {
            api_describe(step, range.id);
            id = event->id;
        }
        undo->mappings[undo->count++] =
            (struct api_undone){.range = range, .was_named = mapping_end(step, &range, true)};
    }
    event->id = id;
    event->size = size;
    *step->step->last_id = 0;
}

void vmm_release(const struct api_step *step)
{
    struct event *event = step->step->event;
    uint64_t number = named(step, event->arg);
    event->id = 0;
    if (number != 0 && device_vmm_block_of(step, number)->refs > 0) {
        struct scratch_block *block = device_vmm_block_of(step, number);
        step->undo->block = number;
        step->undo->was_named = false;
        block->refs--;
        api_describe(step, number);
        if (block->refs == 0 && block->maps == 0) {
            step->undo->was_named = memory_end(step, number, true);
        }
    }
    *step->step->last_id = 0;
}

/* ---- calls that failed ---- */

static void unmap_take_back(const struct api_step *step)
{
    const struct api_undo *undo = step->undo;
    uint64_t size = step->step->event->size;
    uint64_t id = 0;
    for (size_t i = 0; i < undo->count; i++) {
        const struct range *range = &undo->mappings[i].range;
        mappings_clear(step, range->start, range->end);
        if (!api_reopen(step, range->id, undo->seq)) {
            continue;
        }
        device_vmm_block_of(step, range->id)->maps++;
        ranges_insert(&step->index->mappings, range);
        if (undo->mappings[i].was_named) {
            handle_assign(step, range->id);
        }
        if (id == 0) {
            api_describe_row(step, range->id);
            id = step->step->event->id;
        }
    }
    step->step->event->id = id;
    step->step->event->size = size;
}

void vmm_take_back(const struct api_step *step)
{
    const struct api_undo *undo = step->undo;
    if (undo->kind == VARVE_KIND_VMM_UNMAP) {
        unmap_take_back(step);
    } else if (undo->block != 0 && api_reopen(step, undo->block, undo->seq)) {
        device_vmm_block_of(step, undo->block)->refs++;
        handle_assign(step, undo->block);
        api_describe_row(step, undo->block);
    }
}

/* ---- the end of a context ---- */

void vmm_reset(const struct api_step *step, unsigned device, unsigned context)
{
    struct ranges *mappings = &step->index->mappings;
    struct index *handles = &step->index->handles;
    struct range range;
    for (uint64_t at = 0; ranges_first(mappings, at, UINT64_MAX, &range); at = range.end) {
        struct scratch_block *block = device_vmm_block_of(step, range.id);
        if (api_is_of(block, device, context)) {
            block->refs = 0;
            mapping_end(step, &range, true);
        }
    }
    for (uint64_t i = 0; i < index_slots(handles);) {
        struct scratch_block *block =
            handles->slots[i].number != 0 ? device_vmm_block_of(step, handles->slots[i].number) : NULL;
        if (block != NULL && api_is_of(block, device, context)) {
            block->refs = 0;
            memory_end(step, handles->slots[i].number, true); /* another one may be in its slot now */
        } else {
            i++;
        }
    }
}

/* ---- order ---- */

bool vmm_is_out_of_order(const struct derive *derive, const struct api_index *index, const struct event *event)
{
    struct range range;
    uint64_t number = index_find(&index->handles, event->arg);
    uint64_t end = device_vmm_span_end(event->addr, event->size);
    bool has_ref = number != 0 && derive_block_row(derive, number)->refs > 0;
    switch (event->kind) {
    case VARVE_KIND_VMM_CREATE:
        return event->cause == VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE       ? number == 0
               : event->cause == VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE ? false
                                                                                 : has_ref;
    case VARVE_KIND_VMM_MAP:
        return number == 0 || ranges_first(&index->mappings, event->addr, end, &range);
    case VARVE_KIND_VMM_UNMAP:
        return !ranges_first(&index->mappings, event->addr, end, &range);
    case VARVE_KIND_VMM_RELEASE:
        return !has_ref;
    default:
        return false;
    }
}
