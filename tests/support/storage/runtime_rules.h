/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What a runtime does in any memory of an allocator (pool.h): values are the same whatever is evicted, the budget
 * holds, errors name their operator and leave the runtime usable. Elements are looked at by way of host memory.
 * RUNTIME_RULES has the list.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_RUNTIME_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_RUNTIME_RULES_H

#include <cmocka.h>

#include "support/random.h"
#include "support/storage/pool.h"
#include "support/storage/training.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RUNTIME_MIB (UINT64_C(1) << 20)

static struct varve_message runtime_message;

static inline void runtime_ok(int error)
{
    if (error != VARVE_OK) {
        fail_msg("%s: %s", varve_strerror(error), runtime_message.text);
    }
}

/// The call failed so, and what it said has the text.
static inline void runtime_failed(int error, int expected, const char *text)
{
    if (error != expected || strstr(runtime_message.text, text) == NULL) {
        fail_msg("%s: %s; expected %s: … %s", varve_strerror(error), runtime_message.text, varve_strerror(expected),
                 text);
    }
    runtime_message.text[0] = '\0';
}

static inline struct varve_runtime *runtime_start(const struct pool *pool, struct varve_runtime_options options)
{
    options.memory = pool->memory;
    struct varve_runtime *runtime;
    runtime_ok(varve_runtime_open(&options, &runtime, &runtime_message));
    return runtime;
}

static inline void runtime_end(struct varve_runtime *runtime)
{
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    runtime_ok(varve_runtime_close(runtime, &runtime_message));
}

static inline void runtime_release_all(struct varve_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        varve_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static inline struct varve_remat_counters runtime_counters(const struct varve_runtime *runtime)
{
    struct varve_remat_counters counters;
    varve_runtime_get_counters(runtime, &counters);
    return counters;
}

static inline uint64_t runtime_allocated(const struct pool *pool)
{
    return (uint64_t)varve_alloc_memory_allocated(pool->alloc);
}

static inline struct varve_scalar runtime_real(double value)
{
    return (struct varve_scalar){.kind = VARVE_SCALAR_REAL, .real = value};
}

/// A vector of f32, each element that number.
static inline struct varve_tensor *runtime_full(struct varve_runtime *runtime, int64_t count, double value)
{
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 1, &count};
    struct varve_tensor *tensor;
    runtime_ok(varve_tensor_op_fill(runtime, &type, runtime_real(value), &tensor, &runtime_message));
    return tensor;
}

/// Every element of the tensor, a vector of f32, is that number.
static inline void runtime_expect(struct varve_tensor *tensor, float expected)
{
    struct varve_storage *storage, *host;
    runtime_ok(varve_tensor_borrow(tensor, &storage, &runtime_message));
    runtime_ok(varve_storage_to(storage, varve_memory_host(), VARVE_DTYPE_F32, &host, &runtime_message));
    const float *seen = varve_storage_data(host);
    for (int64_t i = 0; i < (int64_t)varve_storage_count(host); i++) {
        if (seen[i] != expected) {
            fail_msg("element %" PRId64 " is %g, not %g", i, (double)seen[i], (double)expected);
        }
    }
    runtime_ok(varve_storage_release(host, &runtime_message));
    varve_tensor_return(tensor);
}

/* ---- training ---- */

#define OTHER_LAYERS 12 /* of the networks that all heuristics are tried on */

static inline struct training runtime_training(const struct pool *pool, bool is_residual)
{
    return (struct training){.is_residual = is_residual,
                             .layers = 24,
                             .batch = 256,
                             .width = 8,
                             .options = {.memory = pool->memory, .seed = 7}};
}

/* Once more with a share of the memory: the same losses, below the budget. Returns whether the budget did: which of
 * several storages goes depends on how long operators take, and what a chain of recomputations holds on to may be too
 * much. */
static inline bool runtime_train_again(struct training training, const struct training_result *whole, unsigned percent)
{
    unsigned steps = 0;
    training.options.budget = whole->peak_bytes * percent / 100;
    struct training_result result;
    int error = training_run(&training, &result, &runtime_message);
    while (steps < TRAINING_STEPS && result.losses[steps] != 0) {
        steps++;
    }
    assert_memory_equal(result.losses, whole->losses, steps * sizeof(float));
    assert_true(result.peak_bytes <= training.options.budget);
    assert_true(error != VARVE_OK || result.counters.failures == 0);
    if (error != VARVE_OK) {
        runtime_failed(error, VARVE_ERROR_NO_MEMORY, "operator ");
        return false;
    }
    assert_int_equal(steps, TRAINING_STEPS);
    assert_int_equal(result.counters.operators, whole->counters.operators);
    if (percent < 100) {
        assert_true(result.counters.evictions_budget > 0);
        assert_true(result.counters.remats_direct > 0);
        assert_true(result.counters.remat_compute_ns > 0);
    } else {
        assert_int_equal(result.counters.remats_direct, 0);
    }
    return true;
}

/* Under each heuristic, by each search that it can do with. Returns how many of the budgets did. */
static inline unsigned runtime_train_by_all(struct training training, const struct training_result *whole,
                                            unsigned percent)
{
    static const char *const heuristics[] = {"dtr", "dtr-eq", "dtr-local", "lru", "size"};
    unsigned did = 0;
    for (size_t i = 0; i < sizeof(heuristics) / sizeof(heuristics[0]); i++) {
        for (enum varve_remat_search search = VARVE_REMAT_SEARCH_SCAN; search <= VARVE_REMAT_SEARCH_KINETIC; search++) {
            training.options.heuristic = heuristics[i];
            training.options.search = search;
            if (strcmp(heuristics[i], "lru") != 0 || search != VARVE_REMAT_SEARCH_SAMPLE) {
                did += runtime_train_again(training, whole, percent);
            }
        }
    }
    return did;
}

/* The usual heuristic finds its way at each of the budgets; the others may lack memory. */
static inline void runtime_train(const struct pool *pool, bool is_residual)
{
    static const unsigned percents[] = {100, 70, 50, 35};
    struct training training = runtime_training(pool, is_residual);
    struct training_result whole;
    runtime_ok(training_run(&training, &whole, &runtime_message));
    assert_int_equal(whole.counters.remats_direct, 0);
    assert_true(whole.losses[TRAINING_STEPS - 1] < whole.losses[0]); /* it learns */
    for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        training.options.checks_values = percents[i] == 70;
        assert_true(runtime_train_again(training, &whole, percents[i]));
    }
    training.layers = OTHER_LAYERS;
    training.options.checks_values = false;
    runtime_ok(training_run(&training, &whole, &runtime_message));
    assert_true(runtime_train_by_all(training, &whole, 70) > 0);
}

static inline void rule_runtime_perceptron(void **state)
{
    runtime_train(*state, false);
}

static inline void rule_runtime_residual(void **state)
{
    runtime_train(*state, true);
}

/* ---- functions of the program's ---- */

/* What the functions below find here. */
static struct {
    struct varve_alloc *alloc;
    uint64_t workspace; /* asked for in one piece */
    int error;          /* returned */
    const char *reason; /* NULL: none is given */
    double value;       /* what a function that breaks the rules reads */
    unsigned calls;
} runtime_world;

static inline int runtime_call_both(const void *arguments, struct varve_storage *const *inputs,
                                    struct varve_storage *const *outputs, uint64_t stream,
                                    struct varve_message *message)
{
    int error = varve_storage_op_add(outputs[0], inputs[0], inputs[1], stream, message);
    (void)arguments;
    runtime_world.calls++;
    return error == VARVE_OK ? varve_storage_op_sub(outputs[1], inputs[0], inputs[1], stream, message) : error;
}

static inline int runtime_call_increase(const void *arguments, struct varve_storage *const *inputs,
                                        struct varve_storage *const *outputs, uint64_t stream,
                                        struct varve_message *message)
{
    (void)arguments;
    return varve_storage_op_add(outputs[0], outputs[0], inputs[1], stream, message);
}

static inline int runtime_call_fill(const void *arguments, struct varve_storage *const *inputs,
                                    struct varve_storage *const *outputs, uint64_t stream,
                                    struct varve_message *message)
{
    (void)inputs;
    assert_int_equal((uintptr_t)arguments % 16, 0);
    return varve_storage_fill_on(outputs[0], runtime_real(*(const double *)arguments), stream, message);
}

/* As runtime_world says: with memory in between, an error, a number that changes. */
static inline int runtime_call_world(const void *arguments, struct varve_storage *const *inputs,
                                     struct varve_storage *const *outputs, uint64_t stream,
                                     struct varve_message *message)
{
    (void)arguments;
    (void)inputs;
    runtime_world.calls++;
    struct varve_allocation allocation;
    if (runtime_world.workspace > 0 &&
        varve_alloc_allocate(runtime_world.alloc, runtime_world.workspace, stream, &allocation, NULL) == VARVE_OK) {
        (void)varve_alloc_free(runtime_world.alloc, allocation, NULL);
    }
    if (runtime_world.error != VARVE_OK) {
        return runtime_world.reason == NULL
                   ? runtime_world.error
                   : varve_message_set(message, runtime_world.error, "%s", runtime_world.reason);
    }
    return varve_storage_fill_on(outputs[0], runtime_real(runtime_world.value), stream, message);
}

static const int64_t runtime_count[] = {1024}; /* elements: a page of f32 */
static const struct varve_tensor_type runtime_vectors[VARVE_RECIPE_OUTPUTS_MAX + 1] = {
    {VARVE_DTYPE_F32, 1, runtime_count}, {VARVE_DTYPE_F32, 1, runtime_count}};

static inline struct varve_recipe runtime_recipe(const char *name,
                                                 int (*run)(const void *, struct varve_storage *const *,
                                                            struct varve_storage *const *, uint64_t,
                                                            struct varve_message *),
                                                 unsigned input_count, unsigned output_count)
{
    return (struct varve_recipe){.name = name,
                                 .run = run,
                                 .outputs = runtime_vectors,
                                 .input_count = input_count,
                                 .output_count = output_count,
                                 .cost_ns = 1000};
}

static inline struct varve_recipe runtime_recipe_world(const struct pool *pool, const char *name)
{
    memset(&runtime_world, 0, sizeof(runtime_world));
    runtime_world.alloc = pool->alloc;
    return runtime_recipe(name, runtime_call_world, 0, 1);
}

static inline void runtime_evict(struct varve_tensor *tensor)
{
    runtime_ok(varve_tensor_evict(tensor, &runtime_message));
    assert_false(varve_tensor_is_resident(tensor));
}

/* All outputs come back together, and as far as somebody has them. */
static inline void rule_runtime_outputs(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    const struct varve_recipe both = runtime_recipe("both", runtime_call_both, 2, 2);
    struct varve_tensor *in[] = {runtime_full(runtime, 1024, 5), runtime_full(runtime, 1024, 3)}, *out[2];
    runtime_world.calls = 0;
    runtime_ok(varve_runtime_run(runtime, &both, in, out, &runtime_message));
    runtime_expect(out[0], 8);
    runtime_expect(out[1], 2);
    assert_int_equal(runtime_world.calls, 1);
    runtime_evict(out[0]);
    runtime_evict(out[1]);
    runtime_expect(out[1], 2);
    assert_true(varve_tensor_is_resident(out[0]));
    assert_int_equal(runtime_world.calls, 2);
    assert_int_equal(runtime_counters(runtime).remats_direct, 1);
    assert_int_equal(runtime_counters(runtime).remats_collateral, 1);
    runtime_evict(out[0]);
    runtime_expect(out[0], 8);
    assert_int_equal(runtime_counters(runtime).duplicates, 1);
    runtime_expect(out[1], 2);
    uint64_t block = runtime_allocated(pool) / 4; /* two inputs, two outputs */
    runtime_release_all(&out[1], 1);
    assert_int_equal(runtime_allocated(pool), 3 * block);
    runtime_evict(out[0]);
    runtime_evict(in[0]);
    runtime_expect(out[0], 8);
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    runtime_release_all(in, 2);
    runtime_evict(out[0]);
    runtime_expect(out[0], 8); /* by operators whose tensors nobody has any more */
    runtime_release_all(out, 1);
    assert_int_equal(runtime_counters(runtime).storages, 0);
    runtime_end(runtime);
}

static inline void rule_runtime_in_place(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    struct varve_recipe increase = runtime_recipe("increase", runtime_call_increase, 2, 1);
    struct varve_tensor *in[] = {runtime_full(runtime, 1024, 5), runtime_full(runtime, 1024, 3)}, *out;
    struct varve_tensor *other[] = {runtime_full(runtime, 1000, 5), in[1]};
    increase.is_in_place = true;
    runtime_ok(varve_runtime_run(runtime, &increase, in, &out, &runtime_message));
    runtime_expect(out, 8);
    runtime_expect(in[0], 5);
    runtime_evict(out);
    runtime_evict(in[0]);
    runtime_expect(out, 8);
    runtime_expect(in[0], 5);
    runtime_release_all(&out, 1);
    runtime_failed(varve_runtime_run(runtime, &increase, other, &out, &runtime_message), VARVE_ERROR_INVALID,
                   "operator increase changes input 0");
    increase.input_count = 0;
    runtime_failed(varve_runtime_run(runtime, &increase, in, &out, &runtime_message), VARVE_ERROR_INVALID,
                   "operator increase changes input 0");
    runtime_release_all(other, 1);
    runtime_release_all(in, 2);
    runtime_end(runtime);
}

static inline void rule_runtime_arguments(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    char name[] = "fill it";
    double value = 7;
    int64_t count = 100;
    struct varve_tensor_type type = {VARVE_DTYPE_F32, 1, &count};
    struct varve_recipe fill = runtime_recipe(name, runtime_call_fill, 0, 1);
    fill.outputs = &type;
    fill.arguments = &value;
    fill.argument_bytes = sizeof(value);
    struct varve_tensor *out;
    runtime_ok(varve_runtime_run(runtime, &fill, NULL, &out, &runtime_message));
    value = 8;
    count = -1;
    memset(name, 'x', sizeof(name));
    memset(&type, 0, sizeof(type));
    memset(&fill, 0, sizeof(fill));
    runtime_evict(out);
    runtime_expect(out, 7);
    varve_tensor_release(out);
    runtime_end(runtime);
}

/* What can't be run at all. */
static inline void rule_runtime_calls_refused(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    struct pool beside_pool;
    const int64_t negative[] = {-1};
    const struct varve_tensor_type wrong = {VARVE_DTYPE_F32, 1, negative};
    struct varve_recipe both = runtime_recipe("both", runtime_call_both, 2, 2);
    struct varve_tensor *in[VARVE_RECIPE_INPUTS_MAX + 1] = {runtime_full(runtime, 1024, 5)}, *out[2] = {NULL};
    runtime_ok(pool_open(&beside_pool, ((const struct pool *)*state)->kind, &runtime_message));
    struct varve_runtime *beside = runtime_start(&beside_pool, (struct varve_runtime_options){.budget = 0});
    in[1] = runtime_full(beside, 1024, 1);
    runtime_failed(varve_runtime_run(runtime, &both, in, out, &runtime_message), VARVE_ERROR_INVALID,
                   "operator both: input 1 is of another runtime");
    assert_true(varve_tensor_op_add(in[0], in[1], out, &runtime_message) == VARVE_ERROR_INVALID);
    assert_true(varve_tensor_assign(in[0], in[1], &runtime_message) == VARVE_ERROR_INVALID);
    runtime_release_all(&in[1], 1);
    runtime_end(beside);
    runtime_ok(pool_close(&beside_pool, &runtime_message));
    for (unsigned i = 1; i <= VARVE_RECIPE_INPUTS_MAX; i++) {
        in[i] = in[0];
    }
    for (unsigned i = 0; i < 3; i++) { /* too many of either, no output */
        static const char *const texts[] = {"both: 65 inputs and 2 outputs", "both: 64 inputs and 17 outputs", "both"};
        both.input_count = VARVE_RECIPE_INPUTS_MAX + (i == 0);
        both.output_count = i == 0 ? 2 : i == 1 ? VARVE_RECIPE_OUTPUTS_MAX + 1 : 0;
        runtime_failed(varve_runtime_run(runtime, &both, in, out, &runtime_message), VARVE_ERROR_INVALID, texts[i]);
    }
    both.output_count = 1;
    both.outputs = &wrong;
    assert_true(varve_runtime_run(runtime, &both, in, out, &runtime_message) == VARVE_ERROR_INVALID);
    assert_null(out[0]);
    both.output_count = 2;
    both.outputs = runtime_vectors;
    runtime_ok(varve_runtime_run(runtime, &both, in, out, &runtime_message));
    runtime_expect(out[0], 10);
    runtime_release_all(out, 2);
    runtime_release_all(in, 1);
    runtime_end(runtime);
}

/* The error is the function's, with its name: when it runs first, and when it runs for somebody else. */
static inline void rule_runtime_function_fails(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    const struct varve_recipe recipe = runtime_recipe_world(pool, "brittle");
    struct varve_tensor *out = NULL, *sum = NULL;
    uint64_t before = runtime_allocated(pool);
    runtime_world.error = VARVE_ERROR_IO;
    runtime_failed(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message), VARVE_ERROR_IO,
                   varve_strerror(VARVE_ERROR_IO));
    runtime_world.reason = "no paper";
    runtime_failed(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message), VARVE_ERROR_IO,
                   "operator brittle: no paper");
    assert_null(out);
    assert_int_equal(runtime_allocated(pool), before);
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    runtime_world.error = VARVE_OK;
    runtime_world.value = 4;
    runtime_ok(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message));
    runtime_evict(out);
    runtime_world.error = VARVE_ERROR_IO;
    runtime_failed(varve_tensor_op_add(out, out, &sum, &runtime_message), VARVE_ERROR_IO, "operator brittle: no paper");
    assert_null(sum);
    assert_false(varve_tensor_is_resident(out));
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    assert_int_equal(runtime_allocated(pool), before);
    runtime_world.error = VARVE_OK;
    runtime_ok(varve_tensor_op_add(out, out, &sum, &runtime_message));
    runtime_expect(sum, 8);
    varve_tensor_release(out);
    varve_tensor_release(sum);
    runtime_end(runtime);
}

/* A function that makes something else the second time is named, as often as it does. */
static inline void rule_runtime_other_values(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.checks_values = true});
    const struct varve_recipe recipe = runtime_recipe_world(pool, "fickle");
    struct varve_tensor *out, *sum = NULL;
    runtime_world.value = 4;
    runtime_ok(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message));
    runtime_evict(out);
    runtime_expect(out, 4);
    runtime_evict(out);
    runtime_world.value = 5;
    for (unsigned i = 0; i < 3; i++) {
        runtime_failed(varve_tensor_op_add(out, out, &sum, &runtime_message), VARVE_ERROR_CORRUPT, "operator fickle");
        assert_null(sum);
        assert_false(varve_tensor_is_resident(out));
        runtime_ok(varve_runtime_check(runtime, &runtime_message));
    }
    runtime_world.value = 4;
    runtime_ok(varve_tensor_op_add(out, out, &sum, &runtime_message));
    runtime_expect(sum, 8);
    varve_tensor_release(out);
    varve_tensor_release(sum);
    runtime_end(runtime);
}

/* A function has what it declares, also where the budget is just that, and no more, also without a budget. */
static inline void runtime_workspace(const struct pool *pool, uint64_t budget)
{
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = budget});
    struct varve_recipe recipe = runtime_recipe_world(pool, "spacious");
    struct varve_tensor *other = runtime_full(runtime, 1024, 1), *out = NULL;
    runtime_world.value = 4;
    recipe.workspace_bytes = runtime_world.workspace = RUNTIME_MIB / 2;
    runtime_ok(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message));
    assert_int_equal(runtime_counters(runtime).evictions_budget, budget != 0);
    runtime_evict(out);
    runtime_expect(other, 1);
    runtime_expect(out, 4);
    runtime_evict(out);
    runtime_world.workspace++;
    for (unsigned i = 0; i < 2; i++) {
        struct varve_storage *storage;
        runtime_failed(varve_tensor_borrow(out, &storage, &runtime_message), VARVE_ERROR_NO_MEMORY,
                       "operator spacious asked for more than the 524288 bytes");
        assert_false(varve_tensor_is_resident(out));
        runtime_ok(varve_runtime_check(runtime, &runtime_message));
    }
    varve_tensor_release(out);
    out = NULL;
    recipe.workspace_bytes = 0;
    runtime_failed(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message), VARVE_ERROR_NO_MEMORY,
                   "operator spacious");
    assert_null(out);
    runtime_expect(other, 1);
    varve_tensor_release(other);
    runtime_end(runtime);
}

static inline void rule_runtime_workspace(void **state)
{
    runtime_workspace(*state, 0);
    runtime_workspace(*state, RUNTIME_MIB / 2 + 4096);
}

/* Without a budget a device may be full of what can be evicted: a function that asks for what it has declared gets
 * it. */
static inline void rule_runtime_full_device(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    struct varve_recipe recipe = runtime_recipe_world(pool, "spacious");
    struct varve_tensor *others[5], *out = NULL;
    for (unsigned i = 0; i < 5; i++) { /* 60 of POOL_LIMIT's 64 MiB */
        others[i] = runtime_full(runtime, 12 * RUNTIME_MIB / 4, i);
    }
    recipe.workspace_bytes = runtime_world.workspace = 24 * RUNTIME_MIB;
    runtime_ok(varve_runtime_run(runtime, &recipe, NULL, &out, &runtime_message));
    assert_true(runtime_counters(runtime).evictions_allocator > 0);
    for (unsigned i = 0; i < 5; i++) {
        runtime_expect(others[i], (float)i);
    }
    runtime_release_all(others, 5);
    varve_tensor_release(out);
    runtime_end(runtime);
}

/* ---- handles ---- */

static inline void rule_runtime_handles(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    struct varve_tensor *one = runtime_full(runtime, 64, 1), *two = runtime_full(runtime, 64, 2), *copy;
    runtime_ok(varve_tensor_copy(one, &copy, &runtime_message));
    runtime_ok(varve_tensor_assign(one, two, &runtime_message));
    runtime_ok(varve_tensor_assign(one, one, &runtime_message));
    runtime_expect(one, 2);
    runtime_expect(copy, 1);
    varve_tensor_release(two);
    runtime_expect(one, 2);
    runtime_evict(one);
    assert_int_equal(varve_tensor_evict(one, &runtime_message), VARVE_ERROR_BUSY);
    struct varve_storage *storage;
    runtime_ok(varve_tensor_borrow(one, &storage, &runtime_message));
    runtime_ok(varve_tensor_borrow(one, &storage, &runtime_message));
    varve_tensor_return(one);
    assert_int_equal(varve_tensor_evict(one, &runtime_message), VARVE_ERROR_BUSY);
    assert_int_equal(varve_tensor_assign(one, copy, &runtime_message), VARVE_ERROR_BUSY);
    varve_tensor_return(one);
    runtime_ok(varve_tensor_evict(one, &runtime_message));
    runtime_ok(varve_tensor_decheckpoint(one, &storage, &runtime_message));
    assert_int_equal(varve_tensor_evict(one, &runtime_message), VARVE_ERROR_BUSY);
    varve_tensor_release(one);
    runtime_ok(varve_storage_check(storage, &runtime_message));
    runtime_ok(varve_storage_release(storage, &runtime_message));
    runtime_ok(varve_tensor_pin(copy, &runtime_message));
    runtime_ok(varve_tensor_copy(copy, &two, &runtime_message));
    runtime_ok(varve_tensor_pin(two, &runtime_message));
    varve_tensor_release(copy);
    assert_int_equal(varve_tensor_evict(two, &runtime_message), VARVE_ERROR_BUSY);
    runtime_expect(two, 1);
    runtime_failed(varve_runtime_close(runtime, &runtime_message), VARVE_ERROR_BUSY, "1 tensors");
    varve_tensor_release(two);
    varve_tensor_release(NULL);
    assert_int_equal(runtime_allocated(pool), 0);
    runtime_end(runtime);
    runtime_ok(varve_runtime_close(NULL, &runtime_message));
}

/* A storage of the program's stays what it is, and as long as somebody needs it. */
static inline void rule_runtime_constants(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    const struct varve_storage_options options = {.memory = pool->memory};
    struct varve_storage *storage, *view, *back;
    runtime_ok(
        varve_storage_full(&options, VARVE_DTYPE_F32, 1, runtime_count, runtime_real(3), &storage, &runtime_message));
    runtime_ok(varve_storage_slice(storage, 0, 10, 20, 2, &view, &runtime_message));
    struct varve_tensor *constant, *part, *sum;
    runtime_ok(varve_runtime_checkpoint(runtime, storage, &constant, &runtime_message));
    runtime_ok(varve_runtime_checkpoint(runtime, view, &part, &runtime_message));
    runtime_ok(varve_storage_release(view, &runtime_message));
    runtime_expect(part, 3);
    assert_int_equal(varve_tensor_evict(constant, &runtime_message), VARVE_ERROR_BUSY);
    runtime_ok(varve_tensor_decheckpoint(constant, &back, &runtime_message));
    assert_ptr_equal(back, storage);
    runtime_ok(varve_storage_release(back, &runtime_message));
    runtime_ok(varve_storage_release(storage, &runtime_message));
    runtime_ok(varve_tensor_op_add(part, part, &sum, &runtime_message));
    varve_tensor_release(constant);
    varve_tensor_release(part);
    runtime_evict(sum);
    runtime_expect(sum, 6);
    varve_tensor_release(sum);
    assert_int_equal(runtime_allocated(pool), 0);
    runtime_end(runtime);
}

/* Views go with their storage; whose elements they have then is the random programs' matter. */
static inline void rule_runtime_views(void **state)
{
    const struct pool *pool = *state;
    const int64_t shape[] = {4, 8};
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 2, shape};
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    struct varve_tensor *matrix, *turned, *row, *wrong = NULL;
    runtime_ok(varve_tensor_op_fill(runtime, &type, runtime_real(3), &matrix, &runtime_message));
    runtime_ok(varve_tensor_transpose(matrix, 0, -1, &turned, &runtime_message));
    assert_int_equal(varve_tensor_transpose(matrix, 0, 2, &wrong, &runtime_message), VARVE_ERROR_INVALID);
    struct varve_geometry geometry;
    varve_tensor_get_geometry(turned, &geometry);
    assert_int_equal(geometry.shape[0], 8);
    runtime_ok(varve_geometry_select(&geometry, 0, 3, &runtime_message));
    runtime_ok(varve_tensor_view(turned, &geometry, &row, &runtime_message));
    geometry.offset += 1000;
    assert_int_equal(varve_tensor_view(turned, &geometry, &wrong, &runtime_message), VARVE_ERROR_INVALID);
    assert_null(wrong);
    varve_tensor_release(turned);
    runtime_evict(row);
    assert_false(varve_tensor_is_resident(matrix));
    varve_tensor_release(matrix);
    runtime_expect(row, 3);
    struct varve_storage *storage;
    runtime_ok(varve_tensor_borrow(row, &storage, &runtime_message));
    assert_int_equal(varve_storage_count(storage), 4);
    varve_tensor_release(row); /* borrowed still */
    assert_int_equal(runtime_allocated(pool), 0);
    runtime_end(runtime);
}

/* ---- the budget ---- */

static inline void runtime_within(const struct pool *pool, struct varve_runtime *runtime, uint64_t budget)
{
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    assert_true(runtime_allocated(pool) <= budget);
}

/* Blocks that are larger than what they are for, and storages of the program's beside the runtime's. */
static inline void rule_runtime_cap(void **state)
{
    const struct pool *pool = *state;
    const uint64_t budget = 36 * RUNTIME_MIB;
    const struct varve_storage_options options = {.memory = pool->memory};
    const int64_t beside_count[] = {1 << 20};
    const int64_t counts[] = {(1 << 18) + 1, (10 << 18) + 1, 3 << 18, (1 << 18) + 129, 700, (5 << 18) + 3};
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = budget});
    varve_alloc_reset_peak_stats(pool->alloc);
    struct varve_tensor *made[24];
    struct varve_storage *beside[3];
    for (unsigned i = 0; i < 24; i++) {
        made[i] = runtime_full(runtime, counts[i % 6], i);
        runtime_within(pool, runtime, budget);
        if (i % 8 == 7) {
            runtime_ok(
                varve_storage_empty(&options, VARVE_DTYPE_U8, 1, beside_count, &beside[i / 8], &runtime_message));
            runtime_within(pool, runtime, budget);
        }
    }
    for (unsigned i = 0; i < 24; i++) {
        struct varve_tensor *sum;
        runtime_ok(varve_tensor_op_add(made[(i * 5) % 24], made[(i * 5 + 6) % 24], &sum, &runtime_message));
        runtime_expect(sum, (float)((i * 5) % 24 + (i * 5 + 6) % 24));
        varve_tensor_release(sum);
        runtime_within(pool, runtime, budget);
    }
    assert_true(runtime_counters(runtime).evictions_budget > 0);
    assert_true((uint64_t)varve_alloc_max_memory_allocated(pool->alloc) <= budget);
    for (unsigned i = 0; i < 3; i++) {
        runtime_ok(varve_storage_release(beside[i], &runtime_message));
    }
    runtime_release_all(made, 24);
    runtime_end(runtime);
}

/// The budget that would do, as the message says.
static inline uint64_t runtime_figure(void)
{
    const char *said = strstr(runtime_message.text, "a budget of ");
    if (said == NULL) {
        fail_msg("%s: says no figure", runtime_message.text);
    }
    return strtoull(said + strlen("a budget of "), NULL, 10);
}

/* A sum of a pinned vector and another one, beside a third, whose budget is `missing` bytes short of what it takes. */
static inline void runtime_short_of(const struct pool *pool, int64_t count, uint64_t missing)
{
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 0});
    uint64_t before = runtime_allocated(pool);
    struct varve_tensor *pinned = runtime_full(runtime, count, 1), *input = runtime_full(runtime, count, 2),
                        *third = runtime_full(runtime, 64, 3), *out = NULL;
    runtime_ok(varve_tensor_pin(pinned, &runtime_message));
    uint64_t block = (runtime_allocated(pool) - before - 512) / 2;
    runtime_ok(varve_runtime_set_memory_budget(runtime, before + 3 * block - missing, &runtime_message));
    uint64_t evictions = runtime_counters(runtime).evictions;
    assert_int_equal(varve_tensor_op_add(pinned, input, &out, &runtime_message), VARVE_ERROR_NO_MEMORY);
    assert_null(out);
    assert_int_equal(runtime_counters(runtime).failures, 1);
    assert_non_null(strstr(runtime_message.text, "operator add"));
    uint64_t figure = runtime_figure();
    assert_int_equal(figure, before + 3 * block);
    if (before == 0) { /* it was clear before anything went */
        assert_int_equal(runtime_counters(runtime).evictions, evictions);
        assert_true(varve_tensor_is_resident(third));
    }
    runtime_ok(varve_runtime_check(runtime, &runtime_message));
    runtime_ok(varve_runtime_set_memory_budget(runtime, figure, &runtime_message));
    runtime_ok(varve_tensor_op_add(pinned, input, &out, &runtime_message));
    runtime_expect(out, 3);
    runtime_release_all((struct varve_tensor *[]){pinned, input, third, out}, 4);
    runtime_end(runtime);
}

static inline void rule_runtime_figure(void **state)
{
    const struct pool *pool = *state;
    const struct varve_storage_options options = {.memory = pool->memory};
    runtime_short_of(pool, 1024, 512);
    runtime_short_of(pool, (1 << 18) + 1, 512);
    runtime_short_of(pool, 3 << 18, RUNTIME_MIB);
    struct varve_storage *beside;
    runtime_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 1, runtime_count, &beside, &runtime_message));
    runtime_short_of(pool, 1024, 512);
    runtime_short_of(pool, 1 << 18, RUNTIME_MIB / 2);
    runtime_ok(varve_storage_release(beside, &runtime_message));
}

static inline void rule_runtime_set_budget(void **state)
{
    const struct pool *pool = *state;
    struct varve_runtime_options options = {.memory = pool->memory, .heuristic = "none such"};
    const int64_t too_many = INT64_C(9) * 1024;
    struct varve_runtime *runtime = NULL, *beside = NULL;
    runtime_failed(varve_runtime_open(&options, &runtime, &runtime_message), VARVE_ERROR_INVALID, "none such");
    options.memory = varve_memory_host();
    runtime_failed(varve_runtime_open(&options, &runtime, &runtime_message), VARVE_ERROR_INVALID,
                   "memory of an allocator");
    assert_null(runtime);
    runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 9 * 4096});
    struct varve_tensor *pinned = runtime_full(runtime, 1024, 1);
    runtime_ok(varve_tensor_pin(pinned, &runtime_message));
    options.memory = pool->memory; /* one that can't be opened leaves the budget of this one */
    assert_int_equal(varve_runtime_open(&options, &beside, &runtime_message), VARVE_ERROR_INVALID);
    options = (struct varve_runtime_options){.memory = pool->memory, .budget = 4095};
    runtime_failed(varve_runtime_open(&options, &beside, &runtime_message), VARVE_ERROR_NO_MEMORY, "4096");
    assert_null(beside);
    struct varve_storage *storage;
    assert_int_equal(varve_storage_empty(&(struct varve_storage_options){.memory = pool->memory}, VARVE_DTYPE_F32, 1,
                                         &too_many, &storage, &runtime_message),
                     VARVE_ERROR_NO_MEMORY);
    struct varve_tensor *others[8], *sum;
    for (unsigned i = 0; i < 8; i++) {
        others[i] = runtime_full(runtime, 1024, i);
    }
    assert_int_equal(runtime_counters(runtime).evictions, 0);
    runtime_ok(varve_runtime_set_memory_budget(runtime, 5 * 4096, &runtime_message));
    assert_int_equal(runtime_allocated(pool), 5 * 4096);
    assert_int_equal(runtime_counters(runtime).evictions, 4);
    runtime_failed(varve_runtime_set_memory_budget(runtime, 4095, &runtime_message), VARVE_ERROR_NO_MEMORY, "4096");
    for (unsigned i = 0; i < 8; i++) { /* as many as before may be there */
        runtime_expect(others[i], (float)i);
        runtime_within(pool, runtime, 5 * 4096);
    }
    assert_int_equal(runtime_allocated(pool), 5 * 4096);
    uint64_t evictions = runtime_counters(runtime).evictions;
    runtime_ok(varve_runtime_set_memory_budget(runtime, 6 * 4096, &runtime_message));
    runtime_ok(varve_runtime_set_memory_budget(runtime, 0, &runtime_message));
    for (unsigned i = 0; i < 8; i++) {
        runtime_expect(others[i], (float)i);
    }
    runtime_ok(varve_tensor_op_add(others[7], pinned, &sum, &runtime_message));
    assert_int_equal(runtime_counters(runtime).evictions, evictions);
    assert_int_equal(runtime_allocated(pool), 10 * 4096);
    varve_tensor_release(sum);
    runtime_release_all(others, 8);
    varve_tensor_release(pinned);
    runtime_end(runtime);
}

/* ---- programs without an end ---- */

/* A parameter goes down a slope, step by step; with `pins` its history ends there. */
static inline void runtime_descend(const struct pool *pool, bool pins, struct varve_remat_counters *early_out,
                                   struct varve_remat_counters *late_out)
{
    struct varve_runtime *runtime = runtime_start(pool, (struct varve_runtime_options){.budget = 12 * 4096});
    struct varve_tensor *rate = runtime_full(runtime, 1024, 0.5), *w = runtime_full(runtime, 1024, 64), *out;
    runtime_ok(varve_tensor_pin(rate, &runtime_message));
    for (unsigned step = 1; step <= 300; step++) {
        runtime_ok(varve_tensor_op_relu(w, &out, &runtime_message));
        struct varve_tensor *gradient, *product;
        runtime_ok(varve_tensor_op_mul(out, rate, &gradient, &runtime_message));
        runtime_ok(varve_tensor_op_mul(gradient, rate, &product, &runtime_message));
        runtime_release_all((struct varve_tensor *[]){gradient, out}, 2);
        runtime_ok(varve_tensor_op_sub(w, product, &out, &runtime_message));
        if (pins) {
            runtime_ok(varve_tensor_pin(out, &runtime_message));
        }
        runtime_ok(varve_tensor_assign(w, out, &runtime_message));
        runtime_release_all((struct varve_tensor *[]){product, out}, 2);
        if (step == 50 || step == 300) {
            varve_runtime_get_counters(runtime, step == 50 ? early_out : late_out);
            runtime_within(pool, runtime, 12 * 4096);
        }
    }
    runtime_release_all((struct varve_tensor *[]){rate, w}, 2);
    assert_int_equal(runtime_allocated(pool), 0);
    assert_int_equal(runtime_counters(runtime).storages, 0);
    runtime_end(runtime);
}

static inline void rule_runtime_endless(void **state)
{
    struct varve_remat_counters early, late;
    runtime_descend(*state, true, &early, &late);
    assert_int_equal(late.storages, early.storages);
    assert_int_equal(late.metadata_bytes, early.metadata_bytes);
    assert_int_equal(late.pinned_bytes, 2 * 4096);
    assert_int_equal(late.used_bytes, early.used_bytes);
    runtime_descend(*state, false, &early, &late);
    assert_true(late.storages >= early.storages + 250); /* that is what pinning is for */
    assert_true(late.metadata_bytes > early.metadata_bytes);
    assert_true(late.used_bytes <= 12 * 4096);
}

/* ---- figures ---- */

static inline void rule_runtime_times(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 0});
    struct varve_recipe both = runtime_recipe("both", runtime_call_both, 2, 2);
    struct varve_tensor *in[2], *out[2];
    in[0] = runtime_full(runtime, 1024, 5);
    in[1] = runtime_full(runtime, 1024, 3);
    assert_true(runtime_counters(runtime).model_compute_ns >= 2); /* measured */
    varve_runtime_reset_profile(runtime);
    struct varve_runtime_times times;
    varve_runtime_get_times(runtime, &times);
    assert_int_equal(times.base_ns + times.remat_ns + times.search_ns + times.cost_ns, 0);
    assert_int_equal(runtime_counters(runtime).operators, 0);
    runtime_ok(varve_runtime_run(runtime, &both, in, out, &runtime_message));
    for (unsigned i = 0; i < 4; i++) {
        runtime_evict(out[0]);
        runtime_expect(out[0], 8);
    }
    varve_runtime_get_times(runtime, &times);
    struct varve_remat_counters counters = runtime_counters(runtime);
    assert_int_equal(times.base_ns, 1000);
    assert_int_equal(times.remat_ns, 4000);
    assert_int_equal(counters.operators, 1);
    assert_int_equal(counters.executions, 5);
    assert_int_equal(counters.remats_direct, 4);
    assert_int_equal(counters.evictions, 4);
    assert_int_equal(counters.evictions_requested, 4);
    assert_int_equal(counters.evicted_bytes, 4 * 4096);
    runtime_ok(varve_runtime_set_memory_budget(runtime, 3 * 4096, &runtime_message));
    varve_runtime_get_times(runtime, &times);
    assert_int_equal(runtime_counters(runtime).searches, 1);
    assert_true(times.search_ns > 0 && times.search_ns >= times.cost_ns);
    assert_int_equal(runtime_counters(runtime).evictions, 5);
    runtime_release_all(out, 2);
    runtime_release_all(in, 2);
    counters = runtime_counters(runtime);
    assert_int_equal(counters.evictions, counters.evictions_released + counters.evictions_budget +
                                             counters.evictions_allocator + counters.evictions_requested);
    runtime_end(runtime);
}

static inline void rule_runtime_sampling(void **state)
{
    struct varve_runtime *runtime = runtime_start(*state, (struct varve_runtime_options){.budget = 100 * 512});
    struct varve_tensor *made[102];
    for (unsigned i = 0; i < 100; i++) {
        made[i] = runtime_full(runtime, 128, i);
    }
    assert_int_equal(runtime_counters(runtime).heuristic_evals, 0);
    made[100] = runtime_full(runtime, 128, 100);
    uint64_t evaluated[2];
    evaluated[0] = runtime_counters(runtime).heuristic_evals;
    varve_runtime_toggle_sampling(runtime, true);
    made[101] = runtime_full(runtime, 128, 101);
    evaluated[1] = runtime_counters(runtime).heuristic_evals - evaluated[0];
    assert_true(evaluated[0] >= 99 && evaluated[0] <= 100); /* all of them */
    assert_true(evaluated[1] >= 10 && evaluated[1] <= 40);  /* some 2 sqrt(n) */
    varve_runtime_toggle_sampling(runtime, false);
    for (unsigned i = 0; i < 102; i++) {
        runtime_expect(made[i], (float)i);
    }
    runtime_release_all(made, 102);
    runtime_end(runtime);
}

/* What is evicted when the oldest is small, and would just do. */
static inline void rule_runtime_small(void **state)
{
    struct varve_runtime *runtime =
        runtime_start(*state, (struct varve_runtime_options){.heuristic = "lru", .budget = 3 * RUNTIME_MIB});
    varve_runtime_ignore_small(runtime, true);
    struct varve_tensor *made[6];
    made[0] = runtime_full(runtime, 1 << 18, 0);
    made[1] = runtime_full(runtime, 1 << 18, 1);
    struct varve_tensor *small = runtime_full(runtime, 64, 64);
    for (unsigned i = 2; i < 5; i++) {
        made[i] = runtime_full(runtime, 1 << 18, i);
    }
    assert_true(varve_tensor_is_resident(small));
    assert_false(varve_tensor_is_resident(made[2]));
    varve_runtime_ignore_small(runtime, false);
    made[5] = runtime_full(runtime, 1 << 18, 5);
    assert_false(varve_tensor_is_resident(small));
    assert_true(varve_tensor_is_resident(made[3]));
    runtime_expect(small, 64);
    runtime_expect(made[2], 2);
    varve_tensor_release(small);
    runtime_release_all(made, 6);
    runtime_end(runtime);
}

/* ---- random programs, beside the same on plain storages ---- */

#define RUNTIME_VALUES 20

struct runtime_value {
    struct varve_tensor *tensor;
    struct varve_storage *plain;    /* the same, computed without a runtime */
    struct varve_storage *borrowed; /* NULL: it is not */
    struct varve_storage *kept;     /* decheckpointed, NULL: not */
};

struct runtime_random {
    const struct pool *pool;
    struct pool beside; /* of the plain storages */
    struct varve_runtime *runtime;
    struct runtime_value values[RUNTIME_VALUES];
    unsigned count;
    uint64_t random, budget, operators, refused;
};

static inline struct varve_storage *runtime_host_copy(const struct varve_storage *storage)
{
    struct varve_storage *copy;
    runtime_ok(varve_storage_clone(storage, &(struct varve_storage_options){.memory = varve_memory_host()}, &copy,
                                   &runtime_message));
    return copy;
}

static inline void runtime_equal(const struct varve_storage *seen, const struct varve_storage *expected)
{
    struct varve_storage *one = runtime_host_copy(seen), *other = runtime_host_copy(expected);
    assert_int_equal(varve_storage_dtype(one), varve_storage_dtype(other));
    assert_int_equal(varve_storage_bytes(one), varve_storage_bytes(other));
    if (varve_storage_bytes(one) > 0) {
        assert_memory_equal(varve_storage_data(one), varve_storage_data(other), varve_storage_bytes(one));
    }
    runtime_ok(varve_storage_release(one, &runtime_message));
    runtime_ok(varve_storage_release(other, &runtime_message));
}

static inline void runtime_random_return(struct runtime_value *value)
{
    if (value->borrowed != NULL) {
        runtime_equal(value->borrowed, value->plain); /* nobody has touched it meanwhile */
        varve_tensor_return(value->tensor);
        value->borrowed = NULL;
    }
}

static inline void runtime_random_drop(struct runtime_random *world, unsigned index)
{
    struct runtime_value *value = &world->values[index];
    runtime_random_return(value);
    varve_tensor_release(value->tensor);
    if (value->kept != NULL) {
        runtime_equal(value->kept, value->plain);
        runtime_ok(varve_storage_release(value->kept, &runtime_message));
    }
    runtime_ok(varve_storage_release(value->plain, &runtime_message));
    world->values[index] = world->values[--world->count];
}

static inline uint64_t runtime_below(struct runtime_random *world, uint64_t limit)
{
    return random_below(&world->random, limit);
}

static inline struct runtime_value *runtime_random_value(struct runtime_random *world)
{
    return &world->values[runtime_below(world, world->count)];
}

/* An operation that may have found no room, or no sense in its operands; then nothing has changed. */
static inline bool runtime_random_done(struct runtime_random *world, int error)
{
    if (error != VARVE_OK && error != VARVE_ERROR_NO_MEMORY && error != VARVE_ERROR_INVALID &&
        error != VARVE_ERROR_BUSY) {
        runtime_ok(error);
    }
    world->operators += error == VARVE_OK;
    world->refused += error != VARVE_OK;
    return error == VARVE_OK;
}

static inline void runtime_random_add(struct runtime_random *world, struct varve_tensor *tensor,
                                      struct varve_storage *plain)
{
    if (world->count == RUNTIME_VALUES) {
        runtime_random_drop(world, (unsigned)runtime_below(world, world->count));
    }
    world->values[world->count++] = (struct runtime_value){.tensor = tensor, .plain = plain};
}

/* A plain storage for what the tensor has. */
static inline struct varve_storage *runtime_random_plain(struct runtime_random *world,
                                                         const struct varve_tensor *tensor)
{
    const struct varve_storage_options options = {.memory = world->beside.memory};
    struct varve_geometry geometry;
    varve_tensor_get_geometry(tensor, &geometry);
    struct varve_storage *plain;
    runtime_ok(varve_storage_empty(&options, varve_tensor_dtype(tensor), geometry.ndim, geometry.shape, &plain,
                                   &runtime_message));
    return plain;
}

static inline void runtime_random_make(struct runtime_random *world)
{
    static const enum varve_dtype dtypes[] = {VARVE_DTYPE_F32, VARVE_DTYPE_F64, VARVE_DTYPE_I64};
    const struct varve_scalar start = {.kind = VARVE_SCALAR_INTEGER, .integer = (int64_t)runtime_below(world, 9) - 4},
                              step = runtime_real(0.5);
    int64_t shape[3];
    struct varve_tensor_type type = {dtypes[runtime_below(world, 3)], (unsigned)runtime_below(world, 4), shape};
    uint64_t kind = runtime_below(world, 4), sequence = random_next(&world->random);
    for (unsigned i = 0; i < 3; i++) {
        shape[i] = runtime_below(world, 3) == 0 ? 1 + (int64_t)runtime_below(world, 8) : 4;
    }
    struct varve_tensor *out;
    int error = kind == 0   ? varve_tensor_op_fill(world->runtime, &type, start, &out, &runtime_message)
                : kind == 1 ? varve_tensor_op_arange(world->runtime, &type, start, step, &out, &runtime_message)
                : kind == 2 ? varve_tensor_op_uniform(world->runtime, &type, 3, sequence, -1, 2, &out, &runtime_message)
                            : varve_tensor_op_normal(world->runtime, &type, 3, sequence, 0, 1, &out, &runtime_message);
    if (!runtime_random_done(world, error)) {
        return;
    }
    struct varve_storage *plain = runtime_random_plain(world, out);
    runtime_ok(kind == 0   ? varve_storage_op_fill(plain, start, 0, &runtime_message)
               : kind == 1 ? varve_storage_op_arange(plain, start, step, 0, &runtime_message)
               : kind == 2 ? varve_storage_op_uniform(plain, 3, sequence, -1, 2, 0, &runtime_message)
                           : varve_storage_op_normal(plain, 3, sequence, 0, 1, 0, &runtime_message));
    runtime_random_add(world, out, plain);
}

static inline void runtime_random_binary(struct runtime_random *world)
{
    static const struct {
        int (*live)(struct varve_tensor *, struct varve_tensor *, struct varve_tensor **, struct varve_message *);
        int (*plain)(struct varve_storage *, const struct varve_storage *, const struct varve_storage *, uint64_t,
                     struct varve_message *);
    } ops[] = {{varve_tensor_op_add, varve_storage_op_add}, {varve_tensor_op_sub, varve_storage_op_sub},
               {varve_tensor_op_mul, varve_storage_op_mul}, {varve_tensor_op_div, varve_storage_op_div},
               {varve_tensor_op_pow, varve_storage_op_pow}, {varve_tensor_op_matmul, varve_storage_op_matmul}};
    uint64_t op = runtime_below(world, sizeof(ops) / sizeof(ops[0]));
    const struct runtime_value a = *runtime_random_value(world), b = *runtime_random_value(world);
    struct varve_tensor *out;
    struct varve_storage *plain;
    if (runtime_random_done(world, ops[op].live(a.tensor, b.tensor, &out, &runtime_message))) {
        plain = runtime_random_plain(world, out);
        runtime_ok(ops[op].plain(plain, a.plain, b.plain, 0, &runtime_message));
        runtime_random_add(world, out, plain);
    }
}

static inline void runtime_random_single(struct runtime_random *world)
{
    static const struct {
        int (*live)(struct varve_tensor *, struct varve_tensor **, struct varve_message *);
        int (*plain)(struct varve_storage *, const struct varve_storage *, uint64_t, struct varve_message *);
    } maps[] = {{varve_tensor_op_exp, varve_storage_op_exp}, {varve_tensor_op_relu, varve_storage_op_relu}};
    static const struct {
        int (*live)(struct varve_tensor *, int, struct varve_tensor **, struct varve_message *);
        int (*plain)(struct varve_storage *, const struct varve_storage *, int, uint64_t, struct varve_message *);
    } folds[] = {{varve_tensor_op_sum, varve_storage_op_sum},
                 {varve_tensor_op_mean, varve_storage_op_mean},
                 {varve_tensor_op_max, varve_storage_op_max}};
    const struct runtime_value a = *runtime_random_value(world);
    uint64_t kind = runtime_below(world, 5);
    int axis = runtime_below(world, 4) == 0 ? VARVE_OP_ALL_AXES : (int)runtime_below(world, 4) - 2;
    struct varve_tensor *out;
    if (runtime_random_done(world, kind < 2 ? maps[kind].live(a.tensor, &out, &runtime_message)
                                            : folds[kind - 2].live(a.tensor, axis, &out, &runtime_message))) {
        struct varve_storage *plain = runtime_random_plain(world, out);
        runtime_ok(kind < 2 ? maps[kind].plain(plain, a.plain, 0, &runtime_message)
                            : folds[kind - 2].plain(plain, a.plain, axis, 0, &runtime_message));
        runtime_random_add(world, out, plain);
    }
}

static inline void runtime_random_view(struct runtime_random *world)
{
    const struct runtime_value a = *runtime_random_value(world);
    struct varve_geometry geometry;
    varve_tensor_get_geometry(a.tensor, &geometry);
    struct varve_tensor *out;
    int error;
    if (geometry.ndim >= 2 && runtime_below(world, 2) == 0) {
        error = varve_tensor_transpose(a.tensor, 0, -1, &out, &runtime_message);
    } else if (geometry.ndim >= 1 && runtime_below(world, 2) == 0) {
        runtime_ok(varve_geometry_select(&geometry, 0, 0, &runtime_message));
        error = varve_tensor_view(a.tensor, &geometry, &out, &runtime_message);
    } else {
        error = varve_tensor_copy(a.tensor, &out, &runtime_message);
    }
    struct varve_storage *plain;
    if (runtime_random_done(world, error)) {
        varve_tensor_get_geometry(out, &geometry);
        runtime_ok(varve_storage_view(a.plain, &geometry, &plain, &runtime_message));
        runtime_random_add(world, out, plain);
    }
}

/* A function with two outputs, or one that changes its input. */
static inline void runtime_random_function(struct runtime_random *world)
{
    const struct runtime_value a = *runtime_random_value(world);
    struct varve_tensor *in[] = {a.tensor, a.tensor}, *out[2];
    struct varve_geometry geometry;
    struct varve_recipe recipe = runtime_recipe("function", runtime_call_both, 2, 2);
    varve_tensor_get_geometry(a.tensor, &geometry);
    struct varve_tensor_type types[2];
    types[0] = types[1] = (struct varve_tensor_type){varve_tensor_dtype(a.tensor), geometry.ndim, geometry.shape};
    recipe.outputs = types;
    if (runtime_below(world, 2) == 0) {
        recipe.run = runtime_call_increase;
        recipe.is_in_place = true;
        recipe.output_count = 1;
    }
    recipe.workspace_bytes = world->pool->kind == &pool_host ? 0 : RUNTIME_MIB / 64; /* for operands' copies */
    if (!runtime_random_done(world, varve_runtime_run(world->runtime, &recipe, in, out, &runtime_message))) {
        return;
    }
    varve_storage_retain(a.plain); /* room for the outputs may be its place */
    for (unsigned i = 0; i < recipe.output_count; i++) {
        struct varve_storage *plain = runtime_random_plain(world, out[i]);
        runtime_ok(i == 0 ? varve_storage_op_add(plain, a.plain, a.plain, 0, &runtime_message)
                          : varve_storage_op_sub(plain, a.plain, a.plain, 0, &runtime_message));
        runtime_random_add(world, out[i], plain);
    }
    runtime_ok(varve_storage_release(a.plain, &runtime_message));
}

static inline void runtime_random_assign(struct runtime_random *world)
{
    struct runtime_value *to = runtime_random_value(world), *from = runtime_random_value(world);
    if (to->kept == NULL &&
        runtime_random_done(world, varve_tensor_assign(to->tensor, from->tensor, &runtime_message)) && to != from) {
        runtime_ok(varve_storage_release(to->plain, &runtime_message));
        to->plain = varve_storage_retain(from->plain);
    }
}

/* What is done with one value. */
static inline void runtime_random_use(struct runtime_random *world)
{
    struct runtime_value *value = runtime_random_value(world);
    switch (runtime_below(world, 12)) {
    case 0:
        if (value->kept == NULL) {
            runtime_random_done(world, varve_tensor_decheckpoint(value->tensor, &value->kept, &runtime_message));
        }
        break;
    case 1:
        runtime_random_done(world, varve_tensor_pin(value->tensor, &runtime_message));
        break;
    case 2:
    case 3:
        runtime_random_drop(world, (unsigned)(value - world->values));
        break;
    case 4:
    case 5:
    case 6:
        runtime_random_done(world, varve_tensor_evict(value->tensor, &runtime_message));
        break;
    default:
        if (value->borrowed != NULL) {
            runtime_random_return(value);
        } else if (runtime_random_done(world, varve_tensor_borrow(value->tensor, &value->borrowed, &runtime_message))) {
            runtime_equal(value->borrowed, value->plain);
            if (runtime_below(world, 4) != 0) {
                runtime_random_return(value);
            }
        }
    }
}

static inline void runtime_random_set(struct runtime_random *world)
{
    uint64_t budget = runtime_below(world, 4) == 0 ? 0 : (16 + runtime_below(world, 48)) * 512;
    if (runtime_random_done(world, varve_runtime_set_memory_budget(world->runtime, budget, &runtime_message))) {
        world->budget = budget;
    }
    varve_runtime_toggle_sampling(world->runtime, runtime_below(world, 2) == 0);
    varve_runtime_ignore_small(world->runtime, runtime_below(world, 4) == 0);
}

static inline void runtime_random_step(struct runtime_random *world)
{
    static void (*const steps[])(struct runtime_random *) = {
        runtime_random_binary, runtime_random_binary, runtime_random_binary, runtime_random_single,
        runtime_random_single, runtime_random_view,   runtime_random_view,   runtime_random_function,
        runtime_random_assign, runtime_random_use,    runtime_random_use,    runtime_random_use};
    uint64_t chance = runtime_below(world, 60);
    if (world->count < 4 || chance < 6) {
        runtime_random_make(world);
    } else if (chance == 6) {
        runtime_random_set(world);
    } else {
        steps[runtime_below(world, sizeof(steps) / sizeof(steps[0]))](world);
    }
    runtime_ok(varve_runtime_check(world->runtime, &runtime_message));
    assert_true(world->budget == 0 || runtime_allocated(world->pool) <= world->budget);
}

static inline void runtime_random_play(const struct pool *pool, const char *heuristic, enum varve_remat_search search,
                                       uint64_t seed)
{
    struct runtime_random world = {.pool = pool, .random = seed, .budget = 20 * 512};
    runtime_ok(pool_open(&world.beside, pool->kind, &runtime_message));
    world.runtime = runtime_start(pool, (struct varve_runtime_options){.budget = world.budget,
                                                                       .heuristic = heuristic,
                                                                       .search = search,
                                                                       .seed = seed,
                                                                       .checks_values = seed % 2 == 0});
    for (unsigned i = 0; i < 600; i++) {
        runtime_random_step(&world);
    }
    assert_true(world.operators > 200);
    assert_true(runtime_counters(world.runtime).remats_direct > 0);
    while (world.count > 0) {
        runtime_random_drop(&world, 0);
    }
    assert_int_equal(runtime_allocated(pool), 0);
    assert_int_equal(runtime_counters(world.runtime).storages, 0);
    runtime_end(world.runtime);
    runtime_ok(pool_close(&world.beside, &runtime_message));
}

static inline void rule_runtime_random_programs(void **state)
{
    uint64_t seed = test_first_seed(1);
    for (unsigned i = 0; i < 4; i++) {
        runtime_random_play(*state, "dtr-eq", VARVE_REMAT_SEARCH_SCAN, seed++);
        runtime_random_play(*state, "dtr-eq", VARVE_REMAT_SEARCH_KINETIC, seed++);
        runtime_random_play(*state, "dtr", VARVE_REMAT_SEARCH_SAMPLE, seed++);
        runtime_random_play(*state, "dtr-local", VARVE_REMAT_SEARCH_KINETIC, seed++);
    }
}

/* ---- the list ---- */

#define RUNTIME_RULES(kind)                                                                                           \
    POOL_CASE(rule_runtime_perceptron, kind), POOL_CASE(rule_runtime_residual, kind),                                 \
        POOL_CASE(rule_runtime_outputs, kind), POOL_CASE(rule_runtime_in_place, kind),                                \
        POOL_CASE(rule_runtime_arguments, kind), POOL_CASE(rule_runtime_calls_refused, kind),                         \
        POOL_CASE(rule_runtime_function_fails, kind), POOL_CASE(rule_runtime_other_values, kind),                     \
        POOL_CASE(rule_runtime_workspace, kind), POOL_CASE(rule_runtime_handles, kind),                               \
        POOL_CASE(rule_runtime_full_device, kind), POOL_CASE(rule_runtime_constants, kind),                           \
        POOL_CASE(rule_runtime_views, kind), POOL_CASE(rule_runtime_cap, kind), POOL_CASE(rule_runtime_figure, kind), \
        POOL_CASE(rule_runtime_set_budget, kind), POOL_CASE(rule_runtime_endless, kind),                              \
        POOL_CASE(rule_runtime_times, kind), POOL_CASE(rule_runtime_sampling, kind),                                  \
        POOL_CASE(rule_runtime_small, kind), POOL_CASE(rule_runtime_random_programs, kind)

#endif
