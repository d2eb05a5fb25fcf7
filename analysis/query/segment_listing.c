/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/segment_query.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "trace/layout.h"

#include <inttypes.h>
#include <stdio.h>

#define MAP_COLUMNS 96
#define OWNER_COLUMNS 60 /* of a line of 100 */

static const char *const words[] = {
    [VARVE_LAYOUT_FREE] = "free", [VARVE_LAYOUT_USED] = "used", [VARVE_LAYOUT_PENDING] = "pending"};

struct writer {
    FILE *out;
    const struct listing *listing;
    struct database *database;
    const struct segments_state *state;
    struct owners *owners;
};

static size_t shown(const struct writer *writer, size_t count)
{
    return (uint64_t)writer->listing->top < count ? (size_t)writer->listing->top : count;
}

/* ---- totals ---- */

static void print_sum(FILE *out, const char *title, uint64_t bytes, uint64_t count, const char *one, const char *many)
{
    fprintf(out, "  %-26s %10s in %s %s", title, format_bytes((int64_t)bytes).text, format_count((int64_t)count).text,
            format_plural(count, one, many));
}

static void print_largest(FILE *out, uint64_t largest, uint64_t count)
{
    if (count > 1) {
        fprintf(out, ", the largest %s", format_bytes((int64_t)largest).text);
    }
    putc('\n', out);
}

static void print_sums(FILE *out, const struct cached_sums *sums)
{
    print_sum(out, "reserved", sums->reserved, sums->segments, "segment", "segments");
    putc('\n', out);
    print_sum(out, "used", sums->used, sums->used_blocks, "block", "blocks");
    putc('\n', out);
    print_sum(out, "pending", sums->pending, sums->pending_blocks, "block", "blocks");
    fputs(sums->pending_blocks > 0 ? ", freed, but other streams may still use them\n" : "\n", out);
    print_sum(out, "free beside used blocks", sums->in_holes, sums->holes, "hole", "holes");
    print_largest(out, sums->largest_hole, sums->holes);
    print_sum(out, "free as whole segments", sums->in_empty, sums->empty_segments, "empty segment", "empty segments");
    print_largest(out, sums->largest_empty, sums->empty_segments);
    if (sums->kept_segments > 0) {
        print_sum(out, "kept by private pools", sums->in_kept, sums->kept_segments, "empty segment", "empty segments");
        putc('\n', out);
    }
    if (sums->implied_blocks > 0) {
        fprintf(out, "  of what is used, %s in %s %s lie in segments that no event names\n",
                format_bytes((int64_t)sums->implied_bytes).text, format_count((int64_t)sums->implied_blocks).text,
                format_plural(sums->implied_blocks, "block", "blocks"));
    }
}

/* ---- lists ---- */

static void print_heading(const struct writer *writer, const char *what, size_t count)
{
    size_t listed = shown(writer, count);
    fprintf(writer->out, "\n  %s", what);
    if (listed < count) {
        fprintf(writer->out, " (%s of %s; --all shows all)", format_count((int64_t)listed).text,
                format_count((int64_t)count).text);
    }
    putc('\n', writer->out);
}

static void print_unused(const struct writer *writer, const struct segments_part *part, const char *heading,
                         const struct segment_item *items, size_t count)
{
    if (count == 0) {
        return;
    }
    print_heading(writer, heading, count);
    fprintf(writer->out, "  %-14s %10s %-9s %6s\n", "address", "size", "pool", "stream");
    for (size_t i = 0; i < shown(writer, count); i++) {
        const struct segment_item *item = &items[i];
        char pool[POOL_NAME_BYTES];
        pool_name(writer->database, part, item->first.pool, pool);
        fprintf(writer->out, "  %#-14" PRIx64 " %10s %-9s %6u%s\n", item->addr,
                format_bytes((int64_t)item->mapped).text, pool, (unsigned)item->first.stream,
                item->first.is_expandable ? " *" : "");
    }
}

static void print_owner(const struct writer *writer, const struct segments_part *part, uint64_t addr)
{
    struct owner owner = owners_of(writer->owners, part, addr, writer->state->seq);
    char text[OWNER_TEXT_BYTES];
    owner_text(&owner, OWNER_COLUMNS, text);
    if (text[0] != '\0') {
        fprintf(writer->out, "  %s", text);
    }
}

static void print_neighbour(const struct writer *writer, const struct segments_part *part, const char *side,
                            const struct varve_layout_block *block)
{
    if (block->extent == 0) {
        return;
    }
    fprintf(writer->out, "    %-6s %#-14" PRIx64 " %10s %s", side, block->addr,
            format_bytes((int64_t)block->extent).text, words[block->state]);
    print_owner(writer, part, block->addr);
    putc('\n', writer->out);
}

static void print_holes(const struct writer *writer, const struct segments_part *part, const struct cached *cached)
{
    if (cached->hole_count == 0) {
        return;
    }
    print_heading(writer, "holes, and the blocks before and behind each: the largest first", cached->hole_count);
    fprintf(writer->out, "  %-14s %10s %-9s %6s  %s\n", "address", "size", "pool", "stream", "in a segment of");
    for (size_t i = 0; i < shown(writer, cached->hole_count); i++) {
        const struct hole *hole = &cached->holes[i];
        char pool[POOL_NAME_BYTES];
        pool_name(writer->database, part, hole->segment.first.pool, pool);
        fprintf(writer->out, "  %#-14" PRIx64 " %10s %-9s %6u  %s%s\n", hole->addr,
                format_bytes((int64_t)hole->size).text, pool, (unsigned)hole->segment.first.stream,
                format_bytes((int64_t)hole->segment.mapped).text, hole->segment.first.is_expandable ? " *" : "");
        print_neighbour(writer, part, "before", &hole->before);
        print_neighbour(writer, part, "behind", &hole->behind);
    }
}

static void segment_listing_print_blocks(const struct writer *writer, const struct segments_part *part,
                                         const struct segment_item *item)
{
    struct varve_layout_block block;
    for (uint64_t at = item->addr; at < item->end && varve_layout_block(part->layout, at, &block);
         at = block.addr + block.extent) {
        fprintf(writer->out, "    %#-14" PRIx64 " %10s %s", block.addr, format_bytes((int64_t)block.extent).text,
                words[block.state]);
        if (block.state != VARVE_LAYOUT_FREE) {
            print_owner(writer, part, block.addr);
        }
        putc('\n', writer->out);
    }
}

static void print_used(const struct writer *writer, const struct segments_part *part, const struct cached *cached)
{
    if (cached->used_count == 0) {
        return;
    }
    print_heading(writer, "segments in use: the most free first", cached->used_count);
    fprintf(writer->out, "  %-14s %10s %-9s %6s %10s %10s %10s %12s %7s\n", "address", "size", "pool", "stream", "used",
            "pending", "free", "largest free", "blocks");
    for (size_t i = 0; i < shown(writer, cached->used_count); i++) {
        const struct segment_item *item = &cached->used[i];
        char pool[POOL_NAME_BYTES];
        pool_name(writer->database, part, item->first.pool, pool);
        fprintf(writer->out, "  %#-14" PRIx64 " %10s %-9s %6u %10s %10s %10s %12s %7s%s\n", item->addr,
                format_bytes((int64_t)item->mapped).text, pool, (unsigned)item->first.stream,
                format_bytes((int64_t)item->allocated).text,
                format_bytes((int64_t)(item->active - item->allocated)).text,
                format_bytes(item->mapped > item->active ? (int64_t)(item->mapped - item->active) : 0).text,
                format_bytes((int64_t)item->largest_free).text, format_count((int64_t)item->block_count).text,
                item->first.is_expandable ? " *" : "");
        char line[MAP_COLUMNS + 1];
        if (writer->listing->with_map) {
            segment_map(part->layout, item, line, MAP_COLUMNS);
            fprintf(writer->out, "  |%s|\n", line);
        }
        if (writer->listing->with_blocks) {
            segment_listing_print_blocks(writer, part, item);
        }
    }
}

/* ---- which call sites are needed ---- */

static void want_block(struct owners *owners, const struct varve_layout_block *block, int64_t seq)
{
    if (block->extent > 0 && block->state != VARVE_LAYOUT_FREE) {
        owners_want(owners, block->addr, seq);
    }
}

static void segment_listing_want_blocks(struct owners *owners, const struct varve_layout *layout,
                                        const struct segment_item *item, int64_t seq)
{
    struct varve_layout_block block;
    for (uint64_t at = item->addr; at < item->end && varve_layout_block(layout, at, &block);
         at = block.addr + block.extent) {
        want_block(owners, &block, seq);
    }
}

static void want_listed(const struct writer *writer, const struct segments_part *part, const struct cached *cached)
{
    for (size_t i = 0; i < shown(writer, cached->hole_count); i++) {
        want_block(writer->owners, &cached->holes[i].before, writer->state->seq);
        want_block(writer->owners, &cached->holes[i].behind, writer->state->seq);
    }
    for (size_t i = 0; writer->listing->with_blocks && i < shown(writer, cached->used_count); i++) {
        segment_listing_want_blocks(writer->owners, part->layout, &cached->used[i], writer->state->seq);
    }
}

static void segment_listing_print_part(struct writer *writer, const struct segments_part *part)
{
    struct cached cached;
    cached_load(&cached, part->layout);
    writer->owners = owners_new();
    want_listed(writer, part, &cached);
    owners_load(writer->owners, writer->database);
    fprintf(writer->out, "\ndevice %" PRId64 ", process %" PRId64 "\n", part->device, part->pid);
    print_sums(writer->out, &cached.sums);
    struct ladder_figures ladder;
    ladder_load(&ladder, writer->database, part->process_id, part->device, writer->state->seq);
    ladder_print(writer->out, &ladder);
    private_pools_print(writer->out, writer->database, part, writer->listing->top);
    print_unused(writer, part, "empty segments, which could be given back: the largest first", cached.empty,
                 cached.empty_count);
    print_unused(writer, part, "empty segments that a private pool keeps while its CUDA graph or MemPool lives",
                 cached.kept, cached.kept_count);
    print_holes(writer, part, &cached);
    print_used(writer, part, &cached);
    owners_free(writer->owners);
    cached_free(&cached);
}

void listing_text(FILE *out, struct database *database, const struct segments_state *state,
                  const struct listing *listing)
{
    struct writer writer = {.out = out, .listing = listing, .database = database, .state = state};
    fprintf(out, "segments after event %s of %s, at %s\n", format_count(state->seq).text,
            format_count(state->last_seq).text, format_duration(state->ts_ns).text);
    if (segments_state_is_approximate(state, database)) {
        fputs("approximate: the trace has no splits and merges, so blocks are as large as their requests\n", out);
    }
    if (state->count == 0) {
        fputs("no caching allocator was recorded up to there\n", out);
    } else if (listing->with_map) {
        fputs("maps: # used, p pending, . free, space not mapped; * expandable\n", out);
    }
    for (size_t i = 0; i < state->count; i++) {
        segment_listing_print_part(&writer, &state->parts[i]);
    }
}

/* ---- JSON ---- */

static struct cJSON *segment_listing_blocks_json(const struct writer *writer, const struct segments_part *part,
                                                 const struct segment_item *item)
{
    static const char *const states[] = {
        [VARVE_LAYOUT_FREE] = "inactive",
        [VARVE_LAYOUT_USED] = "active_allocated",
        [VARVE_LAYOUT_PENDING] = "active_pending_free",
    };
    struct cJSON *blocks = json_array();
    struct varve_layout_block block;
    for (uint64_t at = item->addr; at < item->end && varve_layout_block(part->layout, at, &block);
         at = block.addr + block.extent) {
        struct cJSON *object = json_object();
        json_integer(object, "address", (int64_t)block.addr);
        json_integer(object, "size", (int64_t)block.extent);
        json_integer(object, "requested_size", (int64_t)block.requested);
        json_text(object, "state", states[block.state]);
        if (block.state != VARVE_LAYOUT_FREE) {
            const struct owner owner = owners_of(writer->owners, part, block.addr, writer->state->seq);
            if (owner.callsite_id != 0) {
                owner_json(object, &owner);
            }
        }
        json_append(blocks, object);
    }
    return blocks;
}

static struct cJSON *item_json(const struct writer *writer, const struct segments_part *part,
                               const struct segment_item *item)
{
    struct pool_meaning pool = pool_of(writer->database, part, item->first.pool);
    struct cJSON *object = json_object();
    json_integer(object, "device", part->device);
    json_integer(object, "pid", part->pid);
    json_integer(object, "address", (int64_t)item->addr);
    json_integer(object, "total_size", (int64_t)item->mapped);
    json_integer(object, "allocated_size", (int64_t)item->allocated);
    json_integer(object, "active_size", (int64_t)item->active);
    json_integer(object, "requested_size", (int64_t)item->requested);
    json_integer(object, "stream", stream_handle(writer->database, part, item->first.stream));
    json_integer(object, "pool", item->first.pool);
    json_add(object, "segment_pool_id", pool_ids_json(&pool));
    json_text(object, "segment_type", pool.is_small ? "small" : "large");
    json_bool(object, "is_expandable", item->first.is_expandable);
    json_integer_or_null(object, "segment_id", item->first.segment_id != 0 ? (int64_t)item->first.segment_id : -1);
    json_add(object, "blocks", segment_listing_blocks_json(writer, part, item));
    return object;
}

static struct cJSON *sums_json(const struct writer *writer, const struct segments_part *part)
{
    struct cJSON *object = json_object();
    struct cached cached;
    cached_load(&cached, part->layout);
    json_integer(object, "device", part->device);
    json_integer(object, "pid", part->pid);
    json_integer(object, "segments", (int64_t)cached.sums.segments);
    json_integer(object, "reserved", (int64_t)cached.sums.reserved);
    json_integer(object, "used_blocks", (int64_t)cached.sums.used_blocks);
    json_integer(object, "used", (int64_t)cached.sums.used);
    json_integer(object, "pending_blocks", (int64_t)cached.sums.pending_blocks);
    json_integer(object, "pending", (int64_t)cached.sums.pending);
    json_integer(object, "holes", (int64_t)cached.sums.holes);
    json_integer(object, "in_holes", (int64_t)cached.sums.in_holes);
    json_integer(object, "largest_hole", (int64_t)cached.sums.largest_hole);
    json_integer(object, "empty_segments", (int64_t)cached.sums.empty_segments);
    json_integer(object, "in_empty_segments", (int64_t)cached.sums.in_empty);
    json_integer(object, "largest_empty_segment", (int64_t)cached.sums.largest_empty);
    json_integer(object, "kept_segments", (int64_t)cached.sums.kept_segments);
    json_integer(object, "in_kept_segments", (int64_t)cached.sums.in_kept);
    struct ladder_figures ladder;
    ladder_load(&ladder, writer->database, part->process_id, part->device, writer->state->seq);
    json_add(object, "ladder", ladder_json(&ladder));
    json_add(object, "private_pools", private_pools_json(writer->database, part));
    cached_free(&cached);
    return object;
}

static struct cJSON *segments_json(struct writer *writer)
{
    struct cJSON *segments = json_array();
    writer->owners = owners_new();
    struct segment_item item;
    for (size_t i = 0; i < writer->state->count; i++) {
        const struct segments_part *part = &writer->state->parts[i];
        for (uint64_t from = 0; segment_next(part->layout, &from, false, &item);) {
            segment_listing_want_blocks(writer->owners, part->layout, &item, writer->state->seq);
        }
    }
    owners_load(writer->owners, writer->database);
    for (size_t i = 0; i < writer->state->count; i++) {
        const struct segments_part *part = &writer->state->parts[i];
        for (uint64_t from = 0; segment_next(part->layout, &from, false, &item);) {
            json_append(segments, item_json(writer, part, &item));
        }
    }
    owners_free(writer->owners);
    return segments;
}

void listing_json(FILE *out, struct database *database, const struct segments_state *state)
{
    struct writer writer = {.out = out, .database = database, .state = state};
    struct cJSON *object = json_object();
    struct cJSON *at = json_object();
    struct cJSON *totals = json_array();
    json_text(object, "database", database_path(database));
    json_integer(at, "seq", state->seq);
    json_integer(at, "ts_ns", state->ts_ns);
    json_add(object, "at", at);
    json_bool(object, "approximate", segments_state_is_approximate(state, database));
    for (size_t i = 0; i < state->count; i++) {
        json_append(totals, sums_json(&writer, &state->parts[i]));
    }
    json_add(object, "totals", totals);
    json_add(object, "segments", segments_json(&writer));
    json_print(object, out);
}
