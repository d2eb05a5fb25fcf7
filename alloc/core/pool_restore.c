/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private pool goes back to what it was (setCheckpointPoolState): its blocks are freed, then its segments are cut and
 * handed out as the snapshot has them, in use or not, and what was not in use is freed. All of it is recorded as the
 * requests and frees that it consists of. PyTorch takes the segments in hash-map order and fails where an expandable
 * one has grown since; here they come by address, and what is new stays free.
 */
#include "alloc/core/allocator_emit.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/request_way.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

/* What is under way, with the lock held. */
struct pool_restore {
    struct varve_alloc *alloc;
    struct private_pool *pool;
    struct varve_pool_change *change;
    struct varve_message *message;
};

/* Blocks of the snapshot that were not in use are one as long as nothing lies between them: as they will be. */
static uint64_t restored_bytes(const struct varve_block_info *blocks, size_t count, size_t *taken_out)
{
    uint64_t bytes = blocks[0].bytes;
    size_t taken = 1;
    while (blocks[0].state != VARVE_BLOCK_ACTIVE_ALLOCATED && taken < count &&
           blocks[taken].state != VARVE_BLOCK_ACTIVE_ALLOCATED) {
        bytes += blocks[taken++].bytes;
    }
    *taken_out = taken;
    return bytes;
}

static bool is_of_pool(const struct pool_restore *restore, const struct varve_segment_info *segment)
{
    return segment->pool.capture == restore->pool->id.capture && segment->pool.user == restore->pool->id.user;
}

static bool covers(const struct varve_segment_info *now, const struct varve_segment_info *wanted)
{
    return now->stream == wanted->stream && now->is_small == wanted->is_small && wanted->addr >= now->addr &&
           wanted->addr - now->addr <= now->bytes && wanted->bytes <= now->bytes - (wanted->addr - now->addr);
}

/* Can it be done? Nothing has changed yet. */
static int restore_check(const struct pool_restore *restore, const struct varve_alloc_snapshot *now,
                         const struct varve_alloc_snapshot *wanted)
{
    for (size_t i = 0; i < now->block_count; i++) {
        const struct block *block = block_map_find(&restore->alloc->map, now->blocks[i].addr);
        if (block != NULL && block->has_users && block_pool(block)->owner == restore->pool) {
            return varve_message_set(restore->message, VARVE_ERROR_BUSY,
                                     "the block at %#" PRIx64 " of the pool is still used by other streams",
                                     block->addr);
        }
    }
    for (size_t i = 0; i < wanted->segment_count; i++) {
        const struct varve_segment_info *segment = &wanted->segments[i];
        bool is_covered = !is_of_pool(restore, segment);
        for (size_t k = 0; k < now->segment_count && !is_covered; k++) {
            is_covered = is_of_pool(restore, &now->segments[k]) && covers(&now->segments[k], segment);
        }
        if (!is_covered) {
            return varve_message_set(restore->message, VARVE_ERROR_INVALID,
                                     "the pool no longer has the %" PRIu64 " bytes at %#" PRIx64, segment->bytes,
                                     segment->addr);
        }
    }
    return VARVE_OK;
}

static int restore_free_all(const struct pool_restore *restore, const struct varve_alloc_snapshot *now)
{
    for (size_t i = 0; i < now->segment_count; i++) {
        const struct varve_segment_info *segment = &now->segments[i];
        for (size_t k = 0; is_of_pool(restore, segment) && k < segment->block_count; k++) {
            const struct varve_block_info *block = &now->blocks[segment->first_block + k];
            if (block->state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
                VARVE_TRY(varve_alloc_raw_delete(restore->alloc, block->addr, restore->message));
                restore->change->freed[restore->change->freed_count++] = block->addr;
            }
        }
    }
    return VARVE_OK;
}

/* All is free, so one block has all of the range. */
static struct block *free_block_of(const struct pool_restore *restore, const struct varve_segment_info *segment)
{
    struct free_index *index = segment->is_small ? &restore->pool->small.index : &restore->pool->large.index;
    struct block *block = free_index_first(index);
    while (block != NULL && (block->addr > segment->addr || segment->addr - block->addr >= block->size)) {
        block = free_index_following(index, block);
    }
    assert(block != NULL);
    return block;
}

static int restored_take(const struct pool_restore *restore, struct block **rest, uint64_t bytes)
{
    int error = request_reserve(restore->alloc);
    if (error != VARVE_OK) {
        return varve_message_set(restore->message, error, "no memory for the allocator's own descriptors");
    }
    struct block *taken = request_hand_out(restore->alloc, *rest, bytes, VARVE_CAUSE_CACHE);
    *rest = taken->next;
    return VARVE_OK;
}

/* All pieces first, so that none finds a free neighbour before it is cut; then those that were not in use go back. */
static int segment_restore(const struct pool_restore *restore, const struct varve_alloc_snapshot *snapshot,
                           const struct varve_segment_info *segment)
{
    const struct varve_block_info *blocks = &snapshot->blocks[segment->first_block];
    struct block *rest = free_block_of(restore, segment);
    const uint64_t front = rest->addr, front_bytes = segment->addr - front;
    int error = front_bytes > 0 ? restored_take(restore, &rest, front_bytes) : VARVE_OK;
    size_t taken = 0;
    for (size_t i = 0; i < segment->block_count && error == VARVE_OK; i += taken) {
        error = restored_take(restore, &rest, restored_bytes(&blocks[i], segment->block_count - i, &taken));
    }
    if (error == VARVE_OK && front_bytes > 0) {
        error = varve_alloc_raw_delete(restore->alloc, front, restore->message);
    }
    for (size_t i = 0; i < segment->block_count && error == VARVE_OK; i += taken) {
        restored_bytes(&blocks[i], segment->block_count - i, &taken);
        if (blocks[i].state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
            restore->change->allocated[restore->change->allocated_count++] = blocks[i].addr;
        } else {
            error = varve_alloc_raw_delete(restore->alloc, blocks[i].addr, restore->message);
        }
    }
    return error;
}

static int restore_run(const struct pool_restore *restore, const struct varve_alloc_snapshot *wanted)
{
    struct varve_alloc_snapshot now;
    int error = varve_alloc_snapshot(restore->alloc, &now);
    if (error != VARVE_OK) {
        return varve_message_set(restore->message, error, "no memory to look at the pool");
    }
    restore->change->freed = calloc(now.block_count + 1, sizeof(uint64_t));
    restore->change->allocated = calloc(wanted->block_count + 1, sizeof(uint64_t));
    if (restore->change->freed == NULL || restore->change->allocated == NULL) {
        error = varve_message_set(restore->message, VARVE_ERROR_NO_MEMORY, "no memory for a list of the blocks");
    }
    VARVE_THEN(error, restore_check(restore, &now, wanted));
    VARVE_THEN(error, restore_free_all(restore, &now));
    for (size_t i = 0; i < wanted->segment_count && error == VARVE_OK; i++) {
        error = is_of_pool(restore, &wanted->segments[i]) ? segment_restore(restore, wanted, &wanted->segments[i])
                                                          : VARVE_OK;
    }
    varve_alloc_snapshot_free(&now);
    return error;
}

int varve_alloc_restore_pool(struct varve_alloc *alloc, struct varve_pool_id id,
                             const struct varve_alloc_snapshot *snapshot, struct varve_pool_change *change_out,
                             struct varve_message *message)
{
    *change_out = (struct varve_pool_change){0};
    alloc_lock(alloc);
    const struct pool_restore restore = {
        .alloc = alloc, .pool = private_pool_find(alloc, id), .change = change_out, .message = message};
    int error = restore.pool == NULL || restore.pool->use_count == 0
                    ? varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                        restore.pool == NULL ? "there is no such pool" : "nobody refers to the pool")
                    : restore_run(&restore, snapshot);
    alloc_unlock(alloc);
    return error;
}

void varve_pool_change_free(struct varve_pool_change *change)
{
    free(change->freed);
    free(change->allocated);
    *change = (struct varve_pool_change){0};
}
