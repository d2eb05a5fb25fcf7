/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: the keys and their order, that each key shows the figure of its name, how figures move, and
 * what the two resets leave. The moves are compared with a model that keeps every single change.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/core/state/counters.h"
#include "alloc/inspect/stats.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 122
#define MOVES 3000

struct taken {
    size_t count;
    const char *keys[KEYS + 1];
    int64_t values[KEYS + 1];
};

static void take(void *context, const char *key, int64_t value)
{
    struct taken *taken = context;

    assert_true(taken->count < KEYS);
    taken->keys[taken->count] = key;
    taken->values[taken->count++] = value;
}

static struct taken take_all(const struct varve_alloc_stats *stats)
{
    struct taken taken = {0};

    varve_alloc_stats_each(stats, take, &taken);
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

TEST(test_keys_are_sorted)
{
    struct varve_alloc_stats stats;
    struct taken taken;

    fill(&stats);
    taken = take_all(&stats);
    assert_int_equal(taken.count, KEYS);
    assert_string_equal(taken.keys[0], "active.all.allocated");
    assert_string_equal(taken.keys[KEYS - 1], "segment.small_pool.peak");
    for (size_t i = 1; i < KEYS; i++) {
        if (strcmp(taken.keys[i - 1], taken.keys[i]) >= 0) {
            fail_msg("%s comes before %s", taken.keys[i - 1], taken.keys[i]);
        }
    }
}

TEST(test_each_key_shows_its_figure)
{
    struct varve_alloc_stats stats;
    struct taken taken;

    fill(&stats);
    taken = take_all(&stats);
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

/* ---- Moves ---- */

static int64_t sum_of(const int64_t *changes, size_t first, size_t end, int sign)
{
    int64_t sum = 0;

    for (size_t i = first; i < end; i++) {
        if (sign == 0 || (sign > 0) == (changes[i] > 0)) {
            sum += changes[i];
        }
    }
    return sum;
}

static int64_t peak_of(const int64_t *changes, size_t first, size_t end)
{
    int64_t peak = sum_of(changes, 0, first, 0);

    for (size_t i = first; i <= end; i++) {
        int64_t current = sum_of(changes, 0, i, 0);

        if (peak < current) {
            peak = current;
        }
    }
    return peak;
}

TEST(test_moves_add_up)
{
    static int64_t changes[VARVE_ALLOC_STAT_POOLS][MOVES];
    struct alloc_counters counters;
    struct varve_alloc_stats *stats = &counters.others, read;
    size_t accumulated_from = 0, peak_from = 0;
    uint64_t random = 5;

    memset(&counters, 0, sizeof(counters));
    memset(changes, 0, sizeof(changes));
    for (size_t i = 0; i < MOVES; i++) {
        bool is_small = random_below(&random, 2);
        struct varve_alloc_stat *stat = &stats->reserved_bytes[stat_pool_kind(is_small)];
        int64_t change = random_below(&random, 3) ? (int64_t)random_below(&random, 5000)
                                                  : -(int64_t)random_below(&random, (uint64_t)stat->current + 1);

        changes[VARVE_ALLOC_STAT_ALL][i] = changes[stat_pool_kind(is_small)][i] = change;
        if (random_below(&random, 2)) {
            stat_change(stats->reserved_bytes, is_small, change);
        } else if (change >= 0) {
            stat_pool_increase(stats->reserved_bytes, is_small, change);
        } else {
            stat_pool_decrease(stats->reserved_bytes, is_small, -change);
        }
        hot_change(&counters, HOT_INACTIVE_SPLIT_BYTES, is_small, change);
        if (i == MOVES / 3) {
            stats_reset_accumulated(&counters);
            accumulated_from = i + 1;
        }
        if (i == MOVES / 2) {
            stats_reset_peak(&counters);
            peak_from = i + 1;
        }
        stats_read(&counters, &read);
        for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS && i % 100 == 0; pool++) {
            const struct varve_alloc_stat *both[] = {&read.reserved_bytes[pool], &read.inactive_split_bytes[pool]};

            for (int k = 0; k < 2; k++) {
                assert_int_equal(both[k]->current, sum_of(changes[pool], 0, i + 1, 0));
                assert_int_equal(both[k]->allocated, sum_of(changes[pool], accumulated_from, i + 1, 1));
                assert_int_equal(both[k]->freed, -sum_of(changes[pool], accumulated_from, i + 1, -1));
                assert_int_equal(both[k]->peak, peak_of(changes[pool], peak_from, i + 1));
            }
        }
    }
}

/* ---- Blocks: what is active is what is allocated, and what was freed and waits ---- */

struct plain {
    int64_t current, peak, allocated, freed;
};

static void plain_move(struct plain plain[VARVE_ALLOC_STAT_POOLS], bool is_small, int64_t change)
{
    const int pools[] = {VARVE_ALLOC_STAT_ALL, stat_pool_kind(is_small)};

    for (int i = 0; i < 2; i++) {
        struct plain *one = &plain[pools[i]];

        one->current += change;
        one->peak = one->current > one->peak ? one->current : one->peak;
        *(change > 0 ? &one->allocated : &one->freed) += change > 0 ? change : -change;
    }
}

static void plain_assert(const struct varve_alloc_stat *stats, const struct plain *plain, const char *name)
{
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        if (stats[pool].current != plain[pool].current || stats[pool].peak != plain[pool].peak ||
            stats[pool].allocated != plain[pool].allocated || stats[pool].freed != plain[pool].freed) {
            fail_msg("%s of pool %d: %jd, peak %jd, not %jd, peak %jd", name, pool, (intmax_t)stats[pool].current,
                     (intmax_t)stats[pool].peak, (intmax_t)plain[pool].current, (intmax_t)plain[pool].peak);
        }
    }
}

static void plain_reset(struct plain plain[VARVE_ALLOC_STAT_POOLS], bool is_peak)
{
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        if (is_peak) {
            plain[pool].peak = plain[pool].current;
        } else {
            plain[pool].allocated = plain[pool].freed = 0;
        }
    }
}

TEST(test_blocks)
{
    enum { ALLOCATION, ALLOCATED, ACTIVE, ACTIVE_BYTES, REQUESTED, FIGURES };
    static struct plain plain[FIGURES][VARVE_ALLOC_STAT_POOLS];
    struct alloc_counters counters;
    struct varve_alloc_stats read;
    uint64_t used[40], waiting[40]; /* sizes; odd ones are small */
    size_t used_count = 0, waiting_count = 0;
    uint64_t random = 6;

    memset(&counters, 0, sizeof(counters));
    for (size_t i = 0; i < MOVES; i++) {
        uint64_t what = random_below(&random, i / 500 % 2 ? 12 : 6); /* at times nothing waits for long */
        bool is_taken = what < 3 && used_count < 40;
        uint64_t size = 1 + random_below(&random, 9000);

        if (is_taken) {
            used[used_count++] = size;
            stat_allocate(&counters, size % 2, size, size / 2);
            plain_move(plain[ALLOCATION], size % 2, 1), plain_move(plain[ALLOCATED], size % 2, (int64_t)size);
            plain_move(plain[ACTIVE], size % 2, 1), plain_move(plain[ACTIVE_BYTES], size % 2, (int64_t)size);
            plain_move(plain[REQUESTED], size % 2, (int64_t)(size / 2));
        } else if (what < 9 && used_count > 0) {
            size = used[--used_count];
            stat_free(&counters, size % 2, size);
            plain_move(plain[ALLOCATION], size % 2, -1);
            plain_move(plain[ALLOCATED], size % 2, -(int64_t)size);
            if (what >= 6 && waiting_count < 40) {
                stat_wait(&counters, size % 2, size, true);
                waiting[waiting_count++] = size;
                size = 0;
            }
        } else if (waiting_count > 0) {
            size = waiting[--waiting_count];
            stat_wait(&counters, size % 2, size, false);
        } else {
            size = 0;
        }
        if (size != 0 && !is_taken) {
            stat_complete(&counters, size % 2, size / 2);
            plain_move(plain[ACTIVE], size % 2, -1), plain_move(plain[ACTIVE_BYTES], size % 2, -(int64_t)size);
            plain_move(plain[REQUESTED], size % 2, -(int64_t)(size / 2));
        }
        for (int k = 0; k < FIGURES && i % 97 == 0; k++) {
            plain_reset(plain[k], i % 2);
        }
        if (i % 97 == 0 && i % 2) {
            stats_reset_peak(&counters);
        } else if (i % 97 == 0) {
            stats_reset_accumulated(&counters);
        }
        stats_read(&counters, &read);
        plain_assert(read.allocation, plain[ALLOCATION], "allocation");
        plain_assert(read.allocated_bytes, plain[ALLOCATED], "allocated_bytes");
        plain_assert(read.active, plain[ACTIVE], "active");
        plain_assert(read.active_bytes, plain[ACTIVE_BYTES], "active_bytes");
        plain_assert(read.requested_bytes, plain[REQUESTED], "requested_bytes");
        assert_int_equal(stat_active_bytes(&counters), read.active_bytes[VARVE_ALLOC_STAT_ALL].current);
    }
}

TEST(test_no_net_change_moves_nothing)
{
    struct varve_alloc_stat stats[VARVE_ALLOC_STAT_POOLS], before[VARVE_ALLOC_STAT_POOLS];

    memset(stats, 0, sizeof(stats));
    stat_change(stats, true, 7);
    memcpy(before, stats, sizeof(stats));
    stat_change(stats, true, 0);
    assert_memory_equal(stats, before, sizeof(stats));
    assert_int_equal(stats[VARVE_ALLOC_STAT_LARGE_POOL].allocated, 0);
}

/* ---- Resets ---- */

TEST(test_reset_accumulated)
{
    struct alloc_counters counters;
    struct varve_alloc_stats stats, before, read;
    struct taken old, new;

    fill(&stats);
    counters_write(&counters, &stats);
    stats_read(&counters, &before);
    stats_reset_accumulated(&counters);
    stats_read(&counters, &read);
    old = take_all(&before);
    new = take_all(&read);
    for (size_t i = 0; i < KEYS; i++) {
        const char *end = strrchr(new.keys[i], '.');
        bool is_zeroed =
            end ? strcmp(end, ".allocated") == 0 || strcmp(end, ".freed") == 0 : strncmp(new.keys[i], "num_", 4) == 0;

        if (new.values[i] != (is_zeroed ? 0 : old.values[i])) {
            fail_msg("%s is %jd", new.keys[i], (intmax_t) new.values[i]);
        }
    }
}

TEST(test_reset_peak)
{
    struct alloc_counters counters;
    struct varve_alloc_stats stats, before, stats_after;
    struct taken old, new;

    fill(&stats);
    counters_write(&counters, &stats);
    stats_read(&counters, &before);
    stats_reset_peak(&counters);
    stats_read(&counters, &stats_after);
    old = take_all(&before);
    new = take_all(&stats_after);
    for (size_t i = 0; i < KEYS; i++) {
        const char *end = strrchr(new.keys[i], '.');

        /* "….peak" follows "….freed", which follows "….current". */
        if (new.values[i] != (end && strcmp(end, ".peak") == 0 ? old.values[i - 2] : old.values[i])) {
            fail_msg("%s is %jd", new.keys[i], (intmax_t) new.values[i]);
        }
    }
}
