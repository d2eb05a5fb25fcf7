/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy rmm-pool: how other streams' blocks are stolen and merged, how the pool grows with and without a maximum
 * and where the device refuses; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static const struct rig_case cases[] = {
    {"it grows by its own size, or by the request, and never shrinks",
     {.policy = "rmm-pool"},
     "3M reserved=3M 1M reserved=6M 4M reserved=12M 20M reserved=32M empty reserved=32M"},
    {"the device refuses 32, then gives 16",
     {.policy = "rmm-pool:initial=32M", .sim.capacity_bytes = 60 * MIB},
     "30M reserved=32M 3M reserved=48M x14M reserved=48M"},
    {"it does without its initial size",
     {.policy = "rmm-pool:initial=32M", .sim.capacity_bytes = 20 * MIB},
     "5M reserved=5M"},
    {"of a maximum half of what is left, and free ranges go back for a request that does not fit into the rest",
     {.policy = "rmm-pool:initial=16M:maximum=64M"},
     "a=16M b=1M reserved=40M 23M 20M@9 reserved=60M x5M -a x65M reserved=60M 18M reserved=62M -b"},
    {"one wait for a stolen block, whose rest stays with 7; 8's 1 MiB does not merge with what 7 has behind it; then "
     "one for each list that merges into that of 9",
     {.policy = "rmm-pool:initial=8M"},
     "a=2M@7 b=2M@7 c=4M@7 -a 1M@8>a wait=1 d=1M@7>a+1M wait=1 -a -d -b a{-1M -3M a4M} 4M@9>a wait=3 -c reserved=8M"},
};
TEST_PLAYS(test_rmm_pool, cases)

/* ---- at random ---- */

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

static void keep(struct pieces *pieces)
{
    (void)pieces;
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    pieces_compare(*state,
                   &(struct pieces_rules){.policy = "rmm-pool",
                                          .unit = 256,
                                          .choose = choose,
                                          .grow = grow,
                                          .put = put,
                                          .release = keep,
                                          .streams = STREAMS},
                   6000);
}
