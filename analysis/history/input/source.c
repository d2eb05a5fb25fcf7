/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file or memory through liblzma, zlib or libzstd where the first bytes ask for it. The only file that
 * knows those libraries; each is one `decode` function with the same contract. The hard part is to tell apart
 * the three ways in which compressed data end: well, too early, or followed by something that is not another
 * member. Called by stream.c, and by the thread of prefetch.c.
 */
#include "analysis/history/input/source.h"

#include "analysis/output/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define DECODER_MEMORY_MAX (UINT64_C(512) << 20) /* xz -9 takes 65 MiB; what wants more is no snapshot */

#define INPUT_BYTES (128 * 1024)

struct input_format {
    const char *name;
    unsigned char magic[6];
    size_t magic_bytes;
    void (*begin)(struct input_source *source);
    /* Turn input into at most `room` bytes at `to`; sets *made, and is_ended when the data end well. */
    int (*decode)(struct input_source *source, unsigned char *to, size_t room, size_t *made,
                  struct varve_message *message);
    void (*finish)(struct input_source *source);
};

struct input_source {
    char *path;
    int file;                    /* -1: memory */
    const unsigned char *memory; /* what is left of it */
    size_t memory_left;
    uint64_t done, total;
    unsigned char *input; /* INPUT_BYTES; bytes of the file that are not decoded yet */
    size_t input_next, input_end;
    bool is_file_at_end;
    bool is_ended; /* the decoder is through */
    const struct input_format *format;
    bool is_between_members; /* the last member is complete */
    union {
        lzma_stream xz;
        z_stream gzip;
        ZSTD_DStream *zstd;
    } decoder;
};

/* ---- what the file gives ---- */

/* More input behind what is there; the input is never more than one buffer. */
static int input_read(struct input_source *source, struct varve_message *message)
{
    size_t kept = source->input_end - source->input_next;
    size_t room = INPUT_BYTES - kept;
    ssize_t got;

    memmove(source->input, source->input + source->input_next, kept);
    source->input_next = 0;
    source->input_end = kept;
    if (source->is_file_at_end || room == 0) {
        return VARVE_OK;
    }
    if (source->file < 0) {
        got = (ssize_t)(source->memory_left < room ? source->memory_left : room);
        if (got > 0) {
            memcpy(source->input + kept, source->memory, (size_t)got);
            source->memory += got;
            source->memory_left -= (size_t)got;
        }
    } else {
        do {
            got = read(source->file, source->input + kept, room);
        } while (got < 0 && errno == EINTR);
        if (got < 0) {
            int error = errno == EISDIR ? VARVE_ERROR_FORMAT : VARVE_ERROR_IO;

            return varve_message_set(message, error, "%.200s: %s", source->path, strerror(errno));
        }
    }
    source->is_file_at_end = got == 0;
    source->input_end += (size_t)got;
    source->done += (uint64_t)got;
    return VARVE_OK;
}

static int fail(const struct input_source *source, struct varve_message *message, const char *reason)
{
    uint64_t where = source->done - (source->input_end - source->input_next);

    return varve_message_set(message, VARVE_ERROR_FORMAT,
                             "%.200s: the %s data %s (at byte %" PRIu64 " of the file)", source->path,
                             source->format->name, reason, where);
}

static int fail_damaged(const struct input_source *source, const char *reason, struct varve_message *message)
{
    char text[100];

    snprintf(text, sizeof(text), "are damaged: %s", reason);
    return fail(source, message, text);
}

/* ---- plain ---- */

static int plain_decode(struct input_source *source, unsigned char *to, size_t room, size_t *made,
                        struct varve_message *message)
{
    size_t ready = source->input_end - source->input_next;

    (void)message;
    *made = ready < room ? ready : room;
    memcpy(to, source->input + source->input_next, *made);
    source->input_next += *made;
    source->is_ended = *made == 0 && source->is_file_at_end;
    return VARVE_OK;
}

/* Behind a complete member of xz or gzip: padding with zeros, another one, the end, or what should not be
 * there. */
static int next_member(struct input_source *source, struct varve_message *message)
{
    while (source->input_next < source->input_end && source->input[source->input_next] == 0) {
        source->input_next++;
    }
    if (source->input_next == source->input_end) {
        source->is_ended = source->is_file_at_end;
        return VARVE_OK;
    }
    if (source->input[source->input_next] != source->format->magic[0]) {
        return fail(source, message, "end, and something else follows");
    }
    source->format->finish(source);
    source->format->begin(source);
    source->is_between_members = false;
    return VARVE_OK;
}

/* ---- xz ---- */

static void xz_begin(struct input_source *source)
{
    source->decoder.xz = (lzma_stream)LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&source->decoder.xz, DECODER_MEMORY_MAX, 0) != LZMA_OK) {
        memory_exhausted();
    }
}

static int xz_decode(struct input_source *source, unsigned char *to, size_t room, size_t *made,
                     struct varve_message *message)
{
    lzma_stream *xz = &source->decoder.xz;
    lzma_ret result;

    *made = 0;
    if (source->is_between_members) {
        return next_member(source, message);
    }
    xz->next_in = source->input + source->input_next;
    xz->avail_in = source->input_end - source->input_next;
    xz->next_out = to;
    xz->avail_out = room;
    result = lzma_code(xz, LZMA_RUN);
    source->input_next = source->input_end - xz->avail_in;
    *made = room - xz->avail_out;
    switch (result) {
    case LZMA_OK:
        return VARVE_OK;
    case LZMA_STREAM_END:
        source->is_between_members = true;
        return VARVE_OK;
    case LZMA_BUF_ERROR:
        return source->is_file_at_end ? fail(source, message, "are truncated") : VARVE_OK;
    case LZMA_MEMLIMIT_ERROR:
        return fail_damaged(source, "unpacking would take more than 512 MiB", message);
    case LZMA_OPTIONS_ERROR:
        return fail_damaged(source, "options that are not supported", message);
    case LZMA_MEM_ERROR:
        memory_exhausted();
    default:
        return fail_damaged(source, "checks don't hold", message);
    }
}

static void xz_finish(struct input_source *source)
{
    lzma_end(&source->decoder.xz);
}

/* ---- gzip ---- */

static void gzip_begin(struct input_source *source)
{
    memset(&source->decoder.gzip, 0, sizeof(source->decoder.gzip));
    if (inflateInit2(&source->decoder.gzip, 15 + 16) != Z_OK) {
        memory_exhausted();
    }
}

static int gzip_decode(struct input_source *source, unsigned char *to, size_t room, size_t *made,
                       struct varve_message *message)
{
    z_stream *gzip = &source->decoder.gzip;
    int result;

    *made = 0;
    if (source->is_between_members) {
        return next_member(source, message);
    }
    gzip->next_in = source->input + source->input_next;
    gzip->avail_in = (uInt)(source->input_end - source->input_next);
    gzip->next_out = to;
    gzip->avail_out = (uInt)room;
    result = inflate(gzip, Z_NO_FLUSH);
    source->input_next = source->input_end - gzip->avail_in;
    *made = room - gzip->avail_out;
    switch (result) {
    case Z_OK:
        return VARVE_OK;
    case Z_STREAM_END:
        source->is_between_members = true;
        return VARVE_OK;
    case Z_BUF_ERROR:
        return *made > 0 || !source->is_file_at_end ? VARVE_OK : fail(source, message, "are truncated");
    case Z_MEM_ERROR:
        memory_exhausted();
    default:
        return fail_damaged(source, gzip->msg != NULL ? gzip->msg : "checks don't hold", message);
    }
}

static void gzip_finish(struct input_source *source)
{
    inflateEnd(&source->decoder.gzip);
}

/* ---- zstd ---- */

static void zstd_begin(struct input_source *source)
{
    source->decoder.zstd = ZSTD_createDStream();
    if (source->decoder.zstd == NULL) {
        memory_exhausted();
    }
}

static int zstd_decode(struct input_source *source, unsigned char *to, size_t room, size_t *made,
                       struct varve_message *message)
{
    ZSTD_inBuffer input = {source->input, source->input_end, source->input_next};
    ZSTD_outBuffer output = {to, room, 0};
    size_t before = source->input_next;
    size_t result;

    *made = 0;
    if (source->is_between_members && source->input_next == source->input_end) {
        source->is_ended = source->is_file_at_end;
        return VARVE_OK;
    }
    result = ZSTD_decompressStream(source->decoder.zstd, &output, &input);
    source->input_next = input.pos;
    *made = output.pos;
    if (ZSTD_isError(result)) {
        source->input_next = before;
        return ZSTD_getErrorCode(result) == ZSTD_error_prefix_unknown
                   ? fail(source, message, "end, and something else follows")
                   : fail_damaged(source, ZSTD_getErrorName(result), message);
    }
    source->is_between_members = result == 0;
    if (result != 0 && *made == 0 && input.pos == before && source->is_file_at_end) {
        return fail(source, message, "are truncated");
    }
    return VARVE_OK;
}

static void zstd_finish(struct input_source *source)
{
    ZSTD_freeDStream(source->decoder.zstd);
}

/* ---- the stream ---- */

static const struct input_format formats[] = {
    {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, xz_begin, xz_decode, xz_finish},
    {"gzip", {0x1f, 0x8b}, 2, gzip_begin, gzip_decode, gzip_finish},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, zstd_begin, zstd_decode, zstd_finish},
    {"plain", {0}, 0, NULL, plain_decode, NULL}, /* last: fits all */
};

struct input_source *input_source_new(const char *path, int file, const void *memory, size_t bytes,
                                      uint64_t total)
{
    struct input_source *source = memory_resize(NULL, sizeof(*source));

    *source = (struct input_source){.path = memory_copy_text(path),
                                    .file = file,
                                    .memory = memory,
                                    .memory_left = bytes,
                                    .total = total,
                                    .input = memory_resize(NULL, INPUT_BYTES)};
    return source;
}

void input_source_free(struct input_source *source)
{
    if (source->format != NULL && source->format->finish != NULL) {
        source->format->finish(source);
    }
    if (source->file >= 0) {
        close(source->file);
    }
    free(source->path);
    free(source->input);
    free(source);
}

const char *input_source_path(const struct input_source *source)
{
    return source->path;
}

uint64_t input_source_total(const struct input_source *source)
{
    return source->total;
}

int input_source_recognise(struct input_source *source, struct varve_message *message)
{
    const struct input_format *format = formats;
    int error = VARVE_OK;

    while (error == VARVE_OK && !source->is_file_at_end && source->input_end < sizeof(format->magic)) {
        error = input_read(source, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (source->input_end == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.200s: is empty", source->path);
    }
    while (source->input_end < format->magic_bytes ||
           memcmp(source->input, format->magic, format->magic_bytes) != 0) {
        format++;
    }
    if (format->begin != NULL) {
        format->begin(source);
    }
    source->format = format;
    return VARVE_OK;
}

/* Fill a whole block, since each is handed to another thread. */
int input_source_make(void *context, unsigned char *to, size_t room, struct input_ahead_step *step,
                      struct varve_message *message)
{
    struct input_source *source = context;
    int error = VARVE_OK;

    while (error == VARVE_OK && step->made < room && !source->is_ended) {
        size_t made = 0;

        if (source->input_next == source->input_end && !source->is_file_at_end) {
            error = input_read(source, message);
        }
        if (error == VARVE_OK) {
            error = source->format->decode(source, to + step->made, room - step->made, &made, message);
        }
        step->made += made;
    }
    step->done = source->done;
    step->is_ended = source->is_ended;
    return error;
}
