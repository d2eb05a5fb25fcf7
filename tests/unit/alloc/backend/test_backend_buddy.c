/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy buddy: every decision of a random run against a plain model; and its proven bound: segments of 2^k bytes
 * never take more than the most that each smaller or equal size has in use at one time, added up and rounded up to
 * one of them. By the requests alone: at random, with limits, releases and waiting streams, and by the sequences that
 * need the most.
 * Costs: 2 s
 */
#include "support/alloc/pieces.h"

#include "cmocka.h"
#include "support/random.h"

#define SEGMENT MIB
#define SIZES 24U /* 512 bytes to 4 GiB */
#define STREAMS 2U
#define LIVE_MAX 600U

/* ---- decisions ---- */

static uint64_t rounded(uint64_t bytes)
{
    uint64_t power = 512;
    while (power < bytes) {
        power *= 2;
    }
    return power;
}

static uint64_t grow(struct pieces *pieces, uint64_t bytes)
{
    (void)pieces;
    return bytes > SEGMENT ? bytes : SEGMENT;
}

/* What was cut off, or came back, as blocks of powers of two at multiples of their size: the larger ones lie behind. */
static void put(struct pieces *pieces, uint32_t at)
{
    struct piece *piece = &pieces->at[at];
    uint64_t offset = piece->addr - piece->base;
    piece->is_free = true;
    if ((piece->size & (piece->size - 1)) != 0 || offset % piece->size != 0) {
        pieces_cut(pieces, at, offset & -offset); /* the largest that fits there */
        put(pieces, at + 1);
        return;
    }
    for (;;) {
        uint64_t size = pieces->at[at].size;
        bool is_second = ((pieces->at[at].addr - pieces->at[at].base) & size) != 0;
        uint32_t first = is_second ? at - 1 : at;
        if ((is_second && at == 0) || !pieces_meet(pieces, first) || pieces->at[first].size != size ||
            pieces->at[first + 1].size != size) {
            return;
        }
        pieces_merge(pieces, first);
        at = first;
    }
}

TEST_WITH(test_random_decisions, rig_setup, rig_teardown)
{
    pieces_compare(*state,
                   &(struct pieces_rules){
                       .policy = "buddy:segment=1M", .rounded = rounded, .grow = grow, .put = put, .streams = 3},
                   4000);
}

/* ---- the bound ---- */

struct use {
    uint64_t in_use[STREAMS][SIZES], peak[STREAMS][SIZES]; /* bytes, by size */
    uint64_t addr[LIVE_MAX], bytes[LIVE_MAX], stream[LIVE_MAX];
};

static unsigned index_of(uint64_t bytes)
{
    unsigned k = 0;
    while (UINT64_C(512) << k < bytes) {
        k++;
    }
    assert_true(k < SIZES);
    return k;
}

static uint64_t bound_of(const struct use *use)
{
    uint64_t bound = 0;
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        uint64_t sum = 0;
        for (unsigned k = 0; k < SIZES; k++) {
            uint64_t segment = UINT64_C(512) << k;
            sum += use->peak[stream][k];
            if (segment == SEGMENT || (segment > SEGMENT && use->peak[stream][k] > 0)) {
                bound += (sum + segment - 1) / segment * segment;
            }
        }
    }
    return bound;
}

static void use_take(struct rig *rig, struct use *use, unsigned slot, uint64_t bytes, uint64_t stream)
{
    unsigned k = index_of(bytes);
    use->bytes[slot] = UINT64_C(512) << k;
    use->stream[slot] = stream;
    if (varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &use->addr[slot], NULL) != VARVE_OK) {
        use->addr[slot] = 0;
        return;
    }
    use->in_use[stream][k] += use->bytes[slot];
    if (use->peak[stream][k] < use->in_use[stream][k]) {
        use->peak[stream][k] = use->in_use[stream][k];
    }
    assert_true((uint64_t)varve_alloc_memory_reserved(rig->alloc) <= bound_of(use));
}

static void use_give(struct rig *rig, struct use *use, unsigned slot)
{
    give(rig, use->addr[slot]);
    use->in_use[use->stream[slot]][index_of(use->bytes[slot])] -= use->bytes[slot];
    use->addr[slot] = 0;
}

static void bound_at_random(struct rig *rig, uint64_t seed, uint64_t limit, uint64_t largest)
{
    static struct use use;
    use = (struct use){.in_use = {{0}}};
    rig_open(rig, &(struct rig_options){.policy = "buddy:segment=1M", .limit = limit});
    for (unsigned i = 0; i < 6000; i++) {
        unsigned slot = (unsigned)random_below(&seed, LIVE_MAX);
        uint64_t scale = UINT64_C(1) << random_below(&seed, largest);
        if (random_below(&seed, 500) == 0) {
            empty_cache(rig);
        } else if (use.addr[slot] != 0) {
            use_give(rig, &use, slot);
        } else {
            use_take(rig, &use, slot, 512 * scale + random_below(&seed, 512 * scale), random_below(&seed, STREAMS));
        }
        rig->count = rig->mark = 0;
    }
    rig_check(rig);
    rig_close(rig);
}

TEST_WITH(test_bound_at_random, rig_setup, rig_teardown)
{
    uint64_t seed = test_first_seed(41);
    bound_at_random(*state, seed, 0, 11);           /* no request is larger than a segment */
    bound_at_random(*state, seed + 1, 0, 15);       /* some are */
    bound_at_random(*state, seed + 2, 8 * MIB, 12); /* and the limit makes others fail and releases segments */
}

/* All of n bytes in use in blocks of 512; then, size by size, of each two neighbours one goes and blocks of the next
 * size come for what went: n/2 more for each size. */
TEST_WITH(test_sequence_that_needs_the_most, rig_setup, rig_teardown)
{
    enum { COUNT = 2048, SIZES_USED = 8 };
    static uint64_t addrs[COUNT][2]; /* address and size; 0: none */
    struct rig *rig = *state;
    uint64_t n = COUNT * UINT64_C(512);
    unsigned count = 0;
    rig_open(rig, &(struct rig_options){.policy = "buddy:segment=1M"});
    for (; count < COUNT; count++) {
        addrs[count][0] = take(rig, 512);
        addrs[count][1] = 512;
        rig->count = rig->mark = 0;
    }
    for (unsigned r = 1; r <= SIZES_USED; r++) {
        uint64_t size = UINT64_C(512) << r, freed = 0;
        for (unsigned i = 0; i < count; i++) {
            if (addrs[i][0] % size != 0) {
                give(rig, addrs[i][0]);
                freed += addrs[i][1];
                addrs[i--][0] = addrs[--count][0];
                addrs[i + 1][1] = addrs[count][1];
            }
        }
        assert_int_equal(freed, n / 2);
        for (; freed > 0; freed -= size) {
            addrs[count][0] = take(rig, size);
            addrs[count++][1] = size;
        }
        rig->count = rig->mark = 0;
    }
    uint64_t reserved = (uint64_t)varve_alloc_memory_reserved(rig->alloc);
    assert_true(reserved >= n + SIZES_USED * n / 2);
    assert_true(reserved <= n + SIZES_USED * n / 2 + SEGMENT); /* the sum of what each size had */
}
