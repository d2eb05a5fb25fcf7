/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy rmm-pool: how other streams' blocks are stolen and merged, how the pool grows with and without a maximum
 * and where the device refuses; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static void open_pool(struct rig *rig, const char *policy, uint64_t capacity)
{
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = capacity}, .policy = policy});
}

TEST_WITH(test_grows_by_its_own_size, rig_setup, rig_teardown)
{
    static const uint64_t requests[] = {3, 1, 4, 20}, pools[] = {3, 6, 12, 32};
    struct rig *rig = *state;

    open_pool(rig, "rmm-pool", 0);
    for (unsigned i = 0; i < 4; i++) {
        take(rig, requests[i] * MIB);
        assert_int_equal(varve_alloc_memory_reserved(rig->alloc), pools[i] * MIB);
    }
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 32 * MIB);
}

TEST_WITH(test_device_refuses, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    open_pool(rig, "rmm-pool:initial=32M", 60 * MIB);
    take(rig, 30 * MIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 32 * MIB);
    take(rig, 3 * MIB); /* 32, then 16 */
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 48 * MIB);
    refused(rig, 14 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 48 * MIB);
    rig_close(rig);
    open_pool(rig, "rmm-pool:initial=32M", 20 * MIB);
    take(rig, 5 * MIB); /* does without */
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 5 * MIB);
}

/* Half of what is left, and free ranges go back for a request that does not fit into the rest. */
TEST_WITH(test_maximum, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    open_pool(rig, "rmm-pool:initial=16M:maximum=64M", 0);
    a = take(rig, 16 * MIB);
    b = take(rig, 1 * MIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 40 * MIB);
    take(rig, 23 * MIB);
    take_on(rig, 20 * MIB, 9);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 60 * MIB);
    refused(rig, 5 * MIB, VARVE_ERROR_NO_MEMORY);
    give(rig, a);
    refused(rig, 65 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 60 * MIB);
    take(rig, 18 * MIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 62 * MIB);
    give(rig, b);
}

TEST_WITH(test_options, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_alloc_options options;
    struct varve_message message = {""};
    struct varve_alloc *alloc = NULL;

    open_pool(rig, "rmm-pool", 0);
    varve_alloc_options_init(&options);
    options.device = rig->device;
    options.policy = "rmm-pool:initial=2G:maximum=1G";
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "policy rmm-pool: initial is more than maximum");
}

/* One wait for a stolen block, one for a whole list. */
TEST_WITH(test_other_streams, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    open_pool(rig, "rmm-pool:initial=8M", 0);
    a = take_on(rig, 2 * MIB, 7);
    b = take_on(rig, 2 * MIB, 7);
    c = take_on(rig, 4 * MIB, 7);
    give(rig, a);
    assert_int_equal(take_on(rig, 1 * MIB, 8), a); /* stolen: the rest stays with 7 */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 1);
    assert_int_equal(take_on(rig, 1 * MIB, 7), a + MIB);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 1);
    give(rig, a); /* 8's 1 MiB does not merge with what 7 has behind it */
    give(rig, a + MIB);
    give(rig, b);
    expect_segment(rig, a, "-1M -3M a4M");
    assert_int_equal(take_on(rig, 4 * MIB, 9), a + 0); /* the lists of 7 and 8 merge into that of 9 */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 3);
    give(rig, c);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 8 * MIB);
}

/* ---- at random ---- */

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool is_listed(const struct pieces *pieces, uint32_t at, uint64_t stream)
{
    return pieces->at[at].is_free && pieces->at[at].stream == stream;
}

static bool meet(const struct pieces *pieces, uint32_t at)
{
    return pieces_meet(pieces, at) && pieces->at[at].stream == pieces->at[at + 1].stream;
}

static void put(struct pieces *pieces, uint32_t at)
{
    pieces->at[at].is_free = true;
    if (meet(pieces, at)) {
        pieces_merge(pieces, at);
    }
    if (at > 0 && meet(pieces, at - 1)) {
        pieces_merge(pieces, at - 1);
    }
}

static void merge_lists(struct pieces *pieces, uint64_t stream, uint64_t other)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        if (is_listed(pieces, i, other)) {
            pieces->at[i].stream = stream;
        }
    }
    for (uint32_t i = 0; i < pieces->count; i++) {
        while (meet(pieces, i)) {
            pieces_merge(pieces, i);
        }
    }
}

#define STREAMS 4U

static uint32_t choose(struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    uint32_t at = pieces_best(pieces, bytes, stream);

    for (uint64_t other = 0; at == PIECES_NONE && other < STREAMS; other++) {
        at = pieces_best(pieces, bytes, other);
    }
    for (uint64_t other = 0; at == PIECES_NONE && other < STREAMS; other++) {
        if (other != stream) {
            merge_lists(pieces, stream, other);
            at = pieces_best(pieces, bytes, stream);
        }
    }
    return at;
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    bytes = (bytes + 511) / 512 * 512;
    return bytes > pieces->bytes ? bytes : pieces->bytes;
}

static uint64_t cut(const struct piece *piece, uint64_t bytes)
{
    (void)piece;
    return bytes;
}

static void keep(struct pieces *pieces)
{
    (void)pieces;
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    pieces_compare(*state,
                   &(struct pieces_rules){.policy = "rmm-pool",
                                          .rounded = rounded,
                                          .choose = choose,
                                          .grow = grow,
                                          .cut = cut,
                                          .put = put,
                                          .release = keep,
                                          .streams = STREAMS},
                   6000);
}
