/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: every value comes back as it went in; files that are not ours are refused and left as they are; full
 * disks at every stage (a limit on file sizes stands for them, which fails the same writes) roll back, keep what was to
 * be written and succeed when there is space again; a collector killed in the middle of everything leaves a database
 * that can be continued; and the end: one file that opens read-only.
 * Costs: 6 s
 */
#include "support/command.h"
#include "support/query.h"
#include "trace/event_names.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"
#include "base/error.h"
#include "trace/writer.h"

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

/* ---- a folder with a database in the making for each test, and what others see of it ---- */

static struct fixture {
    char directory[64];
    char path[96];
    char scratch[96];
    struct store *store;   /* NULL: not open */
    struct derive *derive; /* likewise */
    struct rlimit unlimited;
    struct varve_message message;
} * fixture;

static int fixture_begin(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    strcpy(fixture->directory, "/tmp/test_store.XXXXXX");
    signal(SIGXFSZ, SIG_IGN);
    if (mkdtemp(fixture->directory) == NULL || getrlimit(RLIMIT_FSIZE, &fixture->unlimited) != 0) {
        return -1;
    }
    snprintf(fixture->path, sizeof(fixture->path), "%s/trace.db", fixture->directory);
    snprintf(fixture->scratch, sizeof(fixture->scratch), "%s/allocations", fixture->directory);
    return 0;
}

static void close_store(void)
{
    store_close(fixture->store);
    fixture->store = NULL;
}

static int fixture_end(void **state)
{
    (void)state;
    setrlimit(RLIMIT_FSIZE, &fixture->unlimited);
    close_store();
    derive_close(fixture->derive);
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", fixture->directory);
    free(fixture);
    return system(command);
}

#define STORE_TEST(name) TEST_WITH(name, fixture_begin, fixture_end)

#define OK(call)                                                                           \
    do {                                                                                   \
        int ok_code = (call);                                                              \
        if (ok_code != VARVE_OK) {                                                         \
            fail_msg("%s: %s: %s", #call, varve_strerror(ok_code), fixture->message.text); \
        }                                                                                  \
    } while (0)

/* What another process sees: a query with one integer, over a connection of its own. */
static int64_t look(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(fixture->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    int64_t value = query_integer(db, sql);
    sqlite3_close(db);
    return value;
}

static void open_as(enum store_mode mode)
{
    close_store();
    OK(store_open(fixture->path, mode, &fixture->store, &fixture->message));
    if (fixture->derive == NULL) {
        OK(derive_open(fixture->scratch, &fixture->derive, &fixture->message));
    }
}

static int commit_now(struct store *store, const struct store_ring_position *positions, size_t count)
{
    int error = store_commit(store, positions, count, &fixture->message);
    return error == VARVE_OK ? store_wait(store, &fixture->message) : error;
}

static void commit(void)
{
    OK(commit_now(fixture->store, NULL, 0));
}

/* The last steps, after the stacks. */
static int complete(void)
{
    int error = derive_finish(fixture->derive, fixture->store, NULL, NULL, &fixture->message);
    return error == VARVE_OK ? store_finish(fixture->store, NULL, NULL, &fixture->message) : error;
}

static void expect_integrity(void)
{
    assert_int_equal(look("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
}

static struct event event_of(uint64_t seq, enum varve_kind kind)
{
    struct event event = {.process_id = 1, .thread_id = 1, .pid = 4321, .tid = 4322};
    event.seq = seq;
    event.ts_ns = (int64_t)seq * 137;
    event.kind = (uint8_t)kind;
    event.addr = 0x55d0c0de0000 + seq * 32;
    return event;
}

/* Two allocations, then a free of the first: every third block stays. */
static struct event heap_event(uint64_t seq)
{
    bool is_alloc = seq % 3 != 0;
    struct event event = event_of(seq, is_alloc ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE);
    event.cause = is_alloc ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE;
    event.addr -= is_alloc ? 0 : 64;
    event.size = is_alloc ? 24 + seq % 900 : 0;
    event.callsite = is_alloc ? 1 + (uint32_t)(seq % 300) : 0;
    event.ring_seq = seq;
    return event;
}

static void append(uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        struct event event = heap_event(seq);
        OK(derive_event(fixture->derive, &event, &fixture->message));
        OK(store_append(fixture->store, fixture->derive, &event, &fixture->message));
    }
}

static void limit_files(uint64_t bytes)
{
    struct rlimit limit = fixture->unlimited;
    limit.rlim_cur = bytes != 0 ? bytes : fixture->unlimited.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* ---- what goes in comes out ---- */

/* Numbers at every border of SQLite's integer sizes. */
static uint64_t border(uint64_t i)
{
    static const unsigned bits[] = {0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62};
    uint64_t base = UINT64_C(1) << bits[i / 3 % 13];
    return base + i % 3 - 1;
}

/* Of an event, in the order of `in_view`. */
#define EVENT_FIELDS(FIELD)                                                                                           \
    FIELD(seq), FIELD(ts_ns), FIELD(process_id), FIELD(thread_id), FIELD(pid), FIELD(tid), FIELD(kind), FIELD(cause), \
        FIELD(device), FIELD(flags), FIELD(pool), FIELD(stream), FIELD(callsite), FIELD(dev_seq), FIELD(id),          \
        FIELD(addr), FIELD(size), FIELD(requested), FIELD(arg), FIELD(ring_seq)

static struct event odd_event(uint64_t seq)
{
    struct event event = {0};
    uint64_t at = seq;
#define FIELD(name) event.name = (__typeof__(event.name))border(at++)
    EVENT_FIELDS(FIELD);
#undef FIELD
    event.seq = seq;
    event.process_id = event.thread_id = 1 + seq % 2;
    event.pid &= INT32_MAX;
    event.tid &= INT32_MAX;
    event.kind = (uint8_t)(seq % 60);
    event.cause = (uint8_t)(seq % 256);
    event.device = (uint8_t)(seq % 250);
    event.flags = (uint8_t)(seq % 8);
    event.id &= UINT64_C(0xffffffffffff); /* a record has 48 bits of each */
    event.dev_seq &= UINT64_C(0xffffffffffff);
    event.addr = seq % 5 == 0 ? ~event.addr : event.addr;
    event.ring_seq = seq % 4 == 0 ? 0 : seq % 4 == 1 ? seq : event.ring_seq;
    return event;
}

/* The thread of the odd event `seq`, as its row has it when the first 5000 events are there. */
static struct store_thread odd_thread(uint64_t seq)
{
    const struct event event = odd_event(seq);
    return (struct store_thread){
        .id = event.thread_id, .process_id = event.process_id, .pid = event.pid, .tid = event.tid, .end_ns = -1};
}

/* The same of the view, whose events have a thread and a process of the same number. */
static const char in_view[] = "SELECT seq, ts_ns, thread_id, thread_id, pid, tid, kind, cause, device, flags, pool, "
                              "stream, callsite_id, dev_seq, id, addr, size, requested, arg, ring_seq FROM event "
                              "ORDER BY seq";

static void expect_event(const struct event *event, const struct event *wanted)
{
#define FIELD(name) assert_int_equal(event->name, wanted->name)
    EVENT_FIELDS(FIELD);
#undef FIELD
}

/* Of the log, where all of it is. */
static int take_logged(void *context, struct event *event, bool is_held)
{
    uint64_t *seen = context;
    const struct event wanted = odd_event(++*seen);
    assert_false(is_held);
    expect_event(event, &wanted);
    return 0;
}

static int take_odd(void *context, struct event *event)
{
    uint64_t *seen = context;
    struct event wanted = odd_event(++*seen);
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
static uint64_t expect_view(void)
{
    uint64_t seen = 0;
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(fixture->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_stmt *query;
    assert_int_equal(sqlite3_prepare_v2(db, in_view, -1, &query, NULL), SQLITE_OK);
    while (sqlite3_step(query) == SQLITE_ROW) {
        struct event event = {0};
        int column = 0;
#define FIELD(name) event.name = (__typeof__(event.name))sqlite3_column_int64(query, column++)
        EVENT_FIELDS(FIELD);
#undef FIELD
        take_odd(&seen, &event);
    }
    sqlite3_finalize(query);
    sqlite3_close(db);
    return seen;
}

STORE_TEST(test_every_value_comes_back)
{
    const uint64_t count = 20000; /* several leaves of the batch, several commits */
    const struct store_ring_position positions[] = {{.thread_id = 1, .process_id = 1, .ring = 3, .tail = 5},
                                                    {.thread_id = 2, .process_id = 2, .spill_tail = 9}};
    open_as(STORE_CREATE);
    for (uint64_t seq = 1; seq <= count; seq++) {
        struct event event = odd_event(seq);
        OK(store_append(fixture->store, fixture->derive, &event, &fixture->message));
        if (seq == 1 || seq == 2 || seq == 9000) {
            OK(commit_now(fixture->store, positions, 2));
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
    OK(commit_now(fixture->store, positions, 2));
    uint64_t seen = 0;
    OK(store_each_event(fixture->store, take_logged, &seen, &fixture->message));
    assert_int_equal(seen, count);
    assert_int_equal(look("SELECT count(*) FROM event"), 0);
    OK(complete());
    assert_int_equal(expect_view(), count);
    assert_true(look("SELECT count(*) FROM event_row WHERE pid IS NULL") > 100);
    assert_true(look("SELECT count(*) FROM event_row WHERE seq > 5000 AND pid IS NOT NULL") > 100);
    assert_int_equal(look("SELECT count(*) FROM event WHERE id = 0"), 0);
    expect_integrity();
}

STORE_TEST(test_sizes_beyond_63_bits)
{
    struct event event = heap_event(1);
    event.size = UINT64_MAX;
    event.requested = UINT64_MAX;
    event.flags = VARVE_FLAG_FAILED;
    open_as(STORE_CREATE);
    OK(store_append(fixture->store, fixture->derive, &event, &fixture->message));
    OK(complete());
    assert_true(look("SELECT size FROM event") == INT64_MAX);
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

STORE_TEST(test_small_tables)
{
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
    open_as(STORE_CREATE);
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
    OK(commit_now(store, &position, 1));
    open_as(STORE_RESUME);
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
    assert_int_equal(look("SELECT rank IS NULL AND end_ns IS NULL AND exit_status IS NULL AND start_ns = 0"
                          " AND executable = '/bin/true' AND command_line IS NULL FROM process"),
                     1);
    assert_int_equal(look("SELECT emitted - stored - lost FROM thread WHERE end_ns IS NULL"), 0);
    assert_int_equal(look("SELECT sum(value) FROM data_loss"), 10);
}

STORE_TEST(test_symbols_are_shared)
{
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
    open_as(STORE_CREATE);
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
    OK(store_stack_frame(fixture->store, 1, 6, -1));
    OK(store_stack_frame(fixture->store, 2, 1, 0x10));
    OK(store_stack_node(fixture->store, 1, 0, 1));
    OK(store_stack_node(fixture->store, 2, 1, 2));
    assert_int_equal(store_stack_node(fixture->store, 3, 3, 2), VARVE_ERROR_INVALID);
    OK(store_callsite(fixture->store, 1, 2, 2, 1, 1));
    OK(store_callsite(fixture->store, 2, 0, 0, 0, 0));
    OK(store_module(fixture->store, 1, "m", NULL));
    OK(complete());
    assert_int_equal(look("SELECT count(*) FROM symbol"), COUNT + 2500);
    assert_int_equal(look("SELECT group_concat(line || is_python || coalesce(pc, 'x')) = '1016,11x' FROM frame"), 1);
    assert_int_equal(look("SELECT symbol_id IS NULL AND node_id IS NULL FROM callsite WHERE id = 2"), 1);
}

/* ---- who may open what ---- */

static void expect_refusal(const char *path, enum store_mode mode, int code)
{
    struct store *store = NULL;
    fixture->message.text[0] = '\0';
    assert_int_equal(store_open(path, mode, &store, &fixture->message), code);
    assert_non_null(strstr(fixture->message.text, path));
    assert_null(strchr(fixture->message.text, '\n'));
}

STORE_TEST(test_second_writer_is_refused)
{
    open_as(STORE_CREATE);
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
    append(1, 10);
    commit();
    close_store();
    expect_refusal(fixture->path, STORE_CREATE, VARVE_ERROR_INVALID);
    assert_int_equal(look("SELECT value FROM meta WHERE key = 'events_taken'"), 10);
}

STORE_TEST(test_foreign_files_are_left_alone)
{
    char missing[160];
    snprintf(missing, sizeof(missing), "%s/nowhere/trace.db", fixture->directory);
    expect_refusal(missing, STORE_CREATE, VARVE_ERROR_NOT_FOUND);
    expect_refusal(missing, STORE_RESUME, VARVE_ERROR_NOT_FOUND);
    sql_run(fixture->path, "CREATE TABLE notes(text); INSERT INTO notes VALUES ('mine')");
    struct stat before;
    assert_int_equal(stat(fixture->path, &before), 0);
    expect_refusal(fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
    expect_refusal(fixture->path, STORE_CREATE, VARVE_ERROR_INVALID);
    struct stat after;
    assert_int_equal(stat(fixture->path, &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
    assert_int_equal(look("SELECT count(*) FROM notes"), 1);
    FILE *file = fopen(fixture->path, "w");
    fputs("this is no database at all, but long enough to look like the header of one: 100 bytes and more "
          "......",
          file);
    fclose(file);
    expect_refusal(fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
}

STORE_TEST(test_versions_and_truncation)
{
    open_as(STORE_CREATE);
    append(1, 5000);
    commit();
    close_store();
    /* A column that one of the two programs does not know, whatever the table. */
    sql_run(fixture->path, "ALTER TABLE remat_event ADD COLUMN later INTEGER");
    expect_refusal(fixture->path, STORE_RESUME, VARVE_ERROR_VERSION);
    sql_run(fixture->path, "ALTER TABLE remat_event DROP COLUMN later");
    sql_run(fixture->path, "PRAGMA user_version = 99");
    expect_refusal(fixture->path, STORE_RESUME, VARVE_ERROR_VERSION);
    sql_run(fixture->path, "PRAGMA user_version = 3");
    assert_int_equal(truncate(fixture->path, 16384 * 3 / 2), 0);
    expect_refusal(fixture->path, STORE_RESUME, VARVE_ERROR_FORMAT);
    /* Killed between the creation of the file and that of its tables: nothing is lost, so go on. */
    assert_int_equal(truncate(fixture->path, 0), 0);
    open_as(STORE_RESUME);
    append(1, 10);
    commit();
}

/* ---- trouble ---- */

static int finish(void)
{
    const struct store_symbol symbol = {.function = "main", .file = "a.c", .line = 3};
    int code = store_callsites_begin(fixture->store, &fixture->message);
    uint32_t id = code == VARVE_OK ? store_symbol(fixture->store, &symbol) : 0;
    if (code == VARVE_OK) {
        code = id != 0 ? store_callsite(fixture->store, 1, 0, 1, id, id) : VARVE_ERROR_FULL;
    }
    return code == VARVE_OK ? complete() : code;
}

STORE_TEST(test_commit_after_a_full_disk)
{
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 1000};
    const struct store_ring_position early = {.thread_id = 1, .process_id = 1, .tail = 60000};
    const struct store_ring_position later = {.thread_id = 1, .process_id = 1, .tail = 61000};
    open_as(STORE_CREATE);
    append(1, 1000);
    OK(commit_now(fixture->store, &position, 1));
    append(1001, 60000);
    OK(store_stat(fixture->store, "before", 1, "info", "test", 1));
    limit_files(1 << 20);
    assert_int_equal(commit_now(fixture->store, &early, 1), VARVE_ERROR_FULL);
    assert_non_null(strstr(fixture->message.text, fixture->path));
    assert_int_equal(store_wait(fixture->store, &fixture->message), VARVE_ERROR_FULL);
    append(60001, 61000);
    assert_int_equal(store_commit(fixture->store, &later, 1, &fixture->message), VARVE_ERROR_FULL);
    assert_int_equal(store_pending(fixture->store), 1000);
    limit_files(0);
    /* All or nothing: others see the first commit only. */
    assert_int_equal(look("SELECT value FROM meta WHERE key = 'events_taken'"), 1000);
    assert_int_equal(look("SELECT tail FROM ring_position"), 1000);
    assert_int_equal(look("SELECT count(*) FROM stats"), 0);
    OK(store_meta_text(fixture->store, "after", "x"));
    OK(commit_now(fixture->store, &later, 1));
    assert_int_equal(look("SELECT value FROM meta WHERE key = 'events_taken'"), 61000);
    assert_int_equal(look("SELECT tail FROM ring_position"), 61000);
    assert_int_equal(look("SELECT count(*) FROM stats"), 1);
    assert_int_equal(look("SELECT count(*) FROM meta WHERE key = 'after'"), 1);
    OK(finish());
    assert_int_equal(look("SELECT count(*) FROM event"), 61000);
    expect_integrity();
}

STORE_TEST(test_creation_on_a_full_disk)
{
    limit_files(20000);
    assert_int_equal(store_open(fixture->path, STORE_CREATE, &fixture->store, &fixture->message), VARVE_ERROR_FULL);
    limit_files(0);
    assert_null(fixture->store);
    assert_int_not_equal(access(fixture->path, F_OK), 0);
}

/* The limit is moved up step by step, so that each stage of the end fails once. */
static void finish_on_full_disks(uint64_t step)
{
    int failures = 0;
    int code = VARVE_ERROR_FULL;
    for (uint64_t limit = 1 << 20; code != VARVE_OK; limit += step) {
        limit_files(limit);
        code = finish();
        limit_files(0);
        if (code != VARVE_OK) {
            assert_int_equal(code, VARVE_ERROR_FULL);
            failures++;
            assert_int_equal(look("SELECT value FROM meta WHERE key = 'complete'"), 0);
            expect_integrity();
        }
    }
    assert_true(failures >= 3);
}

STORE_TEST(test_finish_after_full_disks)
{
    const struct store_process process = {
        .id = 1, .pid = 10, .rank = -1, .executable = "/bin/true", .end_ns = -1, .exit_status = -1};
    open_as(STORE_CREATE);
    OK(store_process(fixture->store, &process));
    append(1, 30000);
    commit();
    append(30001, 60000);
    finish_on_full_disks(700000);
    assert_int_equal(look("SELECT count(*) FROM event"), 60000);
    assert_int_equal(look("SELECT count(*) FROM allocation"), 40000);
    assert_int_equal(look("SELECT count(*) FROM leak"), 20000);
    assert_int_equal(look("SELECT live_allocations FROM total_stat WHERE process_id = 0"), 20000);
    assert_int_equal(look("SELECT count(*) FROM callsite JOIN symbol ON symbol.id = symbol_id"), 1);
    expect_integrity();
}

/* Two storages, then the end of the first: every third one of them stays. */
static void append_storages(uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        bool is_end = seq % 3 == 0;
        struct event event = event_of(seq, is_end ? VARVE_KIND_STORAGE_DESTROY : VARVE_KIND_STORAGE_CREATE);
        event.id = is_end ? seq - 2 : seq;
        event.size = 1000 + seq;
        event.arg = 1;
        OK(derive_event(fixture->derive, &event, &fixture->message));
        OK(store_append(fixture->store, fixture->derive, &event, &fixture->message));
    }
}

STORE_TEST(test_storages_after_full_disks)
{
    open_as(STORE_CREATE);
    for (uint64_t seq = 0; seq < 60000; seq += 10000) {
        append_storages(seq + 1, seq + 10000);
        commit();
    }
    append_storages(60001, 90000);
    finish_on_full_disks(500000);
    assert_int_equal(look("SELECT count(*) FROM storage WHERE size = 1000 + number AND create_seq = number"), 60000);
    assert_int_equal(look("SELECT count(*) FROM storage WHERE destroy_seq IS NULL AND number % 3 = 2"), 30000);
    assert_int_equal(look("SELECT count(*) FROM storage WHERE destroy_seq = number + 2 AND number % 3 = 1"), 30000);
    expect_integrity();
}

/* The child commits, goes on without a commit, and is killed. */
static void child_record(void)
{
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 50000};
    open_as(STORE_CREATE);
    append(1, 50000);
    OK(store_meta_integer(fixture->store, "committed", 1));
    OK(commit_now(fixture->store, &position, 1));
    append(50001, 90000);
    OK(store_meta_integer(fixture->store, "uncommitted", 1));
    raise(SIGKILL);
}

static int derive_again(void *context, struct event *event, bool is_held)
{
    (void)context;
    const struct event before = *event;
    struct event wanted = heap_event(event->seq);
    int code = derive_event(fixture->derive, event, &fixture->message);
    assert_int_equal(event->addr, wanted.addr);
    assert_int_equal(event->callsite, wanted.callsite);
    assert_int_equal(event->cause, before.cause);
    assert_int_equal(event->size, wanted.kind == VARVE_KIND_HEAP_ALLOC ? wanted.size : 24 + (event->seq - 2) % 900);
    /* a thread that has no row is in no row of an allocation */
    assert_false(is_held);
    assert_int_equal(event->id, before.id);
    return code;
}

static int take_tail(void *context, const struct store_ring_position *position)
{
    *(uint64_t *)context = position->tail;
    return 0;
}

STORE_TEST(test_killed_collector_is_continued)
{
    pid_t child = fork();
    if (child == 0) {
        child_record();
        _exit(1);
    }
    int status;
    uint64_t tail = 0;
    int64_t value = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    open_as(STORE_RESUME);
    OK(store_each_event(fixture->store, derive_again, NULL, &fixture->message));
    OK(store_each_ring_position(fixture->store, take_tail, &tail, &fixture->message));
    assert_int_equal(tail, 50000);
    OK(store_meta_get_integer(fixture->store, "committed", &value));
    assert_int_equal(store_meta_get_integer(fixture->store, "uncommitted", &value), VARVE_ERROR_NOT_FOUND);
    append(50001, 60000);
    OK(derive_check(fixture->derive, &fixture->message));
    OK(finish());
    assert_int_equal(look("SELECT count(*) FROM event"), 60000);
    assert_int_equal(look("SELECT count(*) FROM allocation"), 40000);
    expect_integrity();
}

STORE_TEST(test_finished_database_is_one_file)
{
    open_as(STORE_CREATE);
    OK(store_callsite_origin(fixture->store, 1, 1, 1, 1));
    append(1, 9000);
    const struct store_ring_position position = {.thread_id = 1, .process_id = 1, .tail = 50000};
    OK(commit_now(fixture->store, &position, 1));
    assert_int_equal(store_finish(fixture->store, NULL, NULL, &fixture->message), VARVE_ERROR_INVALID);
    OK(finish());
    close_store();
    char name[160];
    snprintf(name, sizeof(name), "%s-wal", fixture->path);
    assert_int_not_equal(access(name, F_OK), 0);
    snprintf(name, sizeof(name), "%s-shm", fixture->path);
    assert_int_not_equal(access(name, F_OK), 0);
    snprintf(name, sizeof(name), "%s-whole", fixture->path);
    assert_int_not_equal(access(name, F_OK), 0);
    assert_int_equal(chmod(fixture->path, 0444), 0);
    assert_int_equal(chmod(fixture->directory, 0555), 0);
    snprintf(name, sizeof(name), "file:%s?mode=ro&immutable=0", fixture->path);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(name, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM total", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(look("SELECT value FROM meta WHERE key = 'complete'"), 1);
    assert_int_equal(look("SELECT (SELECT count(*) FROM ring_position) + count(*) FROM callsite_origin"), 0);
    assert_int_equal(look("PRAGMA application_id"), 0x56525645);
    assert_int_equal(look("PRAGMA user_version"), VARVE_DATABASE_SCHEMA_VERSION);
    assert_int_equal(look("PRAGMA page_size"), 16384);
    chmod(fixture->directory, 0755);
}

/* A collector that died after the last step. */
STORE_TEST(test_complete_database_is_left_alone)
{
    open_as(STORE_CREATE);
    append(1, 90);
    OK(finish());
    open_as(STORE_RESUME);
    assert_true(store_is_complete(fixture->store));
    OK(store_finish(fixture->store, NULL, NULL, &fixture->message));
    close_store();
    assert_int_equal(look("SELECT count(*) FROM event"), 90);
    assert_int_equal(look("SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'"), 1);
}

/* The budget of the design is 45 bytes an event with stacks. Here a third of the events are frees, not half. */
STORE_TEST(test_bytes_per_event)
{
    const uint64_t count = 150000;
    const struct event event = heap_event(1);
    const struct store_thread thread = {
        .id = event.thread_id, .process_id = event.process_id, .pid = event.pid, .tid = event.tid, .end_ns = -1};
    open_as(STORE_CREATE);
    OK(store_thread(fixture->store, &thread));
    append(1, count);
    commit();
    OK(finish());
    assert_int_equal(look("SELECT count(*) FROM event_row"), 0);
    assert_int_equal(look("SELECT count(*) FROM event"), count);
    struct stat status;
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_true((uint64_t)status.st_size <= 50 * count);
}
