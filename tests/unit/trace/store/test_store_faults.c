/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer in trouble: full disks at every stage (a limit on file sizes stands for them, which fails the
 * same writes), a collector killed in the middle of everything, and the end: one file that opens read-only.
 * Costs: 5 s
 */
#include "support/store.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/allocations.h"
#include "trace/store/derived.h"
#include "trace/store/resume.h"
#include "trace/store/rows.h"
#include "trace/store/storages.h"
#include "trace/store/store.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_new(struct fixture *fixture)
{
    OK(store_open(fixture->path, STORE_CREATE, &fixture->store, &fixture->message));
    OK(derive_open(fixture->scratch, &fixture->derive, &fixture->message));
}

static const char integrity[] = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'";

/* Two allocations, then a free of the first: every third block stays. */
static struct event heap_event(uint64_t seq)
{
    bool is_alloc = seq % 3 != 0;
    uint64_t block = is_alloc ? seq : seq - 2;
    return (struct event){.seq = seq,
                          .ts_ns = (int64_t)seq * 137,
                          .process_id = 1,
                          .thread_id = 1,
                          .pid = 4321,
                          .tid = 4322,
                          .kind = is_alloc ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE,
                          .cause = is_alloc ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE,
                          .addr = 0x55d0c0de0000 + block * 32,
                          .size = is_alloc ? 24 + seq % 900 : 0,
                          .callsite = is_alloc ? 1 + (uint32_t)(seq % 300) : 0};
}

static void append(struct fixture *fixture, uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        struct event event = heap_event(seq);
        OK(derive_event(fixture->derive, &event, &fixture->message));
        OK(store_append(fixture->store, &event, &fixture->message));
    }
    allocations_gather(fixture->store, fixture->derive, 16);
}

static void limit_files(const struct fixture *fixture, uint64_t bytes)
{
    struct rlimit limit = fixture->unlimited;
    limit.rlim_cur = bytes != 0 ? bytes : fixture->unlimited.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_WITH(test_commit_after_a_full_disk, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 1000};
    const struct store_ring_position later = {.thread_id = 1, .process_id = 1, .tail = 61000};
    open_new(fixture);
    append(fixture, 1, 1000);
    OK(store_commit(fixture->store, &position, 1, &fixture->message));
    append(fixture, 1001, 60000);
    OK(store_stat(fixture->store, "before", 1, "info", "test", 1));
    limit_files(fixture, 1 << 20);
    assert_int_equal(store_commit(fixture->store, &later, 1, &fixture->message), VARVE_ERROR_FULL);
    assert_non_null(strstr(fixture->message.text, fixture->path));
    assert_int_equal(store_commit(fixture->store, &later, 1, &fixture->message), VARVE_ERROR_FULL);
    assert_int_equal(store_pending(fixture->store), 59000);
    append(fixture, 60001, 61000);
    limit_files(fixture, 0);
    /* All or nothing: others see the first commit only. */
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 1000);
    assert_int_equal(look(fixture, "SELECT tail FROM ring_position"), 1000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM stats"), 0);
    OK(store_meta_text(fixture->store, "after", "x"));
    OK(store_commit(fixture->store, &later, 1, &fixture->message));
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 61000);
    assert_int_equal(look(fixture, "SELECT tail FROM ring_position"), 61000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM stats"), 1);
    assert_int_equal(look(fixture, "SELECT count(*) FROM meta WHERE key = 'after'"), 1);
    assert_int_equal(look(fixture, integrity), 0);
}

TEST_WITH(test_creation_on_a_full_disk, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    limit_files(fixture, 20000);
    assert_int_equal(store_open(fixture->path, STORE_CREATE, &fixture->store, &fixture->message), VARVE_ERROR_FULL);
    limit_files(fixture, 0);
    assert_null(fixture->store);
    assert_int_not_equal(access(fixture->path, F_OK), 0);
}

static int finish(struct fixture *fixture)
{
    const struct store_symbol symbol = {.function = "main", .file = "a.c", .line = 3};
    int code = store_callsites_begin(fixture->store, &fixture->message);
    uint32_t id = code == VARVE_OK ? store_symbol(fixture->store, &symbol) : 0;
    if (code == VARVE_OK) {
        code = id != 0 ? store_callsite(fixture->store, 1, 0, 1, id, id) : VARVE_ERROR_FULL;
    }
    if (code == VARVE_OK) {
        code = derive_finish(fixture->derive, fixture->store, NULL, NULL, &fixture->message);
    }
    return code == VARVE_OK ? store_finish(fixture->store, NULL, NULL, &fixture->message) : code;
}

/* The limit is moved up step by step, so that each stage of the end fails once. */
TEST_WITH(test_finish_after_full_disks, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    open_new(fixture);
    append(fixture, 1, 30000);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    append(fixture, 30001, 60000);
    struct stat status;
    assert_int_equal(stat(fixture->path, &status), 0);
    int failures = 0;
    int code = VARVE_ERROR_FULL;
    for (uint64_t limit = 1 << 20; code != VARVE_OK; limit += 700000) {
        limit_files(fixture, limit);
        code = finish(fixture);
        limit_files(fixture, 0);
        if (code != VARVE_OK) {
            assert_int_equal(code, VARVE_ERROR_FULL);
            failures++;
            assert_int_equal(look(fixture, "SELECT value FROM meta WHERE key = 'complete'"), 0);
            assert_int_equal(look(fixture, integrity), 0);
        }
    }
    assert_true(failures >= 3);
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 60000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM allocation"), 40000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM leak"), 20000);
    assert_int_equal(look(fixture, "SELECT live_allocations FROM total_stat WHERE process_id = 0"), 20000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM callsite JOIN symbol ON symbol.id = symbol_id"), 1);
    assert_int_equal(look(fixture, integrity), 0);
}

/* Two storages, then the end of the first: every third one of them stays. */
static void append_storages(struct fixture *fixture, uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        bool is_end = seq % 3 == 0;
        struct event event = {.seq = seq,
                              .ts_ns = (int64_t)seq * 137,
                              .process_id = 1,
                              .thread_id = 1,
                              .pid = 4321,
                              .tid = 4322,
                              .kind = is_end ? VARVE_KIND_STORAGE_DESTROY : VARVE_KIND_STORAGE_CREATE,
                              .id = is_end ? seq - 2 : seq,
                              .addr = 0x55d0c0de0000 + seq * 32,
                              .size = 1000 + seq,
                              .arg = 1};
        OK(derive_event(fixture->derive, &event, &fixture->message));
        OK(store_append(fixture->store, &event, &fixture->message));
    }
    storages_gather(fixture->store, fixture->derive, 1000);
}

/* Rows that were there before they were final are replaced, whatever fails in between. */
TEST_WITH(test_storages_after_full_disks, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    int failures = 0;
    int code = VARVE_ERROR_FULL;
    open_new(fixture);
    for (uint64_t seq = 0; seq < 60000; seq += 10000) {
        append_storages(fixture, seq + 1, seq + 10000);
        OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    }
    assert_int_equal(look(fixture, "SELECT count(*) FROM storage"), 39000);
    append_storages(fixture, 60001, 90000);
    for (uint64_t limit = 1 << 20; code != VARVE_OK; limit += 500000) {
        limit_files(fixture, limit);
        code = finish(fixture);
        limit_files(fixture, 0);
        failures += code != VARVE_OK;
        assert_true(code == VARVE_OK || code == VARVE_ERROR_FULL);
    }
    assert_true(failures >= 3);
    assert_int_equal(look(fixture, "SELECT count(*) FROM storage WHERE size = 1000 + number AND create_seq = number"),
                     60000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM storage WHERE destroy_seq IS NULL AND number % 3 = 2"), 30000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM storage WHERE destroy_seq = number + 2 AND number % 3 = 1"),
                     30000);
    assert_int_equal(look(fixture, integrity), 0);
}

/* The child commits, goes on without a commit, and is killed. */
static void child_record(struct fixture *fixture)
{
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 50000};
    open_new(fixture);
    append(fixture, 1, 50000);
    OK(store_meta_integer(fixture->store, "committed", 1));
    OK(store_commit(fixture->store, &position, 1, &fixture->message));
    append(fixture, 50001, 90000);
    OK(store_meta_integer(fixture->store, "uncommitted", 1));
    raise(SIGKILL);
}

static int derive_again(void *context, struct event *event)
{
    struct fixture *fixture = context;
    struct event before = *event;
    int code = derive_event(fixture->derive, event, &fixture->message);
    assert_int_equal(event->id, before.id);
    assert_int_equal(event->size, before.size);
    assert_int_equal(event->callsite, before.callsite);
    assert_int_equal(event->cause, before.cause);
    return code;
}

static int take_tail(void *context, const struct store_ring_position *position)
{
    *(uint64_t *)context = position->tail;
    return 0;
}

TEST_WITH(test_killed_collector_is_continued, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    pid_t child = fork();
    if (child == 0) {
        child_record(fixture);
        _exit(1);
    }
    int status;
    uint64_t tail = 0;
    int64_t value = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    OK(store_open(fixture->path, STORE_RESUME, &fixture->store, &fixture->message));
    OK(derive_open(fixture->scratch, &fixture->derive, &fixture->message));
    OK(store_each_event(fixture->store, derive_again, fixture, &fixture->message));
    OK(store_each_ring_position(fixture->store, take_tail, &tail, &fixture->message));
    assert_int_equal(tail, 50000);
    OK(store_meta_get_integer(fixture->store, "committed", &value));
    assert_int_equal(store_meta_get_integer(fixture->store, "uncommitted", &value), VARVE_ERROR_NOT_FOUND);
    append(fixture, 50001, 60000);
    OK(derive_check(fixture->derive, &fixture->message));
    OK(finish(fixture));
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 60000);
    assert_int_equal(look(fixture, "SELECT count(*) FROM allocation"), 40000);
    assert_int_equal(look(fixture, integrity), 0);
}

TEST_WITH(test_finished_database_is_one_file, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    open_new(fixture);
    OK(store_callsite_origin(fixture->store, 1, 1, 1, 1));
    append(fixture, 1, 9000);
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 50000};
    OK(store_commit(fixture->store, &position, 1, &fixture->message));
    assert_int_equal(store_finish(fixture->store, NULL, NULL, &fixture->message), VARVE_ERROR_INVALID);
    OK(finish(fixture));
    store_close(fixture->store);
    fixture->store = NULL;
    char name[160];
    snprintf(name, sizeof(name), "%s-wal", fixture->path);
    assert_int_not_equal(access(name, F_OK), 0);
    snprintf(name, sizeof(name), "%s-shm", fixture->path);
    assert_int_not_equal(access(name, F_OK), 0);
    assert_int_equal(chmod(fixture->path, 0444), 0);
    assert_int_equal(chmod(fixture->directory, 0555), 0);
    snprintf(name, sizeof(name), "file:%s?mode=ro&immutable=0", fixture->path);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(name, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM total", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(look(fixture, "SELECT value FROM meta WHERE key = 'complete'"), 1);
    assert_int_equal(look(fixture, "SELECT (SELECT count(*) FROM ring_position) + count(*) FROM callsite_origin"), 0);
    assert_int_equal(look(fixture, "PRAGMA application_id"), 0x56525645);
    assert_int_equal(look(fixture, "PRAGMA user_version"), VARVE_DATABASE_SCHEMA_VERSION);
    assert_int_equal(look(fixture, "PRAGMA page_size"), 16384);
    assert_int_equal(look(fixture, "SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%batch%'"), 0);
    chmod(fixture->directory, 0755);
}

/* A collector that died between the last commit and the folding of the log. */
TEST_WITH(test_complete_database_is_folded, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    open_new(fixture);
    append(fixture, 1, 90);
    OK(finish(fixture));
    store_close(fixture->store);
    fixture->store = NULL;
    OK(store_open(fixture->path, STORE_RESUME, &fixture->store, &fixture->message));
    assert_true(store_is_complete(fixture->store));
    OK(store_finish(fixture->store, NULL, NULL, &fixture->message));
    store_close(fixture->store);
    fixture->store = NULL;
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 90);
    assert_int_equal(look(fixture, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'"), 1);
}

/* Nobody commits: at last an event is taken with a warning, and none after it. */
TEST_WITH(test_events_wait_for_a_commit, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    uint64_t seq = 0;
    int code = VARVE_OK;
    open_new(fixture);
    while (code == VARVE_OK) {
        struct event event = heap_event(++seq);
        code = store_append(fixture->store, &event, &fixture->message);
    }
    assert_int_equal(code, VARVE_ERROR_FULL);
    assert_true(seq > 1000000);
    assert_int_equal(store_pending(fixture->store), seq);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    struct event event = heap_event(seq + 1);
    OK(store_append(fixture->store, &event, &fixture->message));
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), seq + 1);
    assert_int_equal(look(fixture, integrity), 0);
}

/* The budget of the design is 100 bytes an event with all that is derived; more than half of it is for allocations
 * and stacks. */
TEST_WITH(test_bytes_per_event, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const uint64_t count = 150000;
    const struct event event = heap_event(1);
    const struct store_thread thread = {
        .id = event.thread_id, .process_id = event.process_id, .pid = event.pid, .tid = event.tid, .end_ns = -1};
    open_new(fixture);
    OK(store_thread(fixture->store, &thread));
    append(fixture, 1, count);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    assert_true(look(fixture, "SELECT sum(pgsize) FROM dbstat WHERE name = 'event_row'") > 0);
    assert_true(look(fixture, "SELECT sum(pgsize) FROM dbstat WHERE name = 'event_row'") <= (int64_t)(45 * count));
    OK(finish(fixture));
    struct stat status;
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_true((uint64_t)status.st_size <= 100 * count);
}
