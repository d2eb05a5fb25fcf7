/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording and its rebuild: a collector stores events and emits them to a second sink; what that got
 * is played back in order, shuffled, twice, with descriptions before or after, and the database that comes
 * out equals the one that was recorded, table by table and row by row. The recording is made by hand: two processes
 * with threads that free each other's blocks at nearly the same time, call sites, losses, a caching allocator.
 * Costs: 2 s, full 4 s
 */
#include "support/callsites.h"
#include "support/rebuild.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "trace/format/callsite_format.h"
#include "trace/record.h"

#define RING_RECORDS 8192U
#define BLOCKS 64U

/* ---- a recording ---- */

struct scene {
    struct lab *lab;
    struct tape tape;
    struct studio studio; /* where it is rebuilt, from scene_finish on */
    uint64_t seed;
    uint64_t now; /* ticks */
    bool is_live[2][BLOCKS];
    uint64_t dev_seq;
};

static void scene_begin(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    scene->lab = lab_begin();
    scene->seed = 0x1234567;
    tape_current = &scene->tape;
    scene->lab->collector->sink.provider = tape_provider();
    collect_sink_listen(scene->lab->collector);
    usleep(2500);
    LAB_OK(scene->lab, collect_clock_anchor(&scene->lab->collector->clock));
    scene->now = scene->lab->begin + 5000000;
    LAB_OK(scene->lab, collect_meta_text(scene->lab->collector, "command", "a command"));
    LAB_OK(scene->lab, collect_meta_integer(scene->lab->collector, "trace_id",
                                            (int64_t)scene->lab->collector->directory.control->trace_id));
}

/* All is stored and emitted, and a rebuild begins. */
static void scene_finish(struct scene *scene)
{
    lab_drain(scene->lab);
    collect_sink_round(scene->lab->collector);
    lab_finish(scene->lab);
    studio_open(&scene->studio);
}

static void scene_end(struct scene *scene)
{
    studio_close(&scene->studio);
    lab_end(scene->lab);
    tape_free(&scene->tape);
}

static uint64_t chance(struct scene *scene, uint64_t below)
{
    return random_next(&scene->seed) % below;
}

/* A module that comes and goes, a code object, and call sites 1 to 8. */
static void scene_callsites(struct scene *scene, uint32_t process)
{
    struct writer writer;
    snprintf(writer.path, sizeof(writer.path), "%.480s/p%u.sites", scene->lab->collector->directory.path, process);
    writer.stream = fopen(writer.path, "w");
    assert_non_null(writer.stream);
    put_module(&writer, 0, 0x10000, 0x10000, 0x10000, "/lib/libnone.so", "");
    put_code(&writer, 1, "function", "file.py");
    for (uint32_t number = 1; number <= 8; number++) {
        const uint64_t native[] = {0x10000 + process * 64 + number * 16, 0x90000 + number};
        const struct callsite_file_python python = {1, number | CALLSITE_FILE_PYTHON_ENTRY};
        if (number == 5) {
            put_gone(&writer, 0);
        }
        put_callsite(&writer, number, native, 2, &python, 1);
    }
    assert_int_equal(fclose(writer.stream), 0);
}

static void emit(struct ring_header *ring, struct varve_record *record)
{
    const struct varve_record *last = &ring_records(ring)[(ring->head - 1) & (ring->capacity - 1)];
    if (ring->head > 0 && record->ticks < last->ticks) {
        record->ticks = last->ticks;
    }
    hand_begin(ring);
    hand_commit(ring, record);
}

/* Three events were dropped before this one, 16 bytes each. */
static void emit_lost(struct ring_header *ring, uint64_t ticks)
{
    struct varve_record record = hand_record(VARVE_KIND_LOST, ticks, 0, 3);
    record.size = 48;
    ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] += 3;
    ring->lost += 3;
    ring->lost_bytes += 48;
    ring->emitted += 3;
    emit(ring, &record);
}

/* One random event: blocks of the process go from thread to thread, and clocks of threads differ a little. */
static void scene_event(struct scene *scene, uint32_t process, struct ring_header *ring)
{
    unsigned block = (unsigned)chance(scene, BLOCKS);
    bool *is_live = &scene->is_live[process - 1][block];
    uint64_t ticks = scene->now - chance(scene, 3000);
    struct varve_record record =
        hand_record(*is_live ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, ticks, 0x100000 + block * 64, 0);
    scene->now += chance(scene, 4) == 0 ? 0 : chance(scene, 2000);
    switch (chance(scene, 40)) {
    case 0:
        emit_lost(ring, scene->now);
        return;
    case 1:
        record = hand_record(VARVE_KIND_MARK_BEGIN, ticks, 0, chance(scene, 1000));
        record.dev_seq_kind_flags |= VARVE_FLAG_NESTED;
        break;
    case 2: /* of a caching allocator */
        record = hand_record(VARVE_KIND_SEGMENT_ALLOC, scene->now, 0x700000000 + (scene->dev_seq << 21), 0);
        record.size = 1 << 21;
        record.dev_seq_kind_flags = varve_record_tag(++scene->dev_seq, VARVE_KIND_SEGMENT_ALLOC, 0);
        break;
    default:
        record.callsite = *is_live ? 0 : (uint32_t)chance(scene, 9);
        *is_live = !*is_live;
        break;
    }
    emit(ring, &record);
}

/* Two processes with three rings each, a fork and a late ring among them. */
static void scene_play(struct scene *scene, unsigned events)
{
    struct ring_header *rings[2][4];
    struct lab *lab = scene->lab;
    for (uint32_t process = 1; process <= 2; process++) {
        struct process_control *control = hand_process(lab, lab_dead());
        control->state = process == 1 ? PROCESS_STATE_EXITED : PROCESS_STATE_RUNNING;
        control->parent_id = process - 1;
        control->rank = (int32_t)process;
        snprintf(control->exec_path, sizeof(control->exec_path), "%s", process == 1 ? "/bin/next" : "");
        scene_callsites(scene, process);
        for (uint32_t ring = 0; ring < 3; ring++) {
            rings[process - 1][ring] = hand_ring(lab, process, RING_RECORDS);
        }
        rings[process - 1][3] = hand_ring_file(lab, process, 0, RING_RECORDS);
        control->late_created = 1;
    }
    for (unsigned i = 0; i < events; i++) {
        uint32_t process = 1 + (uint32_t)chance(scene, 2);
        scene_event(scene, process, rings[process - 1][chance(scene, 40) == 0 ? 3 : chance(scene, 3)]);
    }
}

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

/* `live` is what was recorded. */
static void expect_no_row(const struct scene *scene, const char *sql)
{
    sqlite3 *db;
    char text[DIRECTORY_PATH_BYTES + 64];
    assert_int_equal(sqlite3_open_v2(scene->studio.database, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    snprintf(text, sizeof(text), "ATTACH '%s.d/trace.db' AS live", scene->lab->database);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    snprintf(text, sizeof(text), "SELECT * FROM (%s) LIMIT 3", sql);
    query_expect(db, text, "");
    sqlite3_close(db);
}

/* Ends the rebuild. */
static void expect_equal(struct scene *scene)
{
    static const char *const schemas[] = {"main", "live"};
    studio_finish(&scene->studio);
    for (size_t i = 0; i < 2 * sizeof(tables) / sizeof(tables[0]); i++) {
        char sql[1024];
        snprintf(sql, sizeof(sql), "SELECT %s FROM %s.%s EXCEPT SELECT %s FROM %s.%s", tables[i / 2].columns,
                 schemas[i % 2], tables[i / 2].name, tables[i / 2].columns, schemas[1 - i % 2], tables[i / 2].name);
        expect_no_row(scene, sql);
    }
    studio_expect(&scene->studio, STUDIO_CONSERVED, 0);
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

/* Parts of what it got, in its order. */
static void play_records(struct scene *scene, size_t from, size_t to)
{
    tape_play(scene->studio.rebuild, scene->tape.records + from, to - from);
}

static void play_rest(struct scene *scene, size_t from, size_t to)
{
    tape_play(scene->studio.rebuild, scene->tape.rest + from, to - from);
}

static void rebuild_as_reported(struct scene *scene)
{
    play_rest(scene, 0, scene->tape.rest_count);
    play_records(scene, 0, scene->tape.record_count);
    assert_int_equal(varve_rebuild_events(scene->studio.rebuild), scene->tape.record_count);
    expect_equal(scene);
}

static void record_events(struct scene *scene, unsigned events)
{
    scene_begin(scene);
    scene_play(scene, events);
    scene_finish(scene);
}

TEST(test_in_order)
{
    struct scene scene;
    record_events(&scene, 20000);
    assert_int_equal(scene.tape.record_count, 20000);
    rebuild_as_reported(&scene);
    studio_expect(&scene.studio, STUDIO_STAT("records_missing"), 0);
    assert_int_equal(scene.studio.result.events, 20000);
    assert_int_equal(scene.studio.result.threads, 8);
    scene_end(&scene);
}

/* Everything twice, records before and after descriptions, in a random order. */
TEST(test_shuffled_and_twice)
{
    struct scene scene;
    record_events(&scene, 12000);
    shuffle(&scene, scene.tape.records, scene.tape.record_count);
    play_records(&scene, 0, scene.tape.record_count / 2);
    play_rest(&scene, 0, scene.tape.rest_count);
    play_records(&scene, 0, scene.tape.record_count);
    play_rest(&scene, 0, scene.tape.rest_count);
    expect_equal(&scene);
    scene_end(&scene);
}

/* The first records of every ring come last, and among the others some are a little late. */
TEST(test_early_ones_come_late)
{
    struct scene scene;
    record_events(&scene, 30000);
    play_rest(&scene, 0, scene.tape.rest_count / 2);
    for (size_t from = 10000; from < scene.tape.record_count; from += 8) {
        size_t count = scene.tape.record_count - from < 8 ? scene.tape.record_count - from : 8;
        shuffle(&scene, scene.tape.records + from, count);
    }
    play_records(&scene, 10000, scene.tape.record_count);
    play_rest(&scene, scene.tape.rest_count / 2, scene.tape.rest_count);
    play_records(&scene, 0, 10000);
    expect_equal(&scene);
    scene_end(&scene);
}

/* A tenth of the records never comes, the others in any order: each that came is what it was, in the same
 * order, and what is missing is counted, no more and no less. */
TEST(test_holes)
{
    struct scene scene;
    record_events(&scene, 12000);
    shuffle(&scene, scene.tape.records, scene.tape.record_count);
    size_t kept = scene.tape.record_count / 10 * 9;
    play_records(&scene, 0, kept);
    play_rest(&scene, 0, scene.tape.rest_count);
    play_records(&scene, 0, kept / 2);
    studio_finish(&scene.studio);
    studio_expect(&scene.studio, STUDIO_CONSERVED, 0);
    studio_expect(&scene.studio, "SELECT count(*) FROM event WHERE ring_seq IS NOT NULL", (int64_t)kept);
    char late[128];
    snprintf(late, sizeof(late),
             "SELECT count(*) FROM event e JOIN event f ON f.seq = e.seq + 1 AND f.ts_ns < e.ts_ns - %d",
             MERGE_HOLD_BACK_NS);
    studio_expect(&scene.studio, late, 0);
    /* process, thread and number name an event; what is derived of holes may differ, what it holds may not */
    expect_no_row(&scene,
                  "SELECT ring_seq, thread_id, ts_ns, pid, tid, kind, addr, flags, dev_seq, arg FROM main.event "
                  "WHERE ring_seq IS NOT NULL EXCEPT "
                  "SELECT ring_seq, thread_id, ts_ns, pid, tid, kind, addr, flags, dev_seq, arg FROM live.event");
    expect_no_row(&scene, "SELECT * FROM main.thread n JOIN live.thread o USING (id) WHERE n.stored - (SELECT count(*) "
                          "FROM main.event WHERE thread_id = n.id AND ring_seq IS NULL) + n.lost <> o.stored + o.lost");
    expect_no_row(&scene, "SELECT * FROM (SELECT sum(arg) AS missing FROM main.event WHERE ring_seq IS NULL) WHERE "
                          "missing IS NOT (SELECT value FROM main.stats WHERE name = 'records_missing')");
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
    rebuild_as_reported(&scene);
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
    rebuild_as_reported(&scene);
    studio_expect(&scene.studio, "SELECT count(*) FROM process WHERE end_cause = 'exec'", 1);
    scene_end(&scene);
}

/* Nobody said that it ended. */
TEST(test_still_running)
{
    struct scene scene;
    scene_begin(&scene);
    hand_process(scene.lab, lab_living(scene.lab));
    hand_emit(hand_ring(scene.lab, 1, 64), VARVE_KIND_MARK_BEGIN, scene.now, 0, 1);
    scene_finish(&scene);
    play_rest(&scene, 0, scene.tape.rest_count);
    play_records(&scene, 0, scene.tape.record_count);
    studio_finish(&scene.studio);
    studio_rows(&scene.studio, "SELECT end_cause, end_ns FROM process", "running -\n");
    studio_expect(&scene.studio, STUDIO_STAT("processes_running"), 1);
    studio_expect(&scene.studio, STUDIO_CONSERVED, 0);
    scene_end(&scene);
}
