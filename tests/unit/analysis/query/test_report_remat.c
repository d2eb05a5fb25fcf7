/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report` on rematerialization from a planner's events to words: they become records (storage/remat_record.h), go through the
 * writer, which derives the tables, and the report must give the figures that were put in. How it looks is seen by the golden tests.
 */
#include <cmocka.h>

#include "support/command.h"

#include "storage/storage.h"
#include "trace/trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)
#define MS UINT64_C(1000000)

enum { MATMUL = 1, RELU = 2 };

struct scene {
    struct varve_writer *writer;
    int64_t ns;
};

static void take(struct scene *scene, uint16_t name, struct varve_remat_event event)
{
    struct varve_record record;

    varve_remat_event_record(&event, name, &record);
    scene->ns += (int64_t)MS;
    assert_int_equal(varve_writer_event(scene->writer, &record, scene->ns), 0);
}

static void name(struct scene *scene, uint16_t number, const char *text)
{
    struct varve_record record;

    varve_remat_name_record(number, text, &record);
    assert_int_equal(varve_writer_event(scene->writer, &record, scene->ns), 0);
}

static void op(struct scene *scene, uint32_t number, uint16_t of, uint64_t ms)
{
    take(scene, of,
         (struct varve_remat_event){.kind = VARVE_REMAT_EVENT_OP,
                                    .op = number,
                                    .storage = VARVE_REMAT_NONE,
                                    .bytes = MIB,
                                    .input_bytes = 2 * MIB,
                                    .cost_ns = ms * MS});
}

static void of_storage(struct scene *scene, enum varve_remat_event_kind kind, enum varve_remat_cause cause,
                       uint32_t storage, uint16_t of, double score)
{
    bool is_direct = cause == VARVE_REMAT_CAUSE_DIRECT;

    take(scene, of,
         (struct varve_remat_event){.kind = kind,
                                    .cause = cause,
                                    .op = storage,
                                    .storage = storage,
                                    .bytes = (storage + 1) * MIB,
                                    .depth = is_direct ? 2 : 1,
                                    .cost_ns = is_direct ? 5 * MS : 0,
                                    .score = score,
                                    .time = 77});
}

static void evict(struct scene *scene, enum varve_remat_cause cause, uint32_t storage, uint16_t of,
                  double score)
{
    of_storage(scene, VARVE_REMAT_EVENT_EVICT, cause, storage, of, score);
}

static void remat(struct scene *scene, enum varve_remat_cause cause, uint32_t storage, uint16_t of)
{
    of_storage(scene, VARVE_REMAT_EVENT_REMAT, cause, storage, of, NAN);
}

static void budget(struct scene *scene, uint64_t bytes)
{
    take(scene, 0,
         (struct varve_remat_event){.kind = VARVE_REMAT_EVENT_BUDGET,
                                    .op = VARVE_REMAT_NONE,
                                    .storage = VARVE_REMAT_NONE,
                                    .bytes = bytes});
}

static void stop_short(struct scene *scene)
{
    take(scene, MATMUL,
         (struct varve_remat_event){.kind = VARVE_REMAT_EVENT_FAILED,
                                    .op = 99,
                                    .storage = VARVE_REMAT_NONE,
                                    .bytes = 4 * MIB,
                                    .cost_ns = 7 * MIB});
    of_storage(scene, VARVE_REMAT_EVENT_BLOCKED, VARVE_REMAT_CAUSE_PINNED, 2, MATMUL, NAN);
    of_storage(scene, VARVE_REMAT_EVENT_BLOCKED, VARVE_REMAT_CAUSE_PINNED, 1, MATMUL, NAN);
    of_storage(scene, VARVE_REMAT_EVENT_BLOCKED, VARVE_REMAT_CAUSE_INPUT, 0, 0, NAN);
}

/* 20 runs of 10 ms; storage 0 comes back at once, 1 only after 17 runs, 3 beside it, 2 not at all. */
static void write_run(const char *path, bool fails)
{
    struct scene scene = {.ns = 0};
    struct varve_message message = {""};
    const struct varve_writer_process process = {.pid = 77, .executable = "train"};

    if (varve_writer_open(path, true, &scene.writer, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    varve_writer_process(scene.writer, &process);
    budget(&scene, 8 * MIB);
    name(&scene, MATMUL, "matmul");
    name(&scene, RELU, "an operator whose name is \033[31mlonger than that");
    op(&scene, 0, MATMUL, 10);
    evict(&scene, VARVE_REMAT_CAUSE_BUDGET, 0, MATMUL, 1.0 / 3.0);
    remat(&scene, VARVE_REMAT_CAUSE_DIRECT, 0, MATMUL);
    of_storage(&scene, VARVE_REMAT_EVENT_PIN, VARVE_REMAT_CAUSE_NONE, 0, MATMUL, NAN);
    of_storage(&scene, VARVE_REMAT_EVENT_UNPIN, VARVE_REMAT_CAUSE_NONE, 0, MATMUL, NAN);
    evict(&scene, VARVE_REMAT_CAUSE_BUDGET, 1, RELU, 0x1p-70);
    evict(&scene, VARVE_REMAT_CAUSE_ALLOCATOR, 3, RELU, NAN);
    evict(&scene, VARVE_REMAT_CAUSE_RELEASED, 2, RELU, NAN);
    for (uint32_t i = 1; i < 20; i++) {
        op(&scene, i, RELU, 10);
    }
    remat(&scene, VARVE_REMAT_CAUSE_DIRECT, 1, RELU);
    remat(&scene, VARVE_REMAT_CAUSE_COLLATERAL, 3, RELU);
    evict(&scene, VARVE_REMAT_CAUSE_REQUESTED, 0, MATMUL, 0.0);
    evict(&scene, VARVE_REMAT_CAUSE_BANISHED, 4, 0, NAN);
    if (fails) {
        stop_short(&scene);
    }
    budget(&scene, VARVE_REMAT_UNLIMITED);
    budget(&scene, 6 * MIB);
    if (varve_writer_finish(scene.writer, NULL, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static char *run_command(const char *command, const char *option, const char *sql)
{
    struct command_outcome outcome = sql != NULL      ? command_run(command, option, "run.db", sql, NULL)
                                     : option != NULL ? command_run(command, option, "run.db", NULL)
                                                      : command_run(command, "run.db", NULL);
    char *text = outcome.out;

    if (outcome.status != 0 || outcome.err[0] != '\0') {
        fail_msg("%s: status %d, %s", command, outcome.status, outcome.err);
    }
    outcome.out = NULL;
    command_outcome_free(&outcome);
    return text;
}

static void assert_says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        fputs(text, stderr); /* print_error cuts it */
        fail_msg("'%s' is not in this report", words);
    }
}

/* ---- tests ---- */

TEST(test_text)
{
    char *text, *chapter;
    int lines = 0;

    write_run("run.db", true);
    text = run_command("report", "--all", NULL);
    chapter = strstr(text, "\nRematerialization\n");
    assert_non_null(chapter);
    assert_says(chapter,
                "  budget 6.00 MiB (6,291,456)\n"
                "  20 runs of operators took 200 ms, recomputation 10.0 ms more: an overhead of 5.0 %\n"
                "  2 storages recomputed because needed, 1 beside, up to 2 deep\n"
                "  6 evictions: 2 budget, 1 allocator, 1 banished, 1 released, 1 requested\n"
                "  16.0 MiB were evicted; 1 in vain: recomputed within 16 runs of operators\n");
    assert_says(chapter,
                "  1 operator did not get its memory, 33.0 ms after the start (event 35): matmul\n"
                "  needed 4.00 MiB (4,194,304), the budget was 8.00 MiB, 7.00 MiB could not be evicted\n");
    assert_says(chapter, "an operator whose name is ?[31ml");
    for (const char *at = chapter; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_true(lines <= 25);
    free(text);
    write_run("run.db", false);
    text = run_command("report", "--all", NULL);
    assert_null(strstr(text, "did not get"));
    free(text);
}

TEST(test_json)
{
    char *text;

    write_run("run.db", true);
    text = run_command("report", "--json", NULL);
    assert_says(
        text,
        "\"rematerialization\":{\"totals\":[{\"process_id\":1,\"pid\":77,\"budget\":6291456,\"runs\":20,"
        "\"run_ns\":200000000,\"remats\":2,\"collateral\":1,\"remat_ns\":10000000,\"overhead\":0.05,\"depth_max\":2,"
        "\"evictions\":6,\"evicted_bytes\":16777216,\"wasted\":1,\"failures\":1}]");
    assert_says(text, "{\"process_id\":1,\"pid\":77,\"cause\":\"budget\",\"evictions\":2,\"bytes\":3145728}");
    assert_says(
        text,
        "\"name\":\"matmul\",\"runs\":1,\"run_ns\":10000000,\"input_bytes\":2097152,\"output_bytes\":1048576,"
        "\"remats\":1,\"collateral\":0,\"remat_ns\":5000000,\"depth_max\":2,\"evictions\":2,"
        "\"evicted_bytes\":2097152,\"released\":0,\"wasted\":1}");
    assert_says(
        text,
        "\"op_id\":99,\"operator\":\"matmul\",\"needed\":4194304,\"budget\":8388608,\"blocked\":7340032,\"in_the_way\":"
        "[{\"operator\":\"matmul\",\"cause\":\"pinned\",\"storages\":2,\"bytes\":5242880},"
        "{\"operator\":null,\"cause\":\"input\",\"storages\":1,\"bytes\":1048576}]");
    free(text);
}

/* What the planner said, one by one. */
TEST(test_views)
{
    char *text;

    write_run("run.db", false);
    text = run_command("query", "--csv",
                       "SELECT number, operator, size, score, clock_ns, cause FROM eviction WHERE cause IN "
                       "('budget', 'requested', 'banished')");
    assert_string_equal(
        text, "number,operator,size,score,clock_ns,cause\n0,matmul,1048576,0.333333333333333,77,budget\n"
              "1,an operator whose name is ?[31ml,2097152,8.470329472543e-22,77,budget\n"
              "0,matmul,1048576,0.0,77,requested\n4,,5242880,,77,banished\n");
    free(text);
    text = run_command("query", "--csv",
                       "SELECT number, size, depth, cost_ns, cause, is_wasted FROM rematerialization");
    assert_string_equal(text, "number,size,depth,cost_ns,cause,is_wasted\n0,1048576,2,5000000,direct,1\n"
                              "1,2097152,2,5000000,direct,0\n3,4194304,1,0,collateral,0\n");
    free(text);
    text = run_command("query", "--csv", "SELECT count(*), sum(cost_ns), max(id) FROM op");
    assert_string_equal(text, "count(*),sum(cost_ns),max(id)\n20,200000000,19\n");
    free(text);
}

/* A database of before these tables, and one without a planner, have no such chapter and no error. */
TEST(test_nothing)
{
    static const char *const scripts[] = {"nothing.sql", NULL};
    char *text;

    unlink("run.db");
    trace_database_make("run.db", scripts);
    text = run_command("report", "--all", NULL);
    assert_null(strstr(text, "Rematerialization"));
    free(text);
    text = run_command("report", "--json", NULL);
    assert_null(strstr(text, "\"rematerialization\""));
    free(text);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
