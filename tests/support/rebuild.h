/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A tape of what a second sink gets: the provider that writes it stands in the place of LTTng's, and what
 * is on it is played to varve_rebuild_* in any order. Databases are compared row by row.
 */
#ifndef VARVE_TESTS_SUPPORT_REBUILD_H
#define VARVE_TESTS_SUPPORT_REBUILD_H

#include "support/collector.h"
#include "trace/error.h"
#include "trace/format/sink_provider.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <dirent.h>

enum step_kind {
    STEP_RECORD,
    STEP_PROCESS,
    STEP_PROCESS_END,
    STEP_THREAD,
    STEP_THREAD_END,
    STEP_CLOCK,
    STEP_MODULE,
    STEP_GONE,
    STEP_CODE,
    STEP_CALLSITE,
    STEP_META_TEXT,
    STEP_META_INTEGER,
};

struct step {
    enum step_kind kind;
    char *texts[2];
    union {
        struct {
            struct varve_sink_origin origin;
            uint64_t number;
            struct varve_record record;
        } record;
        struct varve_sink_process process;
        struct varve_sink_process_end process_end;
        struct varve_sink_thread thread;
        struct varve_sink_thread_end thread_end;
        struct varve_sink_clock clock;
        struct varve_sink_module module; /* build ids are not in these tests */
        struct varve_sink_code code;
        struct {
            struct varve_sink_callsite reported;
            uint64_t native[8];
            uint32_t codes[8], lines[8];
        } callsite;
        struct {
            uint64_t trace_id;
            int64_t integer;
        } meta;
    };
};

/* Records and the rest, each in the order in which they were emitted. */
struct tape {
    struct step *records, *rest;
    size_t record_count, rest_count;
};

static struct tape *tape_current;

static inline struct step *tape_add(enum step_kind kind)
{
    struct tape *tape = tape_current;
    struct step **steps = kind == STEP_RECORD ? &tape->records : &tape->rest;
    size_t *count = kind == STEP_RECORD ? &tape->record_count : &tape->rest_count;
    struct step *step;

    if ((*count & (*count - 1)) == 0) {
        struct step *grown = realloc(*steps, (*count * 2 + 1) * sizeof(*grown));
        assert_non_null(grown);
        *steps = grown;
    }
    step = &(*steps)[(*count)++];
    memset(step, 0, sizeof(*step));
    step->kind = kind;
    return step;
}

static inline void tape_free(struct tape *tape)
{
    for (size_t i = 0; i < tape->rest_count; i++) {
        free(tape->rest[i].texts[0]);
        free(tape->rest[i].texts[1]);
    }
    free(tape->records);
    free(tape->rest);
    memset(tape, 0, sizeof(*tape));
}

/* ---- writing the tape ---- */

static inline void tape_record(const struct varve_sink_origin *origin, uint64_t number,
                               const struct varve_record *record)
{
    struct step *step = tape_add(STEP_RECORD);

    step->record.origin = *origin;
    step->record.number = number;
    step->record.record = *record;
}

static inline void tape_process(const struct varve_sink_process *reported)
{
    struct step *step = tape_add(STEP_PROCESS);

    step->process = *reported;
    step->texts[0] = strdup(reported->executable);
    step->texts[1] = strdup(reported->command_line);
}

static inline void tape_process_end(const struct varve_sink_process_end *reported)
{
    struct step *step = tape_add(STEP_PROCESS_END);

    step->process_end = *reported;
    step->texts[0] = strdup(reported->exec_path);
}

static inline void tape_thread(const struct varve_sink_thread *reported)
{
    struct step *step = tape_add(STEP_THREAD);

    step->thread = *reported;
    step->texts[0] = strdup(reported->name);
}

static inline void tape_thread_end(const struct varve_sink_thread_end *reported)
{
    tape_add(STEP_THREAD_END)->thread_end = *reported;
}

static inline void tape_clock(const struct varve_sink_clock *reported)
{
    tape_add(STEP_CLOCK)->clock = *reported;
}

static inline void tape_module(const struct varve_sink_module *reported)
{
    struct step *step = tape_add(STEP_MODULE);

    step->module = *reported;
    step->texts[0] = strdup(reported->path);
}

static inline void tape_module_gone(uint32_t process, int32_t pid, uint32_t number)
{
    struct step *step = tape_add(STEP_GONE);

    step->module = (struct varve_sink_module){.process = process, .pid = pid, .number = number};
}

static inline void tape_code(const struct varve_sink_code *reported)
{
    struct step *step = tape_add(STEP_CODE);

    step->code = *reported;
    step->texts[0] = strdup(reported->function);
    step->texts[1] = strdup(reported->file);
}

static inline void tape_callsite(const struct varve_sink_callsite *reported)
{
    struct step *step = tape_add(STEP_CALLSITE);

    assert_true(reported->native_count <= 8 && reported->python_count <= 8);
    step->callsite.reported = *reported;
    memcpy(step->callsite.native, reported->native, reported->native_count * sizeof(*reported->native));
    memcpy(step->callsite.codes, reported->codes, reported->python_count * sizeof(*reported->codes));
    memcpy(step->callsite.lines, reported->lines, reported->python_count * sizeof(*reported->lines));
}

static inline void tape_meta_text(uint64_t trace_id, const char *key, const char *value)
{
    struct step *step = tape_add(STEP_META_TEXT);

    step->meta.trace_id = trace_id;
    step->texts[0] = strdup(key);
    step->texts[1] = strdup(value);
}

static inline void tape_meta_integer(uint64_t trace_id, const char *key, int64_t value)
{
    struct step *step = tape_add(STEP_META_INTEGER);

    step->meta.trace_id = trace_id;
    step->meta.integer = value;
    step->texts[0] = strdup(key);
}

static inline const struct sink_provider *tape_provider(void)
{
    static const int on = 1;
    static const int *enabled[256];
    static struct sink_provider provider = {.version = SINK_INTERFACE_VERSION,
                                            .enabled = enabled,
                                            .record = tape_record,
                                            .process = tape_process,
                                            .process_end = tape_process_end,
                                            .thread = tape_thread,
                                            .thread_end = tape_thread_end,
                                            .clock = tape_clock,
                                            .module = tape_module,
                                            .module_gone = tape_module_gone,
                                            .code = tape_code,
                                            .callsite = tape_callsite,
                                            .meta_text = tape_meta_text,
                                            .meta_integer = tape_meta_integer};

    for (unsigned i = 0; i < 256; i++) {
        enabled[i] = &on;
    }
    return &provider;
}

/* ---- playing it ---- */

static inline int tape_play_step(struct varve_rebuild *rebuild, const struct step *step)
{
    struct varve_sink_callsite callsite;
    struct varve_sink_process process;
    struct varve_sink_process_end end;
    struct varve_sink_module module;
    struct varve_sink_thread thread;
    struct varve_sink_code code;

    switch (step->kind) {
    case STEP_RECORD:
        return varve_rebuild_record(rebuild, &step->record.origin, step->record.number, &step->record.record);
    case STEP_PROCESS:
        process = step->process;
        process.executable = step->texts[0];
        process.command_line = step->texts[1];
        return varve_rebuild_process(rebuild, &process);
    case STEP_PROCESS_END:
        end = step->process_end;
        end.exec_path = step->texts[0];
        return varve_rebuild_process_end(rebuild, &end);
    case STEP_THREAD:
        thread = step->thread;
        thread.name = step->texts[0];
        return varve_rebuild_thread(rebuild, &thread);
    case STEP_THREAD_END:
        return varve_rebuild_thread_end(rebuild, &step->thread_end);
    case STEP_CLOCK:
        return varve_rebuild_clock(rebuild, &step->clock);
    case STEP_MODULE:
        module = step->module;
        module.path = step->texts[0];
        return varve_rebuild_module(rebuild, &module);
    case STEP_GONE:
        return varve_rebuild_module_gone(rebuild, step->module.process, step->module.pid,
                                         step->module.number);
    case STEP_CODE:
        code = step->code;
        code.function = step->texts[0];
        code.file = step->texts[1];
        return varve_rebuild_code(rebuild, &code);
    case STEP_CALLSITE:
        callsite = step->callsite.reported;
        callsite.native = step->callsite.native;
        callsite.codes = step->callsite.codes;
        callsite.lines = step->callsite.lines;
        return varve_rebuild_callsite(rebuild, &callsite);
    case STEP_META_TEXT:
        return varve_rebuild_meta_text(rebuild, step->meta.trace_id, step->texts[0], step->texts[1]);
    default:
        return varve_rebuild_meta_integer(rebuild, step->meta.trace_id, step->texts[0], step->meta.integer);
    }
}

static inline void tape_play(struct varve_rebuild *rebuild, const struct step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tape_play_step(rebuild, &steps[i]), VARVE_OK);
    }
}

/* ---- a rebuild in a folder of its own ---- */

struct studio {
    char folder[64];
    char database[96];
    struct varve_rebuild *rebuild;
    struct varve_collect_result result;
    struct varve_message message;
};

static inline void studio_open(struct studio *studio)
{
    const char *base = getenv("TMPDIR");

    memset(studio, 0, sizeof(*studio));
    snprintf(studio->folder, sizeof(studio->folder), "%.40s/varve-unit-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(studio->folder));
    snprintf(studio->database, sizeof(studio->database), "%s/rebuilt.db", studio->folder);
    LAB_OK(studio, varve_rebuild_open(studio->database, false, &studio->rebuild, &studio->message));
}

static inline int entries_of(const char *folder)
{
    DIR *list = opendir(folder);
    int count = 0;

    assert_non_null(list);
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        count += entry->d_name[0] != '.';
    }
    closedir(list);
    return count;
}

/* The database is there and nothing else. */
static inline void studio_finish(struct studio *studio)
{
    LAB_OK(studio, varve_rebuild_finish(studio->rebuild, NULL, NULL, &studio->result, &studio->message));
    assert_int_equal(entries_of(studio->folder), 1);
    assert_int_equal(access(studio->database, R_OK), 0);
}

static inline void studio_close(struct studio *studio)
{
    unlink(studio->database);
    assert_int_equal(rmdir(studio->folder), 0);
}

/* The one integer that a query gives. */
static inline int64_t studio_integer(const struct studio *studio, const char *sql)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open_v2(studio->database, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return database_take_integer(db, sql);
}

static inline void studio_expect(const struct studio *studio, const char *sql, int64_t expected)
{
    int64_t value = studio_integer(studio, sql);

    if (value != expected) {
        fail_msg("%s: %lld, not %lld", sql, (long long)value, (long long)expected);
    }
}

#define STUDIO_CONSERVED "SELECT count(*) FROM thread WHERE emitted <> stored + lost + uncommitted"
#define STUDIO_STAT(name) "SELECT ifnull(max(value), -1) FROM stats WHERE name = '" name "'"

/* ---- records by hand ---- */

static inline struct varve_sink_origin origin_of(uint32_t process, uint32_t ring)
{
    return (struct varve_sink_origin){
        .process = process, .ring = ring, .pid = 1000 + (int32_t)process, .tid = 2000 + (int32_t)ring};
}

/* A mark with its number in `arg`. */
static inline void play_mark(struct studio *studio, uint32_t process, uint32_t ring, uint64_t number)
{
    const struct varve_sink_origin origin = origin_of(process, ring);
    const struct varve_record record =
        hand_record(VARVE_KIND_MARK_BEGIN, 1000000 + number * 10 + ring, 0, number);

    assert_int_equal(varve_rebuild_record(studio->rebuild, &origin, number, &record), VARVE_OK);
}

/* A LOST record of number `number` for `count` before it. */
static inline void play_lost(struct studio *studio, uint32_t process, uint32_t ring, uint64_t number,
                             uint64_t count)
{
    const struct varve_sink_origin origin = origin_of(process, ring);
    struct varve_record record = hand_record(VARVE_KIND_LOST, 1000000 + number * 10 + ring, 0, count);

    record.size = count * 100;
    assert_int_equal(varve_rebuild_record(studio->rebuild, &origin, number, &record), VARVE_OK);
}

#define TRACE_ID 77U /* of the recording that is meant */

static inline void play_marks(struct studio *studio, uint32_t process, uint32_t ring, uint64_t first,
                              uint64_t last)
{
    for (uint64_t number = first; number <= last; number++) {
        play_mark(studio, process, ring, number);
    }
}

static inline void play_clock(struct studio *studio, uint64_t trace_id)
{
    for (uint64_t ticks = 1000000; ticks <= 2000000; ticks += 1000000) {
        const struct varve_sink_clock clock = {trace_id, ticks, (int64_t)ticks, (int64_t)ticks + 5};
        assert_int_equal(varve_rebuild_clock(studio->rebuild, &clock), VARVE_OK);
    }
}

static inline void play_process(struct studio *studio, uint64_t trace_id, uint32_t process, int32_t pid,
                                const char *name)
{
    const struct varve_sink_process reported = {.trace_id = trace_id,
                                                .process = process,
                                                .pid = pid,
                                                .rank = -1,
                                                .clock_kind = VARVE_CLOCK_MONOTONIC,
                                                .start_ticks = 1000000,
                                                .executable = name,
                                                .command_line = name};

    assert_int_equal(varve_rebuild_process(studio->rebuild, &reported), VARVE_OK);
}

/* Marks carry their number in arg; what the database says of them must agree. */
static inline void expect_numbers(const struct studio *studio)
{
    studio_expect(studio, STUDIO_CONSERVED, 0);
    studio_expect(studio, "SELECT count(*) FROM event WHERE kind = 15 AND arg IS NOT ring_seq", 0);
    studio_expect(studio, "SELECT count(*) FROM event WHERE flags & ~7", 0);
    studio_expect(studio,
                  "SELECT count(*) FROM (SELECT 1 FROM event WHERE kind = 15 GROUP BY thread_id, arg"
                  " HAVING count(*) > 1)",
                  0);
}

#endif
