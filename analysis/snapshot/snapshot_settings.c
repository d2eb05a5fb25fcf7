/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/snapshot/snapshot_settings.h"

#include "analysis/snapshot/snapshot_reader.h"

#include <string.h>

static int snapshot_settings_take_text(struct snapshot_reader *reader, struct pickle_value key,
                                       struct pickle_value value, struct history_settings *settings)
{
    if (value.type == PICKLE_NONE) {
        return VARVE_OK;
    }
    if (value.type != PICKLE_TEXT || reader->pickle.memory.texts[value.bits].count >= sizeof(settings->text)) {
        return field_fail_type(reader, key, value, "a text of up to 1023 bytes");
    }
    const struct pickle_text *text = &reader->pickle.memory.texts[value.bits];
    memcpy(settings->text, text->bytes, text->count);
    settings->text[text->count] = '\0';
    return VARVE_OK;
}

static int take_threshold(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                          double *out)
{
    if (value.type == PICKLE_INTEGER) {
        *out = (double)(int64_t)value.bits;
    } else if (value.type == PICKLE_FLOAT) {
        memcpy(out, &value.bits, sizeof(*out));
    } else {
        return field_fail_type(reader, key, value, "a number");
    }
    return VARVE_OK;
}

static int take_max_split(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                          int64_t *out)
{
    if (value.type == PICKLE_UNSIGNED) { /* the largest size there is: no limit */
        *out = -1;
        return VARVE_OK;
    }
    return field_integer(reader, key, value, out);
}

/* "1", "2", … "32768" (MiB): the entry, 16 if it is none. */
static unsigned division_index(const struct snapshot_reader *reader, struct pickle_value key)
{
    unsigned long size = 0;
    if (key.type == PICKLE_TEXT) {
        const struct pickle_text *text = &reader->pickle.memory.texts[key.bits];
        for (uint32_t i = 0; i < text->count && i < 6; i++) {
            size =
                text->bytes[i] >= '0' && text->bytes[i] <= '9' ? size * 10 + (unsigned)(text->bytes[i] - '0') : 0x10001;
        }
    } else if (key.type == PICKLE_INTEGER) {
        size = key.bits <= 32768 ? (unsigned long)key.bits : 0;
    }
    for (unsigned i = 0; i < 16; i++) {
        if (size == 1UL << i) {
            return i;
        }
    }
    return 16;
}

/* A dict, or one number for all sizes. */
static int take_divisions(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                          uint64_t divisions[16])
{
    uint64_t division = 0;
    int error = VARVE_OK;
    if (value.type != PICKLE_DICT) {
        error = field_size(reader, key, value, &division);
        for (unsigned i = 0; i < 16; i++) {
            divisions[i] = division;
        }
        return error;
    }
    struct pickle_object *object;
    error = field_dict(reader, value, &object);
    for (uint32_t i = 0; error == VARVE_OK && i + 1 < object->count; i += 2) {
        unsigned index = division_index(reader, object->items[i]);
        if (index == 16) {
            return field_fail(reader, object->items[i].offset,
                              "a key of 'roundup_power2_divisions' is no power of two up to 32768");
        }
        error = field_size(reader, key, object->items[i + 1], &divisions[index]);
    }
    return error;
}

static int take_overflow_of(struct snapshot_reader *reader, struct pickle_value key, size_t index,
                            struct pickle_value value)
{
    bool has_overflowed = false;
    int error = field_bool(reader, key, value, &has_overflowed);
    if (error == VARVE_OK && has_overflowed) {
        struct history_device *device = history_device(reader->history, index);
        if (device == NULL) {
            return field_fail(reader, value.offset, "'trace_alloc_overflowed' is for more than 256 devices");
        }
        device->has_overflowed = true;
    }
    return error;
}

int overflowed_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value)
{
    if (value.type == PICKLE_NONE || value.type == PICKLE_BOOL) {
        reader->has_overflowed = value.type == PICKLE_BOOL && value.bits != 0;
        return VARVE_OK;
    }
    struct pickle_object *object = NULL;
    int error = VARVE_OK;
    if (value.type == PICKLE_DICT) {
        error = field_dict(reader, value, &object);
        for (uint32_t i = 0; error == VARVE_OK && i + 1 < object->count; i += 2) {
            error = object->items[i].type == PICKLE_INTEGER
                        ? take_overflow_of(reader, key, object->items[i].bits, object->items[i + 1])
                        : field_fail_type(reader, key, value, "a dict by device number");
        }
        return error;
    }
    error = field_list(reader, key, value, &object);
    for (uint32_t i = 0; error == VARVE_OK && i < object->count; i++) {
        error = take_overflow_of(reader, key, i, object->items[i]);
    }
    return error;
}

static int take_setting(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                        struct history_settings *settings)
{
    switch (field_word(key)) {
    case WORD_CONF:
        return snapshot_settings_take_text(reader, key, value, settings);
    case WORD_MAX_SPLIT_SIZE:
        return take_max_split(reader, key, value, &settings->max_split_size);
    case WORD_GC_THRESHOLD:
        return take_threshold(reader, key, value, &settings->garbage_collection_threshold);
    case WORD_EXPANDABLE_SEGMENTS:
        return field_bool(reader, key, value, &settings->expandable_segments);
    case WORD_ROUNDUP_POWER2_DIVISIONS:
        return take_divisions(reader, key, value, settings->divisions);
    case WORD_TRACE_ALLOC_OVERFLOWED:
        return overflowed_take(reader, key, value);
    default:
        return VARVE_OK;
    }
}

int settings_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value)
{
    struct history_settings *settings = &reader->history->settings;
    reader->rest.count = 0;
    if (value.type != PICKLE_DICT) {
        return value.type == PICKLE_NONE ? VARVE_OK : field_fail_type(reader, key, value, "a dict");
    }
    struct pickle_object *object;
    int error = field_dict(reader, value, &object);
    settings->is_known = error == VARVE_OK;
    for (uint32_t i = 0; error == VARVE_OK && i + 1 < object->count; i += 2) {
        struct pickle_value name = object->items[i], item = object->items[i + 1];
        rest_add(reader, name, item);
        error = field_soften_kept(reader, take_setting(reader, name, item, settings));
    }
    reader->history->rests.settings = rest_take(reader);
    return error;
}
