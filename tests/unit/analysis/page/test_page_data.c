/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the page. What was live at each moment, of random allocations: every line of every series against a sum
 * in SQL over the view `allocation`; what each call site allocated and freed until then, likewise. The map of
 * addresses, of more random allocations than it shows exactly: those that it shows are the largest by size times
 * lifetime, and a cell of its raster is as full as all others make it, one by one. JSON inside HTML: nothing in a name
 * ends its element or its string; long names are cut between characters; equal names have one number.
 * Costs: 2 s, full 4 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/query.h"
#include "support/random.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/page/page_writer.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANDOM "random.db"
#define ROUNDS 8

/* ---- what was live ---- */

static uint64_t random_state;

/* ?1: how many events. A third is never freed; of the others either free may be missing. Not every event has a
 * sample. */
static const char random_sql[] =
    "INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', ''), (2, 'mmap', '');"
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) INSERT INTO symbol(id, function, "
    "is_python, "
    "is_inlined) SELECT i, 'f' || i, 0, 0 FROM n;"
    "INSERT INTO callsite(id, depth, symbol_id, user_symbol_id) SELECT id, 1, 1 + below(5), iif(below(2), 1, NULL) "
    "FROM symbol;"
    "CREATE TEMP TABLE e AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 + below(3) FROM n WHERE i < "
    "(SELECT v FROM x)) "
    "SELECT i FROM n; INSERT INTO sample SELECT 0, 1, 0, i, i * i * 10, 0, 0, NULL, NULL, NULL, 0 FROM e;"
    "CREATE TEMP TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT i, "
    "1 + below((SELECT v FROM x)) AS at, below((SELECT v FROM x)) AS lived, below(3) > 0 AS freed FROM n;"
    "INSERT INTO allocation(id, domain, pid, tid, device, addr, size, requested, alloc_seq, free_requested_seq, "
    "free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary) SELECT i, iif(below(2), 1, "
    "below(8)), 1, 1, "
    "below(2), i * 4096, below(100000), 1, at, iif(freed AND below(4), at + lived, NULL), iif(freed AND below(4), at "
    "+ lived + "
    "below(9), NULL), at * 1000, iif(freed, 999999, NULL), iif(below(4), 1 + below(6), NULL), 16, 1 + below(3), 0 "
    "FROM a";

static void make_database(int64_t events)
{
    char sql[100];
    remove(RANDOM);
    trace_database_make(RANDOM, (const char *const[]){NULL});
    sqlite3 *db = query_open_random(RANDOM, &random_state);

    snprintf(sql, sizeof(sql), "CREATE TEMP TABLE x AS SELECT %" PRId64 " AS v", events);
    query_run(db, sql);
    query_run(db, random_sql);
    sqlite3_close(db);
}

static int64_t naive(struct database *database, const struct live_series *series, int64_t line, int64_t seq)
{
    struct cursor cursor;
    int64_t bytes = 0;
    cursor_open(
        &cursor, database,
        "SELECT sum(a.size) FROM allocation a LEFT JOIN callsite c ON c.id = a.callsite_id WHERE a.domain = ?1 "
        "AND a.process_id = ?2 AND coalesce(a.device, 0) = ?3 AND coalesce(c.user_symbol_id, c.symbol_id, 0) = ?4 "
        "AND a.alloc_seq <= ?5 AND coalesce(a.free_requested_seq, a.free_completed_seq, 9223372036854775807) > ?5");
    cursor_bind_integer(&cursor, 1, series->domain);
    cursor_bind_integer(&cursor, 2, series->process_id);
    cursor_bind_integer(&cursor, 3, series->device);
    cursor_bind_integer(&cursor, 4, line);
    cursor_bind_integer(&cursor, 5, seq);
    if (cursor_next(&cursor)) {
        bytes = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return bytes;
}

static void check(struct live *live, struct database *database)
{
    for (size_t moment = 0; moment < live->moment_count; moment++) {
        int64_t all = 0;
        assert_true(moment == 0 || live->moments[moment - 1].seq < live->moments[moment].seq);
        for (size_t i = 0; i < live->row_count; i++) {
            const struct live_row *row = &live->rows[i];
            assert_int_equal(row->bytes[moment],
                             naive(database, &live->series[row->series], row->line, live->moments[moment].seq));
            all += row->bytes[moment];
        }
        char sql[300];
        snprintf(sql, sizeof(sql),
                 "SELECT sum(size) FROM allocation WHERE domain <> 7 AND alloc_seq <= %" PRId64
                 " AND coalesce(free_requested_seq, free_completed_seq, 9223372036854775807) > %" PRId64,
                 live->moments[moment].seq, live->moments[moment].seq);
        assert_int_equal(all, database_integer(database, sql, 0)); /* no line is missing */
    }
}

/* ---- what each call site allocated and freed ---- */

static int64_t naive_span(struct database *database, const struct spans_row *row, const char *figure, int64_t seq)
{
    char sql[600];
    snprintf(sql, sizeof(sql),
             "SELECT coalesce(sum(%s), 0) FROM (SELECT size, alloc_seq, free_ns, coalesce(free_requested_seq, "
             "free_completed_seq, 9223372036854775807) AS freed FROM allocation WHERE domain = %" PRId64
             " AND process_id = %" PRId64 " AND coalesce(device, 0) = %" PRId64 " AND tid = %" PRId64
             " AND coalesce((SELECT c.id FROM callsite c WHERE c.id = callsite_id), 0) = %" PRId64 "), (SELECT %" PRId64
             " AS seq)",
             figure, row->domain, row->process_id, row->device, row->thread, row->callsite, seq);
    return database_integer(database, sql, -1);
}

static void check_spans(const struct spans *spans, const struct live *live, struct database *database)
{
    int64_t made_of_all = 0;
    for (size_t i = 0; i < spans->row_count; i++) {
        const struct spans_row *row = &spans->rows[i];
        int64_t made = 0, freed = 0;
        size_t at = row->cells_begin;
        for (size_t moment = 0; moment < live->moment_count; moment++) {
            const int64_t seq = live->moments[moment].seq;
            for (; at < row->cells_end && spans->cells[at].moment <= moment; at++) {
                made += spans->cells[at].made;
                freed += spans->cells[at].freed;
            }
            assert_int_equal(made, naive_span(database, row, "(alloc_seq <= seq) * size", seq));
            assert_int_equal(made - freed, naive_span(database, row, "(alloc_seq <= seq AND freed > seq) * size", seq));
        }
        assert_int_equal(row->made, naive_span(database, row, "size", 0));
        assert_int_equal(row->left, naive_span(database, row, "(free_ns IS NULL) * size", 0));
        made_of_all += row->made;
    }
    assert_int_equal(made_of_all, database_integer(database, "SELECT sum(size) FROM allocation WHERE domain <> 7", 0));
}

TEST(test_spans)
{
    random_state = test_first_seed(2);
    for (int round = 0; round < test_rounds(ROUNDS / 4, ROUNDS); round++) {
        make_database(1 + (int64_t)random_below(&random_state, 600));
        struct database *database;
        struct varve_message message;
        assert_int_equal(database_open(RANDOM, DATABASE_ANY, &database, &message), VARVE_OK);
        struct live live;
        struct spans spans;
        live_init(&live, database);
        spans_init(&spans, &live, database);
        page_allocations_visit(database, spans_add, &spans);
        spans_finish(&spans);
        check_spans(&spans, &live, database);
        assert_int_equal(database_error(database, &message), 0);
        spans_free(&spans);
        live_free(&live);
        database_close(database);
    }
}

TEST(test_random)
{
    random_state = test_first_seed(1);
    for (int round = 0; round < test_rounds(ROUNDS / 4, ROUNDS); round++) {
        make_database(round == 0 ? 1 : 1 + (int64_t)random_below(&random_state, 600));
        struct database *database;
        struct varve_message message;
        assert_int_equal(database_open(RANDOM, DATABASE_ANY, &database, &message), VARVE_OK);
        struct live live;
        live_init(&live, database);
        assert_true(live.moment_count > 0 && live.moment_count <= LIVE_MOMENTS_MAX);
        page_allocations_visit(database, live_add, &live);
        live_finish(&live);
        check(&live, database);
        assert_int_equal(database_error(database, &message), 0);
        live_free(&live);
        database_close(database);
    }
}

/* ---- addresses ---- */

#define DATABASE "map.db"
#define COUNT (ADDRESS_MAP_BLOCKS_MAX + 4000)
#define BEGIN_ADDR UINT64_C(0x7f0000000000)
#define SPAN (UINT64_C(32) << 20) /* of addresses; a multiple of the pages of the heap's bands */
#define END_NS INT64_C(124976963) /* END_NS / (END_NS / 400.0) is more than 400 in binary */

static struct page_allocation allocations[COUNT];
static double raster[ADDRESS_MAP_LINES][ADDRESS_MAP_COLUMNS];

static double weight(const struct page_allocation *one)
{
    int64_t end = one->free_ns < END_NS ? one->free_ns : END_NS;
    return (double)one->size * ((double)(end - one->alloc_ns) + 1);
}

static int compare_weight(const void *left, const void *right)
{
    double a = weight(left), b = weight(right);
    return (a < b) - (a > b);
}

static double overlap(double from, double to, double begin, double end)
{
    double low = from > begin ? from : begin, high = to < end ? to : end;
    return high > low ? high - low : 0;
}

static void fill_naively(const struct page_allocation *one)
{
    double line_bytes = (double)SPAN / ADDRESS_MAP_LINES, column_ns = (double)END_NS / ADDRESS_MAP_COLUMNS;
    double begin = (double)(one->addr - BEGIN_ADDR), end = begin + (double)one->size;
    double end_ns = (double)(one->free_ns < END_NS ? one->free_ns : END_NS);
    for (int line = 0; line < ADDRESS_MAP_LINES; line++) {
        double bytes = overlap(line * line_bytes, (line + 1) * line_bytes, begin, end);
        for (int column = 0; bytes > 0 && column < ADDRESS_MAP_COLUMNS; column++) {
            raster[line][column] +=
                bytes * overlap(column * column_ns, (column + 1) * column_ns, (double)one->alloc_ns, end_ns) /
                (line_bytes * column_ns);
        }
    }
}

/* The array that is the member `key`. */
static const char *find_array(const char *json, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof(quoted), "\"%s\":[", key);
    const char *found = strstr(json, quoted);
    assert_non_null(found);
    return found + strlen(quoted);
}

static int64_t next_number(const char **text)
{
    char *end;
    int64_t number = strtoll(*text, &end, 10);
    assert_true(end != *text);
    *text = end + 1;
    return number;
}

static void check_blocks(const char *json)
{
    const char *text = find_array(json, "blocks");
    double sum = 0, expected = 0;
    int64_t begin = 0;
    for (int i = 0; i < ADDRESS_MAP_BLOCKS_MAX; i++) {
        int64_t place = next_number(&text), size = next_number(&text);
        assert_true(place >= 0 && place + size <= (int64_t)SPAN);
        begin += next_number(&text);
        int64_t lifetime = next_number(&text);
        lifetime = lifetime == -1 ? END_NS - begin : lifetime; /* never freed */
        assert_true(lifetime >= 0);
        sum += (double)size * ((double)lifetime + 1);
        next_number(&text);
        next_number(&text);
        next_number(&text);
        expected += weight(&allocations[i]);
    }
    assert_true(text[-1] == ']');
    assert_true(fabs(sum - expected) <= expected * 1e-9);
}

static void check_raster(const char *json)
{
    const char *text = find_array(json, "raster");
    int64_t run = 0, value = 0;
    int full = 0;
    for (int line = 0; line < ADDRESS_MAP_LINES; line++) {
        for (int column = 0; column < ADDRESS_MAP_COLUMNS; column++) {
            double share = raster[line][column] * 99 > 99 ? 99 : raster[line][column] * 99;
            if (run == 0) {
                run = next_number(&text);
                value = next_number(&text);
            }
            if (fabs((double)value - share) > 1.001) {
                fail_msg("line %d, column %d: %d and not %f", line, column, (int)value, share);
            }
            full += share > 5 ? 1 : 0;
            run--;
        }
    }
    assert_int_equal(run, 0);
    assert_true(text[-1] == ']' && full > 1000);
}

/* None of the blocks has a stack. */
static void write_maps(struct address_maps *maps, struct database *database, struct page_writer *writer)
{
    const struct live live = {.moment_count = 0};
    struct spans spans;
    struct page_stacks stacks;
    struct page_writer nowhere;
    char *text;
    size_t bytes;
    FILE *out = memory_stream(&text, &bytes);
    page_writer_init(&nowhere, out);
    spans_init(&spans, &live, database);
    page_stacks_init(&stacks, database);
    struct page_places *places = spans_write(&spans, maps, database, &nowhere, &stacks);
    address_maps_write(maps, database, writer, places);
    page_places_free(places);
    page_stacks_free(&stacks);
    spans_free(&spans);
    page_writer_free(&nowhere);
    memory_stream_end(out, &text);
    free(text);
}

TEST(test_largest_and_raster)
{
    uint64_t random = test_first_seed(1);
    char *json;
    size_t bytes;
    FILE *out = memory_stream(&json, &bytes);
    trace_database_make(DATABASE, (const char *const[]){NULL});
    sql_run(DATABASE, "INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', '');"
                      "INSERT INTO meta VALUES ('duration_ns', 124976963);"
                      "INSERT INTO total_stat VALUES (1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0)");
    for (int i = 0; i < COUNT; i++) {
        struct page_allocation *one = &allocations[i];
        *one = (struct page_allocation){.domain = 1, .process_id = 1, .alloc_seq = i};
        one->size = 100000 + random_below(&random, 200000);
        one->addr = BEGIN_ADDR + random_below(&random, SPAN - one->size);
        one->alloc_ns = (int64_t)random_below(&random, (uint64_t)END_NS);
        one->free_ns = one->alloc_ns + (int64_t)random_below(&random, (uint64_t)(END_NS - one->alloc_ns) / 8 + 1);
        /* most of those are live for long, and shown exactly: of the last ones some are in the raster */
        one->free_ns = i % 4 == 0 ? PAGE_NEVER : one->free_ns;
    }
    /* as only a damaged file has them: they are nowhere in the raster, whose cells others keep */
    allocations[1].alloc_ns = allocations[2].alloc_ns = END_NS + 1;
    allocations[1].free_ns = PAGE_NEVER;
    allocations[2].free_ns = END_NS + 2;
    allocations[3].alloc_ns = END_NS;
    allocations[3].free_ns = PAGE_NEVER;
    allocations[5].free_ns = -END_NS;
    allocations[6].alloc_ns = -1;
    allocations[6].free_ns = 1;
    /* so that there is one band, which begins and ends where it should */
    allocations[0].addr = BEGIN_ADDR;
    allocations[0].size = SPAN;
    struct database *database;
    struct varve_message message;
    /* the bands come from the database */
    char sql[200];
    snprintf(sql, sizeof(sql),
             "INSERT INTO allocation_row(domain, offset, size, process_id, alloc_seq, alloc_ns) VALUES (1, %" PRIu64
             ", %" PRIu64 ", 1, 1, 1)",
             (uint64_t)BEGIN_ADDR, (uint64_t)SPAN);
    sql_run(DATABASE, sql);
    assert_int_equal(database_open(DATABASE, DATABASE_ANY, &database, &message), VARVE_OK);
    struct address_maps maps;
    address_maps_init(&maps, database);
    assert_int_equal(maps.count, 1);
    address_maps_find(&maps, database);
    for (int i = 0; i < COUNT; i++) {
        address_maps_fill(&maps, &allocations[i]);
    }
    struct page_writer writer;
    page_writer_init(&writer, out);
    write_maps(&maps, database, &writer);
    page_writer_free(&writer);
    memory_stream_end(out, &json);
    qsort(allocations, COUNT, sizeof(allocations[0]), compare_weight);
    for (int i = ADDRESS_MAP_BLOCKS_MAX; i < COUNT; i++) {
        fill_naively(&allocations[i]);
    }
    check_blocks(json);
    check_raster(json);
    address_maps_free(&maps);
    assert_int_equal(database_error(database, &message), 0);
    database_close(database);
    free(json);
}

/* ---- JSON ---- */

/* Owner: the caller, by free. */
static char *written(const char *text)
{
    char *out;
    size_t bytes;
    struct page_writer writer;
    FILE *stream = memory_stream(&out, &bytes);
    page_writer_init(&writer, stream);
    page_text(&writer, text);
    page_writer_free(&writer);
    memory_stream_end(stream, &out);
    return out;
}

static void expect(const char *text, const char *json)
{
    char *out = written(text);
    assert_string_equal(out, json);
    free(out);
}

TEST(test_text)
{
    expect("plain, \xc3\xa9", "\"plain, \xc3\xa9\"");
    expect("</script><!--&", "\"\\u003c/script\\u003e\\u003c!--\\u0026\"");
    expect("\"\\\n\t\x1b\x7f", "\"\\u0022\\u005c\\u000a\\u0009\\u001b\\u007f\"");
    expect("a\xe2\x80\xa8\xe2\x80\xa9z", "\"a\\u2028\\u2029z\"");
    expect("\xff\xc3(\xed\xa0\x80", "\"\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\"");
    expect("\xc2\x80", "\"\\u0080\"");
    expect(NULL, "null");
}

/* Whatever the bytes: no '<', no control character, no byte that is no UTF-8, and no quotation mark but at the ends. */
TEST(test_any_bytes)
{
    uint64_t random = test_first_seed(1);
    for (int round = 0; round < 2000; round++) {
        char text[64] = {0};
        size_t length = random_below(&random, sizeof(text) - 1);
        for (size_t i = 0; i < length; i++) {
            text[i] = (char)(1 + random_below(&random, 255));
        }
        char *out = written(text);
        length = strlen(out);
        assert_true(length >= 2 && out[0] == '"' && out[length - 1] == '"');
        for (size_t i = 1; i + 1 < length; i++) {
            assert_null(memchr("\"<>&", out[i], 4));
            assert_true((unsigned char)out[i] >= 0x20);
        }
        free(out);
    }
}

TEST(test_long_names_are_cut)
{
    char *text = memory_resize(NULL, (1 << 20) + 1);
    for (size_t before = 0; before < 4; before++) {
        for (size_t i = 0; i < 1 << 20; i++) {
            text[i] = i < before ? 'a' : "\xf0\x9f\x8c\xb2"[(i - before) % 4];
        }
        text[1 << 20] = '\0';
        char *out = written(text);
        assert_true(strlen(out) <= PAGE_NAME_BYTES_MAX + 5);
        assert_non_null(strstr(out, "\x9f\x8c\xb2\xe2\x80\xa6\"")); /* whole characters, and an ellipsis */
        assert_null(strstr(out, "fffd"));
        free(out);
    }
    free(text);
}

TEST(test_names_and_deltas)
{
    static const char *const names[] = {"one", "two", "one", NULL, ""};
    static const int64_t numbers[] = {5, 7, 3, INT64_MAX, INT64_MIN};
    char *out;
    size_t bytes;
    struct page_writer writer;
    FILE *stream = memory_stream(&out, &bytes);
    page_writer_init(&writer, stream);
    page_open(&writer, '[');
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        page_name(&writer, names[i]);
    }
    page_close(&writer, ']');
    page_names(&writer); /* equal ones have one number */
    page_open(&writer, '{');
    page_member_deltas(&writer, "a", numbers, 3);
    page_member_deltas(&writer, "none", numbers, 0);
    page_member_deltas(&writer, "wide", numbers + 3, 2);
    page_close(&writer, '}');
    page_writer_free(&writer);
    memory_stream_end(stream, &out);
    assert_string_equal(out, "[0,1,0,-1,2],[\"one\",\"two\",\"\"],"
                             "{\"a\":[5,2,-4],\"none\":[],\"wide\":[9223372036854775807,1]}");
    free(out);
}

TEST(test_html)
{
    char *out;
    size_t bytes;
    FILE *stream = memory_stream(&out, &bytes);
    page_html(stream, "<b a=\"1\">&\\\n\x01\xff</b>");
    memory_stream_end(stream, &out);
    assert_string_equal(out, "&#60;b a=&#34;1&#34;&#62;&#38;&#92;\n\xef\xbf\xbd\xef\xbf\xbd&#60;/b&#62;");
    free(out);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
