/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/snapshot/snapshot_segment.h"

#include "analysis/snapshot/snapshot_frames.h"
#include "analysis/snapshot/snapshot_reader.h"
#include "analysis/base/memory_or_exit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct block_parts {
    struct history_block block;
    bool has_size, has_state, has_requested;
};

struct segment_parts {
    struct history_segment segment;
    size_t device;
    struct pickle_value blocks_key, blocks;
    bool has_addr, has_size, has_blocks;
};

/* ---- blocks ---- */

/* Of old versions: [{addr, real_size, frames}, …], the newest first. */
static int take_block_history(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                              struct block_parts *parts)
{
    struct pickle_object *list;
    int error = field_list(reader, key, value, &list);
    if (error != VARVE_OK || list->count == 0) {
        return error;
    }
    struct pickle_value item = list->items[0];
    struct pickle_object *newest;
    error = field_dict(reader, item, &newest);
    if (error != VARVE_OK) {
        return error;
    }
    pickle_retain(&reader->pickle.memory, item);
    for (uint32_t i = 0; i + 1 < newest->count && error == VARVE_OK; i += 2) {
        struct pickle_value part = newest->items[i];
        if (field_word(part) == WORD_REAL_SIZE && !parts->has_requested) {
            parts->has_requested = true;
            error = field_size(reader, part, newest->items[i + 1], &parts->block.requested);
        } else if (field_word(part) == WORD_FRAMES) {
            error = frames_take(reader, part, newest->items[i + 1], &parts->block.stack);
        }
    }
    pickle_release(&reader->pickle.memory, item);
    return error;
}

static int take_state(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                      struct block_parts *parts)
{
    parts->has_state = true;
    switch (field_word(value)) {
    case WORD_INACTIVE:
        parts->block.state = HISTORY_INACTIVE;
        return VARVE_OK;
    case WORD_ACTIVE_ALLOCATED:
        parts->block.state = HISTORY_ACTIVE_ALLOCATED;
        return VARVE_OK;
    case WORD_ACTIVE_PENDING_FREE:
    case WORD_ACTIVE_AWAITING_FREE:
        parts->block.state = HISTORY_ACTIVE_PENDING_FREE;
        return VARVE_OK;
    default:
        parts->block.state = HISTORY_ACTIVE_PENDING_FREE; /* neither free nor known to be in use */
        return field_fail_type(reader, key, value, "a state that is known");
    }
}

static int take_block_field(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                            struct block_parts *parts)
{
    int error = VARVE_OK;
    unsigned has = 0;
    switch (field_word(key)) {
    case WORD_ADDRESS:
        parts->block.keys |= HISTORY_HAS_ADDRESS;
        return field_address(reader, key, value, &parts->block.addr);
    case WORD_SIZE:
        parts->has_size = true;
        return field_size(reader, key, value, &parts->block.size);
    case WORD_REQUESTED_SIZE:
        has = HISTORY_HAS_REQUESTED;
        error = field_size(reader, key, value, &parts->block.requested);
        parts->has_requested |= error == VARVE_OK;
        break;
    case WORD_STATE:
        has = HISTORY_HAS_TYPE;
        error = take_state(reader, key, value, parts);
        break;
    case WORD_FRAMES:
        has = HISTORY_HAS_FRAMES;
        error = frames_take(reader, key, value, &parts->block.stack);
        break;
    case WORD_HISTORY:
        rest_add(reader, key, value);
        return field_soften_kept(reader, take_block_history(reader, key, value, parts));
    default:
        rest_add(reader, key, value);
        return VARVE_OK;
    }
    parts->block.keys |= error == VARVE_OK ? has : 0;
    return field_soften(reader, error, key, value);
}

/* Within its segment and behind the block before, which ends at `next`. */
static int snapshot_segment_check_block(struct snapshot_reader *reader, uint64_t offset,
                                        const struct history_block *block, const struct history_segment *segment,
                                        uint64_t next)
{
    uint64_t end = segment->addr + segment->size;
    if (block->size == 0) {
        return field_fail(reader, offset, "has no bytes");
    }
    if (block->addr < next || block->addr >= end || block->size > end - block->addr) {
        return field_fail(reader, offset,
                          "0x%" PRIx64 " with %" PRIu64 " bytes is not within what is left of its segment (0x%" PRIx64
                          " to 0x%" PRIx64 ")",
                          block->addr, block->size, next, end);
    }
    return VARVE_OK;
}

static int take_block(struct snapshot_reader *reader, struct pickle_value value, struct segment_parts *parts,
                      uint64_t *next)
{
    struct block_parts block = {0};
    struct history_segment *segment = &parts->segment;
    struct pickle_object *object;
    int error = field_dict(reader, value, &object);
    reader->rest.count = 0;
    for (uint32_t i = 0; error == VARVE_OK && i + 1 < object->count; i += 2) {
        error = take_block_field(reader, object->items[i], object->items[i + 1], &block);
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (!block.has_size || !block.has_state) {
        return field_fail_missing(reader, value.offset, block.has_size ? "state" : "size");
    }
    block.block.rest = rest_take(reader);
    block.block.addr = block.block.keys & HISTORY_HAS_ADDRESS ? block.block.addr : *next;
    if (!block.has_requested) {
        block.block.requested = block.block.state == HISTORY_INACTIVE ? 0 : block.block.size;
    }
    error = snapshot_segment_check_block(reader, value.offset, &block.block, segment, *next);
    if (error != VARVE_OK) {
        return error;
    }
    *next = block.block.addr + block.block.size;
    if (block.block.state != HISTORY_INACTIVE) {
        segment->active += segment->keys & HISTORY_HAS_ACTIVE ? 0 : block.block.size;
        segment->requested += segment->keys & HISTORY_HAS_REQUESTED ? 0 : block.block.requested;
    }
    if (block.block.state == HISTORY_ACTIVE_ALLOCATED) {
        segment->allocated += segment->keys & HISTORY_HAS_ALLOCATED ? 0 : block.block.size;
    }
    *history_add_block(&reader->history->devices[parts->device]) = block.block;
    segment->block_count++;
    return VARVE_OK;
}

static int snapshot_segment_take_blocks(struct snapshot_reader *reader, struct segment_parts *parts)
{
    uint64_t next = parts->segment.addr;
    struct snapshot_position position = reader->position;
    struct pickle_object *list;
    int error = field_list(reader, parts->blocks_key, parts->blocks, &list);
    for (uint32_t i = 0; error == VARVE_OK && i < list->count; i++) {
        struct pickle_value item = list->items[i];
        reader->position = (struct snapshot_position){"block", i, position.what, position.index};
        pickle_retain(&reader->pickle.memory, item);
        error = take_block(reader, item, parts, &next);
        pickle_release(&reader->pickle.memory, item);
    }
    reader->position = position;
    return error;
}

/* ---- segments ---- */

static int take_device(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value, size_t *out)
{
    if (value.type != PICKLE_INTEGER || value.bits > 255) {
        return field_fail_type(reader, key, value, "a device number from 0 to 255");
    }
    *out = (size_t)value.bits;
    return VARVE_OK;
}

static int take_segment_type(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                             bool *is_small)
{
    enum snapshot_word word = field_word(value);
    *is_small = word == WORD_SMALL;
    return word == WORD_SMALL || word == WORD_LARGE ? VARVE_OK
                                                    : field_fail_type(reader, key, value, "'small' or 'large'");
}

/* Which is unknown if it is odd, or of no meaning. */
static int snapshot_segment_take_optional(struct snapshot_reader *reader, struct pickle_value key,
                                          struct pickle_value value, struct history_segment *segment)
{
    int error = VARVE_OK;
    unsigned has = 0;
    switch (field_word(key)) {
    case WORD_ALLOCATED_SIZE:
        has = HISTORY_HAS_ALLOCATED;
        error = field_size(reader, key, value, &segment->allocated);
        break;
    case WORD_ACTIVE_SIZE:
        has = HISTORY_HAS_ACTIVE;
        error = field_size(reader, key, value, &segment->active);
        break;
    case WORD_REQUESTED_SIZE:
        has = HISTORY_HAS_REQUESTED;
        error = field_size(reader, key, value, &segment->requested);
        break;
    case WORD_STREAM:
        has = HISTORY_HAS_STREAM;
        error = field_stream(reader, key, value, &segment->stream);
        break;
    case WORD_SEGMENT_TYPE:
        has = HISTORY_HAS_TYPE;
        error = take_segment_type(reader, key, value, &segment->is_small);
        break;
    case WORD_SEGMENT_POOL_ID:
        has = HISTORY_HAS_POOL;
        segment->pool_is_list = value.type == PICKLE_LIST;
        error = field_pool(reader, key, value, segment->pool_id);
        break;
    case WORD_IS_EXPANDABLE:
        has = HISTORY_HAS_EXPANDABLE;
        error = field_bool(reader, key, value, &segment->is_expandable);
        break;
    case WORD_FRAMES:
        has = HISTORY_HAS_FRAMES;
        error = frames_take(reader, key, value, &segment->stack);
        break;
    default:
        rest_add(reader, key, value);
        break;
    }
    segment->keys |= error == VARVE_OK ? has : 0;
    return field_soften(reader, error, key, value);
}

static int take_segment_field(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                              struct segment_parts *parts)
{
    struct history_segment *segment = &parts->segment;
    switch (field_word(key)) {
    case WORD_DEVICE:
        segment->keys |= HISTORY_HAS_DEVICE;
        return take_device(reader, key, value, &parts->device);
    case WORD_ADDRESS:
        parts->has_addr = true;
        return field_address(reader, key, value, &segment->addr);
    case WORD_TOTAL_SIZE:
        parts->has_size = true;
        return field_size(reader, key, value, &segment->size);
    case WORD_BLOCKS:
        parts->has_blocks = true;
        parts->blocks_key = key;
        parts->blocks = value; /* they need the segment's address, which may come later */
        return VARVE_OK;
    default:
        return snapshot_segment_take_optional(reader, key, value, segment);
    }
}

static int snapshot_check_segment(struct snapshot_reader *reader, uint64_t offset, const struct segment_parts *parts)
{
    if (!parts->has_addr || !parts->has_size || !parts->has_blocks) {
        return field_fail_missing(reader, offset,
                                  !parts->has_addr   ? "address"
                                  : !parts->has_size ? "total_size"
                                                     : "blocks");
    }
    if (parts->segment.size == 0 || parts->segment.size > UINT64_MAX - parts->segment.addr) {
        return field_fail(reader, offset, "0x%" PRIx64 " with %" PRIu64 " bytes is no range of addresses",
                          parts->segment.addr, parts->segment.size);
    }
    return VARVE_OK;
}

int segment_take(struct snapshot_reader *reader, struct pickle_value value)
{
    reader->position = (struct snapshot_position){.what = "segment", .index = reader->segment_count++};
    struct pickle_object *object;
    int error = field_dict(reader, value, &object);
    struct segment_parts parts = {0};
    reader->rest.count = 0;
    for (uint32_t i = 0; error == VARVE_OK && i + 1 < object->count; i += 2) {
        error = take_segment_field(reader, object->items[i], object->items[i + 1], &parts);
    }
    VARVE_THEN(error, object->is_replaced ? field_fail(reader, value.offset, "is a frame of its own stack")
                                          : snapshot_check_segment(reader, value.offset, &parts));
    if (error == VARVE_OK) {
        struct history_device *device = history_device(reader->history, parts.device);
        parts.segment.first_block = device->block_count;
        parts.segment.rest = rest_take(reader);
        pickle_retain(&reader->pickle.memory, parts.blocks);
        error = snapshot_segment_take_blocks(reader, &parts);
        pickle_release(&reader->pickle.memory, parts.blocks);
    }
    if (error == VARVE_OK) {
        *history_add_segment(&reader->history->devices[parts.device]) = parts.segment;
        if (!object->is_replaced) {
            pickle_replace(&reader->pickle.memory, object, PICKLE_TAG_CONSUMED, 0);
        }
    }
    return error;
}

/* ---- order ---- */

static int snapshot_compare_segments(const void *left, const void *right)
{
    const struct history_segment *a = left, *b = right;
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Segments by address, and blocks in the order of their segments. */
static void sort_segments(struct history_device *device)
{
    bool is_sorted = true;
    for (size_t i = 1; i < device->segment_count; i++) {
        is_sorted = is_sorted && device->segments[i - 1].addr <= device->segments[i].addr;
    }
    if (is_sorted) {
        return;
    }
    qsort(device->segments, device->segment_count, sizeof(*device->segments), snapshot_compare_segments);
    struct history_block *blocks = memory_resize(NULL, device->block_count * sizeof(*blocks));
    size_t to = 0;
    for (size_t i = 0; i < device->segment_count; i++) {
        struct history_segment *segment = &device->segments[i];
        if (segment->block_count > 0) {
            memcpy(blocks + to, device->blocks + segment->first_block, segment->block_count * sizeof(*blocks));
        }
        segment->first_block = to;
        to += segment->block_count;
    }
    free(device->blocks);
    device->blocks = blocks;
    device->block_capacity = device->block_count;
}

int segments_finish(struct snapshot_reader *reader)
{
    for (size_t d = 0; d < reader->history->device_count; d++) {
        struct history_device *device = &reader->history->devices[d];
        sort_segments(device);
        for (size_t i = 1; i < device->segment_count; i++) {
            const struct history_segment *before = &device->segments[i - 1], *segment = &device->segments[i];
            if (segment->addr - before->addr < before->size) {
                return varve_message_set(
                    reader->pickle.message, VARVE_ERROR_FORMAT,
                    "%.200s: two segments of device %zu overlap: 0x%" PRIx64 " with %" PRIu64 " bytes and 0x%" PRIx64,
                    input_stream_path(reader->pickle.input), d, before->addr, before->size, segment->addr);
            }
        }
    }
    return VARVE_OK;
}
