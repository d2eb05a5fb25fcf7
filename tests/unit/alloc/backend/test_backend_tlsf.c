/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy tlsf: how sizes are rounded by the second level, that a list's last block comes first, what a segment
 * is; then every decision of a random run against a plain model, for three second levels.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

/* 2^L ranges for each power of two: of 1 MiB to 2 MiB, 32 of 32 KiB, or 2 of 512 KiB. */
static const struct rig_case plays[] = {
    {"sizes are rounded by the second level; below 2^L units each size has a list",
     {.policy = "tlsf"},
     "a=1M+1 allocated=1M+32K reserved=64M -a 16384>a allocated=16384"},
    {"second level and segments are options",
     {.policy = "tlsf:second=1:segment=4M"},
     "1M+1 allocated=1M+512K reserved=4M 5M reserved=10M"},
    {"of a list the last one comes first",
     {.policy = "tlsf:segment=8M"},
     "a=1M 512 b=1M 512 c=1M 512 -b -c -a 1M>a 1M>c 1M>b"},
    {"a segment goes back for a request", {.policy = "tlsf", .sim.capacity_bytes = 100 * MIB}, "a=60M -a 70M x40M"},
    {"a segment that the device keeps is in its list again", {.policy = "tlsf"}, "b=70M -b fail:free:1 empty! 1M>b"},
};
TEST_PLAYS(test_tlsf, plays)

/* ---- at random ---- */

static uint64_t second; /* ranges for each power of two */

/* The range of a size, as where it begins; the next one's begin with `up`, if the size is not a begin itself. */
static uint64_t range_of(uint64_t bytes, bool up)
{
    uint64_t power = 512;
    if (bytes < 512 * second) {
        return bytes;
    }
    while (2 * power <= bytes) {
        power *= 2;
    }
    uint64_t step = power / second;
    return (bytes + (up ? step - 1 : 0)) / step * step;
}

static uint64_t rounded(uint64_t bytes)
{
    return range_of((bytes + 511) / 512 * 512, true);
}

static uint32_t choose(struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    uint32_t best = PIECES_NONE;
    for (uint32_t i = 0; i < pieces->count; i++) {
        const struct piece *piece = &pieces->at[i], *other = &pieces->at[best == PIECES_NONE ? i : best];
        uint64_t own = range_of(piece->size, false), others = range_of(other->size, false);
        if (piece->is_free && piece->stream == stream && own >= bytes &&
            (best == PIECES_NONE || own < others || (own == others && piece->put > other->put))) {
            best = i;
        }
    }
    return best;
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    (void)pieces;
    return bytes > 4 * MIB ? bytes : 4 * MIB;
}

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    static const struct {
        const char *policy;
        uint64_t second;
    } cases[] = {{"tlsf:segment=4M", 32}, {"tlsf:segment=4M:second=6", 64}, {"tlsf:segment=4M:second=1", 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        second = cases[i].second;
        pieces_compare(*state,
                       &(struct pieces_rules){
                           .policy = cases[i].policy, .rounded = rounded, .choose = choose, .grow = grow, .streams = 2},
                       3000);
        rig_close(*state);
    }
}
