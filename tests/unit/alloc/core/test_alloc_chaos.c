/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations, and random operations in the middle of requests: in callbacks, in observers and, while
 * release_lock_on_cudamalloc leaves the lock open, as other threads would. After each the walkers run; no two
 * live blocks ever share a byte; at the end everything is given back. What is decided is not looked at here: recordings
 * of PyTorch's allocator say that (tests/conformance/test_replay_pytorch.py).
 * Costs: 7 s, full 40 s
 */
#include "support/alloc/rig.h"
#include "support/random.h"

/* One thread: nothing here for the thread sanitizer to find, which makes each step ten times slower. */
#if defined(__SANITIZE_THREAD__)
#define CHAOS_STEPS 400
#else
#define CHAOS_STEPS ((unsigned)test_rounds(2400, 4000))
#endif
#define CHAOS_LIVE 96U

struct chaos {
    struct rig *rig;
    uint64_t random;
    uint64_t live[CHAOS_LIVE], bytes[CHAOS_LIVE];
    unsigned count, depth, captures, references[3];
    unsigned inside; /* steps taken within a request */
};

static uint64_t draw(struct chaos *chaos, uint64_t below)
{
    return random_below(&chaos->random, below);
}

/* Nobody else has any of these bytes. */
static void claim(struct chaos *chaos, uint64_t addr, uint64_t bytes)
{
    for (unsigned i = 0; i < chaos->count; i++) {
        assert_true(addr + bytes <= chaos->live[i] || chaos->live[i] + chaos->bytes[i] <= addr);
    }
    chaos->live[chaos->count] = addr;
    chaos->bytes[chaos->count++] = bytes;
}

static void chaos_take(struct chaos *chaos)
{
    static const uint64_t largest[] = {3000, 1 * MIB, 9 * MIB, 34 * MIB};
    uint64_t bytes = 1 + draw(chaos, largest[draw(chaos, 4)]);
    uint64_t addr = 0;
    int error = varve_alloc_raw_alloc_with_stream(chaos->rig->alloc, bytes, draw(chaos, 2), &addr, NULL);
    if (error == VARVE_OK && chaos->count < CHAOS_LIVE) {
        claim(chaos, addr, bytes);
    } else if (error == VARVE_OK) { /* one that a callback has filled up meanwhile */
        give(chaos->rig, addr);
    } else {
        assert_int_equal(error, VARVE_ERROR_NO_MEMORY);
    }
}

static void chaos_give(struct chaos *chaos)
{
    unsigned i = (unsigned)draw(chaos, chaos->count);
    uint64_t addr = chaos->live[i];
    if (draw(chaos, 3) == 0) {
        use_on(chaos->rig, addr, 2 + draw(chaos, 3));
    }
    chaos->count--;
    chaos->live[i] = chaos->live[chaos->count];
    chaos->bytes[i] = chaos->bytes[chaos->count];
    give(chaos->rig, addr);
}

static void chaos_pools(struct chaos *chaos)
{
    struct varve_alloc *alloc = chaos->rig->alloc;
    unsigned number = (unsigned)draw(chaos, 3);
    struct varve_pool_id id = {0, number + 1};
    switch (draw(chaos, 3)) {
    case 0:
        if (varve_alloc_begin_allocate_to_pool(alloc, id, NULL, NULL) == VARVE_OK) {
            chaos->references[number]++;
        }
        break;
    case 1:
        varve_alloc_end_allocate_to_pool(alloc, id);
        break;
    default:
        if (chaos->references[number] > 0) {
            assert_int_equal(varve_alloc_release_pool(alloc, id), VARVE_OK);
            chaos->references[number]--;
        }
    }
}

static void chaos_step(struct chaos *chaos)
{
    switch (draw(chaos, 16)) {
    case 0:
        chaos_pools(chaos);
        break;
    case 1:
        empty_cache(chaos->rig);
        break;
    case 2:
        varve_sim_stream_complete(chaos->rig->device, 2 + draw(chaos, 3));
        break;
    case 3:
        varve_alloc_set_memory_limit(chaos->rig->alloc, draw(chaos, 4) == 0 ? 0 : draw(chaos, 300 * MIB));
        break;
    default:
        if (chaos->count > 0 && (chaos->count > CHAOS_LIVE - 8 || draw(chaos, 2) == 0)) {
            chaos_give(chaos);
        } else {
            chaos_take(chaos);
        }
    }
    rig_check(chaos->rig);
}

/* In the middle of a request: not without end, for each request may ask again. */
static void chaos_within(void *context)
{
    struct chaos *chaos = context;
    if (chaos->depth < 2) {
        chaos->depth++;
        for (uint64_t i = draw(chaos, 4); i > 0; i--) {
            chaos->inside++;
            chaos_step(chaos);
        }
        chaos->depth--;
    }
}

static uint64_t chaos_callback(void *context, const struct varve_alloc_miss *miss)
{
    (void)miss;
    chaos_within(context);
    return draw(context, 4);
}

static void chaos_observer(void *context, const struct varve_alloc_oom *oom)
{
    assert_true(oom->rounded >= oom->requested);
    chaos_within(context);
}

static void chaos_run(struct rig *rig, const char *config, const char *policy, bool has_research)
{
    struct chaos chaos = {.rig = rig, .random = 20240917};
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 240 * MIB, .events_are_scripted = true},
                                        .config = config,
                                        .policy = policy,
                                        .has_research = has_research});
    rig_hook(rig, chaos_within, &chaos);
    if (strstr(config, "release_lock") == NULL) {
        rig->on_segment_alloc = NULL; /* the lock is held: a device may not come back */
    }
    varve_alloc_add_miss_callback(rig->alloc, chaos_callback, &chaos);
    varve_alloc_add_oom_observer(rig->alloc, chaos_observer, &chaos);
    for (unsigned i = 0; i < CHAOS_STEPS; i++) {
        chaos_step(&chaos);
    }
    assert_true(chaos.inside > CHAOS_STEPS / 10);
    while (chaos.count > 0) {
        chaos_give(&chaos);
    }
    rig->count = rig->mark = 0;
    rig_close(rig);
}

TEST_WITH(test_anything_anywhere, rig_setup, rig_teardown)
{
    static const char *const configs[] = {
        "",
        "release_lock_on_cudamalloc:True",
        "expandable_segments:True",
        "max_split_size_mb:20,garbage_collection_threshold:0.4,release_lock_on_cudamalloc:True",
    };
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        for (size_t policy = 0; varve_alloc_policies()[policy] != NULL; policy++) {
            if (test_is_full() || policy == 0 || policy % 4 == i) { /* quick: each policy under one of the settings */
                chaos_run(*state, configs[i], varve_alloc_policies()[policy], i % 2 != 0);
            }
        }
    }
}
