/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which free block serves a request, what is cut off it, and how pieces become one again: the rules of
 * PyTorch's get_free_block, should_split, get_allocation_size and free_block at the very sizes where they
 * change. At the end the second policy, which finds another block in the same situation.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* ---- sizes of segments ---- */

TEST_WITH(test_sizes_of_segments, rig_setup, rig_teardown)
{
    static const struct {
        uint64_t request, segment, block;
    } rows[] = {
        {1, 2 * MIB, 512},
        {513, 2 * MIB, 1024},
        {1 * MIB, 2 * MIB, 1 * MIB},
        {1 * MIB + 1, 20 * MIB, 1 * MIB + 512},
        {10 * MIB - 512, 20 * MIB, 10 * MIB - 512},
        {10 * MIB - 511, 10 * MIB, 10 * MIB}, /* rounded first */
        {10 * MIB, 10 * MIB, 10 * MIB},
        {10 * MIB + 1, 12 * MIB, 10 * MIB + 512}, /* the rest is above 1 MiB */
        {11 * MIB, 12 * MIB, 12 * MIB},           /* the rest is 1 MiB: not above */
        {20 * MIB, 20 * MIB, 20 * MIB},
        {20 * MIB + 1, 22 * MIB, 20 * MIB + 512},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rig *rig = *state;

        rig_open(rig, &(struct rig_options){.limit = 0});
        take(rig, rows[i].request);
        assert_int_equal(nth_record(rig, VARVE_KIND_SEGMENT_ALLOC, 0)->size, rows[i].segment);
        assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->size, rows[i].block);
        assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->requested, rows[i].request);
        rig_close(rig);
        memset(rig, 0, sizeof(*rig));
    }
}

/* ---- what is cut off ---- */

/* A remainder of a large block stays one only if it is above 1 MiB. */
TEST_WITH(test_split_of_large_blocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.limit = 0});
    addr = take(rig, 40 * MIB);
    give(rig, addr);
    assert_int_equal(take(rig, 39 * MIB), addr);
    expect_segment(rig, addr, "a40M");
    give(rig, addr);
    assert_int_equal(take(rig, 39 * MIB - 512), addr);
    expect_segment(rig, addr, "a40893952 -1049088");
    assert_int_equal(stats_of(rig).inactive_split[VARVE_ALLOC_STAT_LARGE_POOL].current, 1);
}

/* In a small segment any remainder stays. */
TEST_WITH(test_split_of_small_blocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take(rig, 1 * MIB);
    b = take(rig, 1 * MIB - 512);
    assert_int_equal(b, a + MIB);
    expect_segment(rig, a, "a1M a1048064 -512");
    assert_int_equal(take(rig, 1), b + MIB - 512);
    expect_segment(rig, a, "a1M a1048064 a512");
}

/* The request is below max_split_size, its segment is not: what counts is the request. */
TEST_WITH(test_split_looks_at_the_request, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.config = "max_split_size_mb:20"});
    addr = take(rig, 18 * MIB + 512 * KIB);
    expect_segment(rig, addr, "a19398656 -1572864");
    assert_int_equal(stats_of(rig).oversize_segments.current, 1);
    assert_int_equal(stats_of(rig).oversize_allocations.current, 0);
}

/* One of exactly max_split_size is oversize: it keeps all of a larger block. */
TEST_WITH(test_oversize_is_not_split, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.config = "max_split_size_mb:20"});
    addr = take(rig, 30 * MIB);
    give(rig, addr);
    assert_int_equal(take(rig, 20 * MIB), addr);
    expect_segment(rig, addr, "a30M");
    assert_int_equal(stats_of(rig).oversize_allocations.current, 1);
    give(rig, addr);
    assert_int_equal(stats_of(rig).oversize_allocations.current, 0);
}

/* ---- which block serves ---- */

TEST_WITH(test_best_fit_then_lowest_address, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t sizes[] = {36, 32, 32, 34}, addr[4];

    rig_open(rig, &(struct rig_options){.limit = 0});
    for (int i = 0; i < 4; i++) {
        addr[i] = take(rig, sizes[i] * MIB);
    }
    for (int i = 3; i >= 0; i--) {
        give(rig, addr[i]);
    }
    assert_int_equal(take(rig, 32 * MIB), addr[1]);
    assert_int_equal(take(rig, 31 * MIB), addr[2]);
    assert_int_equal(take(rig, 31 * MIB), addr[3]); /* 2 MiB are left there */
    assert_int_equal(take(rig, 36 * MIB), addr[0]);
}

TEST_WITH(test_streams_do_not_share, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take_on(rig, 30 * MIB, UINT64_MAX);
    give(rig, a);
    assert_int_not_equal(take_on(rig, 30 * MIB, 0), a);
    assert_int_not_equal(take_on(rig, 30 * MIB, 1), a);
    assert_int_equal(take_on(rig, 30 * MIB, UINT64_MAX), a);
}

/* A large request never takes a small pool's block, nor the other way round. */
TEST_WITH(test_pools_do_not_share, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take(rig, 1 * MIB + 1);
    give(rig, a);
    b = take(rig, 1 * MIB);
    assert_true(b < a || b >= a + 20 * MIB);
    assert_int_equal(take(rig, 1 * MIB + 1), a);
}

/* An oversize block is not for a smaller request, even if nothing else is there. */
TEST_WITH(test_oversize_block_is_kept, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.config = "max_split_size_mb:20", .limit = 50 * MIB});
    a = take(rig, 20 * MIB);
    give(rig, a);
    assert_int_not_equal(take(rig, 20 * MIB - 512), a);
    assert_int_equal(stats_of(rig).segment[VARVE_ALLOC_STAT_ALL].current, 2);
    assert_int_equal(take(rig, 20 * MIB), a);
}

/* The search ends with the first block that fits: a forbidden one hides what comes after it. */
TEST_WITH(test_waste_is_bounded, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.config = "max_split_size_mb:20"});
    a = take(rig, 50 * MIB);
    give(rig, a);
    assert_int_not_equal(take(rig, 30 * MIB), a); /* size + 20 MiB: refused */
    assert_int_equal(take(rig, 30 * MIB + 512), a);
    expect_segment(rig, a, "a50M");
    give(rig, a);
    take(rig, 40 * MIB); /* 50 MiB serve this one too: hide them */
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 3)->size, 50 * MIB);
    a = take(rig, 40 * MIB);
    give(rig, a);
    assert_int_not_equal(take(rig, 20 * MIB), a); /* exactly max_split_size: the rule holds for it */
}

TEST_WITH(test_waste_follows_its_option, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.config = "max_split_size_mb:20,max_non_split_rounding_mb:30"});
    a = take(rig, 60 * MIB);
    give(rig, a);
    assert_int_not_equal(take(rig, 30 * MIB), a);
    assert_int_equal(take(rig, 30 * MIB + 512), a);
}

/* ---- pieces become one ---- */

TEST_WITH(test_merge_in_all_orders, rig_setup, rig_teardown)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct rig *rig = *state;
        uint64_t addr[3];

        rig_open(rig, &(struct rig_options){.limit = 0});
        for (int k = 0; k < 3; k++) {
            addr[k] = take(rig, 4 * MIB);
        }
        for (int k = 0; k < 3; k++) {
            give(rig, addr[orders[i][k]]);
        }
        expect_segment(rig, addr[0], "-20M");
        assert_int_equal(stats_of(rig).inactive_split[VARVE_ALLOC_STAT_ALL].current, 0);
        assert_int_equal(stats_of(rig).inactive_split_bytes[VARVE_ALLOC_STAT_ALL].current, 0);
        rig_close(rig);
        memset(rig, 0, sizeof(*rig));
    }
}

/* Both neighbours are absorbed, and the statistics move once by the net change. */
TEST_WITH(test_merge_of_both_sides, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_alloc_stats before, after;
    uint64_t addr[3];

    rig_open(rig, &(struct rig_options){.limit = 0});
    for (int k = 0; k < 3; k++) {
        addr[k] = take(rig, 4 * MIB);
    }
    give(rig, addr[0]);
    before = stats_of(rig);
    forget(rig);
    give(rig, addr[1]);
    after = stats_of(rig);
    expect(rig, "free_requested 4M\n"
                "free_completed 4M\n"
                "merge previous 8M absorbed 4M\n");
    assert_int_equal(after.inactive_split[0].allocated, before.inactive_split[0].allocated);
    assert_int_equal(after.inactive_split[0].freed, before.inactive_split[0].freed);
    assert_int_equal(after.inactive_split_bytes[0].allocated,
                     before.inactive_split_bytes[0].allocated + (int64_t)(4 * MIB));
    forget(rig);
    give(rig, addr[2]);
    expect(rig, "free_requested 4M\n"
                "free_completed 4M\n"
                "merge previous 12M absorbed 8M\n"
                "merge next 20M absorbed 8M\n");
    assert_int_equal(stats_of(rig).inactive_split[0].freed, after.inactive_split[0].freed + 2);
}

/* The freed block survives a merge, the remainder of a split is the old block: their sizes of the past say so.
 */
TEST_WITH(test_requested_of_free_blocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;
    char *layout;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take(rig, 3 * MIB - 7);
    b = take(rig, 5 * MIB - 9);
    give(rig, a);
    give(rig, b); /* survives: 5 MiB - 9 */
    layout = layout_of(rig);
    assert_non_null(strstr(layout, "20971520 of 5242871 -"));
    free(layout);
    take(rig, 2 * MIB);
    layout = layout_of(rig);
    assert_non_null(strstr(layout, "18874368 of 5242871 -"));
    free(layout);
}

/* ---- the other policy ---- */

TEST_WITH(test_first_fit_by_address, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.policy = "first-fit"});
    a = take(rig, 36 * MIB);
    b = take(rig, 32 * MIB);
    give(rig, b);
    give(rig, a);
    assert_int_equal(take(rig, 32 * MIB), a); /* best fit would take b */
    expect_segment(rig, a, "a32M -4M");
    assert_int_equal(take(rig, 512), a + 32 * MIB); /* one pool for all sizes */
}

TEST_WITH(test_first_fit_retries_too, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.policy = "first-fit", .limit = 60 * MIB});
    a = take(rig, 30 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 40 * MIB);
    expect(rig, "segment_free retry 30M\n"
                "segment_alloc after_retry 40M\n"
                "oom_retry release_cached 40M freed 30M served\n"
                "alloc after_retry 40M\n");
}
