/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be had of a damaged CTF trace: each stream is read by itself as far as it goes, then on behind the
 * packet that babeltrace2 failed at; of packets that are cut, the events in front of the cut. Records then
 * come twice, which they may. What call sites refer to is read before everything else, because streams are
 * not in the order of time any more. Called by reader.c.
 */
#include "analysis/import/ctf/reader.h"

#define FAILURES_MAX 64U /* of one stream, before the rest is given up */
#define OPENINGS_MAX 4U  /* the same, for failures before the first packet */

/* babeltrace2's words, but for those about our copy. */
static void failure_note(struct ctf_reader *reader, const struct ctf_trace *trace,
                         const struct ctf_stream *stream, size_t packet)
{
    struct varve_message what;

    if (reader->packets == 0) {
        varve_message_set(&what, VARVE_OK, "babeltrace2 cannot open it");
    } else {
        varve_message_set(&what, VARVE_OK, "packet %zu of %zu: %.300s", packet, stream->packet_count,
                          reader->failure.text);
    }
    ctf_reader_damage(reader, trace, stream, what.text);
}

/* Of a stream that is not read from its beginning babeltrace2 tells all losses so far once more, as one of
 * unknown size. */
static void counts_add(struct ctf_reader *reader, bool is_part)
{
    struct ctf_counts *counts = &reader->counts;

    if (!reader->has_counts || reader->sweep != CTF_SWEEP_ALL) {
        return;
    }
    if (is_part && counts->uncounted > 0) {
        counts->discarded_events -= counts->discarded_events > 0;
        counts->uncounted--;
    }
    ctf_counts_add(&reader->reading->counts, counts);
}

static int stream_read(struct ctf_reader *reader, const struct ctf_trace *trace,
                       const struct ctf_stream *stream, bool *is_damaged, struct varve_message *message)
{
    unsigned openings = 0;
    size_t first = 0;

    for (unsigned failures = 0; failures < FAILURES_MAX && openings < OPENINGS_MAX; failures++) {
        const char *path;
        char *folders[1];
        int error;

        if (trace->is_known ? first >= stream->packet_count : failures > 0) {
            break;
        }
        error = ctf_copy_stream(reader->copy, trace, stream, first, &path, message);
        if (error == VARVE_OK) {
            folders[0] = (char *)path;
            error = ctf_reader_run(reader, folders, 1, message);
        }
        if (error != VARVE_OK) {
            return error;
        }
        counts_add(reader, first > 0);
        if (!ctf_reader_has_failed(reader)) {
            break;
        }
        openings += reader->packets == 0;
        first += reader->packets > 0 ? reader->packets : 1;
        *is_damaged = true;
        failure_note(reader, trace, stream, first);
    }
    return VARVE_OK;
}

/* The metadata alone: if babeltrace2 does not understand it, no stream can be read. */
static int metadata_read(struct ctf_reader *reader, struct ctf_trace *trace, struct varve_message *message)
{
    const char *path;
    int error = ctf_copy_stream(reader->copy, trace, NULL, 0, &path, message);

    if (error == VARVE_OK) {
        error = ctf_reader_run(reader, (char *[]){(char *)path}, 1, message);
    }
    if (error == VARVE_OK && ctf_reader_has_failed(reader)) {
        trace->is_unreadable = true;
        for (size_t i = 0; i < trace->stream_count; i++) {
            reader->reading->streams_damaged += trace->streams[i].bad_bytes == 0;
        }
        ctf_reader_damage(reader, trace, NULL, "babeltrace2 does not understand it");
    }
    return error;
}

static int streams_read(struct ctf_reader *reader, enum ctf_sweep sweep, struct varve_message *message)
{
    int error = ctf_reader_copy(reader, message);

    reader->sweep = sweep;
    reader->packets_done = 0;
    reader->reading->counts = (struct ctf_counts){0};
    for (size_t i = 0; i < reader->folder.count && error == VARVE_OK; i++) {
        struct ctf_trace *trace = &reader->folder.traces[i];

        if (sweep == CTF_SWEEP_SOURCES && !trace->is_unreadable) {
            error = metadata_read(reader, trace, message);
        }
        for (size_t k = 0; k < trace->stream_count && !trace->is_unreadable && error == VARVE_OK; k++) {
            const struct ctf_stream *stream = &trace->streams[k];
            bool is_damaged = false;

            error = stream_read(reader, trace, stream, &is_damaged, message);
            if (sweep == CTF_SWEEP_ALL && is_damaged && stream->bad_bytes == 0) {
                reader->reading->streams_damaged++;
            }
        }
    }
    return error;
}

int ctf_salvage_streams(struct ctf_reader *reader, struct varve_message *message)
{
    int error = streams_read(reader, CTF_SWEEP_SOURCES, message);

    return error != VARVE_OK ? error : streams_read(reader, CTF_SWEEP_ALL, message);
}

/* Packets of which only the beginning is there: babeltrace2 fails behind the last whole event, which is as
 * far as they go. */
int ctf_salvage_cuts(struct ctf_reader *reader, struct varve_message *message)
{
    int error = VARVE_OK;

    reader->sweep = CTF_SWEEP_ALL;
    for (size_t i = 0; i < reader->folder.count; i++) {
        const struct ctf_trace *trace = &reader->folder.traces[i];

        for (size_t k = 0; k < trace->stream_count && !trace->is_unreadable; k++) {
            const struct ctf_stream *stream = &trace->streams[k];

            for (size_t n = 0; n < stream->cut_count && n < FAILURES_MAX && error == VARVE_OK; n++) {
                const char *path;

                error = ctf_reader_copy(reader, message);
                if (error == VARVE_OK) {
                    error = ctf_copy_cut(reader->copy, trace, stream, n, &path, message);
                }
                if (error == VARVE_OK) {
                    error = ctf_reader_run(reader, (char *[]){(char *)path}, 1, message);
                }
                if (error == VARVE_OK) {
                    counts_add(reader, true);
                }
            }
        }
    }
    return error;
}
