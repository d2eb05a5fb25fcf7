/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments that a history ends with, in a database: as text in `meta` where the source had them (an
 * imported snapshot tells real block sizes there and only there), else as its events lead to them. The text
 * has a line for each segment, followed by one for each of its blocks, all numbers hexadecimal:
 *
 *   s ADDR SIZE STREAM POOL POOL SMALL EXPANDABLE ALLOCATED ACTIVE REQUESTED CALLSITE
 *   b ADDR SIZE REQUESTED STATE CALLSITE
 */
#include "analysis/history/database.h"

#include "analysis/output/memory.h"
#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 48
#define SEGMENT_FIELDS 11
#define BLOCK_FIELDS 5

static uint32_t callsite_of(const uint32_t *callsites, uint32_t stack)
{
    return callsites == NULL ? 0 : callsites[stack];
}

void history_write_final(struct varve_writer *writer, const struct history *history, unsigned index,
                         const uint32_t *callsites)
{
    const struct history_device *device = &history->devices[index];
    char key[KEY_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out == NULL) {
        memory_exhausted();
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];

        fprintf(out,
                "s %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %x %" PRIx64 " %" PRIx64
                " %" PRIx64 " %" PRIx32 "\n",
                segment->addr, segment->size, history->streams[segment->stream], segment->pool_id[0],
                segment->pool_id[1], segment->is_small, segment->is_expandable, segment->allocated,
                segment->active, segment->requested, callsite_of(callsites, segment->stack));
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];

            fprintf(out, "b %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %" PRIx32 "\n", block->addr, block->size,
                    block->requested, block->state, callsite_of(callsites, block->stack));
        }
    }
    if (fclose(out) != 0) {
        memory_exhausted();
    }
    snprintf(key, sizeof(key), "history.segments.%u", index);
    varve_writer_meta_text(writer, key, text);
    free(text);
}

/* Numbers of one line; false unless there are exactly `count`. */
static bool read_numbers(char *line, uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;

        numbers[i] = strtoull(line, &end, 16);
        if (end == line || (*end != ' ' && *end != '\0')) {
            return false;
        }
        line = end;
    }
    return *line == '\0';
}

static uint32_t stack_of(const uint32_t *stacks, size_t count, uint64_t callsite)
{
    return callsite < count ? stacks[callsite] : 0;
}

struct final_reader {
    struct history *history;
    struct history_device *device;
    struct history_segment *segment; /* the last one */
    uint64_t end;                    /* of its blocks so far */
    const uint32_t *stacks;
    size_t stack_count;
};

static bool read_segment(struct final_reader *reader, char *line)
{
    uint64_t n[SEGMENT_FIELDS];
    struct history_segment *segment;

    if (!read_numbers(line, n, SEGMENT_FIELDS) || n[1] == 0 || n[0] + n[1] < n[0] ||
        (reader->device->segment_count > 0 &&
         n[0] < reader->device->segments[reader->device->segment_count - 1].addr +
                    reader->device->segments[reader->device->segment_count - 1].size)) {
        return false;
    }
    segment = history_add_segment(reader->device);
    reader->segment = segment;
    reader->end = n[0];
    *segment = (struct history_segment){
        .addr = n[0],
        .size = n[1],
        .pool_id = {n[3], n[4]},
        .is_small = n[5] != 0,
        .is_expandable = n[6] != 0,
        .allocated = n[7],
        .active = n[8],
        .requested = n[9],
        .first_block = reader->device->block_count,
        .stack = stack_of(reader->stacks, reader->stack_count, n[10]),
    };
    return history_stream(reader->history, n[2], &segment->stream) == VARVE_OK;
}

static bool read_block(struct final_reader *reader, char *line)
{
    struct history_segment *segment = reader->segment;
    uint64_t n[BLOCK_FIELDS];

    if (segment == NULL || !read_numbers(line, n, BLOCK_FIELDS) || n[0] < reader->end || n[1] == 0 ||
        n[3] > HISTORY_ACTIVE_PENDING_FREE || n[0] - segment->addr >= segment->size ||
        n[1] > segment->size - (n[0] - segment->addr)) {
        return false;
    }
    *history_add_block(reader->device) = (struct history_block){
        .addr = n[0],
        .size = n[1],
        .requested = n[2],
        .state = (uint8_t)n[3],
        .stack = stack_of(reader->stacks, reader->stack_count, n[4]),
    };
    reader->end = n[0] + n[1];
    segment->block_count++;
    return true;
}

int history_read_final(struct database *database, struct history *history, unsigned index,
                       const uint32_t *stacks, size_t stack_count, bool *is_found_out,
                       struct varve_message *message)
{
    struct final_reader reader = {
        .history = history, .device = &history->devices[index], .stacks = stacks, .stack_count = stack_count};
    char key[KEY_BYTES];
    char *position = NULL;
    char *text;
    bool is_good = true;

    snprintf(key, sizeof(key), "history.segments.%u", index);
    text = database_meta(database, key);
    *is_found_out = text != NULL;
    for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &position); line != NULL && is_good;
         line = strtok_r(NULL, "\n", &position)) {
        is_good = (line[0] == 's' && line[1] == ' ' && read_segment(&reader, line + 2)) ||
                  (line[0] == 'b' && line[1] == ' ' && read_block(&reader, line + 2));
    }
    free(text);
    return is_good ? VARVE_OK
                   : varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: meta.%s is damaged",
                                       database_path(database), key);
}

#define OF_NUMBER " WHERE process_id = " HISTORY_PROCESS " AND device = ?1 AND number = ?2"

static uint64_t lookup(struct database *database, const char *sql, unsigned device, unsigned number,
                       uint64_t otherwise)
{
    struct cursor cursor;
    uint64_t value = otherwise;

    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, device);
    cursor_bind_integer(&cursor, 2, number);
    if (cursor_next(&cursor)) {
        value = (uint64_t)cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return value;
}

static int begin_segment(struct database *database, struct history *history, unsigned index,
                         const struct varve_layout_block *block)
{
    struct history_device *device = &history->devices[index];
    struct history_segment *segment = history_add_segment(device);
    uint64_t stream =
        lookup(database, "SELECT handle FROM stream" OF_NUMBER, index, block->stream, block->stream);

    segment->addr = block->addr;
    segment->first_block = device->block_count;
    segment->is_expandable = block->is_expandable;
    segment->pool_id[0] =
        lookup(database, "SELECT capture_id FROM pool" OF_NUMBER, index, block->pool, block->pool / 2U);
    segment->pool_id[1] = lookup(database, "SELECT user_id FROM pool" OF_NUMBER, index, block->pool, 0);
    segment->is_small =
        lookup(database, "SELECT is_small FROM pool" OF_NUMBER, index, block->pool, block->pool % 2U) != 0;
    return history_stream(history, stream, &segment->stream);
}

int history_take_layout(struct database *database, struct history *history, unsigned index,
                        const struct varve_layout *layout)
{
    static const uint8_t states[] = {
        [VARVE_LAYOUT_FREE] = HISTORY_INACTIVE,
        [VARVE_LAYOUT_USED] = HISTORY_ACTIVE_ALLOCATED,
        [VARVE_LAYOUT_PENDING] = HISTORY_ACTIVE_PENDING_FREE,
    };
    struct history_device *device = &history->devices[index];
    struct varve_layout_block block;
    uint32_t segment_number = 0;
    uint64_t end = 0;
    int result = VARVE_OK;

    for (uint64_t from = 0; result == VARVE_OK && varve_layout_block(layout, from, &block);
         from = block.addr + block.extent) {
        struct history_segment *segment;

        if (device->segment_count == 0 || block.segment != segment_number || block.addr != end) {
            result = begin_segment(database, history, index, &block);
        }
        segment = &device->segments[device->segment_count - 1];
        *history_add_block(device) = (struct history_block){.addr = block.addr,
                                                            .size = block.extent,
                                                            .requested = block.requested,
                                                            .state = states[block.state]};
        segment_number = block.segment;
        end = block.addr + block.extent;
        segment->size = end - segment->addr;
        segment->block_count++;
        segment->allocated += block.state == VARVE_LAYOUT_USED ? block.extent : 0;
        segment->active += block.state != VARVE_LAYOUT_FREE ? block.extent : 0;
        segment->requested += block.state != VARVE_LAYOUT_FREE ? block.requested : 0;
    }
    return result;
}
