/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema. The views event, allocation and stack_node are to SQL what tables of the same columns would be: random
 * rows that are inserted, changed and deleted in both stay equal; what looks for a row, joins or walks reads no more
 * than it would of a table, and of the frames no more than those of the call site that is asked for. The table `help`
 * names every table, view and column, once, and nothing that is not there. (Databases that were recorded or imported:
 * assert_documented in tests/recording.py.)
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/query.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/store/schema.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define STEPS 600
#define KEYS 60

/* The first of the columns is the key; those `required` are never NULL. */
struct view {
    const char *name, *required;
    char columns[24][32]; /* ends with an empty one */
};

static sqlite3 *database_make(void)
{
    struct varve_message message = {""};
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    if (schema_create(db, "memory", &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return db;
}

static void run(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
}

/* Differences of such numbers fit into 64 bits. */
static void value_write(uint64_t *random, bool may_be_null, char *text, size_t bytes)
{
    uint64_t value = random_next(random) >> (2 + random_below(random, 62));
    if (may_be_null && random_below(random, 3) == 0) {
        snprintf(text, bytes, "NULL");
    } else {
        snprintf(text, bytes, "%s%llu", random_below(random, 8) == 0 ? "-" : "", (unsigned long long)value);
    }
}

/* The columns after the key, in `text`; values of them in `values`, equal to one another now and then. */
static void row_write(const struct view *view, uint64_t *random, char *names, char *values, size_t bytes)
{
    size_t named = 0;
    size_t valued = 0;
    char value[32] = "1";
    for (unsigned i = 1; i < 24 && view->columns[i][0] != '\0'; i++) {
        bool is_required = strstr(view->required, view->columns[i]) != NULL;
        if (random_below(random, 3) != 0 || (is_required && strcmp(value, "NULL") == 0)) {
            value_write(random, !is_required, value, sizeof(value));
        }
        named += (size_t)snprintf(names + named, bytes - named, ", %s", view->columns[i]);
        valued += (size_t)snprintf(values + valued, bytes - valued, ", %s", value);
    }
}

/* One statement for the view and for the table that stands beside it. */
static void step(sqlite3 *db, const struct view *view, uint64_t *random)
{
    char names[512];
    char values[1024];
    unsigned long long key = 1 + random_below(random, KEYS);
    unsigned column = 1 + (unsigned)random_below(random, 3);
    row_write(view, random, names, values, sizeof(values) < sizeof(names) ? sizeof(values) : sizeof(names));
    char sql[2048];
    for (unsigned i = 0; i < 2; i++) {
        const char *name = i == 0 ? view->name : "model";
        unsigned long long choice = (key + column) % 8;
        if (choice < 5) {
            snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s = %llu; INSERT INTO %s(%s%s) VALUES (%llu%s)", name,
                     view->columns[0], key, name, view->columns[0], names, key, values);
        } else if (choice < 7) {
            snprintf(sql, sizeof(sql), "UPDATE %s SET %s = %s + 1 WHERE %s %% 7 = %llu", name, view->columns[column],
                     view->columns[column], view->columns[0], key % 7);
        } else {
            snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s BETWEEN %llu AND %llu", name, view->columns[0], key,
                     key + 5);
        }
        run(db, sql);
    }
}

static void columns_read(sqlite3 *db, struct view *view)
{
    sqlite3_stmt *query;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT name FROM pragma_table_info(?1)", -1, &query, NULL), SQLITE_OK);
    sqlite3_bind_text(query, 1, view->name, -1, SQLITE_STATIC);
    for (unsigned i = 0; sqlite3_step(query) == SQLITE_ROW; i++) {
        assert_true(i < 23);
        snprintf(view->columns[i], sizeof(view->columns[i]), "%s", (const char *)sqlite3_column_text(query, 0));
    }
    sqlite3_finalize(query);
}

TEST(test_like_tables)
{
    struct view views[] = {{.name = "event", .required = "ts_ns kind"},
                           {.name = "allocation", .required = "domain addr size alloc_seq alloc_ns process_id"},
                           {.name = "stack_node", .required = "symbol_id"}};
    uint64_t random = test_first_seed(1);
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        struct view *view = &views[i];
        sqlite3 *db = database_make();
        columns_read(db, view);
        char sql[256];
        snprintf(sql, sizeof(sql), "CREATE TABLE model AS SELECT * FROM %s", view->name);
        run(db, sql);
        for (unsigned j = 0; j < STEPS; j++) {
            step(db, view, &random);
            snprintf(sql, sizeof(sql),
                     "SELECT (SELECT count(*) FROM (SELECT * FROM %s EXCEPT SELECT * FROM model)) +"
                     " (SELECT count(*) FROM (SELECT * FROM model EXCEPT SELECT * FROM %s))",
                     view->name, view->name);
            if (query_integer(db, sql) != 0) {
                fail_msg("%s: rows differ after step %u", view->name, j);
            }
        }
        assert_true(query_integer(db, "SELECT count(*) FROM model") > KEYS / 4);
        sqlite3_close(db);
    }
}

/* A row without a key gets the next one. */
TEST(test_next_key)
{
    sqlite3 *db = database_make();
    run(db, "INSERT INTO event(ts_ns, kind, ring_seq) VALUES (5, 1, 9);"
            "INSERT INTO event(seq, ts_ns, kind, ring_seq) VALUES (41, 5, 1, 9), (NULL, 6, 1, 10)");
    assert_int_equal(
        query_integer(db, "SELECT count(*) FROM event WHERE (seq, ring_seq) IN ((1, 9), (41, 9), (42, 10))"), 3);
    sqlite3_close(db);
}

/* Of an event with a thread pid and tid are the thread's, unless it has its own. */
TEST(test_threads)
{
    sqlite3 *db = database_make();
    run(db, "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (3, 1, 1, 70, 71);INSERT INTO event(seq, ts_ns, "
            "kind, thread_id, pid) VALUES (1, 0, 1, 3, NULL), (2, 0, 1, 3, 80), (3, 0, 1, 4, NULL)");
    assert_int_equal(query_integer(db, "SELECT pid * 1000 + tid FROM event WHERE seq = 1"), 70071);
    assert_int_equal(query_integer(db, "SELECT pid * 1000 + tid FROM event WHERE seq = 2"), 80071);
    assert_int_equal(query_integer(db, "SELECT pid IS NULL AND tid IS NULL FROM event WHERE seq = 3"), 1);
    sqlite3_close(db);
}

/* ---- plans ---- */

/* What a plan may scan: tables of few rows, and the one path of a stack, as an array and while it is walked. */
static bool is_small(const char *detail)
{
    static const char *const small[] = {"d", "o", "walk", "CONSTANT ROW", "oom", "addr_base"};
    bool is_found = strncmp(detail, "SCAN path ", 10) == 0;
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        is_found = is_found || strcmp(detail + strlen("SCAN "), small[i]) == 0;
    }
    return is_found;
}

/* Returns how often a call site is looked for. */
static unsigned plan_check(sqlite3 *db, const char *query)
{
    unsigned searches = 0;
    char sql[512];
    sqlite3_stmt *plan = NULL;
    snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s", query);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &plan, NULL), SQLITE_OK);
    while (sqlite3_step(plan) == SQLITE_ROW) {
        const char *detail = (const char *)sqlite3_column_text(plan, 3);
        searches += strncmp(detail, "SEARCH c USING INTEGER PRIMARY KEY", 34) == 0;
        if ((strncmp(detail, "SCAN", 4) == 0 && !is_small(detail)) || strstr(detail, "AUTOMATIC") != NULL ||
            strstr(detail, "BLOOM") != NULL || strstr(detail, "MATERIALIZE") != NULL) {
            fail_msg("%s: %s", query, detail);
        }
    }
    sqlite3_finalize(plan);
    return searches;
}

/* Plans of what is asked most. */
TEST(test_plans)
{
    static const char *const queries[] = {
        "SELECT * FROM event_own WHERE seq = 5",
        "SELECT * FROM event_own WHERE seq > 5 AND seq <= 9 AND kind BETWEEN 1 AND 9 ORDER BY seq",
        "SELECT max(seq) FROM event_own",
        ("SELECT e.* FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON "
         "t.id = e.thread_id"),
        "SELECT o.seq, e.size FROM oom o LEFT JOIN event_own e ON e.seq = o.seq",
        "SELECT e.kind, count(*) FROM oom o JOIN event_own e ON e.seq = o.seq GROUP BY e.kind",
        "SELECT * FROM allocation WHERE id = 5",
        "SELECT o.seq, a.* FROM oom o LEFT JOIN allocation a ON a.id = o.seq",
        "SELECT n.*, s.function FROM stack_node n JOIN symbol s ON s.id = n.symbol_id WHERE n.id = 7",
        ("WITH RECURSIVE walk(id) AS (SELECT 9 UNION ALL SELECT n.parent_id FROM walk JOIN stack_node n ON n.id = "
         "walk.id WHERE n.parent_id IS NOT NULL) SELECT n.* FROM walk CROSS JOIN stack_node n ON n.id = walk.id"),
    };
    sqlite3 *db = database_make();
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        plan_check(db, queries[i]);
    }
    sqlite3_close(db);
}

/* Whatever a query asks of the frames of one call site, or of the one of a row, no other is looked at. */
TEST(test_plans_of_frames)
{
    static const char *const queries[] = {
        "SELECT * FROM frame WHERE callsite_id = 7 ORDER BY depth",
        "SELECT * FROM frame WHERE callsite_id = 7 AND function = 'f1'",
        "SELECT * FROM event_own JOIN frame USING (callsite_id) WHERE seq = 3",
        "SELECT * FROM frame JOIN event_own USING (callsite_id) WHERE seq = 3",
        "SELECT * FROM frame WHERE callsite_id IN (1, 2)",
        ("SELECT * FROM event_own e WHERE seq = 3 AND EXISTS (SELECT 1 FROM frame f WHERE "
         "f.callsite_id = e.callsite_id)"),
        "SELECT (SELECT max(function) FROM frame f WHERE f.callsite_id = e.callsite_id) FROM event_own e WHERE seq = 3",
    };
    sqlite3 *db = database_make();
    /* with figures, such as ANALYZE leaves behind in a finished database */
    run(db, "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 5000)"
            "INSERT INTO stack_node SELECT id, nullif(id - 1, 0), 1, id % 50 FROM n;"
            "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id)"
            " SELECT id, id, id, 1, 1 FROM stack_node WHERE id % 10 = 0;"
            "INSERT INTO event(seq, ts_ns, pid, tid, kind, callsite_id) SELECT id, id, 1, 1, 32, id FROM "
            "stack_node; ANALYZE");
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        assert_int_equal(plan_check(db, queries[i]), 1);
    }
    sqlite3_close(db);
}

/* ---- help ---- */

/* Every name that there is, and '' for the table or view itself. */
#define THERE                                                                                                          \
    "SELECT s.name, c.name AS column FROM sqlite_schema s JOIN pragma_table_info(s.name) c"                            \
    "    WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%' UNION ALL SELECT name, '' FROM sqlite_schema" \
    "    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"

/* A meaning is a phrase that fits a line or two, and says nothing that only a look at the source would explain. */
TEST(test_help)
{
    static const char *const without_rows[] = {
        THERE " EXCEPT SELECT name, column FROM help",
        "SELECT name, column FROM help EXCEPT SELECT * FROM (" THERE ")",
        "SELECT name, column FROM help WHERE length(trim(meaning)) < 2 OR length(meaning) > 250",
        "SELECT name, column FROM help WHERE meaning <> trim(meaning) OR meaning LIKE '%.'",
        /* a name of a table in the words is one that is there */
        ("SELECT name, column FROM help WHERE meaning LIKE '%read it as %' AND NOT EXISTS (SELECT 1 FROM"
         " sqlite_schema s WHERE meaning LIKE '%read it as ' || s.name || '%')"),
    };
    sqlite3 *db = database_make();
    assert_true(query_integer(db, "SELECT count(*) FROM (" THERE ")") > 800);
    for (size_t i = 0; i < sizeof(without_rows) / sizeof(without_rows[0]); i++) {
        query_expect(db, without_rows[i], "");
    }
    sqlite3_close(db);
}
