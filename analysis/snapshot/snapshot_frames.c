/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/snapshot/snapshot_frames.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

static uint32_t snapshot_frame_number(struct snapshot_reader *reader, const struct history_frame *frame)
{
    uint64_t key = map_hash(frame, sizeof(*frame));
    for (uint64_t found; (found = map_find(&reader->frame_numbers, key)) != MAP_NONE; key++) {
        if (memcmp(&reader->frames[found], frame, sizeof(*frame)) == 0) {
            return (uint32_t)found;
        }
    }
    reader->frames = memory_grow(reader->frames, &reader->frame_capacity, reader->frame_count, sizeof(*frame));
    reader->frames[reader->frame_count] = *frame;
    map_put(&reader->frame_numbers, key, reader->frame_count);
    return (uint32_t)reader->frame_count++;
}

static int snapshot_frames_take_text(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                                     uint32_t *out)
{
    if (value.type == PICKLE_NONE) {
        *out = 0;
        return VARVE_OK;
    }
    if (value.type != PICKLE_TEXT) {
        return field_fail_type(reader, key, value, "a text");
    }
    struct pickle_text *text = &reader->pickle.memory.texts[value.bits];
    if (text->known == 0) {
        text->known = history_text(reader->history, text->bytes, text->count) + 1;
    }
    *out = text->known - 1;
    return VARVE_OK;
}

/* 0, which is unknown, of what is no line: compiled code has none, or -1, also as 64 bits without a sign. */
static uint32_t line_of(struct pickle_value value)
{
    return value.type == PICKLE_INTEGER && (int64_t)value.bits > 0 && value.bits <= UINT32_MAX ? (uint32_t)value.bits
                                                                                               : 0;
}

static int frame_fields(struct snapshot_reader *reader, const struct pickle_object *object, struct history_frame *frame)
{
    int error = VARVE_OK;
    for (uint32_t i = 0; i + 1 < object->count && error == VARVE_OK; i += 2) {
        struct pickle_value key = object->items[i];
        struct pickle_value value = object->items[i + 1];
        switch (field_word(key)) {
        case WORD_NAME:
            error = snapshot_frames_take_text(reader, key, value, &frame->function);
            break;
        case WORD_FILENAME:
            error = snapshot_frames_take_text(reader, key, value, &frame->file);
            break;
        case WORD_LINE:
            frame->line = line_of(value);
            break;
        default:
            break;
        }
    }
    return error;
}

static int frame_take(struct snapshot_reader *reader, struct pickle_value value, struct history_frame *frame)
{
    struct pickle_value resolved = pickle_resolve(&reader->pickle.memory, value);
    if (resolved.type == PICKLE_REPLACED && resolved.bits >> 32 == TAG_FRAME) {
        *frame = reader->frames[(uint32_t)resolved.bits];
        return VARVE_OK;
    }
    struct pickle_object *object;
    int error = field_dict(reader, value, &object);
    if (error == VARVE_OK) {
        *frame = (struct history_frame){0};
        error = frame_fields(reader, object, frame);
    }
    if (error == VARVE_OK) {
        pickle_replace(&reader->pickle.memory, object, TAG_FRAME, snapshot_frame_number(reader, frame));
    }
    return error;
}

static int stack_frames(struct snapshot_reader *reader, struct pickle_object *list, uint32_t *count_out)
{
    uint32_t count = 0;
    while (count < list->count) {
        struct pickle_value item = list->items[count];
        reader->stack = memory_grow(reader->stack, &reader->stack_capacity, count, sizeof(*reader->stack));
        pickle_retain(&reader->pickle.memory, item);
        int error = frame_take(reader, item, &reader->stack[count]);
        pickle_release(&reader->pickle.memory, item);
        if (error != VARVE_OK) {
            return error;
        }
        count++;
    }
    *count_out = count;
    return VARVE_OK;
}

int frames_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint32_t *stack_out)
{
    struct pickle_value resolved = pickle_resolve(&reader->pickle.memory, value);
    if (resolved.type == PICKLE_REPLACED && resolved.bits >> 32 == TAG_STACK) {
        *stack_out = (uint32_t)resolved.bits;
        return VARVE_OK;
    }
    if (value.type == PICKLE_NONE) {
        *stack_out = 0;
        return VARVE_OK;
    }
    struct pickle_object *list;
    int error = field_list(reader, key, value, &list);
    if (error == VARVE_OK && list->role > ROLE_UNKNOWN) {
        error = field_fail_type(reader, key, value, "a list of frames");
    }
    uint32_t count = 0;
    if (error == VARVE_OK) {
        pickle_retain(&reader->pickle.memory, value);
        error = stack_frames(reader, list, &count);
        if (error == VARVE_OK) {
            *stack_out = history_add_stack(reader->history, reader->stack, count);
            if (!list->is_replaced) {
                pickle_replace(&reader->pickle.memory, list, TAG_STACK, *stack_out);
            }
        }
        pickle_release(&reader->pickle.memory, value);
    }
    return error;
}
