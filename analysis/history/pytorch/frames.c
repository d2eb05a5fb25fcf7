/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/history/pytorch/frames.h"

#include "analysis/history/pickle/hash.h"
#include "analysis/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table of frames ---- */

static void frame_put(struct snapshot_reader *reader, uint32_t number)
{
    size_t mask = ((size_t)1 << reader->frame_bits) - 1;
    size_t slot = hash_bytes(&reader->frames[number], sizeof(struct history_frame)) & mask;

    while (reader->frame_slots[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    reader->frame_slots[slot] = number + 1;
}

static void frame_table_grow(struct snapshot_reader *reader)
{
    reader->frame_bits = reader->frame_bits == 0 ? 8 : reader->frame_bits + 1;
    reader->frame_slots = memory_resize(reader->frame_slots, sizeof(uint32_t) << reader->frame_bits);
    memset(reader->frame_slots, 0, sizeof(uint32_t) << reader->frame_bits);
    for (uint32_t i = 0; i < reader->frame_count; i++) {
        frame_put(reader, i);
    }
}

static uint32_t frame_number(struct snapshot_reader *reader, const struct history_frame *frame)
{
    size_t mask, slot;

    if (reader->frame_bits == 0 || reader->frame_count * 2 >= (size_t)1 << reader->frame_bits) {
        frame_table_grow(reader);
    }
    mask = ((size_t)1 << reader->frame_bits) - 1;
    for (slot = hash_bytes(frame, sizeof(*frame)) & mask; reader->frame_slots[slot] != 0;
         slot = (slot + 1) & mask) {
        if (memcmp(&reader->frames[reader->frame_slots[slot] - 1], frame, sizeof(*frame)) == 0) {
            return reader->frame_slots[slot] - 1;
        }
    }
    if (reader->frame_count == reader->frame_capacity) {
        reader->frame_capacity = reader->frame_capacity == 0 ? 64 : reader->frame_capacity * 2;
        reader->frames = memory_resize(reader->frames, reader->frame_capacity * sizeof(*frame));
    }
    reader->frames[reader->frame_count] = *frame;
    reader->frame_slots[slot] = (uint32_t)reader->frame_count + 1;
    return (uint32_t)reader->frame_count++;
}

/* ---- one frame ---- */

static int take_text(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                     uint32_t *out)
{
    struct pickle_text *text;

    if (value.type == PICKLE_NONE) {
        *out = 0;
        return VARVE_OK;
    }
    if (value.type != PICKLE_TEXT) {
        return field_fail_type(reader, key, value, "a text");
    }
    text = &reader->pickle.memory.texts[value.bits];
    if (text->known == 0) {
        text->known = history_text(reader->history, text->bytes, text->count) + 1;
    }
    *out = text->known - 1;
    return VARVE_OK;
}

static int take_line(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                     uint32_t *out)
{
    if (value.type != PICKLE_INTEGER && value.type != PICKLE_NONE) {
        return field_fail_type(reader, key, value, "a line number");
    }
    /* Compiled code has no line, or -1. */
    *out = (int64_t)value.bits > 0 && value.bits <= UINT32_MAX ? (uint32_t)value.bits : 0;
    return VARVE_OK;
}

static int frame_fields(struct snapshot_reader *reader, const struct pickle_object *object,
                        struct history_frame *frame)
{
    int error = VARVE_OK;

    for (uint32_t i = 0; i + 1 < object->count && error == VARVE_OK; i += 2) {
        struct pickle_value key = object->items[i];
        struct pickle_value value = object->items[i + 1];

        switch (field_word(key)) {
        case WORD_NAME:
            error = take_text(reader, key, value, &frame->function);
            break;
        case WORD_FILENAME:
            error = take_text(reader, key, value, &frame->file);
            break;
        case WORD_LINE:
            error = take_line(reader, key, value, &frame->line);
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
    struct pickle_object *object;
    int error;

    if (resolved.type == PICKLE_REPLACED && resolved.bits >> 32 == TAG_FRAME) {
        *frame = reader->frames[(uint32_t)resolved.bits];
        return VARVE_OK;
    }
    error = field_dict(reader, value, &object);
    if (error == VARVE_OK) {
        *frame = (struct history_frame){0};
        error = frame_fields(reader, object, frame);
    }
    if (error == VARVE_OK) {
        pickle_replace(&reader->pickle.memory, object, TAG_FRAME, frame_number(reader, frame));
    }
    return error;
}

/* ---- a stack ---- */

static int stack_frames(struct snapshot_reader *reader, struct pickle_object *list, uint32_t *count_out)
{
    uint32_t count = 0;

    while (count < list->count) {
        struct pickle_value item = list->items[count];
        int error;

        if (count == reader->stack_capacity) {
            reader->stack_capacity = count == 0 ? 128 : (size_t)count * 2;
            reader->stack = memory_resize(reader->stack, reader->stack_capacity * sizeof(*reader->stack));
        }
        pickle_retain(&reader->pickle.memory, item);
        error = frame_take(reader, item, &reader->stack[count]);
        if (error != VARVE_OK) {
            return error;
        }
        pickle_release(&reader->pickle.memory, item);
        count++;
    }
    *count_out = count;
    return VARVE_OK;
}

int frames_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                uint32_t *stack_out)
{
    struct pickle_value resolved = pickle_resolve(&reader->pickle.memory, value);
    struct pickle_object *list;
    uint32_t count = 0;
    int error;

    if (resolved.type == PICKLE_REPLACED && resolved.bits >> 32 == TAG_STACK) {
        *stack_out = (uint32_t)resolved.bits;
        return VARVE_OK;
    }
    if (value.type == PICKLE_NONE) {
        *stack_out = 0;
        return VARVE_OK;
    }
    error = field_list(reader, key, value, &list);
    if (error == VARVE_OK && list->role > ROLE_UNKNOWN) {
        error = field_fail_type(reader, key, value, "a list of frames");
    }
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
