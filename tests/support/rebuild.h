/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A tape of what a second sink gets: the provider that writes it stands in the place of LTTng's, and what
 * is on it is played to varve_rebuild_* in any order. Databases are compared row by row.
 */
#ifndef VARVE_TESTS_SUPPORT_REBUILD_H
#define VARVE_TESTS_SUPPORT_REBUILD_H

#include "support/collector.h"
#include "support/sink_item.h"
#include "base/grown_array.h"
#include "trace/format/sink_provider.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/collect.h"
#include "trace/emit.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Records and the rest, each in the order in which they were emitted. */
struct tape {
    struct varve_sink_item *records, *rest;
    size_t record_count, record_capacity, rest_count, rest_capacity;
};

static struct tape *tape_current;

static inline void tape_free(struct tape *tape)
{
    for (size_t i = 0; i < tape->rest_count; i++) {
        sink_item_drop(&tape->rest[i]);
    }
    free(tape->records);
    free(tape->rest);
    memset(tape, 0, sizeof(*tape));
}

/* ---- writing the tape ---- */

static inline void tape_record(const struct varve_sink_origin *origin, uint64_t number,
                               const struct varve_record *record)
{
    struct tape *tape = tape_current;
    assert_true(
        array_grow((void **)&tape->records, &tape->record_capacity, tape->record_count + 1, sizeof(*tape->records)));
    tape->records[tape->record_count++] =
        (struct varve_sink_item){VARVE_SINK_ITEM_RECORD, .of.record = {*origin, number, *record}};
}

static inline void tape_add(const struct varve_sink_item *item)
{
    struct tape *tape = tape_current;
    assert_true(array_grow((void **)&tape->rest, &tape->rest_capacity, tape->rest_count + 1, sizeof(*tape->rest)));
    tape->rest[tape->rest_count++] = sink_item_copy(item);
}

/* What the provider is told of one thing. */
#define TAPE_FUNCTION(name, NAME)                                                          \
    static inline void tape_##name(const struct varve_sink_##name *reported)               \
    {                                                                                      \
        tape_add(&(struct varve_sink_item){VARVE_SINK_ITEM_##NAME, .of.name = *reported}); \
    }

TAPE_FUNCTION(process, PROCESS)
TAPE_FUNCTION(process_end, PROCESS_END)
TAPE_FUNCTION(thread, THREAD)
TAPE_FUNCTION(thread_end, THREAD_END)
TAPE_FUNCTION(clock, CLOCK)
TAPE_FUNCTION(module, MODULE)
TAPE_FUNCTION(code, CODE)
TAPE_FUNCTION(callsite, CALLSITE)

static inline void tape_module_gone(uint32_t process, int32_t pid, uint32_t number)
{
    tape_add(&(struct varve_sink_item){VARVE_SINK_ITEM_MODULE_GONE, .of.module_gone = {process, pid, number}});
}

static inline void tape_meta_text(uint64_t trace_id, const char *key, const char *value)
{
    tape_add(&(struct varve_sink_item){VARVE_SINK_ITEM_META_TEXT,
                                       .of.meta = {.trace_id = trace_id, .key = key, .text = value}});
}

static inline void tape_meta_integer(uint64_t trace_id, const char *key, int64_t value)
{
    tape_add(&(struct varve_sink_item){VARVE_SINK_ITEM_META_INTEGER,
                                       .of.meta = {.trace_id = trace_id, .key = key, .value = value}});
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

/* An item of kind `NAME`; what follows initializes its member. */
#define PLAY(rebuild, NAME, ...) \
    varve_rebuild_item(rebuild, &(struct varve_sink_item){VARVE_SINK_ITEM_##NAME, __VA_ARGS__})

static inline void tape_play(struct varve_rebuild *rebuild, const struct varve_sink_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(varve_rebuild_item(rebuild, &items[i]), VARVE_OK);
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

static inline void studio_rows(const struct studio *studio, const char *sql, const char *rows)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(studio->database, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    query_expect(db, sql, rows);
    sqlite3_close(db);
}

static inline void studio_expect(const struct studio *studio, const char *sql, int64_t expected)
{
    char rows[32];
    snprintf(rows, sizeof(rows), "%lld\n", (long long)expected);
    studio_rows(studio, sql, rows);
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
    const struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, 1000000 + number * 10 + ring, 0, number);
    assert_int_equal(PLAY(studio->rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
}

/* A LOST record of number `number` for `count` before it. */
static inline void play_lost(struct studio *studio, uint32_t process, uint32_t ring, uint64_t number, uint64_t count)
{
    const struct varve_sink_origin origin = origin_of(process, ring);
    struct varve_record record = hand_record(VARVE_KIND_LOST, 1000000 + number * 10 + ring, 0, count);
    record.size = count * 100;
    assert_int_equal(PLAY(studio->rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
}

#define TRACE_ID 77U /* of the recording that is meant */

static inline void play_clock(struct studio *studio, uint64_t trace_id)
{
    for (uint64_t ticks = 1000000; ticks <= 2000000; ticks += 1000000) {
        const struct varve_sink_clock clock = {trace_id, ticks, (int64_t)ticks, (int64_t)ticks + 5};
        assert_int_equal(PLAY(studio->rebuild, CLOCK, .of.clock = clock), VARVE_OK);
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
    assert_int_equal(PLAY(studio->rebuild, PROCESS, .of.process = reported), VARVE_OK);
}

/* Marks carry their number in arg; what the database says of them must agree. */
static inline void expect_numbers(const struct studio *studio)
{
    studio_expect(studio, STUDIO_CONSERVED, 0);
    studio_rows(
        studio,
        "SELECT thread_id, arg, ring_seq, flags FROM event WHERE (kind = 15 AND arg IS NOT ring_seq) OR "
        "flags & ~7 UNION SELECT thread_id, arg, count(*), 0 FROM event WHERE kind = 15 GROUP BY thread_id, arg "
        "HAVING count(*) > 1",
        "");
}

#endif
