/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve_writer: what goes through it arrives whole and in order, between rows of small tables too, and an error that it
 * meets comes back to the caller, who leaves nothing behind.
 * Costs: 1 s
 */
#include "trace/record.h"
#include "base/error.h"
#include "trace/record_fold.h"
#include "trace/writer.h"
#include "support/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EVENTS 150000U /* more than one commit */

/* Event `i` of EVENTS: blocks of 512 bytes come and go, each at its own address. */
static struct varve_record record_of(uint64_t i)
{
    uint64_t block = i / 3;
    static const enum varve_kind kinds[] = {VARVE_KIND_ALLOC, VARVE_KIND_FREE_REQUESTED, VARVE_KIND_FREE_COMPLETED};
    return (struct varve_record){
        .dev_seq_kind_flags = varve_record_tag(i + 1, kinds[i % 3], 0),
        .addr = (UINT64_C(1) << 40) + block * 512,
        .size = 512,
        .requested = 500 + block % 13,
    };
}

static int events_write(struct varve_writer *writer, uint64_t from, uint64_t to)
{
    int code = VARVE_OK;
    for (uint64_t i = from; i < to && code == VARVE_OK; i++) {
        const struct varve_record record = record_of(i);
        code = varve_writer_event(writer, &record, (int64_t)i * 10);
    }
    return code;
}

/* A folder and a database in the making; each test leaves it as it says. */
struct making {
    char folder[32], path[48];
    struct varve_writer *writer;
    struct varve_message message;
};

static struct making making_begin(void)
{
    struct making making = {.folder = "/tmp/varve-writer-XXXXXX"};
    assert_non_null(mkdtemp(making.folder));
    snprintf(making.path, sizeof(making.path), "%s/trace.db", making.folder);
    assert_int_equal(varve_writer_open(making.path, false, &making.writer, &making.message), VARVE_OK);
    return making;
}

TEST(test_all_arrive)
{
    struct making making = making_begin();
    struct varve_writer *writer = making.writer;
    for (uint64_t i = 0; i < EVENTS; i += EVENTS / 10) {
        const struct varve_writer_symbol symbol = {.function = "f", .line = (uint32_t)i + 1};
        uint32_t id = varve_writer_symbol(writer, &symbol);
        assert_int_equal(events_write(writer, i, i + EVENTS / 10), VARVE_OK);
        assert_int_equal(varve_writer_callsite(writer, &id, 1), i / (EVENTS / 10) + 1);
        assert_int_equal(varve_writer_callsite(writer, &id, 1), i / (EVENTS / 10) + 1); /* the same frames */
    }
    assert_int_equal(varve_writer_events(writer), EVENTS);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &making.message), VARVE_OK);
    assert_int_equal(entries_of(making.folder), 1);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(making.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM event"), EVENTS);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM event WHERE ts_ns = (seq - 1) * 10 AND dev_seq = seq "
                                       "AND addr = (1 << 40) + (seq - 1) / 3 * 512 AND id = (seq + 2) / 3"),
                     EVENTS);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM allocation WHERE free_completed_seq = alloc_seq + 2"),
                     EVENTS / 3);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM callsite"), 10);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    /* what the planner knows of events, which nobody counts */
    assert_int_equal(query_integer(db, "SELECT stat FROM sqlite_stat1 WHERE tbl = 'event_row'"), EVENTS);
    sqlite3_close(db);
    unlink(making.path);
    rmdir(making.folder);
}

/* With a limit on file sizes, to be set to `before` again: the files of derive, which grow in steps of 16 MiB, have
 * what they need after three events; the database has not. */
static struct making making_begin_limited(struct rlimit *before)
{
    struct making making = making_begin();
    assert_int_equal(events_write(making.writer, 0, 3), VARVE_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    const struct rlimit limit = {.rlim_cur = 2 << 20, .rlim_max = before->rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return making;
}

TEST(test_error_comes_back)
{
    struct rlimit before;
    struct making making = making_begin_limited(&before);
    struct varve_writer *writer = making.writer;
    int code = events_write(writer, 3, EVENTS);
    int again = varve_writer_meta_integer(writer, "x", 1);
    int end = varve_writer_finish(writer, NULL, NULL, &making.message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, VARVE_ERROR_FULL);
    assert_int_equal(again, VARVE_ERROR_FULL);
    assert_int_equal(end, VARVE_ERROR_FULL);
    assert_non_null(strstr(making.message.text, "trace.db"));
    assert_int_equal(entries_of(making.folder), 0);
    rmdir(making.folder);
}

/* The commit that fails goes on beside the caller: what is written next, of whatever kind, says why. */
TEST(test_error_of_a_symbol)
{
    struct rlimit before;
    struct making making = making_begin_limited(&before);
    struct varve_writer *writer = making.writer;
    char name[32];
    bool is_named = true;
    for (uint64_t i = 3; is_named && i < EVENTS; i++) {
        (void)events_write(writer, i, i + 1);
        snprintf(name, sizeof(name), "function_%llu", (unsigned long long)i);
        is_named = varve_writer_symbol(writer, &(struct varve_writer_symbol){.function = name}) != 0;
    }
    assert_false(is_named);
    int end = varve_writer_finish(writer, NULL, NULL, &making.message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(end, VARVE_ERROR_FULL);
    assert_non_null(strstr(making.message.text, "trace.db"));
    assert_null(strstr(making.message.text, "a symbol"));
    rmdir(making.folder);
}

TEST(test_abandon)
{
    struct making making = making_begin();
    struct varve_writer *writer = making.writer;
    assert_int_equal(events_write(writer, 0, EVENTS / 2), VARVE_OK);
    varve_writer_abandon(writer);
    assert_int_equal(entries_of(making.folder), 0);
    rmdir(making.folder);
}
