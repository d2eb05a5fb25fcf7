/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live planners under budgets that the locks of waiting operators leave no room in: these are opened, and taken again
 * before the operator runs. Operations that fail in the middle leave no lock, and nothing of what they were to make.
 * Costs: 1 s
 */
#include "programs.h"
#include "storage/remat/planner.h"
#include "support/storage/pool.h"

/* A driver that looks at the inputs of each run, fails in one run, and wants more room in the middle of each. */
struct watch {
    struct varve_remat *remat;
    uint64_t runs, runs_until_failure, unlocks;
    uint64_t shared; /* bytes that two storages have in common */
    bool stumbles;
    uint32_t ops;
};

static int watch_run(void *context, struct varve_remat_run *run, struct varve_message *message)
{
    struct watch *watch = context;
    watch->runs++;
    if (watch->runs_until_failure > 0 && --watch->runs_until_failure == 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "a run that fails");
    }
    while (watch->stumbles && varve_remat_make_room(watch->remat, 1) > 0) {
    }
    watch->unlocks = watch->remat->unlock_count;
    for (unsigned i = 0; i < run->input_count; i++) {
        assert_true(varve_remat_is_defined(watch->remat, run->inputs[i]));
        assert_true(watch->remat->graph.storages[varve_remat_storage(watch->remat, run->inputs[i])].locks > 0);
    }
    return 0;
}

static void watch_forget_op(void *context, void *user)
{
    struct watch *watch = context;
    assert_ptr_equal(user, watch);
    watch->ops--;
}

static uint64_t watch_bytes_used(void *context)
{
    const struct watch *watch = context;
    return watch->remat->used - watch->shared;
}

static void open_watched(struct watch *watch, uint64_t budget)
{
    *watch = (struct watch){.remat = NULL};
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.heuristic = varve_remat_heuristic_find("dtr-eq");
    options.budget = budget;
    options.is_live = true;
    options.driver = (struct varve_remat_driver){
        .context = watch, .run = watch_run, .forget_op = watch_forget_op, .bytes_used = watch_bytes_used};
    assert_int_equal(varve_remat_open(&options, &watch->remat, NULL), 0);
}

/* One output of its own, or a view of input 0 for `bytes` of 0. */
static int compute(struct watch *watch, const uint32_t *inputs, unsigned count, uint64_t bytes, uint32_t *output_out)
{
    const struct varve_remat_op op = {.inputs = inputs,
                                      .sizes = &bytes,
                                      .aliases = (const int32_t[]){bytes == 0 ? 0 : -1},
                                      .input_count = count,
                                      .output_count = 1,
                                      .cost_ns = 1,
                                      .user = watch};
    watch->ops++;
    return varve_remat_compute(watch->remat, &op, output_out, NULL);
}

static uint32_t make(struct watch *watch, const uint32_t *inputs, unsigned count, uint64_t bytes)
{
    uint32_t output;
    assert_int_equal(compute(watch, inputs, count, bytes, &output), 0);
    return output;
}

static void assert_unlocked(const struct watch *watch)
{
    for (uint32_t i = 0; i < watch->remat->graph.storage_count; i++) {
        assert_int_equal(watch->remat->graph.storages[i].locks, 0);
    }
    assert_int_equal(watch->remat->locked_bytes, 0);
    assert_int_equal(watch->remat->frame_count, 0);
    assert_int_equal(varve_remat_check(watch->remat, NULL), 0);
}

/* A view that fails while its storage is locked goes at once, and its operator with it: whoever has it as `user` may
 * free it. */
TEST(test_failed_view_of_locked)
{
    struct watch watch;
    uint32_t view = 0;
    open_watched(&watch, VARVE_REMAT_UNLIMITED);
    uint32_t base = make(&watch, NULL, 0, 10);
    varve_remat_lock(watch.remat, base);
    watch.runs_until_failure = 1;
    assert_int_equal(compute(&watch, &base, 1, 0, &view), VARVE_ERROR_IO);
    assert_int_equal(watch.ops, 1);
    assert_false(varve_remat_is_tensor(watch.remat, view));
    varve_remat_unlock(watch.remat, base);
    assert_unlocked(&watch);
    varve_remat_release(watch.remat, base);
    assert_int_equal(watch.ops, 0);
    varve_remat_close(watch.remat);
}

/* z of `side` and the end of a chain, and of both once more; with `side` locked the chain is too much. */
#define CHAIN 50U

struct program {
    uint32_t side, view, chain[CHAIN], z;
};

static void make_program(struct watch *watch, struct program *program)
{
    program->side = make(watch, NULL, 0, 40);
    program->view = make(watch, &program->side, 1, 0);
    for (unsigned i = 0; i < CHAIN; i++) {
        program->chain[i] = make(watch, i == 0 ? NULL : &program->chain[i - 1], i > 0, 35);
    }
    uint32_t inputs[5];
    inputs[0] = inputs[4] = program->side;
    inputs[1] = program->view;
    inputs[2] = inputs[3] = program->chain[CHAIN - 1];
    program->z = make(watch, inputs, 5, 20);
}

static void evict_all(const struct watch *watch)
{
    for (uint32_t t = 0; t < watch->remat->graph.tensor_count; t++) {
        if (varve_remat_is_defined(watch->remat, t)) {
            assert_int_equal(varve_remat_evict(watch->remat, t, NULL), 0);
        }
    }
}

/* 40 that wait and two of 35 in the chain do not go into 100. Inputs repeat, and two are of one storage. */
TEST(test_chain_beside_a_locked_input)
{
    struct program program;
    struct watch watch;
    for (unsigned stumbles = 0; stumbles < 2; stumbles++) {
        open_watched(&watch, 100);
        make_program(&watch, &program);
        assert_unlocked(&watch);
        evict_all(&watch);
        watch.runs = 0;
        watch.stumbles = stumbles != 0;
        assert_int_equal(varve_remat_materialize(watch.remat, program.z, NULL), 0);
        assert_true(watch.unlocks > 0);
        print_message("%" PRIu64 " runs, unlocked %" PRIu64 " times\n", watch.runs, watch.unlocks);
        assert_true(watch.runs >= CHAIN + 3 && (watch.stumbles || watch.runs == CHAIN + 5));
        assert_unlocked(&watch);
        /* A byte less than an operator with its inputs takes. */
        evict_all(&watch);
        varve_remat_set_budget(watch.remat, 94);
        assert_int_equal(varve_remat_materialize(watch.remat, program.z, NULL), VARVE_ERROR_NO_MEMORY);
        assert_unlocked(&watch);
        varve_remat_set_budget(watch.remat, 95);
        assert_int_equal(varve_remat_materialize(watch.remat, program.z, NULL), 0);
        assert_unlocked(&watch);
        varve_remat_close(watch.remat);
    }
}

/* Whichever run fails: no lock is left, and the next attempt works. */
TEST(test_failures_while_unlocked)
{
    struct watch watch;
    uint64_t runs = 0, seen = 0;
    open_watched(&watch, 100);
    struct program program;
    make_program(&watch, &program);
    for (uint64_t which = 1; runs == 0; which++) {
        evict_all(&watch);
        watch.stumbles = which % 2 == 0;
        watch.runs = watch.unlocks = 0;
        watch.runs_until_failure = which;
        int error = varve_remat_materialize(watch.remat, program.z, NULL);
        seen += watch.unlocks > 0;
        runs = error == 0 ? watch.runs : 0;
        assert_true(error == 0 || error == VARVE_ERROR_IO);
        assert_unlocked(&watch);
    }
    assert_true(runs >= CHAIN + 3 && seen > CHAIN / 2);
    varve_remat_close(watch.remat);
}

/* Two constants of one memory count once: what is beside them can still be evicted. */
TEST(test_memory_in_common)
{
    struct watch watch;
    open_watched(&watch, 100);
    uint32_t constants[2];
    constants[0] = make(&watch, NULL, 0, 40);
    varve_remat_drop_recipe(watch.remat, constants[0]);
    varve_remat_set_budget(watch.remat, 140);
    constants[1] = make(&watch, NULL, 0, 40);
    varve_remat_drop_recipe(watch.remat, constants[1]);
    watch.shared = 40;
    varve_remat_set_budget(watch.remat, 100);
    for (unsigned i = 0; i < 5; i++) {
        make(&watch, constants, 2, 50);
    }
    assert_int_equal(watch_bytes_used(&watch), 90);
    assert_int_equal(varve_remat_check(watch.remat, NULL), 0);
    varve_remat_close(watch.remat);
}

/* ---- storages as blocks of an allocator: each resident one with bytes has one, and no other does ---- */

#define MIB (UINT64_C(1) << 20)

/* An output is evicted for room while the operator makes it a second time: the second block is its own then. */
static void test_output_evicted_in_its_run(void **state)
{
    const uint64_t sizes[] = {MIB, MIB};
    const int32_t aliases[] = {-1, -1};
    struct varve_remat_op op = {.sizes = sizes, .aliases = aliases, .output_count = 2, .cost_ns = 1};
    struct pool *pool = *state;
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.is_live = true;
    struct varve_remat_blocks *blocks;
    assert_int_equal(varve_remat_blocks_open(pool->alloc, &blocks, NULL), VARVE_OK);
    varve_remat_blocks_drive(blocks, &options.driver);
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, NULL), VARVE_OK);
    assert_int_equal(varve_remat_blocks_attach(blocks, remat, NULL), VARVE_OK);
    uint32_t outputs[2], locked;
    assert_int_equal(varve_remat_compute(remat, &op, outputs, NULL), VARVE_OK);
    op.output_count = 1;
    assert_int_equal(varve_remat_compute(remat, &op, &locked, NULL), VARVE_OK);
    varve_remat_lock(remat, locked);
    assert_int_equal(varve_remat_evict(remat, outputs[1], NULL), VARVE_OK);
    assert_int_equal(varve_alloc_set_allocated_limit(pool->alloc, 3 * MIB), VARVE_OK);
    assert_int_equal(varve_remat_materialize(remat, outputs[1], NULL), VARVE_OK);
    assert_true(varve_remat_is_defined(remat, outputs[0]) && varve_remat_is_defined(remat, outputs[1]));
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 3 * MIB);
    assert_int_equal(varve_remat_evict(remat, outputs[0], NULL), VARVE_OK);
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 2 * MIB);
    assert_int_equal(varve_remat_check(remat, NULL), VARVE_OK);
    varve_remat_close(remat);
    varve_remat_blocks_close(blocks);
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_output_evicted_in_its_run, pool_sim),
};

TEST_CASES(cases)
