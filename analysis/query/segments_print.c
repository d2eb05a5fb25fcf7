/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve segments` as text, a line and a map for each segment, and as JSON in the words of PyTorch's
 * snapshots. The hard part is to say no more than the trace does: blocks of a trace without splits are as
 * large as their requests, and segments from before its beginning are only known by the blocks handed out.
 */
#include "analysis/query/segments.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP_COLUMNS 96

/* ---- what numbers mean ---- */

struct meaning {
    struct database *database;
    bool has_tables; /* with numbers of each process: databases of older versions have none */
};

static struct meaning meaning_of(struct database *database)
{
    return (struct meaning){
        .database = database,
        .has_tables =
            database_integer(database,
                             "SELECT count(*) FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
                             "WHERE t.name IN ('stream', 'pool') AND c.name = 'process_id'",
                             0) == 2};
}

static bool lookup(const struct meaning *meaning, struct cursor *cursor, const char *sql,
                   const struct segments_part *part, int64_t number)
{
    if (!meaning->has_tables) {
        return false;
    }
    cursor_open(cursor, meaning->database, sql);
    cursor_bind_integer(cursor, 1, part->process_id);
    cursor_bind_integer(cursor, 2, part->device);
    cursor_bind_integer(cursor, 3, number);
    if (cursor_next(cursor)) {
        return true;
    }
    cursor_close(cursor);
    return false;
}

static int64_t stream_handle(const struct meaning *meaning, const struct segments_part *part, int64_t number)
{
    struct cursor cursor;
    int64_t handle = number;

    if (lookup(meaning, &cursor,
               "SELECT handle FROM stream WHERE process_id = ?1 AND device = ?2 AND number = ?3", part,
               number)) {
        handle = cursor_integer(&cursor, 0);
        cursor_close(&cursor);
    }
    return handle;
}

struct pool_meaning {
    bool is_small, has_ids;
    int64_t capture_id, user_id;
};

static struct pool_meaning pool_of(const struct meaning *meaning, const struct segments_part *part,
                                   unsigned number)
{
    struct pool_meaning pool = {.is_small = number & 1, .has_ids = number < 2};
    struct cursor cursor;

    if (lookup(meaning, &cursor,
               "SELECT is_small, capture_id, user_id FROM pool WHERE process_id = ?1 AND device = ?2 "
               "AND number = ?3",
               part, number)) {
        pool = (struct pool_meaning){.is_small = cursor_integer(&cursor, 0) != 0,
                                     .has_ids = true,
                                     .capture_id = cursor_integer(&cursor, 1),
                                     .user_id = cursor_integer(&cursor, 2)};
        cursor_close(&cursor);
    }
    return pool;
}

/* ---- text ---- */

/* Segments that no event told of: one line for all. */
struct implied {
    int64_t bytes;
    int64_t blocks;
};

static void print_titles(FILE *out)
{
    fprintf(out, "  %-14s %10s %-9s %6s %10s %10s %10s %12s %7s\n", "address", "size", "pool", "stream",
            "used", "pending", "free", "largest free", "blocks");
}

static void print_item(FILE *out, const struct meaning *meaning, const struct segments_part *part,
                       const struct segment_item *item)
{
    struct pool_meaning pool = pool_of(meaning, part, item->first.pool);
    const char *kind = pool.is_small ? "small" : "large";
    uint64_t unused = item->mapped > item->active ? item->mapped - item->active : 0;
    char name[16];

    if (item->first.pool < 2) {
        snprintf(name, sizeof(name), "%s", kind);
    } else {
        snprintf(name, sizeof(name), "%s %u", kind, item->first.pool / 2U);
    }
    fprintf(out, "  %#-14" PRIx64 " %10s %-9s %6u %10s %10s %10s %12s %7s%s\n", item->addr,
            format_bytes((int64_t)item->mapped).text, name, (unsigned)item->first.stream,
            format_bytes((int64_t)item->allocated).text,
            format_bytes((int64_t)(item->active - item->allocated)).text, format_bytes((int64_t)unused).text,
            format_bytes((int64_t)item->largest_free).text, format_count((int64_t)item->block_count).text,
            item->first.is_expandable ? " *" : "");
}

/* Returns what was left out. */
static struct implied print_items(FILE *out, const struct meaning *meaning, const struct segments_part *part,
                                  bool with_map)
{
    struct implied implied = {0};
    struct segment_item item;

    for (uint64_t from = 0; segment_next(part->layout, &from, true, &item);) {
        char line[MAP_COLUMNS + 1];

        if (item.first.is_implied) {
            implied.bytes += (int64_t)item.active;
            implied.blocks += (int64_t)item.block_count;
            continue;
        }
        print_item(out, meaning, part, &item);
        if (with_map) {
            segment_map(part->layout, &item, line, MAP_COLUMNS);
            fprintf(out, "  |%s|\n", line);
        }
    }
    return implied;
}

static void print_part(FILE *out, const struct meaning *meaning, const struct segments_part *part,
                       bool with_map)
{
    struct segment_item sum = {0};
    struct segment_item item;
    struct implied implied;
    int64_t segments = 0;

    for (uint64_t from = 0; segment_next(part->layout, &from, true, &item);) {
        sum.mapped += item.first.is_implied ? 0 : item.mapped;
        sum.allocated += item.allocated;
        sum.active += item.active;
        segments += !item.first.is_implied;
        sum.largest_free = item.largest_free > sum.largest_free ? item.largest_free : sum.largest_free;
    }
    fprintf(out, "\ndevice %" PRId64 ", process %" PRId64 ": %s in %s %s\n", part->device, part->pid,
            format_bytes((int64_t)sum.mapped).text, format_count(segments).text,
            segments == 1 ? "segment" : "segments");
    fprintf(out, "  used %s, pending %s, largest free block %s\n", format_bytes((int64_t)sum.allocated).text,
            format_bytes((int64_t)(sum.active - sum.allocated)).text,
            format_bytes((int64_t)sum.largest_free).text);
    if (segments > 0) {
        print_titles(out);
    }
    implied = print_items(out, meaning, part, with_map);
    if (implied.blocks > 0) {
        fprintf(out, "  and %s in %s blocks of segments that no event told of\n",
                format_bytes(implied.bytes).text, format_count(implied.blocks).text);
    }
}

void segments_print_text(FILE *out, struct database *database, const struct segments_state *state,
                         bool with_map)
{
    struct meaning meaning = meaning_of(database);

    fprintf(out, "segments after event %s of %s, at %s\n", format_count(state->seq).text,
            format_count(state->last_seq).text, format_duration(state->ts_ns).text);
    if (segments_state_is_approximate(state, database)) {
        fputs("approximate: the trace tells no splits and merges, so blocks are as large as their requests\n",
              out);
    }
    if (state->count == 0) {
        fputs("no caching allocator was recorded up to there\n", out);
    } else if (with_map) {
        fputs("maps: # used, p pending, . free, space not mapped; * expandable\n", out);
    }
    for (size_t i = 0; i < state->count; i++) {
        print_part(out, &meaning, &state->parts[i], with_map);
    }
}

/* ---- JSON ---- */

static struct cJSON *blocks_json(const struct varve_layout *layout, const struct segment_item *item)
{
    static const char *const states[] = {
        [VARVE_LAYOUT_FREE] = "inactive",
        [VARVE_LAYOUT_USED] = "active_allocated",
        [VARVE_LAYOUT_PENDING] = "active_pending_free",
    };
    struct cJSON *blocks = json_array();
    struct varve_layout_block block;

    for (uint64_t at = item->addr; at < item->end && varve_layout_block(layout, at, &block);
         at = block.addr + block.extent) {
        struct cJSON *object = json_object();

        json_integer(object, "address", (int64_t)block.addr);
        json_integer(object, "size", (int64_t)block.extent);
        json_integer(object, "requested_size", (int64_t)block.requested);
        json_text(object, "state", states[block.state]);
        json_append(blocks, object);
    }
    return blocks;
}

static struct cJSON *item_json(const struct meaning *meaning, const struct segments_part *part,
                               const struct segment_item *item)
{
    struct pool_meaning pool = pool_of(meaning, part, item->first.pool);
    struct cJSON *object = json_object();

    json_integer(object, "device", part->device);
    json_integer(object, "pid", part->pid);
    json_integer(object, "address", (int64_t)item->addr);
    json_integer(object, "total_size", (int64_t)item->mapped);
    json_integer(object, "allocated_size", (int64_t)item->allocated);
    json_integer(object, "active_size", (int64_t)item->active);
    json_integer(object, "requested_size", (int64_t)item->requested);
    json_integer(object, "stream", stream_handle(meaning, part, item->first.stream));
    json_integer(object, "pool", item->first.pool);
    if (pool.has_ids) {
        struct cJSON *ids = json_array();

        json_append(ids, json_integer_value(pool.capture_id));
        json_append(ids, json_integer_value(pool.user_id));
        json_add(object, "segment_pool_id", ids);
    } else {
        json_add(object, "segment_pool_id", json_null_value());
    }
    json_text(object, "segment_type", pool.is_small ? "small" : "large");
    json_bool(object, "is_expandable", item->first.is_expandable);
    json_integer_or_null(object, "segment_id",
                         item->first.segment_id != 0 ? (int64_t)item->first.segment_id : -1);
    json_add(object, "blocks", blocks_json(part->layout, item));
    return object;
}

void segments_print_json(FILE *out, struct database *database, const struct segments_state *state)
{
    struct meaning meaning = meaning_of(database);
    struct cJSON *object = json_object();
    struct cJSON *at = json_object();
    struct cJSON *segments = json_array();
    struct segment_item item;

    json_text(object, "database", database_path(database));
    json_integer(at, "seq", state->seq);
    json_integer(at, "ts_ns", state->ts_ns);
    json_add(object, "at", at);
    json_bool(object, "approximate", segments_state_is_approximate(state, database));
    for (size_t i = 0; i < state->count; i++) {
        for (uint64_t from = 0; segment_next(state->parts[i].layout, &from, false, &item);) {
            json_append(segments, item_json(&meaning, &state->parts[i], &item));
        }
    }
    json_add(object, "segments", segments);
    json_print(object, out);
}
