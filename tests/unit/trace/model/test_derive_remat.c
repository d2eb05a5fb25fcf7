/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rematerialization against a naive model: random streams of its events, possible and impossible ones, of three
 * processes, through derive and the store. The model keeps the events and works every row out from all of them. Every
 * column of every table must agree however much is kept, the views must have the events where these are kept, and
 * scores must be the same doubles.
 * Costs: 2 s
 */
#include "support/derive/rows_expected.h"
#include "support/derive/rows_model.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/model/state.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 3000
#define OWNERS 3U
#define NUMBERS 12U  /* of storages in each process */
#define OPERATORS 5U /* 0: without a name; of the last, none is ever said */
#define SIZES 3U
#define CAUSES 5U /* of evictions */
#define NEAR 16   /* runs */

struct storage {
    uint32_t process;
    uint64_t number, operator_number, size;
    int64_t evictions, remats, collateral, ns, wasted, evicted_at;
    bool is_evicted, is_pinned;
};

struct scene {
    struct event events[STEPS];
    bool is_wasted[STEPS];
    struct storage storages[STEPS];
    size_t storage_count;
    uint64_t random;
    bool has_ended;
};

static const char *const names[OPERATORS] = {NULL, "matmul", "an operator's name of 32 bytes..", "gelu\n", NULL};
static const char *const kept_names[OPERATORS] = {NULL, "matmul", "an operator's name of 32 bytes..", "gelu?", NULL};

static uint64_t below(struct scene *scene, uint64_t limit)
{
    return random_below(&scene->random, limit);
}

static bool is_failed(const struct event *event)
{
    return (event->flags & VARVE_FLAG_FAILED) != 0;
}

/* ---- random events ---- */

static uint64_t random_score(struct scene *scene)
{
    static const double special[] = {0.0, 1.0, DBL_MAX, DBL_MIN, 1.0 / 3.0, 0x1p64, 0x1p-128, INFINITY, NAN};
    uint64_t choice = below(scene, 2 * sizeof(special) / sizeof(special[0]));
    uint64_t bits = (1 + below(scene, 2046)) << 52 | random_next(&scene->random) >> 12; /* any normal one */

    if (choice < sizeof(special) / sizeof(special[0])) {
        memcpy(&bits, &special[choice], sizeof(bits));
    }
    return bits;
}

static void random_fields(struct scene *scene, struct event *event)
{
    event->pool = (uint16_t)below(scene, OPERATORS);
    event->id = below(scene, NUMBERS);
    event->size = 512 * (event->id % SIZES) + 100 * below(scene, 20) / 19; /* mostly the same of a number */
    event->addr = below(scene, 2) * 4096 * event->id;
    if (event->kind == VARVE_KIND_OP_NAME) {
        uint64_t words[4] = {0};

        event->pool = 0;
        event->id = 1 + below(scene, OPERATORS - 2);
        memcpy(words, names[event->id], strlen(names[event->id]));
        event->addr = words[0];
        event->size = words[1];
        event->requested = words[2];
        event->arg = words[3];
    } else if (event->kind == VARVE_KIND_OP) {
        event->requested = below(scene, 9000);
        event->arg = below(scene, 1000);
    } else if (event->kind == VARVE_KIND_EVICT) {
        event->cause = (uint8_t)(VARVE_CAUSE_EVICT_RELEASED - 1 + below(scene, CAUSES + 1));
        event->cause = event->cause >= VARVE_CAUSE_EVICT_RELEASED ? event->cause : VARVE_CAUSE_NONE;
        event->requested = event->seq * 7;
        event->arg = random_score(scene);
    } else if (event->kind == VARVE_KIND_REMAT) {
        event->cause = (uint8_t)(VARVE_CAUSE_REMAT_DIRECT + below(scene, 2));
        event->requested = 1 + below(scene, 1 + below(scene, 40));
        event->arg = event->cause == VARVE_CAUSE_REMAT_DIRECT ? below(scene, 1000) : 0;
    } else if (event->kind == VARVE_KIND_BUDGET && !is_failed(event)) {
        event->pool = 0;
        event->id = 0;
        event->size = below(scene, 3) ? 1000 + below(scene, 9000) : UINT64_MAX;
    } else if (is_failed(event)) {
        event->cause = (uint8_t)(event->kind == VARVE_KIND_BUDGET ? 0 : VARVE_CAUSE_BLOCKED_PINNED + below(scene, 2));
        event->arg = event->kind == VARVE_KIND_BUDGET ? below(scene, 9000) : 0;
    }
}

static struct event random_event(struct scene *scene, uint64_t seq)
{
    static const struct {
        uint8_t kind, flags;
    } kinds[] = {{VARVE_KIND_OP_NAME, 0},
                 {VARVE_KIND_OP, 0},
                 {VARVE_KIND_OP, 0},
                 {VARVE_KIND_EVICT, 0},
                 {VARVE_KIND_EVICT, 0},
                 {VARVE_KIND_EVICT, 0},
                 {VARVE_KIND_REMAT, 0},
                 {VARVE_KIND_REMAT, 0},
                 {VARVE_KIND_PIN, 0},
                 {VARVE_KIND_UNPIN, 0},
                 {VARVE_KIND_BUDGET, 0},
                 {VARVE_KIND_PIN, VARVE_FLAG_FAILED},
                 {VARVE_KIND_PIN, VARVE_FLAG_FAILED},
                 {VARVE_KIND_BUDGET, VARVE_FLAG_FAILED}};
    size_t choice = (size_t)below(scene, sizeof(kinds) / sizeof(kinds[0]));
    struct event event = {.seq = seq, .ts_ns = (int64_t)seq * 31, .kind = kinds[choice].kind};

    event.flags = kinds[choice].flags;
    do {
        event.process_id = 1 + (uint32_t)below(scene, OWNERS);
    } while (scene->has_ended && event.process_id == 2);
    event.thread_id = event.process_id;
    event.pid = event.tid = 1000 + (int32_t)event.process_id;
    event.callsite = (uint32_t)below(scene, 7);
    random_fields(scene, &event);
    return event;
}

/* ---- the model ---- */

/* Runs of operators in the process of event `at`, it included. */
static int64_t runs_until(const struct scene *scene, size_t at)
{
    int64_t runs = 0;

    for (size_t i = 0; i <= at; i++) {
        const struct event *event = &scene->events[i];

        runs += event->process_id == scene->events[at].process_id &&
                (event->kind == VARVE_KIND_OP ||
                 (event->kind == VARVE_KIND_REMAT && event->cause != VARVE_CAUSE_REMAT_COLLATERAL));
    }
    return runs;
}

static struct storage *storage_of(struct scene *scene, const struct event *event)
{
    struct storage *row = NULL;

    for (size_t i = 0; i < scene->storage_count; i++) { /* the last that had the number */
        struct storage *other = &scene->storages[i];

        row = other->process == event->process_id && other->number == event->id ? other : row;
    }
    if (row == NULL || row->operator_number != event->pool || row->size != event->size) {
        row = &scene->storages[scene->storage_count++];
        *row = (struct storage){
            .process = event->process_id, .number = event->id, .operator_number = event->pool, .size = event->size};
    }
    return row;
}

static void model_storages(struct scene *scene)
{
    for (size_t i = 0; i < STEPS; i++) {
        const struct event *event = &scene->events[i];

        if (event->kind == VARVE_KIND_EVICT) {
            struct storage *row = storage_of(scene, event);

            row->evictions++;
            row->is_evicted = true;
            row->evicted_at = runs_until(scene, i);
        } else if (event->kind == VARVE_KIND_REMAT) {
            struct storage *row = storage_of(scene, event);

            scene->is_wasted[i] = row->is_evicted && runs_until(scene, i) - row->evicted_at <= NEAR;
            row->remats += event->cause == VARVE_CAUSE_REMAT_DIRECT;
            row->collateral += event->cause == VARVE_CAUSE_REMAT_COLLATERAL;
            row->ns += (int64_t)event->arg;
            row->wasted += scene->is_wasted[i];
            row->is_evicted = false;
        } else if ((event->kind == VARVE_KIND_PIN || event->kind == VARVE_KIND_UNPIN) && !is_failed(event)) {
            storage_of(scene, event)->is_pinned = event->kind == VARVE_KIND_PIN;
        }
    }
}

/* ---- what the database must have ---- */

/* Does the event say something of the operator with this number? */
static bool is_about(const struct scene *scene, size_t at, uint32_t process, uint64_t number)
{
    const struct event *event = &scene->events[at];
    bool has_failed_before = false;

    if (event->process_id != process || (event->kind == VARVE_KIND_BUDGET && !is_failed(event))) {
        return false;
    }
    if (event->kind == VARVE_KIND_OP_NAME) {
        return event->id == number;
    }
    for (size_t i = 0; i < at; i++) {
        const struct event *other = &scene->events[i];

        has_failed_before |= other->process_id == process && other->kind == VARVE_KIND_BUDGET && is_failed(other);
    }
    return event->pool == number && (event->kind != VARVE_KIND_PIN || !is_failed(event) || has_failed_before);
}

static void expect_operator(sqlite3_stmt *query, const struct scene *scene, uint32_t process, uint64_t number)
{
    int64_t values[11] = {process, (int64_t)number};
    bool is_there = false, is_named = false;

    for (size_t i = 0; i < STEPS; i++) {
        const struct event *event = &scene->events[i];

        if (!is_about(scene, i, process, number)) {
            continue;
        }
        is_there = true;
        if (event->kind == VARVE_KIND_OP_NAME) {
            is_named = true;
        } else if (event->kind == VARVE_KIND_OP) {
            values[2]++;
            values[3] += (int64_t)event->arg;
            values[4] += (int64_t)event->requested;
            values[5] += (int64_t)event->size;
        } else if (event->kind == VARVE_KIND_REMAT) {
            values[6] += event->cause == VARVE_CAUSE_REMAT_DIRECT;
            values[7] += event->cause == VARVE_CAUSE_REMAT_COLLATERAL;
            values[8] += (int64_t)event->arg;
            values[9] = (int64_t)event->requested > values[9] ? (int64_t)event->requested : values[9];
            values[10] += scene->is_wasted[i];
        }
    }
    if (is_there) {
        const char *name;

        assert_int_equal(sqlite3_step(query), SQLITE_ROW);
        for (int i = 0; i < 11; i++) {
            assert_int_equal(sqlite3_column_int64(query, i), values[i]);
        }
        name = (const char *)sqlite3_column_text(query, 11);
        assert_int_equal(name != NULL, is_named);
        assert_true(name == NULL || strcmp(name, kept_names[number]) == 0);
    }
}

static void compare_operators(sqlite3 *db, const struct scene *scene)
{
    sqlite3_stmt *query = query_begin(
        db, "SELECT process_id, number, runs, run_ns, input_bytes, output_bytes, remats, collateral, remat_ns,"
            " depth_max, wasted, name FROM operator_stat ORDER BY process_id, number");

    for (uint32_t process = 1; process <= OWNERS; process++) {
        for (uint64_t number = 0; number < OPERATORS; number++) {
            expect_operator(query, scene, process, number);
        }
    }
    expect_end(query);
}

static void compare_evictions(sqlite3 *db, const struct scene *scene)
{
    sqlite3_stmt *query = query_begin(db, "SELECT * FROM eviction_stat ORDER BY process_id, operator, cause");

    for (uint32_t process = 1; process <= OWNERS; process++) {
        for (uint64_t cell = 0; cell < OPERATORS * (CAUSES + 1); cell++) {
            uint64_t cause = cell % (CAUSES + 1);
            int64_t values[5] = {process, (int64_t)(cell / (CAUSES + 1)),
                                 cause != 0 ? (int64_t)(VARVE_CAUSE_EVICT_RELEASED - 1 + cause) : 0};

            for (size_t i = 0; i < STEPS; i++) {
                const struct event *event = &scene->events[i];

                if (event->kind == VARVE_KIND_EVICT && event->process_id == process &&
                    event->pool == (uint16_t)values[1] && event->cause == values[2]) {
                    values[3]++;
                    values[4] += (int64_t)event->size;
                }
            }
            if (values[3] != 0) {
                EXPECT_ROW(query, values);
            }
        }
    }
    expect_end(query);
}

static void compare_storages(sqlite3 *db, const struct scene *scene)
{
    sqlite3_stmt *query = query_begin(db, "SELECT * FROM remat_storage_stat ORDER BY id");

    for (size_t i = 0; i < scene->storage_count; i++) {
        const struct storage *row = &scene->storages[i];
        const int64_t values[] = {(int64_t)i + 1,
                                  row->process,
                                  (int64_t)row->number,
                                  (int64_t)row->operator_number,
                                  (int64_t)row->size,
                                  row->evictions,
                                  row->remats,
                                  row->collateral,
                                  row->ns,
                                  row->wasted,
                                  row->is_evicted,
                                  row->is_pinned};

        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

/* The budget in force at event `at` of its process. */
static int64_t budget_at(const struct scene *scene, size_t at)
{
    for (size_t i = at; i-- > 0;) {
        const struct event *event = &scene->events[i];

        if (event->kind == VARVE_KIND_BUDGET && !is_failed(event) &&
            event->process_id == scene->events[at].process_id) {
            return event->size != UINT64_MAX ? (int64_t)event->size : INT64_MIN;
        }
    }
    return INT64_MIN;
}

/* What was in the way at failure `at`, by operator and cause. */
static void expect_blocked(sqlite3_stmt *query, const struct scene *scene, size_t at)
{
    const struct event *failure = &scene->events[at];

    for (uint64_t cell = 0; cell < 2 * OPERATORS; cell++) {
        int64_t values[5] = {(int64_t)failure->seq, (int64_t)cell / 2,
                             (int64_t)(VARVE_CAUSE_BLOCKED_PINNED + cell % 2)};

        for (size_t i = at + 1; i < STEPS; i++) {
            const struct event *event = &scene->events[i];

            if (event->process_id != failure->process_id || !is_failed(event)) {
                continue;
            }
            if (event->kind == VARVE_KIND_BUDGET) {
                break;
            }
            if (event->pool == cell / 2 && event->cause == values[2]) {
                values[3]++;
                values[4] += (int64_t)event->size;
            }
        }
        if (values[3] != 0) {
            EXPECT_ROW(query, values);
        }
    }
}

static void compare_budgets(sqlite3 *db, const struct scene *scene)
{
    sqlite3_stmt *budgets = query_begin(db, "SELECT * FROM remat_budget ORDER BY seq");
    sqlite3_stmt *failures = query_begin(db, "SELECT * FROM remat_failure_stat ORDER BY seq");
    sqlite3_stmt *blocked = query_begin(db, "SELECT * FROM remat_blocked_stat ORDER BY failure_seq, operator, cause");

    for (size_t i = 0; i < STEPS; i++) {
        const struct event *event = &scene->events[i];

        if (event->kind == VARVE_KIND_BUDGET && !is_failed(event)) {
            const int64_t values[] = {(int64_t)event->seq, event->ts_ns, event->process_id,
                                      event->size != UINT64_MAX ? (int64_t)event->size : INT64_MIN};

            EXPECT_ROW(budgets, values);
        } else if (event->kind == VARVE_KIND_BUDGET) {
            const int64_t values[] = {(int64_t)event->seq, event->ts_ns,       event->process_id,
                                      (int64_t)event->id,  event->pool,        (int64_t)event->size,
                                      budget_at(scene, i), (int64_t)event->arg};

            EXPECT_ROW(failures, values);
            expect_blocked(blocked, scene, i);
        }
    }
    expect_end(budgets);
    expect_end(failures);
    expect_end(blocked);
}

static void expect_score(sqlite3_stmt *query, const struct event *event)
{
    double expected;

    memcpy(&expected, &event->arg, sizeof(expected));
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int64(query, 0), event->seq);
    assert_int_equal(sqlite3_column_type(query, 1), isnan(expected) ? SQLITE_NULL : SQLITE_FLOAT);
    if (!isnan(expected) && sqlite3_column_double(query, 1) != expected) {
        fail_msg("score %a, expected %a", sqlite3_column_double(query, 1), expected);
    }
}

/* The views over events have each of them, or none. */
static void compare_views(sqlite3 *db, const struct scene *scene, bool has_events)
{
    sqlite3_stmt *ops =
        query_begin(db, "SELECT seq, ts_ns, id, cost_ns, input_bytes, output_bytes, callsite_id, process_id, pid"
                        " FROM op ORDER BY seq");
    sqlite3_stmt *scores = query_begin(db, "SELECT seq, score FROM eviction ORDER BY seq");
    sqlite3_stmt *evictions =
        query_begin(db, "SELECT seq, process_id, number, addr, size, clock_ns FROM eviction ORDER BY seq");
    sqlite3_stmt *remats = query_begin(
        db,
        "SELECT seq, process_id, number, addr, size, depth, cost_ns, is_wasted, cause = 'direct' FROM rematerialization"
        " ORDER BY seq");

    for (size_t i = 0; i < STEPS && has_events; i++) {
        const struct event *event = &scene->events[i];
        int64_t addr = event->addr != 0 ? (int64_t)event->addr : INT64_MIN;

        if (event->kind == VARVE_KIND_OP) {
            const int64_t values[] = {(int64_t)event->seq,
                                      event->ts_ns,
                                      (int64_t)event->id,
                                      (int64_t)event->arg,
                                      (int64_t)event->requested,
                                      (int64_t)event->size,
                                      event->callsite,
                                      event->process_id,
                                      event->pid};

            EXPECT_ROW(ops, values);
        } else if (event->kind == VARVE_KIND_EVICT) {
            const int64_t values[] = {(int64_t)event->seq,  event->process_id,        (int64_t)event->id, addr,
                                      (int64_t)event->size, (int64_t)event->requested};

            EXPECT_ROW(evictions, values);
            expect_score(scores, event);
        } else if (event->kind == VARVE_KIND_REMAT) {
            const int64_t values[] = {(int64_t)event->seq,
                                      event->process_id,
                                      (int64_t)event->id,
                                      addr,
                                      (int64_t)event->size,
                                      (int64_t)event->requested,
                                      (int64_t)event->arg,
                                      scene->is_wasted[i],
                                      event->cause == VARVE_CAUSE_REMAT_DIRECT};

            EXPECT_ROW(remats, values);
        }
    }
    expect_end(ops);
    expect_end(scores);
    expect_end(evictions);
    expect_end(remats);
}

/* Sums of the views, of totals and of events, are those of the tables. */
static void compare_sums(sqlite3 *db, bool has_events)
{
    static const char *const wrong[] = {
        "SELECT process_id, runs, run_ns, remats, collateral, remat_ns, evictions, evicted_bytes, wasted FROM "
        "remat_total EXCEPT SELECT process_id, sum(runs), sum(run_ns), sum(remats), sum(collateral), sum(remat_ns), "
        "sum(evictions), sum(evicted_bytes), sum(wasted) FROM operator_total GROUP BY process_id",
        "SELECT process_id, sum(evictions), sum(bytes) FROM eviction_total GROUP BY process_id EXCEPT"
        " SELECT process_id, evictions, evicted_bytes FROM remat_total",
        "SELECT process_id, sum(evictions), sum(remats), sum(collateral), sum(remat_ns), sum(wasted) FROM "
        "remat_storage GROUP BY process_id EXCEPT SELECT process_id, evictions, remats, collateral, remat_ns, wasted "
        "FROM remat_total",
        "SELECT process_id, cause, count(*), sum(size) FROM eviction GROUP BY process_id, cause EXCEPT"
        " SELECT process_id, cause, evictions, bytes FROM eviction_total",
        "SELECT process_id, sum(cause = 'direct'), sum(cause = 'collateral'), sum(cost_ns), sum(is_wasted), max(depth)"
        " FROM rematerialization GROUP BY process_id EXCEPT"
        " SELECT process_id, remats, collateral, remat_ns, wasted, depth_max FROM remat_total",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]) - (has_events ? 0 : 2); i++) {
        sqlite3_stmt *query = query_begin(db, wrong[i]);

        if (sqlite3_step(query) != SQLITE_DONE) {
            fail_msg("%s: has rows", wrong[i]);
        }
        sqlite3_finalize(query);
    }
}

/* ---- the tests ---- */

enum way { WAY_USUAL, WAY_TOTALS, WAY_ALLOCATIONS, WAY_PRIVATE };

static void run_steps(struct run *run, struct scene *scene)
{
    struct varve_message message;

    for (uint64_t seq = 1; seq <= STEPS; seq++) {
        struct event event = random_event(scene, seq);

        scene->events[seq - 1] = event;
        run_take(run, event);
        if (seq == STEPS / 2 && below(scene, 2)) {
            derive_process_end(run->derive, 2);
            scene->has_ended = true;
        }
    }
    for (uint32_t i = 1; i <= OWNERS; i++) {
        const struct store_thread thread = {
            .id = i, .process_id = i, .pid = 1000 + (int32_t)i, .tid = 1000 + (int32_t)i};

        assert_int_equal(store_thread(run->store, &thread), VARVE_OK);
    }
    assert_int_equal(store_commit(run->store, NULL, 0, &message), VARVE_OK);
}

static void run_scene(uint64_t seed, enum way way)
{
    struct run run = {0};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct varve_message message;
    sqlite3 *db;

    assert_non_null(scene);
    scene->random = seed;
    run_begin(&run, 1);
    if (way == WAY_TOTALS) {
        store_keep(run.store, false, false);
        derive_forget(run.derive);
    } else if (way == WAY_ALLOCATIONS) {
        store_keep(run.store, false, true);
    } else if (way == WAY_PRIVATE) {
        store_close(run.store);
        assert_int_equal(unlink(run.path), 0);
        assert_int_equal(store_open(run.path, STORE_CREATE_PRIVATE, &run.store, &message), VARVE_OK);
    }
    run_steps(&run, scene);
    model_storages(scene);
    for (int i = 0; i < 2; i++) { /* the second time as after a full disk */
        assert_int_equal(derive_finish(run.derive, run.store, NULL, NULL, &message), VARVE_OK);
    }
    assert_int_equal(store_finish(run.store, NULL, NULL, &message), VARVE_OK);
    derive_close(run.derive);
    store_close(run.store);
    assert_int_equal(sqlite3_open_v2(run.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    compare_operators(db, scene);
    compare_evictions(db, scene);
    compare_storages(db, scene);
    compare_budgets(db, scene);
    compare_views(db, scene, way == WAY_USUAL || way == WAY_PRIVATE);
    compare_sums(db, way == WAY_USUAL || way == WAY_PRIVATE);
    run_end(&run, db);
    free(scene);
}

TEST(test_random_streams)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 6; seed++) {
        run_scene(seed * 7919, WAY_USUAL);
    }
}

TEST(test_less_is_kept)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 3; seed++) {
        run_scene(seed * 104729, WAY_TOTALS);
        run_scene(seed * 15485863, WAY_ALLOCATIONS);
    }
}

/* As importers and players of logs write it. */
TEST(test_private)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 3; seed++) {
        run_scene(seed * 1299709, WAY_PRIVATE);
    }
}
