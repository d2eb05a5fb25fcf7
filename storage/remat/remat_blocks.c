/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that has each resident storage in a block of an allocator, and nothing in the blocks: what a log would meet
 * in a real allocator. Outputs that are resident already get a second block, which is freed once the operator has run.
 */
#include "storage/remat/planner.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of an output that is resident. */
struct second_block {
    uint32_t storage;
    struct varve_allocation allocation;
};

struct varve_remat_blocks {
    struct varve_alloc *alloc;
    struct varve_remat *remat;
    struct varve_allocation *of; /* by storage */
    uint64_t *free_beside;       /* by storage, as of `version` */
    uint32_t of_capacity, free_capacity;
    struct varve_remat_piece *pieces;
    uint32_t piece_count, piece_capacity;
    uint64_t changes,
        version; /* blocks allocated and freed; as many when free_beside was found. They begin at different numbers */
    struct second_block *second; /* of the operator that is running */
    uint32_t second_count, second_capacity;
};

/* ---- blocks ---- */

static void remat_free_block(struct varve_remat_blocks *blocks, struct varve_allocation *allocation)
{
    if (allocation->block != NULL) {
        blocks->changes++;
        (void)varve_alloc_free(blocks->alloc, *allocation, NULL);
        *allocation = (struct varve_allocation){0};
    }
}

static void remat_blocks_evict(void *context, uint32_t storage)
{
    struct varve_remat_blocks *blocks = context;
    if (storage < blocks->of_capacity) {
        remat_free_block(blocks, &blocks->of[storage]);
    }
}

static int own_block(struct varve_remat_blocks *blocks, uint32_t storage, struct varve_allocation allocation)
{
    blocks->of[storage] = allocation;
    return varve_alloc_set_user(blocks->alloc, allocation, (void *)((uintptr_t)storage + 1));
}

/* A block for the storage, whose number it carries; for a resident one a second block. */
static int make_block(struct varve_remat_blocks *blocks, uint32_t storage, uint64_t bytes,
                      struct varve_message *message)
{
    struct varve_allocation allocation;
    bool is_second = blocks->of[storage].block != NULL;
    VARVE_TRY(varve_alloc_allocate(blocks->alloc, bytes, 0, &allocation, message));
    blocks->changes++;
    if (is_second) {
        blocks->second[blocks->second_count++] = (struct second_block){.storage = storage, .allocation = allocation};
        return VARVE_OK;
    }
    return own_block(blocks, storage, allocation);
}

/* The operator has run, or not: second blocks go, but where the first was evicted meanwhile. */
static int drop_second_blocks(struct varve_remat_blocks *blocks, int error)
{
    while (blocks->second_count > 0) {
        struct second_block *second = &blocks->second[--blocks->second_count];
        if (error == VARVE_OK && blocks->of[second->storage].block == NULL) {
            error = own_block(blocks, second->storage, second->allocation);
        } else {
            remat_free_block(blocks, &second->allocation);
        }
    }
    return error;
}

static int remat_blocks_run(void *context, struct varve_remat_run *run, struct varve_message *message)
{
    struct varve_remat_blocks *blocks = context;
    const struct remat_graph *graph = &blocks->remat->graph;
    if (!growth_reserve(&blocks->of, &blocks->of_capacity, graph->storage_count, sizeof(*blocks->of)) ||
        !growth_reserve(&blocks->second, &blocks->second_capacity, run->output_count, sizeof(*blocks->second))) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a table of blocks");
    }
    unsigned made = 0;
    int error = VARVE_OK;
    for (; made < run->output_count && error == VARVE_OK; made++) {
        uint32_t output = run->outputs[made];
        if (output != VARVE_REMAT_NONE && graph->tensors[output].size > 0) {
            error = make_block(blocks, graph->tensors[output].storage, graph->tensors[output].size, message);
        }
    }
    error = drop_second_blocks(blocks, error);
    for (unsigned i = 0; error != VARVE_OK && i < made; i++) {
        uint32_t storage =
            run->outputs[i] == VARVE_REMAT_NONE ? VARVE_REMAT_NONE : graph->tensors[run->outputs[i]].storage;
        if (storage != VARVE_REMAT_NONE && !graph->storages[storage].is_resident) {
            remat_blocks_evict(blocks, storage);
        }
    }
    return error;
}

static uint64_t remat_blocks_bytes_used(void *context)
{
    const struct varve_remat_blocks *blocks = context;
    return (uint64_t)varve_alloc_memory_allocated(blocks->alloc);
}

static uint64_t remat_blocks_bytes_needed(void *context, uint32_t number)
{
    struct varve_remat_blocks *blocks = context;
    const struct remat_graph *graph = &blocks->remat->graph;
    const struct remat_op *op = &graph->ops[number];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t output = remat_op_outputs(op)[i];
        bytes +=
            output == VARVE_REMAT_NONE ? 0 : varve_alloc_rounded_size(blocks->alloc, graph->tensors[output].size, NULL);
    }
    return bytes;
}

/* ---- what lies beside what ---- */

static uint32_t storage_at(struct varve_alloc *alloc, uint64_t addr)
{
    struct varve_allocation allocation;
    struct varve_allocation_info info;
    if (varve_alloc_get_allocation(alloc, addr, &allocation) != VARVE_OK ||
        varve_alloc_describe(alloc, allocation, &info) != VARVE_OK || info.user == NULL) {
        return VARVE_REMAT_NONE;
    }
    return (uint32_t)((uintptr_t)info.user - 1);
}

static bool add_pieces(struct varve_remat_blocks *blocks, const struct varve_alloc_snapshot *snapshot,
                       const struct varve_segment_info *segment)
{
    if (!growth_reserve(&blocks->pieces, &blocks->piece_capacity, (uint64_t)blocks->piece_count + segment->block_count,
                        sizeof(*blocks->pieces))) {
        return false;
    }
    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *block = &snapshot->blocks[segment->first_block + i];
        bool is_free = block->state == VARVE_BLOCK_INACTIVE;
        blocks->pieces[blocks->piece_count++] = (struct varve_remat_piece){
            .bytes = block->bytes,
            .storage = is_free ? VARVE_REMAT_NONE : storage_at(blocks->alloc, block->addr),
            .is_free = is_free,
            .begins_segment = i == 0,
        };
    }
    return true;
}

/* Pieces of the segments that serve requests of that size; all segments for `bytes` of 0. */
static bool find_pieces(struct varve_remat_blocks *blocks, uint64_t bytes)
{
    blocks->piece_count = 0;
    bool is_small;
    (void)varve_alloc_rounded_size(blocks->alloc, bytes, &is_small);
    struct varve_alloc_snapshot snapshot;
    if (varve_alloc_snapshot(blocks->alloc, &snapshot) != VARVE_OK) {
        return false;
    }
    bool is_done = true;
    for (size_t i = 0; i < snapshot.segment_count && is_done; i++) {
        if (bytes == 0 || snapshot.segments[i].is_small == is_small) {
            is_done = add_pieces(blocks, &snapshot, &snapshot.segments[i]);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return is_done;
}

static size_t remat_blocks_layout(void *context, uint64_t bytes, const struct varve_remat_piece **pieces_out)
{
    struct varve_remat_blocks *blocks = context;
    *pieces_out = NULL;
    if (!find_pieces(blocks, bytes)) {
        return 0;
    }
    *pieces_out = blocks->pieces;
    return blocks->piece_count;
}

static void find_free_beside(struct varve_remat_blocks *blocks)
{
    if (!growth_reserve(&blocks->free_beside, &blocks->free_capacity, blocks->of_capacity,
                        sizeof(*blocks->free_beside)) ||
        !find_pieces(blocks, 0)) {
        return;
    }
    const struct varve_remat_piece *pieces = blocks->pieces;
    for (uint32_t i = 0; i < blocks->piece_count; i++) {
        bool has_left = i > 0 && !pieces[i].begins_segment && pieces[i - 1].is_free;
        bool has_right = i + 1 < blocks->piece_count && !pieces[i + 1].begins_segment && pieces[i + 1].is_free;
        if (pieces[i].storage != VARVE_REMAT_NONE) {
            blocks->free_beside[pieces[i].storage] =
                (has_left ? pieces[i - 1].bytes : 0) + (has_right ? pieces[i + 1].bytes : 0);
        }
    }
    blocks->version = blocks->changes;
}

static uint64_t remat_blocks_free_neighbours(void *context, uint32_t storage)
{
    struct varve_remat_blocks *blocks = context;
    if (blocks->version != blocks->changes) {
        find_free_beside(blocks);
    }
    return storage < blocks->free_capacity && blocks->of[storage].block != NULL ? blocks->free_beside[storage] : 0;
}

/* ---- opening ---- */

/* More than the limit of allocated bytes is asked for. On other misses the allocator has ways of its own first. */
static uint64_t on_miss(void *context, const struct varve_alloc_miss *miss)
{
    struct varve_remat_blocks *blocks = context;
    return miss->excess > 0 ? varve_remat_make_room(blocks->remat, miss->excess) : 0;
}

static uint64_t on_last_resort(void *context, const struct varve_alloc_miss *miss)
{
    struct varve_remat_blocks *blocks = context;
    return varve_remat_make_room(blocks->remat, miss->rounded);
}

int varve_remat_blocks_open(struct varve_alloc *alloc, struct varve_remat_blocks **blocks_out,
                            struct varve_message *message)
{
    struct varve_remat_blocks *blocks = calloc(1, sizeof(*blocks));
    if (blocks == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a table of blocks");
    }
    blocks->alloc = alloc;
    blocks->version = UINT64_MAX;
    *blocks_out = blocks;
    return VARVE_OK;
}

void varve_remat_blocks_close(struct varve_remat_blocks *blocks)
{
    if (blocks == NULL) {
        return;
    }
    varve_alloc_remove_callbacks(blocks->alloc, blocks);
    for (uint32_t i = 0; i < blocks->of_capacity; i++) {
        remat_free_block(blocks, &blocks->of[i]);
    }
    free(blocks->of);
    free(blocks->free_beside);
    free(blocks->pieces);
    free(blocks->second);
    free(blocks);
}

void varve_remat_blocks_drive(struct varve_remat_blocks *blocks, struct varve_remat_driver *driver_out)
{
    *driver_out = (struct varve_remat_driver){
        .context = blocks,
        .run = remat_blocks_run,
        .evict = remat_blocks_evict,
        .bytes_used = remat_blocks_bytes_used,
        .bytes_needed = remat_blocks_bytes_needed,
        .free_neighbours = remat_blocks_free_neighbours,
        .layout = remat_blocks_layout,
    };
}

int varve_remat_blocks_attach(struct varve_remat_blocks *blocks, struct varve_remat *remat,
                              struct varve_message *message)
{
    blocks->remat = remat;
    if (varve_alloc_add_miss_callback(blocks->alloc, on_miss, blocks) != VARVE_OK ||
        varve_alloc_add_last_resort(blocks->alloc, on_last_resort, blocks) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_FULL, "the allocator has no room for another callback");
    }
    return VARVE_OK;
}
