/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs that a runtime writes: the reader of logs takes them, and a planner that plays them meets what the runtime did.
 * Costs: 1 s
 */
#include "support/storage/runtime_rules.h"

#include "analysis/dtr/dtr_log.h"
#include "analysis/dtr/dtr_play.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static int log_setup(void **state)
{
    snprintf(path, sizeof(path), "/tmp/varve-test-log-XXXXXX");
    int file = mkstemp(path);
    return file < 0 || close(file) != 0 ? -1 : pool_setup(state);
}

static int log_teardown(void **state)
{
    (void)unlink(path);
    return pool_teardown(state);
}

static struct dtr_log *log_read(void)
{
    struct dtr_log *log;
    runtime_ok(dtr_log_read(path, NULL, &log, &runtime_message));
    runtime_ok(dtr_log_check(log, &runtime_message));
    return log;
}

static uint32_t calls_of(const struct dtr_log *log, const char *name)
{
    uint32_t calls = 0;
    for (uint32_t i = 0; i < log->op_count; i++) {
        calls += strcmp(dtr_log_name(log, log->ops[i].name), name) == 0;
    }
    return calls;
}

/* What varve dtr makes of the log without a budget. */
static struct varve_remat_counters played(const struct dtr_log *log)
{
    const struct dtr_options options = {.heuristic = varve_remat_heuristic_find("dtr"),
                                        .budget = VARVE_REMAT_UNLIMITED,
                                        .remat_limit_ns = VARVE_REMAT_UNLIMITED};
    struct dtr_result result;
    runtime_ok(dtr_play(log, &options, &result, &runtime_message));
    assert_int_equal(result.status, DTR_OK);
    return result.counters;
}

/* ---- a program's log ---- */

/* Every kind of line, from the first operator on: what the player holds at most, and what it runs, is what the
 * runtime did. */
static void test_played(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    const struct varve_recipe both = runtime_recipe("both", runtime_call_both, 2, 2);
    const int64_t shape[] = {8, 300};
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 2, shape};
    const struct varve_storage_options options = {.memory = pool->memory};
    runtime_ok(varve_runtime_new_log(runtime, path, &runtime_message));
    struct varve_storage *storage;
    runtime_ok(
        varve_storage_full(&options, VARVE_DTYPE_F32, 1, runtime_count, runtime_real(2), &storage, &runtime_message));
    struct varve_tensor *constant, *in[2], *out[2], *matrix, *turned, *product;
    runtime_ok(varve_runtime_checkpoint(runtime, storage, &constant, &runtime_message));
    runtime_ok(varve_storage_release(storage, &runtime_message));
    in[0] = runtime_full(runtime, 1024, 5);
    runtime_ok(varve_tensor_copy(constant, &in[1], &runtime_message));
    runtime_ok(varve_runtime_run(runtime, &both, in, out, &runtime_message));
    varve_tensor_release(in[0]);
    runtime_ok(varve_tensor_op_normal(runtime, &type, 1, 2, 0, 1, &matrix, &runtime_message));
    runtime_ok(varve_tensor_transpose(matrix, 0, 1, &turned, &runtime_message));
    runtime_ok(varve_tensor_op_matmul(matrix, turned, &product, &runtime_message));
    runtime_release_all((struct varve_tensor *[]){matrix, turned}, 2);
    varve_runtime_annotate_log(runtime, "BACKWARD");
    runtime_ok(varve_tensor_assign(in[1], out[1], &runtime_message));
    runtime_release_all(out, 2);
    runtime_ok(varve_tensor_op_add(in[1], constant, &out[0], &runtime_message));
    runtime_ok(varve_tensor_pin(out[0], &runtime_message));
    struct varve_remat_counters seen = runtime_counters(runtime);
    runtime_ok(varve_runtime_new_log(runtime, NULL, &runtime_message));
    struct dtr_log *log = log_read();
    struct varve_remat_counters counters = played(log);
    assert_int_equal(counters.operators, seen.operators);
    assert_int_equal(counters.model_compute_ns, seen.model_compute_ns);
    assert_int_equal(counters.max_used_bytes, seen.max_used_bytes);
    assert_int_equal(counters.used_bytes, seen.used_bytes);
    assert_int_equal(log->constants, 1);
    assert_int_equal(log->pins, 1);
    assert_int_equal(log->copies, 1);
    assert_int_equal(log->copies_from, 1);
    assert_int_equal(log->releases, 5);
    assert_int_equal(log->unknown_releases, 0);
    assert_int_equal(calls_of(log, "both"), 1);
    assert_int_equal(calls_of(log, "view"), 1);
    assert_true(log->ops[log->op_count - 1].is_backward);
    assert_false(log->ops[log->op_count - 2].is_backward);
    dtr_log_free(log);
    runtime_release_all((struct varve_tensor *[]){constant, in[1], out[0], product}, 4);
    runtime_end(runtime);
}

/* The second step of a training; what was made before it is a constant of it. */
static void test_training(void **state)
{
    struct training training = runtime_training(*state, true);
    training.log = path;
    struct training_result result;
    runtime_ok(training_run(&training, &result, &runtime_message));
    struct dtr_log *log = log_read();
    assert_true(log->has_start);
    assert_int_equal(calls_of(log, "matmul"), 3 * training.layers);
    assert_int_equal(calls_of(log, "exp"), training.layers);
    assert_int_equal(log->pins, training.layers);
    struct varve_remat_counters counters = played(log);
    assert_int_equal(counters.operators, log->op_count);
    assert_int_equal(counters.max_used_bytes, result.peak_bytes);
    dtr_log_free(log);
}

/* ---- texts and ends ---- */

static void test_names(void **state)
{
    static const char *const names[] = {"a \"quoted\\ one", "gr\xc3\xbc\xc3\x9f dich \xe2\x88\x91 \xf0\x9f\x98\x80",
                                        "tab\there\x7f"};
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    struct varve_tensor *in[2] = {runtime_full(runtime, 1024, 5)}, *out[2];
    in[1] = in[0];
    varve_runtime_annotate_log(runtime, "nobody reads this");
    runtime_ok(varve_runtime_new_log(runtime, path, &runtime_message));
    for (unsigned i = 0; i < 3; i++) {
        const struct varve_recipe both = runtime_recipe(names[i], runtime_call_both, 2, 2);
        varve_runtime_annotate_log(runtime, names[i]);
        runtime_ok(varve_runtime_run(runtime, &both, in, out, &runtime_message));
        runtime_release_all(out, 2);
    }
    runtime_release_all(in, 1);
    runtime_end(runtime); /* the log ends, too */
    struct dtr_log *log = log_read();
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(calls_of(log, names[i]), 1);
    }
    for (size_t i = 0, mark = 0; i < log->end_event; i++) {
        if (log->events[i].kind == DTR_EVENT_MARK) {
            assert_string_equal(dtr_log_name(log, log->events[i].id), names[mark++]);
        }
    }
    dtr_log_free(log);
}

static void test_not_utf8(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    const struct varve_recipe recipe = runtime_recipe_world(*state, "cut \xe2\x88 short");
    runtime_ok(varve_runtime_new_log(runtime, path, &runtime_message));
    struct varve_tensor *out;
    runtime_ok(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message));
    varve_tensor_release(out);
    runtime_end(runtime);
    struct dtr_log *log = log_read();
    assert_int_equal(log->op_count, 1);
    dtr_log_free(log);
}

static void test_no_file(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    runtime_ok(varve_runtime_new_log(runtime, path, &runtime_message));
    runtime_failed(varve_runtime_new_log(runtime, "/nowhere/at/all", &runtime_message), VARVE_ERROR_IO,
                   "/nowhere/at/all");
    struct varve_tensor *one = runtime_full(runtime, 1024, 1); /* in the log before, still */
    varve_tensor_release(one);
    runtime_end(runtime);
    struct dtr_log *log = log_read();
    assert_int_equal(calls_of(log, "fill"), 1);
    dtr_log_free(log);
}

/* In a process of its own, which has a pool of its own. */
static void die_after(unsigned operators)
{
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 1, runtime_count};
    struct varve_runtime_options options = {.budget = 0};
    struct pool pool;
    bool is_done = pool_open(&pool, &pool_host, NULL) == VARVE_OK;
    options.memory = pool.memory;
    struct varve_runtime *runtime;
    is_done = is_done && varve_runtime_open(&options, &runtime, NULL) == VARVE_OK &&
              varve_runtime_new_log(runtime, path, NULL) == VARVE_OK;
    struct varve_tensor *one;
    for (unsigned i = 0; i < operators && is_done; i++) {
        is_done = varve_tensor_op_fill(runtime, &type, runtime_real(i), &one, NULL) == VARVE_OK;
        varve_tensor_release(is_done ? one : NULL);
    }
    kill(getpid(), is_done ? SIGKILL : SIGABRT);
}

/* A program that is killed leaves what it had done, in whole lines. */
static void test_killed(void **state)
{
    pid_t child = fork();
    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        die_after(100);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct dtr_log *log = log_read();
    assert_int_equal(calls_of(log, "fill"), 100);
    assert_int_equal(log->releases, 100);
    dtr_log_free(log);
}

#define LOG_CASE(function)                                                                                  \
    {                                                                                                       \
        .name = #function, .test_func = (function), .setup_func = log_setup, .teardown_func = log_teardown, \
        .initial_state = (void *)(uintptr_t)&pool_host                                                      \
    }

static const struct CMUnitTest cases[] = {
    LOG_CASE(test_played),   LOG_CASE(test_training), LOG_CASE(test_names),
    LOG_CASE(test_not_utf8), LOG_CASE(test_no_file),  LOG_CASE(test_killed),
};

TEST_CASES(cases)
