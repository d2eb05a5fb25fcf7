/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window that slides over what a source decompresses. From the second window on another thread does that
 * (input_prefetch.c): the source is that thread's then.
 */
#include "analysis/base/input_stream.h"

#include "analysis/base/file_kind.h"
#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int stream_begin(struct input_source *source, struct input_stream **stream_out, struct varve_message *message)
{
    struct input_stream *stream = memory_resize(NULL, sizeof(*stream));
    *stream = (struct input_stream){.source = source, .window = memory_resize(NULL, INPUT_STREAM_WINDOW_BYTES)};
    stream->next = stream->end = stream->window;
    int error = input_source_recognise(source, message);
    if (error != VARVE_OK) {
        input_stream_close(stream);
        stream = NULL;
    }
    *stream_out = stream;
    return error;
}

int input_stream_open(const char *path, struct input_stream **stream_out, struct varve_message *message)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *stream_out = NULL;
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) {
        int error = errno == ENOENT || errno == ENOTDIR ? VARVE_ERROR_NOT_FOUND
                    : errno == EACCES || errno == EPERM ? VARVE_ERROR_PERMISSION
                                                        : VARVE_ERROR_IO;
        varve_message_set(message, error, "%.200s: %s", path, strerror(errno));
        if (file >= 0) {
            close(file);
        }
        return error;
    }
    if (S_ISDIR(status.st_mode)) {
        close(file);
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%.200s: is a directory; varve import reads those of LTTng traces", path);
    }
    return stream_begin(input_source_new(path, file, NULL, 0, S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0),
                        stream_out, message);
}

int input_stream_open_memory(const char *name, const void *data, size_t bytes, struct input_stream **stream_out,
                             struct varve_message *message)
{
    return stream_begin(input_source_new(name, -1, data, bytes, bytes), stream_out, message);
}

void input_stream_close(struct input_stream *stream)
{
    if (stream != NULL) {
        prefetch_stop(stream->prefetch);
        input_source_free(stream->source);
        free(stream->window);
        free(stream);
    }
}

int input_stream_fill(struct input_stream *stream, size_t need, struct varve_message *message)
{
    struct input_source *source = stream->source;
    size_t kept = (size_t)(stream->end - stream->next);
    assert(need <= INPUT_STREAM_WINDOW_BYTES / 2);
    if (kept >= need || stream->is_at_end) {
        return VARVE_OK;
    }
    stream->window_offset = input_stream_offset(stream);
    memmove(stream->window, stream->next, kept);
    stream->next = stream->window;
    /* What fits the first window is not worth a thread. */
    if (stream->window_offset > 0 && !stream->is_alone && stream->prefetch == NULL) {
        const struct prefetch_producer producer = {.context = source, .make = input_source_make};
        stream->prefetch = prefetch_start(&producer);
        stream->is_alone = stream->prefetch == NULL;
    }
    int error = VARVE_OK;
    while (error == VARVE_OK && kept < INPUT_STREAM_WINDOW_BYTES / 2 && !stream->is_at_end) {
        struct prefetch_step step = {0};
        unsigned char *to = stream->window + kept;
        size_t room = INPUT_STREAM_WINDOW_BYTES - kept;
        error = stream->prefetch != NULL ? prefetch_read(stream->prefetch, to, room, &step, message)
                                         : input_source_make(source, to, room, &step, message);
        kept += step.made;
        stream->done = step.done;
        stream->is_at_end = step.is_ended;
    }
    stream->end = stream->window + kept;
    return error;
}

int input_stream_kind(struct input_stream *stream, const struct file_kind **kind_out, struct varve_message *message)
{
    int error = input_stream_fill(stream, FILE_KIND_BYTES, message);
    *kind_out = NULL;
    if (stream->end - stream->next >= 3 && memcmp(stream->next, "\xef\xbb\xbf", 3) == 0) {
        stream->next += 3; /* editors and spreadsheets put it in front of UTF-8 */
    }
    if (stream->next == stream->end) {
        return error;
    }
    *kind_out = file_kind_of(stream->next, (size_t)(stream->end - stream->next), input_stream_path(stream));
    return VARVE_OK;
}

const char *input_stream_path(const struct input_stream *stream)
{
    return input_source_path(stream->source);
}

const char *input_stream_packing(const struct input_stream *stream)
{
    return input_source_packing(stream->source);
}

uint64_t input_stream_done(const struct input_stream *stream)
{
    return stream->done;
}

uint64_t input_stream_total(const struct input_stream *stream)
{
    return input_source_total(stream->source);
}
