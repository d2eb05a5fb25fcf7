/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: a trace database with any values in any cells and any bytes in its file, asked by
 * commands that read one. Each ends with 0, or with 2 and one line. The input chooses one of the golden
 * databases and changes it, eight bytes a change, so that it is seldom refused for its first page.
 */
#include "fuzz/target.h"

#include "analysis/analysis.h"
#include "support/command.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHANGE_BYTES 8U
#define CHANGES_MAX 32U
#define TABLES_MAX 64
#define COLUMNS_MAX 32

static const char *const scripts[] = {"small.sql", "blocks.sql", "gpu.sql", "lossy.sql"};
#define DATABASES (sizeof(scripts) / sizeof(scripts[0]))
static char folder[] = "/tmp/varve-fuzz-XXXXXX";
static char database_path[64];

/* NULL: the database */
static const char *const questions[][6] = {
    {"info", NULL},
    {"report", NULL},
    {"report", NULL, "--json"},
    {"report", NULL, "--html", "-"},
    {"leaks", NULL},
    {"peak", NULL, "--json"},
    {"timeline", NULL},
    {"segments", NULL, "--at=40"},
    {"oom", NULL},
    {"query", NULL, "SELECT * FROM events"},
    {"query", NULL, "SELECT * FROM frame"},
    {"diff", NULL, database_path},
    {"check", NULL, "--leak-score=0.1", "--against", database_path},
    {"replay", NULL},
    {"export", NULL, "--to=speedscope", "--output=-"},
    {"export", NULL, "--to=pprof", "--output=-"},
    {"export", NULL, "--to=perfetto", "--output=-"},
};

static char *whole[DATABASES];
static size_t whole_bytes[DATABASES];
static char tables[TABLES_MAX][64];
static char columns[TABLES_MAX][COLUMNS_MAX][64];
static unsigned table_count, column_counts[TABLES_MAX];

static void clean(void)
{
    unlink(database_path);
    rmdir(folder);
    for (size_t i = 0; i < DATABASES; i++) {
        free(whole[i]);
    }
}

static void read_schema(sqlite3 *database)
{
    static const char sql[] = "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c "
                              "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' ORDER BY m.name, c.cid";
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(statement, 0);
        if (table_count == 0 || strcmp(tables[table_count - 1], table) != 0) {
            check(table_count < TABLES_MAX);
            snprintf(tables[table_count++], sizeof(tables[0]), "%s", table);
        }
        check(column_counts[table_count - 1] < COLUMNS_MAX);
        snprintf(columns[table_count - 1][column_counts[table_count - 1]++], sizeof(columns[0][0]), "%s",
                 (const char *)sqlite3_column_text(statement, 1));
    }
    sqlite3_finalize(statement);
}

static void prepare(void)
{
    check(mkdtemp(folder) != NULL);
    snprintf(database_path, sizeof(database_path), "%s/x.db", folder);
    for (size_t i = 0; i < DATABASES; i++) {
        const char *const script[] = {scripts[i], NULL};
        unlink(database_path);
        trace_database_make(database_path, script);
        whole[i] = file_read(database_path, &whole_bytes[i]);
    }
    sqlite3 *database;
    check(sqlite3_open(database_path, &database) == SQLITE_OK);
    read_schema(database);
    check(sqlite3_close(database) == SQLITE_OK);
    atexit(clean);
}

static uint32_t number_at(const uint8_t *bytes, unsigned count)
{
    uint32_t number = 0;
    for (unsigned i = 0; i < count; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* table, column, row, what: NULL, a number near zero or near the limits, text, bytes; SQLite may refuse it.
 */
static void change_cell(sqlite3 *database, const uint8_t *change)
{
    static const char *const values[] = {"NULL",
                                         "%d",
                                         "-%d",
                                         "9223372036854775807 - %d",
                                         "-9223372036854775807 + %d",
                                         "'%d\x1b[2J'",
                                         "zeroblob(%d)",
                                         "4294967295 + %d",
                                         "1 << (%d %% 64)",
                                         "''"};
    unsigned table = change[1] % table_count;
    const char *column = columns[table][change[2] % column_counts[table]];
    char value[128];
    const char *format = values[change[4] % (sizeof(values) / sizeof(values[0]))];
    const char *at = strstr(format, "%d");
    snprintf(value, sizeof(value), "%.*s", at != NULL ? (int)(at - format) : (int)strlen(format), format);
    if (at != NULL) {
        size_t used = strlen(value);
        snprintf(value + used, sizeof(value) - used, "%u%s", number_at(change + 5, 2),
                 strcmp(at, "%d %% 64)") == 0 ? " % 64)" : at + 2);
    }
    char sql[512];
    snprintf(sql, sizeof(sql),
             "UPDATE OR IGNORE \"%s\" SET \"%s\" = %s WHERE (\"%s\") IS (SELECT \"%s\" FROM "
             "\"%s\" LIMIT 1 OFFSET %u)",
             tables[table], column, value, column, column, tables[table], change[3]);
    sqlite3_exec(database, sql, NULL, NULL, NULL);
}

static void make(size_t number, const uint8_t *data, size_t size)
{
    size_t changes = size / CHANGE_BYTES < CHANGES_MAX ? size / CHANGE_BYTES : CHANGES_MAX;
    file_write(database_path, whole[number], whole_bytes[number]);
    sqlite3 *database;
    check(sqlite3_open(database_path, &database) == SQLITE_OK);
    sqlite3_exec(database, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN", NULL, NULL, NULL);
    for (size_t i = 0; i < changes; i++) {
        if (data[i * CHANGE_BYTES] % 4 != 0) {
            change_cell(database, data + i * CHANGE_BYTES);
        }
    }
    sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(database);
    int file = open(database_path, O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < changes; i++) {
        const uint8_t *change = data + i * CHANGE_BYTES;
        if (change[0] % 4 == 0) { /* bytes of the file: where, how many, which */
            check(pwrite(file, change + 4, 1 + change[4] % 4, (off_t)(number_at(change + 1, 3) % whole_bytes[number])) >
                  0);
        }
    }
    close(file);
}

/* Protocol buffers are for no terminal, and may have any byte. */
static bool is_binary(const char *const *words)
{
    return words[2] != NULL && (strcmp(words[2], "--to=pprof") == 0 || strcmp(words[2], "--to=perfetto") == 0);
}

static void ask(const char *const *words)
{
    char *arguments[8] = {(char *)(uintptr_t) "varve", (char *)(uintptr_t)words[0], database_path,
                          (char *)(uintptr_t) "--timeout=2"}; /* a damaged index may have no end */
    int count = 4;
    char *out_text = NULL, *err_text = NULL;
    size_t out_bytes = 0, err_bytes = 0;
    FILE *out = open_memstream(&out_text, &out_bytes);
    FILE *err = open_memstream(&err_text, &err_bytes);
    check(out != NULL && err != NULL);
    for (unsigned i = 2; words[i] != NULL; i++) {
        arguments[count++] = (char *)(uintptr_t)words[i];
    }
    int status = varve_command_run(count, arguments, out, err);
    fclose(out);
    fclose(err);
    const bool may_break = strcmp(words[0], "check") == 0; /* a limit */
    check(status == 0 || status == 2 || (status == 1 && may_break));
    if (status == 2) {
        char *end = strchr(err_text, '\n');
        check(end != NULL && end[1] == '\0');
    }
    check(is_binary(words) || memchr(out_text, '\x1b', out_bytes) == NULL);
    check(memchr(err_text, '\x1b', err_bytes) == NULL);
    free(out_text);
    free(err_text);
}

/* The first byte chooses the database and the question. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned choice = size > 0 ? data[0] : 0;
    if (database_path[0] == '\0') {
        prepare();
    }
    make(choice % DATABASES, data + (size > 0), size - (size > 0));
    ask(questions[choice / DATABASES % (sizeof(questions) / sizeof(questions[0]))]);
    return 0;
}
