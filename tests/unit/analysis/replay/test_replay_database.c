/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that go through a database: an import, and a replay's own records with splits and merges, read
 * back and replayed again with equal events, blocks, stacks and settings; and the commands around it.
 * Costs: 1 s
 */
#include "support/command.h"
#include "support/history_python.h"
#include "support/replay.h"

#include "analysis/history/history_database.h"
#include "analysis/history/history_read.h"
#include "analysis/replay/history_writer.h"
#include "analysis/import/import.h"
#include "base/error.h"
#include "trace/writer.h"

static const char path[] = "t.db";

static struct scene *make_scene(void)
{
    struct scene *scene = scene_of("garbage_collection_threshold:0.8", 120 * MIB,
                                   "a=30M b=3M@3 c=700@3 -b~900 -a +60M !80M /900 +9K@3 -c");
    struct history *history = scene->history;
    uint32_t file = history_text(history, "model.py", 8);
    const struct history_frame frames[2] = {{history_text(history, "allocate", 8), file, 12},
                                            {history_text(history, "main", 4), file, 3}};
    scene_device(scene)->events[1].stack = history_add_stack(history, frames, 2);
    assert_int_equal(replay_settings(history, scene->conf, &history->settings, NULL), VARVE_OK);
    return scene;
}

/* Events, and the segments at the end with their blocks. What a failed request found free is not in a database. */
static void expect_equal(const struct history *want, const struct history *got)
{
    for (size_t i = 0; i < want->devices[0].event_count && i < got->devices[0].event_count; i++) {
        if (want->devices[0].events[i].action == HISTORY_OOM) {
            want->devices[0].events[i].addr = got->devices[0].events[i].addr;
        }
    }
    char *wanted = print_history(want), *found = print_history(got);

    assert_string_equal(found, wanted);
    free(wanted);
    free(found);
}

/* The database holds the scene's history, and a replay of it equals the scene, which is closed. */
static void expect_round_trip(struct scene *scene)
{
    struct varve_message message = {""};
    struct history *got;
    if (history_read_database(path, &got, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    expect_equal(scene->history, got);
    history_free(scene->history);
    scene->history = got;
    scene_expect_equal(scene);
}

static struct import_result import(const struct scene *scene)
{
    struct varve_writer *writer;
    assert_int_equal(varve_writer_open(path, true, &writer, NULL), VARVE_OK);
    struct import_result result;
    assert_int_equal(import_pytorch(scene->history, writer, NULL, &result, NULL), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
    return result;
}

TEST(test_import)
{
    struct scene *scene = make_scene();
    struct import_result result = import(scene);
    assert_int_equal(result.events, scene_device(scene)->event_count);
    assert_int_equal(result.callsites, 1);
    assert_false(result.starts_late);
    expect_round_trip(scene);
}

static void write_replay(const struct scene *scene)
{
    struct replay_options options = {
        .conf = scene->conf, .memory_limit = scene->limit, .capacity = 1024 * MIB, .follow = true};
    struct varve_writer *writer;
    assert_int_equal(varve_writer_open(path, true, &writer, NULL), VARVE_OK);
    struct history_writer *records = history_writer_new(writer, scene->history);
    options.output = history_writer_output(records);
    history_write_settings(writer, &scene->history->settings, history_writer_begin_us(records));
    struct replay_result result;
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    history_writer_free(records);
    assert_int_equal(result.mismatches, 0);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
}

TEST(test_records_of_a_replay)
{
    struct scene *scene = make_scene();
    write_replay(scene);
    EXPECT(0,
           "query --no-header --csv t.db `SELECT sum(kind = 'split') > 0, sum(kind = 'merge') > 0, sum(kind = 'oom'), "
           "sum(kind = 'oom_retry') > 0 FROM events`",
           "1,1,1,1\n");
    expect_round_trip(scene);
}

/* The start state is in the database, and left out when it is read. */
TEST(test_late_beginning)
{
    struct scene *scene = make_scene();
    scene_cut(scene, 2);
    assert_true(import(scene).starts_late);
    EXPECT(0, "query --no-header t.db `SELECT sum(kind = 'segment_alloc') FROM events`", "4\n");
    struct history *got;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(history_read_database(path, &got, NULL, NULL), VARVE_OK);
        expect_equal(scene->history, got);
        history_free(got);
        write_replay(scene);
    }
    scene_close(scene);
}

TEST(test_commands)
{
    struct scene *scene = make_scene();
    write_replay(scene);
    EXPECT(0, "replay --verify --memory-limit=120M t.db", "every decision as recorded");
    EXPECT(2, "replay --verify --memory-limit=60M t.db", "event ");
    EXPECT(0, "replay --conf=expandable_segments:True --json t.db", "\"peak_reserved\":");
    EXPECT(2, "import t.db", "-o FILE is required");
    scene_close(scene);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
