/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State comes from the last keyframes before an event and the events since. All allocators have their keyframes at the
 * same events, so those are the same few thousand for all of them; one without a row there has not changed since its
 * last one. Segments are listed as PyTorch's snapshots list them (one entry for each range of an expandable segment
 * that is mapped without a gap), or whole. What the trace does not say is not invented: blocks of a trace without
 * splits are as large as their requests, and segments from before its beginning are known only by their blocks.
 */
#include "analysis/query/segment_query.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record.h"

#include "statements_generated.h"

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

int event_time_parse(const char *text, int64_t *ts_ns_out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end != text && strcmp(end, units[i].suffix) == 0 && number >= 0 && number * units[i].factor < 9e18) {
            *ts_ns_out = (int64_t)llround(number * units[i].factor);
            return VARVE_OK;
        }
    }
    return VARVE_ERROR_INVALID;
}

int segments_moment(struct database *database, const char *text, int64_t *seq_out, struct varve_message *message)
{
    int64_t last = database_integer(database, "SELECT max(seq) FROM event", 0);
    int error = report_require_events(database, false, message);
    if (error != VARVE_OK) {
        return error;
    }

    *seq_out = last;
    if (text == NULL) {
        return VARVE_OK;
    }
    errno = 0;
    char *end;
    long long number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= 0) {
        if (number > last) {
            return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s: there is no event %lld, the last is %" PRId64,
                                     database_path(database), number, last);
        }
        *seq_out = number;
        return VARVE_OK;
    }
    int64_t ts_ns;
    if (event_time_parse(text, &ts_ns) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "--at must be the number of an event or a time such as 1.5s, 20ms, 7us, 900ns, "
                                 "not '%s'",
                                 text);
    }
    /* the last event not later */
    *seq_out = database_integer_of(database, "SELECT coalesce(max(seq), 0) FROM event WHERE ts_ns <= ?1", ts_ns);
    return VARVE_OK;
}

int moment_parse(struct database *database, const char *option, const char *others, const char *text, int64_t *ns_out,
                 struct varve_message *message)
{
    if (event_time_parse(text, ns_out) == VARVE_OK) {
        return VARVE_OK;
    }
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0') {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "--%s must be %sa time such as 1.5s, 20ms, 7us, 900ns or the number of an event, not "
                                 "'%s'",
                                 option, others, text);
    }
    int64_t seq;
    const int error = segments_moment(database, text, &seq, message);
    *ns_out = error == VARVE_OK ? event_time_ns(database, seq) : -1;
    return error;
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
    while (at < state->count && (state->parts[at].process_id < process_id ||
                                 (state->parts[at].process_id == process_id && state->parts[at].device < device))) {
        at++;
    }
    if (at < state->count && state->parts[at].process_id == process_id && state->parts[at].device == device) {
        return &state->parts[at];
    }
    state->parts = memory_resize(state->parts, (state->count + 1) * sizeof(state->parts[0]));
    memmove(&state->parts[at + 1], &state->parts[at], (state->count - at) * sizeof(state->parts[0]));
    state->parts[at] = (struct segments_part){.process_id = process_id, .device = device, .layout = varve_layout_new()};
    if (state->parts[at].layout == NULL) {
        memory_exhausted();
    }
    state->count++;
    return &state->parts[at];
}

static void segment_query_load_threads(struct loader *loader)
{
    loader->thread_limit = database_number_limit(loader->database, "thread");
    size_t bytes = (size_t)loader->thread_limit * sizeof(int64_t);
    loader->process_of = memory_resize(NULL, bytes);
    memset(loader->process_of, 0, bytes);
    struct cursor cursor;
    cursor_open(&cursor, loader->database, sql_threads_of_pid);
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
    cursor_open(&cursor, loader->database, sql_keyframes_before);
    cursor_bind_integer(&cursor, 1, seq);
    cursor_bind_integer(&cursor, 2, loader->device);
    cursor_bind_integer(&cursor, 3, loader->pid);
    while (loader->error == VARVE_OK && cursor_next(&cursor)) {
        struct segments_part *part = part_get(loader, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
        struct value data = cursor_value(&cursor, 2);
        loader->error =
            data.type == VALUE_BLOB ? varve_layout_decode(part->layout, data.text, data.bytes) : VARVE_ERROR_CORRUPT;
        if (loader->error != VARVE_OK) {
            varve_message_set(loader->message, loader->error, "%s: a keyframe of device %" PRId64 " is damaged",
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
    cursor_open(&cursor, loader->database, sql_segment_events);
    cursor_bind_integer(&cursor, 1, from);
    cursor_bind_integer(&cursor, 2, to);
    while (cursor_next(&cursor)) {
        apply_event(loader, &cursor);
    }
    cursor_close(&cursor);
}

/* Returns the last event not later than the state's at which keyframes were made; 0: none. */
static int64_t load_moment(struct segments_state *state, struct database *database)
{
    int64_t from = 0;
    struct cursor cursor;
    cursor_open(&cursor, database, sql_moment_of_segments);
    cursor_bind_integer(&cursor, 1, state->seq);
    if (cursor_next(&cursor)) {
        state->ts_ns = cursor_integer(&cursor, 0);
        state->last_seq = cursor_integer(&cursor, 1);
        from = cursor_integer(&cursor, 2);
    }
    cursor_close(&cursor);
    return from;
}

static void load_pids(struct segments_state *state, struct database *database)
{
    for (size_t i = 0; i < state->count; i++) {
        state->parts[i].pid =
            database_integer_of(database, "SELECT pid FROM process WHERE id = ?1", state->parts[i].process_id);
    }
}

int segments_state_load(struct segments_state *state, struct database *database, int64_t seq, int64_t device,
                        int64_t pid, struct varve_message *message)
{
    struct loader loader = {.state = state, .database = database, .device = device, .pid = pid, .message = message};
    *state = (struct segments_state){.seq = seq};
    int64_t from = load_moment(state, database);
    segment_query_load_threads(&loader);
    load_keyframes(&loader, from);
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

bool segment_next(const struct varve_layout *layout, uint64_t *from, bool whole, struct segment_item *item_out)
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
    for (uint64_t at = start; at < end && varve_layout_block(layout, at, &block); at = block.addr + block.extent) {
        uint64_t share = overlap(block.addr, block.extent, start, end);
        bytes[block.state] += share;
        bytes[3] -= share;
    }
    int most = 3;
    /* of equal shares, the one that is used more */
    for (size_t i = sizeof(order) / sizeof(order[0]); i-- > 0;) {
        most = bytes[order[i]] >= bytes[most] && bytes[order[i]] > 0 ? order[i] : most;
    }
    return letters[most];
}

void segment_map(const struct varve_layout *layout, const struct segment_item *item, char *line, size_t columns)
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
