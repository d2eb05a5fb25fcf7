/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: every value comes back as it went in; a full disk rolls back, keeps what was to be written and
 * succeeds when there is space again; a killed collector leaves a database that can be continued; files that
 * are not ours are refused and left as they are; the finished database is one file.
 * Costs: 1 s
 */
#include "support/store.h"
#include "trace/error.h"
#include "trace/event_names.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/resume.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
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
}

static void open_again(struct fixture *fixture)
{
    store_close(fixture->store);
    fixture->store = NULL;
    OK(store_open(fixture->path, STORE_RESUME, &fixture->store, &fixture->message));
}

static struct event heap_event(uint64_t seq)
{
    bool is_alloc = seq % 2 == 1;
    return (struct event){.seq = seq,
                          .ts_ns = (int64_t)seq * 137,
                          .process_id = 1,
                          .thread_id = 1,
                          .pid = 4321,
                          .tid = 4322,
                          .kind = is_alloc ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE,
                          .cause = is_alloc ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE,
                          .addr = 0x55d0c0de0000 + (seq - 1) / 2 * 32,
                          .size = is_alloc ? 24 + seq % 900 : 0,
                          .callsite = is_alloc ? 1 + (uint32_t)(seq % 300) : 0};
}

static void append_heap(struct fixture *fixture, uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        struct event event = heap_event(seq);
        OK(store_append(fixture->store, &event, &fixture->message));
    }
}

/* ---- what goes in comes out ---- */

/* Numbers at every border of SQLite's integer sizes. */
static uint64_t border(uint64_t i)
{
    static const unsigned bits[] = {0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62};
    uint64_t base = UINT64_C(1) << bits[i / 3 % 13];
    return base + i % 3 - 1;
}

static struct event odd_event(uint64_t seq)
{
    return (struct event){.seq = seq,
                          .ts_ns = (int64_t)border(seq),
                          .process_id = 1 + seq % 2,
                          .thread_id = 1 + seq % 2,
                          .pid = (int32_t)(border(seq + 5) & INT32_MAX),
                          .tid = (int32_t)(border(seq + 7) & INT32_MAX),
                          .kind = (uint8_t)(seq % 60),
                          .cause = (uint8_t)(seq % 256),
                          .device = (uint8_t)(seq % 250),
                          .flags = (uint8_t)(seq % 8),
                          .pool = (uint16_t)border(seq + 1),
                          .stream = (uint16_t)border(seq + 2),
                          .callsite = (uint32_t)border(seq + 3),
                          .dev_seq = border(seq + 4),
                          .id = border(seq + 6),
                          .addr = seq % 5 == 0 ? ~border(seq) : border(seq + 8),
                          .size = border(seq + 9),
                          .requested = border(seq + 10),
                          .arg = border(seq + 11),
                          .ring_seq = seq % 4 == 0   ? 0
                                      : seq % 4 == 1 ? seq
                                                     : border(seq + 12)};
}

/* The thread of the odd event `seq`, as its row has it when the first 5000 events are there. */
static struct store_thread odd_thread(uint64_t seq)
{
    const struct event event = odd_event(seq);
    return (struct store_thread){
        .id = event.thread_id, .process_id = event.process_id, .pid = event.pid, .tid = event.tid, .end_ns = -1};
}

/* Field by field: the struct has padding. */
static void expect_event(const struct event *event, const struct event *wanted)
{
    assert_int_equal(event->seq, wanted->seq);
    assert_int_equal(event->ts_ns, wanted->ts_ns);
    assert_int_equal(event->process_id, wanted->process_id);
    assert_int_equal(event->thread_id, wanted->thread_id);
    assert_int_equal(event->pid, wanted->pid);
    assert_int_equal(event->tid, wanted->tid);
    assert_int_equal(event->kind, wanted->kind);
    assert_int_equal(event->cause, wanted->cause);
    assert_int_equal(event->device, wanted->device);
    assert_int_equal(event->flags, wanted->flags);
    assert_int_equal(event->pool, wanted->pool);
    assert_int_equal(event->stream, wanted->stream);
    assert_int_equal(event->callsite, wanted->callsite);
    assert_int_equal(event->dev_seq, wanted->dev_seq);
    assert_int_equal(event->id, wanted->id);
    assert_int_equal(event->addr, wanted->addr);
    assert_int_equal(event->size, wanted->size);
    assert_int_equal(event->requested, wanted->requested);
    assert_int_equal(event->arg, wanted->arg);
    assert_int_equal(event->ring_seq, wanted->ring_seq);
}

struct reader {
    uint64_t seen;
};

static int take_odd(void *context, struct event *event)
{
    struct reader *reader = context;
    struct event wanted = odd_event(++reader->seen);
    const struct event_kind_info *info = event_kind_info(wanted.kind);
    bool has_device = info != NULL && strcmp(info->group, "heap") != 0 && strcmp(info->group, "process") != 0;
    /* What a kind does not use is NULL in the database, 0 here. */
    wanted.device = has_device ? wanted.device : 0;
    wanted.dev_seq = has_device ? wanted.dev_seq : 0;
    wanted.stream = has_device ? wanted.stream : 0;
    wanted.pool = has_device ? wanted.pool : 0;
    wanted.addr = info != NULL && info->addr[0] ? wanted.addr : 0;
    wanted.size = info != NULL && info->size[0] ? wanted.size : 0;
    wanted.requested = info != NULL && info->requested[0] ? wanted.requested : 0;
    wanted.arg = info != NULL && info->arg[0] ? wanted.arg : 0;
    wanted.callsite = info != NULL && strcmp(info->group, "process") != 0 ? wanted.callsite : 0;
    expect_event(event, &wanted);
    return 0;
}

/* The same by way of the view, through a connection of its own. */
static void expect_view(const struct fixture *fixture, struct reader *reader)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(fixture->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_stmt *query;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT * FROM event ORDER BY seq", -1, &query, NULL), SQLITE_OK);
    while (sqlite3_step(query) == SQLITE_ROW) {
        uint64_t values[19];
        for (int i = 0; i < 19; i++) {
            values[i] = (uint64_t)sqlite3_column_int64(query, i);
        }
        struct event event = {.seq = values[0],
                              .ts_ns = (int64_t)values[1],
                              .pid = (int32_t)values[2],
                              .tid = (int32_t)values[3],
                              .device = (uint8_t)values[4],
                              .dev_seq = values[5],
                              .kind = (uint8_t)values[6],
                              .stream = (uint16_t)values[7],
                              .pool = (uint16_t)values[8],
                              .id = values[9],
                              .addr = values[10],
                              .size = values[11],
                              .requested = values[12],
                              .arg = values[13],
                              .cause = (uint8_t)values[14],
                              .callsite = (uint32_t)values[15],
                              .thread_id = (uint32_t)values[16],
                              .process_id = (uint32_t)values[16], /* of these events the same number */
                              .flags = (uint8_t)values[17],
                              .ring_seq = values[18]};
        take_odd(reader, &event);
    }
    sqlite3_finalize(query);
    sqlite3_close(db);
}

TEST_WITH(test_every_value_comes_back, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const uint64_t count = 20000; /* several leaves of the batch, several commits */
    const struct store_ring_position positions[] = {{.thread_id = 1, .process_id = 1, .ring = 3, .tail = 5},
                                                    {.thread_id = 2, .process_id = 2, .spill_tail = 9}};
    open_new(fixture);
    for (uint64_t seq = 1; seq <= count; seq++) {
        struct event event = odd_event(seq);
        OK(store_append(fixture->store, &event, &fixture->message));
        if (seq == 1 || seq == 2 || seq == 9000) {
            OK(store_commit(fixture->store, positions, 2, &fixture->message));
            assert_int_equal(store_pending(fixture->store), 0);
        }
        if (seq == 5000) {
            /* From here on some events are of the thread that the table names, others not. */
            const struct store_thread threads[] = {odd_thread(1), odd_thread(2)};
            OK(store_thread(fixture->store, &threads[0]));
            OK(store_thread(fixture->store, &threads[1]));
        }
    }
    assert_int_equal(store_pending(fixture->store), count - 9000);
    OK(store_commit(fixture->store, positions, 2, &fixture->message));
    struct reader reader = {0};
    OK(store_each_event(fixture->store, take_odd, &reader, &fixture->message));
    assert_int_equal(reader.seen, count);
    reader.seen = 0;
    expect_view(fixture, &reader);
    assert_int_equal(reader.seen, count);
    assert_true(look(fixture, "SELECT count(*) FROM event_row WHERE pid IS NULL") > 100);
    assert_true(look(fixture, "SELECT count(*) FROM event_row WHERE seq > 5000 AND pid IS NOT NULL") > 100);
    assert_int_equal(look(fixture, "SELECT count(*) FROM event WHERE id = 0"), 0);
    assert_int_equal(look(fixture, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
}

TEST_WITH(test_sizes_beyond_63_bits, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event event = heap_event(1);
    event.size = UINT64_MAX;
    event.requested = UINT64_MAX;
    event.flags = VARVE_FLAG_FAILED;
    open_new(fixture);
    OK(store_append(fixture->store, &event, &fixture->message));
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    assert_true(look(fixture, "SELECT size FROM event") == INT64_MAX);
}

static int take_position(void *context, const struct store_ring_position *position)
{
    *(uint64_t *)context = *(uint64_t *)context * 1000 + position->thread_id * 100 + position->process_id * 50 +
                           position->ring + position->tail + position->spill_tail;
    return 0;
}

static int take_anchor(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns)
{
    *(uint64_t *)context = ticks + (uint64_t)mono_ns + (uint64_t)real_ns;
    return 0;
}

static int take_origin(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t callsite, uint32_t count)
{
    *(uint64_t *)context = callsite_id * 1000 + process_id * 100 + callsite * 10 + count;
    return 7;
}

TEST_WITH(test_small_tables, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const struct store_process process = {.id = 2,
                                          .pid = 10,
                                          .parent_pid = 9,
                                          .parent_id = 1,
                                          .rank = -1,
                                          .executable = "/bin/true",
                                          .start_ns = 0,
                                          .end_ns = -1,
                                          .exit_status = -1};
    const struct store_thread thread = {.id = 4,
                                        .process_id = 2,
                                        .ring = 1,
                                        .pid = 10,
                                        .tid = 11,
                                        .name = "main",
                                        .end_ns = -1,
                                        .emitted = 100,
                                        .stored = 90,
                                        .lost = 10};
    const struct store_ring_position position = {
        .thread_id = 4, .process_id = 2, .ring = 1, .tail = 30, .spill_tail = 2};
    int64_t value = 0;
    uint64_t sum = 0;
    open_new(fixture);
    struct store *store = fixture->store;
    OK(store_process(store, &process));
    OK(store_thread(store, &thread));
    OK(store_stat(store, "lost", 4, "data_loss", "ring", 9));
    OK(store_stat(store, "lost", 4, "data_loss", "ring", 10));
    OK(store_clock_anchor(store, 1000, 200, 30));
    OK(store_callsite_origin(store, 3, 2, 1, 4));
    OK(store_meta_text(store, "command", "true"));
    OK(store_meta_integer(store, "trace_id", -5));
    OK(store_meta_integer(store, "trace_id", -6));
    OK(store_commit(store, &position, 1, &fixture->message));
    open_again(fixture);
    store = fixture->store;
    OK(store_meta_get_integer(store, "trace_id", &value));
    assert_int_equal(value, -6);
    assert_int_equal(store_meta_get_integer(store, "nothing", &value), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(store_meta_get_integer(store, "command", &value), VARVE_ERROR_NOT_FOUND);
    OK(store_each_ring_position(store, take_position, &sum, &fixture->message));
    assert_int_equal(sum, 400 + 100 + 1 + 30 + 2);
    OK(store_each_clock_anchor(store, take_anchor, &sum, &fixture->message));
    assert_int_equal(sum, 1230);
    assert_int_equal(store_each_callsite_origin(store, take_origin, &sum, &fixture->message), 7);
    assert_int_equal(sum, 3214);
    assert_int_equal(look(fixture, "SELECT rank IS NULL AND end_ns IS NULL AND exit_status IS NULL AND start_ns = 0"
                                   " AND executable = '/bin/true' AND command_line IS NULL FROM process"),
                     1);
    assert_int_equal(look(fixture, "SELECT emitted - stored - lost FROM thread WHERE end_ns IS NULL"), 0);
    assert_int_equal(look(fixture, "SELECT sum(value) FROM data_loss"), 10);
}

TEST_WITH(test_symbols_are_shared, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const struct store_symbol symbols[] = {
        {.function = "f", .file = "a.c", .module = "m", .line = 1},
        {.function = "f", .file = "a.c", .module = "m", .line = 2},
        {.function = "f", .file = "a.c", .module = NULL, .line = 1},
        {.function = "f", .file = "a.c", .module = "", .line = 1},
        {.function = "fa", .file = ".c", .module = "m", .line = 1},
        {.function = "f", .file = "a.c", .module = "m", .line = 1, .is_python = true},
        {.function = "f", .file = "a.c", .module = "m", .line = 1, .is_inlined = true},
        {.function = NULL},
    };
    enum { COUNT = sizeof(symbols) / sizeof(symbols[0]) };
    open_new(fixture);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(store_symbol(fixture->store, &symbols[i]), i + 1);
        }
    }
    char name[32];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "g%u", i % 2500);
        const struct store_symbol symbol = {.function = name};
        assert_int_equal(store_symbol(fixture->store, &symbol), COUNT + 1 + i % 2500);
    }
    OK(store_stack_node(fixture->store, 1, 0, 6, -1));
    OK(store_stack_node(fixture->store, 2, 1, 1, 0x10));
    assert_int_equal(store_stack_node(fixture->store, 3, 3, 1, 0x10), VARVE_ERROR_INVALID);
    OK(store_callsite(fixture->store, 1, 2, 2, 1, 1));
    OK(store_callsite(fixture->store, 2, 0, 0, 0, 0));
    OK(store_module(fixture->store, 1, "m", NULL));
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    assert_int_equal(look(fixture, "SELECT count(*) FROM symbol"), COUNT + 2500);
    assert_int_equal(
        look(fixture, "SELECT group_concat(line || is_python || coalesce(pc, 'x')) = '1016,11x' FROM frame"), 1);
    assert_int_equal(look(fixture, "SELECT symbol_id IS NULL AND node_id IS NULL FROM callsite WHERE id = 2"), 1);
}

/* ---- who may open what ---- */

static void expect_refusal(struct fixture *fixture, const char *path, enum store_mode mode, int code)
{
    struct store *store = NULL;
    fixture->message.text[0] = '\0';
    assert_int_equal(store_open(path, mode, &store, &fixture->message), code);
    assert_non_null(strstr(fixture->message.text, path));
    assert_null(strchr(fixture->message.text, '\n'));
}

TEST_WITH(test_second_writer_is_refused, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    open_new(fixture);
    pid_t child = fork();
    if (child == 0) {
        struct store *store;
        int create = store_open(fixture->path, STORE_CREATE, &store, &fixture->message);
        int resume = store_open(fixture->path, STORE_RESUME, &store, &fixture->message);
        _exit(create == VARVE_ERROR_BUSY && resume == VARVE_ERROR_BUSY ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    append_heap(fixture, 1, 10);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    store_close(fixture->store);
    fixture->store = NULL;
    expect_refusal(fixture, fixture->path, STORE_CREATE, VARVE_ERROR_INVALID);
    assert_int_equal(look(fixture, "SELECT count(*) FROM event"), 10);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

TEST_WITH(test_foreign_files_are_left_alone, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    char missing[160];
    snprintf(missing, sizeof(missing), "%s/nowhere/trace.db", fixture->directory);
    expect_refusal(fixture, missing, STORE_CREATE, VARVE_ERROR_NOT_FOUND);
    expect_refusal(fixture, missing, STORE_RESUME, VARVE_ERROR_NOT_FOUND);
    run_sql(fixture->path, "CREATE TABLE notes(text); INSERT INTO notes VALUES ('mine')");
    struct stat before;
    assert_int_equal(stat(fixture->path, &before), 0);
    expect_refusal(fixture, fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
    expect_refusal(fixture, fixture->path, STORE_CREATE, VARVE_ERROR_INVALID);
    struct stat after;
    assert_int_equal(stat(fixture->path, &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
    assert_int_equal(look(fixture, "SELECT count(*) FROM notes"), 1);
    FILE *file = fopen(fixture->path, "w");
    fputs("this is no database at all, but long enough to look like the header of one: 100 bytes and more "
          "......",
          file);
    fclose(file);
    expect_refusal(fixture, fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
}

TEST_WITH(test_versions_and_truncation, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    open_new(fixture);
    append_heap(fixture, 1, 5000);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
    store_close(fixture->store);
    fixture->store = NULL;
    run_sql(fixture->path, "PRAGMA user_version = 99");
    expect_refusal(fixture, fixture->path, STORE_RESUME, VARVE_ERROR_VERSION);
    run_sql(fixture->path, "PRAGMA user_version = 3");
    assert_int_equal(truncate(fixture->path, 16384 * 3 / 2), 0);
    expect_refusal(fixture, fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
    /* Killed between the creation of the file and that of its tables: nothing is lost, so go on. */
    assert_int_equal(truncate(fixture->path, 0), 0);
    open_again(fixture);
    append_heap(fixture, 1, 10);
    OK(store_commit(fixture->store, NULL, 0, &fixture->message));
}
