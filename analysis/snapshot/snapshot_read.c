/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list is known before the file says what it is for: picklers write a container empty and fill it where it
 * lies on the stack, so its position says it; when the finished list arrives at its key, the guess is checked.
 * Lists that were made otherwise are kept whole and read on arrival.
 */
#include "analysis/snapshot/snapshot_read.h"

#include "analysis/base/file_kind.h"
#include "analysis/snapshot/json_decoder.h"
#include "analysis/snapshot/snapshot_event.h"
#include "analysis/snapshot/snapshot_reader.h"
#include "analysis/snapshot/snapshot_segment.h"
#include "analysis/snapshot/snapshot_settings.h"
#include "analysis/history/history_read.h"
#include "analysis/base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_POSITION SIZE_MAX
#define UNKNOWN_BYTES_MAX (UINT64_C(64) << 20) /* that are kept below keys that mean nothing here */

static const char *const words[] = {
#define SNAPSHOT_WORD_TEXT(name, text) text,
    SNAPSHOT_WORD_LIST(SNAPSHOT_WORD_TEXT)
#undef SNAPSHOT_WORD_TEXT
        NULL,
};

/* ---- what a container is, by its position on the stack ---- */

/* Height of the last mark at or below `position`, 0 if there is none. */
static size_t mark_below(const struct pickle *pickle, size_t position)
{
    size_t i = pickle->mark_count;
    while (i > 0 && pickle->marks[i - 1] > position) {
        i--;
    }
    return i > 0 ? pickle->marks[i - 1] : 0;
}

/* A list that is the value of a key of the root: root, key, value, key, value, … with nothing between. */
static uint8_t role_by_key(const struct pickle *pickle, size_t position)
{
    if (position < 2 || position % 2 != 0 || pickle->stack[0].type != PICKLE_DICT || mark_below(pickle, position) > 1 ||
        (pickle->mark_count > 0 && pickle->marks[0] == 0)) {
        return PICKLE_ROLE_PLAIN;
    }
    switch (field_word(pickle->stack[position - 1])) {
    case WORD_SEGMENTS:
        return ROLE_SEGMENTS;
    case WORD_DEVICE_TRACES:
        return ROLE_TRACES;
    case WORD_ALLOCATOR_SETTINGS:
    case WORD_TRACE_ALLOC_OVERFLOWED:
        return PICKLE_ROLE_PLAIN;
    default:
        return ROLE_UNKNOWN;
    }
}

/* A list within a list of the root. */
static uint8_t role_by_parent(struct pickle *pickle, size_t position, struct pickle_object *container)
{
    size_t mark = mark_below(pickle, position);
    size_t parent = mark == position || position == 0 ? NO_POSITION : position - 1;
    if (mark > 0 && pickle->stack[mark - 1].type == PICKLE_LIST) {
        parent = mark - 1; /* below the mark: more are added at once */
    }
    if (parent == NO_POSITION || pickle->stack[parent].type != PICKLE_LIST) {
        return PICKLE_ROLE_PLAIN;
    }
    struct pickle_object *list = pickle_object(&pickle->memory, pickle->stack[parent]);
    if (list->role == PICKLE_ROLE_UNDECIDED) {
        list->role = role_by_key(pickle, parent);
    }
    if (list->role == ROLE_TRACES && !list->is_replaced) {
        container->number = list->number + (uint32_t)(position - parent - 1);
        return ROLE_TRACE;
    }
    return list->role == ROLE_UNKNOWN ? ROLE_UNKNOWN : PICKLE_ROLE_PLAIN;
}

static uint8_t decide_role(void *context, struct pickle *pickle, size_t position, struct pickle_object *container)
{
    (void)context;
    if (position == 0) {
        bool is_part = pickle->mark_count > 0 && pickle->marks[0] == 0; /* of a container yet to be made */
        return is_part ? PICKLE_ROLE_PLAIN : container->type == PICKLE_DICT ? ROLE_ROOT : ROLE_SEGMENTS;
    }
    uint8_t role = role_by_key(pickle, position);
    return role != PICKLE_ROLE_PLAIN ? role : role_by_parent(pickle, position, container);
}

/* ---- the items of lists ---- */

/* The snapshot has a trace of the device; false: there are too many. */
static bool has_device(struct snapshot_reader *reader, size_t device)
{
    struct history_rests *rests = &reader->history->rests;
    if (history_device(reader->history, device) == NULL) {
        return false;
    }
    rests->traces = device >= rests->traces ? (uint16_t)(device + 1) : rests->traces;
    return true;
}

static int take_trace_item(struct snapshot_reader *reader, size_t device, struct pickle_value item)
{
    if (!has_device(reader, device)) {
        reader->position = (struct snapshot_position){0};
        return field_fail(reader, item.offset, "'device_traces' is for more than 256 devices");
    }
    return event_take(reader, device, item);
}

/* A list that the machine has kept whole: each item to `take`, with its number. */
static int take_kept(struct snapshot_reader *reader, struct pickle_object *list,
                     int (*snapshot_read_take)(struct snapshot_reader *reader, size_t index, struct pickle_value item))
{
    int error = VARVE_OK;
    for (uint32_t i = 0; error == VARVE_OK && i < list->count; i++) {
        struct pickle_value item = list->items[i];
        pickle_retain(&reader->pickle.memory, item);
        error = snapshot_read_take(reader, i, item);
        pickle_release(&reader->pickle.memory, item);
    }
    return error;
}

static int take_segment_item(struct snapshot_reader *reader, size_t index, struct pickle_value item)
{
    (void)index;
    return segment_take(reader, item);
}

static int take_kept_event(struct snapshot_reader *reader, size_t index, struct pickle_value item)
{
    (void)index;
    return take_trace_item(reader, reader->trace_device, item);
}

/* The trace of a device: what its list holds if that was kept, nothing if the events have gone in before. */
static int take_trace(struct snapshot_reader *reader, size_t device, struct pickle_value value)
{
    struct pickle_value key = {.type = PICKLE_TEXT, .bits = WORD_DEVICE_TRACES};
    reader->position = (struct snapshot_position){.what = "device", .index = device};
    struct pickle_object *list = NULL;
    int error = field_list(reader, key, value, &list);
    if (error != VARVE_OK) {
        return error;
    }
    if (list->role > PICKLE_ROLE_PLAIN && (list->role != ROLE_TRACE || list->number != device)) {
        return field_fail(reader, value.offset, "its trace was begun elsewhere in the snapshot");
    }
    if (!has_device(reader, device)) {
        return field_fail(reader, value.offset, "'device_traces' is for more than 256 devices");
    }
    if (list->role != ROLE_TRACE) {
        reader->trace_device = device;
        error = take_kept(reader, list, take_kept_event);
    }
    if (error == VARVE_OK) {
        pickle_replace(&reader->pickle.memory, list, PICKLE_TAG_CONSUMED, 0);
    }
    return error;
}

/* ---- the root ---- */

/* A list of the root: its items now, if it was kept, or they have gone in before. */
static int take_list_key(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                         bool is_segments)
{
    bool *has = is_segments ? &reader->has_segments : &reader->has_traces;
    uint8_t role = is_segments ? ROLE_SEGMENTS : ROLE_TRACES;
    if (*has) {
        return field_fail(reader, key.offset, "key '%s' comes twice", words[field_word(key)]);
    }
    struct pickle_object *list = NULL;
    int error = field_list(reader, key, value, &list);
    if (error != VARVE_OK) {
        return error;
    }
    *has = true;
    if (list->role > PICKLE_ROLE_PLAIN && list->role != role) {
        return field_fail_type(reader, key, value, is_segments ? "a list of segments" : "a list of traces");
    }
    if (list->role != role) {
        error = take_kept(reader, list, is_segments ? take_segment_item : take_trace);
    }
    if (error == VARVE_OK) {
        pickle_replace(&reader->pickle.memory, list, PICKLE_TAG_CONSUMED, 0);
    }
    return error;
}

/* ---- several snapshots ---- */

static bool is_snapshot(struct snapshot_reader *reader, struct pickle_value value)
{
    if (value.type != PICKLE_DICT) {
        return false;
    }
    const struct pickle_object *object = pickle_object(&reader->pickle.memory, value);
    for (uint32_t i = 0; !object->is_replaced && i + 1 < object->count; i += 2) {
        if (field_word(object->items[i]) == WORD_SEGMENTS || field_word(object->items[i]) == WORD_DEVICE_TRACES) {
            return true;
        }
    }
    return false;
}

static void note_snapshot(struct snapshot_reader *reader, struct pickle_value key)
{
    if (pickle_is_object(key)) {
        key = (struct pickle_value){.type = PICKLE_NONE}; /* it may be gone when the file has ended */
    }
    reader->first = reader->snapshots == 0 ? key : reader->first;
    reader->last = key;
    reader->snapshots++;
}

static void key_words(const struct snapshot_reader *reader, struct pickle_value key, char *text_out, size_t bytes)
{
    if (key.type == PICKLE_INTEGER) {
        snprintf(text_out, bytes, "%lld", (long long)key.bits);
    } else {
        pickle_describe(&reader->pickle.memory, key, text_out, bytes);
    }
}

static int fail_several(struct snapshot_reader *reader, bool is_list)
{
    char first[PICKLE_DESCRIBE_BYTES], last[PICKLE_DESCRIBE_BYTES];
    key_words(reader, reader->first, first, sizeof(first));
    key_words(reader, reader->last, last, sizeof(last));
    return varve_message_set(reader->pickle.message, VARVE_ERROR_FORMAT,
                             "%.150s is no snapshot, but holds %zu of them (%s to %s), and varve reads one at a time: "
                             "for rank, snapshot in %s: pickle.dump(snapshot, open(f'{rank}.pickle', 'wb'))",
                             input_stream_path(reader->pickle.input), reader->snapshots, first, last,
                             is_list ? "enumerate(snapshots)" : "snapshots.items()");
}

/* A key that an export writes back, behind those that were kept before. */
static void snapshot_read_keep(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value)
{
    reader->rest.count = 0;
    rest_add(reader, key, value);
    rest_keep(reader);
}

static int take_root(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value)
{
    int error;
    reader->position = (struct snapshot_position){0};
    switch (field_word(key)) {
    case WORD_SEGMENTS:
        return take_list_key(reader, key, value, true);
    case WORD_DEVICE_TRACES:
        return take_list_key(reader, key, value, false);
    case WORD_ALLOCATOR_SETTINGS:
        error = settings_take(reader, key, value);
        if (!reader->history->settings.is_known) {
            snapshot_read_keep(reader, key, value);
        }
        return field_soften_kept(reader, error);
    case WORD_TRACE_ALLOC_OVERFLOWED:
        snapshot_read_keep(reader, key, value);
        return field_soften_kept(reader, overflowed_take(reader, key, value));
    default:
        if (is_snapshot(reader, value) && !reader->has_segments && !reader->has_traces) {
            note_snapshot(reader, key);
        } else if (!reader->has_forgotten) {
            snapshot_read_keep(reader, key, value);
        }
        return VARVE_OK;
    }
}

/* Is it something that may be forgotten? Frames may not: what matters may refer back to them later. */
static bool is_forgettable(struct snapshot_reader *reader, struct pickle_value item)
{
    if (item.type != PICKLE_DICT) {
        return false;
    }
    const struct pickle_object *object = pickle_object(&reader->pickle.memory, item);
    for (uint32_t i = 0; i + 1 < object->count; i += 2) {
        if (field_word(object->items[i]) == WORD_FILENAME) {
            return false;
        }
    }
    return !object->is_replaced && object->role <= PICKLE_ROLE_PLAIN;
}

/* Below a key that means nothing here: host_traces of newer versions may be as long as device_traces. */
static void snapshot_read_take_unknown(struct snapshot_reader *reader, struct pickle_object *container,
                                       struct pickle_value item)
{
    uint32_t text;
    if (is_forgettable(reader, item)) {
        if (reader->unknown_bytes < UNKNOWN_BYTES_MAX && rest_value(reader, item, &text)) {
            reader->unknown_bytes += history_text_bytes(reader->history, text);
            pickle_replace(&reader->pickle.memory, pickle_object(&reader->pickle.memory, item), TAG_REST, text);
            pickle_retain(&reader->pickle.memory, item);
            pickle_object_add(container, &item, 1);
            return;
        }
        reader->has_forgotten = true;
        pickle_replace(&reader->pickle.memory, pickle_object(&reader->pickle.memory, item), PICKLE_TAG_CONSUMED, 0);
    } else {
        pickle_retain(&reader->pickle.memory, item);
        pickle_object_add(container, &item, 1);
    }
}

static int snapshot_read_take_item(struct snapshot_reader *reader, struct pickle_object *container,
                                   struct pickle_value item)
{
    switch (container->role) {
    case ROLE_TRACE:
        reader->takes_traces = true;
        return take_trace_item(reader, container->number, item);
    case ROLE_TRACES:
        reader->takes_traces = true;
        return take_trace(reader, container->number++, item);
    case ROLE_SEGMENTS:
        if (is_snapshot(reader, item)) {
            note_snapshot(reader, (struct pickle_value){.type = PICKLE_INTEGER, .bits = reader->snapshots});
            return VARVE_OK;
        }
        reader->takes_segments = true;
        return segment_take(reader, item);
    default:
        snapshot_read_take_unknown(reader, container, item);
        return VARVE_OK;
    }
}

static int snapshot_read_take(void *context, struct pickle *pickle, struct pickle_object *container,
                              const struct pickle_value *items, size_t count)
{
    struct snapshot_reader *reader = context;
    (void)pickle;
    int error = VARVE_OK;
    if (container->role == ROLE_ROOT) {
        for (size_t i = 0; error == VARVE_OK && i + 1 < count; i += 2) {
            error = take_root(reader, items[i], items[i + 1]);
        }
        return error;
    }
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        error = snapshot_read_take_item(reader, container, items[i]);
    }
    return error;
}

/* ---- a whole snapshot ---- */

/* What is left when the file has ended: was it a snapshot, and has everything arrived where it was taken for?
 */
static int snapshot_read_check_root(struct snapshot_reader *reader, struct pickle_value root)
{
    reader->position = (struct snapshot_position){0};
    char description[PICKLE_DESCRIBE_BYTES];
    if (root.type != PICKLE_DICT && root.type != PICKLE_LIST) {
        return field_fail(reader, root.offset, "the pickle holds %s, not a snapshot (a dict, or a list of segments)",
                          pickle_describe(&reader->pickle.memory, root, description, sizeof(description)));
    }
    const struct pickle_object *object = pickle_object(&reader->pickle.memory, root);
    if (reader->snapshots > 0 && !reader->has_traces && !reader->has_segments) {
        return fail_several(reader, root.type == PICKLE_LIST);
    }
    if (root.type == PICKLE_LIST && !object->is_replaced) {
        reader->has_segments = object->role == ROLE_SEGMENTS || object->count == 0;
    }
    reader->history->rests.is_list = root.type == PICKLE_LIST;
    reader->history->rests.lacks_segments = !reader->has_segments;
    reader->history->rests.lacks_traces = !reader->has_traces;
    if (!reader->has_segments && !reader->has_traces) {
        return field_fail(reader, root.offset, "not a snapshot: it has neither key 'segments' nor key 'device_traces'");
    }
    if ((reader->takes_segments && !reader->has_segments) || (reader->takes_traces && !reader->has_traces)) {
        return field_fail(reader, root.offset, "a list of '%s' was made, but is not in the snapshot",
                          reader->has_segments ? "device_traces" : "segments");
    }
    for (size_t i = 0; reader->has_overflowed && i < reader->history->device_count; i++) {
        reader->history->devices[i].has_overflowed = true;
    }
    return segments_finish(reader);
}

/* The values that torch.save of old wrote in front: a number of its own, its version, what machine it was. */
static int skip_front(struct input_stream *input, struct varve_message *message)
{
    int error = VARVE_OK;
    for (int i = 0; i < 3 && error == VARVE_OK; i++) {
        struct pickle pickle;
        struct pickle_value value;
        pickle_init(&pickle, input, NULL, NULL, NULL, message);
        pickle.may_have_more = true;
        error = pickle_run(&pickle, &value);
        pickle_close(&pickle);
    }
    return error;
}

/* The root of whatever notation the file has. */
static int snapshot_read_run(struct snapshot_reader *reader, struct pickle_value *root_out)
{
    struct pickle *pickle = &reader->pickle;
    struct input_stream *input = pickle->input;
    const struct file_kind *kind;
    int error = input_stream_kind(input, &kind, pickle->message);
    if (error != VARVE_OK) {
        return error;
    }
    if (kind == NULL || (kind->use != FILE_SNAPSHOT && kind->use != FILE_OLD_SAVE)) {
        return file_kind_refuse(kind, input_stream_path(input), "a snapshot or a trace database", pickle->message);
    }
    bool is_json = *input->next != 0x80, is_old_save = kind->use == FILE_OLD_SAVE;
    bool is_save =
        is_old_save || (input_stream_packing(input) != NULL && strcmp(input_stream_packing(input), "zip") == 0);
    error = is_old_save ? skip_front(input, pickle->message) : VARVE_OK;
    pickle->may_have_more = is_old_save; /* its tensors */
    VARVE_THEN(error, is_json ? pickle_run_json(pickle, root_out) : pickle_run(pickle, root_out));
    return !is_save || !pickle->is_refused
               ? error
               : varve_message_set(pickle->message, VARVE_ERROR_FORMAT,
                                   "%.200s is a checkpoint of torch.save (tensors or other objects), not a snapshot of "
                                   "PyTorch's allocator: record torch.cuda.memory._dump_snapshot",
                                   input_stream_path(input));
}

int history_read_pytorch_stream(struct input_stream *input, struct history **history_out, struct progress *progress,
                                struct varve_message *message)
{
    struct snapshot_reader reader = {.history = history_new()};
    struct pickle_sink sink = {.context = &reader, .role = decide_role, .take = snapshot_read_take};
    pickle_init(&reader.pickle, input, &sink, words, progress, message);
    struct pickle_value root = {0};
    int error = snapshot_read_run(&reader, &root);
    VARVE_THEN(error, snapshot_read_check_root(&reader, root));
    pickle_close(&reader.pickle);
    input_stream_close(input);
    free(reader.frames);
    map_free(&reader.frame_numbers);
    free(reader.stack);
    reader.history->rests.is_known = true;
    if (reader.root.count > 0) {
        reader.history->rests.root = history_text(reader.history, reader.root.bytes, reader.root.count);
    }
    free(reader.root.bytes);
    free(reader.rest.bytes);
    if (error != VARVE_OK) {
        history_free(reader.history);
        reader.history = NULL;
    } else {
        history_infer_skipped(reader.history);
    }
    *history_out = reader.history;
    return error;
}

int history_read_pytorch(const char *path, struct history **history_out, struct progress *progress,
                         struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open(path, &input, message);
    *history_out = NULL;
    return error != VARVE_OK ? error : history_read_pytorch_stream(input, history_out, progress, message);
}
