/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of caching allocators: each device's layout (model/layout_state.c) says which block and which segment an
 * event is about, and from that follow rows of allocation, segment and oom, and the totals of the device.
 * Ids of events become rows here, since allocators number theirs from 1 for each device of each process.
 *
 * A trace may begin in the middle or lack events: an address that is handed out while its
 * block is live, a segment that goes with live blocks in it. What is lost then ends with that event.
 */
#include "trace/model/derive.h"

#include "base/grown_array.h"
#include "trace/model/device_labels.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/layout_state.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record_fold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- allocators ---- */

/* The allocator, made if it is new; NULL without memory. */
static struct derive_device *device_get(struct derive_process *process, unsigned number)
{
    if (process->devices == NULL) {
        process->devices = calloc(DEVICE_LIMIT, sizeof(*process->devices));
    }
    if (process->devices == NULL || process->devices[number] != NULL) {
        return process->devices != NULL ? process->devices[number] : NULL;
    }
    struct varve_layout *layout = varve_layout_new();
    struct islands *islands = calloc(1, sizeof(*islands));
    struct derive_device *device = layout != NULL && islands != NULL ? calloc(1, sizeof(*device)) : NULL;
    if (device == NULL) {
        varve_layout_free(layout);
        free(islands);
        return NULL;
    }
    layout->islands = islands;
    device->layout = layout;
    device->islands = islands;
    process->devices[number] = device;
    return device;
}

int derive_device_prepare(struct derive *derive, struct derive_process *process, const struct event *event,
                          struct varve_message *message)
{
    struct derive_keyframes *keyframes = &derive->keyframes;
    struct derive_device *device = device_get(process, event->device);
    if (device == NULL || !layout_reserve(device->layout) || !streams_reserve(derive) ||
        !ARRAY_GROW(derive->segments, derive->segment_capacity, derive->segment_count + 1) ||
        !ARRAY_GROW(derive->ooms, derive->oom_capacity, derive->oom_count + 1) ||
        !ARRAY_GROW(keyframes->dirty, keyframes->dirty_capacity, keyframes->dirty_count + 1)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the blocks of device %u",
                                 event->device);
    }
    int error = scratch_reserve(&derive->scratch, 1, message);
    VARVE_THEN(error, derive_blocks_reserve(derive, message));
    if (error == VARVE_OK && keyframes->next_seq == UINT64_MAX && derive->forgets_from == 0) {
        keyframes->next_seq = 0; /* the first allocator of the trace */
    }
    return error;
}

void derive_devices_end(struct derive *derive, struct derive_process *process)
{
    if (process->devices == NULL || process->has_ended) {
        return;
    }
    keyframes_write(derive, derive->last_seq);
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        if (process->devices[i] != NULL) {
            layout_clear(process->devices[i]->layout);
        }
    }
}

void derive_devices_free(struct derive_process *process)
{
    for (unsigned i = 0; i < DEVICE_LIMIT && process->devices != NULL; i++) {
        if (process->devices[i] != NULL) {
            varve_layout_free(process->devices[i]->layout);
            free(process->devices[i]->islands);
            free(process->devices[i]);
        }
    }
    free(process->devices);
}

/* ---- what an event does to rows ---- */

static struct scratch_block *block_row(const struct derive_step *step, uint64_t number)
{
    return derive_block_row(step->derive, number);
}

/* The free of this allocation was not recorded. */
static void block_lost(void *context, uint64_t number)
{
    const struct derive_step *step = context;
    struct scratch_block *block = number != 0 ? block_row(step, number) : NULL;
    if (block == NULL) {
        return;
    }
    if (scratch_touch(&step->derive->scratch, block->id)->free_seq == 0) {
        uint64_t last_id = *step->last_id;
        *step->last_id = 0; /* only a free makes an allocation temporary */
        derive_row_close(step, block->id);
        streams_count(step->derive, block, STREAM_CLOSES);
        *step->last_id = last_id != block->id ? last_id : 0;
    }
    block->completed_seq = step->event->seq;
}

static void segment_ended(void *context, const struct layout_segment *ended)
{
    const struct derive_step *step = context;
    if (ended->id == 0 || ended->id > step->derive->segment_count) {
        return;
    }
    struct derive_segment *segment = &step->derive->segments[ended->id - 1];
    segment->free_seq = step->event->seq;
    segment->free_ns = step->event->ts_ns;
    segment->cause = step->event->kind == VARVE_KIND_SEGMENT_FREE || step->event->kind == VARVE_KIND_SEGMENT_UNMAP
                         ? step->event->cause
                         : (uint8_t)VARVE_CAUSE_NONE;
}

/* The segment of a SEGMENT_* event: its row, made if it is new. */
static void segment_follow(const struct derive_step *step, const struct layout_change *change)
{
    struct derive *derive = step->derive;
    struct event *event = step->event;
    struct layout_segment *segment = change->segment != 0 ? &step->device->layout->segments[change->segment - 1] : NULL;
    event->id = change->segment_id;
    if (change->is_new_segment) {
        assert(segment != NULL);
        derive->segments[derive->segment_count++] = (struct derive_segment){
            .addr = event->addr,
            .alloc_seq = event->seq,
            .alloc_ns = event->ts_ns,
            .process_id = event->process_id,
            .number = (uint32_t)event->arg,
            .pool = event->pool,
            .stream = event->stream,
            .device = event->device,
            .is_expandable = segment->is_expandable,
        };
        segment->id = derive->segment_count;
        event->id = segment->id;
    }
    if (segment != NULL && segment->id != 0) {
        struct derive_segment *row = &derive->segments[segment->id - 1];
        row->addr = segment->addr;
        row->size = segment->mapped > row->size ? segment->mapped : row->size;
    }
    bool is_gone = event->kind == VARVE_KIND_SEGMENT_FREE || event->kind == VARVE_KIND_SEGMENT_UNMAP;
    if (is_gone && event->id == 0 && event->cause == VARVE_CAUSE_NONE) {
        event->cause = VARVE_CAUSE_UNKNOWN_ADDRESS;
    }
}

static void derive_block_open(const struct derive_step *step, const struct layout_change *change)
{
    struct derive *derive = step->derive;
    struct event *event = step->event;
    struct layout_block *block = &step->device->layout->blocks[change->block - 1];
    event->id = derive_row_open(step, event->addr, event->size, event->cause, NULL);
    struct scratch_row *line;
    block->row = scratch_add(&derive->blocks, &line);
    *scratch_block(line) = (struct scratch_block){
        .id = event->id,
        .segment_id = change->segment_id,
        .pool = event->pool,
        .stream = event->stream,
        .device = event->device,
    };
    streams_count(derive, scratch_block(line), STREAM_OPENS);
    *step->last_id = event->id;
    step->device->stage = 0;
}

static void block_release_row(const struct derive_step *step, const struct layout_change *change)
{
    struct event *event = step->event;
    event->id = 0;
    if (!change->is_found || change->row == 0) {
        event->cause = step->process->is_forked ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        *step->last_id = 0;
        return;
    }
    struct scratch_block *block = block_row(step, change->row);
    event->id = block->id;
    if (event->kind == VARVE_KIND_FREE_REQUESTED || !change->was_pending) {
        derive_row_close(step, block->id);
        streams_count(step->derive, block, STREAM_CLOSES);
        *step->last_id = 0;
    } else {
        scratch_touch(&step->derive->scratch, block->id);
    }
    if (event->kind == VARVE_KIND_FREE_COMPLETED) {
        block->completed_seq = event->seq;
    }
}

static void oom_note(const struct derive_step *step)
{
    const struct event *event = step->event;
    struct derive_device *device = step->device;
    totals_fail(&step->totals);
    step->derive->ooms[step->derive->oom_count++] = (struct derive_oom){
        .seq = event->seq,
        .ts_ns = event->ts_ns,
        .process_id = event->process_id,
        .device = event->device,
        .requested = event->size,
        .allocated = event->requested,
        .reserved = event->arg,
        .largest_free = event->addr,
        .stage = device->stage,
    };
    device->stage = 0;
}

static void use_follow(const struct derive_step *step)
{
    struct event *event = step->event;
    const struct varve_layout *layout = step->device->layout;
    const struct range *range = ranges_at(&layout->ranges, event->addr);
    uint64_t row = range != NULL ? layout->blocks[range->id - 1].row : 0;
    event->id = row != 0 ? block_row(step, row)->id : 0;
}

/* ---- the event ---- */

/* Add what the event changed to the sums over all processes. */
static void extra_follow(const struct derive_step *step, const struct layout_sums *before)
{
    const struct layout_sums *after = &step->device->layout->sums;
    struct total *both[] = {&step->totals.domain->all, step->totals.process};
    for (int i = 0; i < 2; i++) {
        both[i]->extra.active += after->active - before->active;
        both[i]->extra.reserved += after->reserved - before->reserved;
        both[i]->extra.requested += after->requested - before->requested;
    }
}

/* The same of the ladder, and its peak. */
static void ladder_follow(const struct derive_step *step, const struct ladder *before)
{
    struct event *event = step->event;
    struct derive_device *device = step->device;
    const struct ladder after = islands_event(device->islands, event, &device->ladder_peak);
    for (int i = 0; i < LADDER_RUNGS; i++) {
        event->ladder_change.bytes[i] = after.bytes[i] - before->bytes[i];
    }
}

static void event_follow(const struct derive_step *step, const struct layout_change *change)
{
    switch (step->event->kind) {
    case VARVE_KIND_ALLOC:
        if (change->block != 0) {
            derive_block_open(step, change);
        } else {
            step->event->id = 0;
            totals_fail(&step->totals);
        }
        break;
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
        block_release_row(step, change);
        break;
    case VARVE_KIND_SEGMENT_ALLOC:
    case VARVE_KIND_SEGMENT_FREE:
    case VARVE_KIND_SEGMENT_MAP:
    case VARVE_KIND_SEGMENT_UNMAP:
        segment_follow(step, change);
        break;
    case VARVE_KIND_SPLIT:
    case VARVE_KIND_MERGE:
        step->event->id = change->segment_id;
        break;
    case VARVE_KIND_RECORD_STREAM:
        use_follow(step);
        break;
    case VARVE_KIND_OOM_RETRY:
        step->device->stage = step->event->cause;
        break;
    case VARVE_KIND_OOM:
        oom_note(step);
        break;
    default:
        break;
    }
}

int derive_block(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    struct derive_device *device = step->device;
    struct layout_change change = {.lost = block_lost, .segment_ended = segment_ended, .context = step};
    const struct layout_sums before = device->layout->sums;
    const struct ladder ladder_before = islands_ladder(device->islands);
    (void)message; /* all that can fail was reserved */
    if (event->kind == VARVE_KIND_ALLOC || event->kind == VARVE_KIND_SEGMENT_ALLOC ||
        event->kind == VARVE_KIND_SEGMENT_MAP) {
        derive_size_check(step);
    }
    if (event->kind == VARVE_KIND_ALLOC) {
        *step->last_id = 0;
    }
    layout_apply(device->layout, event, &change);
    event_follow(step, &change);
    extra_follow(step, &before);
    ladder_follow(step, &ladder_before);
    if (memcmp(&before, &device->layout->sums, sizeof(before)) != 0) {
        totals_update_peak(&step->totals);
    }
    if (!device->is_dirty) {
        struct derive_keyframes *keyframes = &step->derive->keyframes;
        device->is_dirty = true;
        keyframes->dirty[keyframes->dirty_count++] =
            (struct derive_dirty){.process_id = event->process_id, .device = event->device};
    }
    if (event->dev_seq > device->dev_seq) {
        device->dev_seq = event->dev_seq;
    }
    return VARVE_OK;
}

bool derive_block_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                  const struct event *event)
{
    const struct derive_device *device =
        process->devices != NULL ? process->devices[names_device(derive, event)] : NULL;
    return event->dev_seq > (device != NULL ? device->dev_seq : 0) + 1;
}

void derive_device_now(const struct derive_device *device, uint32_t *segments_out, uint64_t *cached_out)
{
    *segments_out = 0;
    for (uint32_t i = 0; i < device->layout->segment_limit; i++) {
        *segments_out += device->layout->segments[i].mapped > 0;
    }
    *cached_out = islands_ladder(device->islands).bytes[LADDER_CACHED];
}

/* ---- the walker ---- */

struct walk {
    const struct derive *derive;
    uint64_t live, live_bytes;
};

static int derive_walk_block(struct walk *walk, const struct layout_block *block, uint64_t addr)
{
    if (block->state == VARVE_LAYOUT_FREE) {
        return VARVE_OK;
    }
    if (block->row == 0 || block->row > walk->derive->blocks.count) {
        return VARVE_ERROR_CORRUPT;
    }
    const struct scratch_block *more =
        scratch_block((struct scratch_row *)scratch_peek(&walk->derive->blocks, block->row));
    const struct scratch_row *row = scratch_peek(&walk->derive->scratch, more->id);
    bool is_used = block->state == VARVE_LAYOUT_USED;
    if (more->completed_seq != 0 || row->addr != addr || row->size != block->size || row->domain != DOMAIN_BLOCK ||
        (row->free_seq == 0) != is_used) {
        return VARVE_ERROR_CORRUPT;
    }
    walk->live += is_used;
    walk->live_bytes += is_used ? row->size : 0;
    return VARVE_OK;
}

int derive_device_check(const struct derive *derive, const struct derive_process *process, unsigned number,
                        struct varve_message *message)
{
    const struct derive_device *device = process->devices[number];
    const struct total *total = process_total(process, slot_of(DOMAIN_BLOCK, number));
    struct walk walk = {.derive = derive};
    struct range range = {0};
    if (layout_check(device->layout) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "device %u: segments and blocks", number);
    }
    if (islands_check(device->islands, device->layout) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "device %u: the ladder", number);
    }
    while (ranges_first(&device->layout->ranges, range.end, UINT64_MAX, &range)) {
        if (derive_walk_block(&walk, &device->layout->blocks[range.id - 1], range.start) != VARVE_OK) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "device %u: block %#llx and its row differ", number,
                                     (unsigned long long)range.start);
        }
    }
    const struct layout_sums *sums = &device->layout->sums;
    if (total != NULL && !process->has_ended &&
        (walk.live != total->sum.live_allocations || walk.live_bytes != total->sum.live_bytes ||
         sums->allocated != total->sum.live_bytes || sums->active != total->extra.active ||
         sums->reserved != total->extra.reserved || sums->requested != total->extra.requested)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "device %u: the totals are not its blocks'", number);
    }
    return VARVE_OK;
}
