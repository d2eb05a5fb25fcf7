/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that go through a database: an import, and a replay's own records with splits and merges, read
 * back and replayed again with equal events, blocks, stacks and settings; and the commands around it.
 */
#include "support/replay.h"

#include "analysis/analysis.h"
#include "analysis/history/database.h"
#include "analysis/history/read.h"
#include "analysis/replay/history_writer.h"
#include "analysis/import/import.h"
#include "analysis/query/db.h"

#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/varve-replay-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/t.db", directory);
    return unlink(path) == 0 || access(path, F_OK) != 0 ? 0 : -1;
}

static int set_up_group(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static struct scene *make_scene(void)
{
    struct scene *scene = scene_open("garbage_collection_threshold:0.8", 120 * MIB, 0);
    struct history_frame frames[2] = {{0}};
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 3 * MIB, 3);
    uint64_t c = scene_alloc(scene, 700, 3);

    scene_free_used(scene, b, 900);
    scene_free(scene, a);
    scene_alloc(scene, 60 * MIB, 0);
    scene_alloc(scene, 80 * MIB, 0); /* none */
    scene_finish_stream(scene, 900);
    scene_alloc(scene, 9 * KIB, 3);
    scene_free(scene, c);
    scene_end(scene);
    frames[0].function = history_text(scene->history, "allocate", 8);
    frames[0].file = history_text(scene->history, "model.py", 8);
    frames[0].line = 12;
    frames[1].function = history_text(scene->history, "main", 4);
    frames[1].file = frames[0].file;
    frames[1].line = 3;
    scene->history->devices[0].events[1].stack = history_add_stack(scene->history, frames, 2);
    assert_int_equal(replay_settings(scene->history, scene->conf, &scene->history->settings, NULL), VARVE_OK);
    return scene;
}

static void expect_equal_events(const struct history *want, const struct history *got)
{
    const struct history_device *a = &want->devices[0];
    const struct history_device *b = &got->devices[0];

    assert_int_equal(a->event_count, b->event_count);
    for (size_t i = 0; i < a->event_count; i++) {
        assert_int_equal(a->events[i].action, b->events[i].action);
        assert_int_equal(a->events[i].size, b->events[i].size);
        assert_int_equal(a->events[i].time_us, b->events[i].time_us);
        assert_int_equal(want->streams[a->events[i].stream], got->streams[b->events[i].stream]);
        if (a->events[i].action != HISTORY_OOM) {
            assert_int_equal(a->events[i].addr, b->events[i].addr);
        }
    }
}

static void expect_equal_segments(const struct history *want, const struct history *got)
{
    const struct history_device *a = &want->devices[0];
    const struct history_device *b = &got->devices[0];

    assert_int_equal(a->segment_count, b->segment_count);
    assert_int_equal(a->block_count, b->block_count);
    for (size_t i = 0; i < a->segment_count; i++) {
        assert_int_equal(a->segments[i].addr, b->segments[i].addr);
        assert_int_equal(a->segments[i].size, b->segments[i].size);
        assert_int_equal(a->segments[i].allocated, b->segments[i].allocated);
        assert_int_equal(a->segments[i].active, b->segments[i].active);
        assert_int_equal(a->segments[i].requested, b->segments[i].requested);
        assert_int_equal(a->segments[i].is_small, b->segments[i].is_small);
        assert_int_equal(a->segments[i].block_count, b->segments[i].block_count);
    }
    for (size_t i = 0; i < a->block_count; i++) {
        assert_int_equal(a->blocks[i].addr, b->blocks[i].addr);
        assert_int_equal(a->blocks[i].size, b->blocks[i].size);
        assert_int_equal(a->blocks[i].requested, b->blocks[i].requested);
        assert_int_equal(a->blocks[i].state, b->blocks[i].state);
    }
}

/* The database holds the scene's history, and a replay of it equals the scene. */
static void expect_round_trip(struct scene *scene)
{
    struct history *original = scene->history;
    struct varve_message message = {""};
    struct history *got;
    const struct history_event *event;

    if (history_read_database(path, &got, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    expect_equal_events(original, got);
    expect_equal_segments(original, got);
    event = &got->devices[0].events[1];
    assert_int_equal(got->stacks[event->stack].frame_count, 2);
    assert_string_equal(got->texts[got->frames[got->stacks[event->stack].first_frame].function], "allocate");
    assert_int_equal(got->frames[got->stacks[event->stack].first_frame + 1].line, 3);
    assert_true(got->settings.is_known);
    assert_string_equal(got->settings.text, scene->conf);
    assert_true(got->settings.garbage_collection_threshold == 0.8);
    assert_int_equal(got->settings.max_split_size, -1);
    scene->history = got;
    scene_expect_equal(scene);
    scene->history = original;
    history_free(got);
}

TEST_WITH(test_import, set_up, NULL)
{
    struct scene *scene = make_scene();
    struct import_result result;
    struct varve_writer *writer;

    assert_int_equal(varve_writer_open(path, false, &writer, NULL), VARVE_OK);
    assert_int_equal(import_pytorch(scene->history, writer, NULL, &result, NULL), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
    assert_int_equal(result.events, scene->history->devices[0].event_count);
    assert_int_equal(result.callsites, 1);
    assert_false(result.starts_late);
    expect_round_trip(scene);
    scene_close(scene);
}

static void write_replay(const struct scene *scene)
{
    struct replay_options options = {
        .conf = scene->conf, .memory_limit = scene->limit, .capacity = 1024 * MIB, .follow = true};
    struct replay_result result;
    struct varve_writer *writer;

    assert_int_equal(varve_writer_open(path, true, &writer, NULL), VARVE_OK);
    options.writer = history_writer_new(writer, scene->history);
    history_write_settings(writer, &scene->history->settings, history_writer_begin_us(options.writer));
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    history_writer_free(options.writer);
    assert_int_equal(result.mismatches, 0);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
}

static int64_t count_kind(const char *kind)
{
    struct database *database;
    char sql[128];
    int64_t count;

    assert_int_equal(database_open(path, DATABASE_ANY, &database, NULL), VARVE_OK);
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM events WHERE kind = '%s'", kind);
    count = database_integer(database, sql, -1);
    database_close(database);
    return count;
}

TEST_WITH(test_records_of_a_replay, set_up, NULL)
{
    struct scene *scene = make_scene();

    write_replay(scene);
    assert_true(count_kind("split") > 0);
    assert_true(count_kind("merge") > 0);
    assert_int_equal(count_kind("oom"), 1);
    assert_true(count_kind("oom_retry") > 0);
    expect_round_trip(scene);
    scene_close(scene);
}

/* The start state is in the database, and left out when it is read. */
TEST_WITH(test_late_beginning, set_up, NULL)
{
    struct scene *scene = make_scene();
    struct history_device *device = &scene->history->devices[0];
    struct import_result result;
    struct varve_writer *writer;
    struct history *got;

    device->event_count -= 2;
    memmove(device->events, device->events + 2, device->event_count * sizeof(*device->events));
    assert_int_equal(varve_writer_open(path, false, &writer, NULL), VARVE_OK);
    assert_int_equal(import_pytorch(scene->history, writer, NULL, &result, NULL), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
    assert_true(result.starts_late);
    assert_int_equal(count_kind("segment_alloc"), 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(history_read_database(path, &got, NULL, NULL), VARVE_OK);
        expect_equal_events(scene->history, got);
        history_free(got);
        write_replay(scene);
    }
    scene_close(scene);
}

static int run_command(const char *first, const char *second, const char *third, const char *fourth,
                       char *text, size_t bytes)
{
    char *argv[] = {(char *)"varve", (char *)first, (char *)second, (char *)third, (char *)fourth, NULL};
    int argc = fourth != NULL ? 5 : third != NULL ? 4 : 3;
    FILE *out = fmemopen(text, bytes, "w");
    FILE *err = tmpfile();
    int status = varve_command_run(argc, argv, out, err);
    size_t used = (size_t)ftell(out);

    rewind(err);
    used += fread(text + used, 1, bytes - used - 1, err);
    text[used] = '\0';
    fclose(out);
    fclose(err);
    return status;
}

TEST_WITH(test_commands, set_up, NULL)
{
    struct scene *scene = make_scene();
    char text[16384];

    write_replay(scene);
    assert_int_equal(run_command("replay", "--verify", "--memory-limit=120M", path, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "every decision as recorded"));
    assert_int_equal(run_command("replay", "--verify", "--memory-limit=60M", path, text, sizeof(text)), 2);
    assert_non_null(strstr(text, "event "));
    assert_int_equal(
        run_command("replay", "--conf=expandable_segments:True", "--json", path, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "\"peak_reserved\":"));
    assert_int_equal(run_command("import", path, NULL, NULL, text, sizeof(text)), 2);
    assert_int_equal(run_command("replay", "/nonexistent", NULL, NULL, text, sizeof(text)), 2);
    scene_close(scene);
}

TEST_FILE(set_up_group, tear_down_group)
