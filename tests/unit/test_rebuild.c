/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording and its rebuild: a collector stores events and tells them to a second sink; what that was told
 * is played back in order, shuffled, twice, with descriptions before or after, and the database that comes
 * out equals the one that was recorded, table by table and row by row.
 */
#include "rebuild_support.h"

#define RING_RECORDS 8192U
#define BLOCKS 64U

/* ---- a recording ---- */

struct scene {
    struct lab *lab;
    struct tape tape;
    uint64_t seed;
    uint64_t now; /* ticks */
    bool is_live[2][BLOCKS];
    uint64_t dev_seq;
};

static void on_entry(void *context, uint32_t process_id, const struct sites_entry *entry,
                     const uint8_t *payload)
{
    const struct lab *lab = context;
    int32_t pid = lab->controls[process_id - 1]->pid;
    char texts[2][64];

    if (entry->tag == SITES_TAG_MODULE) {
        struct sites_module module;
        memcpy(&module, payload, sizeof(module));
        snprintf(texts[0], sizeof(texts[0]), "%.*s", module.path_bytes, payload + sizeof(module));
        tape_module(&(struct varve_mirror_module){process_id, pid, module.base, module.end, module.bias,
                                                  module.number, 0, NULL, texts[0]});
    } else if (entry->tag == SITES_TAG_MODULE_GONE) {
        struct sites_gone gone;
        memcpy(&gone, payload, sizeof(gone));
        tape_module_gone(process_id, pid, gone.number);
    } else if (entry->tag == SITES_TAG_CODE) {
        struct sites_code code;
        memcpy(&code, payload, sizeof(code));
        payload += sizeof(code);
        snprintf(texts[0], sizeof(texts[0]), "%.*s", code.name_bytes, payload);
        snprintf(texts[1], sizeof(texts[1]), "%.*s", code.file_bytes, payload + code.name_bytes);
        tape_code(
            &(struct varve_mirror_code){process_id, pid, code.code, code.first_line, texts[0], texts[1]});
    } else {
        struct varve_mirror_callsite told = {.process = process_id, .pid = pid};
        struct sites_site site;
        struct sites_python python[8];
        uint32_t codes[8];
        uint32_t lines[8];
        uint64_t native[8];
        memcpy(&site, payload, sizeof(site));
        payload += sizeof(site);
        memcpy(native, payload, site.native_count * sizeof(*native));
        memcpy(python, payload + site.native_count * sizeof(*native), site.python_count * sizeof(*python));
        for (unsigned i = 0; i < site.python_count; i++) {
            codes[i] = python[i].code;
            lines[i] = python[i].line;
        }
        told.callsite = site.site;
        told.native_count = site.native_count;
        told.python_count = site.python_count;
        told.native = native;
        told.codes = codes;
        told.lines = lines;
        tape_callsite(&told);
    }
}

static void scene_begin(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    scene->lab = lab_begin();
    scene->seed = 0x1234567;
    tape_current = &scene->tape;
    scene->lab->collector->mirror.provider = tape_provider();
    sites_listen(scene->lab->collector->sites, on_entry, scene->lab);
    usleep(2500);
    LAB_OK(scene->lab, collect_clock_anchor(&scene->lab->collector->clock));
    scene->now = scene->lab->begin + 5000000;
    LAB_OK(scene->lab, collect_meta_text(scene->lab->collector, "command", "a command"));
    LAB_OK(scene->lab, collect_meta_integer(scene->lab->collector, "trace_id",
                                            (int64_t)scene->lab->collector->directory.control->trace_id));
}

/* All is stored and told. */
static void scene_finish(struct scene *scene)
{
    lab_drain(scene->lab);
    collect_mirror_round(scene->lab->collector);
    LAB_OK(scene->lab, collector_finish(scene->lab->collector, NULL, NULL, &scene->lab->message));
    lab_expect(scene->lab, STUDIO_CONSERVED, 0);
}

static void scene_end(struct scene *scene)
{
    lab_end(scene->lab);
    tape_free(&scene->tape);
}

static uint64_t chance(struct scene *scene, uint64_t below)
{
    return lab_random(&scene->seed) % below;
}

static void put_file(FILE *file, const void *bytes, size_t count)
{
    assert_int_equal(fwrite(bytes, 1, count, file), count);
}

/* A module that comes and goes, a code object, and sites 1 to 8. */
static void scene_sites(struct scene *scene, uint32_t process)
{
    static const char path[16] = "/lib/libnone.so";  /* 15 bytes and padding */
    static const char names[16] = "functionfile.py"; /* 8 and 7 */
    const struct sites_module module = {.base = 0x10000, .end = 0x20000, .bias = 0x10000, .path_bytes = 15};
    const struct sites_code code = {.code = 1, .first_line = 1, .name_bytes = 8, .file_bytes = 7};
    char file_path[DIRECTORY_PATH_BYTES + 32];
    FILE *file;

    snprintf(file_path, sizeof(file_path), "%s/p%u.sites", scene->lab->collector->directory.path, process);
    file = fopen(file_path, "w");
    assert_non_null(file);
    put_file(file, &(struct sites_entry){SITES_TAG_MODULE, sizeof(module) + 16}, sizeof(struct sites_entry));
    put_file(file, &module, sizeof(module));
    put_file(file, path, 16);
    put_file(file, &(struct sites_entry){SITES_TAG_CODE, sizeof(code) + 16}, sizeof(struct sites_entry));
    put_file(file, &code, sizeof(code));
    put_file(file, names, 16);
    for (uint32_t number = 1; number <= 8; number++) {
        const struct sites_site site = {.site = number, .native_count = 2, .python_count = 1};
        const uint64_t native[] = {0x10000 + process * 64 + number * 16, 0x90000 + number};
        const struct sites_python python = {1, number | SITES_PYTHON_ENTRY};
        const size_t bytes = sizeof(site) + sizeof(native) + sizeof(python);

        if (number == 5) {
            put_file(file, &(struct sites_entry){SITES_TAG_MODULE_GONE, sizeof(struct sites_gone)}, 8);
            put_file(file, &(struct sites_gone){.number = 0}, sizeof(struct sites_gone));
        }
        put_file(file, &(struct sites_entry){SITES_TAG_SITE, (uint32_t)bytes}, sizeof(struct sites_entry));
        put_file(file, &site, sizeof(site));
        put_file(file, native, sizeof(native));
        put_file(file, &python, sizeof(python));
    }
    assert_int_equal(fclose(file), 0);
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
        strcpy(control->exec_path, process == 1 ? "/bin/next" : "");
        scene_sites(scene, process);
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
    {"callsite", "*"},
    {"callsite_frame", "*"},
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
    {"thread",
     "id, process_id, ring, pid, tid, name, start_ns, emitted, stored, lost, lost_bytes, uncommitted"},
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
            snprintf(row + strlen(row), sizeof(row) - strlen(row), " %s=%s",
                     sqlite3_column_name(statement, i), text != NULL ? text : "NULL");
        }
        fail_msg("%s: only one has%s", table, row);
    }
    sqlite3_finalize(statement);
}

static void expect_equal(const struct lab *lab, const struct studio *studio)
{
    char sql[1024];
    char path[DIRECTORY_PATH_BYTES + 16];
    sqlite3 *db;

    snprintf(path, sizeof(path), "%s.d/trace.db", lab->database);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
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

static void shuffle(struct scene *scene, struct step *steps, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = chance(scene, i);
        struct step step = steps[i - 1];
        steps[i - 1] = steps[other];
        steps[other] = step;
    }
}

static void rebuild_as_told(struct scene *scene, struct studio *studio)
{
    studio_open(studio);
    tape_play(studio->rebuild, scene->tape.rest, scene->tape.rest_count);
    tape_play(studio->rebuild, scene->tape.records, scene->tape.record_count);
    assert_int_equal(varve_rebuild_events(studio->rebuild), scene->tape.record_count);
    studio_finish(studio);
}

static void test_in_order(void **state)
{
    struct scene scene;
    struct studio studio;

    (void)state;
    scene_begin(&scene);
    scene_play(&scene, 20000);
    scene_finish(&scene);
    assert_int_equal(scene.tape.record_count, 20000);
    rebuild_as_told(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 0);
    assert_int_equal(studio.result.events, 20000);
    assert_int_equal(studio.result.threads, 8);
    studio_close(&studio);
    scene_end(&scene);
}

/* Everything twice, records before and after descriptions, in a random order. */
static void test_shuffled_and_twice(void **state)
{
    struct scene scene;
    struct studio studio;

    (void)state;
    scene_begin(&scene);
    scene_play(&scene, 12000);
    scene_finish(&scene);
    shuffle(&scene, scene.tape.records, scene.tape.record_count);
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
static void test_early_ones_come_late(void **state)
{
    struct scene scene;
    struct studio studio;

    (void)state;
    scene_begin(&scene);
    scene_play(&scene, 30000);
    scene_finish(&scene);
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

/* Dropped when the thread had nothing more to tell: no LOST record says so, only the ring's header. */
static void test_dropped_at_the_very_end(void **state)
{
    struct scene scene;
    struct studio studio;
    struct ring_header *ring;

    (void)state;
    scene_begin(&scene);
    hand_process(scene.lab, lab_dead());
    ring = hand_ring(scene.lab, 1, 64);
    emit_lost(ring, scene.now);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, scene.now, 0, 1);
    ring->emitted += 5;
    ring->lost += 5;
    ring->lost_bytes += 500;
    scene_finish(&scene);
    lab_expect(scene.lab, "SELECT lost FROM thread", 8);
    rebuild_as_told(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_close(&studio);
    scene_end(&scene);
}

/* One pid, two images: the first was replaced by exec. */
static void test_exec(void **state)
{
    struct scene scene;
    struct studio studio;
    pid_t pid = lab_dead();

    (void)state;
    scene_begin(&scene);
    for (uint32_t process = 1; process <= 2; process++) {
        struct process_control *control = hand_process(scene.lab, pid);
        control->start_ticks_proc = 77;
        control->state = process == 1 ? PROCESS_STATE_EXECUTING : PROCESS_STATE_EXITED;
        control->start_ticks += process * 1000000;
        hand_emit(hand_ring(scene.lab, process, 64), VARVE_KIND_MARK_BEGIN, scene.now + process * 1000000, 0,
                  process);
    }
    scene_finish(&scene);
    rebuild_as_told(&scene, &studio);
    expect_equal(scene.lab, &studio);
    studio_expect(&studio, "SELECT count(*) FROM process WHERE end_cause = 'exec'", 1);
    studio_close(&studio);
    scene_end(&scene);
}

/* Nobody said that it ended. */
static void test_still_running(void **state)
{
    struct scene scene;
    struct studio studio;
    pid_t pid;

    (void)state;
    scene_begin(&scene);
    pid = lab_living(scene.lab);
    hand_process(scene.lab, pid);
    hand_emit(hand_ring(scene.lab, 1, 64), VARVE_KIND_MARK_BEGIN, scene.now, 0, 1);
    scene_finish(&scene);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_shuffled_and_twice),
        cmocka_unit_test(test_early_ones_come_late),
        cmocka_unit_test(test_dropped_at_the_very_end),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_still_running),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
