/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays of a log: what a log needs at least, sweeps against single plays, where neighbours part, and the allocator
 * mode. Figures are compared with the simulator's by tests/conformance/test_dtr_model.py. Runs threads: sweeps do.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/dtr/dtr_print.h"
#include "support/command.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define TRAINING VARVE_SOURCE_DIR "/tests/golden/training.log"
#define POINTS 60

static struct dtr_log *read_log(const char *path)
{
    struct varve_message message = {""};
    struct dtr_log *log;
    if (dtr_log_read(path, NULL, &log, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return log;
}

static struct dtr_options options_of(const char *heuristic)
{
    return (struct dtr_options){.heuristic = varve_remat_heuristic_find(heuristic),
                                .budget = VARVE_REMAT_UNLIMITED,
                                .remat_limit_ns = VARVE_REMAT_UNLIMITED};
}

static struct dtr_result play(const struct dtr_log *log, const struct dtr_options *options)
{
    struct varve_message message = {""};
    struct dtr_result result;
    if (dtr_play(log, options, &result, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return result;
}

static struct dtr_result baseline_of(const struct dtr_log *log)
{
    struct varve_message message = {""};
    struct dtr_result result;
    assert_int_equal(dtr_play_baseline(log, NULL, &result, &message), VARVE_OK);
    return result;
}

/* ---- what a log needs ---- */

/* A constant of 10, f of it (20), a view of f, g of f, f and the view (30), h of g (5). f goes before h; g and h
 * stay. */
#define TENSOR(name, bytes) "{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"" bytes "\",\"NAME\":\"" name "\"}\n"
#define CALL(name, arguments, time, bytes, alias)                                                  \
    "{\"ARGS\":[" arguments "],\"INSTRUCTION\":\"CALL\",\"NAME\":\"" name "\",\"RESULT\":[\"" name \
    "\"],\"TIME\":\"" time "\"}\n" TENSOR(name, bytes) "{\"ALIAS\":\"" alias                       \
                                                       "\",\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"" name "\"}\n"
#define RELEASE(name) "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"" name "\"}\n"
static const char small_log[] =
    "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"c\"}\n" TENSOR("c", "10") CALL("f", "\"c\"", "100", "20", "-1")
        CALL("view", "\"f\"", "1", "20", "0") CALL("g", "\"f\",\"f\",\"view\"", "200", "30", "-1") RELEASE("f")
            RELEASE("view") CALL("h", "\"g\"", "300", "5", "-1");

TEST(test_describe)
{
    struct dtr_options options = options_of("dtr");
    file_write("small.log", small_log, sizeof(small_log) - 1);
    struct dtr_log *log = read_log("small.log");
    struct dtr_description description;
    dtr_describe(log, VARVE_REMAT_DEALLOC_EAGER, &description);
    assert_int_equal(description.storages, 4);
    assert_int_equal(description.views, 1);
    assert_int_equal(description.constant_bytes, 10);
    assert_int_equal(description.end_bytes, 45);
    assert_int_equal(description.bound_bytes, 60); /* the constant, f once, g */
    assert_string_equal(dtr_log_name(log, log->ops[description.bound_op].name), "g");
    options.budget = 60;
    struct dtr_result result = play(log, &options);
    assert_int_equal(result.status, DTR_OK);
    assert_int_equal(result.counters.max_used_bytes, 60);
    assert_int_equal(result.counters.clock, 602);
    assert_int_equal(result.events, log->event_count);
    options.budget = 59;
    result = play(log, &options);
    assert_int_equal(result.status, DTR_OOM);
    assert_int_equal(result.op, description.bound_op);
    assert_int_equal(baseline_of(log).counters.max_used_bytes, 60);
    dtr_log_free(log);
}

/* Whatever is chosen: nothing reaches the end below the bound. */
TEST(test_bound)
{
    static const char *const heuristics[] = {"dtr", "dtr-eq", "dtr-local", "lru", "size", "random"};
    uint64_t random = test_first_seed(1);
    struct dtr_log *log = read_log(TRAINING);
    for (int i = 0; i < 60; i++) {
        enum varve_remat_dealloc dealloc = (enum varve_remat_dealloc)(random_next(&random) % 3);
        struct dtr_options options = options_of(heuristics[dealloc == VARVE_REMAT_DEALLOC_BANISH ? 3 : i % 6]);
        struct dtr_description description;
        dtr_describe(log, dealloc, &description);
        options.dealloc = dealloc;
        options.budget = i < 6 ? description.bound_bytes - 1 : random_next(&random) % description.bound_bytes;
        assert_int_equal(play(log, &options).status, DTR_OOM);
    }
    dtr_log_free(log);
}

/* ---- sweeps ---- */

static struct dtr_point *make_points(uint64_t low, uint64_t high)
{
    struct dtr_point *points = calloc(POINTS, sizeof(*points));
    assert_non_null(points);
    for (uint64_t i = 0; i < POINTS; i++) {
        points[i].budget = low + (high - low) * i / (POINTS - 1);
    }
    return points;
}

static struct dtr_sweep make_sweep(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs)
{
    struct varve_message message = {""};
    uint64_t peak = baseline_of(log).counters.max_used_bytes;
    struct dtr_sweep sweep;
    if (dtr_sweep_make(log, options, jobs, make_points(peak / 5, peak), POINTS, &sweep, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return sweep;
}

/* Each point is the play alone, and bands are runs of points that end alike. */
TEST(test_points_and_bands)
{
    struct dtr_log *log = read_log(TRAINING);
    struct dtr_options options = options_of("dtr-eq");
    size_t next = 0;
    options.remat_limit_ns = log->cost_ns / 2;
    struct dtr_sweep sweep = make_sweep(log, &options, 5);
    for (size_t i = 0; i < POINTS; i++) {
        const struct dtr_point *point = &sweep.points[i];
        options.budget = point->budget;
        struct dtr_result result = play(log, &options);
        assert_int_equal(point->status, result.status);
        assert_memory_equal(&point->counters, &result.counters, sizeof(result.counters));
    }
    assert_true(sweep.band_count >= 3);
    for (size_t i = 0; i < sweep.band_count; i++) {
        const struct dtr_band *band = &sweep.bands[i];
        assert_int_equal(band->first, next);
        assert_true(band->end > band->first);
        assert_true(i == 0 || sweep.bands[i - 1].status != band->status);
        for (next = band->first; next < band->end; next++) {
            assert_int_equal(sweep.points[next].status, band->status);
            assert_in_range(sweep.points[next].counters.clock, band->clock_min, band->clock_max);
        }
    }
    assert_int_equal(next, POINTS);
    assert_int_equal(sweep.parting_count, sweep.band_count - 1);
    assert_ptr_equal(dtr_sweep_smallest(&sweep), &sweep.points[sweep.bands[sweep.band_count - 1].first]);
    dtr_sweep_free(&sweep);
    dtr_log_free(log);
}

struct chosen {
    uint32_t storages[4096], ops[4096];
    size_t count;
};

static void note_chosen(void *context, const struct varve_remat_event *event, uint32_t op)
{
    struct chosen *chosen = context;
    if (event->kind == VARVE_REMAT_EVENT_EVICT && event->cause == VARVE_REMAT_CAUSE_BUDGET) {
        assert_true(chosen->count < 4096);
        chosen->storages[chosen->count] = event->storage;
        chosen->ops[chosen->count++] = op;
    }
}

static void check_decision(const struct dtr_decision *decision, const struct chosen *chosen, size_t index)
{
    assert_int_equal(decision->is_made, index < chosen->count);
    if (decision->is_made) {
        assert_int_equal(decision->storage, chosen->storages[index]);
        assert_int_equal(decision->op, chosen->ops[index]);
    }
}

TEST(test_partings)
{
    struct dtr_log *log = read_log(TRAINING);
    struct dtr_options options = options_of("dtr-eq");
    struct chosen *chosen = calloc(2, sizeof(*chosen));
    assert_non_null(chosen);
    options.remat_limit_ns = log->cost_ns / 2;
    struct dtr_sweep sweep = make_sweep(log, &options, 2);
    options.event = note_chosen;
    for (size_t i = 0; i < sweep.parting_count; i++) {
        const struct dtr_parting *parting = &sweep.partings[i];
        for (size_t j = 0; j < 2; j++) {
            chosen[j].count = 0;
            options.event_context = &chosen[j];
            options.budget = sweep.points[parting->below + j].budget;
            play(log, &options);
        }
        assert_int_not_equal(sweep.points[parting->below].status, sweep.points[parting->below + 1].status);
        assert_true(parting->index <= chosen[0].count && parting->index <= chosen[1].count);
        assert_memory_equal(chosen[0].storages, chosen[1].storages, parting->index * sizeof(uint32_t));
        assert_memory_equal(chosen[0].ops, chosen[1].ops, parting->index * sizeof(uint32_t));
        check_decision(&parting->smaller, &chosen[0], parting->index);
        check_decision(&parting->larger, &chosen[1], parting->index);
        assert_true(parting->smaller.storage != parting->larger.storage || parting->smaller.op != parting->larger.op);
    }
    free(chosen);
    dtr_sweep_free(&sweep);
    dtr_log_free(log);
}

TEST(test_bisection)
{
    struct dtr_log *log = read_log(TRAINING);
    struct dtr_options options = options_of("dtr-eq");
    struct dtr_point fails = {.budget = log->bytes / 20}, works = {.budget = log->bytes};
    struct varve_message message = {""};
    assert_int_equal(dtr_sweep_bisect(log, &options, 1, &fails, &works, &message), VARVE_OK);
    assert_int_equal(works.budget, fails.budget + 1);
    options.budget = works.budget;
    assert_int_equal(play(log, &options).status, DTR_OK);
    options.budget = fails.budget;
    assert_int_equal(play(log, &options).status, DTR_OOM);
    dtr_log_free(log);
}

/* ---- allocator mode ---- */

TEST(test_allocator)
{
    static const char *const heuristics[] = {"dtr-eq", "window", "free-neighbours", "lru"};
    struct dtr_log *log = read_log(TRAINING);
    struct dtr_allocator_options allocator = {0};
    struct dtr_options options = options_of("dtr-eq");
    uint64_t peak = baseline_of(log).counters.max_used_bytes;
    struct dtr_result exact = play(log, &options);
    varve_alloc_config_init(&allocator.config);
    options.allocator = &allocator;
    struct dtr_result blocks = play(log, &options);
    assert_int_equal(blocks.status, DTR_OK);
    assert_int_equal(blocks.counters.evictions, exact.counters.evictions);
    assert_int_equal(blocks.counters.clock, exact.counters.clock);
    assert_true(blocks.allocator.peak_allocated >= exact.counters.max_used_bytes);
    assert_true(blocks.allocator.peak_reserved >= blocks.allocator.peak_allocated);
    for (uint64_t i = 0; i < 40; i++) {
        options = options_of(heuristics[i % 4]);
        options.allocator = &allocator;
        options.remat_limit_ns = log->cost_ns;
        options.budget = peak / 5 + peak * i / 40;
        blocks = play(log, &options);
        assert_true(blocks.allocator.peak_reserved <= options.budget);
        assert_true(blocks.allocator.largest_free <= blocks.allocator.reserved);
        assert_int_equal(blocks.status == DTR_OK, blocks.events == log->event_count);
        assert_in_range((uint64_t)(1e6 * dtr_allocator_fragmentation(&blocks.allocator)), 0, 1000000);
    }
    dtr_log_free(log);
}

/* What does not go together is an error, of a sweep's threads, too. */
TEST(test_impossible)
{
    struct dtr_log *log = read_log(TRAINING);
    struct dtr_options options = options_of("window");
    struct varve_message message = {""};
    struct dtr_result result;
    assert_int_equal(dtr_play(log, &options, &result, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "window"));
    struct dtr_sweep sweep;
    assert_int_equal(dtr_sweep_make(log, &options, 4, make_points(0, log->bytes), POINTS, &sweep, &message),
                     VARVE_ERROR_INVALID);
    dtr_sweep_free(&sweep);
    dtr_log_free(log);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
