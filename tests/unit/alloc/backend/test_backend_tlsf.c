/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy tlsf: how sizes are rounded by the second level, that a list's last block comes first, what a segment
 * is; then every decision of a random run against a plain model, for three second levels.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

/* 2^L ranges for each power of two: of 1 MiB to 2 MiB, 32 of 32 KiB, or 2 of 512 KiB. */
TEST_WITH(test_second_level, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.policy = "tlsf"});
    a = take(rig, MIB + 1);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), MIB + 32 * KIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 64 * MIB);
    give(rig, a);
    assert_int_equal(take(rig, 32 * 512), a); /* below 2^L units each size has a list */
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 32 * 512);
    rig_close(rig);
    rig_open(rig, &(struct rig_options){.policy = "tlsf:second=1:segment=4M"});
    take(rig, MIB + 1);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), MIB + 512 * KIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 4 * MIB);
    take(rig, 5 * MIB);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 10 * MIB);
}

TEST_WITH(test_last_comes_first, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    rig_open(rig, &(struct rig_options){.policy = "tlsf:segment=8M"});
    a = take(rig, MIB);
    take(rig, 512);
    b = take(rig, MIB);
    take(rig, 512);
    c = take(rig, MIB);
    take(rig, 512);
    give(rig, b);
    give(rig, c);
    give(rig, a);
    assert_int_equal(take(rig, MIB), a);
    assert_int_equal(take(rig, MIB), c);
    assert_int_equal(take(rig, MIB), b);
}

TEST_WITH(test_released, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 100 * MIB}, .policy = "tlsf"});
    a = take(rig, 60 * MIB);
    give(rig, a);
    b = take(rig, 70 * MIB); /* the segment of 64 MiB goes back for it */
    refused(rig, 40 * MIB, VARVE_ERROR_NO_MEMORY);
    give(rig, b);
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_FREE, 1, 1, VARVE_ERROR_IO), VARVE_OK);
    (void)varve_alloc_empty_cache(rig->alloc); /* the device keeps it: it is in its list again */
    rig_check(rig);
    assert_int_equal(take(rig, MIB), b);
}

/* ---- at random ---- */

static uint64_t second; /* ranges for each power of two */

/* The range of a size, as where it begins; the next one's begin with `up`, if the size is not a begin itself. */
static uint64_t range_of(uint64_t bytes, bool up)
{
    uint64_t power = 512, step;

    if (bytes < 512 * second) {
        return bytes;
    }
    while (2 * power <= bytes) {
        power *= 2;
    }
    step = power / second;
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

static uint64_t cut(const struct piece *piece, uint64_t bytes)
{
    (void)piece;
    return bytes;
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
                       &(struct pieces_rules){.policy = cases[i].policy,
                                              .rounded = rounded,
                                              .choose = choose,
                                              .grow = grow,
                                              .cut = cut,
                                              .streams = 2},
                       3000);
        rig_close(*state);
    }
}
