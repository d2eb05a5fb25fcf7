/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots for torch.cuda.memory._snapshot(): the arrays are those of the allocators, device after device,
 * and the history is that of their decisions, in PyTorch's terms, as long as it was asked to be.
 * Costs: 1 s
 */
#include "support/alloc/torch_words.h"

#include <stdio.h>

static int prepare(void **state)
{
    (void)state;
    return torch_prepare(NULL);
}

static void compare_with_allocator(const struct varve_torch_snapshot *all, int device, size_t *segment_at)
{
    struct varve_alloc_snapshot own;
    assert_int_equal(varve_alloc_snapshot(registry_find(device)->alloc, &own), VARVE_OK);
    for (size_t i = 0; i < own.segment_count; i++) {
        const struct varve_torch_segment *reported = &all->segments[(*segment_at)++];
        const struct varve_segment_info *segment = &own.segments[i];
        assert_int_equal(reported->device, device);
        assert_int_equal(reported->addr, segment->addr);
        assert_int_equal(reported->bytes, segment->bytes);
        assert_int_equal(reported->allocated, segment->allocated_bytes);
        assert_int_equal(reported->active, segment->active_bytes);
        assert_int_equal(reported->requested, segment->requested_bytes);
        assert_int_equal(reported->stream, segment->stream);
        assert_int_equal(reported->pool_capture, segment->pool.capture);
        assert_int_equal(reported->pool_user, segment->pool.user);
        assert_int_equal(reported->is_small, segment->is_small);
        assert_int_equal(reported->block_count, segment->block_count);
        for (size_t k = 0; k < segment->block_count; k++) {
            const struct varve_torch_block *block = &all->blocks[reported->first_block + k];
            const struct varve_block_info *info = &own.blocks[segment->first_block + k];
            assert_int_equal(block->addr, info->addr);
            assert_int_equal(block->bytes, info->bytes);
            assert_int_equal(block->requested, info->requested);
            assert_int_equal(block->allocation_id, info->allocation_id);
            assert_int_equal(block->state, (uint32_t)info->state);
        }
    }
    varve_alloc_snapshot_free(&own);
}

TEST(test_equals_allocators)
{
    struct varve_message message;
    size_t segment_at = 0;
    uint64_t a = take(1000, 0, 0), b = take(3 * MIB, 0, 0), c = take(30 * MIB, 2, 5);
    assert_int_equal(torch_pool_begin(2, (struct varve_pool_id){7, 1}, NULL, NULL, &message), VARVE_OK);
    uint64_t d = take(MIB, 2, 5);
    assert_int_equal(torch_pool_end(2, (struct varve_pool_id){7, 1}, &message), VARVE_OK);
    give(b, 0);
    struct varve_torch_snapshot all, one;
    assert_int_equal(varve_torch_take_snapshot(-1, &all), VARVE_OK);
    assert_int_equal(all.segment_count, 4);
    assert_int_equal(all.event_count, 0);
    compare_with_allocator(&all, 0, &segment_at);
    compare_with_allocator(&all, 2, &segment_at);
    assert_int_equal(segment_at, 4);
    assert_int_equal(varve_torch_take_snapshot(2, &one), VARVE_OK);
    assert_int_equal(one.segment_count, 2);
    assert_memory_equal(&one.blocks[0], &all.blocks[all.segments[2].first_block], sizeof(one.blocks[0]));
    varve_torch_snapshot_free(&one);
    varve_torch_snapshot_free(&all);
    assert_int_equal(varve_torch_take_snapshot(1, &one), VARVE_OK);
    assert_int_equal(one.segment_count, 0);
    varve_torch_snapshot_free(&one);
    give(a, 0);
    give(c, 2);
    give(d, 2);
    torch_pool_release(2, (struct varve_pool_id){7, 1});
    varve_torch_reset();
}

/* ---- history ---- */

static const char *const actions[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                      "segment_free", "segment_map",    "segment_unmap",  "oom"};

static void expect_history(int device, const char *expected)
{
    struct varve_torch_snapshot snapshot;
    char text[4096] = "";
    int64_t before = 0;
    assert_int_equal(varve_torch_take_snapshot(device, &snapshot), VARVE_OK);
    for (uint64_t i = 0; i < snapshot.event_count; i++) {
        const struct varve_torch_event *event = &snapshot.events[i];
        size_t length = strlen(text);
        snprintf(text + length, sizeof(text) - length, "%s %llu stream %llu pool %llu,%llu\n", actions[event->action],
                 (unsigned long long)event->bytes, (unsigned long long)event->stream,
                 (unsigned long long)event->pool_capture, (unsigned long long)event->pool_user);
        assert_true(event->time_us >= before);
        assert_int_equal(event->device, device);
        before = event->time_us;
    }
    varve_torch_snapshot_free(&snapshot);
    assert_string_equal(text, expected);
}

TEST(test_history)
{
    const struct varve_pool_id pool = {9, 0};
    assert_false(varve_torch_history_is_on());
    assert_int_equal(varve_torch_history(UINT64_MAX, 0), VARVE_OK);
    assert_true(varve_torch_history_is_on());
    uint64_t a = take(1000, 0, 0);
    struct varve_message message;
    assert_int_equal(torch_pool_begin(0, pool, NULL, NULL, &message), VARVE_OK);
    uint64_t b = take(2 * MIB - 5, 0, 77);
    assert_int_equal(torch_pool_end(0, pool, &message), VARVE_OK);
    give(a, 0);
    give(b, 0);
    torch_pool_release(0, pool);
    varve_torch_reset();
    uint64_t addr;
    assert_int_equal(torch_allocate(2000 * MIB, 0, 0, &addr, &message), VARVE_ERROR_NO_MEMORY);
    expect_history(0, "segment_alloc 2097152 stream 0 pool 0,0\n"
                      "alloc 1000 stream 0 pool 0,0\n"
                      "segment_alloc 20971520 stream 77 pool 9,0\n"
                      "alloc 2097147 stream 77 pool 9,0\n"
                      "free_requested 1000 stream 0 pool 0,0\n"
                      "free_completed 1000 stream 0 pool 0,0\n"
                      "free_requested 2097147 stream 77 pool 9,0\n"
                      "free_completed 2097147 stream 77 pool 9,0\n"
                      "segment_free 2097152 stream 0 pool 0,0\n"
                      "segment_free 20971520 stream 77 pool 9,0\n"
                      "oom 2097152000 stream 0 pool 0,0\n");
    assert_int_equal(varve_torch_history(UINT64_MAX, 0), VARVE_OK); /* goes on */
    give(take(512, 5, 0), 5);                                       /* a device that comes later takes part */
    expect_history(5, "segment_alloc 2097152 stream 0 pool 0,0\n"
                      "alloc 512 stream 0 pool 0,0\n"
                      "free_requested 512 stream 0 pool 0,0\n"
                      "free_completed 512 stream 0 pool 0,0\n");
    assert_int_equal(varve_torch_history(UINT64_MAX, 1), VARVE_OK);
    expect_history(5, "");
    assert_int_equal(varve_torch_history(0, 0), VARVE_OK);
    give(take(512, 5, 0), 5);
    expect_history(5, "");
    assert_false(varve_torch_history_is_on());
}

/* The last ones stay, however the ring lies. */
TEST(test_history_is_a_ring)
{
    struct varve_torch_snapshot snapshot;
    uint64_t addrs[3000];
    for (uint64_t limit = 1; limit <= 2500; limit = limit * 3 + 1) {
        assert_int_equal(varve_torch_history(limit, 1), VARVE_OK);
        give(take(4 * MIB, 3, 0), 3);
        for (unsigned i = 0; i < 3000; i++) {
            addrs[i] = take(512 + i, 3, 0);
        }
        assert_int_equal(varve_torch_take_snapshot(3, &snapshot), VARVE_OK);
        assert_int_equal(snapshot.event_count, limit);
        for (uint64_t i = 0, at = 3000; i < limit && at > 0; i++) {
            const struct varve_torch_event *event = &snapshot.events[limit - 1 - i];
            if (event->action == VARVE_TORCH_ALLOC) {
                at--;
                assert_int_equal(event->bytes, 512 + at);
                assert_int_equal(event->addr, addrs[at]);
            } else {
                assert_int_equal(event->action, VARVE_TORCH_SEGMENT_ALLOC);
            }
        }
        varve_torch_snapshot_free(&snapshot);
        for (unsigned i = 0; i < 3000; i++) {
            give(addrs[i], 3);
        }
    }
    assert_int_equal(varve_torch_history(0, 1), VARVE_OK);
}

TEST_FILE(prepare, NULL)
