/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a recording, with both sides in one process, whose descriptors have locks of their own: figures are
 * written while somebody watches and at no other time, say what the collector knows, and what became of the recording
 * is told apart.
 * Costs: 1 s
 */
#include "support/collector.h"
#include "trace/collector/collector.h"
#include "trace/collector/session/watch.h"
#include "trace/model/derive.h"
#include "trace/model/domain.h"
#include "trace/model/model_state.h"
#include "base/error.h"
#include "trace/collect.h"
#include "trace/record.h"

#include <sys/stat.h>

static void round_now(struct lab *lab)
{
    lab->collector->live.next_ns = lab->collector->live.next_moment_ns = 0;
    uint64_t moved;
    LAB_OK(lab, collector_round(lab->collector, false, &moved, &lab->message));
}

static bool has_figures(const struct lab *lab)
{
    struct stat status;
    return fstatat(lab->collector->directory.rings_fd, "live.json", &status, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What a query of the newest figures gives; each array of the document is a view of its rows, `value`. */
static void expect_figures(const struct varve_watch *watch, const char *sql, const char *rows)
{
    static const char *const arrays[] = {"recording", "total", "allocator", "process_total", "callsite_total"};
    size_t count;
    void *bytes = varve_watch_read(watch, &count);
    assert_non_null(bytes);
    sqlite3 *db;
    sqlite3_stmt *insert;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE document(text)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "INSERT INTO document VALUES (?)", -1, &insert, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_bind_text(insert, 1, bytes, (int)count, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
    sqlite3_finalize(insert);
    free(bytes);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        char view[160];
        snprintf(view, sizeof(view), "CREATE VIEW %s AS SELECT value FROM document, json_each(text, '$.%s')", arrays[i],
                 arrays[i]);
        assert_int_equal(sqlite3_exec(db, view, NULL, NULL, NULL), SQLITE_OK);
    }
    query_expect(db, sql, rows);
    sqlite3_close(db);
}

/* A recording that may be watched. */
static struct lab *begin(void)
{
    struct lab *lab = lab_begin();
    watch_allow(&lab->collector->directory);
    return lab;
}

static struct varve_watch *watch(struct lab *lab)
{
    struct varve_watch *made = NULL;
    LAB_OK(lab, varve_watch_open(lab->collector->directory.path, &made, &lab->message));
    return made;
}

static void emit(struct lab *lab, struct ring_header *ring, uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        hand_emit(ring, VARVE_KIND_HEAP_ALLOC, lab->begin + at, 0x1000 + 32 * at, at);
    }
}

static void settle(struct lab *lab)
{
    for (int i = 0; i < 5; i++) {
        usleep(1000); /* a watermark of its own for each round */
        round_now(lab);
    }
}

TEST(test_only_while_watched)
{
    struct lab *lab = begin();
    round_now(lab);
    assert_false(has_figures(lab));
    struct varve_watch *first = watch(lab);
    struct varve_watch *second = watch(lab);
    round_now(lab);
    assert_true(has_figures(lab));
    varve_watch_close(first);
    round_now(lab);
    expect_figures(second, "SELECT value->>'number' FROM recording", "2\n");
    varve_watch_close(second);
    round_now(lab);
    assert_false(has_figures(lab));
    assert_int_equal(lab->collector->live.number, 0);
    lab_end(lab);
}

TEST(test_figures)
{
    struct lab *lab = begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 1024);
    struct varve_watch *top = watch(lab);
    round_now(lab);
    expect_figures(top, "SELECT value->>'events_per_s' FROM recording", "-\n");
    emit(lab, ring, 1, 100);
    ring->lost = 7;
    ring->emitted += 7;
    settle(lab);
    expect_figures(top, "SELECT value->>'events', value->>'lost', value->>'processes_running' FROM recording",
                   "100 7 1\n");
    expect_figures(top, "SELECT value->>'domain', value->>'live_bytes', value->>'bytes_per_s' = 0 FROM total",
                   "heap 1600 1\n");
    expect_figures(top, "SELECT value->>'callsite_id', value->>'allocations' FROM callsite_total", "0 100\n");
    expect_figures(top, "SELECT value->>'heap_bytes', value->>'command_line' FROM process_total", "1600 hand made\n");
    hand_emit(ring, VARVE_KIND_HEAP_FREE, lab->begin + 101, 0x1000 + 32, 101);
    settle(lab);
    expect_figures(top, "SELECT value->>'live_bytes', value->>'peak_bytes' FROM total", "1584 1600\n");
    varve_watch_close(top);
    lab_end(lab);
}

/* Names are bytes of programs; records may be damaged; and what CUPTI repeats is no total. */
TEST(test_hostile)
{
    static const char name[] = "\"\\ \033[2J\n\x01\xff\xc3";
    struct lab *lab = begin();
    snprintf(hand_process(lab, lab_living(lab))->command_line, sizeof(name), "%s", name);
    struct ring_header *ring = hand_ring(lab, 1, 1024);
    struct varve_watch *top = watch(lab);
    emit(lab, ring, 1, 1);
    settle(lab);
    struct derive *derive = lab->collector->derive;
    struct total *cupti = &derive->domains[slot_of(DOMAIN_CUPTI, 0)].all;
    cupti->samples.limit = 1;
    derive->domains[slot_of(DOMAIN_HEAP, 0)].all.failed = UINT64_MAX;
    round_now(lab);
    cupti->samples.limit = 0;
    expect_figures(top, "SELECT hex(value->>'command_line') FROM process_total", "225C201B5B324A0A01FFC3\n");
    expect_figures(top, "SELECT value->>'domain', value->>'failed' FROM total", "heap 9223372036854775807\n");
    varve_watch_close(top);
    lab_end(lab);
}

static void emit_block(struct lab *lab, struct ring_header *ring, enum varve_kind kind, uint64_t number, uint64_t addr,
                       uint64_t size)
{
    struct varve_record record = hand_record(kind, lab->begin + number, addr, 0);
    record.dev_seq_kind_flags = varve_record_tag(number, kind, 0);
    record.id_stream = number;
    record.arg = kind == VARVE_KIND_ALLOC ? UINT64_C(2048) << 32 | 1 : number; /* cut from all of segment 1 */
    record.size = size;
    record.requested = size - (kind == VARVE_KIND_ALLOC ? 100 : 0);
    record.device = 1;
    hand_begin(ring);
    hand_commit(ring, &record);
}

/* Two segments of a caching allocator, a block in one of them. */
TEST(test_allocator)
{
    struct lab *lab = begin();
    hand_process(lab, lab_living(lab))->rank = 5;
    struct ring_header *ring = hand_ring(lab, 1, 1024);
    struct varve_watch *top = watch(lab);
    emit_block(lab, ring, VARVE_KIND_SEGMENT_ALLOC, 1, 0x700000000, 1 << 20);
    emit_block(lab, ring, VARVE_KIND_SEGMENT_ALLOC, 2, 0x710000000, 1 << 21);
    emit_block(lab, ring, VARVE_KIND_ALLOC, 3, 0x700000000, 4096);
    settle(lab);
    expect_figures(top,
                   "SELECT value->>'rank', value->>'device', value->>'segments', value->>'reserved',"
                   " value->>'allocated', value->>'requested', value->>'cached' FROM allocator",
                   "5 1 2 3145728 4096 3996 2097152\n");
    expect_figures(top,
                   "SELECT value->>'live_bytes' FROM total WHERE value->>'domain' = 'block' AND value->>'device' = 1",
                   "4096\n");
    varve_watch_close(top);
    lab_end(lab);
}

TEST(test_what_becomes_of_it)
{
    struct lab *lab = begin();
    struct varve_watch *top = watch(lab);
    assert_int_equal(varve_watch_state(top), VARVE_WATCH_RECORDING);
    round_now(lab);
    lab->collector->directory.control->state = SESSION_STATE_CLOSED;
    assert_int_equal(varve_watch_state(top), VARVE_WATCH_FINISHING);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    expect_figures(top, "SELECT value->>'is_over' FROM recording", "1\n");
    LAB_OK(lab, collector_publish(lab->collector, lab->database, &lab->message));
    assert_false(has_figures(lab));
    assert_int_equal(varve_watch_state(top), VARVE_WATCH_FINISHING); /* its lock goes last */
    session_directory_remove(&lab->collector->directory);
    assert_int_equal(varve_watch_state(top), VARVE_WATCH_ENDED);
    varve_watch_close(top);
    lab_end(lab);
}

TEST(test_died)
{
    struct lab *lab = begin();
    struct varve_watch *top = watch(lab);
    round_now(lab);
    lab_drop_collector(lab);
    assert_int_equal(varve_watch_state(top), VARVE_WATCH_DEAD);
    expect_figures(top, "SELECT value->>'number' FROM recording", "1\n");
    varve_watch_close(top);
    lab_end(lab);
}

TEST(test_refused)
{
    struct lab *lab = lab_begin();
    struct varve_watch *made = NULL;

    /* nothing allows it: a recording without a database */
    assert_int_equal(varve_watch_open(lab->collector->directory.path, &made, &lab->message), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_watch_open(lab->folder, &made, &lab->message), VARVE_ERROR_FORMAT);
    assert_int_equal(varve_watch_open("/nonexistent", &made, &lab->message), VARVE_ERROR_NOT_FOUND);
    watch_allow(&lab->collector->directory);
    lab->collector->directory.control->version++;
    assert_int_equal(varve_watch_open(lab->collector->directory.path, &made, &lab->message), VARVE_ERROR_VERSION);
    lab->collector->directory.control->version--;
    assert_null(made);
    lab_end(lab);
}

/* Names of a directory, with this one among them if the recording is of this process. */
static bool is_found(const struct lab *lab, int32_t pid)
{
    char *paths[64];
    const size_t count = varve_watch_find(pid, paths, 64);
    bool is_there = false;
    for (size_t i = 0; i < count; i++) {
        is_there = is_there || strcmp(paths[i], lab->collector->directory.path) == 0;
        free(paths[i]);
    }
    return is_there;
}

TEST(test_found)
{
    struct lab *lab = lab_begin();
    assert_true(is_found(lab, 0));
    assert_true(is_found(lab, (int32_t)getpid()));
    assert_false(is_found(lab, 1));
    lab_end(lab);
}
