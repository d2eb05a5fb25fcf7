/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/snapshot/snapshot_event.h"

#include "analysis/snapshot/snapshot_frames.h"
#include "analysis/snapshot/snapshot_reader.h"

#include <string.h>

_Static_assert((int)WORD_ALLOC == HISTORY_ALLOC && (int)WORD_OOM == HISTORY_OOM &&
                   (int)WORD_OOM + 1 == HISTORY_ACTION_LIMIT,
               "actions and their words are in one order");
_Static_assert(sizeof(struct history_event) == 32, "ten million of them are held at a time");

enum {
    HAS_ACTION = 1,
    HAS_ADDR = 2,
    HAS_DEVICE_FREE = 4,
    HAS_SIZE = 8,
};

struct event_parts {
    struct history_event event;
    uint64_t device_free;
    unsigned has;
    uint16_t keys; /* HISTORY_HAS_… */
    bool is_skipped;
};

static int take_action(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                       struct event_parts *parts)
{
    enum snapshot_word word = field_word(value);
    parts->has |= HAS_ACTION;
    parts->is_skipped = false;
    if (word <= WORD_OOM) {
        parts->event.action = (uint8_t)word;
        return VARVE_OK;
    }
    parts->is_skipped = word == WORD_ANNOTATE || word == WORD_USER_DEFINED || word == WORD_WORKSPACE_SNAPSHOT;
    return parts->is_skipped ? VARVE_OK : field_fail_type(reader, key, value, "an action that is known");
}

/* Versions from about 2.12 on name the pool. */
static int take_pool(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint8_t *out)
{
    if (value.type == PICKLE_NONE) {
        return VARVE_OK;
    }
    uint64_t id[2];
    int error = field_pool(reader, key, value, id);
    if (error != VARVE_OK) {
        return error;
    }
    *out = history_pool(reader->history, id);
    return *out == 0 ? field_fail(reader, value.offset, "more than %d different pools", HISTORY_POOLS_MAX) : VARVE_OK;
}

/* Which is unknown if it is odd. */
static int snapshot_event_take_optional(struct snapshot_reader *reader, struct pickle_value key,
                                        struct pickle_value value, struct event_parts *parts)
{
    int error = VARVE_OK;
    unsigned has = 0;
    switch (field_word(key)) {
    case WORD_STREAM:
        has = HISTORY_HAS_STREAM;
        error = field_stream(reader, key, value, &parts->event.stream);
        break;
    case WORD_TIME_US:
        has = HISTORY_HAS_TIME;
        error = field_integer(reader, key, value, &parts->event.time_us);
        break;
    case WORD_FRAMES:
        has = HISTORY_HAS_FRAMES;
        error = frames_take(reader, key, value, &parts->event.stack);
        break;
    default:
        error = take_pool(reader, key, value, &parts->event.pool);
        if (error == VARVE_OK) {
            rest_add(reader, key, value); /* a database does not hold it of each event */
        }
        break;
    }
    parts->keys |= error == VARVE_OK ? has : 0;
    return field_soften(reader, error, key, value);
}

static int take_field(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                      struct event_parts *parts)
{
    switch (field_word(key)) {
    case WORD_ACTION:
        return take_action(reader, key, value, parts);
    case WORD_ADDR:
        parts->has |= HAS_ADDR;
        return field_address(reader, key, value, &parts->event.addr);
    case WORD_DEVICE_FREE:
        parts->has |= HAS_DEVICE_FREE;
        return field_size(reader, key, value, &parts->device_free);
    case WORD_SIZE:
        parts->has |= HAS_SIZE;
        return field_size(reader, key, value, &parts->event.size);
    case WORD_STREAM:
    case WORD_TIME_US:
    case WORD_FRAMES:
    case WORD_POOL_ID:
        return snapshot_event_take_optional(reader, key, value, parts);
    default:
        rest_add(reader, key, value);
        return VARVE_OK;
    }
}

static int check_parts(struct snapshot_reader *reader, uint64_t offset, struct event_parts *parts)
{
    if (!(parts->has & HAS_ACTION)) {
        return field_fail_missing(reader, offset, "action");
    }
    if (parts->is_skipped) {
        return VARVE_OK;
    }
    if (!(parts->has & HAS_SIZE)) {
        return field_fail_missing(reader, offset, "size");
    }
    if (parts->event.action == HISTORY_OOM && (parts->has & HAS_DEVICE_FREE)) {
        parts->event.addr = parts->device_free;
    } else if (!(parts->has & HAS_ADDR)) {
        return field_fail_missing(reader, offset, parts->event.action == HISTORY_OOM ? "device_free" : "addr");
    }
    return VARVE_OK;
}

/* What the entry says, as far as it is known. */
static int take_parts(struct snapshot_reader *reader, struct pickle_value value, const struct pickle_object *object,
                      struct event_parts *parts)
{
    int error = VARVE_OK;
    reader->rest.count = 0;
    for (uint32_t i = 0; i + 1 < object->count && error == VARVE_OK; i += 2) {
        error = take_field(reader, object->items[i], object->items[i + 1], parts);
    }
    VARVE_THEN(error, check_parts(reader, value.offset, parts));
    if (error != VARVE_OK && !object->is_replaced) {
        parts->is_skipped = true;
        error = field_soften_entry(reader, error);
    }
    return error;
}

int event_take(struct snapshot_reader *reader, size_t device_index, struct pickle_value value)
{
    struct history_device *device = &reader->history->devices[device_index];
    reader->position =
        (struct snapshot_position){"event", device->event_count + device->skipped_count, "device", device_index};
    struct pickle_object *object;
    int error = field_dict(reader, value, &object);
    if (error != VARVE_OK) {
        return error;
    }
    struct event_parts parts = {0};
    error = take_parts(reader, value, object, &parts);
    VARVE_THEN(error, object->is_replaced ? field_fail(reader, value.offset, "is a frame of its own stack") : VARVE_OK);
    if (error != VARVE_OK) {
        return error;
    }
    uint32_t text;
    if (!parts.is_skipped) {
        history_add_rest(device, device->event_count, rest_take(reader), parts.keys);
        *history_add_event(device) = parts.event;
    } else if (rest_value(reader, value, &text)) {
        history_add_skipped(device, text);
    }
    pickle_replace(&reader->pickle.memory, object, PICKLE_TAG_CONSUMED, 0);
    return VARVE_OK;
}
