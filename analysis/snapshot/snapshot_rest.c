/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opcodes: Python's pickletools, protocol 4. A container is made and filled without the memo, so that the bytes mean
 * the same wherever they are put. Values may hold themselves: depth and size are bounded.
 */
#include "analysis/snapshot/snapshot_reader.h"

#include "analysis/base/memory_or_exit.h"

#include <string.h>

#define DEPTH_MAX 16
#define VALUE_BYTES_MAX (UINT32_C(16) << 20)
#define ROOT_BYTES_MAX (UINT32_C(64) << 20) /* of all that is beside segments, traces and settings */

static void snapshot_rest_append(struct snapshot_rest *rest, const void *bytes, size_t count)
{
    while (rest->capacity - rest->count < count) {
        rest->capacity = rest->capacity == 0 ? 256 : rest->capacity * 2;
        rest->bytes = memory_resize(rest->bytes, rest->capacity);
    }
    memcpy(rest->bytes + rest->count, bytes, count);
    rest->count += count;
}

static void snapshot_rest_put(struct snapshot_reader *reader, const void *bytes, size_t count)
{
    snapshot_rest_append(&reader->rest, bytes, count);
}

static void put_opcode(struct snapshot_reader *reader, char opcode)
{
    snapshot_rest_put(reader, &opcode, 1);
}

static void snapshot_rest_put_little(struct snapshot_reader *reader, uint64_t value, unsigned count)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < count; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    snapshot_rest_put(reader, bytes, count);
}

/* LONG1, two's complement; numbers of 64 bits without a sign need a ninth byte. */
static void snapshot_rest_put_integer(struct snapshot_reader *reader, uint64_t value, bool is_unsigned)
{
    if ((int64_t)value >= INT32_MIN && (int64_t)value <= INT32_MAX && !is_unsigned) {
        put_opcode(reader, 'J');
        snapshot_rest_put_little(reader, value, 4);
        return;
    }
    snapshot_rest_put(reader, is_unsigned ? "\x8a\x09" : "\x8a\x08", 2);
    snapshot_rest_put_little(reader, value, 8);
    if (is_unsigned) {
        snapshot_rest_put_little(reader, 0, 1);
    }
}

static void snapshot_rest_put_text(struct snapshot_reader *reader, const char *bytes, size_t count)
{
    put_opcode(reader, 'X');
    snapshot_rest_put_little(reader, count, 4);
    snapshot_rest_put(reader, bytes, count);
}

static void put_history_text(struct snapshot_reader *reader, const char *key, uint32_t number)
{
    snapshot_rest_put_text(reader, key, strlen(key));
    snapshot_rest_put_text(reader, reader->history->texts[number], history_text_bytes(reader->history, number));
}

static void put_frame(struct snapshot_reader *reader, const struct history_frame *frame)
{
    snapshot_rest_put(reader, "}(", 2);
    put_history_text(reader, "name", frame->function);
    put_history_text(reader, "filename", frame->file);
    snapshot_rest_put_text(reader, "line", 4);
    snapshot_rest_put_integer(reader, frame->line, false);
    put_opcode(reader, 'u');
}

static bool put_replaced(struct snapshot_reader *reader, struct pickle_value value)
{
    const struct history *history = reader->history;
    uint32_t number = (uint32_t)value.bits;
    switch (value.bits >> 32) {
    case TAG_FRAME:
        put_frame(reader, &reader->frames[number]);
        return true;
    case TAG_STACK:
        snapshot_rest_put(reader, "](", 2);
        for (uint32_t i = 0; i < history->stacks[number].frame_count; i++) {
            put_frame(reader, &history->frames[history->stacks[number].first_frame + i]);
        }
        put_opcode(reader, 'e');
        return true;
    case TAG_REST:
        snapshot_rest_put(reader, history->texts[number], history_text_bytes(history, number));
        return true;
    default:
        return false;
    }
}

static bool snapshot_rest_put_value(struct snapshot_reader *reader, struct pickle_value given, unsigned depth);

static bool put_container(struct snapshot_reader *reader, struct pickle_value value, unsigned depth)
{
    const struct pickle_object *object = pickle_object(&reader->pickle.memory, value);
    const char *begin = value.type == PICKLE_LIST ? "](" : value.type == PICKLE_DICT ? "}(" : "(";
    snapshot_rest_put(reader, begin, strlen(begin));
    for (uint32_t i = 0; i < object->count; i++) {
        if (!snapshot_rest_put_value(reader, object->items[i], depth + 1)) {
            return false;
        }
    }
    put_opcode(reader, value.type == PICKLE_LIST ? 'e' : value.type == PICKLE_DICT ? 'u' : 't');
    return true;
}

static bool snapshot_rest_put_value(struct snapshot_reader *reader, struct pickle_value given, unsigned depth)
{
    struct pickle_value value = pickle_resolve(&reader->pickle.memory, given);
    if (depth > DEPTH_MAX || reader->rest.count > VALUE_BYTES_MAX) {
        return false;
    }
    const struct pickle_text *text;
    switch (value.type) {
    case PICKLE_NONE:
        put_opcode(reader, 'N');
        return true;
    case PICKLE_BOOL:
        put_opcode(reader, value.bits != 0 ? '\x88' : '\x89');
        return true;
    case PICKLE_INTEGER:
    case PICKLE_UNSIGNED:
        snapshot_rest_put_integer(reader, value.bits, value.type == PICKLE_UNSIGNED);
        return true;
    case PICKLE_FLOAT:
        put_opcode(reader, 'G');
        snapshot_rest_put_little(reader, __builtin_bswap64(value.bits), 8);
        return true;
    case PICKLE_TEXT:
        text = &reader->pickle.memory.texts[value.bits];
        snapshot_rest_put_text(reader, text->bytes, text->count);
        return true;
    case PICKLE_LIST:
    case PICKLE_TUPLE:
    case PICKLE_DICT:
        return put_container(reader, value, depth);
    case PICKLE_REPLACED:
        return put_replaced(reader, value);
    default:
        return false;
    }
}

void rest_add(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value)
{
    size_t before = reader->rest.count;
    if (!snapshot_rest_put_value(reader, key, 0) || !snapshot_rest_put_value(reader, value, 0)) {
        reader->rest.count = before;
    }
}

uint32_t rest_take(struct snapshot_reader *reader)
{
    uint32_t number =
        history_text(reader->history, reader->rest.count > 0 ? reader->rest.bytes : "", reader->rest.count);
    reader->rest.count = 0;
    return number;
}

void rest_keep(struct snapshot_reader *reader)
{
    if (reader->rest.count > 0 && reader->rest.count <= ROOT_BYTES_MAX - reader->root.count) {
        snapshot_rest_append(&reader->root, reader->rest.bytes, reader->rest.count);
    }
    reader->rest.count = 0;
}

bool rest_value(struct snapshot_reader *reader, struct pickle_value value, uint32_t *text_out)
{
    reader->rest.count = 0;
    bool is_kept = snapshot_rest_put_value(reader, value, 0);
    *text_out = is_kept ? rest_take(reader) : 0;
    reader->rest.count = 0;
    return is_kept;
}
