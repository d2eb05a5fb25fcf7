/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of Arrow: a naive reader of its buffers, written after the specification, finds in a table of all types
 * what SQLite says itself, whatever the size of batches and with and without a key; and hostile values, wrong types and
 * wrong statements.
 * Costs: 1 s
 * Reads damaged input: databases with other types than their schema says, and text that is no UTF-8.
 */
#include "tests/cmocka.h"

#include "analysis/export/export_arrow.h"

#include "tests/support/command.h"
#include "base/error.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "trace.db"

/* ---- a stream, read as the specification says ---- */

struct reading {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct varve_message message;
};

static int try_open(struct reading *reading, struct varve_query_options options)
{
    memset(reading, 0, sizeof(*reading));
    if (options.batch_rows == 0) {
        options.batch_rows = 64;
    }
    return varve_query_arrow(PATH, &options, &reading->stream, &reading->message);
}

static void open_stream(struct reading *reading, struct varve_query_options options)
{
    int error = try_open(reading, options);
    if (error != VARVE_OK) {
        fail_msg("%s: %s", options.sql, reading->message.text);
    }
    assert_int_equal(reading->stream.get_schema(&reading->stream, &reading->schema), 0);
    assert_string_equal(reading->schema.format, "+s");
}

static void close_stream(struct reading *reading)
{
    reading->schema.release(&reading->schema);
    assert_null(reading->schema.release);
    reading->stream.release(&reading->stream);
    assert_null(reading->stream.release);
}

static bool is_valid(const struct ArrowArray *array, int64_t row)
{
    const uint8_t *bits = array->buffers[0];
    return bits == NULL || (bits[row / 8] >> row % 8 & 1) != 0;
}

/* What must hold for any array of the format. */
static void check_array(const struct ArrowArray *array, char format, int64_t length)
{
    int64_t nulls = 0;
    assert_int_equal(array->length, length);
    assert_int_equal(array->offset, 0);
    assert_int_equal(array->n_buffers, format == 'u' || format == 'z' ? 3 : 2);
    assert_int_equal(array->n_children, 0);
    for (int64_t row = 0; row < length; row++) {
        nulls += !is_valid(array, row);
    }
    assert_int_equal(array->null_count, nulls);
    if (format == 'u' || format == 'z') {
        const int32_t *offsets = array->buffers[1];
        const char *bytes = array->buffers[2];
        assert_int_equal(offsets[0], 0);
        for (int64_t row = 0; row < length; row++) {
            assert_true(offsets[row] <= offsets[row + 1]);
            for (int32_t at = offsets[row]; format == 'u' && at < offsets[row + 1];) {
                size_t sequence = varve_utf8_length(bytes + at, (size_t)(offsets[row + 1] - at));
                assert_true(sequence > 0);
                at += (int32_t)sequence;
            }
        }
    }
}

/* A value in words, with its type; `bytes`: NULL is none. */
static void put(FILE *out, char format, int64_t integer, double real, const void *bytes, int count)
{
    if (format == 'l') {
        fprintf(out, " %" PRId64, integer);
    } else if (format == 'g') {
        fprintf(out, " %.17g", real);
    } else {
        fputs(" '", out);
        fwrite(bytes != NULL ? bytes : "", 1, (size_t)count, out);
        fputc('\'', out);
    }
}

static void put_value(FILE *out, const struct ArrowArray *array, char format, int64_t row)
{
    if (!is_valid(array, row)) {
        fputs(" NULL", out);
    } else if (format == 'l' || format == 'g') {
        put(out, format, format == 'l' ? ((const int64_t *)array->buffers[1])[row] : 0,
            format == 'g' ? ((const double *)array->buffers[1])[row] : 0, NULL, 0);
    } else {
        const int32_t *offsets = array->buffers[1];
        put(out, format, 0, 0, (const char *)array->buffers[2] + offsets[row], offsets[row + 1] - offsets[row]);
    }
}

/* All rows in words; the error of the last batch, 0: none. Every second batch loses a column to its consumer first. */
static char *read_all(struct reading *reading, int64_t batch_rows, int *error_out)
{
    struct ArrowArray batch;
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int number = 0;
         (*error_out = reading->stream.get_next(&reading->stream, &batch)) == 0 && batch.release != NULL; number++) {
        struct ArrowArray moved = {.release = NULL};
        assert_in_range(batch.length, 1, batch_rows);
        assert_int_equal(batch.n_children, reading->schema.n_children);
        for (int64_t i = 0; i < batch.n_children; i++) {
            check_array(batch.children[i], reading->schema.children[i]->format[0], batch.length);
        }
        for (int64_t row = 0; row < batch.length; row++) {
            for (int64_t i = 0; i < batch.n_children; i++) {
                put_value(out, batch.children[i], reading->schema.children[i]->format[0], row);
            }
            fputc('\n', out);
        }
        if (number % 2 == 0) {
            moved = *batch.children[0];
            batch.children[0]->release = NULL;
        }
        batch.release(&batch);
        assert_null(batch.release);
        if (moved.release != NULL) {
            moved.release(&moved);
        }
    }
    fclose(out);
    return text;
}

/* The same by SQLite, for columns of these formats. */
static char *rows_by_sqlite(const char *sql, const char *formats)
{
    sqlite3 *sqlite;
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_int_equal(sqlite3_open_v2(PATH, &sqlite, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(sqlite, sql, -1, &statement, NULL), SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < (int)strlen(formats); i++) {
            const void *value = strchr("uz", formats[i]) != NULL ? sqlite3_column_blob(statement, i) : NULL;
            if (sqlite3_column_type(statement, i) == SQLITE_NULL) {
                fputs(" NULL", out);
            } else {
                put(out, formats[i], sqlite3_column_int64(statement, i), sqlite3_column_double(statement, i), value,
                    sqlite3_column_bytes(statement, i));
            }
        }
        fputc('\n', out);
    }
    sqlite3_finalize(statement);
    sqlite3_close(sqlite);
    fclose(out);
    return text;
}

static void expect_formats(const struct reading *reading, const char *formats)
{
    assert_int_equal(reading->schema.n_children, strlen(formats));
    for (int64_t i = 0; i < reading->schema.n_children; i++) {
        assert_int_equal(reading->schema.children[i]->format[0], formats[i]);
        assert_int_equal(reading->schema.children[i]->flags, ARROW_FLAG_NULLABLE);
    }
}

static void expect_same(struct varve_query_options options, const char *formats)
{
    struct reading reading;
    open_stream(&reading, options);
    expect_formats(&reading, formats);
    int error;
    char *found = read_all(&reading, options.batch_rows, &error);
    assert_int_equal(error, 0);
    char *expected = rows_by_sqlite(options.sql, formats);
    assert_string_equal(found, expected);
    free(found);
    free(expected);
    close_stream(&reading);
}

/* ---- cases ---- */

/* Column by column one type, or NULL: an integer primary key with gaps, up to the largest, integers, reals, text,
 * blobs. */
static void make_table(void)
{
    remove(PATH);
    trace_database_make(PATH, (const char *const[]){NULL});
    sql_run(PATH,
            "CREATE TABLE t(key INTEGER PRIMARY KEY, i INTEGER, r REAL, u TEXT, z BLOB, n);"
            "WITH RECURSIVE n(row, key) AS (SELECT 1, -9223372036854775808 UNION ALL SELECT row + 1, key + 1 + "
            "iif(row % 10, row % 3, 1 << (row % 55)) FROM n WHERE row < 299) INSERT INTO t SELECT key, "
            "iif(row * 7 % 4, (row - 150) * 61681415271219211, NULL), iif(row * 5 / 3 % 4, row * 1.7e300 / 3, NULL), "
            "iif(row % 4, substr(hex(row * 2654435761), 1, row % 40), NULL), "
            "iif(row / 2 % 4, CAST(substr(hex(row * 40503), 1, row % 30) AS BLOB), NULL), NULL FROM n;"
            "INSERT INTO t(key, i) VALUES (9223372036854775807, 7)");
}

TEST(test_tables)
{
    static const int64_t sizes[] = {1, 8, 9, 299, 300, 65536};
    make_table();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_same((struct varve_query_options){.sql = "SELECT * FROM t ORDER BY key", .batch_rows = sizes[i]},
                    "llguzl");
        expect_same((struct varve_query_options){.sql = "SELECT key, u, n, n, n FROM t",
                                                 .types = "luuzg",
                                                 .batch_rows = sizes[i]},
                    "luuzg");
        expect_same((struct varve_query_options){.sql = "SELECT i AS \"a\"\"b\", r, key FROM t",
                                                 .types = "lgl",
                                                 .batch_rows = sizes[i],
                                                 .key = "key",
                                                 .first = INT64_MIN,
                                                 .last = INT64_MAX},
                    "lgl");
    }
}

static void expect_text(const char *sql, const char *types, const char *formats, const char *expected)
{
    struct reading reading;
    open_stream(&reading, (struct varve_query_options){.sql = sql, .types = types});
    expect_formats(&reading, formats);
    int error;
    char *found = read_all(&reading, 64, &error);
    assert_int_equal(error, 0);
    assert_string_equal(found, expected);
    free(found);
    close_stream(&reading);
}

/* The types of a statement's columns are those that its first batch needs. */
TEST(test_inferred)
{
    expect_text("SELECT 1 UNION ALL SELECT NULL UNION ALL SELECT 2.5", NULL, "g", " 1\n NULL\n 2.5\n");
    expect_text("SELECT NULL UNION ALL SELECT 1 UNION ALL SELECT 'x' UNION ALL SELECT 2", NULL, "u",
                " NULL\n '1'\n 'x'\n '2'\n");
    expect_text("SELECT 0.1 UNION ALL SELECT 'x'", NULL, "u", " '0.10000000000000001'\n 'x'\n");
    expect_text("SELECT x'00ff' UNION ALL SELECT 'x'", "u", "u", " '00FF'\n 'x'\n");
    expect_text("SELECT 1 UNION ALL SELECT x'0f'", NULL, "u", " '1'\n '0F'\n");
    expect_text("SELECT 12 AS n, 3 AS m", "ug", "ug", " '12' 3\n");
    expect_text("SELECT count(*) FROM event WHERE 0", NULL, "l", " 0\n");
    expect_text("SELECT seq, addr FROM event", NULL, "ll", "");
}

TEST(test_texts)
{
    struct reading reading;
    static const char expected[] = "a\xEF\xBF\xBDz\0\xC3\xA9";
    open_stream(&reading, (struct varve_query_options){
                              .sql = "SELECT CAST(x'61ff7a00c3a9' AS TEXT), CAST(zeroblob(3000000) AS TEXT), ''"});
    struct ArrowArray batch;
    assert_int_equal(reading.stream.get_next(&reading.stream, &batch), 0);
    for (int i = 0; i < 3; i++) {
        check_array(batch.children[i], 'u', 1);
    }
    const int32_t *offsets = batch.children[0]->buffers[1];
    assert_int_equal(offsets[1], sizeof(expected) - 1);
    assert_memory_equal(batch.children[0]->buffers[2], expected, sizeof(expected) - 1);
    offsets = batch.children[1]->buffers[1];
    assert_int_equal(offsets[1], 3000000);
    batch.release(&batch);
    close_stream(&reading);
}

static const struct varve_query_value one = {.type = VARVE_QUERY_INTEGER, .integer = 1};

static const struct {
    struct varve_query_options options;
    int error;
    const char *word;
} refusals[] = {
    {{.sql = "DELETE FROM meta"}, VARVE_ERROR_PERMISSION, "read-only"},
    {{.sql = "SELECT 1; SELECT 2"}, VARVE_ERROR_INVALID, "one statement"},
    {{.sql = "  ; "}, VARVE_ERROR_INVALID, "one statement"},
    {{.sql = "SELECT nothing"}, VARVE_ERROR_INVALID, "nothing"},
    {{.sql = "SELECT ?"}, VARVE_ERROR_INVALID, "parameter"},
    {{.sql = "SELECT 1", .parameters = &one, .parameter_count = 1}, VARVE_ERROR_INVALID, "parameter"},
    {{.sql = "SELECT 1", .types = "ll"}, VARVE_ERROR_INVALID, "type"},
    {{.sql = "SELECT 1", .types = "x"}, VARVE_ERROR_INVALID, "type"},
    {{.sql = "SELECT 1", .batch_rows = -1}, VARVE_ERROR_INVALID, "rows"},
    {{.sql = "SELECT 'x'", .types = "l"}, VARVE_ERROR_DATABASE, "CAST"},
    {{.sql = "SELECT 1 AS a", .key = "a", .types = "u"}, VARVE_ERROR_INVALID, "key"},
    {{.sql = "SELECT 1 AS a", .key = "b", .types = "l"}, VARVE_ERROR_INVALID, "b"},
    {{.sql = "SELECT value AS a FROM json_each('[1,1,1]')", .key = "a", .types = "l", .batch_rows = 2, .last = 9},
     VARVE_ERROR_DATABASE,
     "twice"},
    {{.sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
      .timeout_ns = 20000000},
     VARVE_ERROR_DATABASE,
     "computing"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct reading reading;
        assert_int_equal(try_open(&reading, refusals[i].options), refusals[i].error);
        if (strstr(reading.message.text, refusals[i].word) == NULL) {
            fail_msg("no '%s' in: %s", refusals[i].word, reading.message.text);
        }
        assert_null(reading.stream.release);
    }
}

TEST(test_parameters)
{
    struct varve_query_value values[] = {{.type = VARVE_QUERY_INTEGER, .integer = INT64_MIN},
                                         {.type = VARVE_QUERY_REAL, .real = 0.5},
                                         {.type = VARVE_QUERY_TEXT, .text = "x"},
                                         {.type = VARVE_QUERY_NULL}};
    struct reading reading;
    open_stream(&reading,
                (struct varve_query_options){.sql = "SELECT ?, ?, ?, ?", .parameters = values, .parameter_count = 4});
    int error;
    char *found = read_all(&reading, 64, &error);
    assert_string_equal(found, " -9223372036854775808 0.5 'x' NULL\n");
    free(found);
    close_stream(&reading);
}

/* A later batch can't change the type: the stream ends there, and says at which row. */
TEST(test_late_conflict)
{
    struct reading reading;
    open_stream(&reading, (struct varve_query_options){.sql = "SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 'x'",
                                                       .batch_rows = 2});
    int error;
    char *found = read_all(&reading, 2, &error);
    assert_string_equal(found, " 1\n 2\n");
    assert_int_not_equal(error, 0);
    assert_non_null(strstr(reading.stream.get_last_error(&reading.stream), "row 3: column a has text among integers"));
    free(found);
    close_stream(&reading);
}

/* A consumer may stop at any time. */
TEST(test_left_early)
{
    struct reading reading;
    open_stream(&reading, (struct varve_query_options){.sql = "SELECT * FROM event_kind", .batch_rows = 1});
    close_stream(&reading);
    open_stream(&reading, (struct varve_query_options){.sql = "SELECT * FROM event_kind", .batch_rows = 1});
    struct ArrowArray batch;
    assert_int_equal(reading.stream.get_next(&reading.stream, &batch), 0);
    close_stream(&reading);
    check_array(batch.children[0], 'l', 1); /* lives on */
    batch.release(&batch);
}

static int setup(void **state)
{
    int result = test_folder_setup(state);
    if (result == 0) {
        trace_database_make(PATH, (const char *const[]){NULL});
        sql_run(PATH, "INSERT OR REPLACE INTO meta VALUES ('complete', 1)");
    }
    return result;
}

TEST_FILE(setup, test_folder_teardown)
