/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy bfc: what it cuts and wastes, how regions grow, what a device that refuses makes of them, and that one
 * pool serves all streams; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static void open_bfc(struct rig *rig, const char *policy, struct rig_options options)
{
    options.policy = policy;
    rig_open(rig, &options);
}

TEST_WITH(test_cut_and_waste, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    open_bfc(rig, "bfc:region=64M", (struct rig_options){.sim = {.index = 0}});
    a = take(rig, 6 * MIB - 200);
    expect(rig, "segment_alloc new_segment 64M\n"
                "split 6M left 58M\n"
                "alloc new_segment 6M\n");
    b = take(rig, 58 * MIB);
    forget(rig);
    give(rig, a);
    forget(rig);
    assert_int_equal(take(rig, 3 * MIB + 1), a); /* less than twice: whole */
    expect(rig, "alloc cache 6M\n");
    give(rig, a);
    forget(rig);
    assert_int_equal(take(rig, 3 * MIB), a); /* twice: cut */
    expect(rig, "split 3M left 3M\n"
                "alloc cache 3M\n");
    assert_int_equal(take(rig, 1), a + 3 * MIB);
    assert_int_equal(take(rig, 1), a + 3 * MIB + 256);
    give(rig, b);
}

TEST_WITH(test_waste_is_an_option, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    open_bfc(rig, "bfc:region=64M:waste=1M", (struct rig_options){.sim = {.index = 0}});
    a = take(rig, 6 * MIB);
    take(rig, 58 * MIB);
    give(rig, a);
    forget(rig);
    assert_int_equal(take(rig, 5 * MIB + 256), a);
    expect(rig, "alloc cache 6M\n");
    give(rig, a);
    forget(rig);
    assert_int_equal(take(rig, 5 * MIB), a);
    expect(rig, "split 5M left 1M\n"
                "alloc cache 5M\n");
}

/* 2, 4; 20 does not fit into 8: 32, and that is not doubled; 32, 64. */
TEST_WITH(test_regions_double, rig_setup, rig_teardown)
{
    static const uint64_t requests[] = {2, 4, 20, 32, 64}, regions[] = {2, 4, 32, 32, 64};
    struct rig *rig = *state;

    open_bfc(rig, "bfc", (struct rig_options){.sim = {.index = 0}});
    for (unsigned i = 0; i < 5; i++) {
        forget(rig);
        take(rig, requests[i] * MIB);
        assert_int_equal(nth_record(rig, VARVE_KIND_SEGMENT_ALLOC, 0)->size, regions[i] * MIB);
    }
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 134 * MIB);
}

/* The limit cuts a region; the device makes it smaller by tenths. */
TEST_WITH(test_limits, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    open_bfc(rig, "bfc:region=64M", (struct rig_options){.sim = {.capacity_bytes = 60 * MIB}, .limit = 100 * MIB});
    a = take(rig, 10 * MIB);
    assert_true(varve_alloc_memory_reserved(rig->alloc) < 58 * (int64_t)MIB); /* 64 × 0.9 = 57.6 */
    assert_true(varve_alloc_memory_reserved(rig->alloc) > 57 * (int64_t)MIB);
    refused(rig, 101 * MIB, VARVE_ERROR_NO_MEMORY);
    give(rig, a);
    refused(rig, 58 * MIB, VARVE_ERROR_NO_MEMORY); /* though the device has 60 */
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
    take(rig, 57 * MIB);
    refused(rig, 43 * MIB, VARVE_ERROR_NO_MEMORY);
    refused(rig, 3 * MIB, VARVE_ERROR_NO_MEMORY);
    rig_close(rig);
    open_bfc(rig, "bfc:region=1M", (struct rig_options){.sim = {.capacity_bytes = MIB}});
    take(rig, MIB);
    refused(rig, 1, VARVE_ERROR_NO_MEMORY); /* tried down to the least */
}

/* A chunk of another stream serves, and its stream is waited for. */
TEST_WITH(test_one_pool_for_all_streams, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    open_bfc(rig, "bfc", (struct rig_options){.sim = {.index = 0}});
    a = take_on(rig, 1 * MIB, 7);
    b = take_on(rig, 1 * MIB, 8);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 1); /* the rest of the region is of 7 */
    give(rig, a);
    assert_int_equal(take_on(rig, 1 * MIB, 8), a);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 2);
    give(rig, a);
    assert_int_equal(take_on(rig, 1 * MIB, 8), a);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 2);
    give(rig, b);
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_EVENT_RECORD, 1, 2, VARVE_ERROR_IO), VARVE_OK);
    assert_int_not_equal(take_on(rig, 1 * MIB, 9), b); /* no wait is possible: the device gives more */
    rig_check(rig);
}

/* ---- at random ---- */

struct regions {
    uint64_t next;
};

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static uint32_t choose(struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    (void)stream;
    return pieces_best(pieces, bytes, UINT64_MAX);
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    struct regions *regions = pieces->state;
    uint64_t size = regions->next;

    while (size < bytes) {
        size *= 2;
    }
    regions->next = size > regions->next ? size : 2 * size;
    return size;
}

static uint64_t cut(const struct piece *piece, uint64_t bytes)
{
    return piece->size >= 2 * bytes || piece->size >= bytes + 128 * MIB ? bytes : piece->size;
}

static void release(struct pieces *pieces)
{
    struct regions *regions = pieces->state;

    pieces_release(pieces);
    for (regions->next = 2 * MIB; regions->next < pieces->bytes;) {
        regions->next *= 2;
    }
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    struct regions regions = {2 * MIB};

    pieces_compare(*state,
                   &(struct pieces_rules){.policy = "bfc",
                                          .rounded = rounded,
                                          .choose = choose,
                                          .grow = grow,
                                          .cut = cut,
                                          .release = release,
                                          .streams = 3,
                                          .state = &regions},
                   6000);
}
