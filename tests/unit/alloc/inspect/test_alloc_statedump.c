/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an allocator tells a tracer whose trace begins in mid-run. After random traffic (expandable segments,
 * private pools, blocks that other streams still use, failing devices) it must be the allocator's own
 * snapshot, and it must be what the allocator's records add up to.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/statedump.h"
#include "support/alloc_random.h"

#include <inttypes.h>
#include <stdlib.h>

#define RUNS 150U
#define STEPS_MAX 4000U /* of a run */
#define LOOKS 40U       /* in a run */

/* ---- an allocator under random traffic ---- */

struct subject {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_layout *layout; /* of all its records */
    struct varve_record latest;  /* of an allocation */
    struct {
        uint64_t addr, id;
    } live[STEPS_MAX];
    size_t live_count;
    bool has_failed;
};

/* What the runs have met, all together. */
static struct {
    uint64_t expandable, fragments, private_pools, pending, streams, used, free;
} met;

static void record_take(void *context, const struct varve_record *record)
{
    struct subject *subject = context;

    if (varve_record_kind(record) == VARVE_KIND_ALLOC) {
        subject->latest = *record;
    }
    if (varve_layout_apply(subject->layout, record) != VARVE_OK) {
        subject->has_failed = true;
    }
}

static void subject_open(struct subject *subject, const struct alloc_pair_setup *setup, bool reuses_addresses)
{
    const struct varve_sim_options sim = {.index = 3,
                                          .capacity_bytes = setup->capacity,
                                          .total_bytes = setup->capacity,
                                          .events_are_scripted = true,
                                          .reuses_addresses = reuses_addresses};
    struct varve_alloc_options options;
    struct varve_message message = {""};

    *subject = (struct subject){.recorder = {.record = record_take, .context = subject}};
    subject->layout = varve_layout_new();
    assert_non_null(subject->layout);
    assert_int_equal(varve_sim_open(&sim, &subject->device, &message), VARVE_OK);
    varve_alloc_options_init(&options);
    options.device = subject->device;
    options.config = setup->config;
    options.memory_limit = setup->memory_limit;
    options.recorder = &subject->recorder;
    if (varve_alloc_open(&options, &subject->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static void subject_close(struct subject *subject)
{
    if (subject->alloc != NULL) {
        varve_alloc_close(subject->alloc);
    }
    if (subject->device != NULL) {
        subject->device->ops->close(subject->device);
    }
    varve_layout_free(subject->layout);
    *subject = (struct subject){0};
}

static void step_pool(struct subject *subject, const struct alloc_pair_op *op)
{
    uint32_t number = op->pick % ALLOC_PAIR_POOLS;
    struct varve_pool_id id = {number / 2, number % 2 + 1};

    switch (op->kind) {
    case ALLOC_PAIR_BEGIN:
        varve_alloc_begin_allocate_to_pool(subject->alloc, id, NULL, NULL);
        break;
    case ALLOC_PAIR_END: /* and the pool may go once it is empty */
        if (varve_alloc_end_allocate_to_pool(subject->alloc, id) == VARVE_OK) {
            varve_alloc_release_pool(subject->alloc, id);
        }
        break;
    case ALLOC_PAIR_NO_SPLIT:
        varve_alloc_set_no_split(subject->alloc, id);
        break;
    default:
        varve_alloc_set_use_on_oom(subject->alloc, id);
        break;
    }
}

static void step_block(struct subject *subject, const struct alloc_pair_op *op)
{
    uint64_t stream = op->stream % ALLOC_PAIR_STREAMS;
    uint64_t addr = 0;
    size_t index;

    if (op->kind == ALLOC_PAIR_ALLOC) {
        varve_alloc_raw_alloc_with_stream(subject->alloc, op->bytes, stream, &addr, NULL);
        if (addr != 0 && subject->live_count < STEPS_MAX) {
            subject->live[subject->live_count].addr = addr;
            subject->live[subject->live_count++].id = varve_record_id(&subject->latest);
        }
        return;
    }
    if (subject->live_count == 0) {
        return;
    }
    index = op->pick % subject->live_count;
    if (op->kind == ALLOC_PAIR_RECORD_STREAM) {
        varve_alloc_record_stream(subject->alloc, subject->live[index].addr, stream, NULL);
        return;
    }
    varve_alloc_raw_delete(subject->alloc, subject->live[index].addr, NULL);
    subject->live[index] = subject->live[--subject->live_count];
}

static void step(struct subject *subject, const struct alloc_pair_op *op)
{
    static const enum varve_device_call calls[] = {VARVE_DEVICE_SEGMENT_ALLOC, VARVE_DEVICE_VMM_CREATE,
                                                   VARVE_DEVICE_VMM_RESERVE};

    switch (op->kind) {
    case ALLOC_PAIR_ALLOC:
    case ALLOC_PAIR_FREE:
    case ALLOC_PAIR_RECORD_STREAM:
        step_block(subject, op);
        break;
    case ALLOC_PAIR_BEGIN:
    case ALLOC_PAIR_END:
    case ALLOC_PAIR_NO_SPLIT:
    case ALLOC_PAIR_USE_ON_OOM:
        step_pool(subject, op);
        break;
    case ALLOC_PAIR_COMPLETE:
        varve_sim_stream_complete(subject->device, op->stream % ALLOC_PAIR_STREAMS);
        break;
    case ALLOC_PAIR_EMPTY_CACHE:
        varve_alloc_empty_cache(subject->alloc);
        break;
    case ALLOC_PAIR_LIMIT:
        varve_alloc_set_memory_limit(subject->alloc, op->bytes);
        break;
    case ALLOC_PAIR_FAIL:
        varve_sim_fail(subject->device, calls[op->pick % 3], op->nth, op->count, op->error);
        break;
    default:
        break;
    }
}

/* ---- against the snapshot, and against the records ---- */

static const struct varve_mirror_block *told_at(uint64_t addr)
{
    for (size_t low = 0, high = told.block_count; low < high;) {
        size_t middle = (low + high) / 2;
        if (told.blocks[middle].addr == addr) {
            return &told.blocks[middle];
        }
        if (told.blocks[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static void compare_segment(const struct varve_segment_info *info, size_t number)
{
    const struct varve_mirror_segment *segment = &told.segments[number];

    if (!is_whole(number)) {
        fail_msg("the blocks told of do not tile their segment at %#" PRIx64, segment->addr);
    }
    assert_int_equal(segment->addr, info->addr);
    assert_int_equal(segment->size, info->bytes);
    assert_int_equal(segment->segment, info->segment_id);
    assert_int_equal(segment->is_expandable, info->is_expandable);
    assert_int_equal(segment->pool % 2, info->is_small);
    assert_int_equal(segment->pool > 1, info->pool.capture != 0 || info->pool.user != 0);
    assert_int_equal(segment->stream == 0, info->stream == 0);
    assert_int_equal(segment->device, 3);
    assert_int_equal(told.first_block[number], info->first_block);
    assert_int_equal(blocks_end(number), info->first_block + info->block_count);
    met.expandable += segment->is_expandable;
    met.fragments += number > 0 && told.segments[number - 1].segment == segment->segment;
    met.private_pools += segment->pool > 1;
    met.streams += segment->stream > 0;
}

static void compare_snapshot(struct subject *subject)
{
    static const enum varve_layout_state states[] = {
        [VARVE_BLOCK_INACTIVE] = VARVE_LAYOUT_FREE,
        [VARVE_BLOCK_ACTIVE_ALLOCATED] = VARVE_LAYOUT_USED,
        [VARVE_BLOCK_ACTIVE_PENDING_FREE] = VARVE_LAYOUT_PENDING,
    };
    struct varve_alloc_snapshot snapshot;

    assert_int_equal(varve_alloc_snapshot(subject->alloc, &snapshot), VARVE_OK);
    assert_int_equal(told.segment_count, snapshot.segment_count);
    assert_int_equal(told.block_count, snapshot.block_count);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        compare_segment(&snapshot.segments[i], i);
    }
    for (size_t i = 0; i < snapshot.block_count; i++) {
        const struct varve_mirror_block *block = &told.blocks[i];
        const struct varve_block_info *info = &snapshot.blocks[i];
        assert_int_equal(block->addr, info->addr);
        assert_int_equal(block->size, info->bytes);
        assert_int_equal(block->requested, info->requested);
        assert_int_equal(block->id, info->allocation_id);
        assert_int_equal(block->state, states[info->state]);
        met.pending += block->state == VARVE_LAYOUT_PENDING;
        met.used += block->state == VARVE_LAYOUT_USED;
        met.free += block->state == VARVE_LAYOUT_FREE;
    }
    varve_alloc_snapshot_free(&snapshot);
}

static void compare_records(const struct subject *subject)
{
    struct varve_layout_block block;
    uint64_t from = 0;
    size_t segment = 0;

    for (size_t i = 0; i < told.block_count; i++) {
        segment += segment + 1 < told.segment_count && told.first_block[segment + 1] == i;
        assert_true(varve_layout_block(subject->layout, from, &block));
        assert_int_equal(told.blocks[i].addr, block.addr);
        assert_int_equal(told.blocks[i].size, block.extent);
        assert_int_equal(told.blocks[i].size, block.size);
        assert_int_equal(told.blocks[i].requested, block.requested);
        assert_int_equal(told.blocks[i].segment, block.segment_number);
        assert_int_equal(told.blocks[i].stream, block.stream);
        assert_int_equal(told.blocks[i].pool, block.pool);
        assert_int_equal(told.blocks[i].state, block.state);
        assert_int_equal(told.segments[segment].is_expandable, block.is_expandable);
        assert_false(block.is_implied);
        from = block.addr + block.extent;
    }
    assert_false(varve_layout_block(subject->layout, from, &block));
    for (size_t i = 0; i < subject->live_count; i++) {
        const struct varve_mirror_block *live = told_at(subject->live[i].addr);
        assert_non_null(live);
        assert_int_equal(live->state, VARVE_LAYOUT_USED);
        assert_int_equal(live->id, subject->live[i].id);
    }
}

static void test_random_traffic(void **state)
{
    struct subject *subject = *state;
    static struct alloc_pair_op ops[ALLOC_RANDOM_STEPS_MAX];
    struct varve_message message = {""};

    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct alloc_pair_setup setup = {.capacity = 0};
        size_t count = alloc_random_run(seed, &setup, ops);

        count = count < STEPS_MAX ? count : STEPS_MAX;
        /* no record tells that the addresses of an expandable segment were given back */
        subject_open(subject, &setup, seed % 2 == 0 && !setup.config.expandable_segments);
        for (size_t i = 0; i < count; i++) {
            step(subject, &ops[i]);
            if (i % (count / LOOKS + 1) == 0 || i + 1 == count) {
                ask();
                assert_true(told.block_count < TOLD_MAX);
                compare_snapshot(subject);
                compare_records(subject);
            }
        }
        if (varve_alloc_check(subject->alloc, &message) != VARVE_OK) {
            fail_msg("seed %" PRIu64 ": %s", seed, message.text);
        }
        assert_false(subject->has_failed);
        subject_close(subject);
        ask();
        assert_int_equal(told.segment_count + told.block_count, 0);
    }
    assert_true(met.expandable > 0 && met.fragments > 0 && met.private_pools > 0 && met.pending > 0 &&
                met.streams > 0 && met.used > 0 && met.free > 0);
}

static int setup_subject(void **state)
{
    *state = calloc(1, sizeof(struct subject));
    return *state == NULL;
}

static int teardown_subject(void **state)
{
    subject_close(*state);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_traffic, setup_subject, teardown_subject),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
