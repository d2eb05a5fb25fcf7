/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

/* Of a call site: its innermost frame, and that of the user's line. */
struct page_place {
    uint32_t leaf, line; /* call_tree_source */
    bool is_import;
};

struct page_places {
    struct page_stacks *stacks;
    struct database *database;
    struct cursor callsites;
    struct page_place *items;
    size_t count, capacity;
    struct map of_callsite; /* index into items */
    uint32_t *numbers;      /* by call_tree_source: 1 + the page's; 0: not in the page */
    size_t limit;
};

struct page_places *page_places_begin(struct database *database, struct page_stacks *stacks)
{
    struct page_places *places = memory_resize(NULL, sizeof(*places));
    *places = (struct page_places){.stacks = stacks, .database = database};
    cursor_open(&places->callsites, database, sql_page_stack_of_callsite);
    return places;
}

void page_places_add(void *places_untyped, int64_t callsite)
{
    struct page_places *places = places_untyped;
    struct call_tree_stacks *stacks = &places->stacks->stacks;
    if (map_find(&places->of_callsite, (uint64_t)callsite) != MAP_NONE) {
        return;
    }
    cursor_bind_integer(&places->callsites, 1, callsite);
    const bool has_stack = cursor_next(&places->callsites);
    const int64_t node = has_stack ? cursor_integer(&places->callsites, 0) : 0;
    const int64_t line = has_stack ? cursor_integer(&places->callsites, 1) : 0;
    cursor_reset(&places->callsites);
    map_put(&places->of_callsite, (uint64_t)callsite, places->count);
    places->items = memory_grow(places->items, &places->capacity, places->count, sizeof(places->items[0]));
    places->items[places->count++] =
        (struct page_place){call_tree_source(stacks, node, line, false), call_tree_source(stacks, node, line, true),
                            call_tree_is_import(stacks, node)};
}

/* Callers have smaller numbers than what they call, in the page too. */
static void places_number(struct page_places *places)
{
    uint32_t symbol;
    places->limit = places->stacks->stacks.source_count;
    places->numbers = memory_resize(NULL, places->limit * sizeof(places->numbers[0]));
    memset(places->numbers, 0, places->limit * sizeof(places->numbers[0]));
    for (size_t i = 0; i < places->count; i++) {
        for (uint32_t at = places->items[i].leaf; at != 0 && places->numbers[at] == 0;
             at = call_tree_source_caller(&places->stacks->stacks, at, &symbol)) {
            places->numbers[at] = 1;
        }
    }
    uint32_t next = 2; /* the root is the first */
    for (size_t i = 1; i < places->limit; i++) {
        places->numbers[i] = places->numbers[i] != 0 ? next++ : 0;
    }
    places->numbers[0] = 1;
}

static void write_new_frames(struct page_writer *writer, const struct page_places *places)
{
    struct page_stacks *stacks = places->stacks;
    struct cursor cursor;
    page_key(writer, "new_frames");
    page_open(writer, '[');
    cursor_open(&cursor, places->database, sql_symbol);
    for (uint32_t i = 1; i < places->limit; i++) {
        uint32_t symbol;
        size_t number;
        (void)call_tree_source_caller(&stacks->stacks, i, &symbol);
        if (places->numbers[i] != 0 && page_frame_number(stacks, symbol, &number)) {
            struct call_tree_frame frame;
            call_tree_frame_read(&stacks->stacks, &cursor, symbol, &frame);
            page_frame_write(writer, &frame);
            call_tree_frame_free(&frame);
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

/* Of each node how many nodes back its caller is, and its frame; the root has none. */
static void write_nodes(struct page_writer *writer, const struct page_places *places)
{
    page_key(writer, "nodes");
    page_open(writer, '[');
    for (uint32_t i = 1; i < places->limit; i++) {
        uint32_t symbol;
        size_t frame;
        const uint32_t caller = call_tree_source_caller(&places->stacks->stacks, i, &symbol);
        if (places->numbers[i] != 0) {
            (void)page_frame_number(places->stacks, symbol, &frame);
            page_integer(writer, (int64_t)places->numbers[i] - (int64_t)places->numbers[caller]);
            page_integer(writer, (int64_t)frame);
        }
    }
    page_close(writer, ']');
}

void page_places_write(struct page_places *places, struct page_writer *writer)
{
    cursor_close(&places->callsites);
    places_number(places);
    write_new_frames(writer, places);
    write_nodes(writer, places);
}

uint32_t page_leaf(const struct page_places *places, int64_t callsite)
{
    const uint64_t found = map_find(&places->of_callsite, (uint64_t)callsite);
    return found != MAP_NONE ? places->numbers[places->items[found].leaf] - 1 : 0;
}

void page_place_write(struct page_writer *writer, const struct page_places *places, int64_t callsite)
{
    const uint64_t found = places != NULL ? map_find(&places->of_callsite, (uint64_t)callsite) : MAP_NONE;
    const struct page_place place = found != MAP_NONE ? places->items[found] : (struct page_place){0, 0, false};
    page_integer(writer, found != MAP_NONE ? places->numbers[place.leaf] - 1 : 0);
    page_integer(writer, found != MAP_NONE ? places->numbers[place.line] - 1 : 0);
    page_integer(writer, place.is_import ? 1 : 0);
}

void page_places_free(struct page_places *places)
{
    map_free(&places->of_callsite);
    free(places->items);
    free(places->numbers);
    free(places);
}
