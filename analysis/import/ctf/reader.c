/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CTF traces of a folder: a process of its own runs babeltrace2 and sends what it finds through a
 * pipe, so this one survives whatever a damaged trace does to babeltrace2, and takes items while the other
 * decodes the next.
 *
 * All streams of all traces are read at once, in the order of time; without damage that is all. Where
 * babeltrace2 fails it fails for all streams: then salvage.c goes on.
 */
#include "analysis/import/ctf/reader.h"

#include "analysis/output/memory.h"
#include "analysis/output/progress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define PROGRESS_EVENTS 8192U

/* ---- signals: whoever interrupts an import wants nothing of it ---- */

static volatile sig_atomic_t signal_caught;
static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static void on_signal(int number)
{
    signal_caught = number;
}

/* Those that are ignored (as by nohup) stay so. */
static void signals_take(struct sigaction before[SIGNALS])
{
    struct sigaction action = {.sa_handler = on_signal};

    signal_caught = 0;
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

static void signals_give_back(const struct sigaction before[SIGNALS])
{
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
}

/* ---- one run ---- */

static void step(const struct ctf_reader *reader)
{
    if (reader->source->progress == NULL) {
        return;
    }
    if (reader->folder.packets > 0 && reader->packets_done <= reader->folder.packets) {
        progress_step(reader->source->progress, "reading packets", reader->packets_done,
                      reader->folder.packets);
    } else {
        progress_step(reader->source->progress, "reading events", reader->taken, 0);
    }
}

static bool is_source(enum ctf_item_kind kind)
{
    return kind == CTF_ITEM_PROCESS || kind == CTF_ITEM_MODULE || kind == CTF_ITEM_CODE;
}

static int item_take(struct ctf_reader *reader, const struct ctf_item *item)
{
    switch (item->kind) {
    case CTF_ITEM_PACKET:
        reader->packets++;
        reader->packets_done++;
        step(reader);
        return VARVE_OK;
    case CTF_ITEM_FAILED:
        varve_message_set(&reader->failure, VARVE_OK, "%s", (const char *)item->parts[0].data);
        return VARVE_OK;
    case CTF_ITEM_COUNTS:
        reader->counts = item->of.counts;
        reader->has_counts = true;
        return VARVE_OK;
    default:
        if (++reader->taken % PROGRESS_EVENTS == 0) {
            step(reader);
        }
        if (reader->sweep == CTF_SWEEP_SOURCES && !is_source(item->kind)) {
            return VARVE_OK;
        }
        return reader->source->take(reader->source->context, item);
    }
}

/* All that the other process sends. Of errors only those of `take` and a signal are ours; the rest is a
 * reader->failure. */
static int items_take(struct ctf_reader *reader, int descriptor)
{
    struct ctf_pipe_end *end = ctf_pipe_end_new(descriptor);
    int error = VARVE_OK;

    while (error == VARVE_OK && !reader->has_counts) {
        const struct ctf_item *item;

        error = ctf_pipe_get(end, &item);
        if (signal_caught != 0) {
            reader->reading->signal_number = signal_caught;
            error = VARVE_ERROR_BUSY;
        } else if (error == VARVE_OK) {
            error = item_take(reader, item);
        } else if (error == VARVE_ERROR_BUSY) {
            error = VARVE_OK; /* a signal that is not for us */
        } else {
            if (error != VARVE_ERROR_NOT_FOUND && reader->failure.text[0] == '\0') {
                varve_message_set(&reader->failure, error, "%s", varve_strerror(error));
            }
            error = VARVE_OK;
            break;
        }
    }
    ctf_pipe_end_free(end);
    return error;
}

int ctf_reader_run(struct ctf_reader *reader, char *const *folders, size_t count,
                   struct varve_message *message)
{
    struct ctf_child child;
    int status;
    int error;

    reader->packets = 0;
    reader->has_counts = false;
    reader->failure.text[0] = '\0';
    error = ctf_child_start(folders, count, &child, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = items_take(reader, child.descriptor);
    status = ctf_child_end(&child);
    if (error == VARVE_OK && signal_caught != 0) {
        reader->reading->signal_number = signal_caught; /* the terminal has sent it to both */
        error = VARVE_ERROR_BUSY;
    }
    if (error == VARVE_OK && !reader->has_counts && reader->failure.text[0] == '\0') {
        varve_message_set(&reader->failure, VARVE_OK, "babeltrace2 has ended in the middle of it (%s)",
                          WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "without a word");
    }
    return error;
}

/* ---- all at once ---- */

int ctf_reader_copy(struct ctf_reader *reader, struct varve_message *message)
{
    return reader->copy != NULL ? VARVE_OK : ctf_copy_new(reader->source->near, &reader->copy, message);
}

void ctf_reader_damage(struct ctf_reader *reader, const struct ctf_trace *trace,
                       const struct ctf_stream *stream, const char *what)
{
    if (reader->reading->damage.text[0] == '\0') {
        varve_message_set(&reader->reading->damage, VARVE_OK, "%s/%s: %s", trace->path,
                          stream != NULL ? stream->name : "metadata", what);
    }
}

/* Of damaged traces a copy of what is whole. */
static int everything_read(struct ctf_reader *reader, struct varve_message *message)
{
    char **folders = memory_resize(NULL, (reader->folder.count + 1) * sizeof(folders[0]));
    size_t count = 0;
    int error = VARVE_OK;

    for (size_t i = 0; i < reader->folder.count && error == VARVE_OK; i++) {
        const struct ctf_trace *trace = &reader->folder.traces[i];

        if (trace->is_unreadable || trace->stream_count == 0) {
            continue;
        }
        if (!trace->has_damage) {
            folders[count++] = memory_copy_text(trace->path);
            continue;
        }
        error = ctf_reader_copy(reader, message);
        if (error == VARVE_OK) {
            error = ctf_copy_trace(reader->copy, trace, &folders[count], message);
            count += error == VARVE_OK;
        }
    }
    if (error == VARVE_OK && count > 0) {
        error = ctf_reader_run(reader, folders, count, message);
    }
    if (error == VARVE_OK && count > 0 && reader->has_counts) {
        ctf_counts_add(&reader->reading->counts, &reader->counts);
    }
    for (size_t i = 0; i < count; i++) {
        free(folders[i]);
    }
    free(folders);
    return error;
}

/* ---- the whole ---- */

/* What is seen without reading. */
static void damage_count(struct ctf_reader *reader)
{
    struct ctf_reading *reading = reader->reading;

    for (size_t i = 0; i < reader->folder.count; i++) {
        const struct ctf_trace *trace = &reader->folder.traces[i];

        if (trace->is_unreadable) {
            ctf_reader_damage(reader, trace, NULL, "is cut or damaged");
        }
        for (size_t k = 0; k < trace->stream_count; k++) {
            const struct ctf_stream *stream = &trace->streams[k];
            uint64_t bytes = trace->is_unreadable ? stream->bytes : stream->bad_bytes;

            reading->streams++;
            reading->streams_damaged += bytes > 0;
            reading->bytes_damaged += bytes;
            if (bytes > 0) {
                ctf_reader_damage(reader, trace, stream, "is cut or damaged");
            }
        }
    }
}

static int reader_run(struct ctf_reader *reader, struct varve_message *message)
{
    struct ctf_reading *reading = reader->reading;
    int error;

    damage_count(reader);
    error = everything_read(reader, message);
    if (error == VARVE_OK && ctf_reader_has_failed(reader)) {
        error = ctf_salvage_streams(reader, message);
    }
    if (error == VARVE_OK) {
        error = ctf_salvage_cuts(reader, message);
    }
    if (error == VARVE_OK && reading->damage.text[0] != '\0' && reader->taken == 0 &&
        reading->counts.foreign + reading->counts.unknown + reading->counts.statedump == 0) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT, "nothing of the trace can be read: %s",
                                  reading->damage.text);
    }
    return error;
}

bool ctf_is_possible(const char *folder, struct varve_message *message)
{
    if (ctf_version() == NULL) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "%s: built without babeltrace2 (libbabeltrace2-dev): CTF can't be read", folder);
    }
    return ctf_version() != NULL;
}

int ctf_read(const struct ctf_source *source, struct ctf_reading *reading, struct varve_message *message)
{
    struct ctf_reader reader = {.source = source, .reading = reading};
    struct sigaction before[SIGNALS];
    int error;

    *reading = (struct ctf_reading){0};
    if (!ctf_is_possible(source->folder, message)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    error = ctf_folder_open(source->folder, &reader.folder, message);
    if (error != VARVE_OK) {
        return error;
    }
    signals_take(before);
    error = reader_run(&reader, message);
    signals_give_back(before);
    ctf_copy_free(reader.copy);
    ctf_folder_close(&reader.folder);
    return error;
}
