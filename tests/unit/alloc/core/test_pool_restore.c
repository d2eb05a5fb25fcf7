/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private pool that goes back to an earlier state, as CUDA graph trees want it: its blocks are where they were, in
 * use or free; what it got since is free; other pools are as before; the records add up. After random requests and
 * frees, with ordinary and expandable segments; and what can't be done is refused with nothing changed.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"
#include "support/random.h"

#define POOL ((struct varve_pool_id){0, 1})
#define LIVE_MAX 64U
#define ROUNDS 60U

static struct varve_alloc_snapshot look(struct rig *rig)
{
    struct varve_alloc_snapshot snapshot;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    return snapshot;
}

static bool is_of_pool(const struct varve_segment_info *segment)
{
    return segment->pool.user == POOL.user;
}

/* State of the byte at `addr`: in use, and of which block; 0: free; 1: of no segment. */
static uint64_t block_at(const struct varve_alloc_snapshot *snapshot, uint64_t addr)
{
    for (size_t i = 0; i < snapshot->block_count; i++) {
        const struct varve_block_info *block = &snapshot->blocks[i];
        if (addr >= block->addr && addr - block->addr < block->bytes) {
            return block->state == VARVE_BLOCK_ACTIVE_ALLOCATED ? block->addr : 0;
        }
    }
    return 1;
}

static bool has_addr(const uint64_t *addrs, size_t count, uint64_t addr)
{
    size_t i = 0;
    while (i < count && addrs[i] != addr) {
        i++;
    }
    return i < count;
}

/* Each block in use of one is in the list, and the list has no more. */
static void expect_list(const struct varve_alloc_snapshot *snapshot, const uint64_t *addrs, size_t count)
{
    size_t live = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot->segments[i];
        for (size_t k = 0; is_of_pool(segment) && k < segment->block_count; k++) {
            const struct varve_block_info *block = &snapshot->blocks[segment->first_block + k];
            if (block->state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
                live++;
                assert_true(has_addr(addrs, count, block->addr));
            }
        }
    }
    assert_int_equal(live, count);
}

/* The blocks of `then`, of the pool or of all others, are those of `now`; what `now` has more is free if it is of the
 * pool. */
static void expect_same(const struct varve_alloc_snapshot *then, const struct varve_alloc_snapshot *now, bool of_pool)
{
    for (size_t i = 0; i < then->segment_count; i++) {
        const struct varve_segment_info *segment = &then->segments[i];
        for (size_t k = 0; is_of_pool(segment) == of_pool && k < segment->block_count; k++) {
            const struct varve_block_info *block = &then->blocks[segment->first_block + k];
            const uint64_t expected = block->state == VARVE_BLOCK_ACTIVE_ALLOCATED ? block->addr : 0;
            assert_int_equal(block_at(now, block->addr), expected);
            assert_int_equal(block_at(now, block->addr + block->bytes - 1), expected);
        }
    }
    for (size_t i = 0; i < now->segment_count; i++) {
        const struct varve_segment_info *segment = &now->segments[i];
        for (size_t k = 0; of_pool && is_of_pool(segment) && k < segment->block_count; k++) {
            const struct varve_block_info *block = &now->blocks[segment->first_block + k];
            if (block_at(then, block->addr) == 1) {
                assert_int_equal(block->state, VARVE_BLOCK_INACTIVE);
            }
        }
    }
}

struct live {
    uint64_t addrs[LIVE_MAX];
    size_t count;
};

/* Some requests and frees; the pool gets the requests while it is begun. */
static void live_change(struct rig *rig, struct live *live, uint64_t *random)
{
    static const uint64_t sizes[] = {512, 3 * KIB, 700 * KIB, 2 * MIB, 5 * MIB, 11 * MIB, 24 * MIB};
    for (unsigned i = 0; i < 12; i++) {
        if (live->count == LIVE_MAX || (live->count > 0 && random_below(random, 3) == 0)) {
            const size_t victim = random_below(random, live->count);
            give(rig, live->addrs[victim]);
            live->addrs[victim] = live->addrs[--live->count];
        } else {
            live->addrs[live->count++] = take(rig, sizes[random_below(random, sizeof(sizes) / sizeof(sizes[0]))]);
        }
    }
}

static void live_from(struct live *live, const uint64_t *addrs, size_t count)
{
    assert_true(count <= LIVE_MAX);
    memcpy(live->addrs, addrs, count * sizeof(*addrs));
    live->count = count;
}

static void restore_at_random(struct rig *rig, const char *config, uint64_t seed)
{
    uint64_t random = seed;
    struct live mine = {.count = 0}, others = {.count = 0};
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 40000 * MIB}, .config = config});
    struct varve_alloc_snapshot then = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        play(rig, "[1");
        live_change(rig, &mine, &random);
        play(rig, "]1");
        if (then.segments == NULL || random_below(&random, 4) == 0) {
            varve_alloc_snapshot_free(&then);
            then = look(rig);
        }
        live_change(rig, &others, &random);
        if (random_below(&random, 2) == 0) {
            struct varve_alloc_snapshot before = look(rig);
            struct varve_pool_change change;
            assert_int_equal(varve_alloc_restore_pool(rig->alloc, POOL, &then, &change, &rig->message), VARVE_OK);
            rig_check(rig);
            struct varve_alloc_snapshot now = look(rig);
            expect_list(&before, change.freed, change.freed_count);
            expect_list(&then, change.allocated, change.allocated_count);
            expect_same(&then, &now, true);
            expect_same(&before, &now, false);
            live_from(&mine, change.allocated, change.allocated_count);
            varve_pool_change_free(&change);
            varve_alloc_snapshot_free(&before);
            varve_alloc_snapshot_free(&now);
        }
        rig->count = rig->mark = 0; /* of records there are too many */
    }
    varve_alloc_snapshot_free(&then);
    while (mine.count > 0) {
        give(rig, mine.addrs[--mine.count]);
    }
    while (others.count > 0) {
        give(rig, others.addrs[--others.count]);
    }
    rig_close(rig);
    memset(rig, 0, sizeof(*rig));
}

TEST_WITH(test_at_random, rig_setup, rig_teardown)
{
    const uint64_t first = test_first_seed(1);
    for (uint64_t seed = first; seed < first + (uint64_t)test_rounds(1, 20); seed++) {
        restore_at_random(*state, NULL, seed);
        restore_at_random(*state, "expandable_segments:True", seed);
        restore_at_random(*state, "max_split_size_mb:20", seed);
    }
}

/* One block is split, one is not; then it is all free, and one request has the whole segment. */
TEST_WITH(test_records, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_pool_change change;
    rig_open(rig, &(struct rig_options){.limit = 0});
    play(rig, "[1 a=2M b=4M c=2M -b ]1");
    struct varve_alloc_snapshot then = look(rig);
    play(rig, "-a -c [1 a=20M ]1");
    forget(rig);
    assert_int_equal(varve_alloc_restore_pool(rig->alloc, POOL, &then, &change, &rig->message), VARVE_OK);
    expect(rig, "free_requested 20M\n"
                "free_completed 20M\n"
                "split 2M left 18M\n"
                "alloc cache 2M\n"
                "split 4M left 14M\n"
                "alloc cache 4M\n"
                "split 2M left 12M\n"
                "alloc cache 2M\n"
                "alloc cache 12M\n"
                "free_requested 4M\n"
                "free_completed 4M\n"
                "free_requested 12M\n"
                "free_completed 12M\n");
    assert_int_equal(change.freed_count, 1);
    assert_int_equal(change.allocated_count, 2);
    expect_segment(rig, then.segments[0].addr, "a2M -4M a2M -12M");
    varve_pool_change_free(&change);
    varve_alloc_snapshot_free(&then);
}

static void expect_refused(struct rig *rig, const struct varve_alloc_snapshot *then, int error, const char *text)
{
    struct varve_pool_change change;
    char *before = layout_of(rig);
    assert_int_equal(varve_alloc_restore_pool(rig->alloc, POOL, then, &change, &rig->message), error);
    assert_non_null(strstr(rig->message.text, text));
    char *after = layout_of(rig);
    assert_string_equal(before, after);
    free(before);
    free(after);
    varve_pool_change_free(&change);
}

TEST_WITH(test_refused, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    struct varve_alloc_snapshot then = look(rig);
    expect_refused(rig, &then, VARVE_ERROR_NOT_FOUND, "there is no such pool");
    varve_alloc_snapshot_free(&then);
    play(rig, "[1 a=30M b=2M ]1");
    then = look(rig);
    play(rig, "a~7");
    expect_refused(rig, &then, VARVE_ERROR_BUSY, "used by other streams");
    play(rig, "-a done@7 process -b ;1");
    expect_refused(rig, &then, VARVE_ERROR_NOT_FOUND, "nobody refers");
    play(rig, "empty [1 c=512 ]1");
    expect_refused(rig, &then, VARVE_ERROR_INVALID, "no longer has the");
    varve_alloc_snapshot_free(&then);
}
