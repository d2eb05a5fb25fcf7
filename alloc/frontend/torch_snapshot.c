/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of all devices as three flat arrays, which ctypes reads without a call per entry. They are
 * gathered device by device, each at one moment.
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"

#include <stdlib.h>

_Static_assert(VARVE_TORCH_INACTIVE == (int)VARVE_BLOCK_INACTIVE &&
                   VARVE_TORCH_ACTIVE_ALLOCATED == (int)VARVE_BLOCK_ACTIVE_ALLOCATED &&
                   VARVE_TORCH_ACTIVE_PENDING_FREE == (int)VARVE_BLOCK_ACTIVE_PENDING_FREE,
               "states have one numbering");
_Static_assert(VARVE_TORCH_DEVICES == REGISTRY_DEVICES, "as many devices as the registry has");
_Static_assert(VARVE_TORCH_DIVISIONS == VARVE_ALLOC_DIVISIONS, "settings have room for all divisions");

struct gathered {
    struct varve_torch_segment *segments;
    struct varve_torch_block *blocks;
    struct varve_torch_event *events;
    uint64_t segment_count, block_count, event_count;
};

/* Room for `more` behind `count` items. */
static void *torch_snapshot_grow(void *items, uint64_t count, uint64_t more, size_t size)
{
    return realloc(items, (count + more + 1) * size);
}

static int torch_snapshot_make_room(struct gathered *all, const struct varve_alloc_snapshot *part, uint64_t events)
{
    void *segments =
        torch_snapshot_grow(all->segments, all->segment_count, part->segment_count, sizeof(all->segments[0]));
    all->segments = segments != NULL ? segments : all->segments;
    void *blocks = torch_snapshot_grow(all->blocks, all->block_count, part->block_count, sizeof(all->blocks[0]));
    all->blocks = blocks != NULL ? blocks : all->blocks;
    void *room = torch_snapshot_grow(all->events, all->event_count, events, sizeof(all->events[0]));
    all->events = room != NULL ? room : all->events;
    return segments != NULL && blocks != NULL && room != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

static void torch_snapshot_add_segments(struct gathered *all, const struct varve_alloc_snapshot *part, int ordinal)
{
    for (size_t i = 0; i < part->segment_count; i++) {
        const struct varve_segment_info *segment = &part->segments[i];
        all->segments[all->segment_count++] = (struct varve_torch_segment){
            .addr = segment->addr,
            .bytes = segment->bytes,
            .allocated = segment->allocated_bytes,
            .active = segment->active_bytes,
            .requested = segment->requested_bytes,
            .stream = segment->stream,
            .pool_capture = segment->pool.capture,
            .pool_user = segment->pool.user,
            .first_block = all->block_count + segment->first_block,
            .block_count = segment->block_count,
            .device = ordinal,
            .segment_id = segment->segment_id,
            .is_small = segment->is_small,
            .is_expandable = segment->is_expandable,
        };
    }
    for (size_t i = 0; i < part->block_count; i++) {
        const struct varve_block_info *block = &part->blocks[i];
        all->blocks[all->block_count + i] = (struct varve_torch_block){
            .addr = block->addr,
            .bytes = block->bytes,
            .requested = block->requested,
            .allocation_id = block->allocation_id,
            .state = (uint32_t)block->state,
        };
    }
    all->block_count += part->block_count;
}

static enum varve_torch_action action_of(enum varve_kind kind)
{
    switch (kind) {
    case VARVE_KIND_NONE:
        return VARVE_TORCH_SNAPSHOT;
    case VARVE_KIND_FREE_REQUESTED:
        return VARVE_TORCH_FREE_REQUESTED;
    case VARVE_KIND_FREE_COMPLETED:
        return VARVE_TORCH_FREE_COMPLETED;
    case VARVE_KIND_SEGMENT_ALLOC:
        return VARVE_TORCH_SEGMENT_ALLOC;
    case VARVE_KIND_SEGMENT_FREE:
        return VARVE_TORCH_SEGMENT_FREE;
    case VARVE_KIND_SEGMENT_MAP:
        return VARVE_TORCH_SEGMENT_MAP;
    case VARVE_KIND_SEGMENT_UNMAP:
        return VARVE_TORCH_SEGMENT_UNMAP;
    case VARVE_KIND_OOM:
        return VARVE_TORCH_OOM;
    default:
        return VARVE_TORCH_ALLOC;
    }
}

static void torch_snapshot_add_events(struct gathered *all, const struct history *history, int ordinal)
{
    for (uint64_t i = 0; i < history->count; i++) {
        const struct history_event *event = history_at(history, i);
        all->events[all->event_count++] = (struct varve_torch_event){
            .addr = event->addr,
            .bytes = event->bytes,
            .stream = event->stream,
            .pool_capture = event->pool.capture,
            .pool_user = event->pool.user,
            .time_us = event->time_us,
            .device = ordinal,
            .action = (uint32_t)action_of(event->kind),
        };
    }
}

static uint64_t snapshot_active_bytes(const struct varve_alloc_snapshot *part)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < part->segment_count; i++) {
        sum += part->segments[i].active_bytes;
    }
    return sum;
}

static int torch_snapshot_gather(struct gathered *all, struct frontend_device *device)
{
    varve_alloc_free_mutex_lock(device->alloc);
    struct varve_alloc_snapshot part = {0};
    int error = varve_alloc_snapshot(device->alloc, &part);
    VARVE_THEN(error, torch_snapshot_make_room(all, &part, device->history.count));
    if (error == VARVE_OK) {
        torch_snapshot_add_segments(all, &part, device->ordinal);
        torch_snapshot_add_events(all, &device->history, device->ordinal);
        history_add_snapshot(&device->history, snapshot_active_bytes(&part));
    }
    varve_alloc_free_mutex_unlock(device->alloc);
    varve_alloc_snapshot_free(&part);
    return error;
}

static void gathered_free(struct gathered *all)
{
    free(all->segments);
    free(all->blocks);
    free(all->events);
}

int varve_torch_take_snapshot(int ordinal, struct varve_torch_snapshot *snapshot_out)
{
    *snapshot_out = (struct varve_torch_snapshot){0};
    struct gathered all = {0};
    int error = VARVE_OK;
    for (struct frontend_device *device = registry_next(-1); device != NULL && error == VARVE_OK;
         device = registry_next(device->ordinal)) {
        if (ordinal < 0 || device->ordinal == ordinal) {
            error = torch_snapshot_gather(&all, device);
        }
    }
    if (error != VARVE_OK) {
        gathered_free(&all);
        return varve_message_set(registry_message(), error, "no memory for a snapshot");
    }
    *snapshot_out = (struct varve_torch_snapshot){
        .segments = all.segments,
        .blocks = all.blocks,
        .events = all.events,
        .segment_count = all.segment_count,
        .block_count = all.block_count,
        .event_count = all.event_count,
    };
    return VARVE_OK;
}

void varve_torch_snapshot_free(struct varve_torch_snapshot *snapshot)
{
    struct gathered all = {
        .segments = (struct varve_torch_segment *)(uintptr_t)snapshot->segments,
        .blocks = (struct varve_torch_block *)(uintptr_t)snapshot->blocks,
        .events = (struct varve_torch_event *)(uintptr_t)snapshot->events,
    };
    gathered_free(&all);
    *snapshot = (struct varve_torch_snapshot){0};
}
