/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/segment_query.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct owned {
    uint64_t addr;
    int64_t process_id, device;
    int64_t from_seq, to_seq; /* in use after these events, and those between */
    int64_t callsite_id, alloc_ns;
};

struct place {
    char *function, *file;
    int64_t line;
};

struct owners {
    struct map wanted; /* addresses */
    int64_t first_seq, last_seq;
    struct owned *blocks; /* by address, process, device and time */
    size_t count, capacity;
    struct map places; /* by call site: number + 1 in `items` */
    struct place *items;
    size_t place_count, place_capacity;
};

struct owners *owners_new(void)
{
    struct owners *owners = memory_resize(NULL, sizeof(*owners));
    *owners = (struct owners){.first_seq = INT64_MAX};
    return owners;
}

void owners_free(struct owners *owners)
{
    if (owners == NULL) {
        return;
    }
    for (size_t i = 0; i < owners->place_count; i++) {
        free(owners->items[i].function);
        free(owners->items[i].file);
    }
    map_free(&owners->wanted);
    map_free(&owners->places);
    free(owners->items);
    free(owners->blocks);
    free(owners);
}

void owners_want(struct owners *owners, uint64_t addr, int64_t seq)
{
    map_put(&owners->wanted, addr, 1);
    owners->first_seq = seq < owners->first_seq ? seq : owners->first_seq;
    owners->last_seq = seq > owners->last_seq ? seq : owners->last_seq;
}

static int compare_owned(const void *a_untyped, const void *b_untyped)
{
    const struct owned *a = a_untyped;
    const struct owned *b = b_untyped;
    if (a->addr != b->addr) {
        return a->addr < b->addr ? -1 : 1;
    }
    if (a->process_id != b->process_id) {
        return a->process_id < b->process_id ? -1 : 1;
    }
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    return a->from_seq < b->from_seq ? -1 : a->from_seq > b->from_seq;
}

/* The function, file and line of each call site that the blocks have. */
static void load_place(struct owners *owners, struct cursor *cursor, int64_t callsite_id)
{
    if (callsite_id <= 0 || map_find(&owners->places, (uint64_t)callsite_id) != MAP_NONE) {
        return;
    }
    owners->items = memory_grow(owners->items, &owners->place_capacity, owners->place_count, sizeof(owners->items[0]));
    owners->items[owners->place_count] = (struct place){0};
    cursor_bind_integer(cursor, 1, callsite_id);
    if (cursor_next(cursor)) {
        owners->items[owners->place_count] = (struct place){.function = memory_copy_text(cursor_text(cursor, 0)),
                                                            .file = memory_copy_text(cursor_text(cursor, 1)),
                                                            .line = cursor_integer(cursor, 2)};
    }
    cursor_reset(cursor);
    map_put(&owners->places, (uint64_t)callsite_id, owners->place_count++);
}

static void open_places(struct cursor *cursor, struct database *database)
{
    cursor_open(cursor, database, sql_place_of_callsite);
}

static char *wanted_json(const struct owners *owners)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    putc('[', out);
    const char *comma = "";
    for (uint64_t i = 0; i < index_slots(&owners->wanted.index); i++) {
        const struct index_slot *slot = &owners->wanted.index.slots[i];
        if (slot->number != 0) {
            /* as SQLite has it: in 64 bits with a sign */
            fprintf(out, "%s%" PRId64, comma, (int64_t)slot->key);
            comma = ",";
        }
    }
    putc(']', out);
    memory_stream_end(out, &text);
    return text;
}

void owners_load(struct owners *owners, struct database *database)
{
    if (owners->wanted.index.count == 0) {
        return;
    }
    char *addresses = wanted_json(owners);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_block_owners);
    cursor_bind_text(&cursor, 1, addresses);
    cursor_bind_integer(&cursor, 2, owners->last_seq);
    cursor_bind_integer(&cursor, 3, owners->first_seq);
    while (cursor_next(&cursor)) {
        owners->blocks = memory_grow(owners->blocks, &owners->capacity, owners->count, sizeof(owners->blocks[0]));
        owners->blocks[owners->count++] = (struct owned){
            .addr = (uint64_t)cursor_integer(&cursor, 0),
            .process_id = cursor_integer(&cursor, 1),
            .device = cursor_integer(&cursor, 2),
            .from_seq = cursor_integer(&cursor, 3),
            .to_seq = cursor_is_null(&cursor, 4) ? INT64_MAX : cursor_integer(&cursor, 4) - 1,
            .callsite_id = cursor_integer(&cursor, 5),
            .alloc_ns = cursor_integer(&cursor, 6),
        };
    }
    cursor_close(&cursor);
    free(addresses);
    if (owners->count > 1) {
        qsort(owners->blocks, owners->count, sizeof(owners->blocks[0]), compare_owned);
    }
    open_places(&cursor, database);
    for (size_t i = 0; i < owners->count; i++) {
        load_place(owners, &cursor, owners->blocks[i].callsite_id);
    }
    cursor_close(&cursor);
}

static struct owner block_owners_place_of(const struct owners *owners, int64_t callsite_id)
{
    uint64_t number = callsite_id == 0 ? MAP_NONE : map_find(&owners->places, (uint64_t)callsite_id);
    const struct place *place = number == MAP_NONE ? NULL : &owners->items[number];
    struct owner owner = {.callsite_id = callsite_id};
    if (place != NULL) {
        owner.function = place->function;
        owner.file = place->file;
        owner.line = place->line;
    }
    return owner;
}

struct owner owners_of(const struct owners *owners, const struct segments_part *part, uint64_t addr, int64_t seq)
{
    const struct owned key = {.addr = addr, .process_id = part->process_id, .device = part->device, .from_seq = seq};
    size_t low = 0;
    size_t high = owners->count;

    /* the last one that begins at or before `seq` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_owned(&owners->blocks[middle], &key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return (struct owner){0};
    }
    const struct owned *block = &owners->blocks[low - 1];
    struct owner owner = {0};

    if (block->addr == addr && block->process_id == part->process_id && block->device == part->device &&
        seq <= block->to_seq) {
        owner = block_owners_place_of(owners, block->callsite_id);
        owner.alloc_seq = block->from_seq;
        owner.alloc_ns = block->alloc_ns;
    }
    return owner;
}

struct owner owner_of_callsite(struct owners *owners, struct database *database, int64_t callsite_id)
{
    struct cursor cursor;
    open_places(&cursor, database);
    load_place(owners, &cursor, callsite_id);
    cursor_close(&cursor);
    return block_owners_place_of(owners, callsite_id);
}

void owner_json(struct cJSON *object, const struct owner *owner)
{
    json_integer_or_null(object, "callsite_id", owner->callsite_id != 0 ? owner->callsite_id : -1);
    json_text(object, "user_function", owner->function);
    json_text(object, "user_file", owner->file);
    json_integer_or_null(object, "user_line", owner->line > 0 ? owner->line : -1);
}

void owner_text(const struct owner *owner, size_t columns, char text[OWNER_TEXT_BYTES])
{
    text[0] = '\0';
    if (owner->callsite_id == 0 || (owner->function == NULL && owner->file == NULL)) {
        return;
    }
    char line[24] = "";
    if (owner->line > 0) {
        snprintf(line, sizeof(line), ":%" PRId64, owner->line);
    }
    char function[256];
    format_head(function, sizeof(function), owner->function != NULL ? owner->function : "?",
                owner->file == NULL ? columns : columns / 2);
    if (owner->file == NULL) {
        snprintf(text, OWNER_TEXT_BYTES, "%s", function);
        return;
    }
    char file[256];
    format_tail(file, sizeof(file), owner->file, columns - format_width(function) - strlen(line) - 3);
    snprintf(text, OWNER_TEXT_BYTES, "%s (%s%s)", function, file, line);
}
