/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording and its rebuild: a collector stores events and emits them to a second sink; what that got
 * is played back in order, shuffled, twice, with descriptions before or after, and the database that comes
 * out equals the one that was recorded, table by table and row by row.
 * Costs: 2 s
 */
#include "support/rebuild_scene.h"
#include "trace/collector/merge.h"

/* ---- equal tables ---- */

static const struct {
    const char *name, *columns;
} tables[] = {
    {"event", "*"},
    {"allocation", "*"},
    {"segment", "*"},
    {"keyframe", "*"},
    {"callsite", "id, depth, symbol_id"}, /* of its node what `frame` says */
    {"frame", "*"},
    {"symbol", "*"},
    {"module", "*"},
    {"callsite_stat", "*"},
    {"total_stat", "*"},
    {"sample", "*"},
    {"oom", "*"},
    {"clock_anchor", "*"},
    {"meta", "*"},
    {"process", "id, pid, parent_pid, parent_id, rank, executable, command_line, start_ns, end_cause,"
                " exit_status, exec_path"},
    {"thread", "id, process_id, ring, pid, tid, name, start_ns, emitted, stored, lost, lost_bytes, uncommitted"},
    {"stats WHERE source = 'ring' AND name <> 'events_spilled'", "*"},
};

/* One row that only `left` has, as text; fails with it. */
static void show_difference(sqlite3 *db, const char *sql, const char *table)
{
    sqlite3_stmt *statement = NULL;
    char row[1024] = "";
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    if (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            const char *text = (const char *)sqlite3_column_text(statement, i);
            snprintf(row + strlen(row), sizeof(row) - strlen(row), " %s=%s", sqlite3_column_name(statement, i),
                     text != NULL ? text : "NULL");
        }
        fail_msg("%s: only one has%s", table, row);
    }
    sqlite3_finalize(statement);
}

static void expect_equal(const struct lab *lab, const struct studio *studio)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s.d/trace.db", lab->database);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    char sql[1024];
    snprintf(sql, sizeof(sql), "ATTACH '%s' AS other", studio->database);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (unsigned turn = 0; turn < 2; turn++) {
            snprintf(sql, sizeof(sql), "SELECT %s FROM %s.%s EXCEPT SELECT %s FROM %s.%s", tables[i].columns,
                     turn ? "other" : "main", tables[i].name, tables[i].columns, turn ? "main" : "other",
                     tables[i].name);
            show_difference(db, sql, tables[i].name);
        }
    }
    sqlite3_close(db);
}

/* ---- the tests ---- */

static void shuffle(struct scene *scene, struct varve_sink_item *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = chance(scene, i);
        struct varve_sink_item item = items[i - 1];
        items[i - 1] = items[other];
        items[other] = item;
    }
}

static void rebuild_as_reported(struct scene *scene, struct studio *studio)
{
    studio_open(studio);
    tape_play(studio->rebuild, scene->tape.rest, scene->tape.rest_count);
    tape_play(studio->rebuild, scene->tape.records, scene->tape.record_count);
    assert_int_equal(varve_rebuild_events(studio->rebuild), scene->tape.record_count);
    studio_finish(studio);
}

TEST(test_in_order)
{
    struct scene scene;
    scene_begin(&scene);
    scene_play(&scene, 20000);
    scene_finish(&scene);
    assert_int_equal(scene.tape.record_count, 20000);
    struct studio studio;
    rebuild_as_reported(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 0);
    assert_int_equal(studio.result.events, 20000);
    assert_int_equal(studio.result.threads, 8);
    studio_close(&studio);
    scene_end(&scene);
}

/* Everything twice, records before and after descriptions, in a random order. */
TEST(test_shuffled_and_twice)
{
    struct scene scene;
    scene_begin(&scene);
    scene_play(&scene, 12000);
    scene_finish(&scene);
    shuffle(&scene, scene.tape.records, scene.tape.record_count);
    struct studio studio;
    studio_open(&studio);
    tape_play(studio.rebuild, scene.tape.records, scene.tape.record_count / 2);
    tape_play(studio.rebuild, scene.tape.rest, scene.tape.rest_count);
    tape_play(studio.rebuild, scene.tape.records, scene.tape.record_count);
    tape_play(studio.rebuild, scene.tape.rest, scene.tape.rest_count);
    studio_finish(&studio);
    expect_equal(scene.lab, &studio);
    studio_close(&studio);
    scene_end(&scene);
}

/* The first records of every ring come last, and among the others some are a little late. */
TEST(test_early_ones_come_late)
{
    struct scene scene;
    scene_begin(&scene);
    scene_play(&scene, 30000);
    scene_finish(&scene);
    struct studio studio;
    studio_open(&studio);
    tape_play(studio.rebuild, scene.tape.rest, scene.tape.rest_count / 2);
    for (size_t from = 10000; from < scene.tape.record_count; from += 8) {
        size_t count = scene.tape.record_count - from < 8 ? scene.tape.record_count - from : 8;
        shuffle(&scene, scene.tape.records + from, count);
    }
    tape_play(studio.rebuild, scene.tape.records + 10000, scene.tape.record_count - 10000);
    tape_play(studio.rebuild, scene.tape.rest + scene.tape.rest_count / 2,
              scene.tape.rest_count - scene.tape.rest_count / 2);
    tape_play(studio.rebuild, scene.tape.records, 10000);
    studio_finish(&studio);
    expect_equal(scene.lab, &studio);
    studio_close(&studio);
    scene_end(&scene);
}

/* The first row that a query gives is one too many. */
static void expect_no_row(const struct scene *scene, const struct studio *studio, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(studio->database, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    char path[DIRECTORY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "ATTACH '%s.d/trace.db' AS live", scene->lab->database);
    assert_int_equal(sqlite3_exec(db, path, NULL, NULL, NULL), SQLITE_OK);
    show_difference(db, sql, "holes");
    sqlite3_close(db);
}

/* A tenth of the records never comes, the others in any order: each that came is what it was, in the same
 * order, and what is missing is counted, no more and no less. */
TEST(test_holes)
{
    struct scene scene;
    scene_begin(&scene);
    scene_play(&scene, 12000);
    scene_finish(&scene);
    shuffle(&scene, scene.tape.records, scene.tape.record_count);
    size_t kept = scene.tape.record_count / 10 * 9;
    struct studio studio;
    studio_open(&studio);
    tape_play(studio.rebuild, scene.tape.records, kept);
    tape_play(studio.rebuild, scene.tape.rest, scene.tape.rest_count);
    tape_play(studio.rebuild, scene.tape.records, kept / 2);
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE ring_seq IS NOT NULL", (int64_t)kept);
    char late[128];
    snprintf(late, sizeof(late),
             "SELECT count(*) FROM event e JOIN event f ON f.seq = e.seq + 1 AND f.ts_ns < e.ts_ns - %d",
             MERGE_HOLD_BACK_NS);
    studio_expect(&studio, late, 0);
    /* process, thread and number name an event; what is derived of holes may differ, what it holds may not */
    expect_no_row(&scene, &studio,
                  "SELECT ring_seq, thread_id, ts_ns, pid, tid, kind, addr, flags, dev_seq, arg FROM main.event "
                  "WHERE ring_seq IS NOT NULL EXCEPT "
                  "SELECT ring_seq, thread_id, ts_ns, pid, tid, kind, addr, flags, dev_seq, arg FROM live.event");
    expect_no_row(&scene, &studio,
                  "SELECT * FROM main.thread n JOIN live.thread o USING (id) WHERE n.stored - (SELECT count(*) "
                  "FROM main.event WHERE thread_id = n.id AND ring_seq IS NULL) + n.lost <> o.stored + o.lost");
    expect_no_row(&scene, &studio,
                  "SELECT * FROM (SELECT sum(arg) AS missing FROM main.event WHERE ring_seq IS NULL) WHERE "
                  "missing IS NOT (SELECT value FROM main.stats WHERE name = 'records_missing')");
    studio_close(&studio);
    scene_end(&scene);
}

/* Dropped when the thread had nothing more to emit: no LOST record says so, only the ring's header. */
TEST(test_dropped_at_the_very_end)
{
    struct scene scene;
    scene_begin(&scene);
    hand_process(scene.lab, lab_dead());
    struct ring_header *ring = hand_ring(scene.lab, 1, 64);
    emit_lost(ring, scene.now);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, scene.now, 0, 1);
    ring->emitted += 5;
    ring->lost += 5;
    ring->lost_bytes += 500;
    scene_finish(&scene);
    lab_expect(scene.lab, "SELECT lost FROM thread", 8);
    struct studio studio;
    rebuild_as_reported(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_close(&studio);
    scene_end(&scene);
}

/* One pid, two images: the first was replaced by exec. */
TEST(test_exec)
{
    struct scene scene;
    pid_t pid = lab_dead();
    scene_begin(&scene);
    for (uint32_t process = 1; process <= 2; process++) {
        struct process_control *control = hand_process(scene.lab, pid);
        control->start_ticks_proc = 77;
        control->state = process == 1 ? PROCESS_STATE_EXECUTING : PROCESS_STATE_EXITED;
        control->start_ticks += process * 1000000;
        hand_emit(hand_ring(scene.lab, process, 64), VARVE_KIND_MARK_BEGIN, scene.now + process * 1000000, 0, process);
    }
    scene_finish(&scene);
    struct studio studio;
    rebuild_as_reported(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, "SELECT count(*) FROM process WHERE end_cause = 'exec'", 1);
    studio_close(&studio);
    scene_end(&scene);
}

/* Nobody said that it ended. */
TEST(test_still_running)
{
    struct scene scene;
    scene_begin(&scene);
    pid_t pid = lab_living(scene.lab);
    hand_process(scene.lab, pid);
    hand_emit(hand_ring(scene.lab, 1, 64), VARVE_KIND_MARK_BEGIN, scene.now, 0, 1);
    scene_finish(&scene);
    struct studio studio;
    studio_open(&studio);
    tape_play(studio.rebuild, scene.tape.rest, scene.tape.rest_count);
    tape_play(studio.rebuild, scene.tape.records, scene.tape.record_count);
    studio_finish(&studio);
    studio_expect(&studio, "SELECT end_cause = 'running' AND end_ns IS NULL FROM process", 1);
    studio_expect(&studio, STUDIO_STAT("processes_running"), 1);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_close(&studio);
    lab_kill(scene.lab, pid);
    scene_end(&scene);
}
