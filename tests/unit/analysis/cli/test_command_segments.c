/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve segments` and `varve oom`: what the JSON says at many events of random histories is what the model's
 * plain lists have, and what is wrong on the command line is reported. The words are the golden tests'.
 */
#include "support/derive/blocks_model.h"

#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTS 30
#define EVENTS 12000

struct moment {
    uint64_t seq;
    int block_count;
    struct model_block *blocks;
};

struct history {
    struct varve_writer *writer;
    struct model_device device;
    struct moment moments[MOMENTS];
    int moment_count;
    uint64_t random;
};

static void take_record(void *context, const struct varve_record *record)
{
    struct history *history = context;
    struct varve_record named = *record;

    named.callsite = 0;
    assert_int_equal(
        varve_writer_event(history->writer, &named, (int64_t)varve_writer_events(history->writer) * 1000), 0);
}

static void history_make(struct history *history, const char *path, bool is_silent)
{
    struct varve_message message;

    *history = (struct history){.random = is_silent ? 13 : 9};
    assert_int_equal(varve_writer_open(path, true, &history->writer, &message), 0);
    model_init(&history->device, 4, is_silent, &history->random, take_record, history);
    for (int i = 0; varve_writer_events(history->writer) < EVENTS; i++) {
        uint64_t seq = varve_writer_events(history->writer);

        if (history->moment_count < MOMENTS && seq >= (uint64_t)history->moment_count * EVENTS / MOMENTS) {
            struct moment *moment = &history->moments[history->moment_count++];
            size_t bytes = (size_t)history->device.block_count * sizeof(history->device.blocks[0]);

            *moment = (struct moment){.seq = seq, .block_count = history->device.block_count};
            moment->blocks = malloc(bytes + 1);
            assert_non_null(moment->blocks);
            memcpy(moment->blocks, history->device.blocks, bytes);
        }
        model_step(&history->device, 150);
    }
    assert_int_equal(varve_writer_finish(history->writer, NULL, NULL, &message), 0);
}

/* Every block of the model follows in the text, and no other does. */
static void expect_blocks(const char *text, const struct moment *moment)
{
    static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
    const char *at = strstr(text, "\"segments\":");
    size_t reported = 0;
    size_t expected = 0;

    assert_non_null(at);
    for (const char *block = at; (block = strstr(block, "\"state\":")) != NULL; block++) {
        reported++;
    }
    for (int i = 0; i < moment->block_count; i++) {
        const struct model_block *block = &moment->blocks[i];
        char line[200];

        if (block->state < 0) {
            continue;
        }
        snprintf(line, sizeof(line),
                 "{\"address\":%llu,\"size\":%llu,\"requested_size\":%llu,\"state\":\"%s\"}",
                 (unsigned long long)block->addr, (unsigned long long)block->size,
                 (unsigned long long)block->requested, states[block->state]);
        at = at != NULL ? strstr(at, line) : NULL;
        if (at == NULL) {
            fail_msg("after event %llu: no %s", (unsigned long long)moment->seq, line);
        }
        expected++;
    }
    assert_int_equal(reported, expected);
}

static long long figure(const char *text, const char *before)
{
    const char *at = strstr(text, before);

    if (at == NULL) {
        fail_msg("no %s in %s", before, text);
        return -1;
    }
    return atoll(at + strlen(before));
}

/* The views, whose numbers come from rows alone, say the same of the end as what is rebuilt from keyframes. */
static void expect_views(const char *path)
{
    static const char sql[] =
        "SELECT count(*) AS holes, coalesce(sum(size), 0) AS in_holes, coalesce(max(size), 0) AS largest_hole, (SELECT "
        "count(*) FROM empty_segment) AS empty_segments, (SELECT coalesce(sum(size), 0) FROM empty_segment) AS "
        "in_empty_segments, (SELECT coalesce(max(size), 0) FROM empty_segment) AS largest_empty_segment FROM hole";
    static const char *const keys[] = {
        "\"holes\":",          "\"in_holes\":",          "\"largest_hole\":",
        "\"empty_segments\":", "\"in_empty_segments\":", "\"largest_empty_segment\":"};
    struct command_outcome state = command_run("segments", "--json", path, NULL);
    struct command_outcome views = command_run("query", "--json", path, sql, NULL);

    assert_int_equal(state.status, 0);
    assert_string_equal(views.err, "");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(figure(views.out, keys[i]), figure(state.out, keys[i]));
    }
    assert_true(figure(state.out, keys[0]) > 0);
    assert_int_equal(figure(state.out, "\"reserved\":"),
                     figure(state.out, "\"used\":") + figure(state.out, "\"pending\":") +
                         figure(state.out, keys[1]) + figure(state.out, keys[4]));
    command_outcome_free(&state);
    command_outcome_free(&views);
}

TEST(test_states)
{
    static struct history history;
    char *folder = test_folder_enter();

    for (int silent = 0; silent < 2; silent++) {
        history_make(&history, "trace.db", silent);
        if (!silent) { /* whose expandable segments, side by side and without numbers, cannot be distinguished */
            expect_views("trace.db");
        }
        for (int i = 0; i < history.moment_count; i++) {
            char number[32];
            char time[32];
            struct command_outcome by_number;
            struct command_outcome by_time;

            snprintf(number, sizeof(number), "%llu", (unsigned long long)history.moments[i].seq);
            by_number = command_run("segments", "--json", "--at", number, "trace.db", NULL);
            assert_int_equal(by_number.status, 0);
            expect_blocks(by_number.out, &history.moments[i]);
            /* event n happened at n - 1 us */
            snprintf(time, sizeof(time), "%lluns", (unsigned long long)history.moments[i].seq * 1000 - 1);
            if (history.moments[i].seq > 0) {
                by_time = command_run("segments", "--json", "--at", time, "--device", "4", "trace.db", NULL);
                assert_string_equal(by_time.out, by_number.out);
                command_outcome_free(&by_time);
            }
            command_outcome_free(&by_number);
            free(history.moments[i].blocks);
        }
    }
    test_folder_leave(folder);
}

static void expect_refusal(const char *at, const char *words)
{
    struct command_outcome outcome = command_run("segments", "--at", at, "trace.db", NULL);

    assert_int_equal(outcome.status, 2);
    assert_string_equal(outcome.out, "");
    if (strstr(outcome.err, words) == NULL) {
        fail_msg("--at %s: %s", at, outcome.err);
    }
    command_outcome_free(&outcome);
}

TEST(test_bad_input)
{
    static struct history history;
    struct command_outcome outcome;
    char *folder = test_folder_enter();

    history_make(&history, "trace.db", false);
    for (int i = 0; i < history.moment_count; i++) {
        free(history.moments[i].blocks);
    }
    expect_refusal("99999999", "there is no event 99999999");
    expect_refusal("-3", "--at must be");
    expect_refusal("12 parsecs", "--at must be");
    expect_refusal("-1s", "--at must be");
    expect_refusal("nans", "--at must be");
    expect_refusal("", "--at must be");
    outcome = command_run("segments", "--map", "--json", "trace.db", NULL);
    assert_int_equal(outcome.status, 2);
    command_outcome_free(&outcome);
    outcome = command_run("segments", "--device", "1", "trace.db", NULL);
    assert_int_equal(outcome.status, 0);
    assert_non_null(strstr(outcome.out, "no caching allocator"));
    command_outcome_free(&outcome);
    /* a keyframe that says what cannot be */
    sql_run("trace.db", "UPDATE keyframe SET data = x'01000a'");
    outcome = command_run("segments", "trace.db", NULL);
    assert_int_equal(outcome.status, 2);
    assert_string_equal(outcome.out, "");
    assert_non_null(strstr(outcome.err, "keyframe of device 4 is damaged"));
    command_outcome_free(&outcome);
    test_folder_leave(folder);
}

/* Requests that no allocator can have had: no block is looked for behind the last one. */
TEST(test_damaged_requests)
{
    static const char *const requests[] = {"0", "-1", "4611686018427387904", "9223372036854775807"};
    char *folder = test_folder_enter();

    trace_database_make("oom.db", (const char *const[]){"blocks.sql", NULL});
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct command_outcome outcome;
        char sql[80];

        snprintf(sql, sizeof(sql), "UPDATE oom SET requested = %s", requests[i]);
        sql_run("oom.db", sql);
        outcome = command_run("oom", "oom.db", NULL);
        assert_int_equal(outcome.status, 0);
        command_outcome_free(&outcome);
    }
    test_folder_leave(folder);
}
