/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve segments` and `varve oom`: what the JSON says at many events of random histories is what the model's
 * plain lists have. The words are the golden tests'.
 * Costs: 2 s
 */
#include "support/derive/blocks_model.h"

#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTS 20
#define EVENTS 8000

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
    assert_int_equal(varve_writer_event(history->writer, &named, (int64_t)varve_writer_events(history->writer) * 1000),
                     0);
}

static void history_make(struct history *history, const char *path, bool is_silent)
{
    *history = (struct history){.random = is_silent ? 13 : 9};
    struct varve_message message;
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
        if (block->state < 0) {
            continue;
        }
        char line[200];
        snprintf(line, sizeof(line), "{\"address\":%llu,\"size\":%llu,\"requested_size\":%llu,\"state\":\"%s\"}",
                 (unsigned long long)block->addr, (unsigned long long)block->size, (unsigned long long)block->requested,
                 states[block->state]);
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
    static const char *const keys[] = {"\"holes\":",          "\"in_holes\":",          "\"largest_hole\":",
                                       "\"empty_segments\":", "\"in_empty_segments\":", "\"largest_empty_segment\":"};
    char line[1000];
    snprintf(line, sizeof(line), "query --json %s `%s`", path, sql);
    char *views = command_answer(line);

    snprintf(line, sizeof(line), "segments --json %s", path);
    char *state = command_answer(line);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(figure(views, keys[i]), figure(state, keys[i]));
    }
    assert_true(figure(state, keys[0]) > 0);
    assert_int_equal(figure(state, "\"reserved\":"), figure(state, "\"used\":") + figure(state, "\"pending\":") +
                                                         figure(state, keys[1]) + figure(state, keys[4]));
    free(state);
    free(views);
}

TEST_WITH(test_states, test_folder_setup, test_folder_teardown)
{
    static struct history history;
    for (int silent = 0; silent < 2; silent++) {
        history_make(&history, "trace.db", silent);
        if (!silent) { /* whose expandable segments, side by side and without numbers, cannot be distinguished */
            expect_views("trace.db");
        }
        for (int i = 0; i < history.moment_count; i++) {
            const unsigned long long seq = history.moments[i].seq;
            char line[100];
            snprintf(line, sizeof(line), "segments --json --at %llu trace.db", seq);
            char *by_number = command_answer(line);

            expect_blocks(by_number, &history.moments[i]);
            /* event n happened at n - 1 us */
            snprintf(line, sizeof(line), "segments --json --at %lluns --device 4 trace.db", seq * 1000 - 1);
            char *by_time = command_answer(seq > 0 ? line : "segments --json --at 0 trace.db");

            assert_string_equal(by_time, by_number);
            free(by_time);
            free(by_number);
            free(history.moments[i].blocks);
        }
    }
    EXPECT(0, "segments --device 1 trace.db", "no caching allocator");
    /* a keyframe that says what cannot be */
    sql_run("trace.db", "UPDATE keyframe SET data = x'01000a'");
    EXPECT(2, "segments trace.db", "keyframe of device 4 is damaged");
}

/* Requests that no allocator can have had: no block is looked for behind the last one. */
TEST_WITH(test_damaged_requests, test_folder_setup, test_folder_teardown)
{
    static const char *const damage[] = {"UPDATE oom SET requested = 0", "UPDATE oom SET requested = -1",
                                         "UPDATE oom SET requested = 4611686018427387904",
                                         "UPDATE oom SET requested = 9223372036854775807"};
    trace_database_make("oom.db", (const char *const[]){"blocks.sql", NULL});
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        sql_run("oom.db", damage[i]);
        EXPECT(0, "oom oom.db", "");
    }
}
