/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first pass over all allocations collects ranges of pages, which are sorted and joined whenever there are many. The
 * second, which the page makes for all of its parts, keeps the largest allocations in a heap whose root is the smallest
 * of them: what falls out goes into the raster, a cell of which has bytes times time. A raster line has running sums
 * over time while it is filled, so that an allocation costs as many steps as it has lines.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SHIFT_HOST 16   /* 64 KiB: bands of the heap and of mappings */
#define PAGE_SHIFT_DEVICE 21 /* 2 MiB, the granularity of device memory */
#define RANGES_JOINED 10000  /* they fit into a cache */
#define RECENT 1024
#define BANDS_MAX 20000
#define SEGMENTS_MAX 3000

/* Pages, the last one excluded; after address_maps_find with the place of the first byte. */
struct band {
    uint64_t from, to;
    double place;
};

struct address_map {
    int64_t domain, process_id, pid, device;
    char *domain_name;
    unsigned page_shift;
    struct band *bands;
    size_t band_count, band_capacity, joined_at;
    struct band recent[RECENT]; /* by the first page: most ranges were there a moment ago */
    double height;              /* bytes of all bands */
    struct page_allocation *blocks;
    double *weights; /* of each: size times lifetime */
    size_t block_count;
    int64_t others;
    double *raster; /* ADDRESS_MAP_LINES of ADDRESS_MAP_COLUMNS + 1 */
};

void address_maps_init(struct address_maps *maps, struct database *database)
{
    *maps = (struct address_maps){.end_ns = report_duration_ns(database)};
    maps->end_ns += maps->end_ns == 0 ? 1 : 0;
    maps->maps = memory_resize(NULL, ADDRESS_MAPS_MAX * sizeof(maps->maps[0]));
    struct cursor cursor;
    /* the maps of blocks first: the order of the page's menu */
    cursor_open(&cursor, database, sql_page_address_spaces);
    cursor_bind_integer(&cursor, 1, ADDRESS_MAPS_MAX);
    while (cursor_next(&cursor)) {
        struct address_map *map = &maps->maps[maps->count++];
        const char *name = cursor_name(&cursor, 4);
        bool is_device = strcmp(name, "block") == 0 || strcmp(name, "device") == 0;
        *map = (struct address_map){
            .domain = cursor_integer(&cursor, 0),
            .process_id = cursor_integer(&cursor, 1),
            .pid = cursor_integer(&cursor, 2),
            .device = cursor_integer(&cursor, 3),
            .domain_name = memory_copy_text(name),
            .page_shift = is_device ? PAGE_SHIFT_DEVICE : PAGE_SHIFT_HOST,
            .joined_at = RANGES_JOINED,
        };
    }
    cursor_close(&cursor);
}

static struct address_map *find_map(struct address_maps *maps, int64_t domain, int64_t process_id, int64_t device)
{
    for (size_t i = 0; i < maps->count; i++) {
        struct address_map *map = &maps->maps[i];
        if (map->domain == domain && map->process_id == process_id && map->device == device) {
            return map;
        }
    }
    return NULL;
}

/* ---- bands ---- */

static int compare_bands(const void *left, const void *right)
{
    const struct band *a = left, *b = right;
    return (a->from > b->from) - (a->from < b->from);
}

static void join_bands(struct address_map *map)
{
    if (map->band_count == 0) {
        return;
    }
    qsort(map->bands, map->band_count, sizeof(map->bands[0]), compare_bands);
    size_t kept = 0;
    for (size_t i = 1; i < map->band_count; i++) {
        if (map->bands[i].from <= map->bands[kept].to) {
            map->bands[kept].to = map->bands[i].to > map->bands[kept].to ? map->bands[i].to : map->bands[kept].to;
        } else {
            map->bands[++kept] = map->bands[i];
        }
    }
    map->band_count = kept + 1;
    map->joined_at = 2 * map->band_count > RANGES_JOINED ? 2 * map->band_count : RANGES_JOINED;
}

static void add_range(struct address_map *map, uint64_t addr, uint64_t size)
{
    struct band band = {.from = addr >> map->page_shift};
    uint64_t last = size > 0 ? addr + (size - 1) : addr;
    last = last < addr ? UINT64_MAX : last;
    band.to = (last >> map->page_shift) + 1;
    struct band *recent = &map->recent[band.from % RECENT];
    if (band.from >= recent->from && band.to <= recent->to) {
        return;
    }
    *recent = band;
    if (map->band_count >= map->joined_at) {
        join_bands(map);
    }
    map->bands = memory_grow(map->bands, &map->band_capacity, map->band_count, sizeof(map->bands[0]));
    map->bands[map->band_count++] = band;
}

static void page_addresses_add_allocations(struct address_maps *maps, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_ranges);
    while (cursor_next(&cursor)) {
        struct address_map *map =
            find_map(maps, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1), cursor_integer(&cursor, 2));
        int64_t size = cursor_integer(&cursor, 4);
        if (map != NULL) {
            add_range(map, (uint64_t)cursor_integer(&cursor, 3), size > 0 ? (uint64_t)size : 0);
        }
    }
    cursor_close(&cursor);
}

/* A segment is all of its memory, whether blocks were in it or not. */
static void page_addresses_add_segments(struct address_map *map, struct database *database)
{
    struct cursor cursor;
    cursor_open(
        &cursor, database,
        "SELECT addr, size FROM segment WHERE process_id = ?1 AND device = ?2 AND addr IS NOT NULL AND size > 0");
    cursor_bind_integer(&cursor, 1, map->process_id);
    cursor_bind_integer(&cursor, 2, map->device);
    while (strcmp(map->domain_name, "block") == 0 && cursor_next(&cursor)) {
        add_range(map, (uint64_t)cursor_integer(&cursor, 0), (uint64_t)cursor_integer(&cursor, 1));
    }
    cursor_close(&cursor);
}

void address_maps_find(struct address_maps *maps, struct database *database)
{
    page_addresses_add_allocations(maps, database);
    for (size_t i = 0; i < maps->count; i++) {
        struct address_map *map = &maps->maps[i];
        double page = ldexp(1, (int)map->page_shift);
        size_t cells = (size_t)ADDRESS_MAP_LINES * (ADDRESS_MAP_COLUMNS + 1);
        page_addresses_add_segments(map, database);
        join_bands(map);
        map->band_count = map->band_count > BANDS_MAX ? BANDS_MAX : map->band_count;
        for (size_t band = 0; band < map->band_count; band++) {
            map->bands[band].place = map->height;
            map->height += (double)(map->bands[band].to - map->bands[band].from) * page;
        }
        map->blocks = memory_resize(NULL, ADDRESS_MAP_BLOCKS_MAX * sizeof(map->blocks[0]));
        map->weights = memory_resize(NULL, ADDRESS_MAP_BLOCKS_MAX * sizeof(map->weights[0]));
        map->raster = memory_resize(NULL, cells * sizeof(map->raster[0]));
        memset(map->raster, 0, cells * sizeof(map->raster[0]));
    }
}

/* Where an address lies in the bands one above the other; < 0: in none. */
static double find_place(const struct address_map *map, uint64_t addr)
{
    uint64_t page = addr >> map->page_shift;
    size_t low = 0, high = map->band_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->bands[middle].to <= page) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == map->band_count || map->bands[low].from > page) {
        return -1;
    }
    return map->bands[low].place + (double)(addr - (map->bands[low].from << map->page_shift));
}

/* ---- the raster ---- */

static int64_t end_of(const struct address_maps *maps, const struct page_allocation *allocation)
{
    return allocation->free_ns < maps->end_ns ? allocation->free_ns : maps->end_ns;
}

/* Adds `bytes` from one time to another to a line: whole columns by a difference, the first and the
 * last by their share. */
static void add_to_line(double *line, double from, double to, double bytes)
{
    int first = (int)from, last = (int)to;
    if (first == last) {
        line[first] += bytes * (to - from);
        line[first + 1] -= bytes * (to - from);
        return;
    }
    line[first] += bytes * (first + 1 - from);
    line[first + 1] += bytes - bytes * (first + 1 - from);
    line[last] += bytes * (to - last) - bytes;
    line[last + 1 > ADDRESS_MAP_COLUMNS ? ADDRESS_MAP_COLUMNS : last + 1] -= bytes * (to - last);
}

static void add_to_raster(const struct address_maps *maps, struct address_map *map, const struct page_allocation *block)
{
    double place = find_place(map, block->addr);
    double line_bytes = map->height / ADDRESS_MAP_LINES;
    double column_ns = (double)maps->end_ns / ADDRESS_MAP_COLUMNS;
    double from = (double)block->alloc_ns / column_ns;
    double to = (double)end_of(maps, block) / column_ns;
    double end = place + (double)block->size;
    map->others++;
    /* the end of the recording may come out of the division a little above the last column: it is of that
     * column all the same */
    to = to > ADDRESS_MAP_COLUMNS - 1e-9 ? ADDRESS_MAP_COLUMNS - 1e-9 : to;
    if (place < 0 || !(from >= 0 && from < to)) {
        return;
    }
    end = end > map->height ? map->height : end;
    for (int line = (int)(place / line_bytes); line < ADDRESS_MAP_LINES && line * line_bytes < end; line++) {
        double low = place > line * line_bytes ? place : line * line_bytes;
        double high = end < (line + 1) * line_bytes ? end : (line + 1) * line_bytes;
        if (high > low) {
            add_to_line(&map->raster[line * (ADDRESS_MAP_COLUMNS + 1)], from, to, high - low);
        }
    }
}

/* ---- the largest ---- */

static void swap_blocks(struct address_map *map, size_t a, size_t b)
{
    struct page_allocation block = map->blocks[a];
    double weight = map->weights[a];
    map->blocks[a] = map->blocks[b];
    map->weights[a] = map->weights[b];
    map->blocks[b] = block;
    map->weights[b] = weight;
}

static void page_addresses_sift_up(struct address_map *map, size_t at)
{
    while (at > 0 && map->weights[at] < map->weights[(at - 1) / 2]) {
        swap_blocks(map, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static void page_addresses_sift_down(struct address_map *map)
{
    size_t at = 0;
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < map->block_count; child++) {
            least = map->weights[child] < map->weights[least] ? child : least;
        }
        if (least == at) {
            return;
        }
        swap_blocks(map, at, least);
        at = least;
    }
}

void address_maps_fill(void *maps_untyped, const struct page_allocation *allocation)
{
    struct address_maps *maps = maps_untyped;
    struct address_map *map = find_map(maps, allocation->domain, allocation->process_id, allocation->device);
    if (map == NULL) {
        return;
    }
    double weight = (double)allocation->size * ((double)end_of(maps, allocation) - (double)allocation->alloc_ns + 1);
    if (map->block_count < ADDRESS_MAP_BLOCKS_MAX) {
        map->blocks[map->block_count] = *allocation;
        map->weights[map->block_count] = weight;
        page_addresses_sift_up(map, map->block_count++);
    } else if (weight > map->weights[0]) {
        add_to_raster(maps, map, &map->blocks[0]);
        map->blocks[0] = *allocation;
        map->weights[0] = weight;
        page_addresses_sift_down(map);
    } else {
        add_to_raster(maps, map, allocation);
    }
}

/* ---- writing ---- */

static int page_addresses_compare_begin(const void *left, const void *right)
{
    const struct page_allocation *a = left, *b = right;
    return a->alloc_ns != b->alloc_ns     ? (a->alloc_ns > b->alloc_ns) - (a->alloc_ns < b->alloc_ns)
           : a->alloc_seq != b->alloc_seq ? (a->alloc_seq > b->alloc_seq) - (a->alloc_seq < b->alloc_seq)
                                          : (a->addr > b->addr) - (a->addr < b->addr);
}

static void page_addresses_write_bands(const struct address_map *map, struct page_writer *writer)
{
    page_key(writer, "bands"); /* first address, bytes */
    page_open(writer, '[');
    for (size_t i = 0; i < map->band_count; i++) {
        char addr[24];
        snprintf(addr, sizeof(addr), "%#" PRIx64, map->bands[i].from << map->page_shift);
        page_text(writer, addr);
        page_integer(writer, (int64_t)((map->bands[i].to - map->bands[i].from) << map->page_shift));
    }
    page_close(writer, ']');
}

static void page_addresses_write_segments(const struct address_maps *maps, const struct address_map *map,
                                          struct database *database, struct page_writer *writer)
{
    page_key(writer, "segments"); /* place, bytes, begin, end, stream, pool */
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_largest_segments);
    cursor_bind_integer(&cursor, 1, map->process_id);
    cursor_bind_integer(&cursor, 2, map->device);
    cursor_bind_integer(&cursor, 3, SEGMENTS_MAX);
    while (strcmp(map->domain_name, "block") == 0 && cursor_next(&cursor)) {
        double place = find_place(map, (uint64_t)cursor_integer(&cursor, 0));
        if (place >= 0) {
            page_integer(writer, (int64_t)place);
            page_integer(writer, cursor_integer(&cursor, 1));
            page_integer(writer, cursor_integer(&cursor, 2));
            page_integer(writer, cursor_is_null(&cursor, 3) ? maps->end_ns : cursor_integer(&cursor, 3));
            page_integer(writer, cursor_integer(&cursor, 4));
            page_integer(writer, cursor_integer(&cursor, 5));
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

/* The lines of the blocks, each once: their number here is that in `blocks`. */
static void page_addresses_write_lines(struct database *database, struct page_writer *writer, const int64_t *lines,
                                       size_t count)
{
    page_key(writer, "lines"); /* function, file, line */
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database, sql_place_of_symbol);
    for (size_t i = 0; i < count; i++) {
        cursor_reset(&cursor);
        cursor_bind_integer(&cursor, 1, lines[i]);
        if (cursor_next(&cursor)) {
            page_name(writer, cursor_text(&cursor, 0));
            page_name(writer, cursor_text(&cursor, 1));
            page_integer(writer, cursor_integer(&cursor, 2));
        } else {
            page_integer(writer, -1);
            page_integer(writer, -1);
            page_integer(writer, 0);
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

static void page_addresses_write_blocks(const struct address_maps *maps, struct address_map *map,
                                        struct database *database, struct page_writer *writer,
                                        const struct page_places *places)
{
    int64_t *lines = memory_resize(NULL, (map->block_count + 1) * sizeof(lines[0]));
    if (map->block_count > 0) {
        qsort(map->blocks, map->block_count, sizeof(map->blocks[0]), page_addresses_compare_begin);
    }
    /* place, bytes, begin less the one before, lifetime (-1: never freed), stream, line, node of its stack */
    page_key(writer, "blocks");
    page_open(writer, '[');
    struct map numbers = {0};
    size_t line_count = 0;
    int64_t before = 0;
    for (size_t i = 0; i < map->block_count; i++) {
        const struct page_allocation *block = &map->blocks[i];
        double place = find_place(map, block->addr);
        uint64_t number = map_find(&numbers, (uint64_t)block->line);
        if (number == MAP_NONE) {
            number = line_count;
            map_put(&numbers, (uint64_t)block->line, number);
            lines[line_count++] = block->line;
        }
        page_integer(writer, (int64_t)place);
        page_integer(writer, (int64_t)block->size);
        page_integer(writer, (int64_t)((uint64_t)block->alloc_ns - (uint64_t)before));
        page_integer(writer, block->free_ns == PAGE_NEVER
                                 ? -1
                                 : (int64_t)((uint64_t)end_of(maps, block) - (uint64_t)block->alloc_ns));
        page_integer(writer, block->stream);
        page_integer(writer, (int64_t)number);
        page_integer(writer, page_leaf(places, block->callsite));
        before = block->alloc_ns;
    }
    page_close(writer, ']');
    page_addresses_write_lines(database, writer, lines, line_count);
    map_free(&numbers);
    free(lines);
}

/* How full each cell was, from 0 to 99; a line after the other, runs of one value as their length and the value. */
static void write_raster(const struct address_map *map, struct page_writer *writer)
{
    double whole = map->height / ADDRESS_MAP_LINES;
    page_key(writer, "raster");
    page_open(writer, '[');
    int64_t run = 0, before = -1;
    for (int line = 0; line < ADDRESS_MAP_LINES; line++) {
        double sum = 0;
        for (int column = 0; column < ADDRESS_MAP_COLUMNS; column++) {
            sum += map->raster[line * (ADDRESS_MAP_COLUMNS + 1) + column];
            double share = whole > 0 ? sum / whole * 99 : 0;
            int64_t value = share > 99 ? 99 : share > 0.001 ? (int64_t)ceil(share) : 0;
            if (value != before && run > 0) {
                page_integer(writer, run);
                page_integer(writer, before);
                run = 0;
            }
            before = value;
            run++;
        }
    }
    page_integer(writer, run);
    page_integer(writer, before);
    page_close(writer, ']');
}

void address_maps_each_callsite(const struct address_maps *maps, void (*take)(void *context, int64_t callsite),
                                void *context)
{
    for (size_t i = 0; i < maps->count; i++) {
        for (size_t k = 0; k < maps->maps[i].block_count; k++) {
            take(context, maps->maps[i].blocks[k].callsite);
        }
    }
}

void address_maps_write(struct address_maps *maps, struct database *database, struct page_writer *writer,
                        const struct page_places *places)
{
    page_open(writer, '[');
    for (size_t i = 0; i < maps->count; i++) {
        struct address_map *map = &maps->maps[i];
        page_open(writer, '{');
        page_member_text(writer, "domain", map->domain_name);
        page_member_integer(writer, "process", map->process_id);
        page_member_integer(writer, "pid", map->pid);
        page_member_integer(writer, "device", map->device);
        page_member_integer(writer, "end", maps->end_ns);
        page_member_integer(writer, "others", map->others);
        page_member_integer(writer, "columns", ADDRESS_MAP_COLUMNS);
        page_addresses_write_bands(map, writer);
        page_addresses_write_segments(maps, map, database, writer);
        page_addresses_write_blocks(maps, map, database, writer, places);
        if (map->others > 0) {
            write_raster(map, writer);
        }
        page_close(writer, '}');
    }
    page_close(writer, ']');
}

void address_maps_free(struct address_maps *maps)
{
    for (size_t i = 0; i < maps->count; i++) {
        free(maps->maps[i].domain_name);
        free(maps->maps[i].bands);
        free(maps->maps[i].blocks);
        free(maps->maps[i].weights);
        free(maps->maps[i].raster);
    }
    free(maps->maps);
    *maps = (struct address_maps){0};
}
