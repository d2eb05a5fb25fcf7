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

/* ---- what is cut off, which block serves ---- */

#define OVERSIZE                         \
    {                                    \
        .config = "max_split_size_mb:20" \
    }

static const struct rig_case cases[] = {
    {"a remainder of a large block stays one only if it is above 1 MiB",
     {.limit = 0},
     "a=40M -a 39M>a a{a40M} -a 39M-512>a a{a40893952 -1049088} large_splits=1"},
    {"in a small segment any remainder stays",
     {.limit = 0},
     "a=1M b=1M-512>a+1M a{a1M a1048064 -512} 1>b+1048064 a{a1M a1048064 a512}"},
    {"the request is below max_split_size, its segment is not: what counts is the request", OVERSIZE,
     "a=18M+512K a{a19398656 -1572864} oversize_segments=1 oversize=0"},
    {"one of exactly max_split_size is oversize: it keeps all of a larger block", OVERSIZE,
     "a=30M -a 20M>a a{a30M} oversize=1 -a oversize=0"},
    {"the best fit serves, then the lowest address; 2 MiB are left at d",
     {.limit = 0},
     "a=36M b=32M c=32M d=34M -d -c -b -a 32M>b 31M>c 31M>d 36M>a"},
    {"streams do not share", {.limit = 0}, "a=30M@18446744073709551615 -a 30M!a 30M@1!a 30M@18446744073709551615>a"},
    {"an oversize block is not for a smaller request, even if nothing else is there",
     {.config = "max_split_size_mb:20", .limit = 50 * MIB},
     "a=20M oversize_segments=1 -a 20M-512!a segments=2 20M>a"},
    {"waste is bounded, to less than size + 20 MiB, also for exactly max_split_size; a block beyond it hides what "
     "comes after it",
     OVERSIZE, "a=50M -a 30M!a 30M+512>a a{a50M} -a | 40M <alloc cache 50M> b=40M -b 20M!b"},
    {"the bound of waste is an option",
     {.config = "max_split_size_mb:20,max_non_split_rounding_mb:30"},
     "a=60M -a 30M!a 30M+512>a"},
    {"a large request never takes a small pool's block, nor the other way round: b has a segment of its own",
     {.limit = 0},
     "a=1M+1 -a b=1M 1M+1>a b{a1M -1M}"},
    {"first-fit goes by address, where best fit would take b, with one pool for all sizes",
     {.policy = "first-fit"},
     "a=36M b=32M -b -a 32M>a a{a32M -4M} 512>a+32M"},
    {"first-fit retries too",
     {.policy = "first-fit", .limit = 60 * MIB},
     "a=30M -a | 40M <segment_free retry 30M; segment_alloc after_retry 40M; "
     "oom_retry release_cached 40M freed 30M served; alloc after_retry 40M>"},
};
TEST_PLAYS(test_find, cases)

/* ---- pieces become one ---- */

TEST_WITH(test_merge_in_all_orders, rig_setup, rig_teardown)
{
    static const char *const orders[] = {"-a -b -c", "-a -c -b", "-b -a -c", "-b -c -a", "-c -a -b", "-c -b -a"};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct rig *rig = *state;
        rig_open(rig, &(struct rig_options){.limit = 0});
        play(rig, "a=4M b=4M c=4M");
        play(rig, orders[i]);
        play(rig, "a{-20M} splits=0 split_bytes=0");
        rig_close(rig);
        memset(rig, 0, sizeof(*rig));
    }
}

/* Both neighbours are absorbed, and the statistics move once by the net change. */
TEST_WITH(test_merge_of_both_sides, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.limit = 0});
    play(rig, "a=4M b=4M c=4M -a |");
    struct varve_alloc_stats before = stats_of(rig);
    play(rig, "-b <free_requested 4M; free_completed 4M; merge previous 8M absorbed 4M>");
    struct varve_alloc_stats after = stats_of(rig);
    assert_int_equal(after.inactive_split[0].allocated, before.inactive_split[0].allocated);
    assert_int_equal(after.inactive_split[0].freed, before.inactive_split[0].freed);
    assert_int_equal(after.inactive_split_bytes[0].allocated,
                     before.inactive_split_bytes[0].allocated + (int64_t)(4 * MIB));
    play(rig, "-c <free_requested 4M; free_completed 4M; merge previous 12M absorbed 8M; merge next 20M absorbed 8M>");
    assert_int_equal(stats_of(rig).inactive_split[0].freed, after.inactive_split[0].freed + 2);
}

/* The freed block survives a merge, the remainder of a split is the old block: their sizes of the past say so. */
TEST_WITH(test_requested_of_free_blocks, rig_setup, rig_teardown)
{
    static const char *const steps[][2] = {{"a=3145721 b=5242871 -a -b", "20971520 of 5242871 -"},
                                           {"2M", "18874368 of 5242871 -"}};
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.limit = 0});
    for (size_t i = 0; i < 2; i++) {
        play(rig, steps[i][0]);
        char *layout = layout_of(rig);
        assert_non_null(strstr(layout, steps[i][1]));
        free(layout);
    }
}
