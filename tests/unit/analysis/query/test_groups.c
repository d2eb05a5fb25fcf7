/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites in groups: each way to group adds up to the view total, entries are what they should be, and what stands
 * in a database made by anybody neither drives the terminal nor makes a line wider than asked for. And chapters of
 * `varve report` that are there for some recordings only, on the golden databases with a change each.
 * Reads damaged input: names from anybody.
 * Costs: 4 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/base/number_format.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const scripts[] = {"small.sql", "user_lines.sql", NULL};

static struct database *open_database(const char *path)
{
    struct varve_message message = {""};
    struct database *database = NULL;
    if (database_open(path, DATABASE_DERIVED, &database, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return database;
}

/* ---- sums ---- */

static void check_sums(struct database *database, enum group_by by, const char *domain)
{
    static const struct {
        enum callsite_rank rank;
        const char *bytes, *allocations;
    } figures[] = {
        {CALLSITE_BY_PEAK, "SELECT sum(peak_bytes) FROM total WHERE domain = ",
         "SELECT sum(peak_allocations) FROM total WHERE domain = "},
        {CALLSITE_BY_BYTES,
         "SELECT sum(bytes) FROM total WHERE domain = ", "SELECT sum(allocations) FROM total WHERE domain = "},
        {CALLSITE_BY_LIVE, "SELECT sum(live_bytes) FROM total WHERE domain = ",
         "SELECT sum(live_allocations) FROM total WHERE domain = "},
        {CALLSITE_BY_TEMPORARY, NULL, "SELECT sum(temporary) FROM total WHERE domain = "},
    };
    struct groups *groups = groups_open(database, by);
    groups_load(groups, domain);
    char sql[200];
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        struct callsite_list list;
        groups_rank(groups, figures[i].rank, 1, &list);
        if (figures[i].bytes != NULL) {
            snprintf(sql, sizeof(sql), "%s'%s'", figures[i].bytes, domain);
            assert_int_equal(list.sum_bytes, database_integer(database, sql, -1));
        }
        snprintf(sql, sizeof(sql), "%s'%s'", figures[i].allocations, domain);
        assert_int_equal(list.sum_allocations, database_integer(database, sql, -1));
        assert_true(list.count <= 1 && (list.count_all > 0) == (list.sum_allocations > 0));
        callsite_list_free(&list);
    }
    groups_close(groups);
}

TEST(test_sums)
{
    trace_database_make("sums.db", scripts);
    struct database *database = open_database("sums.db");
    for (int by = 0; by < GROUP_BY_COUNT; by++) {
        check_sums(database, (enum group_by)by, "heap");
        check_sums(database, (enum group_by)by, "mmap");
    }
    assert_int_equal(database_error(database, NULL), VARVE_OK);
    database_close(database);
}

/* ---- entries ---- */

static struct callsite_list load(const char *path, enum group_by by, enum callsite_rank rank)
{
    struct database *database = open_database(path);
    struct groups *groups = groups_open(database, by);
    groups_load(groups, "heap");
    struct callsite_list list;
    groups_rank(groups, rank, 100, &list);
    groups_close(groups);
    database_close(database);
    return list;
}

static void assert_entry(const struct callsite_list *list, size_t index, const char *name, int64_t callsites)
{
    assert_true(index < list->count);
    char *text = callsite_entry_name(&list->rows[index], list->by, 100);
    assert_string_equal(text, name);
    assert_int_equal(list->rows[index].callsites, callsites);
    free(text);
}

/* Another line of load_batch, a second stack of the first line, and a second unresolved call site of a module. */
static void make_lines(const char *path)
{
    trace_database_make(path, scripts);
    sql_run(path, "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) VALUES "
                  "(20, 'load_batch', (SELECT file FROM symbol WHERE id = 8), 11, NULL, 1, 0, 7);"
                  "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (30, 10, 20, NULL), (31, 10, 8, NULL), "
                  "(32, NULL, 11, 70000);"
                  "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (10, 30, 2, 20, 20), "
                  "(11, 31, 2, 8, 8), (12, 32, 1, 11, 11);"
                  "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, "
                  "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (10, 2, 2, 400000000, 0, 0, 0, 0, "
                  "0, 9), (11, 1, 1, 200000000, 0, 0, 0, 0, 0, 9), (12, 1, 0, 100000000, 1, 100000000, "
                  "0, 0, 0, 0)");
}

TEST(test_entries)
{
    static const char file[] = "/srv/app/very/long/path/of/a/package/with/many/folders/data/loader/batches.py";
    make_lines("lines.db");
    struct callsite_list list = load("lines.db", GROUP_BY_LINE, CALLSITE_BY_BYTES);
    assert_int_equal(list.callsites_all, 8);
    assert_int_equal(list.count_all, 6);
    char name[200];
    snprintf(name, sizeof(name), "load_batch  %s:11", file);
    assert_entry(&list, 0, name, 1);
    snprintf(name, sizeof(name), "load_batch  %s:10", file);
    assert_entry(&list, 1, name, 2);
    assert_int_equal(list.rows[1].id, 11); /* the one with most */
    assert_int_equal(list.rows[1].figures.bytes, 200000000 + 20971520);
    assert_entry(&list, 2, "unresolved code in libmystery.so", 2);
    callsite_list_free(&list);
    list = load("lines.db", GROUP_BY_LINE, CALLSITE_BY_LIVE);
    assert_entry(&list, 0, "unresolved code in libmystery.so", 2);
    assert_int_equal(list.rows[0].id, 12);
    callsite_list_free(&list);
    list = load("lines.db", GROUP_BY_FUNCTION, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 5);
    snprintf(name, sizeof(name), "load_batch  %s", file);
    assert_entry(&list, 0, name, 3);
    callsite_list_free(&list);
    list = load("lines.db", GROUP_BY_STACK, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 8);
    callsite_list_free(&list);
    list = load("lines.db", GROUP_BY_MODULE, CALLSITE_BY_BYTES);
    assert_entry(&list, 0, file, 3);
    assert_entry(&list, 1, "/opt/app/lib/libmystery.so", 2);
    callsite_list_free(&list);
}

TEST(test_entries_of_allocations)
{
    trace_database_make("entries.db", scripts);
    sql_run("entries.db",
            "UPDATE allocation_row SET thread_id = (SELECT t.id FROM thread t WHERE t.tid = allocation_row.tid)");
    struct callsite_list list = load("entries.db", GROUP_BY_PROCESS, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 2);
    assert_string_equal(list.rows[0].name, "pid 4000  python3.11");
    assert_int_equal(list.rows[1].figures.allocations, 10);
    callsite_list_free(&list);
    list = load("entries.db", GROUP_BY_THREAD, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 3);
    assert_string_equal(list.rows[0].name, "tid 4002 of pid 4000  loader");
    callsite_list_free(&list);
    list = load("entries.db", GROUP_BY_SIZE, CALLSITE_BY_COUNT);
    assert_string_equal(list.rows[0].name, "up to 128 B");
    callsite_list_free(&list);
    assert_int_equal(groups_size_key(0), 0);
    assert_int_equal(groups_size_key(64), 64);
    assert_int_equal(groups_size_key(65), 128);
    assert_int_equal(groups_size_key(INT64_MAX), INT64_C(1) << 62);
}

/* One process with two GPUs, whose peaks are at other moments: what is listed is live at each of them. */
TEST(test_peak_of_two_devices)
{
    trace_database_make("devices.db", (const char *const[]){"nothing.sql", NULL});
    sql_run("devices.db",
            "INSERT INTO domain(code, name, meaning) VALUES (3, 'device', ''); INSERT INTO process(id, pid) VALUES (1, "
            "500);"
            "INSERT INTO allocation_row(domain, offset, size, process_id, alloc_seq, alloc_ns, lifetime_events, "
            "lifetime_ns, device) "
            "VALUES (3, 4096, 1000, 1, 1, 1, 2, 2, 0), (3, 8192, 300, 1, 4, 4, NULL, NULL, 0), (3, 4096, 70, 1, 5, 5, "
            "NULL, NULL, 1);"
            "INSERT INTO total_stat VALUES (1, 3, 0, 2, 1, 1300, 1, 300, 1000, 1, 1, 1, 0, 0), (1, 3, 1, 1, 0, 70, 1, "
            "70, 70, 1, 5, 5, "
            "0, 0)");
    struct database *database = open_database("devices.db");
    struct groups *groups;
    struct callsite_list list;
    for (int by = 0; by < GROUP_BY_COUNT; by++) {
        groups = groups_open(database, (enum group_by)by);
        groups_load_process(groups, "device", 1);
        groups_rank(groups, CALLSITE_BY_PEAK, 10, &list);
        assert_int_equal(list.sum_bytes, 1070);
        assert_int_equal(list.sum_allocations, 2);
        callsite_list_free(&list);
        groups_close(groups);
    }
    assert_int_equal(database_error(database, NULL), VARVE_OK);
    database_close(database);
}

/* Numbers of processes, threads and call sites that nobody has are one entry. */
TEST(test_damaged_numbers)
{
    trace_database_make("numbers.db", scripts);
    sql_run("numbers.db", "UPDATE callsite_stat_row SET process_id = -1; UPDATE allocation_row SET thread_id = -1");
    struct callsite_list list = load("numbers.db", GROUP_BY_PROCESS, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 1);
    callsite_list_free(&list);
    list = load("numbers.db", GROUP_BY_THREAD, CALLSITE_BY_BYTES);
    assert_int_equal(list.count_all, 1);
    callsite_list_free(&list);
}

TEST(test_not_kept)
{
    trace_database_make("totals.db", scripts);
    sql_run("totals.db",
            "INSERT INTO meta VALUES ('keep', 'totals'); DELETE FROM allocation WHERE free_ns IS NOT NULL");
    EXPECT(2, "peak --by thread totals.db", "--keep totals");
    EXPECT(2, "peak --pid=4001 totals.db", "--keep totals");
    EXPECT(2, "report --by=size totals.db", "--keep totals");
}

/* ---- anybody's names ---- */

static void assert_lines(const char *line, size_t columns)
{
    char *text = command_answer(line), *rest = text, *one;
    while ((one = strsep(&rest, "\n")) != NULL) {
        for (const char *at = one; *at != '\0'; at++) {
            assert_true((unsigned char)*at >= ' ' && *at != 0x7f);
        }
        if (format_width(one) > columns) {
            fail_msg("%s: %zu columns: %.300s", line, format_width(one), one);
        }
    }
    free(text);
}

TEST(test_hostile)
{
    static const char *const commands[] = {
        "report", "report --all", "report --by=function", "report --by=module", "peak --by=process", "peak --all"};
    make_lines("hostile.db");
    sql_run(
        "hostile.db",
        "UPDATE symbol SET function = replace(hex(zeroblob(500000)), '00', 'ab') WHERE id = 20;"
        "UPDATE symbol SET function = char(27) || '[31mred' || char(10) || char(7), file = 'a' || char(10) || 'b' || "
        "char(27) || ']0;x' WHERE id = 8;"
        "UPDATE symbol SET module = '/lib/' || replace(hex(zeroblob(400)), '0', 'm') || char(13) WHERE id = 11;"
        "UPDATE process SET executable = '/bin/' || char(27) || replace(hex(zeroblob(300)), '0', 'p')");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        for (size_t columns = 60; columns <= 200; columns += 70) {
            char line[100];
            snprintf(line, sizeof(line), "%s --width %zu hostile.db", commands[i], columns);
            assert_lines(line, columns);
        }
    }
    char *text = command_answer("report --full-names hostile.db");
    assert_true(strlen(text) > 1000000); /* uncut, as asked for */
    assert_null(strchr(text, '\033'));
    free(text);
    text = command_answer("report --json --width 60 hostile.db");
    assert_true(strchr(text, '\n') == text + strlen(text) - 1); /* one line, never folded */
    free(text);
}

/* A heap run with mappings fits on two screens, however much there is. */
TEST(test_two_screens)
{
    size_t lines = 0;
    make_lines("long.db");
    sql_run(
        "long.db",
        "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) WITH RECURSIVE n(i) AS "
        "(SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, 'f' || i, 'f.c', i, '/bin/f', 0, 0, 3 "
        "FROM n;"
        "INSERT INTO stack_node(id, parent_id, symbol_id, pc) SELECT id, 3, id, id FROM symbol WHERE id >= 100;"
        "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) SELECT id, id, 4, id, id FROM symbol "
        "WHERE id >= 100;"
        "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, "
        "peak_allocations, peak_bytes, temporary, lifetime_ns) SELECT (id % 2 << 32) + id, 9, 1, 1 << 40, 8, "
        "(id * 7 % 101) << 30, 7, (id * 11 % 101) << 30, id * 13 % 101, 5 FROM symbol WHERE id >= 100;"
        "INSERT INTO total_stat SELECT id, 1, 0, 1, 0, id, 1, id, id, 1, 1, 1, 0, 0 FROM symbol WHERE id >= 100;"
        "INSERT INTO process(id, pid) SELECT id, id FROM symbol WHERE id >= 100");
    char *text = command_answer("report long.db");

    for (const char *at = text; *at != '\0'; at++) {
        lines += *at == '\n' ? 1 : 0;
    }
    assert_in_range(lines, 50, 80);
    free(text);
}

/* ---- chapters of the report ---- */

static void make(const char *script, const char *sql)
{
    remove("t.db");
    trace_database_make("t.db", (const char *const[]){script, NULL});
    sql_run("t.db", sql);
}

TEST(test_gpu)
{
    make("gpu.sql", "UPDATE device SET name = 'Fake ' || char(27) || '[31mGPU' WHERE id = 0;"
                    "UPDATE device SET name = NULL, total_bytes = NULL, uuid = NULL WHERE id = 1");
    EXPECT(0, "report --all t.db", "GPU 0  Fake ?[31mGPU, 140 GiB", "GPU 1  (no name)\n");
    EXPECT(0, "report --json t.db", "\"name\":\"Fake \\u001b[31mGPU\"");
    /* the allocation that CUPTI missed is gone: both recorders agree */
    make("gpu.sql", "DELETE FROM allocation_row WHERE size = 1073741824;"
                    "UPDATE total_stat SET allocations = 2 WHERE domain = 3 AND process_id = 1");
    EXPECT(0, "report --all t.db", "CUDA recorder and CUPTI recorded the same 2 allocations\n");
    EXPECT(0, "report --json t.db", "\"agree\":true,\"by_cuda\":2,\"by_cupti\":2,\"differences\":[]");
    make("nothing.sql", "SELECT 1");
    EXPECT(0, "report --json t.db", "!\"gpu\"", "!\"rematerialization\"");
    EXPECT(0, "report --all t.db", "!CUPTI", "!Rematerialization");
}

TEST(test_rematerialization)
{
    make("remat.sql", "DELETE FROM remat_failure_stat");
    EXPECT(0, "report --all t.db", "\nRematerialization\n", "!did not get", "6,536 storages recomputed");
    make("remat.sql",
         "UPDATE operator_stat SET name = 'an operator whose name is ' || char(27) || '[31mlonger than that' "
         "WHERE name = 'matmul'");
    EXPECT(0, "report --all t.db", "an operator whose name is ?[31ml");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
