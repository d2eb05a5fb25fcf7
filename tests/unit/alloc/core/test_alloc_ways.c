/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way of requests and frees (core/cached_path.h) against the long one: two allocators do the same, and one of
 * them counts searches for a garbage collection that never comes, which sends all it does the long way. Their
 * addresses, answers, events, statistics and snapshots are equal, and both pass the walker, whatever goes between one
 * way and the other: a recorder that comes and goes, shared blocks, a cache that is emptied, settings, wrong frees.
 * Either side may hold handles in place of addresses, and free by address what it has a handle of. The side that goes
 * the short way may fold its records: unfolded, they are the events of the other one, field by field. Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/core/allocator_state.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"
#include "trace/record_fold.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 20000U
#define LIVE_MAX 400U
#define EVENTS_MAX (8U * STEPS)
#define MIB (UINT64_C(1) << 20)
#define NEVER_REACHED (UINT64_C(1) << 50)

/* An allocator on the sim device whose events are kept, folded ones as what they stand for. */
struct kept {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record *events; /* but those of settings, in which the two differ */
    size_t count, capacity;
    uint64_t records, folded; /* as they came */
};

static void kept_take(void *context, const struct varve_record *record)
{
    struct kept *kept = context;
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);
    if (varve_record_kind(record) == VARVE_KIND_CONFIG) {
        return;
    }
    /* as the front ends' recorders ask: in the middle of a request */
    struct varve_pool_id pool;
    uint64_t stream;
    assert_int_equal(varve_alloc_resolve_record(kept->alloc, record, &stream, &pool), VARVE_OK);
    kept->records++;
    kept->folded += varve_record_is_folded(record);
    for (unsigned i = 0; i < count && kept->count < kept->capacity; i++) {
        kept->events[kept->count++] = parts[i];
    }
}

/* `options` say all but the device. The recorder is not set, unless they name `kept->recorder`. */
static void kept_open(struct kept *kept, struct varve_alloc_options *options, size_t capacity, bool folds)
{
    struct varve_sim_options sim = {.index = 3};
    struct varve_message message = {""};
    *kept = (struct kept){.events = calloc(capacity, sizeof(*kept->events)), .capacity = capacity};
    assert_non_null(kept->events);
    kept->recorder = (struct varve_alloc_recorder){.record = kept_take, .context = kept, .folds = folds};
    assert_int_equal(varve_sim_open(&sim, &kept->device, &message), VARVE_OK);
    options->device = kept->device;
    assert_int_equal(varve_alloc_open(options, &kept->alloc, &message), VARVE_OK);
}

static void kept_close(struct kept *kept)
{
    struct varve_message message = {""};
    if (varve_alloc_check(kept->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    varve_alloc_close(kept->alloc);
    kept->device->ops->close(kept->device);
    free(kept->events);
}

struct side {
    struct kept kept;
    bool has_handles;
    uint64_t live[LIVE_MAX];
    struct varve_allocation handles[LIVE_MAX];
    uint64_t short_steps, recorded_steps;
};

/* What both sides do in a step. */
struct act {
    uint64_t slot, bytes, stream;
    unsigned rare;
};

static void side_open(struct side *side, const char *config, bool goes_long, bool folds)
{
    memset(side, 0, sizeof(*side));
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_config_parse(config, &options.config, NULL), VARVE_OK);
    options.config.garbage_collection_threshold = goes_long ? 0.5 : 0;
    options.memory_limit = NEVER_REACHED;
    kept_open(&side->kept, &options, EVENTS_MAX, folds);
}

static void act_rarely(struct side *side, const struct act *act)
{
    struct varve_alloc_config config = side->kept.alloc->config;
    switch (act->rare) {
    case 0:
        varve_alloc_set_recorder(side->kept.alloc, side->kept.alloc->recorder == NULL ? &side->kept.recorder : NULL);
        break;
    case 1:
        assert_int_equal(varve_alloc_empty_cache(side->kept.alloc), VARVE_OK);
        break;
    case 2:
        assert_int_equal(varve_alloc_record_stream(side->kept.alloc, side->live[act->slot], 9, NULL),
                         side->live[act->slot] != 0 ? VARVE_OK : VARVE_ERROR_NOT_FOUND);
        break;
    case 3:
        config.max_split_size = config.max_split_size == 32 * MIB ? VARVE_ALLOC_UNLIMITED : 32 * MIB;
        assert_int_equal(varve_alloc_set_config(side->kept.alloc, &config, NULL), VARVE_OK);
        break;
    case 4: /* inside of a block, or nothing at all */
        assert_int_equal(varve_alloc_raw_delete(side->kept.alloc, side->live[act->slot] + 512 * 3 + 1, NULL),
                         VARVE_ERROR_NOT_FOUND);
        break;
    default:
        break;
    }
}

/* A handle of what has gone frees nothing, also when its address is another allocation's by now. */
static void use_old_handle(struct side *side, struct varve_allocation handle)
{
    assert_int_equal(varve_alloc_free(side->kept.alloc, handle, NULL), VARVE_ERROR_NOT_FOUND);
    struct varve_allocation_info info;
    assert_int_equal(varve_alloc_describe(side->kept.alloc, handle, &info), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_set_user(side->kept.alloc, handle, side), VARVE_ERROR_NOT_FOUND);
}

static void free_slot(struct side *side, uint64_t slot)
{
    struct varve_allocation handle = side->handles[slot];
    if (!side->has_handles) {
        assert_int_equal(varve_alloc_raw_delete(side->kept.alloc, side->live[slot], NULL), VARVE_OK);
        return;
    }
    struct varve_allocation_info info;
    assert_int_equal(varve_alloc_describe(side->kept.alloc, handle, &info), VARVE_OK);
    assert_int_equal(info.block.addr, side->live[slot]);
    assert_int_equal(info.block.allocation_id, handle.id);
    assert_ptr_equal(info.user, slot % 3 == 0 ? &side->live[slot] : NULL);
    if (slot % 5 == 0) {
        assert_int_equal(varve_alloc_raw_delete(side->kept.alloc, side->live[slot], NULL), VARVE_OK);
    } else {
        assert_int_equal(varve_alloc_free(side->kept.alloc, handle, NULL), VARVE_OK);
    }
    use_old_handle(side, handle);
}

static void fill_slot(struct side *side, const struct act *act)
{
    uint64_t slot = act->slot;
    if (!side->has_handles) {
        assert_int_equal(
            varve_alloc_raw_alloc_with_stream(side->kept.alloc, act->bytes, act->stream, &side->live[slot], NULL),
            VARVE_OK);
        return;
    }
    assert_int_equal(varve_alloc_allocate(side->kept.alloc, act->bytes, act->stream, &side->handles[slot], NULL),
                     VARVE_OK);
    side->live[slot] = varve_allocation_addr(side->handles[slot]);
    if (slot % 3 == 0) {
        assert_int_equal(varve_alloc_set_user(side->kept.alloc, side->handles[slot], &side->live[slot]), VARVE_OK);
    }
    struct varve_allocation found;
    assert_int_equal(varve_alloc_get_allocation(side->kept.alloc, side->live[slot], &found), VARVE_OK);
    assert_ptr_equal(found.block, side->handles[slot].block);
    assert_int_equal(found.id, side->handles[slot].id);
}

/* Replace a block. */
static void step(struct side *side, const struct act *act)
{
    uint64_t *slot = &side->live[act->slot];
    side->short_steps += side->kept.alloc->way == ALLOC_WAY_SHORT;
    side->recorded_steps += side->kept.alloc->way == ALLOC_WAY_RECORDED;
    if (*slot != 0) {
        free_slot(side, act->slot);
        if (act->rare == 5) {
            assert_int_equal(varve_alloc_raw_delete(side->kept.alloc, *slot, NULL), VARVE_ERROR_NOT_FOUND);
        }
        *slot = 0;
    }
    if (act->bytes != 0) {
        fill_slot(side, act);
    }
    act_rarely(side, act);
}

static void are_equal(struct side *a, struct side *b, unsigned at)
{
    struct varve_message message = {""};
    if (varve_alloc_check(a->kept.alloc, &message) != VARVE_OK ||
        varve_alloc_check(b->kept.alloc, &message) != VARVE_OK) {
        fail_msg("step %u: %s", at, message.text);
    }
    struct varve_alloc_stats stats[2];
    varve_alloc_get_device_stats(a->kept.alloc, &stats[0]);
    varve_alloc_get_device_stats(b->kept.alloc, &stats[1]);
    assert_memory_equal(&stats[0], &stats[1], sizeof(stats[0]));
    struct varve_alloc_snapshot snapshots[2];
    assert_int_equal(varve_alloc_snapshot(a->kept.alloc, &snapshots[0]), VARVE_OK);
    assert_int_equal(varve_alloc_snapshot(b->kept.alloc, &snapshots[1]), VARVE_OK);
    assert_int_equal(snapshots[0].block_count, snapshots[1].block_count);
    for (size_t i = 0; i < snapshots[0].block_count; i++) {
        const struct varve_block_info *x = &snapshots[0].blocks[i], *y = &snapshots[1].blocks[i];
        if (x->addr != y->addr || x->bytes != y->bytes || x->requested != y->requested ||
            x->allocation_id != y->allocation_id || x->state != y->state) {
            fail_msg("step %u: block %zu, %#llx and %#llx", at, i, (unsigned long long)x->addr,
                     (unsigned long long)y->addr);
        }
    }
    varve_alloc_snapshot_free(&snapshots[0]);
    varve_alloc_snapshot_free(&snapshots[1]);
    assert_int_equal(a->kept.count, b->kept.count);
    assert_memory_equal(a->kept.events, b->kept.events, a->kept.count * sizeof(a->kept.events[0]));
}

/* Few sizes make bins with trees, many make bins with one block, few live blocks make exact pairs. */
static struct act random_act(uint64_t *random, unsigned live, unsigned sizes)
{
    uint64_t most = random_below(random, 5) == 0 ? 30 * MIB : random_below(random, 3) == 0 ? MIB : 8192;
    struct act act = {
        .slot = random_below(random, live),
        .bytes = sizes == 0 ? 1 + random_below(random, most) : UINT64_C(512) << random_below(random, sizes),
        .stream = random_below(random, 20) == 0 ? 5 : 0,
        .rare = (unsigned)random_below(random, 400),
    };
    act.bytes = random_below(random, 3) == 0 ? 0 : act.bytes;
    return act;
}

enum handles {
    NO_HANDLES,
    SHORT_HANDLES, /* the side that goes the short way */
    LONG_HANDLES,
};

struct comparison {
    const char *config;
    unsigned live, sizes;
    bool folds;
    enum handles handles;
    bool is_recorded; /* from the beginning, and mostly */
};

static void compare(const struct comparison *how, uint64_t seed)
{
    static struct side short_way, long_way;
    uint64_t random = seed;
    varve_emit_may_fold = how->folds;
    side_open(&short_way, how->config, false, true); /* a second sink may want each event all the same */
    side_open(&long_way, how->config, true, false);
    short_way.has_handles = how->handles == SHORT_HANDLES;
    long_way.has_handles = how->handles == LONG_HANDLES;
    if (how->is_recorded) {
        varve_alloc_set_recorder(short_way.kept.alloc, &short_way.kept.recorder);
        varve_alloc_set_recorder(long_way.kept.alloc, &long_way.kept.recorder);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        struct act act = random_act(&random, how->live, how->sizes);
        act.rare = how->is_recorded && act.rare == 0 ? 1 : act.rare;
        step(&short_way, &act);
        step(&long_way, &act);
        assert_int_equal(short_way.live[act.slot], long_way.live[act.slot]);
        if (i % 500 == 0) {
            are_equal(&short_way, &long_way, i);
        }
    }
    are_equal(&short_way, &long_way, STEPS);
    assert_true(short_way.kept.count < EVENTS_MAX);
    assert_true(how->is_recorded || (short_way.short_steps > STEPS / 10 && short_way.recorded_steps > STEPS / 10));
    assert_int_equal(long_way.short_steps + long_way.recorded_steps, 0);
    assert_int_equal(long_way.kept.folded, 0);
    assert_int_equal(long_way.kept.records, long_way.kept.count);
    assert_true(how->folds == (short_way.kept.records < long_way.kept.records));
    assert_true(how->folds ? short_way.kept.folded > (how->is_recorded ? STEPS / 4 : 1) : short_way.kept.folded == 0);
    kept_close(&short_way.kept);
    kept_close(&long_way.kept);
}

TEST(test_both_ways)
{
    static const struct comparison comparisons[] = {
        {"", LIVE_MAX, 0, true, NO_HANDLES, false},
        {"max_split_size_mb:32", LIVE_MAX, 0, false, SHORT_HANDLES, false},
        {"", LIVE_MAX, 3, true, SHORT_HANDLES, false},
        {"", LIVE_MAX, 14, false, NO_HANDLES, false},
        {"", 3, 0, true, SHORT_HANDLES, false},
        {"", 10, 2, true, LONG_HANDLES, false},
        {"", 200, 0, true, NO_HANDLES, true},
        {"expandable_segments:True", 200, 0, true, NO_HANDLES, true},
        {"max_split_size_mb:32", 200, 0, true, NO_HANDLES, true},
        {"roundup_power2_divisions:4", 200, 0, true, NO_HANDLES, true},
    };
    for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
        compare(&comparisons[i], test_first_seed(1) + i);
    }
}

/* ---- what is not folded ---- */

TEST(test_what_fits)
{
    assert_true(varve_fold_fits(0));
    assert_true(varve_fold_fits(512));
    assert_true(varve_fold_fits(UINT64_C(0xffffffff) * 512));
    assert_false(varve_fold_fits(UINT64_C(0x100000000) * 512));
    assert_false(varve_fold_fits(513));
    assert_false(varve_fold_fits(UINT64_MAX));
}

/* Of other kinds the flag means something else. */
TEST(test_stray_flag)
{
    const struct varve_record record = {
        .addr = 1,
        .arg = UINT64_MAX,
        .callsite = 7,
        .dev_seq_kind_flags = varve_record_tag(4, VARVE_KIND_HEAP_ALLOC, VARVE_FLAG_FOLDED | VARVE_FLAG_FAILED),
    };
    assert_false(varve_record_is_folded(&record));
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    assert_int_equal(varve_record_unfold(&record, parts), 1);
    assert_memory_equal(&parts[0], &record, sizeof(record));
}
