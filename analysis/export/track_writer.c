/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/track_writer.h"

#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <inttypes.h>
#include <perfetto.pb-c.h>
#include <stdlib.h>

#define SEQUENCE 1 /* of all packets; not 0 */
#define CLOCK_REALTIME_ID 1
#define CLOCK_BOOTTIME_ID 6 /* the clock of times that name none */

/* A packet that is being made. */
struct packet {
    struct track_writer *writer;
    Perfetto__Protos__TracePacket packet;
    Perfetto__Protos__InternedData interned;
};

static void begin_packet(struct packet *packet, struct track_writer *writer)
{
    packet->writer = writer;
    perfetto__protos__trace_packet__init(&packet->packet);
    perfetto__protos__interned_data__init(&packet->interned);
    packet->packet.has_trusted_packet_sequence_id = 1;
    packet->packet.trusted_packet_sequence_id = SEQUENCE;
    packet->packet.has_sequence_flags = 1;
    packet->packet.sequence_flags = writer->has_begun
                                        ? PERFETTO__PROTOS__TRACE_PACKET__SEQUENCE_FLAGS__SEQ_NEEDS_INCREMENTAL_STATE
                                        : PERFETTO__PROTOS__TRACE_PACKET__SEQUENCE_FLAGS__SEQ_INCREMENTAL_STATE_CLEARED;
    packet->packet.has_first_packet_on_sequence = !writer->has_begun;
    packet->packet.first_packet_on_sequence = !writer->has_begun;
    writer->has_begun = true;
}

static void put_packet(struct packet *packet)
{
    struct track_writer *writer = packet->writer;
    Perfetto__Protos__TracePacket *list = &packet->packet;
    Perfetto__Protos__Trace trace = PERFETTO__PROTOS__TRACE__INIT;
    if (packet->interned.n_event_names > 0 || packet->interned.n_event_categories > 0 ||
        packet->interned.n_debug_annotation_names > 0 || packet->interned.n_source_locations > 0) {
        packet->packet.interned_data = &packet->interned;
    }
    trace.n_packet = 1;
    trace.packet = &list;
    size_t bytes = perfetto__protos__trace__get_packed_size(&trace);
    if (bytes > writer->buffer_bytes) {
        writer->buffer = memory_resize(writer->buffer, bytes);
        writer->buffer_bytes = bytes;
    }
    perfetto__protos__trace__pack(&trace, writer->buffer);
    fwrite(writer->buffer, 1, bytes, writer->out);
}

void track_writer_begin(struct track_writer *writer, FILE *out, int64_t realtime_ns)
{
    Perfetto__Protos__ClockSnapshot snapshot = PERFETTO__PROTOS__CLOCK_SNAPSHOT__INIT;
    *writer = (struct track_writer){.out = out};
    writer->names.first = 1;
    writer->categories.first = 1;
    writer->argument_names.first = 1;
    writer->locations.first = 1;
    Perfetto__Protos__ClockSnapshot__Clock clocks[2];
    Perfetto__Protos__ClockSnapshot__Clock *list[2];
    for (int i = 0; i < 2; i++) {
        perfetto__protos__clock_snapshot__clock__init(&clocks[i]);
        clocks[i].has_clock_id = 1;
        clocks[i].has_timestamp = 1;
        list[i] = &clocks[i];
    }
    clocks[0].clock_id = CLOCK_BOOTTIME_ID;
    clocks[1].clock_id = CLOCK_REALTIME_ID;
    clocks[1].timestamp = realtime_ns > 0 ? (uint64_t)realtime_ns : 0;
    snapshot.n_clocks = realtime_ns > 0 ? 2 : 1;
    snapshot.clocks = list;
    snapshot.has_primary_trace_clock = 1;
    snapshot.primary_trace_clock = CLOCK_BOOTTIME_ID;
    struct packet packet;
    begin_packet(&packet, writer);
    packet.packet.clock_snapshot = &snapshot;
    put_packet(&packet);
}

void track_writer_end(struct track_writer *writer)
{
    text_table_free(&writer->names);
    text_table_free(&writer->categories);
    text_table_free(&writer->argument_names);
    text_table_free(&writer->locations);
    free(writer->buffer);
}

/* ---- tracks ---- */

static uint64_t put_track(struct track_writer *writer, Perfetto__Protos__TrackDescriptor *track, uint64_t parent,
                          const char *name)
{
    track->has_uuid = 1;
    track->uuid = ++writer->tracks;
    track->has_parent_uuid = parent != TRACK_NONE;
    track->parent_uuid = parent;
    char clean[FRAME_NAME_BYTES];
    if (name != NULL) {
        text_clean(clean, name);
        track->name = clean;
    }
    struct packet packet;
    begin_packet(&packet, writer);
    packet.packet.track_descriptor = track;
    put_packet(&packet);
    return track->uuid;
}

uint64_t track_process(struct track_writer *writer, int64_t pid, const char *name, int64_t start_ns)
{
    Perfetto__Protos__TrackDescriptor track = PERFETTO__PROTOS__TRACK_DESCRIPTOR__INIT;
    Perfetto__Protos__ProcessDescriptor process = PERFETTO__PROTOS__PROCESS_DESCRIPTOR__INIT;
    char clean[FRAME_NAME_BYTES];
    text_clean(clean, name);
    process.has_pid = 1;
    process.pid = (int32_t)pid;
    process.process_name = clean;
    process.has_start_timestamp_ns = start_ns > 0;
    process.start_timestamp_ns = start_ns;
    track.process = &process;
    return put_track(writer, &track, TRACK_NONE, NULL);
}

uint64_t track_thread(struct track_writer *writer, int64_t pid, int64_t tid, const char *name)
{
    Perfetto__Protos__TrackDescriptor track = PERFETTO__PROTOS__TRACK_DESCRIPTOR__INIT;
    Perfetto__Protos__ThreadDescriptor thread = PERFETTO__PROTOS__THREAD_DESCRIPTOR__INIT;
    char clean[FRAME_NAME_BYTES];
    text_clean(clean, name);
    thread.has_pid = 1;
    thread.pid = (int32_t)pid;
    thread.has_tid = 1;
    thread.tid = (int32_t)tid;
    thread.thread_name = clean[0] != '\0' ? clean : NULL;
    track.thread = &thread;
    return put_track(writer, &track, TRACK_NONE, NULL);
}

uint64_t track_of_slices(struct track_writer *writer, uint64_t parent, const char *name)
{
    Perfetto__Protos__TrackDescriptor track = PERFETTO__PROTOS__TRACK_DESCRIPTOR__INIT;
    return put_track(writer, &track, parent, name);
}

uint64_t track_of_bytes(struct track_writer *writer, uint64_t parent, const char *name)
{
    Perfetto__Protos__TrackDescriptor track = PERFETTO__PROTOS__TRACK_DESCRIPTOR__INIT;
    Perfetto__Protos__CounterDescriptor counter = PERFETTO__PROTOS__COUNTER_DESCRIPTOR__INIT;
    counter.has_unit = 1;
    counter.unit = PERFETTO__PROTOS__COUNTER_DESCRIPTOR__UNIT__UNIT_SIZE_BYTES;
    track.counter = &counter;
    return put_track(writer, &track, parent, name);
}

/* ---- events ---- */

void track_event_number(struct track_event *event, const char *name, int64_t value)
{
    assert(event->argument_count < TRACK_ARGUMENTS_MAX);
    event->arguments[event->argument_count++] = (struct track_argument){name, TRACK_INTEGER, value, NULL};
}

void track_event_pointer(struct track_event *event, const char *name, int64_t value)
{
    assert(event->argument_count < TRACK_ARGUMENTS_MAX);
    event->arguments[event->argument_count++] = (struct track_argument){name, TRACK_POINTER, value, NULL};
}

void track_event_text(struct track_event *event, const char *name, const char *text)
{
    if (text != NULL) {
        assert(event->argument_count < TRACK_ARGUMENTS_MAX);
        event->arguments[event->argument_count++] = (struct track_argument){name, TRACK_TEXT, 0, text};
    }
}

/* The texts and messages that a packet with an event points to. */
struct event_parts {
    Perfetto__Protos__TrackEvent event;
    Perfetto__Protos__EventName name;
    Perfetto__Protos__EventCategory category;
    Perfetto__Protos__SourceLocation location;
    Perfetto__Protos__DebugAnnotation arguments[TRACK_ARGUMENTS_MAX];
    Perfetto__Protos__DebugAnnotationName argument_names[TRACK_ARGUMENTS_MAX];
    Perfetto__Protos__EventName *name_list[1];
    Perfetto__Protos__EventCategory *category_list[1];
    Perfetto__Protos__SourceLocation *location_list[1];
    Perfetto__Protos__DebugAnnotation *argument_list[TRACK_ARGUMENTS_MAX];
    Perfetto__Protos__DebugAnnotationName *argument_name_list[TRACK_ARGUMENTS_MAX];
    char name_text[FRAME_NAME_BYTES], function[FRAME_NAME_BYTES], file[FRAME_NAME_BYTES];
    char argument_texts[TRACK_ARGUMENTS_MAX][FRAME_NAME_BYTES];
    char category_text[FRAME_NAME_BYTES];
    uint64_t category_iid;
};

static void set_name(struct packet *packet, struct event_parts *parts, const struct track_event *event)
{
    text_clean(parts->name_text, event->name);
    parts->event.has_name_iid = 1;
    bool is_new;
    parts->event.name_iid = text_number(&packet->writer->names, parts->name_text, &is_new);
    if (is_new) {
        perfetto__protos__event_name__init(&parts->name);
        parts->name.has_iid = 1;
        parts->name.iid = parts->event.name_iid;
        parts->name.name = parts->name_text;
        parts->name_list[0] = &parts->name;
        packet->interned.n_event_names = 1;
        packet->interned.event_names = parts->name_list;
    }
    text_clean(parts->category_text, event->category);
    parts->category_iid = text_number(&packet->writer->categories, parts->category_text, &is_new);
    parts->event.n_category_iids = 1;
    parts->event.category_iids = &parts->category_iid;
    if (is_new) {
        perfetto__protos__event_category__init(&parts->category);
        parts->category.has_iid = 1;
        parts->category.iid = parts->category_iid;
        parts->category.name = parts->category_text;
        parts->category_list[0] = &parts->category;
        packet->interned.n_event_categories = 1;
        packet->interned.event_categories = parts->category_list;
    }
}

static void set_location(struct packet *packet, struct event_parts *parts, const struct track_event *event)
{
    if (event->function == NULL && event->file == NULL) {
        return;
    }
    text_clean(parts->function, event->function);
    text_clean(parts->file, event->file);
    char key[2 * FRAME_NAME_BYTES + 32];
    snprintf(key, sizeof(key), "%s\n%s\n%" PRId64, parts->function, parts->file, event->line);
    parts->event.has_source_location_iid = 1;
    bool is_new;
    parts->event.source_location_iid = text_number(&packet->writer->locations, key, &is_new);
    if (is_new) {
        perfetto__protos__source_location__init(&parts->location);
        parts->location.has_iid = 1;
        parts->location.iid = parts->event.source_location_iid;
        parts->location.function_name = parts->function;
        parts->location.file_name = parts->file;
        parts->location.has_line_number = event->line > 0;
        parts->location.line_number = (uint32_t)event->line;
        parts->location_list[0] = &parts->location;
        packet->interned.n_source_locations = 1;
        packet->interned.source_locations = parts->location_list;
    }
}

static void set_argument(struct packet *packet, struct event_parts *parts, size_t i, const struct track_argument *from)
{
    Perfetto__Protos__DebugAnnotation *argument = &parts->arguments[i];
    perfetto__protos__debug_annotation__init(argument);
    char name[FRAME_NAME_BYTES];
    text_clean(name, from->name);
    argument->has_name_iid = 1;
    bool is_new;
    argument->name_iid = text_number(&packet->writer->argument_names, name, &is_new);
    if (is_new) {
        Perfetto__Protos__DebugAnnotationName *interned =
            &parts->argument_names[packet->interned.n_debug_annotation_names];
        perfetto__protos__debug_annotation_name__init(interned);
        interned->has_iid = 1;
        interned->iid = argument->name_iid;
        interned->name = packet->writer->argument_names.texts[argument->name_iid - 1];
        parts->argument_name_list[packet->interned.n_debug_annotation_names++] = interned;
        packet->interned.debug_annotation_names = parts->argument_name_list;
    }
    argument->has_int_value = from->kind == TRACK_INTEGER;
    argument->int_value = from->value;
    argument->has_pointer_value = from->kind == TRACK_POINTER;
    argument->pointer_value = (uint64_t)from->value;
    if (from->kind == TRACK_TEXT) {
        text_clean(parts->argument_texts[i], from->text);
        argument->string_value = parts->argument_texts[i];
    }
    parts->argument_list[i] = argument;
}

static void put_event(struct packet *packet, struct event_parts *parts, uint64_t track, int64_t ns)
{
    parts->event.has_track_uuid = 1;
    parts->event.track_uuid = track;
    parts->event.has_type = 1;
    packet->packet.has_timestamp = 1;
    packet->packet.timestamp = ns > 0 ? (uint64_t)ns : 0;
    packet->packet.track_event = &parts->event;
    put_packet(packet);
}

static void put_named(struct track_writer *writer, Perfetto__Protos__TrackEvent__Type type, uint64_t track, int64_t ns,
                      const struct track_event *event)
{
    struct packet packet;
    uint64_t flow = event->flow;
    begin_packet(&packet, writer);
    struct event_parts parts;
    perfetto__protos__track_event__init(&parts.event);
    parts.event.type = type;
    set_name(&packet, &parts, event);
    set_location(&packet, &parts, event);
    for (size_t i = 0; i < event->argument_count; i++) {
        set_argument(&packet, &parts, i, &event->arguments[i]);
    }
    parts.event.n_debug_annotations = event->argument_count;
    parts.event.debug_annotations = parts.argument_list;
    if (flow != 0 && event->ends_flow) {
        parts.event.n_terminating_flow_ids = 1;
        parts.event.terminating_flow_ids = &flow;
    } else if (flow != 0) {
        parts.event.n_flow_ids = 1;
        parts.event.flow_ids = &flow;
    }
    put_event(&packet, &parts, track, ns);
}

void track_slice_begin(struct track_writer *writer, uint64_t track, int64_t ns, const struct track_event *event)
{
    put_named(writer, PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN, track, ns, event);
}

void track_instant(struct track_writer *writer, uint64_t track, int64_t ns, const struct track_event *event)
{
    put_named(writer, PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_INSTANT, track, ns, event);
}

void track_slice_end(struct track_writer *writer, uint64_t track, int64_t ns)
{
    struct packet packet;
    begin_packet(&packet, writer);
    struct event_parts parts;
    perfetto__protos__track_event__init(&parts.event);
    parts.event.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_END;
    put_event(&packet, &parts, track, ns);
}

void track_count(struct track_writer *writer, uint64_t track, int64_t ns, int64_t value)
{
    struct packet packet;
    begin_packet(&packet, writer);
    struct event_parts parts;
    perfetto__protos__track_event__init(&parts.event);
    parts.event.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_COUNTER;
    parts.event.has_counter_value = 1;
    parts.event.counter_value = value;
    put_event(&packet, &parts, track, ns);
}
