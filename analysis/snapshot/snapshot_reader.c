/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/snapshot/snapshot_reader.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int field_fail(struct snapshot_reader *reader, uint64_t offset, const char *format, ...)
{
    const struct snapshot_position *position = &reader->position;
    va_list arguments;
    va_start(arguments, format);
    char reason[200];
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    if (position->what == NULL) {
        return pickle_fail(&reader->pickle, offset, "%s", reason);
    }
    if (position->outer == NULL) {
        return pickle_fail(&reader->pickle, offset, "%s %zu: %s", position->what, position->index, reason);
    }
    return pickle_fail(&reader->pickle, offset, "%s %zu of %s %zu: %s", position->what, position->index,
                       position->outer, position->outer_index, reason);
}

int field_fail_type(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                    const char *wanted)
{
    const char *name = "a key";
    int bytes = 5;
    if (key.type == PICKLE_TEXT) {
        name = reader->pickle.memory.texts[key.bits].bytes;
        bytes = (int)reader->pickle.memory.texts[key.bits].count;
    }
    char description[PICKLE_DESCRIBE_BYTES];
    return field_fail(reader, value.offset, "'%.*s' is %s, not %s", bytes < 40 ? bytes : 40, name,
                      pickle_describe(&reader->pickle.memory, value, description, sizeof(description)), wanted);
}

int field_fail_missing(struct snapshot_reader *reader, uint64_t offset, const char *key)
{
    return field_fail(reader, offset, "key '%s' is missing", key);
}

/* What was said of it, without the file and the byte. */
static int count_unknown(struct snapshot_reader *reader, int error, uint64_t *count)
{
    if (error != VARVE_ERROR_FORMAT) {
        return error;
    }
    struct history_unknown *unknown = &reader->history->unknown;
    struct varve_message *message = reader->pickle.message;
    if (unknown->fields + unknown->entries == 0 && message != NULL) {
        const char *byte = strstr(message->text, ": at byte ");
        const char *reason = byte != NULL ? strstr(byte + 2, ": ") : NULL;
        snprintf(unknown->first, sizeof(unknown->first), "%.190s", reason != NULL ? reason + 2 : message->text);
    }
    if (message != NULL) {
        message->text[0] = '\0';
    }
    ++*count;
    return VARVE_OK;
}

int field_soften(struct snapshot_reader *reader, int error, struct pickle_value key, struct pickle_value value)
{
    if (error == VARVE_ERROR_FORMAT) {
        rest_add(reader, key, value);
    }
    return field_soften_kept(reader, error);
}

int field_soften_kept(struct snapshot_reader *reader, int error)
{
    return count_unknown(reader, error, &reader->history->unknown.fields);
}

int field_soften_entry(struct snapshot_reader *reader, int error)
{
    return count_unknown(reader, error, &reader->history->unknown.entries);
}

int field_address(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t *out)
{
    if (value.type != PICKLE_INTEGER && value.type != PICKLE_UNSIGNED) {
        return field_fail_type(reader, key, value, "an address");
    }
    *out = value.bits;
    return VARVE_OK;
}

int field_size(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t *out)
{
    if (value.type == PICKLE_INTEGER && (int64_t)value.bits < 0) {
        return field_fail(reader, value.offset, "'%.*s' is negative: %lld",
                          (int)reader->pickle.memory.texts[key.bits].count, reader->pickle.memory.texts[key.bits].bytes,
                          (long long)value.bits);
    }
    if (value.type != PICKLE_INTEGER && value.type != PICKLE_UNSIGNED) {
        return field_fail_type(reader, key, value, "a number of bytes");
    }
    *out = value.bits;
    return VARVE_OK;
}

int field_integer(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, int64_t *out)
{
    if (value.type != PICKLE_INTEGER) {
        return field_fail_type(reader, key, value, "an integer of 64 bits with sign");
    }
    *out = (int64_t)value.bits;
    return VARVE_OK;
}

int field_bool(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, bool *out)
{
    if (value.type != PICKLE_BOOL && value.type != PICKLE_INTEGER) {
        return field_fail_type(reader, key, value, "a bool");
    }
    *out = value.bits != 0;
    return VARVE_OK;
}

int field_stream(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint16_t *out)
{
    uint64_t handle = 0;
    int error = field_address(reader, key, value, &handle);
    if (error == VARVE_OK && history_stream(reader->history, handle, out) != VARVE_OK) {
        error = field_fail(reader, value.offset, "more than 65536 different streams");
    }
    return error;
}

int field_dict(struct snapshot_reader *reader, struct pickle_value value, struct pickle_object **object_out)
{
    struct pickle_value resolved = pickle_resolve(&reader->pickle.memory, value);
    if (resolved.type == PICKLE_REPLACED) {
        return field_fail(reader, value.offset, "refers back to a consumed entry");
    }
    char description[PICKLE_DESCRIBE_BYTES];
    if (resolved.type != PICKLE_DICT) {
        return field_fail(reader, value.offset, "is %s, not a dict",
                          pickle_describe(&reader->pickle.memory, value, description, sizeof(description)));
    }
    *object_out = pickle_object(&reader->pickle.memory, value);
    if ((*object_out)->role > PICKLE_ROLE_PLAIN) {
        return field_fail(reader, value.offset, "is the snapshot itself");
    }
    return VARVE_OK;
}

int field_list(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
               struct pickle_object **object_out)
{
    struct pickle_value resolved = pickle_resolve(&reader->pickle.memory, value);
    if (resolved.type == PICKLE_REPLACED) {
        return field_fail(reader, value.offset, "'%.*s' refers back to a consumed entry",
                          (int)reader->pickle.memory.texts[key.bits].count,
                          reader->pickle.memory.texts[key.bits].bytes);
    }
    if (resolved.type != PICKLE_LIST && resolved.type != PICKLE_TUPLE) {
        return field_fail_type(reader, key, value, "a list");
    }
    *object_out = pickle_object(&reader->pickle.memory, value);
    return VARVE_OK;
}

int field_pool(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, uint64_t out[2])
{
    struct pickle_object *pair = NULL;
    int error = field_list(reader, key, value, &pair);
    assert(error != VARVE_OK || pair != NULL);
    if (error == VARVE_OK && pair->count != 2) {
        error = field_fail_type(reader, key, value, "a pair of integers");
    }
    for (uint32_t i = 0; error == VARVE_OK && i < 2; i++) {
        error = field_size(reader, key, pair->items[i], &out[i]);
    }
    return error;
}
