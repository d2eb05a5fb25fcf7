/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CTF traces of a folder: a process of its own runs babeltrace2 and sends what it finds through a
 * pipe, so this one survives whatever a damaged trace does to babeltrace2, and takes items while the other
 * decodes the next.
 *
 * All streams of all traces are read at once, in the order of time; without damage that is all. Where
 * babeltrace2 fails it fails for all streams, so what follows is read stream by stream, each as far as it
 * goes and on behind the packet that it fails at. Records then come twice, which they may; what call sites
 * refer to is read before everything else, because streams are not in the order of time any more.
 */
#include "analysis/ctf_internal.h"

#include "analysis/analysis_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES (1024 * 1024)
#define PROGRESS_EVENTS 8192U
#define FAILURES_MAX 64U /* of one stream, before the rest is given up */

enum sweep {
    SWEEP_ALL,
    SWEEP_SOURCES, /* what call sites refer to */
};

struct reader {
    const struct ctf_source *source;
    struct ctf_reading *reading;
    struct ctf_folder folder;
    struct ctf_copy *copy; /* NULL: nothing had to be copied yet */
    enum sweep sweep;
    uint64_t taken;           /* items */
    uint64_t packets_done;    /* of the folder */
    uint64_t packets;         /* of this run of babeltrace2 */
    bool has_counts;          /* of this run */
    struct ctf_counts counts; /* of this run */
    struct varve_message failure;
};

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

/* ---- the process that runs babeltrace2 ---- */

/* Its log goes nowhere, unless its own variable asks for it; nor is a core file of its assertions of use. */
static void child_prepare(pid_t parent)
{
    const struct rlimit none = {0, 0};
    const char *log_level = getenv("LIBBABELTRACE2_INIT_LOG_LEVEL");
    struct sigaction action = {.sa_handler = SIG_DFL};
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction before;

        sigaction(signals[i], NULL, &before);
        if (before.sa_handler == on_signal) {
            sigaction(signals[i], &action, NULL);
        }
    }
    sigaction(SIGPIPE, &action, NULL);
    setrlimit(RLIMIT_CORE, &none);
    if (nothing >= 0) {
        dup2(nothing, STDOUT_FILENO);
        if (log_level == NULL || log_level[0] == '\0') {
            dup2(nothing, STDERR_FILENO);
        }
    }
}

static void child_run(int descriptor, char *const *folders, size_t count) __attribute__((noreturn));

static void child_run(int descriptor, char *const *folders, size_t count)
{
    struct ctf_pipe_end *end = ctf_pipe_end_new(descriptor);

    if (ctf_graph_run(folders, count, ctf_pipe_put, end) == VARVE_OK) {
        (void)ctf_pipe_flush(end);
    }
    _exit(0);
}

static int child_start(char *const *folders, size_t count, pid_t *child_out, int *descriptor_out,
                       struct varve_message *message)
{
    pid_t parent = getpid();
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "no pipe can be made: %s", strerror(errno));
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* smaller is slower, no more */
    child = fork();
    if (child == 0) {
        close(ends[0]);
        child_prepare(parent);
        child_run(ends[1], folders, count);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return varve_message_set(message, VARVE_ERROR_IO, "no process can be made: %s", strerror(errno));
    }
    *child_out = child;
    *descriptor_out = ends[0];
    return VARVE_OK;
}

/* ---- one run ---- */

static void step(const struct reader *reader)
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

static int item_take(struct reader *reader, const struct ctf_item *item)
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
        if (reader->sweep == SWEEP_SOURCES && !is_source(item->kind)) {
            return VARVE_OK;
        }
        return reader->source->take(reader->source->context, item);
    }
}

/* All that the other process sends. Of errors only those of `take` and a signal are ours; the rest is a
 * reader->failure. */
static int items_take(struct reader *reader, int descriptor)
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

/* Run babeltrace2 over some traces. Where it could not read all, reader->failure says why. */
static int traces_read(struct reader *reader, char *const *folders, size_t count,
                       struct varve_message *message)
{
    int descriptor = -1;
    int status = 0;
    pid_t child = -1;
    int error;

    reader->packets = 0;
    reader->has_counts = false;
    reader->failure.text[0] = '\0';
    error = child_start(folders, count, &child, &descriptor, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = items_take(reader, descriptor);
    close(descriptor);
    if (error != VARVE_OK || reader->has_counts) {
        kill(child, SIGKILL); /* it has nothing left to say */
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (signal_caught != 0) {
        reader->reading->signal_number = signal_caught; /* the terminal has sent it to both */
        return VARVE_ERROR_BUSY;
    }
    if (!reader->has_counts && reader->failure.text[0] == '\0') {
        varve_message_set(&reader->failure, VARVE_OK, "babeltrace2 has ended in the middle of it (%s)",
                          WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "without a word");
    }
    return VARVE_OK;
}

static bool has_failed(const struct reader *reader)
{
    return reader->failure.text[0] != '\0';
}

/* ---- all at once ---- */

static int copy_want(struct reader *reader, struct varve_message *message)
{
    return reader->copy != NULL ? VARVE_OK : ctf_copy_new(reader->source->near, &reader->copy, message);
}

static void damage_note(struct reader *reader, const struct ctf_trace *trace, const struct ctf_stream *stream,
                        const char *what)
{
    if (reader->reading->damage.text[0] == '\0') {
        varve_message_set(&reader->reading->damage, VARVE_OK, "%s/%s: %s", trace->path,
                          stream != NULL ? stream->name : "metadata", what);
    }
}

/* Of damaged traces a copy of what is whole. */
static int everything_read(struct reader *reader, struct varve_message *message)
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
        error = copy_want(reader, message);
        if (error == VARVE_OK) {
            error = ctf_copy_trace(reader->copy, trace, &folders[count], message);
            count += error == VARVE_OK;
        }
    }
    if (error == VARVE_OK && count > 0) {
        error = traces_read(reader, folders, count, message);
    }
    if (error == VARVE_OK && count > 0) {
        ctf_counts_add(&reader->reading->counts, &reader->counts);
    }
    for (size_t i = 0; i < count; i++) {
        free(folders[i]);
    }
    free(folders);
    return error;
}

/* ---- stream by stream ---- */

static int stream_read(struct reader *reader, const struct ctf_trace *trace, const struct ctf_stream *stream,
                       bool *is_damaged, struct varve_message *message)
{
    size_t first = 0;

    for (unsigned failures = 0; failures < FAILURES_MAX; failures++) {
        const char *path;
        char *folders[1];
        int error;

        if (trace->is_known ? first >= stream->packet_count : failures > 0) {
            break;
        }
        error = ctf_copy_stream(reader->copy, trace, stream, first, &path, message);
        if (error == VARVE_OK) {
            folders[0] = (char *)path;
            error = traces_read(reader, folders, 1, message);
        }
        if (error != VARVE_OK) {
            return error;
        }
        if (reader->sweep == SWEEP_ALL && reader->has_counts) {
            ctf_counts_add(&reader->reading->counts, &reader->counts);
        }
        if (!has_failed(reader)) {
            break;
        }
        first += reader->packets > 0 ? reader->packets : 1;
        *is_damaged = true;
        damage_note(reader, trace, stream, reader->failure.text);
    }
    return VARVE_OK;
}

static int streams_read(struct reader *reader, enum sweep sweep, struct varve_message *message)
{
    int error = copy_want(reader, message);

    reader->sweep = sweep;
    reader->packets_done = 0;
    reader->reading->counts = (struct ctf_counts){0};
    for (size_t i = 0; i < reader->folder.count && error == VARVE_OK; i++) {
        const struct ctf_trace *trace = &reader->folder.traces[i];

        for (size_t k = 0; k < trace->stream_count && !trace->is_unreadable && error == VARVE_OK; k++) {
            const struct ctf_stream *stream = &trace->streams[k];
            bool is_damaged = false;

            error = stream_read(reader, trace, stream, &is_damaged, message);
            if (sweep == SWEEP_ALL && is_damaged && stream->bad_bytes == 0) {
                reader->reading->streams_damaged++;
            }
        }
    }
    return error;
}

/* ---- the whole ---- */

/* What is seen without reading. */
static void damage_count(struct reader *reader)
{
    struct ctf_reading *reading = reader->reading;

    for (size_t i = 0; i < reader->folder.count; i++) {
        const struct ctf_trace *trace = &reader->folder.traces[i];

        if (trace->is_unreadable) {
            damage_note(reader, trace, NULL, "is cut or damaged");
        }
        for (size_t k = 0; k < trace->stream_count; k++) {
            const struct ctf_stream *stream = &trace->streams[k];
            uint64_t bytes = trace->is_unreadable ? stream->bytes : stream->bad_bytes;

            reading->streams++;
            reading->streams_damaged += bytes > 0;
            reading->bytes_damaged += bytes;
            if (bytes > 0) {
                damage_note(reader, trace, stream, "is cut or damaged");
            }
        }
    }
}

static int reader_run(struct reader *reader, struct varve_message *message)
{
    struct ctf_reading *reading = reader->reading;
    int error;

    damage_count(reader);
    error = everything_read(reader, message);
    if (error == VARVE_OK && has_failed(reader)) {
        error = streams_read(reader, SWEEP_SOURCES, message);
        if (error == VARVE_OK) {
            error = streams_read(reader, SWEEP_ALL, message);
        }
    }
    if (error == VARVE_OK && reading->damage.text[0] != '\0' && reader->taken == 0 &&
        reading->counts.foreign + reading->counts.unknown + reading->counts.statedump == 0) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT, "nothing of the trace can be read: %s",
                                  reading->damage.text);
    }
    return error;
}

int ctf_read(const struct ctf_source *source, struct ctf_reading *reading, struct varve_message *message)
{
    struct reader reader = {.source = source, .reading = reading};
    struct sigaction before[SIGNALS];
    int error;

    *reading = (struct ctf_reading){0};
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
