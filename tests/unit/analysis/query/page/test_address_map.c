/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of addresses, of more random allocations than it shows exactly: those that it shows are the largest by size
 * times lifetime, and a cell of its raster is as full as all others make it, one by one.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/base/memory.h"
#include "analysis/query/db.h"
#include "analysis/query/page/address_map.h"
#include "analysis/query/page/allocations.h"
#include "analysis/query/page/writer.h"
#include "tests/support/command.h"
#include "tests/support/random.h"
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    assert_int_equal(database_open(DATABASE, DATABASE_ANY, &database, &message), VARVE_OK);
    struct address_maps maps;
    address_maps_init(&maps, database);
    assert_int_equal(maps.count, 1);
    for (int i = 0; i < COUNT; i++) {
        address_maps_find(&maps, &allocations[i]);
    }
    address_maps_settle(&maps, database);
    for (int i = 0; i < COUNT; i++) {
        address_maps_fill(&maps, &allocations[i]);
    }
    struct page_writer writer;
    page_writer_init(&writer, out);
    address_maps_write(&maps, database, &writer);
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

TEST_FILE(test_folder_setup, test_folder_teardown)
