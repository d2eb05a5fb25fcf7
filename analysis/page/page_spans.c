/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocation adds to two cells of its call site: where it was made and where it was freed. What was live at a moment
 * is the sum of all before; what was allocated between two is a sum as well. So the page makes a tree of any moment and
 * span, and a moment costs no more for five million allocations than for five.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

#define REST (-1)

/* ---- adding up ---- */

void spans_init(struct spans *spans, const struct live *live, struct database *database)
{
    *spans = (struct spans){.live = live, .process_limit = database_number_limit(database, "process")};
    spans->left_ns = memory_resize(NULL, (size_t)spans->process_limit * sizeof(spans->left_ns[0]));
    for (int64_t i = 0; i < spans->process_limit; i++) {
        spans->left_ns[i] = INT64_MAX;
    }
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT process_id, at_ns FROM leak_moment");
    while (cursor_next(&cursor)) {
        const int64_t process = cursor_integer(&cursor, 0);
        if (process >= 0 && process < spans->process_limit) {
            spans->left_ns[process] = cursor_integer(&cursor, 1);
        }
    }
    cursor_close(&cursor);
}

static bool is_left(const struct spans *spans, const struct page_allocation *allocation)
{
    const bool is_known = allocation->process_id >= 0 && allocation->process_id < spans->process_limit;
    const int64_t at_ns = is_known ? spans->left_ns[allocation->process_id] : INT64_MAX;
    return allocation->alloc_ns <= at_ns && (allocation->free_ns == PAGE_NEVER || allocation->free_ns > at_ns);
}

static bool is_row_of(const struct spans_row *row, const int64_t key[5])
{
    return row->domain == key[0] && row->process_id == key[1] && row->device == key[2] && row->thread == key[3] &&
           row->callsite == key[4];
}

static uint32_t spans_find_row(struct spans *spans, const struct page_allocation *allocation, int64_t thread,
                               int64_t callsite)
{
    const int64_t key[5] = {allocation->domain, allocation->process_id, allocation->device, thread, callsite};
    uint64_t hash = map_hash(key, sizeof(key));
    uint64_t found;
    for (; (found = map_find(&spans->row_numbers, hash)) != MAP_NONE; hash++) {
        if (is_row_of(&spans->rows[found], key)) {
            return (uint32_t)found;
        }
    }
    if (spans->row_count >= SPANS_ROWS_MAX && callsite != REST) {
        return spans_find_row(spans, allocation, thread, REST);
    }
    if (spans->row_count >= 2 * SPANS_ROWS_MAX) {
        return (uint32_t)spans->row_count - 1; /* only a damaged file has that many threads */
    }
    map_put(&spans->row_numbers, hash, spans->row_count);
    spans->rows = memory_grow(spans->rows, &spans->row_capacity, spans->row_count, sizeof(spans->rows[0]));
    spans->rows[spans->row_count] = (struct spans_row){
        .domain = key[0], .process_id = key[1], .device = key[2], .thread = key[3], .callsite = key[4]};
    return (uint32_t)spans->row_count++;
}

static struct spans_cell *find_cell(struct spans *spans, uint32_t row, size_t moment)
{
    const uint64_t key = (uint64_t)row << 16 | (uint64_t)moment;
    const uint64_t found = map_find(&spans->cell_numbers, key);
    if (found != MAP_NONE) {
        return &spans->cells[found];
    }
    map_put(&spans->cell_numbers, key, spans->cell_count);
    spans->cells = memory_grow(spans->cells, &spans->cell_capacity, spans->cell_count, sizeof(spans->cells[0]));
    spans->cells[spans->cell_count] = (struct spans_cell){.row = row, .moment = (uint32_t)moment};
    return &spans->cells[spans->cell_count++];
}

static int64_t difference_wrapping(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

void spans_add(void *spans_untyped, const struct page_allocation *allocation)
{
    struct spans *spans = spans_untyped;
    const uint32_t row = spans_find_row(spans, allocation, allocation->thread, allocation->callsite);
    const int64_t size = (int64_t)allocation->size;
    struct spans_cell *made = find_cell(spans, row, live_moment_of(spans->live, allocation->alloc_seq));
    made->made = sum_wrapping(made->made, size);
    spans->rows[row].made = sum_wrapping(spans->rows[row].made, size);
    spans->rows[row].left = sum_wrapping(spans->rows[row].left, is_left(spans, allocation) ? size : 0);
    if (allocation->free_seq != PAGE_NEVER) {
        struct spans_cell *freed = find_cell(spans, row, live_moment_of(spans->live, allocation->free_seq));
        freed->freed = sum_wrapping(freed->freed, size);
    }
}

static int compare_cells(const void *left, const void *right)
{
    const struct spans_cell *a = left, *b = right;
    return a->row != b->row ? (a->row > b->row) - (a->row < b->row) : (a->moment > b->moment) - (a->moment < b->moment);
}

void spans_finish(struct spans *spans)
{
    map_free(&spans->cell_numbers);
    if (spans->cell_count > 0) {
        qsort(spans->cells, spans->cell_count, sizeof(spans->cells[0]), compare_cells);
    }
    for (size_t i = 0; i < spans->cell_count;) {
        struct spans_row *row = &spans->rows[spans->cells[i].row];
        int64_t live = 0;
        row->cells_begin = i;
        for (; i < spans->cell_count && &spans->rows[spans->cells[i].row] == row; i++) {
            live = sum_wrapping(live, difference_wrapping(spans->cells[i].made, spans->cells[i].freed));
            row->live_most = live > row->live_most ? live : row->live_most;
        }
        row->cells_end = i;
    }
}

void spans_free(struct spans *spans)
{
    free(spans->rows);
    free(spans->cells);
    free(spans->left_ns);
    map_free(&spans->row_numbers);
    map_free(&spans->cell_numbers);
    *spans = (struct spans){0};
}

/* ---- which rows are shown ---- */

struct weighed {
    double weight; /* the largest part that it has of its domain: allocated in all, or live */
    uint32_t row;
};

static int compare_weights(const void *left, const void *right)
{
    const struct weighed *a = left, *b = right;
    return a->weight != b->weight ? (a->weight < b->weight) - (a->weight > b->weight)
                                  : (a->row > b->row) - (a->row < b->row);
}

struct spans_domain {
    int64_t domain;
    double made, live_most;
};

static struct spans_domain *find_domain(struct spans_domain *domains, size_t *count, size_t limit, int64_t domain)
{
    size_t i = 0;
    while (i < *count && domains[i].domain != domain) {
        i++;
    }
    if (i == *count && i < limit) {
        domains[(*count)++] = (struct spans_domain){.domain = domain};
    }
    return &domains[i < limit ? i : limit - 1];
}

static void weigh(const struct spans *spans, struct weighed *weighed)
{
    struct spans_domain domains[32];
    size_t count = 0;
    for (size_t i = 0; i < spans->row_count; i++) {
        struct spans_domain *domain = find_domain(domains, &count, 32, spans->rows[i].domain);
        domain->made += (double)spans->rows[i].made;
        domain->live_most += (double)spans->rows[i].live_most;
    }
    for (size_t i = 0; i < spans->row_count; i++) {
        const struct spans_domain *domain = find_domain(domains, &count, 32, spans->rows[i].domain);
        const double made = (double)spans->rows[i].made / (domain->made + 1);
        const double live = (double)spans->rows[i].live_most / (domain->live_most + 1);
        weighed[i] = (struct weighed){made > live ? made : live, (uint32_t)i};
    }
    qsort(weighed, spans->row_count, sizeof(weighed[0]), compare_weights);
}

/* The heaviest, as many as there is room for. */
static bool *choose_rows(const struct spans *spans)
{
    struct weighed *weighed = memory_resize(NULL, (spans->row_count + 1) * sizeof(weighed[0]));
    bool *is_shown = memory_resize(NULL, spans->row_count + 1);
    size_t cells = 0, shown = 0;
    memset(is_shown, 0, spans->row_count + 1);
    if (spans->row_count > 0) {
        weigh(spans, weighed);
    }
    for (size_t i = 0; i < spans->row_count && shown < SPANS_SHOWN_MAX; i++) {
        const struct spans_row *row = &spans->rows[weighed[i].row];
        cells += row->cells_end - row->cells_begin;
        if (cells > SPANS_CELLS_MAX) {
            break;
        }
        if (row->callsite != REST) {
            is_shown[weighed[i].row] = true;
            shown++;
        }
    }
    free(weighed);
    return is_shown;
}

/* ---- rows ---- */

static void write_threads(struct page_writer *writer, struct database *database)
{
    struct cursor cursor;
    page_key(writer, "threads"); /* process, number, name */
    page_open(writer, '[');
    cursor_open(&cursor, database, sql_page_threads);
    cursor_bind_integer(&cursor, 1, SPANS_SHOWN_MAX);
    while (cursor_next(&cursor)) {
        page_integer(writer, cursor_integer(&cursor, 0));
        page_integer(writer, cursor_integer(&cursor, 1));
        page_name(writer, cursor_text(&cursor, 2));
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

/* `places`: NULL of a rest. */
static void write_row(struct page_writer *writer, const struct spans *spans, const struct spans_row *row,
                      const struct page_places *places)
{
    page_integer(writer, row->domain);
    page_integer(writer, row->process_id);
    page_integer(writer, row->device);
    page_integer(writer, row->thread);
    page_place_write(writer, places, row->callsite);
    page_integer(writer, row->left);
    page_integer(writer, (int64_t)(row->cells_end - row->cells_begin));
    int64_t before = 0;
    for (size_t i = row->cells_begin; i < row->cells_end; i++) {
        const struct spans_cell *cell = &spans->cells[i];
        page_integer(writer, cell->moment - before);
        page_integer(writer, cell->made);
        page_integer(writer, cell->freed);
        before = cell->moment;
    }
}

/* What a rest is put together by. */
enum rest_of {
    REST_OF_THREAD,
    REST_OF_PROCESS,
    REST_OF_DOMAIN,
    REST_OF_ALL, /* only a damaged file has that many domains */
};

static bool is_of_same(const struct spans_row *a, const struct spans_row *b, enum rest_of of)
{
    return of == REST_OF_ALL || (a->domain == b->domain && a->device == b->device &&
                                 (of == REST_OF_DOMAIN || (a->process_id == b->process_id &&
                                                           (of == REST_OF_PROCESS || a->thread == b->thread))));
}

/* All rows of the same that are not shown, as one; from the first of them on. They count as shown then. */
static void spans_write_rest(struct page_writer *writer, const struct spans *spans, bool *is_shown, size_t first,
                             enum rest_of of)
{
    struct spans_cell cells[LIVE_MOMENTS_MAX + 1] = {{0}};
    struct spans_row sum = spans->rows[first];
    sum.left = 0;
    sum.thread = of == REST_OF_THREAD ? sum.thread : 0;
    sum.process_id = of <= REST_OF_PROCESS ? sum.process_id : 0;
    for (size_t i = first; i < spans->row_count; i++) {
        const struct spans_row *row = &spans->rows[i];
        if (is_shown[i] || !is_of_same(row, &spans->rows[first], of)) {
            continue;
        }
        is_shown[i] = true;
        sum.left = sum_wrapping(sum.left, row->left);
        for (size_t at = row->cells_begin; at < row->cells_end; at++) {
            struct spans_cell *cell = &cells[spans->cells[at].moment];
            cell->made = sum_wrapping(cell->made, spans->cells[at].made);
            cell->freed = sum_wrapping(cell->freed, spans->cells[at].freed);
        }
    }
    const struct spans rest = {.cells = cells};
    sum.cells_begin = sum.cells_end = 0;
    for (uint32_t i = 0; i <= LIVE_MOMENTS_MAX; i++) {
        if (cells[i].made != 0 || cells[i].freed != 0) {
            const struct spans_cell cell = {0, i, cells[i].made, cells[i].freed};
            cells[sum.cells_end++] = cell;
        }
    }
    write_row(writer, &rest, &sum, NULL);
}

/* Those of the rows that are shown, and of the blocks of the maps. */
static struct page_places *spans_places(const struct spans *spans, const bool *is_shown,
                                        const struct address_maps *maps, struct database *database,
                                        struct page_stacks *stacks)
{
    struct page_places *places = page_places_begin(database, stacks);
    for (size_t i = 0; i < spans->row_count; i++) {
        if (is_shown[i]) {
            page_places_add(places, spans->rows[i].callsite);
        }
    }
    address_maps_each_callsite(maps, page_places_add, places);
    return places;
}

struct page_places *spans_write(const struct spans *spans, const struct address_maps *maps, struct database *database,
                                struct page_writer *writer, struct page_stacks *stacks)
{
    bool *is_shown = choose_rows(spans);
    struct page_places *places = spans_places(spans, is_shown, maps, database, stacks);
    page_open(writer, '{');
    write_threads(writer, database);
    page_places_write(places, writer);
    page_key(writer, "rows");
    page_open(writer, '[');
    for (size_t i = 0; i < spans->row_count; i++) {
        if (is_shown[i]) {
            write_row(writer, spans, &spans->rows[i], places);
        }
    }
    for (size_t i = 0, rests = 0; i < spans->row_count; i++) {
        if (!is_shown[i]) {
            const size_t of = rests++ / SPANS_RESTS_MAX;
            spans_write_rest(writer, spans, is_shown, i, of < REST_OF_ALL ? (enum rest_of)of : REST_OF_ALL);
        }
    }
    page_close(writer, ']');
    page_close(writer, '}');
    free(is_shown);
    return places;
}
