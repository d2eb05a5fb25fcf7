/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history as a PyTorch snapshot: the dictionary of torch.cuda.memory._snapshot with segments, blocks,
 * traces and settings, for PyTorch's own viewers. Stacks are written once and referred to, as PyTorch does. What a
 * snapshot had that means nothing here is written as it was, and what it lacked is not added.
 */
#include "analysis/export/export.h"

#include "analysis/export/pickle_writer.h"
#include "analysis/history/history.h"
#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

#define NO_MEMO UINT32_MAX

struct exporter {
    struct pickle_writer writer;
    const struct history *history;
    uint32_t *text_memos;
    uint32_t *stack_memos;
};

static const char *const state_names[] = {
    [HISTORY_INACTIVE] = "inactive",
    [HISTORY_ACTIVE_ALLOCATED] = "active_allocated",
    [HISTORY_ACTIVE_PENDING_FREE] = "active_pending_free",
};

static void write_number(struct exporter *exporter, const char *key, uint64_t value)
{
    pickle_write_key(&exporter->writer, key);
    pickle_write_unsigned(&exporter->writer, value);
}

static void write_word(struct exporter *exporter, const char *key, const char *literal)
{
    pickle_write_key(&exporter->writer, key);
    pickle_write_key(&exporter->writer, literal);
}

static void write_flag(struct exporter *exporter, const char *key, bool value)
{
    pickle_write_key(&exporter->writer, key);
    pickle_write_bool(&exporter->writer, value);
}

static void write_shared_text(struct exporter *exporter, const char *key, uint32_t number)
{
    pickle_write_key(&exporter->writer, key);
    if (exporter->text_memos[number] != NO_MEMO) {
        pickle_write_again(&exporter->writer, exporter->text_memos[number]);
        return;
    }
    pickle_write_text(&exporter->writer, exporter->history->texts[number]);
    exporter->text_memos[number] = pickle_write_memo(&exporter->writer);
}

static void export_pytorch_write_frames(struct exporter *exporter, uint32_t number)
{
    const struct history_stack *stack = &exporter->history->stacks[number];
    struct pickle_writer *writer = &exporter->writer;
    pickle_write_key(writer, "frames");
    if (exporter->stack_memos[number] != NO_MEMO) {
        pickle_write_again(writer, exporter->stack_memos[number]);
        return;
    }
    struct pickle_batch batch;
    pickle_list_begin(writer, &batch);
    exporter->stack_memos[number] = pickle_write_memo(writer); /* of the list itself, which fills from here on */
    for (uint32_t i = 0; i < stack->frame_count; i++) {
        const struct history_frame *frame = &exporter->history->frames[stack->first_frame + i];
        pickle_list_item(writer, &batch);
        pickle_dict_begin(writer);
        write_shared_text(exporter, "name", frame->function);
        write_shared_text(exporter, "filename", frame->file);
        write_number(exporter, "line", frame->line);
        pickle_dict_end(writer);
    }
    pickle_list_end(writer, &batch);
}

/* Of a history that is from no snapshot all keys, as PyTorch's viewers look for them. */
static bool has(const struct exporter *exporter, uint16_t keys, unsigned key)
{
    return !exporter->history->rests.is_known || (keys & key) != 0;
}

/* What the snapshot had that means nothing here. */
static void write_rest(struct exporter *exporter, uint32_t text)
{
    pickle_write_opcodes(&exporter->writer, exporter->history->texts[text],
                         history_text_bytes(exporter->history, text));
}

static void export_pytorch_write_block(struct exporter *exporter, const struct history_block *block)
{
    pickle_dict_begin(&exporter->writer);
    if (has(exporter, block->keys, HISTORY_HAS_ADDRESS)) {
        write_number(exporter, "address", block->addr);
    }
    write_number(exporter, "size", block->size);
    if (has(exporter, block->keys, HISTORY_HAS_REQUESTED)) {
        write_number(exporter, "requested_size", block->requested);
    }
    if (has(exporter, block->keys, HISTORY_HAS_TYPE)) {
        write_word(exporter, "state", state_names[block->state]);
    }
    if (has(exporter, block->keys, HISTORY_HAS_FRAMES)) {
        export_pytorch_write_frames(exporter, block->stack);
    }
    write_rest(exporter, block->rest);
    pickle_dict_end(&exporter->writer);
}

static void export_pytorch_write_pool(struct exporter *exporter, const struct history_segment *segment)
{
    struct pickle_writer *writer = &exporter->writer;
    struct pickle_batch batch;
    if (segment->pool_is_list) {
        pickle_list_begin(writer, &batch);
        pickle_list_item(writer, &batch);
        pickle_write_unsigned(writer, segment->pool_id[0]);
        pickle_list_item(writer, &batch);
        pickle_write_unsigned(writer, segment->pool_id[1]);
        pickle_list_end(writer, &batch);
    } else {
        pickle_write_unsigned(writer, segment->pool_id[0]);
        pickle_write_unsigned(writer, segment->pool_id[1]);
        pickle_write_pair(writer);
    }
}

static void write_optional(struct exporter *exporter, const struct history_segment *segment)
{
    const struct {
        unsigned has;
        const char *key;
        uint64_t value;
    } numbers[] = {
        {HISTORY_HAS_ALLOCATED, "allocated_size", segment->allocated},
        {HISTORY_HAS_ACTIVE, "active_size", segment->active},
        {HISTORY_HAS_REQUESTED, "requested_size", segment->requested},
        {HISTORY_HAS_STREAM, "stream", exporter->history->streams[segment->stream]},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (has(exporter, segment->keys, numbers[i].has)) {
            write_number(exporter, numbers[i].key, numbers[i].value);
        }
    }
    if (has(exporter, segment->keys, HISTORY_HAS_TYPE)) {
        write_word(exporter, "segment_type", segment->is_small ? "small" : "large");
    }
    if (has(exporter, segment->keys, HISTORY_HAS_POOL)) {
        pickle_write_key(&exporter->writer, "segment_pool_id");
        export_pytorch_write_pool(exporter, segment);
    }
    if (has(exporter, segment->keys, HISTORY_HAS_EXPANDABLE)) {
        write_flag(exporter, "is_expandable", segment->is_expandable);
    }
    if (has(exporter, segment->keys, HISTORY_HAS_FRAMES)) {
        export_pytorch_write_frames(exporter, segment->stack);
    }
    write_rest(exporter, segment->rest);
}

static void export_pytorch_write_segment(struct exporter *exporter, size_t index, const struct history_segment *segment)
{
    const struct history_device *device = &exporter->history->devices[index];
    struct pickle_writer *writer = &exporter->writer;
    pickle_dict_begin(writer);
    if (has(exporter, segment->keys, HISTORY_HAS_DEVICE)) {
        write_number(exporter, "device", index);
    }
    write_number(exporter, "address", segment->addr);
    write_number(exporter, "total_size", segment->size);
    write_optional(exporter, segment);
    pickle_write_key(writer, "blocks");
    struct pickle_batch batch;
    pickle_list_begin(writer, &batch);
    for (size_t i = 0; i < segment->block_count; i++) {
        pickle_list_item(writer, &batch);
        export_pytorch_write_block(exporter, &device->blocks[segment->first_block + i]);
    }
    pickle_list_end(writer, &batch);
    pickle_dict_end(writer);
}

static void export_pytorch_write_segments(struct exporter *exporter)
{
    struct pickle_batch batch;
    pickle_list_begin(&exporter->writer, &batch);
    for (size_t index = 0; index < exporter->history->device_count; index++) {
        const struct history_device *device = &exporter->history->devices[index];
        for (size_t i = 0; i < device->segment_count; i++) {
            pickle_list_item(&exporter->writer, &batch);
            export_pytorch_write_segment(exporter, index, &device->segments[i]);
        }
    }
    pickle_list_end(&exporter->writer, &batch);
}

/* Of a history that is from no snapshot: what PyTorch's viewers look for. */
static const struct history_rest no_rest = {.keys = HISTORY_HAS_ALL};

static void export_pytorch_write_event(struct exporter *exporter, const struct history_event *event,
                                       const struct history_rest *rest)
{
    struct pickle_writer *writer = &exporter->writer;
    pickle_dict_begin(writer);
    write_word(exporter, "action", history_action_name(event->action));
    write_number(exporter, event->action == HISTORY_OOM ? "device_free" : "addr", event->addr);
    write_number(exporter, "size", event->size);
    if (rest->keys & HISTORY_HAS_STREAM) {
        write_number(exporter, "stream", exporter->history->streams[event->stream]);
    }
    if (rest->keys & HISTORY_HAS_TIME) {
        pickle_write_key(writer, "time_us");
        pickle_write_signed(writer, event->time_us);
    }
    if (rest == &no_rest) {
        write_word(exporter, "compile_context", "N/A");
        write_word(exporter, "user_metadata", "");
    } else {
        write_rest(exporter, rest->text);
    }
    if (rest->keys & HISTORY_HAS_FRAMES) {
        export_pytorch_write_frames(exporter, event->stack);
    }
    pickle_dict_end(writer);
}

static void write_skipped(struct exporter *exporter, const struct history_device *device, size_t *next, size_t event,
                          struct pickle_batch *batch)
{
    for (; *next < device->skipped_count && device->skipped[*next].event <= event; ++*next) {
        pickle_list_item(&exporter->writer, batch);
        write_rest(exporter, device->skipped[*next].text);
    }
}

static void write_trace(struct exporter *exporter, const struct history_device *device)
{
    const struct history_rest *rest = &no_rest;
    struct pickle_batch batch;
    pickle_list_begin(&exporter->writer, &batch);
    size_t next_rest = 0;
    size_t next_skipped = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        write_skipped(exporter, device, &next_skipped, i, &batch);
        while (next_rest < device->rest_count && device->rests[next_rest].event <= i) {
            rest = &device->rests[next_rest++];
        }
        if ((device->inferred >> device->events[i].action & 1U) == 0) {
            pickle_list_item(&exporter->writer, &batch);
            export_pytorch_write_event(exporter, &device->events[i], rest);
        }
    }
    write_skipped(exporter, device, &next_skipped, device->event_count, &batch);
    pickle_list_end(&exporter->writer, &batch);
}

static void write_traces(struct exporter *exporter)
{
    struct pickle_batch traces;
    pickle_list_begin(&exporter->writer, &traces);
    const struct history *history = exporter->history;
    size_t count = history->rests.is_known ? history->rests.traces : history->device_count;
    for (size_t index = 0; index < count; index++) {
        pickle_list_item(&exporter->writer, &traces);
        write_trace(exporter, &history->devices[index]);
    }
    pickle_list_end(&exporter->writer, &traces);
}

static void write_settings(struct exporter *exporter)
{
    const struct history_settings *settings = &exporter->history->settings;
    struct pickle_writer *writer = &exporter->writer;
    pickle_dict_begin(writer);
    if (exporter->history->rests.is_known) {
        write_rest(exporter, exporter->history->rests.settings);
        pickle_dict_end(writer);
        return;
    }
    pickle_write_key(writer, "PYTORCH_CUDA_ALLOC_CONF");
    pickle_write_text(writer, settings->text);
    pickle_write_key(writer, "max_split_size");
    pickle_write_signed(writer, settings->is_known ? settings->max_split_size : -1);
    pickle_write_key(writer, "garbage_collection_threshold");
    pickle_write_real(writer, settings->garbage_collection_threshold);
    write_flag(exporter, "expandable_segments", settings->expandable_segments);
    write_number(exporter, "pinned_num_register_threads", 1);
    write_flag(exporter, "release_lock_on_cudamalloc", false);
    write_flag(exporter, "pinned_use_cuda_host_register", false);
    write_flag(exporter, "graph_capture_record_stream_reuse", false);
    pickle_write_key(writer, "roundup_power2_divisions");
    pickle_dict_begin(writer);
    for (unsigned i = 0; i < sizeof(settings->divisions) / sizeof(settings->divisions[0]); i++) {
        char mebibytes[16];
        snprintf(mebibytes, sizeof(mebibytes), "%u", 1U << i);
        pickle_write_text(writer, mebibytes);
        pickle_write_unsigned(writer, settings->divisions[i]);
    }
    pickle_dict_end(writer);
    pickle_dict_end(writer);
}

static uint32_t *new_memos(size_t count)
{
    uint32_t *memos = memory_resize(NULL, (count + 1) * sizeof(*memos));
    for (size_t i = 0; i < count; i++) {
        memos[i] = NO_MEMO;
    }
    return memos;
}

static void write_root(struct exporter *exporter)
{
    const struct history *history = exporter->history;
    pickle_dict_begin(&exporter->writer);
    if (!history->rests.lacks_segments) {
        pickle_write_key(&exporter->writer, "segments");
        export_pytorch_write_segments(exporter);
    }
    if (!history->rests.lacks_traces) {
        pickle_write_key(&exporter->writer, "device_traces");
        write_traces(exporter);
    }
    if (history->settings.is_known || !history->rests.is_known) {
        pickle_write_key(&exporter->writer, "allocator_settings");
        write_settings(exporter);
    }
    struct pickle_batch none;
    if (history->rests.is_known) {
        write_rest(exporter, history->rests.root);
    } else {
        pickle_write_key(&exporter->writer, "external_annotations");
        pickle_list_begin(&exporter->writer, &none);
        pickle_list_end(&exporter->writer, &none);
    }
    pickle_dict_end(&exporter->writer);
}

static int export_pytorch(const void *history_untyped, FILE *out, struct varve_message *message)
{
    (void)message;
    const struct history *history = history_untyped;
    struct exporter exporter = {.history = history,
                                .text_memos = new_memos(history->text_count),
                                .stack_memos = new_memos(history->stack_count)};
    pickle_write_begin(&exporter.writer, out);
    if (history->rests.is_list) {
        export_pytorch_write_segments(&exporter);
    } else {
        write_root(&exporter);
    }
    pickle_write_end(&exporter.writer);
    free(exporter.text_memos);
    free(exporter.stack_memos);
    return VARVE_OK;
}

const struct export_format export_format_pytorch = {
    .name = "pytorch",
    .meaning = "A snapshot pickle (protocol 4), as torch.cuda.memory._dump_snapshot writes it, for "
               "pytorch.org/memory_viz and the readers of torch.cuda.memory; of a database or a snapshot. The default.",
    .write_history = export_pytorch,
    .is_binary = true,
};
