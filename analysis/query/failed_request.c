/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of one segment without a gap between them are a run. Freed blocks merge within their run, so what would serve
 * a request is looked for in each run by itself: a window over its blocks that holds enough bytes and
 * the fewest in use.
 */
#include "analysis/query/segment_query.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

struct run {
    struct varve_layout_block *blocks;
    size_t count, capacity;
};

static bool failed_request_is_own(const struct failed_request *request, const struct varve_layout_block *block)
{
    return block->stream == request->stream && block->pool == request->pool;
}

static void add_free(struct failure_free *sums, const struct varve_layout_block *block)
{
    sums->bytes += block->extent;
    sums->blocks++;
    if (block->extent > sums->largest) {
        sums->largest = block->extent;
        sums->largest_stream = block->stream;
        sums->largest_pool = block->pool;
    }
}

static uint64_t in_use(const struct varve_layout_block *block)
{
    return block->state == VARVE_LAYOUT_FREE ? 0 : block->extent;
}

static void take_window(struct failure_freeing *freeing, const struct run *run, size_t first, size_t end,
                        uint64_t bytes, uint64_t used)
{
    if (used == 0 || (freeing->blocks > 0 && used >= freeing->bytes)) {
        return;
    }
    *freeing = (struct failure_freeing){.bytes = used, .result = bytes};
    for (size_t i = first; i < end; i++) {
        if (run->blocks[i].state != VARVE_LAYOUT_FREE) {
            if (freeing->blocks < FAILURE_BLOCKS_MAX) {
                freeing->first[freeing->blocks] = run->blocks[i];
            }
            freeing->blocks++;
        }
    }
    /* free neighbours merge with it */
    if (first > 0 && run->blocks[first - 1].state == VARVE_LAYOUT_FREE) {
        freeing->result += run->blocks[first - 1].extent;
    }
    if (end < run->count && run->blocks[end].state == VARVE_LAYOUT_FREE) {
        freeing->result += run->blocks[end].extent;
    }
}

static void look_for_window(struct failure_freeing *freeing, const struct run *run, uint64_t wanted)
{
    uint64_t bytes = 0;
    uint64_t used = 0;
    size_t first = 0;
    for (size_t end = 0; end < run->count; end++) {
        bytes += run->blocks[end].extent;
        used += in_use(&run->blocks[end]);
        while (first < end && bytes - run->blocks[first].extent >= wanted) {
            bytes -= run->blocks[first].extent;
            used -= in_use(&run->blocks[first]);
            first++;
        }
        if (bytes >= wanted) {
            take_window(freeing, run, first, end + 1, bytes, used);
        }
    }
}

/* Among the smallest that are kept, in their order. */
static void keep_smallest(struct failure_segment *segment, const struct varve_layout_block *block)
{
    size_t count = segment->blocks < FAILURE_BLOCKS_MAX ? (size_t)segment->blocks : FAILURE_BLOCKS_MAX;
    size_t at = count;
    while (at > 0 && segment->first[at - 1].extent > block->extent) {
        if (at < FAILURE_BLOCKS_MAX) {
            segment->first[at] = segment->first[at - 1];
        }
        at--;
    }
    if (at < FAILURE_BLOCKS_MAX) {
        segment->first[at] = *block;
    }
    segment->blocks++;
    segment->block_bytes += block->extent;
}

static void look_at_segment(struct failure *failure, const struct run *run)
{
    struct failure_segment segment = {.addr = run->count > 0 ? run->blocks[0].addr : 0};
    for (size_t i = 0; i < run->count; i++) {
        const struct varve_layout_block *block = &run->blocks[i];
        segment.bytes += block->extent;
        if (block->state != VARVE_LAYOUT_FREE) {
            keep_smallest(&segment, block);
            continue;
        }
        segment.unused += block->extent;
        segment.largest = block->extent > segment.largest ? block->extent : segment.largest;
        if (block->extent == failure->own.largest) {
            failure->largest_addr = block->addr;
        }
    }
    if (segment.unused > failure->best.unused) {
        failure->best = segment;
    }
}

static void end_run(struct failure *failure, struct run *run, uint64_t wanted)
{
    uint64_t unused = 0;
    for (size_t i = 0; i < run->count; i++) {
        unused = run->blocks[i].state == VARVE_LAYOUT_USED ? 0 : unused + run->blocks[i].extent;
        failure->with_pending = unused > failure->with_pending ? unused : failure->with_pending;
    }
    look_for_window(&failure->freeing, run, wanted);
    look_at_segment(failure, run);
    run->count = 0;
}

void failure_of_layout(struct failure *failure, const struct varve_layout *layout, const struct failed_request *request)
{
    struct varve_layout_block block;
    struct run run = {0};
    *failure = (struct failure){0};
    for (uint64_t from = 0; varve_layout_block(layout, from, &block); from = block.addr + block.extent) {
        const struct varve_layout_block *last = run.count > 0 ? &run.blocks[run.count - 1] : NULL;
        if (last != NULL && (last->segment != block.segment || last->addr + last->extent != block.addr)) {
            end_run(failure, &run, request->rounded);
        }
        failure->used += block.state == VARVE_LAYOUT_USED ? block.size : 0;
        failure->live += block.state == VARVE_LAYOUT_USED ? block.requested : 0;
        failure->pending += block.state == VARVE_LAYOUT_PENDING ? block.size : 0;
        if (block.is_implied) {
            continue;
        }
        failure->reserved += block.extent;
        if (block.state == VARVE_LAYOUT_FREE) {
            add_free(failed_request_is_own(request, &block) ? &failure->own : &failure->others, &block);
        }
        if (failed_request_is_own(request, &block)) {
            run.blocks = memory_grow(run.blocks, &run.capacity, run.count, sizeof(run.blocks[0]));
            run.blocks[run.count++] = block;
        }
    }
    end_run(failure, &run, request->rounded);
    free(run.blocks);
    /* blocks without segments: of an allocator of which requests alone were recorded */
    failure->is_known = failure->reserved > 0 || failure->used == 0;
}

int failure_load(struct failure *failure, struct database *database, const struct failed_request *request,
                 struct varve_message *message)
{
    struct segments_state state = {0};
    int error = segments_state_load(&state, database, request->seq, request->device, 0, message);
    *failure = (struct failure){0};
    for (size_t i = 0; i < state.count && error == VARVE_OK; i++) {
        if (state.parts[i].process_id == request->process_id) {
            failure_of_layout(failure, state.parts[i].layout, request);
        }
    }
    segments_state_free(&state);
    return error;
}
