/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes, plain or compressed, as a snapshot. Reading ends with an error of one line, or
 * with a history in which all numbers are in range, all sums hold and everything is in order.
 */
#include "fuzz/target.h"

#include "analysis/snapshot/snapshot_read.h"

#include <stdlib.h>
#include <string.h>

static void check_device(const struct history *history, const struct history_device *device)
{
    uint64_t end = 0;
    size_t block_count = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        check(event->action < HISTORY_ACTION_LIMIT && event->stack < history->stack_count &&
              event->stream < history->stream_count);
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        uint64_t next = segment->addr;
        check(i == 0 || segment->addr >= end);
        end = segment->addr + segment->size;
        check(end > segment->addr && segment->stack < history->stack_count);
        check(segment->stream < history->stream_count && segment->first_block == block_count);
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            check(block->addr >= next && block->size > 0 && block->size <= end - block->addr);
            check(block->stack < history->stack_count && block->state <= HISTORY_ACTIVE_PENDING_FREE);
            next = block->addr + block->size;
        }
        block_count += segment->block_count;
    }
    check(block_count == device->block_count);
}

static void check_stacks(const struct history *history)
{
    for (size_t i = 0; i < history->stack_count; i++) {
        const struct history_stack *stack = &history->stacks[i];
        check(stack->first_frame + stack->frame_count <= history->frame_count);
    }
    for (size_t i = 0; i < history->frame_count; i++) {
        check(history->frames[i].function < history->text_count && history->frames[i].file < history->text_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input_stream *input;
    struct history *history = NULL;
    struct varve_message message = {""};
    int error = input_stream_open_memory("fuzz", data, size, &input, &message);
    if (error == VARVE_OK) {
        error = history_read_pytorch_stream(input, &history, NULL, &message);
    }
    check((error == VARVE_OK) == (history != NULL));
    check(error == VARVE_OK || (message.text[0] != '\0' && strchr(message.text, '\n') == NULL));
    if (history != NULL) {
        for (size_t i = 0; i < history->device_count; i++) {
            check_device(history, &history->devices[i]);
        }
        check_stacks(history);
    }
    history_free(history);
    return 0;
}
