/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy cupy-pool: what it cuts, what goes back when a request fails and when it does not; then every decision
 * of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

TEST_WITH(test_exact_sizes, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.policy = "cupy-pool"});
    a = take(rig, 3 * MIB + 1);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 3 * MIB + 512);
    give(rig, a);
    assert_int_equal(take(rig, 3 * MIB), a);
    expect_segment(rig, a, "a3M -512");
    give(rig, a);
    expect_segment(rig, a, "-3146240");
    assert_int_not_equal(take_on(rig, 100, 9), a); /* another stream's arena */
}

TEST_WITH(test_free_all_blocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 60 * MIB}, .policy = "cupy-pool"});
    a = take(rig, 20 * MIB);
    b = take_on(rig, 20 * MIB, 9);
    give(rig, a);
    give(rig, b);
    a = take(rig, 4 * MIB); /* a split chunk stays */
    take(rig, 30 * MIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 50 * MIB);
    refused(rig, 20 * MIB, VARVE_ERROR_NO_MEMORY);
    give(rig, a);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 30 * MIB);
}

/* Beyond its own limit a request fails at once, and nothing is given back for it. */
TEST_WITH(test_limit_of_the_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.policy = "cupy-pool:limit=30M"});
    a = take(rig, 20 * MIB);
    give(rig, a);
    refused(rig, 11 * MIB + 20 * MIB, VARVE_ERROR_NO_MEMORY);
    refused(rig, 25 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 20 * MIB);
    take_on(rig, 10 * MIB, 9);
    refused_on(rig, 1, 9, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(take(rig, 1), a);
}

/* ---- at random ---- */

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

static uint32_t choose(struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    return pieces_best(pieces, bytes, stream);
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    (void)pieces;
    return bytes;
}

static uint64_t cut(const struct piece *piece, uint64_t bytes)
{
    (void)piece;
    return bytes;
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    pieces_compare(
        *state,
        &(struct pieces_rules){
            .policy = "cupy-pool", .rounded = rounded, .choose = choose, .grow = grow, .cut = cut, .streams = 3},
        6000);
}
