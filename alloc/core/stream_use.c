/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A freed block waits for one event of each of its streams; the events of one stream are polled in order, and
 * only by a later request. While streams are captured, nothing can be recorded on them: what waits for that is
 * in the deferred list, also where the capture was not announced to this allocator.
 *
 * PyTorch keeps queues and uses in hash tables, whose order nobody can rely on; here both go by stream
 * handle.
 */
#include "alloc/core/stream_use.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/block_links.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

/* ---- uses: a sorted list per block ---- */

int stream_use_add(struct varve_alloc *alloc, struct block *block, uint64_t stream)
{
    struct stream_use **link = &block->uses;
    while (*link != NULL && (*link)->stream < stream) {
        link = &(*link)->next;
    }
    if (*link != NULL && (*link)->stream == stream) {
        (*link)->in_capture = (*link)->in_capture || alloc->capture_count > 0;
        return VARVE_OK;
    }
    struct stream_use *use = alloc->spare_uses;
    if (use != NULL) {
        alloc->spare_uses = use->next;
    } else if ((use = malloc(sizeof(*use))) == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *use = (struct stream_use){.next = *link, .stream = stream, .in_capture = alloc->capture_count > 0};
    *link = use;
    block->has_users = true;
    return VARVE_OK;
}

static void use_drop(struct varve_alloc *alloc, struct stream_use **link)
{
    struct stream_use *use = *link;
    *link = use->next;
    use->next = alloc->spare_uses;
    alloc->spare_uses = use;
}

void stream_use_drop_first(struct varve_alloc *alloc, struct block *block)
{
    use_drop(alloc, &block->uses);
    block_note_users(block);
}

/* ---- queues ---- */

static struct event_queue *queue_of(struct varve_alloc *alloc, uint64_t stream)
{
    uint32_t at = 0;
    while (at < alloc->queue_count && alloc->queues[at].stream < stream) {
        at++;
    }
    if (at < alloc->queue_count && alloc->queues[at].stream == stream) {
        return &alloc->queues[at];
    }
    if (!ARRAY_GROW(alloc->queues, alloc->queue_capacity, alloc->queue_count + 1)) {
        return NULL;
    }
    memmove(&alloc->queues[at + 1], &alloc->queues[at], (alloc->queue_count - at) * sizeof(alloc->queues[0]));
    alloc->queue_count++;
    alloc->queues[at] = (struct event_queue){.stream = stream};
    return &alloc->queues[at];
}

static int queue_reserve(struct event_queue *queue)
{
    uint32_t capacity = queue->capacity > 0 ? queue->capacity * 2 : 16;
    if (queue->count < queue->capacity) {
        return VARVE_OK;
    }
    struct pending_event *items = malloc(capacity * sizeof(*items));
    if (items == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < queue->count; i++) {
        items[i] = queue->items[(queue->head + i) & (queue->capacity - 1)];
    }
    free(queue->items);
    queue->items = items;
    queue->head = 0;
    queue->capacity = capacity;
    return VARVE_OK;
}

static int event_acquire(struct varve_alloc *alloc, uint64_t *event_out)
{
    if (alloc->spare_event_count > 0) {
        *event_out = alloc->spare_events[--alloc->spare_event_count];
        return VARVE_OK;
    }
    return alloc->device->ops->event_create(alloc->device, event_out);
}

static void event_release(struct varve_alloc *alloc, uint64_t event)
{
    if (!ARRAY_GROW(alloc->spare_events, alloc->spare_event_capacity, alloc->spare_event_count + 1)) {
        alloc->device->ops->event_destroy(alloc->device, event);
        return;
    }
    alloc->spare_events[alloc->spare_event_count++] = event;
}

/* One use becomes an event of its stream. */
static int event_insert(struct varve_alloc *alloc, struct block *block, uint64_t stream)
{
    struct event_queue *queue = queue_of(alloc, stream);
    uint64_t event = 0;
    int error = queue != NULL ? queue_reserve(queue) : VARVE_ERROR_NO_MEMORY;
    VARVE_THEN(error, event_acquire(alloc, &event));
    if (error != VARVE_OK) {
        return error;
    }
    error = alloc->device->ops->event_record(alloc->device, event, stream);
    if (error != VARVE_OK) {
        event_release(alloc, event);
        return error;
    }
    queue->items[(queue->head + queue->count++) & (queue->capacity - 1)] = (struct pending_event){event, block};
    block->event_count++;
    block->has_users = true;
    alloc->pending_events++;
    return VARVE_OK;
}

int stream_use_order(struct varve_alloc *alloc, uint64_t stream, uint64_t other)
{
    uint64_t event = 0;
    int error = event_acquire(alloc, &event);
    if (error != VARVE_OK) {
        return error;
    }
    error = alloc->device->ops->event_record(alloc->device, event, other);
    VARVE_THEN(error, alloc->device->ops->stream_wait_event(alloc->device, stream, event));
    event_release(alloc, event); /* what was waited for is that record, whatever the event stands for later */
    return error;
}

/* insert_events. What cannot be recorded stays a use, and is tried again (deferred_insert). */
static int events_insert(struct varve_alloc *alloc, struct block *block)
{
    while (block->uses != NULL) {
        int error = event_insert(alloc, block, block->uses->stream);
        if (error != VARVE_OK) {
            return error;
        }
        use_drop(alloc, &block->uses);
        block_note_users(block);
    }
    return VARVE_OK;
}

static int stream_use_order_block(struct varve_alloc *alloc, struct block *block)
{
    return block_is_ordered(alloc, block) ? alloc->policy->backend->free_ordered(alloc, block)
                                          : events_insert(alloc, block);
}

static void wait_begin(struct varve_alloc *alloc, const struct block *block)
{
    stat_wait(&alloc->counters, block_pool(block)->is_small, block->size, true);
}

static void wait_end(struct varve_alloc *alloc, struct block *block)
{
    stat_wait(&alloc->counters, block_pool(block)->is_small, block->size, false);
    block_free(alloc, block);
}

int stream_use_wait(struct varve_alloc *alloc, struct block *block)
{
    bool is_ordered = block_is_ordered(alloc, block);
    int error = VARVE_OK;
    if (alloc->capture_count == 0 || block->uses == NULL) {
        error = stream_use_order_block(alloc, block);
        if (error == VARVE_OK) {
            if (!is_ordered) { /* else there is no block any more */
                wait_begin(alloc, block);
            }
            return VARVE_OK;
        }
        for (struct stream_use *use = block->uses; use != NULL; use = use->next) {
            use->in_capture = false; /* it was freed outside of captures: all its streams count */
        }
    }
    wait_begin(alloc, block);
    block->right = NULL;
    if (alloc->deferred == NULL) {
        alloc->deferred = block;
    } else {
        alloc->deferred_last->right = block;
    }
    alloc->deferred_last = block;
    return error == VARVE_ERROR_BUSY ? VARVE_OK : error;
}

/* The block, which has left the deferred list, is not in use any more, or waits for its events. */
static void deferred_leave(struct varve_alloc *alloc, struct block *block)
{
    block->right = NULL;
    if (block->event_count == 0) {
        wait_end(alloc, block);
    }
}

static void drop_captured(struct varve_alloc *alloc, struct block *block)
{
    struct stream_use **link = &block->uses;
    while (*link != NULL) {
        if ((*link)->in_capture) {
            use_drop(alloc, link);
        } else {
            link = &(*link)->next;
        }
    }
    block_note_users(block);
}

/* insert_events_deferred_until_no_capture: streams that were added by a capture belong to its graph. Blocks
 * with a stream that is captured still, by another library, stay, and do not keep those behind them. */
static int deferred_insert(struct varve_alloc *alloc)
{
    struct block **link = &alloc->deferred;
    assert(alloc->capture_count == 0);
    struct block *kept = NULL;
    while (*link != NULL) {
        struct block *block = *link, *next = block->right;
        bool is_ordered = block_is_ordered(alloc, block), is_small = block_pool(block)->is_small;
        uint64_t bytes = block->size;
        drop_captured(alloc, block);
        int error = stream_use_order_block(alloc, block);
        if (error == VARVE_ERROR_BUSY) {
            kept = block;
            link = &block->right;
        } else if (error != VARVE_OK) {
            return error;
        } else {
            *link = next;
            if (is_ordered) { /* there is no block any more */
                stat_wait(&alloc->counters, is_small, bytes, false);
            } else {
                deferred_leave(alloc, block);
            }
        }
    }
    alloc->deferred_last = kept;
    return VARVE_OK;
}

static void queue_pop(struct varve_alloc *alloc, struct event_queue *queue)
{
    struct pending_event item = queue->items[queue->head];
    queue->head = (queue->head + 1) & (queue->capacity - 1);
    queue->count--;
    alloc->pending_events--;
    event_release(alloc, item.event);
    /* uses that are left could not be recorded: the block is in the deferred list for that */
    item.block->event_count--;
    block_note_users(item.block);
    if (!item.block->has_users) {
        wait_end(alloc, item.block);
    }
}

static void queues_drop_empty(struct varve_alloc *alloc)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < alloc->queue_count; i++) {
        if (alloc->queues[i].count > 0) {
            alloc->queues[kept++] = alloc->queues[i];
        } else {
            free(alloc->queues[i].items);
        }
    }
    alloc->queue_count = kept;
}

int stream_use_poll(struct varve_alloc *alloc)
{
    int error = VARVE_OK;
    if (alloc->deferred != NULL) {
        error = deferred_insert(alloc);
    }
    bool has_emptied = false;
    for (uint32_t i = 0; error == VARVE_OK && i < alloc->queue_count; i++) {
        struct event_queue *queue = &alloc->queues[i];
        int is_done = 1;
        while (queue->count > 0 && is_done == 1) {
            is_done = alloc->device->ops->event_query(alloc->device, queue->items[queue->head].event);
            if (is_done == 1) {
                queue_pop(alloc, queue);
            }
        }
        error = is_done < 0 ? is_done : VARVE_OK;
        has_emptied = has_emptied || queue->count == 0;
    }
    if (has_emptied) {
        queues_drop_empty(alloc);
    }
    return error;
}

/* The events of blocks that do not belong to `only` stay where they are, in order. */
static int queue_synchronize(struct varve_alloc *alloc, struct event_queue *queue, const struct private_pool *only)
{
    uint32_t kept = 0;
    uint32_t count = queue->count;
    int error = VARVE_OK;
    for (uint32_t i = 0; i < count; i++) {
        struct pending_event item = queue->items[queue->head];
        if (error == VARVE_OK && (only == NULL || block_pool(item.block)->owner == only)) {
            error = alloc->device->ops->event_synchronize(alloc->device, item.event);
            if (error == VARVE_OK) {
                queue_pop(alloc, queue);
                continue;
            }
        }
        queue->head = (queue->head + 1) & (queue->capacity - 1);
        queue->items[(queue->head + queue->count - 1) & (queue->capacity - 1)] = item;
        kept++;
    }
    assert(kept == queue->count);
    return error;
}

int stream_use_synchronize(struct varve_alloc *alloc, const struct private_pool *only)
{
    assert(alloc->capture_count == 0);
    alloc->counters.others.num_sync_all_streams++;
    int error = deferred_insert(alloc);
    for (uint32_t i = 0; error == VARVE_OK && i < alloc->queue_count; i++) {
        error = queue_synchronize(alloc, &alloc->queues[i], only);
    }
    queues_drop_empty(alloc);
    return error;
}

void stream_use_close(struct varve_alloc *alloc)
{
    for (uint32_t i = 0; i < alloc->queue_count; i++) {
        struct event_queue *queue = &alloc->queues[i];
        for (uint32_t k = 0; k < queue->count; k++) {
            alloc->device->ops->event_destroy(alloc->device,
                                              queue->items[(queue->head + k) & (queue->capacity - 1)].event);
        }
        free(queue->items);
    }
    while (alloc->spare_event_count > 0) {
        alloc->device->ops->event_destroy(alloc->device, alloc->spare_events[--alloc->spare_event_count]);
    }
    struct block *block;
    uint64_t position = 0;
    while ((block = block_map_each(&alloc->map, &position)) != NULL) {
        while (block->uses != NULL) {
            use_drop(alloc, &block->uses);
        }
    }
    while (alloc->spare_uses != NULL) {
        struct stream_use *use = alloc->spare_uses;
        alloc->spare_uses = use->next;
        free(use);
    }
    free(alloc->queues);
    free(alloc->spare_events);
}
