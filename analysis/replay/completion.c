/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request would release if it waited for all other streams first, as it does when nothing else helps:
 * the blocks that wait become free, merge, and then all free segments of the default pool go. The allocator
 * cannot forecast that, since it means changing its state; so it is worked out on a snapshot. Called by
 * attribute_releases.c, only where a history shows completions in front of releases or of a failure.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <stdlib.h>

#define SMALL_UNIT (UINT64_C(2) << 20)

/* Something to be released: a whole segment, or the whole units within a free run of an expandable one. */
struct candidate {
    struct varve_alloc_release release;
    uint64_t stream, run_bytes, run_addr;
    bool is_small, is_expandable;
};

struct completion_work {
    const struct varve_alloc_snapshot *snapshot;
    const struct replay_held *held;
    struct replay_completion *completion;
    struct candidate *candidates;
    size_t count;
    uint64_t large_unit;
};

/* PyTorch's order: large before small, expandable ones last, then (stream, size, address) of the free block.
 */
static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;

    if (a->is_small != b->is_small) {
        return a->is_small ? 1 : -1;
    }
    if (a->is_expandable != b->is_expandable) {
        return a->is_expandable ? 1 : -1;
    }
    if (a->stream != b->stream) {
        return a->stream < b->stream ? -1 : 1;
    }
    if (a->run_bytes != b->run_bytes) {
        return a->run_bytes < b->run_bytes ? -1 : 1;
    }
    return a->run_addr < b->run_addr ? -1 : a->run_addr > b->run_addr;
}

static void note_left(const struct completion_work *work, const struct varve_segment_info *segment,
                      uint64_t bytes)
{
    if (segment->stream == work->held->stream && segment->is_small == work->held->is_small &&
        bytes > work->completion->largest_left) {
        work->completion->largest_left = bytes;
    }
}

/* Blocks that are free together: they go as far as they can, the rest stays. */
static void take_run(struct completion_work *work, const struct varve_segment_info *segment, uint64_t addr,
                     uint64_t bytes)
{
    uint64_t unit = segment->is_small ? SMALL_UNIT : work->large_unit;
    uint64_t begin = addr;
    uint64_t end = addr + bytes;

    if (segment->is_expandable) {
        /* a mapped range begins with a unit */
        begin = segment->addr + (addr - segment->addr + unit - 1) / unit * unit;
        end = segment->addr + (addr + bytes - segment->addr) / unit * unit;
    }
    if (begin >= end || (!segment->is_expandable && bytes != segment->bytes)) {
        note_left(work, segment, bytes);
        return;
    }
    note_left(work, segment, begin - addr);
    note_left(work, segment, addr + bytes - end);
    work->candidates[work->count++] = (struct candidate){
        .release = {begin, end - begin},
        .stream = segment->stream,
        .run_bytes = bytes,
        .run_addr = addr,
        .is_small = segment->is_small,
        .is_expandable = segment->is_expandable,
    };
}

static void take_segment(struct completion_work *work, const struct varve_segment_info *segment)
{
    bool is_default = segment->pool.capture == 0 && segment->pool.user == 0;
    uint64_t run = 0;

    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *block = &work->snapshot->blocks[segment->first_block + i];
        bool is_used = block->state == VARVE_BLOCK_ACTIVE_ALLOCATED;
        bool is_held = is_used && block->addr == work->held->addr;

        work->completion->pending += is_held || block->state == VARVE_BLOCK_ACTIVE_PENDING_FREE ? 1 : 0;
        if (is_default && is_used && !is_held && run > 0) {
            take_run(work, segment, block->addr - run, run);
        }
        run = is_used && !is_held ? 0 : run + block->bytes;
    }
    if (is_default && run > 0) {
        take_run(work, segment, segment->addr + segment->bytes - run, run);
    }
}

static void sort_into(struct completion_work *work, struct replay_releases *plan)
{
    if (work->count > 0) {
        qsort(work->candidates, work->count, sizeof(*work->candidates), compare_candidates);
    }
    if (work->count > plan->capacity) {
        plan->capacity = work->count;
        plan->items = memory_resize(plan->items, plan->capacity * sizeof(*plan->items));
    }
    for (size_t i = 0; i < work->count; i++) {
        plan->items[i] = work->candidates[i].release;
    }
    plan->count = work->count;
}

int replay_after_completion(struct replay *replay, const struct replay_run *run,
                            const struct replay_held *held, struct replay_completion *completion_out)
{
    struct varve_alloc_snapshot snapshot;
    struct completion_work work = {.snapshot = &snapshot,
                                   .held = held,
                                   .completion = completion_out,
                                   .large_unit = replay->large_segment_size};
    int result = varve_alloc_snapshot(replay->alloc, &snapshot);

    *completion_out = (struct replay_completion){0};
    if (result != VARVE_OK) {
        return result;
    }
    work.candidates = memory_resize(NULL, (snapshot.block_count + 1) * sizeof(*work.candidates));
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        take_segment(&work, &snapshot.segments[i]);
    }
    sort_into(&work, &replay->cached);
    completion_out->is_all = completion_out->pending == run->completed && work.count == run->released &&
                             replay_releases_equal(replay, run->released_begin, run->released_end,
                                                   &replay->cached, work.count) == work.count;
    free(work.candidates);
    varve_alloc_snapshot_free(&snapshot);
    return VARVE_OK;
}
