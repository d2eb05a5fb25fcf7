/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live planners under budgets that the locks of waiting operators leave no room in: these are opened, and taken again before the operator
 * runs. Operations that fail in the middle leave no lock, and nothing of what they were to make.
 */
#include "programs.h"
#include "storage/remat/planner.h"

#include <stdlib.h>
#include <string.h>

/* A driver that looks at the inputs of each run, fails in one run, and wants more room in the middle of each. */
struct watch {
    struct varve_remat *remat;
    uint64_t runs, runs_until_failure, opened; /* opened: runs under which waiting operators had no locks */
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
    watch->opened += watch->remat->unlock_count > 0;
    for (unsigned i = 0; i < run->input_count; i++) {
        assert_true(varve_remat_is_defined(watch->remat, run->inputs[i]));
        assert_true(watch->remat->graph.storages[varve_remat_storage(watch->remat, run->inputs[i])].locks >
                    0);
    }
    return 0;
}

static void watch_forget_op(void *context, void *user)
{
    struct watch *watch = context;

    watch->ops--;
    free(user);
}

static void open_watched(struct watch *watch, uint64_t budget)
{
    struct varve_remat_options options;

    *watch = (struct watch){.remat = NULL};
    varve_remat_options_init(&options);
    options.heuristic = varve_remat_heuristic_find("dtr-eq");
    options.budget = budget;
    options.is_live = true;
    options.driver =
        (struct varve_remat_driver){.context = watch, .run = watch_run, .forget_op = watch_forget_op};
    assert_int_equal(varve_remat_open(&options, &watch->remat, NULL), 0);
}

/* One output of its own, or a view of input 0 for `bytes` of 0. */
static int compute(struct watch *watch, const uint32_t *inputs, unsigned count, uint64_t bytes,
                   uint32_t *output_out)
{
    const struct varve_remat_op op = {.inputs = inputs,
                                      .sizes = &bytes,
                                      .aliases = (const int32_t[]){bytes == 0 ? 0 : -1},
                                      .input_count = count,
                                      .output_count = 1,
                                      .cost_ns = 1,
                                      .user = malloc(1)};

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

/* A view that fails while its storage is locked goes at once, and its operator with it: whoever has it as `user` may free it. */
static void test_failed_view_of_locked(void **state)
{
    struct watch watch;
    uint32_t base, view = 0;

    (void)state;
    open_watched(&watch, VARVE_REMAT_UNLIMITED);
    base = make(&watch, NULL, 0, 10);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_view_of_locked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
