/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pickle machine remembers: containers with reference counts, the memo, interned texts. The hard part
 * is to let go: a container that was replaced while its memo entry still names it, that a later opcode may
 * fetch again, and that other containers or the stack may hold meanwhile. Taking apart is a loop over a list
 * of doomed objects, since a hostile file nests deeper than any C stack. Called by the opcodes and the sinks.
 */
#include "analysis/history/pickle/pickle.h"

#include "analysis/history/hash.h"
#include "analysis/output/format.h"
#include "analysis/output/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BITS 10
#define SLAB_OBJECTS (1U << SLAB_BITS)
#define SPARE_ITEMS_MAX 32 /* a spare dict keeps room for so many items: an event has 16 */
#define MEMO_BITS 13
#define MEMO_ENTRIES ((size_t)1 << MEMO_BITS)
#define NO_OBJECT UINT32_MAX
#define TEXT_CHUNK_BYTES 65536

/* ---- objects ---- */

static struct pickle_object *object_at(const struct pickle *pickle, uint32_t number)
{
    assert(number < pickle->object_limit);
    return &pickle->slabs[number >> SLAB_BITS][number & (SLAB_OBJECTS - 1)];
}

struct pickle_object *pickle_object(const struct pickle *pickle, struct pickle_value value)
{
    assert(pickle_is_object(value));
    return object_at(pickle, (uint32_t)value.bits);
}

static uint32_t object_number_new(struct pickle *pickle)
{
    uint32_t number = pickle->object_limit;

    if (number == NO_OBJECT - 1) {
        memory_exhausted();
    }
    if (number >> SLAB_BITS == pickle->slab_count) {
        pickle->slabs = memory_resize(pickle->slabs, (pickle->slab_count + 1) * sizeof(*pickle->slabs));
        pickle->slabs[pickle->slab_count++] =
            memory_resize(NULL, SLAB_OBJECTS * sizeof(struct pickle_object));
    }
    pickle->object_limit++;
    *object_at(pickle, number) = (struct pickle_object){0};
    return number;
}

struct pickle_value pickle_object_new(struct pickle *pickle, enum pickle_type type)
{
    uint32_t *spare = type == PICKLE_DICT ? &pickle->spare_dicts : &pickle->spare_others;
    uint32_t number = *spare;
    struct pickle_object *object;

    if (number == NO_OBJECT) {
        number = object_number_new(pickle);
        object = object_at(pickle, number);
    } else {
        object = object_at(pickle, number);
        *spare = object->memo_slot;
    }
    assert(object->count == 0);
    object->references = 1;
    object->memo_slot = PICKLE_SLOT_NONE;
    object->type = (uint8_t)type;
    object->role = PICKLE_ROLE_UNDECIDED;
    object->number = 0;
    object->is_replaced = false;
    return (struct pickle_value){.type = type, .offset = pickle->offset, .bits = number};
}

void pickle_object_add(struct pickle_object *object, const struct pickle_value *items, size_t count)
{
    if (object->capacity - object->count < count) {
        size_t wanted = object->count + count;

        if (object->count > 0 && wanted < (size_t)object->capacity * 2) {
            wanted = (size_t)object->capacity * 2;
        }
        if (wanted > UINT32_MAX) {
            memory_exhausted();
        }
        object->items = memory_resize(object->items, wanted * sizeof(*items));
        object->capacity = (uint32_t)wanted;
    }
    if (count > 0) {
        memcpy(object->items + object->count, items, count * sizeof(*items));
        object->count += (uint32_t)count;
    }
}

/* ---- memo ---- */

/* An entry: type in 4 bits, 1 bit "the rest is an index into wide", 59 bits of payload. */
static uint64_t memo_pack(struct pickle *pickle, enum pickle_type type, uint64_t bits)
{
    uint64_t back = type == PICKLE_INTEGER ? (uint64_t)((int64_t)(bits << 5) >> 5) : bits << 5 >> 5;

    if (back == bits) {
        return bits << 5 | (uint64_t)type;
    }
    if (pickle->wide_count == pickle->wide_capacity) {
        pickle->wide_capacity = pickle->wide_capacity == 0 ? 64 : pickle->wide_capacity * 2;
        pickle->wide = memory_resize(pickle->wide, pickle->wide_capacity * sizeof(*pickle->wide));
    }
    pickle->wide[pickle->wide_count] = bits;
    return (uint64_t)pickle->wide_count++ << 5 | 16 | (uint64_t)type;
}

static struct pickle_value memo_unpack(const struct pickle *pickle, uint64_t entry)
{
    struct pickle_value value = {.type = entry & 15, .offset = pickle->offset, .bits = entry >> 5};

    if (entry & 16) {
        value.bits = pickle->wide[entry >> 5];
    } else if (value.type == PICKLE_INTEGER) {
        value.bits = (uint64_t)((int64_t)entry >> 5);
    }
    return value;
}

static uint64_t *memo_page(struct pickle *pickle, size_t page)
{
    if (page >= pickle->memo_pages) {
        size_t pages = page + 1 > pickle->memo_pages * 2 ? page + 1 : pickle->memo_pages * 2;

        pickle->memo = memory_resize(pickle->memo, pages * sizeof(*pickle->memo));
        memset(pickle->memo + pickle->memo_pages, 0, (pages - pickle->memo_pages) * sizeof(*pickle->memo));
        pickle->memo_pages = pages;
    }
    if (pickle->memo[page] == NULL) {
        pickle->memo[page] = memory_resize(NULL, MEMO_ENTRIES * sizeof(uint64_t));
        memset(pickle->memo[page], 0, MEMO_ENTRIES * sizeof(uint64_t));
    }
    return pickle->memo[page];
}

void pickle_memo_put(struct pickle *pickle, uint64_t index, struct pickle_value value)
{
    uint64_t *entry = &memo_page(pickle, index >> MEMO_BITS)[index & (MEMO_ENTRIES - 1)];
    uint64_t before = *entry;

    *entry = memo_pack(pickle, (enum pickle_type)value.type, value.bits);
    if (pickle_is_object(value)) {
        struct pickle_object *object = pickle_object(pickle, value);

        object->references++;
        object->memo_slot = object->memo_slot == PICKLE_SLOT_NONE && index < PICKLE_SLOT_MANY
                                ? (uint32_t)index
                                : PICKLE_SLOT_MANY;
    }
    if (before == 0) {
        pickle->memo_count++;
    } else {
        struct pickle_value old = memo_unpack(pickle, before);

        if (pickle_is_object(old)) {
            struct pickle_object *object = pickle_object(pickle, old);

            object->memo_slot = object->memo_slot == index ? PICKLE_SLOT_NONE : object->memo_slot;
            pickle_release(pickle, old);
        }
    }
}

bool pickle_memo_get(struct pickle *pickle, uint64_t index, struct pickle_value *value_out)
{
    uint64_t page = index >> MEMO_BITS;
    uint64_t entry = page < pickle->memo_pages && pickle->memo[page] != NULL
                         ? pickle->memo[page][index & (MEMO_ENTRIES - 1)]
                         : 0;

    *value_out = memo_unpack(pickle, entry);
    pickle_retain(pickle, *value_out);
    return entry != 0;
}

/* ---- letting go ---- */

static uint64_t replacement_bits(const struct pickle_object *object)
{
    return (uint64_t)object->tag << 32 | object->number;
}

static void drop_reference(struct pickle *pickle, uint32_t number)
{
    struct pickle_object *object = object_at(pickle, number);

    assert(object->references > 0);
    object->references--;
    if (object->references == 1 && object->is_replaced && object->memo_slot < PICKLE_SLOT_MANY) {
        uint64_t index = object->memo_slot;

        pickle->memo[index >> MEMO_BITS][index & (MEMO_ENTRIES - 1)] =
            memo_pack(pickle, PICKLE_REPLACED, replacement_bits(object));
        object->references = 0;
    }
    if (object->references == 0) {
        object->memo_slot = pickle->doomed;
        pickle->doomed = number;
    }
}

static void drop_items(struct pickle *pickle, struct pickle_object *object)
{
    for (uint32_t i = 0; i < object->count; i++) {
        if (pickle_is_object(object->items[i])) {
            drop_reference(pickle, (uint32_t)object->items[i].bits);
        }
    }
    object->count = 0;
    if (object->type != PICKLE_DICT || object->capacity > SPARE_ITEMS_MAX) {
        free(object->items);
        object->items = NULL;
        object->capacity = 0;
    }
}

static void drain(struct pickle *pickle)
{
    while (pickle->doomed != NO_OBJECT) {
        uint32_t number = pickle->doomed;
        struct pickle_object *object = object_at(pickle, number);
        uint32_t *spare = object->type == PICKLE_DICT ? &pickle->spare_dicts : &pickle->spare_others;

        pickle->doomed = object->memo_slot;
        drop_items(pickle, object);
        object->memo_slot = *spare;
        *spare = number;
    }
}

void pickle_retain(struct pickle *pickle, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        pickle_object(pickle, value)->references++;
    }
}

void pickle_release(struct pickle *pickle, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        drop_reference(pickle, (uint32_t)value.bits);
        drain(pickle);
    }
}

void pickle_replace(struct pickle *pickle, struct pickle_object *object, uint8_t tag, uint32_t number)
{
    assert(!object->is_replaced && object->references > 0);
    object->is_replaced = true;
    object->tag = tag;
    object->number = number;
    object->references++; /* it may hold itself */
    drop_items(pickle, object);
    object->references--;
    drain(pickle);
}

struct pickle_value pickle_resolve(const struct pickle *pickle, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        const struct pickle_object *object = pickle_object(pickle, value);

        if (object->is_replaced) {
            value.type = PICKLE_REPLACED;
            value.bits = replacement_bits(object);
        }
    }
    return value;
}

/* ---- texts ---- */

static const char *text_store(struct pickle *pickle, const char *bytes, size_t count)
{
    size_t chunk_bytes = count > TEXT_CHUNK_BYTES / 4 ? count : TEXT_CHUNK_BYTES;
    char *stored;

    if (pickle->text_chunk_count == 0 || count > pickle->text_chunk_left || count > TEXT_CHUNK_BYTES / 4) {
        if (pickle->text_chunk_count == pickle->text_chunk_capacity) {
            pickle->text_chunk_capacity =
                pickle->text_chunk_capacity == 0 ? 16 : pickle->text_chunk_capacity * 2;
            pickle->text_chunks =
                memory_resize(pickle->text_chunks, pickle->text_chunk_capacity * sizeof(char *));
        }
        pickle->text_chunks[pickle->text_chunk_count++] = memory_resize(NULL, chunk_bytes);
        pickle->text_chunk_left = chunk_bytes;
    }
    /* A chunk is filled from its end, so that what is left says where. */
    pickle->text_chunk_left -= count;
    stored = pickle->text_chunks[pickle->text_chunk_count - 1] + pickle->text_chunk_left;
    memcpy(stored, bytes, count);
    return stored;
}

static void text_put(struct pickle *pickle, uint32_t number, uint64_t hash)
{
    size_t mask = ((size_t)1 << pickle->text_bits) - 1;
    size_t slot = hash & mask;

    while (pickle->text_slots[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    pickle->text_slots[slot] = number + 1;
}

static void text_table_grow(struct pickle *pickle)
{
    pickle->text_bits = pickle->text_bits == 0 ? 8 : pickle->text_bits + 1;
    pickle->text_slots = memory_resize(pickle->text_slots, sizeof(uint32_t) << pickle->text_bits);
    memset(pickle->text_slots, 0, sizeof(uint32_t) << pickle->text_bits);
    for (uint32_t i = 0; i < pickle->text_count; i++) {
        text_put(pickle, i, hash_bytes(pickle->texts[i].bytes, pickle->texts[i].count));
    }
}

uint32_t pickle_text(struct pickle *pickle, const char *bytes, size_t count)
{
    uint64_t hash = hash_bytes(bytes, count);
    size_t mask;

    if (pickle->text_bits == 0 || pickle->text_count * 2 >= (size_t)1 << pickle->text_bits) {
        text_table_grow(pickle);
    }
    mask = ((size_t)1 << pickle->text_bits) - 1;
    for (size_t slot = hash & mask; pickle->text_slots[slot] != 0; slot = (slot + 1) & mask) {
        const struct pickle_text *text = &pickle->texts[pickle->text_slots[slot] - 1];

        if (text->count == count && memcmp(text->bytes, bytes, count) == 0) {
            return pickle->text_slots[slot] - 1;
        }
    }
    if (pickle->text_count == pickle->text_capacity) {
        pickle->text_capacity = pickle->text_capacity == 0 ? 64 : pickle->text_capacity * 2;
        pickle->texts = memory_resize(pickle->texts, pickle->text_capacity * sizeof(*pickle->texts));
    }
    pickle->texts[pickle->text_count] =
        (struct pickle_text){.bytes = text_store(pickle, bytes, count), .count = (uint32_t)count};
    text_put(pickle, (uint32_t)pickle->text_count, hash);
    return (uint32_t)pickle->text_count++;
}

const char *pickle_describe(const struct pickle *pickle, struct pickle_value value, char *buffer,
                            size_t buffer_bytes)
{
    static const char *const names[] = {
        [PICKLE_NONE] = "None",
        [PICKLE_BOOL] = "a bool",
        [PICKLE_INTEGER] = "an integer",
        [PICKLE_UNSIGNED] = "an integer of 64 bits",
        [PICKLE_BIG] = "an integer of more than 64 bits",
        [PICKLE_FLOAT] = "a float",
        [PICKLE_LONG_TEXT] = "a text of more than 64 KiB",
        [PICKLE_BYTES] = "bytes",
        [PICKLE_LIST] = "a list",
        [PICKLE_TUPLE] = "a tuple",
        [PICKLE_SET] = "a set",
        [PICKLE_DICT] = "a dict",
        [PICKLE_REPLACED] = "something that was used before",
    };
    struct pickle_value resolved = pickle_resolve(pickle, value);

    if (resolved.type == PICKLE_TEXT) {
        const struct pickle_text *text = &pickle->texts[resolved.bits];
        char raw[48], shown[64];

        snprintf(raw, sizeof(raw), "%.*s", (int)(text->count < 47 ? text->count : 47), text->bytes);
        format_head(shown, sizeof(shown), raw, 40);
        snprintf(buffer, buffer_bytes, "the text '%s'", shown);
    } else {
        snprintf(buffer, buffer_bytes, "%s", names[resolved.type]);
    }
    return buffer;
}

void pickle_memory_close(struct pickle *pickle)
{
    for (uint32_t i = 0; i < pickle->object_limit; i++) {
        free(object_at(pickle, i)->items);
    }
    for (size_t i = 0; i < pickle->slab_count; i++) {
        free(pickle->slabs[i]);
    }
    for (size_t i = 0; i < pickle->memo_pages; i++) {
        free(pickle->memo[i]);
    }
    for (size_t i = 0; i < pickle->text_chunk_count; i++) {
        free(pickle->text_chunks[i]);
    }
    free(pickle->slabs);
    free(pickle->memo);
    free(pickle->wide);
    free(pickle->text_chunks);
    free(pickle->texts);
    free(pickle->text_slots);
}
