/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What derive makes of caching allocators' events, against a model of plain lists: random histories of two
 * processes with two devices each. Rows of allocation are compared one by one, segments, totals and samples
 * with their definition in SQL. Single events: test_derive_allocator.c; the state of segments and blocks in
 * between: test_layout.c.
 * Costs: 3 s
 */
#include "support/derive/blocks_model.h"
#include "support/derive/rows_expected.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#define PROCESSES 2
#define DEVICES 2
#define ROWS 40000

struct row {
    uint64_t addr, size, requested, alloc_seq, requested_seq, completed_seq, arg;
    int64_t alloc_ns, free_ns;
    int process, device, stream, pool, thread, callsite, temporary;
};

struct owner {
    struct run *run;
    int process;
};

struct run {
    char directory[64], path[96], scratch[96];
    struct derive *derive;
    struct store *store;
    struct model_device devices[PROCESSES][DEVICES];
    struct owner owners[PROCESSES];
    struct row rows[ROWS];
    int row_count;
    int last[10 * PROCESSES + 10]; /* row that the thread allocated last, -1 */
    uint64_t random, seq;
    bool is_checked; /* after every event */
};

static struct row *row_find(struct run *run, int process, int device, uint64_t addr)
{
    for (int i = run->row_count; i-- > 0;) {
        struct row *row = &run->rows[i];
        if (row->process == process && row->device == device && row->addr == addr && row->completed_seq == 0) {
            return row;
        }
    }
    fail_msg("the model frees what it never allocated");
    return NULL;
}

static void expect_event(struct run *run, int process, struct event *event)
{
    struct row *row = NULL;
    int *last = &run->last[event->thread_id];
    if (event->kind == VARVE_KIND_ALLOC) {
        assert_true(run->row_count < ROWS);
        *last = run->row_count;
        run->rows[run->row_count++] = (struct row){.addr = event->addr,
                                                   .size = event->size,
                                                   .requested = event->requested,
                                                   .alloc_seq = event->seq,
                                                   .alloc_ns = event->ts_ns,
                                                   .process = process,
                                                   .device = event->device,
                                                   .stream = event->stream,
                                                   .pool = event->pool,
                                                   .thread = (int)event->thread_id,
                                                   .arg = event->arg,
                                                   .callsite = (int)event->callsite};
    } else if (event->kind == VARVE_KIND_FREE_REQUESTED) {
        row = row_find(run, process, event->device, event->addr);
        row->requested_seq = event->seq;
        row->free_ns = event->ts_ns;
        row->temporary = *last == (int)(row - run->rows);
        *last = -1;
    } else if (event->kind == VARVE_KIND_FREE_COMPLETED) {
        row = row_find(run, process, event->device, event->addr);
        row->completed_seq = event->seq;
    }
}

static void take_record(void *context, const struct varve_record *record)
{
    const struct owner *owner = context;
    struct run *run = owner->run;
    struct varve_message message;
    uint32_t thread =
        (uint32_t)(10 * (owner->process + 1)) + (uint32_t)model_random(&run->devices[owner->process][0], 2);
    struct event event = {
        .seq = ++run->seq,
        .ts_ns = (int64_t)run->seq * 10,
        .process_id = (uint32_t)owner->process + 1,
        .thread_id = thread,
        .pid = 100 + owner->process,
        .tid = (int32_t)thread,
        .kind = (uint8_t)varve_record_kind(record),
        .cause = record->cause,
        .device = record->device,
        .pool = record->pool,
        .stream = (uint16_t)varve_record_stream(record),
        .callsite = record->callsite,
        .dev_seq = varve_record_dev_seq(record),
        .addr = record->addr,
        .size = record->size,
        .requested = record->requested,
        .arg = record->arg,
    };
    expect_event(run, owner->process, &event);
    assert_false(derive_is_out_of_order(run->derive, &event));
    assert_int_equal(derive_event(run->derive, &event, &message), VARVE_OK);
    assert_int_equal(store_append(run->store, &event, &message), VARVE_OK);
    if (run->is_checked && derive_check(run->derive, &message) != VARVE_OK) {
        fail_msg("event %llu: %s", (unsigned long long)event.seq, message.text);
    }
}

/* ---- comparison ---- */

static int64_t or_null(uint64_t value)
{
    return value != 0 ? (int64_t)value : INT64_MIN;
}

static void compare_allocations(sqlite3 *db, const struct run *run)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT a.id, a.domain, a.process_id, a.tid, a.device, a.pool, a.stream, a.addr, a.size,"
                        " a.requested, a.alloc_seq, a.free_requested_seq, a.free_completed_seq, a.alloc_ns, a.free_ns,"
                        " a.callsite_id, a.source, a.temporary, s.alloc_seq < a.alloc_seq AND s.addr <= a.addr"
                        " AND coalesce(s.free_seq > a.alloc_seq, 1)"
                        " FROM allocation a JOIN segment s ON s.id = a.segment_id ORDER BY a.id");
    for (int i = 0; i < run->row_count; i++) {
        const struct row *row = &run->rows[i];
        const int64_t values[] = {i + 1,
                                  DOMAIN_BLOCK,
                                  row->process + 1,
                                  row->thread,
                                  row->device,
                                  row->pool,
                                  row->stream,
                                  (int64_t)row->addr,
                                  (int64_t)row->size,
                                  (int64_t)row->requested,
                                  (int64_t)row->alloc_seq,
                                  or_null(row->requested_seq),
                                  or_null(row->completed_seq),
                                  row->alloc_ns,
                                  row->requested_seq != 0 ? row->free_ns : INT64_MIN,
                                  row->callsite,
                                  VARVE_CAUSE_CACHE,
                                  row->temporary,
                                  1};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

/* What the queries had to look at, over all histories: none of it may be nothing. */
static struct {
    const char *sql;
    int64_t rows;
} guards[16];

static void guard_add(const char *sql, int64_t rows)
{
    size_t i = 0;
    while (guards[i].sql != NULL && guards[i].sql != sql) {
        i++;
    }
    guards[i].sql = sql;
    guards[i].rows += rows;
}

/* A query that must give 0, and one that counts what it had to look at. */
static void expect_none(sqlite3 *db, const char *sql, const char *some)
{
    sqlite3_stmt *query = query_begin(db, sql);
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    if (sqlite3_column_int64(query, 0) != 0) {
        fail_msg("%lld rows: %s", (long long)sqlite3_column_int64(query, 0), sql);
    }
    sqlite3_finalize(query);
    query = query_begin(db, some);
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    guard_add(some, sqlite3_column_int64(query, 0));
    sqlite3_finalize(query);
}

/* Definitions over event and allocation, for every process and device and for all processes together. */
static const char definitions[] =
    "CREATE TEMP TABLE whose AS SELECT 0 AS process_id, id FROM allocation WHERE domain = 4 UNION ALL"
    " SELECT process_id, id FROM allocation WHERE domain = 4;"
    "CREATE TEMP TABLE part AS SELECT w.process_id AS who, a.* FROM whose w JOIN allocation a USING (id);"
    "CREATE TEMP TABLE change AS"
    " SELECT who, device, alloc_seq AS seq, size AS allocated, size AS active, requested, 0 AS reserved, 1 "
    "AS live"
    " FROM part UNION ALL"
    " SELECT who, device, free_requested_seq, -size, 0, 0, 0, -1 FROM part WHERE free_requested_seq > 0 "
    "UNION ALL"
    " SELECT who, device, free_completed_seq, 0, -size, -requested, 0, 0 FROM part WHERE free_completed_seq "
    "> 0"
    " UNION ALL SELECT w.who, e.device, e.seq, 0, 0, 0, CASE WHEN e.kind IN (6, 8) THEN e.size ELSE -e.size "
    "END, 0"
    " FROM event e JOIN (SELECT 0 AS who, thread_id, thread_id / 10 AS p FROM event GROUP BY 2 UNION"
    " SELECT thread_id / 10, thread_id, thread_id / 10 FROM event GROUP BY 2) w USING (thread_id)"
    " WHERE e.kind IN (6, 7, 8, 9);"
    "CREATE TEMP TABLE course AS SELECT who, device, seq, sum(allocated) OVER w AS allocated, sum(active) "
    "OVER w AS"
    " active, sum(requested) OVER w AS requested, sum(reserved) OVER w AS reserved, sum(live) OVER w AS live"
    " FROM (SELECT who, device, seq, sum(allocated) AS allocated, sum(active) AS active, sum(requested) AS "
    "requested,"
    " sum(reserved) AS reserved, sum(live) AS live FROM change GROUP BY 1, 2, 3)"
    " WINDOW w AS (PARTITION BY who, device ORDER BY seq);"
    "CREATE INDEX temp.course_key ON course(who, device, seq);";

static void compare_sums(sqlite3 *db)
{
    char *error = NULL;
    if (sqlite3_exec(db, definitions, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s", error);
    }
    expect_none(db,
                "SELECT count(*) FROM sample s LEFT JOIN course c ON c.who = s.process_id AND c.device = s.device"
                " AND c.seq = s.seq WHERE s.domain = 4 AND (s.allocated, s.active, s.reserved, s.requested, s.live)"
                " IS NOT (c.allocated, c.active, c.reserved, c.requested, c.live)",
                "SELECT count(*) FROM sample WHERE domain = 4 AND active > allocated AND reserved > active"
                " AND requested <= active");
    expect_none(db,
                "SELECT count(*) FROM (SELECT process_id, device, allocations, frees, bytes, "
                "live_allocations, live_bytes,"
                " temporary FROM total_stat WHERE domain = 4 EXCEPT SELECT who, device, count(*), "
                "count(free_requested_seq),"
                " sum(size), sum(free_requested_seq IS NULL), sum(iif(free_requested_seq IS NULL, size, 0)), "
                "sum(temporary)"
                " FROM part GROUP BY 1, 2)",
                "SELECT count(*) FROM total_stat WHERE domain = 4 AND process_id > 0 AND device > 0");
    expect_none(db,
                "SELECT count(*) FROM total_stat t WHERE domain = 4 AND (peak_bytes, peak_seq) IS NOT (SELECT"
                " allocated, seq FROM course c WHERE c.who = t.process_id AND c.device = t.device"
                " ORDER BY allocated DESC, seq LIMIT 1)",
                "SELECT (SELECT count(*) FROM peak_time WHERE domain = 'block') +"
                " (SELECT count(*) FROM peak_time_process WHERE domain = 'block')");
    expect_none(db,
                "SELECT count(*) FROM (SELECT callsite_id, allocations, frees, bytes, live_bytes, peak_allocations, "
                "peak_bytes,"
                " temporary, lifetime_ns FROM callsite_stat WHERE domain = 4 EXCEPT SELECT p.callsite_id, count(*),"
                " count(free_requested_seq), sum(size), sum(iif(free_requested_seq IS NULL, size, 0)),"
                " sum(p.alloc_seq <= t.peak_seq AND coalesce(p.free_requested_seq > t.peak_seq, 1)),"
                " sum(iif(p.alloc_seq <= t.peak_seq AND coalesce(p.free_requested_seq > t.peak_seq, 1), size, 0)),"
                " sum(p.temporary), sum(coalesce(free_ns - alloc_ns, 0)) FROM part p JOIN total_stat t ON "
                "t.process_id = 0"
                " AND t.domain = 4 AND t.device = p.device WHERE p.who = 0 GROUP BY 1)",
                "SELECT count(*) FROM callsite_stat WHERE domain = 4 AND temporary > 0");
    expect_none(
        db,
        "SELECT count(*) FROM event e LEFT JOIN allocation a ON a.id = e.id WHERE e.kind IN (1, 2, 3) AND"
        " (a.addr IS NOT e.addr OR a.size <> e.size OR e.callsite_id IS NOT iif(e.kind = 1, a.callsite_id, NULL))",
        "SELECT count(*) FROM event WHERE kind = 3");
}

/* Segments by their events: ids are rows, and sizes the most that was mapped. */
static void compare_segments(sqlite3 *db)
{
    expect_none(db,
                "WITH flow AS (SELECT id, seq, kind, sum(CASE WHEN kind IN (6, 8) THEN size ELSE -size END) OVER"
                " (PARTITION BY id ORDER BY seq) AS mapped, cause FROM event WHERE kind IN (6, 7, 8, 9)),"
                " story AS (SELECT id, max(mapped) AS size, min(seq) AS alloc_seq, max(iif(mapped = 0, seq, NULL)) "
                "AS free_seq,"
                " max(iif(mapped = 0, cause, NULL)) AS cause, max(kind) >= 8 AS is_expandable FROM flow GROUP BY id)"
                " SELECT count(*) FROM story t LEFT JOIN segment s USING (id) WHERE (s.size, s.alloc_seq, "
                "s.free_seq, s.cause,"
                " s.is_expandable) IS NOT (t.size, t.alloc_seq, t.free_seq, t.cause, t.is_expandable)",
                "SELECT count(*) FROM segment WHERE is_expandable AND free_seq > 0");
    expect_none(db,
                "SELECT (SELECT count(DISTINCT id) FROM event WHERE kind IN (6, 8)) - (SELECT count(*) FROM segment)",
                "SELECT count(*) FROM segment WHERE cause = 10");
    expect_none(db,
                "SELECT count(*) FROM block_op b LEFT JOIN segment s ON s.id = b.segment_id WHERE s.id IS NULL OR"
                " b.addr < s.addr OR b.seq < s.alloc_seq OR b.seq > s.free_seq OR b.other_size IS NULL",
                "SELECT min((SELECT count(*) FROM block_op WHERE kind = 4), (SELECT count(*) FROM block_op WHERE "
                "kind ="
                " 5))");
}

/* ---- the tests ---- */

static struct run *run_history(uint64_t seed, bool is_silent, uint64_t events, int limit, bool is_checked)
{
    struct run *run = calloc(1, sizeof(*run));
    struct varve_message message;
    assert_non_null(run);
    snprintf(run->directory, sizeof(run->directory), "/tmp/test_derive_blocks.XXXXXX");
    assert_non_null(mkdtemp(run->directory));
    snprintf(run->path, sizeof(run->path), "%s/trace.db", run->directory);
    snprintf(run->scratch, sizeof(run->scratch), "%s/allocations", run->directory);
    assert_int_equal(store_open(run->path, STORE_CREATE, &run->store, &message), VARVE_OK);
    assert_int_equal(derive_open(run->scratch, &run->derive, &message), VARVE_OK);
    run->random = seed * 7919;
    run->is_checked = is_checked;
    memset(run->last, 0xff, sizeof(run->last));
    for (int p = 0; p < PROCESSES; p++) {
        run->owners[p] = (struct owner){.run = run, .process = p};
        for (unsigned d = 0; d < DEVICES; d++) {
            model_init(&run->devices[p][d], d, is_silent, &run->random, take_record, &run->owners[p]);
        }
    }
    for (int i = 0; run->seq < events; i++) {
        model_step(&run->devices[i & 1][model_random(&run->devices[0][0], DEVICES)], limit);
    }
    return run;
}

static sqlite3 *run_finish(struct run *run)
{
    struct varve_message message;
    sqlite3 *db;
    if (derive_check(run->derive, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(derive_finish(run->derive, run->store, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(store_finish(run->store, NULL, NULL, &message), VARVE_OK);
    derive_close(run->derive);
    store_close(run->store);
    assert_int_equal(sqlite3_open_v2(run->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return db;
}

static void run_end(struct run *run, sqlite3 *db)
{
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    unlink(run->path);
    unlink(run->scratch);
    assert_int_equal(rmdir(run->directory), 0); /* no other file was left */
    free(run);
}

TEST(test_histories)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        bool is_silent = seed % 3 == 0;
        struct run *run = run_history(seed, is_silent, 3000, 60, true);
        sqlite3 *db = run_finish(run);
        compare_allocations(db, run);
        compare_sums(db);
        if (!is_silent) {
            compare_segments(db);
        }
        run_end(run, db);
    }
    for (size_t i = 0; guards[i].sql != NULL; i++) {
        if (guards[i].rows == 0) {
            fail_msg("nothing to compare: %s", guards[i].sql);
        }
    }
}
