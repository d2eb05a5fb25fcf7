/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that double, and hash tables of numbers beside those whose entries are interned (streams, texts,
 * stacks). A table holds numbers only and asks the array for equality, so that an entry costs four bytes more
 * than itself.
 */
#include "analysis/history/history.h"

#include "analysis/history/pickle/hash.h"
#include "analysis/base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 256
#define STREAMS_MAX 65536

/* Open addressing; a slot is a number + 1, 0 if it is empty. Never more than half full. */
struct number_table {
    uint32_t *slots;
    size_t count;
    unsigned bits;
};

struct history_tables {
    struct number_table streams, texts, stacks;
    uint64_t last_handle; /* most events are on the stream of the one before */
    uint16_t last_stream;
    size_t *text_bytes; /* texts may hold a zero byte, so that strlen is of no use */
    size_t text_bytes_capacity;
};

/* The array, with room for one more item. */
static void *array_grow(void *array, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity) {
        return array;
    }
    *capacity = count == 0 ? 16 : count * 2;
    return memory_resize(array, *capacity * item_bytes);
}

/* ---- tables ---- */

static uint64_t entry_hash(const struct history *history, const struct number_table *table, uint32_t number)
{
    const struct history_tables *tables = history->tables;

    if (table == &tables->streams) {
        return hash_bytes(&history->streams[number], sizeof(uint64_t));
    }
    if (table == &tables->texts) {
        return hash_bytes(history->texts[number], tables->text_bytes[number]);
    }
    return hash_bytes(history->frames + history->stacks[number].first_frame,
                      history->stacks[number].frame_count * sizeof(struct history_frame));
}

static void table_put_hashed(struct number_table *table, uint64_t hash, uint32_t number)
{
    size_t mask = ((size_t)1 << table->bits) - 1;
    size_t slot = hash & mask;

    while (table->slots[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    table->slots[slot] = number + 1;
}

static void table_put(const struct history *history, struct number_table *table, uint64_t hash,
                      uint32_t number)
{
    if (table->count * 2 >= (table->bits == 0 ? 0 : (size_t)1 << table->bits)) {
        uint32_t *old = table->slots;
        size_t old_slots = table->bits == 0 ? 0 : (size_t)1 << table->bits;

        table->bits = table->bits == 0 ? 6 : table->bits + 1;
        table->slots = memory_resize(NULL, sizeof(uint32_t) << table->bits);
        memset(table->slots, 0, sizeof(uint32_t) << table->bits);
        for (size_t i = 0; i < old_slots; i++) {
            if (old[i] != 0) {
                table_put_hashed(table, entry_hash(history, table, old[i] - 1), old[i] - 1);
            }
        }
        free(old);
    }
    table_put_hashed(table, hash, number);
    table->count++;
}

/* The n-th number whose hash leads to the same slots; begins with *slot = the hash. false: no more. */
static bool table_next(const struct number_table *table, size_t *slot, uint32_t *number)
{
    size_t mask;
    uint32_t found;

    if (table->bits == 0) {
        return false;
    }
    mask = ((size_t)1 << table->bits) - 1;
    found = table->slots[*slot & mask];
    *slot = (*slot & mask) + 1;
    *number = found - 1;
    return found != 0;
}

/* ---- actions ---- */

/* Names, and the kinds of records that say the same: the one table for import, replay and export. */
static const struct {
    const char *name;
    enum varve_kind kind;
} actions[HISTORY_ACTION_LIMIT] = {
    [HISTORY_ALLOC] = {"alloc", VARVE_KIND_ALLOC},
    [HISTORY_FREE_REQUESTED] = {"free_requested", VARVE_KIND_FREE_REQUESTED},
    [HISTORY_FREE_COMPLETED] = {"free_completed", VARVE_KIND_FREE_COMPLETED},
    [HISTORY_SEGMENT_ALLOC] = {"segment_alloc", VARVE_KIND_SEGMENT_ALLOC},
    [HISTORY_SEGMENT_FREE] = {"segment_free", VARVE_KIND_SEGMENT_FREE},
    [HISTORY_SEGMENT_MAP] = {"segment_map", VARVE_KIND_SEGMENT_MAP},
    [HISTORY_SEGMENT_UNMAP] = {"segment_unmap", VARVE_KIND_SEGMENT_UNMAP},
    [HISTORY_SNAPSHOT] = {"snapshot", VARVE_KIND_NONE},
    [HISTORY_OOM] = {"oom", VARVE_KIND_OOM},
};

/* The other way round, for each record of a replay: action + 1, 0 for kinds that no action says. */
static const uint8_t action_of_kind[VARVE_KIND_LIMIT] = {
    [VARVE_KIND_ALLOC] = HISTORY_ALLOC + 1,
    [VARVE_KIND_FREE_REQUESTED] = HISTORY_FREE_REQUESTED + 1,
    [VARVE_KIND_FREE_COMPLETED] = HISTORY_FREE_COMPLETED + 1,
    [VARVE_KIND_SEGMENT_ALLOC] = HISTORY_SEGMENT_ALLOC + 1,
    [VARVE_KIND_SEGMENT_FREE] = HISTORY_SEGMENT_FREE + 1,
    [VARVE_KIND_SEGMENT_MAP] = HISTORY_SEGMENT_MAP + 1,
    [VARVE_KIND_SEGMENT_UNMAP] = HISTORY_SEGMENT_UNMAP + 1,
    [VARVE_KIND_OOM] = HISTORY_OOM + 1,
};

const char *history_action_name(unsigned action)
{
    return actions[action].name;
}

enum varve_kind history_action_kind(unsigned action)
{
    return actions[action].kind;
}

unsigned history_action_of_kind(unsigned kind)
{
    unsigned action = kind < VARVE_KIND_LIMIT ? action_of_kind[kind] : 0;

    return action != 0 ? action - 1 : HISTORY_ACTION_LIMIT;
}

/* ---- the history ---- */

struct history *history_new(void)
{
    struct history *history = memory_resize(NULL, sizeof(*history));
    const struct history_frame no_frame = {0, 0, 0};
    uint16_t stream;

    *history = (struct history){.settings = {.max_split_size = -1}};
    history->tables = memory_resize(NULL, sizeof(*history->tables));
    *history->tables = (struct history_tables){.last_handle = 1};
    history_stream(history, 0, &stream);
    history_text(history, "", 0);
    history_add_stack(history, &no_frame, 0);
    assert(history->stream_count == 1 && history->text_count == 1 && history->stack_count == 1);
    return history;
}

void history_free(struct history *history)
{
    if (history == NULL) {
        return;
    }
    for (size_t i = 0; i < history->device_count; i++) {
        free(history->devices[i].events);
        free(history->devices[i].segments);
        free(history->devices[i].blocks);
    }
    for (size_t i = 0; i < history->text_count; i++) {
        free(history->texts[i]);
    }
    free(history->devices);
    free(history->streams);
    free(history->texts);
    free(history->frames);
    free(history->stacks);
    free(history->tables->streams.slots);
    free(history->tables->texts.slots);
    free(history->tables->stacks.slots);
    free(history->tables->text_bytes);
    free(history->tables);
    free(history);
}

int history_stream(struct history *history, uint64_t handle, uint16_t *number_out)
{
    struct history_tables *tables = history->tables;
    uint64_t hash;
    size_t slot;
    uint32_t number;
    bool is_known;

    if (handle == tables->last_handle && history->stream_count > 0) {
        *number_out = tables->last_stream;
        return VARVE_OK;
    }
    hash = hash_bytes(&handle, sizeof(handle));
    slot = hash;
    do {
        is_known = table_next(&tables->streams, &slot, &number);
    } while (is_known && history->streams[number] != handle);
    if (!is_known) {
        if (history->stream_count == STREAMS_MAX) {
            return VARVE_ERROR_UNSUPPORTED;
        }
        history->streams =
            array_grow(history->streams, &history->stream_capacity, history->stream_count, sizeof(uint64_t));
        number = (uint32_t)history->stream_count;
        history->streams[history->stream_count++] = handle;
        table_put(history, &tables->streams, hash, number);
    }
    tables->last_handle = handle;
    tables->last_stream = (uint16_t)number;
    *number_out = (uint16_t)number;
    return VARVE_OK;
}

struct history_device *history_device(struct history *history, size_t index)
{
    if (index >= DEVICES_MAX) {
        return NULL;
    }
    if (index >= history->device_count) {
        size_t count = index + 1;

        history->devices = memory_resize(history->devices, count * sizeof(*history->devices));
        memset(history->devices + history->device_count, 0,
               (count - history->device_count) * sizeof(*history->devices));
        history->device_count = count;
    }
    return &history->devices[index];
}

struct history_event *history_add_event(struct history_device *device)
{
    struct history_event *event;

    device->events = array_grow(device->events, &device->event_capacity, device->event_count, sizeof(*event));
    event = &device->events[device->event_count++];
    *event = (struct history_event){0};
    return event;
}

struct history_segment *history_add_segment(struct history_device *device)
{
    struct history_segment *segment;

    device->segments =
        array_grow(device->segments, &device->segment_capacity, device->segment_count, sizeof(*segment));
    segment = &device->segments[device->segment_count++];
    *segment = (struct history_segment){0};
    return segment;
}

struct history_block *history_add_block(struct history_device *device)
{
    struct history_block *block;

    device->blocks = array_grow(device->blocks, &device->block_capacity, device->block_count, sizeof(*block));
    block = &device->blocks[device->block_count++];
    *block = (struct history_block){0};
    return block;
}

uint32_t history_text(struct history *history, const char *text, size_t bytes)
{
    struct history_tables *tables = history->tables;
    uint64_t hash = hash_bytes(text, bytes);
    size_t slot = hash;
    uint32_t number;

    while (table_next(&tables->texts, &slot, &number) && number < history->text_count) {
        if (tables->text_bytes[number] == bytes && memcmp(history->texts[number], text, bytes) == 0) {
            return number;
        }
    }
    history->texts = array_grow(history->texts, &history->text_capacity, history->text_count, sizeof(char *));
    tables->text_bytes =
        array_grow(tables->text_bytes, &tables->text_bytes_capacity, history->text_count, sizeof(size_t));
    number = (uint32_t)history->text_count++;
    history->texts[number] = memory_resize(NULL, bytes + 1);
    memcpy(history->texts[number], text, bytes);
    history->texts[number][bytes] = '\0';
    tables->text_bytes[number] = bytes;
    table_put(history, &tables->texts, hash, number);
    return number;
}

uint32_t history_add_stack(struct history *history, const struct history_frame *frames, uint32_t count)
{
    struct history_tables *tables = history->tables;
    uint64_t hash = hash_bytes(frames, count * sizeof(*frames));
    size_t slot = hash;
    uint32_t number;
    struct history_stack *stack;

    while (table_next(&tables->stacks, &slot, &number) && number < history->stack_count) {
        stack = &history->stacks[number];
        if (stack->frame_count == count && (count == 0 || memcmp(history->frames + stack->first_frame, frames,
                                                                 count * sizeof(*frames)) == 0)) {
            return number;
        }
    }
    history->stacks =
        array_grow(history->stacks, &history->stack_capacity, history->stack_count, sizeof(*stack));
    number = (uint32_t)history->stack_count++;
    stack = &history->stacks[number];
    *stack = (struct history_stack){.first_frame = history->frame_count, .frame_count = count};
    while (history->frame_capacity < history->frame_count + count) {
        history->frame_capacity = history->frame_capacity == 0 ? 64 : history->frame_capacity * 2;
        history->frames = memory_resize(history->frames, history->frame_capacity * sizeof(*frames));
    }
    if (count > 0) {
        memcpy(history->frames + history->frame_count, frames, count * sizeof(*frames));
    }
    history->frame_count += count;
    table_put(history, &tables->stacks, hash, number);
    return number;
}
