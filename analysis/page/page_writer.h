/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for a page, written as it is made: arrays of a million numbers never lie in memory. What it writes may stand
 * inside an element <script> of HTML. Names are in one table and written as their number there. One thread.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_WRITER_H
#define VARVE_ANALYSIS_PAGE_PAGE_WRITER_H

#include "analysis/base/key_map.h"
#include "analysis/report/call_tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE_NAME_BYTES_MAX 1000 /* of a name in the page: what is longer is cut, and ends with an ellipsis */
#define PAGE_NAMES_MAX 200000    /* what comes after these has no name */

/// A sum of what may be any numbers: the file may be damaged.
static inline int64_t sum_wrapping(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

struct page_writer {
    FILE *out;
    bool needs_comma; /* before the next value or key */
    struct map name_numbers;
    char **names;
    size_t name_count, name_capacity;
};

void page_writer_init(struct page_writer *writer, FILE *out);
void page_writer_free(struct page_writer *writer);

/* In an object each value comes behind its key. */
void page_open(struct page_writer *writer, char bracket); /* '{' or '[' */
void page_close(struct page_writer *writer, char bracket);
void page_key(struct page_writer *writer, const char *key);
void page_integer(struct page_writer *writer, int64_t number);
void page_null(struct page_writer *writer);
void page_text(struct page_writer *writer, const char *text); /* NULL is null */
void page_bool(struct page_writer *writer, bool value);
/// The number of a name, -1 of NULL.
void page_name(struct page_writer *writer, const char *text);
/// All names so far, as an array.
void page_names(struct page_writer *writer);

/* A key and its value. */
void page_member_integer(struct page_writer *writer, const char *key, int64_t number);
void page_member_text(struct page_writer *writer, const char *key, const char *text);
void page_member_bool(struct page_writer *writer, const char *key, bool value);
/// An array of numbers, each as its difference to the one before: they are small, and short.
void page_member_deltas(struct page_writer *writer, const char *key, const int64_t *numbers, size_t count);

/// All of a text in HTML. Control characters but ends of lines, and what is no UTF-8, become U+FFFD.
void page_html(FILE *out, const char *text);

/* What is embedded in each page: its style, its scripts in the order in which they run, and d3. */

extern const char page_css[];
extern const char page_d3[];             /* empty: it was not there when varve was built */
extern const char page_d3_licence[];     /* its text */
extern const char *const page_scripts[]; /* ends with NULL */

struct database;
struct page_allocation;
struct varve_message;

/* The stacks that all trees of the page are made of, and their frames, each of which is in the page once. */
struct page_stacks {
    struct call_tree_stacks stacks;
    struct map numbers; /* by symbol: among the frames that are written */
    uint32_t *symbols;  /* of each frame, by its number */
    size_t count, capacity;
};

void page_stacks_init(struct page_stacks *stacks, struct database *database);
void page_stacks_free(struct page_stacks *stacks);
/// The number of a frame in the page. True: it has just got it, and the caller owes page_frame_write, in this order.
bool page_frame_number(struct page_stacks *stacks, uint32_t symbol, size_t *number_out);
/// function, file, module, line, is it Python
void page_frame_write(struct page_writer *writer, const struct call_tree_frame *frame);

/* Where call sites are in a tree of stacks, whose nodes have numbers in the page. */

struct page_places;

/// Borrows both. Owner: the caller, by page_places_free.
struct page_places *page_places_begin(struct database *database, struct page_stacks *stacks);
/// A call site that will be asked for; once or more often.
void page_places_add(void *places, int64_t callsite);
/// After the last of them: members with the frames that the page has not had yet, and with the nodes.
void page_places_write(struct page_places *places, struct page_writer *writer);
/// The node of the innermost frame of such a call site; 0: it has none.
uint32_t page_leaf(const struct page_places *places, int64_t callsite);
/// That node, the one of the user's line (both 0: it has none, or `places` is NULL), and: is it of an import?
void page_place_write(struct page_writer *writer, const struct page_places *places, int64_t callsite);
void page_places_free(struct page_places *places);

/* Call trees of each domain by each metric, for the flame graph of the page. */

/// Errors: those of call_tree_load. What is below FLAME_NODES_MAX nodes is whole; larger trees leave out their smallest
/// parts, and say so.
int flame_write(struct database *database, struct page_writer *writer, struct page_stacks *stacks,
                struct varve_message *message);

/*
 * What the page draws over time: live bytes of each domain, resident memory, named phases, failures, and the ladder of
 * each caching allocator.
 */

void curves_write(struct database *database, struct page_writer *writer);
/// Reads every event; nothing where no allocator reserved anything.
void curves_ladder_write(struct database *database, struct page_writer *writer);

/*
 * What was live at some two hundred moments, by the user's line: the answer to a click on a moment. Exact at each of
 * them. A moment is a row of the view `timeline`, whose `allocated` is what the lines add up to, or the
 * peak of a domain.
 */

#define LIVE_MOMENTS_MAX 240
#define LIVE_ROWS_MAX 60000 /* series and lines: what comes after these counts as the rest of its series */

struct live_moment {
    int64_t seq, ts_ns;
};

/* What there is of a domain of a process on a device. */
struct live_series {
    int64_t domain, process_id, device;
};

/* A line in a series; line 0: no name is known; < 0: the rest of the series. */
struct live_row {
    uint32_t series;
    int64_t line;
    int64_t
        bytes[LIVE_MOMENTS_MAX + 1]; /* at each moment: while allocations are added, the difference to the one before */
};

struct live {
    struct live_moment moments[LIVE_MOMENTS_MAX];
    size_t moment_count;
    struct live_series *series;
    size_t series_count, series_capacity;
    struct live_row *rows;
    size_t row_count, row_capacity;
    struct map row_numbers;
};

/// The moments: evenly over time, evenly over events, and the peaks.
void live_init(struct live *live, struct database *database);
/// A page_allocation_visitor.
void live_add(void *live, const struct page_allocation *allocation);
/// The first moment that is not before `seq`; the number of moments if all are.
size_t live_moment_of(const struct live *live, int64_t seq);
/// Differences become bytes; after the last allocation.
void live_finish(struct live *live);
/// The largest lines of each moment, and the sum of all others.
void live_write(const struct live *live, struct database *database, struct page_writer *writer);
void live_free(struct live *live);

/*
 * Memory as addresses over time, for each process and device whose allocations need most: segments and the largest
 * allocations as rectangles, exactly; all others as how full each cell of a raster was. Addresses without memory are
 * left out: what is used of the address space lies in bands, one above the other.
 */

#define ADDRESS_MAPS_MAX 6
#define ADDRESS_MAP_BLOCKS_MAX 10000 /* that are shown exactly: the largest by size times lifetime */
#define ADDRESS_MAP_COLUMNS 400      /* of the raster: time */
#define ADDRESS_MAP_LINES 200        /* addresses */

struct address_map;

struct address_maps {
    struct address_map *maps;
    size_t count;
    int64_t end_ns;
};

/// Which maps there are: by peak, of the domains that are memory.
void address_maps_init(struct address_maps *maps, struct database *database);
/// The bands, of where each allocation and segment was: comes before the other allocations are added.
void address_maps_find(struct address_maps *maps, struct database *database);
/// A page_allocation_visitor.
void address_maps_fill(void *maps, const struct page_allocation *allocation);
/// Calls `take` for the call site of each block that is shown, once or more often.
void address_maps_each_callsite(const struct address_maps *maps, void (*take)(void *context, int64_t callsite),
                                void *context);
void address_maps_write(struct address_maps *maps, struct database *database, struct page_writer *writer,
                        const struct page_places *places);
void address_maps_free(struct address_maps *maps);

/*
 * What each call site allocated and freed between these moments, by thread: the trees of any moment, of any span
 * between two and of each process and thread. The smaller call sites are put together by domain and process.
 */

#define SPANS_ROWS_MAX 30000  /* while allocations are added: what comes after these counts as the rest */
#define SPANS_SHOWN_MAX 6000  /* rows in the page */
#define SPANS_CELLS_MAX 40000 /* their differences, in the page */
#define SPANS_RESTS_MAX 256   /* by thread; as many again by process, and by domain */

/* Of a call site in a thread; callsite < 0: the rest of a domain in a thread. */
struct spans_row {
    int64_t domain, process_id, device, thread, callsite;
    int64_t made;      /* bytes in all */
    int64_t left;      /* live at the moment of view leak_moment */
    int64_t live_most; /* at any of the moments; after spans_finish */
    size_t cells_begin, cells_end;
};

/* From the moment before until this one. */
struct spans_cell {
    uint32_t row, moment;
    int64_t made, freed; /* bytes */
};

struct spans {
    const struct live *live; /* whose moments they are: borrowed */
    int64_t *left_ns;        /* by process.id: at_ns of leak_moment */
    int64_t process_limit;
    struct spans_row *rows;
    size_t row_count, row_capacity;
    struct spans_cell *cells; /* by row and moment after spans_finish */
    size_t cell_count, cell_capacity;
    struct map row_numbers, cell_numbers;
};

void spans_init(struct spans *spans, const struct live *live, struct database *database);
/// A page_allocation_visitor.
void spans_add(void *spans, const struct page_allocation *allocation);
/// After the last allocation.
void spans_finish(struct spans *spans);
/// The rows, and the places of their call sites and of those of the maps' blocks. Owner of the result: the caller, by
/// page_places_free; the stacks stay.
struct page_places *spans_write(const struct spans *spans, const struct address_maps *maps, struct database *database,
                                struct page_writer *writer, struct page_stacks *stacks);
void spans_free(struct spans *spans);

/* What another recording had, the one before, and which stacks have more or less since then. */

struct growth;

/// `stacks`: a comparison by stack, whose second database the page is of.
void before_write(const struct growth *stacks, struct page_writer *writer, struct page_stacks *stacks_b);

/* Source code around the lines of the page's frames, as far as it is here and has not changed since. */

#define SOURCE_PLACES_MAX 400

void source_write(struct database *database, struct page_writer *writer, const struct page_stacks *stacks);

/*
 * All rows of the view `allocation` in one pass: what the parts of the page are made of that need each allocation.
 */

#define PAGE_NEVER INT64_MAX

struct page_allocation {
    int64_t domain, process_id, device, stream;
    uint64_t addr, size;
    int64_t alloc_seq, alloc_ns;
    int64_t free_seq, free_ns; /* when its free was requested; PAGE_NEVER */
    int64_t line;              /* of the user: symbol.id, 0: unknown */
    int64_t callsite;          /* 0: no stack */
    int64_t thread;            /* its number in the system; 0: unknown */
};

typedef void page_allocation_visitor(void *context, const struct page_allocation *allocation);

/// In no order. Without what CUPTI reports once more.
void page_allocations_visit(struct database *database, page_allocation_visitor *visit, void *context);

#endif
