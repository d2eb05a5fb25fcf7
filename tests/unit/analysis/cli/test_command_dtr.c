/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve dtr` as a command: its JSON, the database and the drawing that it writes. Figures are compared with the
 * simulator's by tests/conformance/test_dtr_model.py, the words are the golden tests'.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG VARVE_SOURCE_DIR "/tests/golden/training.log"

/* The first number under that key. */
static double number(const char *json, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *place = strstr(json, quoted);
    if (place == NULL) {
        fail_msg("no %s in %.300s", key, json);
    }
    return place != NULL ? strtod(place + strlen(quoted), NULL) : 0;
}

TEST(test_play)
{
    char *json = command_answer("dtr --ratio=0.5 --json " LOG);
    char *same = command_answer("dtr --budget 120961026 --json " LOG);
    assert_non_null(strstr(json, "\"status\":\"ok\""));
    assert_int_equal(number(json, "budget"), 120961026); /* half of 241,922,052 */
    assert_true(number(json, "clock") == 1 + number(json, "model_compute") + number(json, "remat_compute"));
    assert_true(number(json, "overhead") == number(json, "clock") / number(json, "baseline_compute"));
    assert_true(number(json, "max_memory") <= number(json, "budget"));
    assert_true(number(json, "evictions") == number(json, "evictions_released") + number(json, "evictions_budget"));
    assert_true(number(json, "op_executions") == number(json, "operators") + number(json, "remats_direct"));
    assert_true(number(json, "clock") == number(same, "clock"));
    assert_null(strstr(json, "peak_reserved"));
    free(json);
    free(same);
}

/* An end before the end is an answer. */
TEST(test_failed_plays)
{
    char *oom = command_answer("dtr --budget 60M --json " LOG);
    char *thrash = command_answer("dtr --budget=75M --remat-limit=0.1 --json " LOG);
    char *unlimited = command_answer("dtr --budget none --json " LOG);
    assert_non_null(strstr(oom, "\"status\":\"oom\""));
    assert_non_null(strstr(oom, "\"failed_op\":{\"number\":"));
    assert_true(number(oom, "lower_bound") > 60 << 20);
    assert_non_null(strstr(thrash, "\"status\":\"thrash\""));
    assert_true(number(thrash, "remat_compute") > 0.1 * number(thrash, "baseline_compute"));
    assert_non_null(strstr(unlimited, "\"budget\":null"));
    assert_int_equal(number(unlimited, "remat_compute"), 0);
    free(oom);
    free(thrash);
    free(unlimited);
}

TEST(test_sweep)
{
    char *one = command_answer("dtr --sweep=0.2:1:0.01 --jobs=1 --json " LOG);
    char *bytes = command_answer("dtr --sweep 64M:96M:1M --json " LOG);
    const char *points = strstr(one, "\"points\":[");
    assert_non_null(points);
    assert_int_equal(text_count(points, "\"budget\":"), 81);
    assert_non_null(strstr(one, "\"bands\":[{\"status\":\"oom\""));
    assert_int_equal(text_count(one, "decisions_alike"), 2);
    points = strstr(bytes, "\"points\":[");
    assert_non_null(points);
    assert_int_equal(text_count(points, "\"budget\":"), 33);
    assert_int_equal(number(points, "budget"), 64 << 20);
    free(one);
    free(bytes);
}

TEST(test_allocator)
{
    char *json = command_answer("dtr --ratio=0.8 --mode allocator --heuristic window --conf expandable_segments:True "
                                "--json " LOG);
    assert_non_null(strstr(json, "\"mode\":\"allocator\""));
    assert_true(number(json, "peak_reserved") <= number(json, "budget"));
    assert_true(number(json, "peak_allocated") <= number(json, "peak_reserved"));
    assert_true(number(json, "device_calls") > 0);
    free(json);
}

/* The database has the play that the JSON is about. */
static void check_database(const char *play, const char *count, double at_least)
{
    char *json = command_answer(play);
    char *rows = command_answer("query --json play.db `SELECT sum(kind = 'op') AS ops, sum(kind = 'evict') AS evicts, "
                                "sum(kind = 'remat' AND cause = 'direct') AS remats, max(ts_ns) AS end FROM events`");
    char *blocks = command_answer(count);
    assert_true(number(rows, "ops") == number(json, "operators"));
    assert_true(number(rows, "evicts") == number(json, "evictions"));
    assert_true(number(rows, "remats") == number(json, "remats"));
    assert_true(number(rows, "end") == number(json, "clock"));
    assert_true(number(blocks, "count") >= at_least);
    free(json);
    free(rows);
    free(blocks);
}

TEST(test_database)
{
    check_database("dtr --ratio=0.8 --mode exact -f -o play.db --json " LOG,
                   "query --json play.db `SELECT count(*) AS count FROM op WHERE cost_ns > 0`", 1);
    check_database("dtr --ratio=0.8 --mode allocator -f -o play.db --json " LOG,
                   "query --json play.db `SELECT count(*) AS count FROM allocation`", 90);
    EXPECT(2, "dtr --ratio=0.8 -o play.db " LOG, "play.db");
    assert_int_equal(unlink("play.db"), 0);
}

static void write_program(const char *text)
{
    file_write("bin/rsvg-convert", text, strlen(text));
    assert_int_equal(chmod("bin/rsvg-convert", 0700), 0);
}

TEST(test_plot)
{
    const char *old = getenv("PATH");
    char *path = strdup(old != NULL ? old : ""), folder[4096], own[8192];
    assert_non_null(path);
    assert_non_null(getcwd(folder, sizeof(folder)));
    free(command_answer("dtr --sweep=0.2:1:0.05 --plot plot.svg " LOG));
    size_t bytes;
    char *svg = file_read("plot.svg", &bytes);
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    assert_string_equal(svg + bytes - 7, "</svg>\n");
    assert_int_equal(text_count(svg, "<path class=\"curve\""), 1);
    assert_true(text_count(svg, "<rect class=\"oom\"") == 2); /* one of them is the legend's */
    assert_int_equal(text_count(svg, "<path class=\"bound\""), 1);
    free(svg);
    assert_int_equal(mkdir("bin", 0700), 0);
    assert_int_equal(setenv("PATH", folder, 1), 0);
    EXPECT(2, "dtr --sweep=0.5:1:0.1 --plot plot.png " LOG, "librsvg2-bin");
    snprintf(own, sizeof(own), "%s/bin:%s", folder, path);
    assert_int_equal(setenv("PATH", own, 1), 0);
    /* --version, or --zoom=2 -o PNG SVG */
    write_program("#!/bin/sh\n[ $# = 1 ] || { echo PNG; cat \"$4\"; } >\"$3\"\n");
    free(command_answer("dtr --sweep=0.5:1:0.1 --plot plot.png " LOG));
    svg = file_read("plot.png", NULL);
    assert_int_equal(strncmp(svg, "PNG\n<svg ", 9), 0);
    free(svg);
    write_program("#!/bin/sh\n[ $# = 1 ]\n");
    EXPECT(2, "dtr --sweep=0.5:1:0.1 -f --plot plot.png " LOG, "failed");
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
