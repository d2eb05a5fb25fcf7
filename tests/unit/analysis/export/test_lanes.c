/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices on lanes: of random ones each has its beginning and its end on one track, slices of a track nest or lie apart, there are no
 * more tracks than slices overlap, and what is interned is there before it is used.
 */
#include "analysis/export/protobuf/lanes.h"
#include "analysis/export/protobuf/track_writer.h"

#include <cmocka.h>

#include "support/random.h"

#include <perfetto.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICES 400
#define TRACKS (SLICES + 8)
#define ROUNDS 40

struct slice {
    int64_t begin, end;
    bool is_found;
};

struct written {
    char *bytes;
    size_t count;
};

static int compare(const void *a_untyped, const void *b_untyped)
{
    const struct slice *a = a_untyped;
    const struct slice *b = b_untyped;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end > b->end ? -1 : a->end < b->end;
}

static void make_slices(struct slice *slices, uint64_t *random)
{
    int64_t span = 10 + (int64_t)random_below(random, 2000);

    for (int i = 0; i < SLICES; i++) {
        slices[i].begin = (int64_t)random_below(random, 1000);
        slices[i].end = slices[i].begin + (int64_t)random_below(random, (uint64_t)span);
        slices[i].is_found = false;
    }
    qsort(slices, SLICES, sizeof(slices[0]), compare);
}

static struct written write_lanes(const struct slice *slices, bool nests)
{
    struct written written;
    FILE *out = open_memstream(&written.bytes, &written.count);
    struct track_writer writer;
    struct lanes lanes;

    assert_non_null(out);
    track_writer_begin(&writer, out, 0);
    lanes_begin(&lanes, &writer, TRACK_NONE, "lane", nests);
    for (int i = 0; i < SLICES; i++) {
        struct track_event event = {.category = "test", .name = i % 2 != 0 ? "odd" : "even"};

        track_event_number(&event, "number", i);
        lanes_add(&lanes, slices[i].begin, slices[i].end, &event);
    }
    lanes_end(&lanes);
    track_writer_end(&writer);
    fclose(out);
    return written;
}

/* The most that there are at a time; what ends as another begins makes room for it. */
static size_t overlap(const struct slice *slices)
{
    size_t most = 0;

    for (int i = 0; i < SLICES; i++) {
        size_t now = 1;

        for (int k = 0; k < i; k++) {
            now += slices[k].end > slices[i].begin ? 1 : 0;
        }
        most = now > most ? now : most;
    }
    return most;
}

struct reader {
    int open[TRACKS][SLICES]; /* by track: its open slices */
    size_t depth[TRACKS], depth_most;
    size_t tracks;
    uint64_t names, argument_names;
};

static void read_event(struct reader *reader, const Perfetto__Protos__TracePacket *packet,
                       struct slice *slices)
{
    const Perfetto__Protos__TrackEvent *event = packet->track_event;
    size_t *depth = &reader->depth[event->track_uuid];
    int number;

    assert_true(event->track_uuid > 0 && event->track_uuid <= reader->tracks);
    if (event->type == PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_END) {
        assert_true(*depth > 0);
        number = reader->open[event->track_uuid][--*depth];
        assert_int_equal(packet->timestamp, slices[number].end);
        slices[number].is_found = true;
        return;
    }
    assert_int_equal(event->type, PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN);
    assert_true(event->name_iid > 0 && event->name_iid <= reader->names);
    assert_int_equal(event->n_debug_annotations, 1);
    assert_true(event->debug_annotations[0]->name_iid <= reader->argument_names);
    number = (int)event->debug_annotations[0]->int_value;
    assert_int_equal(packet->timestamp, slices[number].begin);
    if (*depth > 0) {
        assert_true(slices[number].end <= slices[reader->open[event->track_uuid][*depth - 1]].end);
    }
    reader->open[event->track_uuid][(*depth)++] = number;
    reader->depth_most = *depth > reader->depth_most ? *depth : reader->depth_most;
}

static void check(struct slice *slices, bool nests)
{
    struct written written = write_lanes(slices, nests);
    Perfetto__Protos__Trace *trace =
        perfetto__protos__trace__unpack(NULL, written.count, (const uint8_t *)written.bytes);
    struct reader *reader = calloc(1, sizeof(*reader));

    assert_non_null(trace);
    assert_non_null(reader);
    for (size_t i = 0; i < trace->n_packet; i++) {
        const Perfetto__Protos__TracePacket *packet = trace->packet[i];

        assert_int_equal(packet->sequence_flags, i == 0 ? 1 : 2);
        if (packet->interned_data != NULL) {
            reader->names += packet->interned_data->n_event_names;
            reader->argument_names += packet->interned_data->n_debug_annotation_names;
        }
        if (packet->track_descriptor != NULL) {
            assert_int_equal(packet->track_descriptor->uuid, ++reader->tracks);
            assert_string_equal(packet->track_descriptor->name, "lane");
        } else if (packet->track_event != NULL) {
            read_event(reader, packet, slices);
        }
    }
    for (int i = 0; i < SLICES; i++) {
        assert_true(slices[i].is_found);
        slices[i].is_found = false;
    }
    assert_int_equal(reader->names, 2);
    assert_int_equal(reader->argument_names, 1);
    assert_true(reader->tracks <= overlap(slices));
    if (!nests) {
        assert_int_equal(reader->depth_most, 1);
        assert_int_equal(reader->tracks, overlap(slices));
    }
    free(reader);
    perfetto__protos__trace__free_unpacked(trace, NULL);
    free(written.bytes);
}

TEST(test_random)
{
    uint64_t random = test_first_seed(1);
    struct slice slices[SLICES];

    for (int i = 0; i < ROUNDS; i++) {
        make_slices(slices, &random);
        check(slices, false);
        check(slices, true);
    }
}

/* Slices that do nest need one track. */
TEST(test_nested)
{
    struct slice slices[SLICES];
    struct written written;
    Perfetto__Protos__Trace *trace;
    size_t tracks = 0;

    for (int i = 0; i < SLICES; i++) {
        slices[i] = (struct slice){.begin = i / 4 * 10 + i % 4, .end = i / 4 * 10 + 10 - i % 4};
    }
    written = write_lanes(slices, true);
    trace = perfetto__protos__trace__unpack(NULL, written.count, (const uint8_t *)written.bytes);
    assert_non_null(trace);
    for (size_t i = 0; i < trace->n_packet; i++) {
        tracks += trace->packet[i]->track_descriptor != NULL ? 1 : 0;
    }
    assert_int_equal(tracks, 1);
    perfetto__protos__trace__free_unpacked(trace, NULL);
    free(written.bytes);
    check(slices, true);
}
