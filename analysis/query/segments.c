/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State comes from the last keyframes before an event and the events since. All allocators have their keyframes at the same
 * events, so those are the same few thousand for all of them; one without a row there has not changed since its last one.
 * Segments are listed as PyTorch's snapshots list them (one entry for each range of an expandable segment that is mapped
 * without a gap), or whole. What the trace does not say is not invented: blocks of a trace without splits are as large as
 * their requests, and segments from before its beginning are known only by their blocks.
 */
#include "analysis/query/segments.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/base/memory.h"
#include "analysis/query/db.h"
#include "analysis/query/kept.h"
#include "trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which event ---- */

int64_t event_time_ns(struct database *database, int64_t seq)
{
    return database_integer_of(database, "SELECT ts_ns FROM event WHERE seq = ?1", seq);
}

/* The last event not later than `ts_ns`: numbers are in the order of time. */
static int64_t event_at_time(struct database *database, int64_t last, int64_t ts_ns)
{
    int64_t low = 0;
    int64_t high = last;

    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;

        if (event_time_ns(database, middle) <= ts_ns) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

int event_time_parse(const char *text, int64_t *ts_ns_out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double number = strtod(text, &end);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end != text && strcmp(end, units[i].suffix) == 0 && number >= 0 &&
            number * units[i].factor < 9e18) {
            *ts_ns_out = (int64_t)llround(number * units[i].factor);
            return VARVE_OK;
        }
    }
    return VARVE_ERROR_INVALID;
}

int segments_moment(struct database *database, const char *text, int64_t *seq_out,
                    struct varve_message *message)
{
    int64_t last = database_integer(database, "SELECT max(seq) FROM event", 0);
    int64_t ts_ns;
    char *end;
    long long number;
    int error = report_require_events(database, message);

    if (error != VARVE_OK) {
        return error;
    }

    *seq_out = last;
    if (text == NULL) {
        return VARVE_OK;
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= 0) {
        if (number > last) {
            return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                     "%s: there is no event %lld, the last is %" PRId64,
                                     database_path(database), number, last);
        }
        *seq_out = number;
        return VARVE_OK;
    }
    if (event_time_parse(text, &ts_ns) != VARVE_OK) {
        return varve_message_set(
            message, VARVE_ERROR_INVALID,
            "--at must be the number of an event or a time such as 1.5s, 20ms, 7us, 900ns, "
            "not '%s'",
            text);
    }
    *seq_out = event_at_time(database, last, ts_ns);
    return VARVE_OK;
}

/* ---- the state ---- */

struct loader {
    struct segments_state *state;
    struct database *database;
    int64_t device;      /* < 0: all */
    int64_t pid;         /* 0: all */
    int64_t *process_of; /* by thread_id; 0: not wanted */
    int64_t thread_limit;
    int error;
    struct varve_message *message;
};

static struct segments_part *part_get(struct loader *loader, int64_t process_id, int64_t device)
{
    struct segments_state *state = loader->state;
    size_t at = 0;

    while (at < state->count &&
           (state->parts[at].process_id < process_id ||
            (state->parts[at].process_id == process_id && state->parts[at].device < device))) {
        at++;
    }
    if (at < state->count && state->parts[at].process_id == process_id && state->parts[at].device == device) {
        return &state->parts[at];
    }
    state->parts = memory_resize(state->parts, (state->count + 1) * sizeof(state->parts[0]));
    memmove(&state->parts[at + 1], &state->parts[at], (state->count - at) * sizeof(state->parts[0]));
    state->parts[at] =
        (struct segments_part){.process_id = process_id, .device = device, .layout = varve_layout_new()};
    if (state->parts[at].layout == NULL) {
        memory_exhausted();
    }
    state->count++;
    return &state->parts[at];
}

static void load_threads(struct loader *loader)
{
    size_t bytes;
    struct cursor cursor;

    loader->thread_limit =
        database_number_limit(loader->database, "SELECT max(id), count(*) FROM thread WHERE id > 0");
    bytes = (size_t)loader->thread_limit * sizeof(int64_t);
    loader->process_of = memory_resize(NULL, bytes);
    memset(loader->process_of, 0, bytes);
    cursor_open(&cursor, loader->database,
                "SELECT t.id, t.process_id FROM thread t JOIN process p ON p.id = t.process_id "
                "WHERE ?1 = 0 OR p.pid = ?1 ORDER BY t.id");
    cursor_bind_integer(&cursor, 1, loader->pid);
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);

        if (id > 0 && id < loader->thread_limit) {
            loader->process_of[id] = cursor_integer(&cursor, 1);
        }
    }
    cursor_close(&cursor);
}

/* The last keyframe of each allocator up to event `seq`. */
static void load_keyframes(struct loader *loader, int64_t seq)
{
    struct cursor cursor;

    cursor_open(
        &cursor, loader->database,
        "SELECT k.process_id, k.device, k.data FROM keyframe k JOIN (SELECT process_id, device, max(seq) AS "
        "seq FROM keyframe WHERE seq <= ?1 GROUP BY process_id, device) USING (process_id, device, seq) "
        "LEFT JOIN process p ON p.id = k.process_id "
        "WHERE k.data IS NOT NULL AND (?2 < 0 OR k.device = ?2) AND (?3 = 0 OR p.pid = ?3)");
    cursor_bind_integer(&cursor, 1, seq);
    cursor_bind_integer(&cursor, 2, loader->device);
    cursor_bind_integer(&cursor, 3, loader->pid);
    while (loader->error == VARVE_OK && cursor_next(&cursor)) {
        struct segments_part *part = part_get(loader, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
        struct value data = cursor_value(&cursor, 2);

        loader->error = data.type == VALUE_BLOB ? varve_layout_decode(part->layout, data.text, data.bytes)
                                                : VARVE_ERROR_CORRUPT;
        if (loader->error != VARVE_OK) {
            varve_message_set(loader->message, loader->error,
                              "%s: a keyframe of device %" PRId64 " is damaged",
                              database_path(loader->database), part->device);
        }
    }
    cursor_close(&cursor);
}

static void apply_event(struct loader *loader, struct cursor *cursor)
{
    int64_t thread = cursor_integer(cursor, 0);
    int64_t process_id = thread >= 0 && thread < loader->thread_limit ? loader->process_of[thread] : 0;
    int64_t device = cursor_integer(cursor, 1);
    const struct varve_record record = {
        .dev_seq_kind_flags = varve_record_tag(0, (enum varve_kind)cursor_integer(cursor, 2),
                                               (unsigned)cursor_integer(cursor, 11) & 0xffU),
        .id_stream = (uint64_t)cursor_integer(cursor, 3) << 48 |
                     ((uint64_t)cursor_integer(cursor, 5) & UINT64_C(0xffffffffffff)),
        .pool = (uint16_t)cursor_integer(cursor, 4),
        .addr = (uint64_t)cursor_integer(cursor, 6),
        .size = (uint64_t)cursor_integer(cursor, 7),
        .requested = (uint64_t)cursor_integer(cursor, 8),
        .arg = (uint64_t)cursor_integer(cursor, 9),
        .cause = (uint8_t)cursor_integer(cursor, 10),
    };

    if (process_id == 0 || (loader->device >= 0 && device != loader->device)) {
        return;
    }
    if (varve_layout_apply(part_get(loader, process_id, device)->layout, &record) != VARVE_OK) {
        memory_exhausted();
    }
}

static void load_events(struct loader *loader, int64_t from, int64_t to)
{
    struct cursor cursor;

    cursor_open(&cursor, loader->database,
                "SELECT thread_id, device, kind, stream, pool, id, addr, size, requested, arg, cause, flags "
                "FROM event WHERE seq > ?1 AND seq <= ?2 AND kind BETWEEN 1 AND 9 ORDER BY seq");
    cursor_bind_integer(&cursor, 1, from);
    cursor_bind_integer(&cursor, 2, to);
    while (cursor_next(&cursor)) {
        apply_event(loader, &cursor);
    }
    cursor_close(&cursor);
}

static void load_pids(struct segments_state *state, struct database *database)
{
    for (size_t i = 0; i < state->count; i++) {
        state->parts[i].pid = database_integer_of(database, "SELECT pid FROM process WHERE id = ?1",
                                                  state->parts[i].process_id);
    }
}

int segments_state_load(struct segments_state *state, struct database *database, int64_t seq, int64_t device,
                        int64_t pid, struct varve_message *message)
{
    struct loader loader = {
        .state = state, .database = database, .device = device, .pid = pid, .message = message};
    int64_t from = 0;

    *state = (struct segments_state){.seq = seq, .ts_ns = event_time_ns(database, seq)};
    state->last_seq = database_integer(database, "SELECT max(seq) FROM event", 0);
    load_threads(&loader);
    /* databases of older versions have none */
    if (database_integer(database, "SELECT count(*) FROM sqlite_schema WHERE name = 'keyframe'", 0) > 0) {
        from = database_integer_of(database, "SELECT max(seq) FROM keyframe WHERE seq <= ?1", seq);
        load_keyframes(&loader, from);
    }
    if (loader.error == VARVE_OK) {
        load_events(&loader, from, seq);
    }
    load_pids(state, database);
    free(loader.process_of);
    return loader.error != VARVE_OK ? loader.error : database_error(database, message);
}

void segments_state_free(struct segments_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        varve_layout_free(state->parts[i].layout);
    }
    free(state->parts);
    *state = (struct segments_state){0};
}

bool segments_state_is_approximate(const struct segments_state *state, struct database *database)
{
    char *sizes = database_meta(database, "block_sizes");
    bool is_approximate = sizes != NULL && strcmp(sizes, "requested") == 0;

    free(sizes);
    for (size_t i = 0; i < state->count && !is_approximate; i++) {
        is_approximate = varve_layout_is_approximate(state->parts[i].layout);
    }
    return is_approximate;
}

/* ---- blocks grouped into segments ---- */

static void item_take(struct segment_item *item, const struct varve_layout_block *block)
{
    item->end = block->addr + block->extent;
    item->mapped += block->extent;
    item->block_count++;
    if (block->state == VARVE_LAYOUT_FREE) {
        item->largest_free = block->extent > item->largest_free ? block->extent : item->largest_free;
        return;
    }
    item->active += block->size;
    item->requested += block->requested;
    item->allocated += block->state == VARVE_LAYOUT_USED ? block->size : 0;
}

bool segment_next(const struct varve_layout *layout, uint64_t *from, bool whole,
                  struct segment_item *item_out)
{
    struct varve_layout_block block;

    if (!varve_layout_block(layout, *from, &block)) {
        return false;
    }
    *item_out = (struct segment_item){.first = block, .addr = block.addr};
    do {
        item_take(item_out, &block);
    } while (varve_layout_block(layout, item_out->end, &block) && block.segment == item_out->first.segment &&
             (whole || block.addr == item_out->end));
    *from = item_out->end;
    return true;
}

/* Bytes of [addr, addr + extent) that lie in [start, end). */
static uint64_t overlap(uint64_t addr, uint64_t extent, uint64_t start, uint64_t end)
{
    uint64_t low = addr > start ? addr : start;
    uint64_t high = addr + extent < end ? addr + extent : end;

    return high > low ? high - low : 0;
}

static char cell_of(const struct varve_layout *layout, uint64_t start, uint64_t end)
{
    static const char letters[] = {'.', '#', 'p', ' '};
    static const int order[] = {VARVE_LAYOUT_USED, VARVE_LAYOUT_PENDING, VARVE_LAYOUT_FREE, 3};
    uint64_t bytes[4] = {0, 0, 0, end - start};
    struct varve_layout_block block;
    int most = 3;

    for (uint64_t at = start; at < end && varve_layout_block(layout, at, &block);
         at = block.addr + block.extent) {
        uint64_t share = overlap(block.addr, block.extent, start, end);

        bytes[block.state] += share;
        bytes[3] -= share;
    }
    /* of equal shares, the one that is used more */
    for (size_t i = sizeof(order) / sizeof(order[0]); i-- > 0;) {
        most = bytes[order[i]] >= bytes[most] && bytes[order[i]] > 0 ? order[i] : most;
    }
    return letters[most];
}

void segment_map(const struct varve_layout *layout, const struct segment_item *item, char *line,
                 size_t columns)
{
    uint64_t bytes = item->end - item->addr;
    size_t count = bytes / 512 < columns ? (size_t)(bytes / 512) : columns;

    count = count > 0 ? count : 1;
    for (size_t i = 0; i < count; i++) {
        /* in doubles, as bytes times columns may exceed 64 bits */
        uint64_t start = item->addr + (uint64_t)((double)bytes * (double)i / (double)count);
        uint64_t end = item->addr + (uint64_t)((double)bytes * (double)(i + 1) / (double)count);

        line[i] = cell_of(layout, start, end > start ? end : start + 1);
    }
    line[count] = '\0';
}

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

/* Segments that no event names: one line for all. */
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
        fprintf(out, "  and %s in %s blocks of segments that no event names\n",
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
        fputs("approximate: the trace has no splits and merges, so blocks are as large as their requests\n",
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
