/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy bfc: what it cuts and wastes, how regions grow, what a device that refuses makes of them, and that one
 * pool serves all streams; then every decision of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static const struct rig_case cases[] = {
    {"a chunk of less than twice the size is given out whole, one of twice the size is cut",
     {.policy = "bfc:region=64M"},
     "a=6M-200 <segment_alloc new_segment 64M; split 6M left 58M; alloc new_segment 6M> 58M -a | "
     "3M+1>a <alloc cache 6M> -a | 3M>a <split 3M left 3M; alloc cache 3M> 1>a+3M 1>a+3145984"},
    {"waste is an option",
     {.policy = "bfc:region=64M:waste=1M"},
     "a=6M 58M -a | 5M+256>a <alloc cache 6M> -a | 5M>a <split 5M left 1M; alloc cache 5M>"},
    {"regions double: 2, 4; 20 does not fit into 8: 32, and that is not doubled; 32, 64; none that is used goes",
     {.policy = "bfc"},
     "2M reserved=2M 4M reserved=6M 20M reserved=38M 32M reserved=70M 64M reserved=134M empty reserved=134M"},
    {"the limit cuts a region; the device makes it smaller by tenths, and gives no more than that though it has 60",
     {.policy = "bfc:region=64M", .sim = {.capacity_bytes = 60 * MIB}, .limit = 100 * MIB},
     "a=10M reserved=60397568 x101M -a x58M reserved=0 57M x43M x3M"},
    {"it is tried down to the least", {.policy = "bfc:region=1M", .sim = {.capacity_bytes = MIB}}, "1M x1"},
    {"a chunk of another stream serves, and its stream is waited for: that of the region's rest, then that of a; where "
     "no wait is possible the device gives more",
     {.policy = "bfc"},
     "a=1M@7 b=1M@8 wait=1 -a 1M@8>a wait=2 -a 1M@8>a wait=2 -b fail:record:1 fail:record:2 1M@9!b"},
};
TEST_PLAYS(test_bfc, cases)

/* ---- at random ---- */

struct regions {
    uint64_t next;
};

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
                                          .unit = 256,
                                          .choose = choose,
                                          .grow = grow,
                                          .cut = cut,
                                          .release = release,
                                          .streams = 3,
                                          .state = &regions},
                   6000);
}
