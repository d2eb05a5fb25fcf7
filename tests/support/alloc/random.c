/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See random.h. What makes a run find something is that it is lopsided: each has its own
 * habits (sizes that come again, streams, pools, faults) and grows and shrinks in phases.
 */
#include "support/alloc/random.h"
#include "support/random.h"

#include <string.h>

#define MIB UINT64_C(0x100000)
#define HABIT_SIZES 8U

static uint64_t random_state;

/* first … last */
static uint64_t random_between(uint64_t first, uint64_t last)
{
    return first + random_below(&random_state, last - first + 1);
}

static bool is_chosen(unsigned percent)
{
    return random_below(&random_state, 100) < percent;
}

/* ---- settings of a run ---- */

/* What a run's program is like. */
struct habits {
    uint64_t sizes[HABIT_SIZES]; /* that come again and again */
    unsigned small, large, huge; /* weights of sizes in percent, the rest are the ones above */
    unsigned streams;
    unsigned uses;   /* percent of steps that mark a block as used by another stream */
    unsigned pools;  /* percent of steps that begin, end or release private pools */
    unsigned faults; /* tenths of a percent of steps that make the device fail */
    unsigned rare;   /* tenths of a percent of steps that empty the cache, change limits and the like */
    unsigned few;    /* percent of steps on blocks that take one of the oldest */
};

static uint64_t random_size_small(void)
{
    return random_between(1, UINT64_C(1) << random_below(&random_state, 21));
}

static uint64_t random_size_large(void)
{
    return is_chosen(60) ? random_between(MIB + 1, 12 * MIB) : random_between(10 * MIB, 40 * MIB);
}

/* At and around the sizes where rules change. */
static uint64_t random_size_edge(const struct varve_alloc_config *config)
{
    static const uint64_t edges[] = {512, 1024, MIB, 2 * MIB, 10 * MIB, 20 * MIB};
    bool has_max = config->max_split_size != VARVE_ALLOC_UNLIMITED && is_chosen(40);
    uint64_t edge = has_max ? config->max_split_size : edges[random_below(&random_state, 6)];

    switch (random_below(&random_state, 4)) {
    case 0:
        return edge - 1;
    case 1:
        return edge + 1;
    case 2:
        return edge > 512 ? edge - 512 : edge;
    default:
        return edge;
    }
}

static uint64_t random_size_odd(void)
{
    static const uint64_t odd[] = {0, UINT64_C(1) << 60, UINT64_MAX, UINT64_C(1) << 36};

    return odd[random_below(&random_state, 4)];
}

static void divisions_random(struct varve_alloc_config *config)
{
    uint64_t every = UINT64_C(1) << random_between(1, 5);
    bool is_table = is_chosen(50);

    for (unsigned i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        config->roundup_power2_divisions[i] = is_table ? UINT64_C(1) << random_below(&random_state, 7) : every;
        if (is_table && is_chosen(30)) {
            config->roundup_power2_divisions[i] = 0;
        }
    }
}

static void setup_random(struct alloc_pair_setup *setup)
{
    static const uint64_t capacities[] = {300 * MIB, 1000 * MIB, 4096 * MIB, 65536 * MIB};
    static const uint64_t segments[] = {11, 32, 50};
    struct varve_alloc_config *config = &setup->config;

    varve_alloc_config_init(config);
    setup->capacity = capacities[random_below(&random_state, is_chosen(80) ? 3 : 4)];
    setup->memory_limit = is_chosen(50) ? setup->capacity * random_between(20, 100) / 100 : 0;
    setup->check_every = is_chosen(10) ? 1 : 64;
    setup->miss_frees = is_chosen(15) ? (unsigned)random_between(1, 3) : 0;
    if (is_chosen(20)) {
        config->large_segment_size = segments[random_below(&random_state, 3)] * MIB;
        config->max_non_split_rounding_size = config->large_segment_size;
    }
    if (is_chosen(35)) {
        config->max_split_size = random_between(config->large_segment_size / MIB, 200) * MIB;
        config->max_non_split_rounding_size = config->large_segment_size + random_below(&random_state, 40) * MIB;
    }
    if (is_chosen(25)) {
        divisions_random(config);
    }
    if (is_chosen(35)) {
        config->garbage_collection_threshold = (double)random_between(1, 9) / 10;
    }
    config->expandable_segments = is_chosen(35);
}

static void habits_random(struct habits *habits, const struct varve_alloc_config *config)
{
    for (unsigned i = 0; i < HABIT_SIZES; i++) {
        habits->sizes[i] = is_chosen(50) ? random_size_small() : random_size_large();
        if (is_chosen(10)) {
            habits->sizes[i] = random_size_edge(config);
        }
    }
    habits->small = (unsigned)random_below(&random_state, 60);
    habits->large = (unsigned)random_below(&random_state, 30);
    habits->huge = is_chosen(50) ? (unsigned)random_below(&random_state, 10) : 0;
    habits->streams = (unsigned)random_between(1, ALLOC_PAIR_STREAMS);
    habits->uses = is_chosen(60) ? (unsigned)random_below(&random_state, 15) : 0;
    habits->pools = is_chosen(50) ? (unsigned)random_below(&random_state, 12) : 0;
    habits->rare = is_chosen(30) ? (unsigned)random_below(&random_state, 60) : 8;
    habits->few = (unsigned)random_below(&random_state, 60);
    habits->faults = is_chosen(40) ? (unsigned)random_below(&random_state, 20) : 0;
}

/* ---- operations of a run ---- */

static uint64_t random_size(const struct habits *habits, const struct varve_alloc_config *config)
{
    unsigned kind = (unsigned)random_below(&random_state, 100);

    if (random_below(&random_state, 1000) < 3) {
        return random_size_odd();
    }
    if (is_chosen(4)) {
        return random_size_edge(config);
    }
    if (kind < habits->small) {
        return random_size_small();
    }
    if (kind < habits->small + habits->large) {
        return random_size_large();
    }
    if (kind < habits->small + habits->large + habits->huge) {
        return random_between(40 * MIB, 300 * MIB);
    }
    return habits->sizes[random_below(&random_state, HABIT_SIZES)];
}

static enum alloc_pair_kind random_pool_kind(void)
{
    static const enum alloc_pair_kind kinds[] = {ALLOC_PAIR_BEGIN,    ALLOC_PAIR_END,       ALLOC_PAIR_END,
                                                 ALLOC_PAIR_END,      ALLOC_PAIR_RELEASE,   ALLOC_PAIR_RELEASE,
                                                 ALLOC_PAIR_NO_SPLIT, ALLOC_PAIR_USE_ON_OOM};

    return kinds[random_below(&random_state, is_chosen(90) ? 6 : 8)];
}

static enum alloc_pair_kind random_rare_kind(void)
{
    static const enum alloc_pair_kind kinds[] = {
        ALLOC_PAIR_EMPTY_CACHE, ALLOC_PAIR_EMPTY_CACHE,       ALLOC_PAIR_LIMIT,      ALLOC_PAIR_FRACTION,
        ALLOC_PAIR_RESET_PEAK,  ALLOC_PAIR_RESET_ACCUMULATED, ALLOC_PAIR_FREE_WRONG, ALLOC_PAIR_FREE_WRONG};

    return kinds[random_below(&random_state, 8)];
}

static enum alloc_pair_kind random_kind(const struct habits *habits, unsigned allocs)
{
    if (is_chosen(habits->uses)) {
        return is_chosen(70) ? ALLOC_PAIR_RECORD_STREAM : ALLOC_PAIR_COMPLETE;
    }
    if (is_chosen(habits->pools)) {
        return random_pool_kind();
    }
    if (random_below(&random_state, 1000) < habits->faults) {
        return ALLOC_PAIR_FAIL;
    }
    if (random_below(&random_state, 1000) < habits->rare) {
        return random_rare_kind();
    }
    return is_chosen(allocs) ? ALLOC_PAIR_ALLOC : ALLOC_PAIR_FREE;
}

static void ops_random(const struct alloc_pair_setup *setup, struct alloc_pair_op *ops, size_t count)
{
    struct habits habits;
    unsigned allocs = 60;

    habits_random(&habits, &setup->config);
    for (size_t i = 0; i < count; i++) {
        struct alloc_pair_op *op = &ops[i];

        if (random_below(&random_state, count / 20 + 50) == 0) { /* the program grows, or shrinks */
            allocs = (unsigned)random_between(25, 75);
        }
        memset(op, 0, sizeof(*op));
        op->kind = random_kind(&habits, allocs);
        op->pick =
            is_chosen(habits.few) ? (uint32_t)random_below(&random_state, 4) : (uint32_t)random_next(&random_state);
        op->salt = (uint32_t)random_next(&random_state);
        op->stream = (uint32_t)random_below(&random_state, habits.streams);
        if (op->kind == ALLOC_PAIR_ALLOC) {
            op->bytes = random_size(&habits, &setup->config);
        } else if (op->kind == ALLOC_PAIR_RECORD_STREAM || op->kind == ALLOC_PAIR_COMPLETE) {
            op->stream = (uint32_t)random_below(&random_state, ALLOC_PAIR_STREAMS);
        } else if (op->kind == ALLOC_PAIR_LIMIT) {
            op->bytes = is_chosen(30) ? 0 : setup->capacity * random_between(10, 110) / 100;
        } else if (op->kind == ALLOC_PAIR_FRACTION) {
            op->bytes = random_below(&random_state, 1051);
        } else if (op->kind == ALLOC_PAIR_FAIL) {
            op->nth = (uint32_t)random_between(1, 5);
            op->count = (uint32_t)random_between(1, 3);
            op->error = is_chosen(90) ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO;
        } else if (op->kind == ALLOC_PAIR_BEGIN) {
            op->stream = (uint32_t)random_below(&random_state, ALLOC_PAIR_FILTERS);
        }
    }
}

size_t alloc_random_run(uint64_t seed, struct alloc_pair_setup *setup, struct alloc_pair_op *ops)
{
    size_t count;

    random_state = seed * UINT64_C(0xd1342543de82ef95);
    count = (size_t)random_between(500, is_chosen(10) ? ALLOC_RANDOM_STEPS_MAX : 2500);
    setup_random(setup);
    setup->folds = seed % 2 != 0; /* not drawn: the operations of a seed stay what they are */
    if (count > 2500) {
        setup->check_every = 64;
        if (is_chosen(50)) { /* room for thousands of blocks */
            setup->capacity = 65536 * MIB;
            setup->memory_limit = 0;
        }
    }
    ops_random(setup, ops, count);
    return count;
}
