/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: the keys and their order, that each key shows the figure of its name, how figures move, and
 * what the two resets leave. The moves are those that the events say.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#include "alloc/core/allocator_counters.h"
#include "alloc/core/request_way.h"
#include "support/random.h"

#define KEYS 122
#define MOVES 3000

struct taken {
    size_t count;
    const char *keys[KEYS + 1];
    int64_t values[KEYS + 1];
};

static void take_key(void *context, const char *key, int64_t value)
{
    struct taken *taken = context;
    assert_true(taken->count < KEYS);
    taken->keys[taken->count] = key;
    taken->values[taken->count++] = value;
}

static struct taken take_all(const struct varve_alloc_stats *stats)
{
    struct taken taken = {0};
    varve_alloc_stats_each(stats, take_key, &taken);
    return taken;
}

static void assert_value(const struct taken *taken, const char *key, int64_t value)
{
    for (size_t i = 0; i < taken->count; i++) {
        if (strcmp(taken->keys[i], key) == 0) {
            if (taken->values[i] != value) {
                fail_msg("%s is %jd, not %jd", key, (intmax_t)taken->values[i], (intmax_t)value);
            }
            return;
        }
    }
    fail_msg("no key %s", key);
}

static void assert_stat(const struct taken *taken, const char *prefix, const struct varve_alloc_stat *stat)
{
    char key[80];
    snprintf(key, sizeof(key), "%s.current", prefix), assert_value(taken, key, stat->current);
    snprintf(key, sizeof(key), "%s.peak", prefix), assert_value(taken, key, stat->peak);
    snprintf(key, sizeof(key), "%s.allocated", prefix), assert_value(taken, key, stat->allocated);
    snprintf(key, sizeof(key), "%s.freed", prefix), assert_value(taken, key, stat->freed);
}

/* ---- Keys ---- */

/* A structure in which every figure is another number. */
static void fill(struct varve_alloc_stats *stats)
{
    int64_t numbers[sizeof(*stats) / sizeof(int64_t)] = {0};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        numbers[i] = (int64_t)(1000 + i);
    }
    memcpy(stats, numbers, sizeof(*stats));
}

/* They are sorted, and each shows its figure. */
TEST(test_keys)
{
    struct varve_alloc_stats stats;
    fill(&stats);
    struct taken taken = take_all(&stats);
    assert_int_equal(taken.count, KEYS);
    assert_string_equal(taken.keys[0], "active.all.allocated");
    assert_string_equal(taken.keys[KEYS - 1], "segment.small_pool.peak");
    for (size_t i = 1; i < KEYS; i++) {
        if (strcmp(taken.keys[i - 1], taken.keys[i]) >= 0) {
            fail_msg("%s comes before %s", taken.keys[i - 1], taken.keys[i]);
        }
    }
#define CHECK_ARRAY(name)                                                               \
    assert_stat(&taken, #name ".all", &stats.name[VARVE_ALLOC_STAT_ALL]);               \
    assert_stat(&taken, #name ".small_pool", &stats.name[VARVE_ALLOC_STAT_SMALL_POOL]); \
    assert_stat(&taken, #name ".large_pool", &stats.name[VARVE_ALLOC_STAT_LARGE_POOL]);
    VARVE_ALLOC_STAT_LIST(CHECK_ARRAY)
#undef CHECK_ARRAY
    assert_stat(&taken, "oversize_allocations", &stats.oversize_allocations);
    assert_stat(&taken, "oversize_segments", &stats.oversize_segments);
    assert_value(&taken, "num_alloc_retries", stats.num_alloc_retries);
    assert_value(&taken, "num_ooms", stats.num_ooms);
    assert_value(&taken, "num_sync_all_streams", stats.num_sync_all_streams);
    assert_value(&taken, "num_device_alloc", stats.num_device_alloc);
    assert_value(&taken, "num_device_free", stats.num_device_free);
    assert_value(&taken, "max_split_size", stats.max_split_size);
}

/* ---- Moves: figures are the sums over the allocator's events ---- */

enum { FIGURES = 7 };

struct plain {
    int64_t current, peak, allocated, freed;
};

static struct plain sums[FIGURES][VARVE_ALLOC_STAT_POOLS];

static void plain_move(int figure, bool is_small, int64_t change)
{
    const int pools[] = {VARVE_ALLOC_STAT_ALL, is_small ? VARVE_ALLOC_STAT_SMALL_POOL : VARVE_ALLOC_STAT_LARGE_POOL};
    for (int i = 0; i < 2; i++) {
        struct plain *one = &sums[figure][pools[i]];
        one->current += change;
        one->peak = one->current > one->peak ? one->current : one->peak;
        *(change > 0 ? &one->allocated : &one->freed) += change > 0 ? change : -change;
    }
}

/* What an event moves: in the order of FIGURES: allocation, allocated, active and requested bytes, active, segment,
 * reserved bytes. By the block's size (S), what was requested (R) or 1. */
static void plain_event(const struct varve_record *record)
{
    enum { S = 2, R = 3 };
    static const struct {
        unsigned kind;
        int moves[FIGURES];
    } events[] = {
        {VARVE_KIND_ALLOC, {1, S, S, R, 1, 0, 0}},
        {VARVE_KIND_FREE_REQUESTED, {-1, -S, 0, 0, 0, 0, 0}},
        {VARVE_KIND_FREE_COMPLETED, {0, 0, -S, -R, -1, 0, 0}},
        {VARVE_KIND_SEGMENT_ALLOC, {0, 0, 0, 0, 0, 1, S}},
        {VARVE_KIND_SEGMENT_FREE, {0, 0, 0, 0, 0, -1, -S}},
    };
    const int64_t amounts[] = {0, 1, (int64_t)record->size, (int64_t)record->requested};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        for (int k = 0; k < FIGURES && events[i].kind == varve_record_kind(record); k++) {
            int move = events[i].moves[k];
            if (move != 0) {
                plain_move(k, record->pool % 2 != 0, move > 0 ? amounts[move] : -amounts[-move]);
            }
        }
    }
}

static void plain_compare(const struct varve_alloc_stats *stats, unsigned step)
{
    const struct varve_alloc_stat *const figures[FIGURES] = {
        stats->allocation, stats->allocated_bytes, stats->active_bytes,  stats->requested_bytes,
        stats->active,     stats->segment,         stats->reserved_bytes};
    for (int i = 0; i < FIGURES; i++) {
        for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
            const struct varve_alloc_stat *stat = &figures[i][pool];
            const struct plain *plain = &sums[i][pool];
            if (stat->current != plain->current || stat->peak != plain->peak || stat->allocated != plain->allocated ||
                stat->freed != plain->freed) {
                fail_msg("step %u, figure %d of pool %d: %jd, peak %jd, not %jd, peak %jd", step, i, pool,
                         (intmax_t)stat->current, (intmax_t)stat->peak, (intmax_t)plain->current,
                         (intmax_t)plain->peak);
            }
        }
    }
}

static void plain_reset(struct rig *rig, bool is_peak)
{
    (is_peak ? varve_alloc_reset_peak_stats : varve_alloc_reset_accumulated_stats)(rig->alloc);
    for (int i = 0; i < FIGURES * VARVE_ALLOC_STAT_POOLS; i++) {
        struct plain *plain = &sums[i / VARVE_ALLOC_STAT_POOLS][i % VARVE_ALLOC_STAT_POOLS];
        plain->peak = is_peak ? plain->current : plain->peak;
        plain->allocated = is_peak ? plain->allocated : 0;
        plain->freed = is_peak ? plain->freed : 0;
    }
}

/* Blocks of both pools, some of which wait for a stream when they are freed; at times nothing waits for long. */
TEST_WITH(test_sums_of_events, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t live[40] = {0}, random = test_first_seed(6);
    memset(sums, 0, sizeof(sums));
    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    struct varve_alloc_stats stats;
    for (unsigned i = 0; i < MOVES; i++) {
        uint64_t *slot = &live[random_below(&random, 40)];
        if (*slot != 0) {
            if (i / 500 % 2 != 0 && random_below(&random, 2) == 0) {
                use_on(rig, *slot, 7);
            }
            give(rig, *slot);
            *slot = 0;
        } else {
            *slot = take(rig, 1 + random_below(&random, random_below(&random, 2) == 0 ? 9000 : 12 * MIB));
        }
        if (i % 50 == 0) {
            varve_sim_stream_complete(rig->device, 7);
        }
        if (i % 300 == 0) {
            empty_cache(rig);
        }
        for (size_t k = 0; k < rig->count; k++) {
            plain_event(&rig->records[k]);
        }
        rig->count = rig->mark = 0;
        if (i % 97 == 0) {
            plain_reset(rig, i % 2 != 0);
        }
        stats = stats_of(rig);
        plain_compare(&stats, i);
    }
}

/* ---- Resets ---- */

/* Of a peak: "….peak" follows "….freed", which follows "….current"; of what is accumulated: that is 0. */
TEST(test_resets)
{
    for (int is_peak = 0; is_peak < 2; is_peak++) {
        struct varve_alloc_stats stats, before, after;
        struct alloc_counters counters;
        fill(&stats);
        counters_write(&counters, &stats);
        stats_read(&counters, &before);
        (is_peak ? stats_reset_peak : stats_reset_accumulated)(&counters);
        stats_read(&counters, &after);
        struct taken old = take_all(&before);
        struct taken new = take_all(&after);
        for (size_t i = 0; i < KEYS; i++) {
            const char *end = strrchr(new.keys[i], '.');
            bool is_moved = is_peak       ? end && strcmp(end, ".peak") == 0
                            : end != NULL ? strcmp(end, ".allocated") == 0 || strcmp(end, ".freed") == 0
                                          : strncmp(new.keys[i], "num_", 4) == 0;
            if (new.values[i] != (!is_moved ? old.values[i] : is_peak ? old.values[i - 2] : 0)) {
                fail_msg("%s is %jd", new.keys[i], (intmax_t) new.values[i]);
            }
        }
    }
}
