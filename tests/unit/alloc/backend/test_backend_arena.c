/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy arena: superblocks of streams and of the global arena, large requests, what is collected when a request
 * fails, a fixed size; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static const struct rig_case cases[] = {
    {"each stream gets a superblock of 1 MiB; large requests lie between them; the last one has its own",
     {.policy = "arena"},
     "a=1000@7 reserved=64M allocated=1024 b=1000@8>a+1M 1@7>a+1024 1M+1@7>a+2M 1M@7>a+3145984"},
    {"a superblock with a used block goes over to a stream, and the block comes back into it; it is collected",
     {.policy = "arena:size=4M"},
     "a=4M-512K@7 1000@8>a+3670016 -a 2000@8>a x4M@7 3M@7>a+2048"},
    {"what stays with streams is collected when all is full",
     {.policy = "arena:grow=8M", .sim.capacity_bytes = 8 * MIB},
     "a=1M@7 b=1M@8 c=1M@9 -a -b -c 5M@7>a+3M 3M@7>a x300@7"},
    {"a fixed size neither shrinks nor grows", {.policy = "arena:size=32M"}, "a=300 -a empty reserved=32M x33M"},
    {"a range that the device keeps stays in its arena",
     {.policy = "arena:grow=4M"},
     "a=300@7 b=10M@7 reserved=14M -b -a fail:free:2 empty! reserved=10M empty reserved=0"},
};
TEST_PLAYS(test_arena, cases)

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
                                          .unit = 256,
                                          .choose = choose,
                                          .grow = grow,
                                          .put = put,
                                          .release = release,
                                          .streams = 3,
                                          .state = &owners},
                   4000);
}
