/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that double, and maps from hashes of what is interned (streams, texts, stacks) to numbers. */
#include "analysis/history/history.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "base/error.h"
#include "trace/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 256
#define STREAMS_MAX 65536

struct history_tables {
    struct map streams, texts, stacks; /* by hash: numbers */
    uint64_t last_handle;              /* most events are on the stream of the one before */
    uint16_t last_stream;
    size_t *text_bytes; /* texts may hold a zero byte, so that strlen is of no use */
    size_t text_bytes_capacity;
};

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
    *history = (struct history){.settings = {.max_split_size = -1}};
    history->tables = memory_resize(NULL, sizeof(*history->tables));
    *history->tables = (struct history_tables){.last_handle = 1};
    uint16_t stream;
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
        free(history->devices[i].skipped);
        free(history->devices[i].rests);
    }
    for (size_t i = 0; i < history->text_count; i++) {
        free(history->texts[i]);
    }
    free(history->devices);
    free(history->streams);
    free(history->texts);
    free(history->frames);
    free(history->stacks);
    map_free(&history->tables->streams);
    map_free(&history->tables->texts);
    map_free(&history->tables->stacks);
    free(history->tables->text_bytes);
    free(history->tables);
    free(history);
}

/* The handle's number, MAP_NONE if it is new; its key. */
static uint64_t find_stream(const struct history *history, uint64_t handle, uint64_t *key_out)
{
    *key_out = map_hash(&handle, sizeof(handle));
    uint64_t found;
    while ((found = map_find(&history->tables->streams, *key_out)) != MAP_NONE && history->streams[found] != handle) {
        ++*key_out;
    }
    return found;
}

uint16_t history_find_stream(const struct history *history, uint64_t handle)
{
    uint64_t key;
    uint64_t found = find_stream(history, handle, &key);
    return found != MAP_NONE ? (uint16_t)found : 0;
}

int history_stream(struct history *history, uint64_t handle, uint16_t *number_out)
{
    struct history_tables *tables = history->tables;
    if (handle == tables->last_handle && history->stream_count > 0) {
        *number_out = tables->last_stream;
        return VARVE_OK;
    }
    uint64_t key;
    uint64_t found = find_stream(history, handle, &key);
    if (found == MAP_NONE && history->stream_count == STREAMS_MAX) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    tables->last_stream = (uint16_t)(found != MAP_NONE ? found : history->stream_count);
    tables->last_handle = handle;
    *number_out = tables->last_stream;
    if (found == MAP_NONE) {
        map_put(&tables->streams, key, history->stream_count);
        *MEMORY_ADD(history->streams, history->stream_count, history->stream_capacity) = handle;
    }
    return VARVE_OK;
}

uint8_t history_pool(struct history *history, const uint64_t id[2])
{
    size_t number = 0;
    while (number < history->pool_count && memcmp(history->pool_ids[number], id, sizeof(history->pool_ids[0])) != 0) {
        number++;
    }
    if (number == HISTORY_POOLS_MAX) {
        return 0;
    }
    if (number == history->pool_count) {
        memcpy(history->pool_ids[history->pool_count++], id, sizeof(history->pool_ids[0]));
    }
    return (uint8_t)(number + 1);
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
    device->events = memory_grow(device->events, &device->event_capacity, device->event_count, sizeof(*device->events));
    device->events[device->event_count] = (struct history_event){0};
    return &device->events[device->event_count++];
}

struct history_segment *history_add_segment(struct history_device *device)
{
    device->segments =
        memory_grow(device->segments, &device->segment_capacity, device->segment_count, sizeof(*device->segments));
    device->segments[device->segment_count] = (struct history_segment){0};
    return &device->segments[device->segment_count++];
}

struct history_block *history_add_block(struct history_device *device)
{
    device->blocks = memory_grow(device->blocks, &device->block_capacity, device->block_count, sizeof(*device->blocks));
    device->blocks[device->block_count] = (struct history_block){0};
    return &device->blocks[device->block_count++];
}

uint32_t history_text(struct history *history, const char *text, size_t bytes)
{
    struct history_tables *tables = history->tables;
    uint64_t key = map_hash(text, bytes);
    size_t number = history->text_count;
    for (uint64_t found; (found = map_find(&tables->texts, key)) != MAP_NONE && found < number; key++) {
        if (tables->text_bytes[found] == bytes && memcmp(history->texts[found], text, bytes) == 0) {
            return (uint32_t)found;
        }
    }
    history->texts = memory_grow(history->texts, &history->text_capacity, number, sizeof(char *));
    tables->text_bytes = memory_grow(tables->text_bytes, &tables->text_bytes_capacity, number, sizeof(size_t));
    history->texts[number] = memory_resize(NULL, bytes + 1);
    memcpy(history->texts[number], text, bytes);
    history->texts[number][bytes] = '\0';
    tables->text_bytes[number] = bytes;
    map_put(&tables->texts, key, number);
    history->text_count++;
    return (uint32_t)number;
}

size_t history_text_bytes(const struct history *history, uint32_t number)
{
    return history->tables->text_bytes[number];
}

bool history_file_is_python(const char *file)
{
    const size_t length = strlen(file);
    return file[0] == '<' || (length > 3 && strcmp(file + length - 3, ".py") == 0);
}

void history_add_rest(struct history_device *device, size_t event, uint32_t text, uint16_t keys)
{
    const struct history_rest *last = device->rest_count > 0 ? &device->rests[device->rest_count - 1] : NULL;
    if (last != NULL && last->text == text && last->keys == keys) {
        return;
    }
    *MEMORY_ADD(device->rests, device->rest_count, device->rest_capacity) =
        (struct history_rest){.event = event, .text = text, .keys = keys};
}

void history_add_skipped(struct history_device *device, uint32_t text)
{
    *MEMORY_ADD(device->skipped, device->skipped_count, device->skipped_capacity) =
        (struct history_entry){.event = device->event_count, .text = text};
}

uint32_t history_add_stack(struct history *history, const struct history_frame *frames, uint32_t count)
{
    size_t bytes = count * sizeof(*frames);
    uint64_t key = map_hash(frames, bytes);
    size_t number = history->stack_count;
    for (uint64_t found; (found = map_find(&history->tables->stacks, key)) != MAP_NONE && found < number; key++) {
        const struct history_stack *stack = &history->stacks[found];
        if (stack->frame_count == count &&
            (count == 0 || memcmp(history->frames + stack->first_frame, frames, bytes) == 0)) {
            return (uint32_t)found;
        }
    }
    history->stacks = memory_grow(history->stacks, &history->stack_capacity, number, sizeof(*history->stacks));
    history->stacks[number] = (struct history_stack){.first_frame = history->frame_count, .frame_count = count};
    for (uint32_t i = 0; i < count; i++) {
        *MEMORY_ADD(history->frames, history->frame_count, history->frame_capacity) = frames[i];
    }
    map_put(&history->tables->stacks, key, number);
    history->stack_count++;
    return (uint32_t)number;
}
