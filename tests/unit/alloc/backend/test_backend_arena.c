/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy arena: superblocks of streams and of the global arena, large requests, what is collected when a request
 * fails, a fixed size; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static void open_arena(struct rig *rig, const char *policy, uint64_t capacity)
{
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = capacity}, .policy = policy});
}

/* Each stream gets a superblock of 1 MiB; large requests lie between them. */
TEST_WITH(test_superblocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    open_arena(rig, "arena", 0);
    a = take_on(rig, 1000, 7);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 64 * MIB);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 1024);
    b = take_on(rig, 1000, 8);
    assert_int_equal(b, a + MIB);
    assert_int_equal(take_on(rig, 1, 7), a + 1024);
    c = take_on(rig, MIB + 1, 7);
    assert_int_equal(c, a + 2 * MIB);
    assert_int_equal(take_on(rig, MIB, 7), a + 3 * MIB + 256); /* a superblock of its own */
}

/* A superblock with a used block goes over to a stream, and the block comes back into it. */
TEST_WITH(test_used_superblock_goes_over, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    open_arena(rig, "arena:size=4M", 0);
    a = take_on(rig, 4 * MIB - 512 * KIB, 7); /* the whole superblock: the rest is below 1 MiB */
    assert_int_equal(take_on(rig, 1000, 8), a + 4 * MIB - 512 * KIB);
    give(rig, a);
    assert_int_equal(take_on(rig, 2000, 8), a);
    refused_on(rig, 4 * MIB, 7, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(take_on(rig, 3 * MIB, 7), a + 2048); /* it has been collected */
}

TEST_WITH(test_collected_when_full, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t small[3];

    open_arena(rig, "arena:grow=8M", 8 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        small[i] = take_on(rig, 1 * MIB, 7 + i);
    }
    for (unsigned i = 0; i < 3; i++) {
        give(rig, small[i]); /* stays with the stream */
    }
    assert_int_equal(take_on(rig, 5 * MIB, 7), small[0] + 3 * MIB);
    assert_int_equal(take_on(rig, 3 * MIB, 7), small[0]);
    refused_on(rig, 300, 7, VARVE_ERROR_NO_MEMORY);
}

TEST_WITH(test_empty_ranges_go_back, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    open_arena(rig, "arena:grow=4M", 0);
    a = take_on(rig, 300, 7);
    b = take_on(rig, 10 * MIB, 7);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 14 * MIB);
    give(rig, b);
    give(rig, a);
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_FREE, 2, 1, VARVE_ERROR_IO), VARVE_OK);
    (void)varve_alloc_empty_cache(rig->alloc); /* one that the device keeps stays in its arena */
    rig_check(rig);
    assert_true(varve_alloc_memory_reserved(rig->alloc) > 0);
    (void)varve_alloc_empty_cache(rig->alloc);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
    rig_close(rig);
    open_arena(rig, "arena:size=32M", 0);
    give(rig, take(rig, 300));
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 32 * MIB);
    refused(rig, 33 * MIB, VARVE_ERROR_NO_MEMORY);
}

/* ---- at random: `group` is the superblock, by its address, and in `state` whose it is ---- */

#define GROUPS 2048U
#define GLOBAL UINT64_MAX

struct owners {
    uint64_t addr[GROUPS], stream[GROUPS];
    unsigned count;
};

static uint64_t *owner_of(struct pieces *pieces, uint64_t group)
{
    struct owners *owners = pieces->state;
    unsigned i = 0;

    while (i < owners->count && owners->addr[i] != group) {
        i++;
    }
    if (i == owners->count) {
        assert_true(owners->count < GROUPS);
        owners->addr[owners->count] = group;
        owners->stream[owners->count++] = GLOBAL;
    }
    return &owners->stream[i];
}

static uint64_t group_at(const struct pieces *pieces, uint32_t at)
{
    return pieces->at[at].group != 0 ? pieces->at[at].group : pieces->at[at].addr; /* 0: a new segment */
}

static bool is_empty(const struct pieces *pieces, uint32_t at)
{
    uint64_t group = group_at(pieces, at);

    return pieces->at[at].is_free && (at == 0 || group_at(pieces, at - 1) != group) &&
           (at + 1 == pieces->count || group_at(pieces, at + 1) != group);
}

/* Segments in the order in which they came, each from its lowest address on. */
static uint32_t first_fit(struct pieces *pieces, uint64_t bytes, uint64_t owner)
{
    uint32_t first = PIECES_NONE;

    for (uint32_t i = 0; i < pieces->count; i++) {
        if (pieces->at[i].is_free && pieces->at[i].size >= bytes && *owner_of(pieces, group_at(pieces, i)) == owner &&
            (first == PIECES_NONE || pieces->at[i].nth < pieces->at[first].nth)) {
            first = i;
        }
    }
    return first;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static uint32_t choose(struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    uint32_t at = bytes > MIB ? PIECES_NONE : first_fit(pieces, bytes, stream);
    uint64_t least = bytes > MIB ? bytes : MIB;

    if (at != PIECES_NONE) {
        return at;
    }
    at = first_fit(pieces, bytes, GLOBAL);
    if (at == PIECES_NONE) {
        return at;
    }
    pieces->at[at].group = group_at(pieces, at);
    if (is_empty(pieces, at) && pieces->at[at].size >= least + MIB) {
        pieces_cut(pieces, at, least);
        pieces->at[at + 1].group = pieces->at[at + 1].addr;
        *owner_of(pieces, pieces->at[at + 1].addr) = GLOBAL;
    }
    *owner_of(pieces, pieces->at[at].group) = bytes > MIB ? GLOBAL : stream;
    return at;
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    (void)pieces;
    return bytes > 16 * MIB ? bytes : 16 * MIB;
}

static uint64_t cut(const struct piece *piece, uint64_t bytes)
{
    (void)piece;
    return bytes;
}

static void merge_empty(struct pieces *pieces)
{
    for (uint32_t i = 0; i + 1 < pieces->count;) {
        if (pieces->at[i].base == pieces->at[i + 1].base && is_empty(pieces, i) && is_empty(pieces, i + 1) &&
            *owner_of(pieces, group_at(pieces, i)) == GLOBAL && *owner_of(pieces, group_at(pieces, i + 1)) == GLOBAL) {
            pieces_merge(pieces, i);
        } else {
            i++;
        }
    }
}

static void put(struct pieces *pieces, uint32_t at)
{
    pieces_put(pieces, at);
    merge_empty(pieces);
}

static void release(struct pieces *pieces)
{
    struct owners *owners = pieces->state;

    for (unsigned i = 0; i < owners->count; i++) {
        owners->stream[i] = GLOBAL;
    }
    merge_empty(pieces);
    pieces_release(pieces);
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    static struct owners owners;

    owners.count = 0;
    pieces_compare(*state,
                   &(struct pieces_rules){.policy = "arena:grow=16M",
                                          .rounded = rounded,
                                          .choose = choose,
                                          .grow = grow,
                                          .cut = cut,
                                          .put = put,
                                          .release = release,
                                          .streams = 3,
                                          .state = &owners},
                   4000);
}
