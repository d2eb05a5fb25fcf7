/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks used by several streams: record_stream, and what follows when such a block is freed (insert_events,
 * process_events, synchronize_and_free_events). Owns the uses, the queues of events and the deferred list.
 */
#ifndef VARVE_ALLOC_CORE_STREAM_USE_H
#define VARVE_ALLOC_CORE_STREAM_USE_H

#include "alloc/alloc.h"
#include "alloc/index/block.h"

struct private_pool;

/* A stream that a block was recorded for. */
struct stream_use {
    struct stream_use *next; /* by stream */
    uint64_t stream;
    bool in_capture; /* recorded while a capture was underway */
};

struct pending_event {
    uint64_t event;
    struct block *block;
};

/* What a stream has yet to finish, in the order of the frees. */
struct event_queue {
    uint64_t stream;
    struct pending_event *items; /* ring, capacity a power of two */
    uint32_t head, count, capacity;
};

int stream_use_add(struct varve_alloc *alloc, struct block *block, uint64_t stream);
/// A block with uses was freed: it waits for an event of each stream (or, in a capture, for its end).
int stream_use_wait(struct varve_alloc *alloc, struct block *block);
/// Free the blocks whose events have completed (process_events).
int stream_use_poll(struct varve_alloc *alloc);
/// Let `stream` wait for what `other` has been given by now.
int stream_use_order(struct varve_alloc *alloc, uint64_t stream, uint64_t other);
void stream_use_drop_first(struct varve_alloc *alloc, struct block *block);
/// Wait for all events, or those of one private pool's blocks (synchronize_and_free_events).
int stream_use_synchronize(struct varve_alloc *alloc, const struct private_pool *only);
void stream_use_close(struct varve_alloc *alloc);

#endif
