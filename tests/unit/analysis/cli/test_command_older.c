/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases of schema version 1, in which each call site had a row of `callsite_frame` for each of its frames: every command
 * answers for them as for the same trace with a tree of stacks. The older one is made from the newer one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The tables and the view as version 1 had them. */
static const char older_sql[] =
    "CREATE TABLE callsite_frame(callsite_id INTEGER NOT NULL, depth INTEGER NOT NULL, symbol_id INTEGER NOT NULL,"
    "    pc INTEGER, PRIMARY KEY(callsite_id, depth)) STRICT, WITHOUT ROWID;"
    "WITH RECURSIVE walk(callsite_id, depth, node_id) AS (SELECT id, 0, node_id FROM callsite WHERE node_id IS NOT NULL"
    "    UNION ALL SELECT callsite_id, depth + 1, parent_id FROM walk JOIN stack_node n ON n.id = node_id"
    "    WHERE parent_id IS NOT NULL)"
    "INSERT INTO callsite_frame SELECT callsite_id, depth, symbol_id, pc FROM walk JOIN stack_node n ON n.id = node_id;"
    "DROP VIEW frame;"
    "CREATE VIEW frame AS SELECT f.callsite_id, f.depth, s.function, s.file, s.line, s.module, s.is_python, s.is_inlined, f.pc"
    "    FROM callsite_frame f JOIN symbol s ON s.id = f.symbol_id;"
    "DROP VIEW stack_node; DROP TABLE stack_node_row; DROP TABLE stack_frame;"
    "ALTER TABLE callsite DROP COLUMN node_id;"
    "CREATE TEMP TABLE kept AS SELECT * FROM event; DROP VIEW event; DROP TABLE event_row;"
    "CREATE TABLE event(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,"
    "    device INTEGER, dev_seq INTEGER, kind INTEGER NOT NULL, stream INTEGER, pool INTEGER, id INTEGER, addr INTEGER,"
    "    size INTEGER, requested INTEGER, arg INTEGER, cause INTEGER, callsite_id INTEGER, thread_id INTEGER, flags INTEGER,"
    "    ring_seq INTEGER) STRICT;"
    "INSERT INTO event SELECT * FROM kept; DROP TABLE kept;"
    "PRAGMA user_version = 1";

/* One process, whose blocks have call sites: `export` writes their frames. */
static const char blocks_sql[] =
    "DELETE FROM event WHERE pid <> 500;"
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES (1, 'main', 'a.py', 3, NULL, 1, 0),"
    "    (2, 'step', 'a.py', 7, NULL, 1, 0), (3, 'alloc', 'b.c', 9, '/lib/b.so', 0, 0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 1, NULL), (2, 1, 2, NULL), (3, 2, 3, 64), (4, 2, 3, 72);"
    "INSERT INTO callsite(id, node_id, depth) VALUES (1, 3, 3), (2, 4, 3), (3, 1, 1), (4, NULL, 0);"
    "UPDATE event SET callsite_id = 1 + seq % 4, ring_seq = seq;";

static void make(const char *const *scripts, const char *sql)
{
    char *bytes;
    size_t count;

    unlink("new.db");
    trace_database_make("new.db", scripts);
    if (sql != NULL) {
        sql_run("new.db", sql);
    }
    bytes = file_read("new.db", &count);
    file_write("old.db", bytes, count);
    free(bytes);
    sql_run("old.db", older_sql);
}

/* What says which version it is, and how large a file, which nobody compares. */
static void hide(char *text)
{
    static const char *const words[] = {"\"schema_version\":", "\"file_bytes\":", "  file ", "new.db",
                                        "old.db"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (char *at = text; (at = strstr(at, words[i])) != NULL;) {
            size_t length = strcspn(at + 1, ",}\n\" ") + 1;

            length = i == 2 ? strcspn(at, "\n") : i < 2 ? strcspn(at, ",}\n") : length;
            memset(at, '-', length);
            memmove(at + 1, at + length, strlen(at + length) + 1);
        }
    }
}

/* `arguments`: NULL stands for the database. */
static void expect_equal(const char *const *arguments, size_t count)
{
    const char *lines[2][8];
    struct command_outcome outcomes[2];

    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < count; j++) {
            lines[i][j] = arguments[j] != NULL ? arguments[j] : i == 0 ? "new.db" : "old.db";
        }
        lines[i][count] = NULL;
        outcomes[i] = command_run_list(lines[i]);
        assert_int_equal(outcomes[i].status, 0);
        hide(outcomes[i].out);
    }
    assert_true(strlen(outcomes[0].out) > 0);
    assert_string_equal(outcomes[0].out, outcomes[1].out);
    command_outcome_free(&outcomes[0]);
    command_outcome_free(&outcomes[1]);
}

#define EXPECT_EQUAL(...)                            \
    expect_equal((const char *const[]){__VA_ARGS__}, \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_answers(void **state)
{
    static const char *const small[] = {"small.sql", NULL};

    (void)state;
    make(small, NULL);
    EXPECT_EQUAL("report", NULL);
    EXPECT_EQUAL("report", "--json", NULL);
    EXPECT_EQUAL("leaks", NULL);
    EXPECT_EQUAL("leaks", "--json", NULL);
    EXPECT_EQUAL("peak", NULL);
    EXPECT_EQUAL("info", "--json", NULL);
    EXPECT_EQUAL("query", NULL, "SELECT * FROM frame ORDER BY callsite_id, depth");
    EXPECT_EQUAL(
        "query", NULL,
        "SELECT domain, bytes, function, depth FROM callsite_total JOIN frame USING(callsite_id, function)");
}

static void test_export(void **state)
{
    static const char *const blocks[] = {"blocks.sql", NULL};
    char *files[2];
    size_t bytes[2];

    (void)state;
    make(blocks, blocks_sql);
    for (int i = 0; i < 2; i++) {
        struct command_outcome outcome =
            command_run("export", i == 0 ? "new.db" : "old.db", "--force", "-o", "out.pickle", NULL);

        assert_int_equal(outcome.status, 0);
        command_outcome_free(&outcome);
        files[i] = file_read("out.pickle", &bytes[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(files[0], files[1], bytes[0]);
    assert_non_null(memmem(files[0], bytes[0], "b.c", 3));
    free(files[0]);
    free(files[1]);
}

static void expect_status(int status, const char *const *arguments, const char *word)
{
    struct command_outcome outcome = command_run_list(arguments);

    assert_int_equal(outcome.status, status);
    assert_non_null(strstr(outcome.out, word));
    command_outcome_free(&outcome);
}

/* Stacks of both kinds are compared frame by frame. */
static void test_diff(void **state)
{
    static const char *const small[] = {"small.sql", NULL};
    static const char *const blocks[] = {"blocks.sql", NULL};
    static const char *const pairs[][2] = {{"old.db", "new.db"}, {"new.db", "old.db"}, {"old.db", "old.db"}};

    (void)state;
    make(small, NULL);
    for (size_t i = 0; i < 3; i++) {
        expect_status(0, (const char *const[]){"diff", "--json", pairs[i][0], pairs[i][1], NULL},
                      "\"callsites\":[]");
    }
    make(blocks, blocks_sql);
    for (size_t i = 0; i < 3; i++) {
        expect_status(0, (const char *const[]){"diff", "--events", "--json", pairs[i][0], pairs[i][1], NULL},
                      "\"equal\":true");
    }
    sql_run("old.db", "UPDATE callsite_frame SET pc = 65 WHERE callsite_id = 1 AND depth = 0");
    expect_status(1, (const char *const[]){"diff", "--events", "new.db", "old.db", NULL},
                  "frame 0 pc  0x40  0x41");
    sql_run("old.db", "DELETE FROM callsite_frame WHERE callsite_id = 2");
    expect_status(1, (const char *const[]){"diff", "--events", "--json", "new.db", "old.db", NULL},
                  "\"callsites_differing\":2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_diff),
    };

    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
