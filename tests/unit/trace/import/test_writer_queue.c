/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second thread of varve_writer: what goes through it arrives whole and in order, between rows of small
 * tables too, and an error that it meets comes back to the caller, who leaves nothing behind. And what the
 * layout asks of the ranges of addresses since then, neighbours and joining, against a naive copy.
 * Costs: 1 s
 */
#include "trace/error.h"
#include "trace/base/ranges.h"
#include "trace/record.h"
#include "trace/trace.h"
#include "support/query.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EVENTS 150000U /* more than the queue holds */
#define PAGES 40000U

static int entries_of(const char *folder)
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

static void writer_open(const char *folder, char *path, size_t bytes, struct varve_writer **writer)
{
    struct varve_message message = {""};
    snprintf(path, bytes, "%s/trace.db", folder);
    assert_int_equal(varve_writer_open(path, false, writer, &message), VARVE_OK);
}

TEST(test_all_arrive)
{
    char folder[] = "/tmp/varve-queue-XXXXXX";
    struct varve_message message = {""};
    assert_non_null(mkdtemp(folder));
    char path[sizeof(folder) + 16];
    struct varve_writer *writer;
    writer_open(folder, path, sizeof(path), &writer);
    for (uint64_t i = 0; i < EVENTS; i += EVENTS / 10) {
        const struct varve_writer_symbol symbol = {.function = "f", .line = (uint32_t)i + 1};
        uint32_t id = varve_writer_symbol(writer, &symbol);
        assert_int_equal(events_write(writer, i, i + EVENTS / 10), VARVE_OK);
        assert_int_not_equal(varve_writer_callsite(writer, &id, 1), 0);
    }
    assert_int_equal(varve_writer_events(writer), EVENTS);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(entries_of(folder), 1);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
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
    unlink(path);
    rmdir(folder);
}

/* A limit on file sizes: the files of derive, which grow in steps of 16 MiB, have what they need already; the
 * database has not, and only the other thread writes that. */
TEST(test_error_comes_back)
{
    char folder[] = "/tmp/varve-queue-XXXXXX";
    struct varve_message message = {""};
    assert_non_null(mkdtemp(folder));
    char path[sizeof(folder) + 16];
    struct varve_writer *writer;
    writer_open(folder, path, sizeof(path), &writer);
    assert_int_equal(events_write(writer, 0, 3), VARVE_OK);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 2 << 20, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int code = events_write(writer, 3, EVENTS);
    int again = varve_writer_meta_integer(writer, "x", 1);
    int end = varve_writer_finish(writer, NULL, NULL, &message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, VARVE_ERROR_FULL);
    assert_int_equal(again, VARVE_ERROR_FULL);
    assert_int_equal(end, VARVE_ERROR_FULL);
    assert_non_null(strstr(message.text, "trace.db"));
    assert_int_equal(entries_of(folder), 0);
    rmdir(folder);
}

TEST(test_abandon)
{
    char folder[] = "/tmp/varve-queue-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[sizeof(folder) + 16];
    struct varve_writer *writer;
    writer_open(folder, path, sizeof(path), &writer);
    assert_int_equal(events_write(writer, 0, EVENTS / 2), VARVE_OK);
    varve_writer_abandon(writer);
    assert_int_equal(entries_of(folder), 0);
    rmdir(folder);
}

/* ---- ranges ---- */

/* The naive copy: the start of the range that a page belongs to; 0: none. */
static uint32_t *pages;

static struct range range_of(uint32_t start)
{
    struct range range = {.start = start, .end = start, .id = start};
    while (range.end < PAGES && pages[range.end] == start) {
        range.end++;
    }
    return range;
}

static void ranges_compare(const struct ranges *ranges)
{
    uint64_t count = 0;
    struct range range = {0};
    assert_true(ranges_check(ranges));
    for (uint32_t page = 1; page < PAGES; page++) {
        if (pages[page] == page) {
            const struct range expected = range_of(page);
            assert_true(ranges_first(ranges, range.end, UINT64_MAX, &range));
            assert_int_equal(range.start, expected.start);
            assert_int_equal(range.end, expected.end);
            count++;
        }
    }
    assert_int_equal(ranges->count, count);
}

static void neighbours_compare(const struct ranges *ranges, uint32_t start)
{
    uint32_t below = start - 1;
    uint32_t above = (uint32_t)range_of(start).end;
    while (below > 0 && pages[below] == 0) {
        below--;
    }
    while (above < PAGES && pages[above] == 0) {
        above++;
    }
    struct range before;
    struct range after;
    ranges_around(ranges, start, &before, &after);
    assert_int_equal(before.id != 0, below > 0);
    assert_int_equal(after.id != 0, above < PAGES);
    assert_true(below == 0 || (before.start == pages[below] && before.end == below + 1));
    assert_true(above == PAGES || after.start == above);
}

TEST(test_neighbours_join)
{
    struct ranges ranges = {0};
    uint64_t random = 7;
    pages = calloc(PAGES, sizeof(*pages));
    assert_non_null(pages);
    for (uint32_t page = 1; page < PAGES;) { /* one third do not touch the one before */
        struct range range = {.start = page + (random_below(&random, 3) == 0), .id = 1};
        range.end = range.start + 1 + random_below(&random, 4);
        if (range.end >= PAGES) {
            break;
        }
        assert_true(ranges_reserve(&ranges, 1));
        ranges_insert(&ranges, &range);
        for (uint64_t i = range.start; i < range.end; i++) {
            pages[i] = (uint32_t)range.start;
        }
        page = (uint32_t)range.end;
    }
    ranges_compare(&ranges);
    for (unsigned round = 0; round < 60000; round++) {
        uint32_t start = pages[1 + random_below(&random, PAGES - 1)];
        if (start == 0) {
            continue;
        }
        neighbours_compare(&ranges, start);
        uint32_t end = (uint32_t)range_of(start).end;
        if (end < PAGES && pages[end] == end) {
            uint32_t last = (uint32_t)range_of(end).end;
            ranges_absorb(&ranges, start);
            for (uint32_t i = end; i < last; i++) {
                pages[i] = start;
            }
        }
        if (round % 2000 == 0) {
            ranges_compare(&ranges);
        }
    }
    ranges_compare(&ranges);
    ranges_clear(&ranges);
    free(pages);
}

/* Runs threads: the writer of a database has one. */
