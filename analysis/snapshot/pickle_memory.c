/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in slabs, the memo in pages, texts in chunks. Letting go is a loop over a list of unreferenced
 * objects, never a recursion, since a hostile file nests deeper than any C stack.
 */
#include "analysis/snapshot/pickle_memory.h"

#include "analysis/base/number_format.h"
#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BITS 10
#define SLAB_OBJECTS (1U << SLAB_BITS)
#define SPARE_ITEMS_MAX 32 /* a spare dict keeps room for so many items: an event has 16 */
#define MEMO_BITS 13
#define MEMO_ENTRIES ((size_t)1 << MEMO_BITS)
#define NO_OBJECT UINT32_MAX
#define TEXT_CHUNK_BYTES 65536

void pickle_memory_init(struct pickle_memory *memory)
{
    *memory = (struct pickle_memory){.spare_dicts = NO_OBJECT, .spare_others = NO_OBJECT, .unreferenced = NO_OBJECT};
}

/* ---- objects ---- */

static struct pickle_object *object_at(const struct pickle_memory *memory, uint32_t number)
{
    assert(number < memory->object_limit);
    return &memory->slabs[number >> SLAB_BITS][number & (SLAB_OBJECTS - 1)];
}

struct pickle_object *pickle_object(const struct pickle_memory *memory, struct pickle_value value)
{
    assert(pickle_is_object(value));
    return object_at(memory, (uint32_t)value.bits);
}

static uint32_t object_number_new(struct pickle_memory *memory)
{
    uint32_t number = memory->object_limit;
    if (number == NO_OBJECT - 1) {
        memory_exhausted();
    }
    if (number >> SLAB_BITS == memory->slab_count) {
        memory->slabs = memory_resize(memory->slabs, (memory->slab_count + 1) * sizeof(*memory->slabs));
        memory->slabs[memory->slab_count++] = memory_resize(NULL, SLAB_OBJECTS * sizeof(struct pickle_object));
    }
    memory->object_limit++;
    *object_at(memory, number) = (struct pickle_object){0};
    return number;
}

struct pickle_value pickle_object_new(struct pickle_memory *memory, enum pickle_type type)
{
    uint32_t *spare = type == PICKLE_DICT ? &memory->spare_dicts : &memory->spare_others;
    uint32_t number = *spare;
    struct pickle_object *object;
    if (number == NO_OBJECT) {
        number = object_number_new(memory);
        object = object_at(memory, number);
    } else {
        object = object_at(memory, number);
        *spare = object->memo_slot;
    }
    assert(object->count == 0);
    object->references = 1;
    object->memo_slot = PICKLE_SLOT_NONE;
    object->type = (uint8_t)type;
    object->role = PICKLE_ROLE_UNDECIDED;
    object->number = 0;
    object->is_replaced = false;
    return (struct pickle_value){.type = type, .bits = number};
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
static uint64_t memo_pack(struct pickle_memory *memory, enum pickle_type type, uint64_t bits)
{
    uint64_t back = type == PICKLE_INTEGER ? (uint64_t)((int64_t)(bits << 5) >> 5) : bits << 5 >> 5;
    if (back == bits) {
        return bits << 5 | (uint64_t)type;
    }
    memory->wide = memory_grow(memory->wide, &memory->wide_capacity, memory->wide_count, sizeof(bits));
    memory->wide[memory->wide_count] = bits;
    return (uint64_t)memory->wide_count++ << 5 | 16 | (uint64_t)type;
}

static struct pickle_value memo_unpack(const struct pickle_memory *memory, uint64_t entry)
{
    struct pickle_value value = {.type = entry & 15, .bits = entry >> 5};
    if (entry & 16) {
        value.bits = memory->wide[entry >> 5];
    } else if (value.type == PICKLE_INTEGER) {
        value.bits = (uint64_t)((int64_t)entry >> 5);
    }
    return value;
}

static uint64_t *memo_page(struct pickle_memory *memory, size_t page)
{
    if (page >= memory->memo_pages) {
        size_t pages = page + 1 > memory->memo_pages * 2 ? page + 1 : memory->memo_pages * 2;
        memory->memo = memory_resize(memory->memo, pages * sizeof(*memory->memo));
        memset(memory->memo + memory->memo_pages, 0, (pages - memory->memo_pages) * sizeof(*memory->memo));
        memory->memo_pages = pages;
    }
    if (memory->memo[page] == NULL) {
        memory->memo[page] = memory_resize(NULL, MEMO_ENTRIES * sizeof(uint64_t));
        memset(memory->memo[page], 0, MEMO_ENTRIES * sizeof(uint64_t));
    }
    return memory->memo[page];
}

void pickle_memo_put(struct pickle_memory *memory, uint64_t index, struct pickle_value value)
{
    uint64_t *entry = &memo_page(memory, index >> MEMO_BITS)[index & (MEMO_ENTRIES - 1)];
    uint64_t before = *entry;
    *entry = memo_pack(memory, (enum pickle_type)value.type, value.bits);
    if (pickle_is_object(value)) {
        struct pickle_object *object = pickle_object(memory, value);
        object->references++;
        object->memo_slot =
            object->memo_slot == PICKLE_SLOT_NONE && index < PICKLE_SLOT_MANY ? (uint32_t)index : PICKLE_SLOT_MANY;
    }
    if (before == 0) {
        memory->memo_count++;
    } else {
        struct pickle_value old = memo_unpack(memory, before);
        if (pickle_is_object(old)) {
            struct pickle_object *object = pickle_object(memory, old);
            object->memo_slot = object->memo_slot == index ? PICKLE_SLOT_NONE : object->memo_slot;
            pickle_release(memory, old);
        }
    }
}

bool pickle_memo_get(struct pickle_memory *memory, uint64_t index, struct pickle_value *value_out)
{
    uint64_t page = index >> MEMO_BITS;
    uint64_t entry =
        page < memory->memo_pages && memory->memo[page] != NULL ? memory->memo[page][index & (MEMO_ENTRIES - 1)] : 0;
    *value_out = memo_unpack(memory, entry);
    pickle_retain(memory, *value_out);
    return entry != 0;
}

/* ---- letting go ---- */

static uint64_t replacement_bits(const struct pickle_object *object)
{
    return (uint64_t)object->tag << 32 | object->number;
}

static void drop_reference(struct pickle_memory *memory, uint32_t number)
{
    struct pickle_object *object = object_at(memory, number);
    assert(object->references > 0);
    object->references--;
    if (object->references == 1 && object->is_replaced && object->memo_slot < PICKLE_SLOT_MANY) {
        uint64_t index = object->memo_slot;
        memory->memo[index >> MEMO_BITS][index & (MEMO_ENTRIES - 1)] =
            memo_pack(memory, PICKLE_REPLACED, replacement_bits(object));
        object->references = 0;
    }
    if (object->references == 0) {
        object->memo_slot = memory->unreferenced;
        memory->unreferenced = number;
    }
}

static void drop_items(struct pickle_memory *memory, struct pickle_object *object)
{
    for (uint32_t i = 0; i < object->count; i++) {
        if (pickle_is_object(object->items[i])) {
            drop_reference(memory, (uint32_t)object->items[i].bits);
        }
    }
    object->count = 0;
    if (object->type != PICKLE_DICT || object->capacity > SPARE_ITEMS_MAX) {
        free(object->items);
        object->items = NULL;
        object->capacity = 0;
    }
}

static void drain(struct pickle_memory *memory)
{
    while (memory->unreferenced != NO_OBJECT) {
        uint32_t number = memory->unreferenced;
        struct pickle_object *object = object_at(memory, number);
        uint32_t *spare = object->type == PICKLE_DICT ? &memory->spare_dicts : &memory->spare_others;
        memory->unreferenced = object->memo_slot;
        drop_items(memory, object);
        object->memo_slot = *spare;
        *spare = number;
    }
}

void pickle_retain(struct pickle_memory *memory, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        pickle_object(memory, value)->references++;
    }
}

void pickle_release(struct pickle_memory *memory, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        drop_reference(memory, (uint32_t)value.bits);
        drain(memory);
    }
}

void pickle_replace(struct pickle_memory *memory, struct pickle_object *object, uint8_t tag, uint32_t number)
{
    assert(!object->is_replaced && object->references > 0);
    object->is_replaced = true;
    object->tag = tag;
    object->number = number;
    object->references++; /* it may hold itself */
    drop_items(memory, object);
    object->references--;
    drain(memory);
}

struct pickle_value pickle_resolve(const struct pickle_memory *memory, struct pickle_value value)
{
    if (pickle_is_object(value)) {
        const struct pickle_object *object = pickle_object(memory, value);
        if (object->is_replaced) {
            value.type = PICKLE_REPLACED;
            value.bits = replacement_bits(object);
        }
    }
    return value;
}

/* ---- texts ---- */

static const char *text_store(struct pickle_memory *memory, const char *bytes, size_t count)
{
    size_t chunk_bytes = count > TEXT_CHUNK_BYTES / 4 ? count : TEXT_CHUNK_BYTES;
    if (memory->text_chunk_count == 0 || count > memory->text_chunk_left || count > TEXT_CHUNK_BYTES / 4) {
        *MEMORY_ADD(memory->text_chunks, memory->text_chunk_count, memory->text_chunk_capacity) =
            memory_resize(NULL, chunk_bytes);
        memory->text_chunk_left = chunk_bytes;
    }
    /* A chunk is filled from its end, so that what is left says where. */
    memory->text_chunk_left -= count;
    char *stored = memory->text_chunks[memory->text_chunk_count - 1] + memory->text_chunk_left;
    memcpy(stored, bytes, count);
    return stored;
}

uint32_t pickle_text(struct pickle_memory *memory, const char *bytes, size_t count)
{
    uint64_t key = map_hash(bytes, count);
    for (uint64_t found; (found = map_find(&memory->text_numbers, key)) != MAP_NONE; key++) {
        const struct pickle_text *text = &memory->texts[found];
        if (text->count == count && memcmp(text->bytes, bytes, count) == 0) {
            return (uint32_t)found;
        }
    }
    memory->texts = memory_grow(memory->texts, &memory->text_capacity, memory->text_count, sizeof(*memory->texts));
    memory->texts[memory->text_count] =
        (struct pickle_text){.bytes = text_store(memory, bytes, count), .count = (uint32_t)count};
    map_put(&memory->text_numbers, key, memory->text_count);
    return (uint32_t)memory->text_count++;
}

const char *pickle_describe(const struct pickle_memory *memory, struct pickle_value value, char *buffer,
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
        [PICKLE_DICT] = "a dict",
        [PICKLE_REPLACED] = "something that was used before",
    };
    struct pickle_value resolved = pickle_resolve(memory, value);
    if (resolved.type == PICKLE_TEXT) {
        const struct pickle_text *text = &memory->texts[resolved.bits];
        char raw[48];
        snprintf(raw, sizeof(raw), "%.*s", (int)(text->count < 47 ? text->count : 47), text->bytes);
        char shown[64];
        format_head(shown, sizeof(shown), raw, 40);
        snprintf(buffer, buffer_bytes, "the text '%s'", shown);
    } else {
        snprintf(buffer, buffer_bytes, "%s", names[resolved.type]);
    }
    return buffer;
}

void pickle_memory_close(struct pickle_memory *memory)
{
    for (uint32_t i = 0; i < memory->object_limit; i++) {
        free(object_at(memory, i)->items);
    }
    for (size_t i = 0; i < memory->slab_count; i++) {
        free(memory->slabs[i]);
    }
    for (size_t i = 0; i < memory->memo_pages; i++) {
        free(memory->memo[i]);
    }
    for (size_t i = 0; i < memory->text_chunk_count; i++) {
        free(memory->text_chunks[i]);
    }
    free(memory->slabs);
    free(memory->memo);
    free(memory->wide);
    free(memory->text_chunks);
    free(memory->texts);
    map_free(&memory->text_numbers);
}
