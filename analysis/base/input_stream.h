/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file read once from front to back, plain or compressed: what it is, its first bytes say, not its name.
 * The reader looks through a window of contiguous bytes; offsets count uncompressed bytes. One thread uses a
 * stream.
 */
#ifndef VARVE_ANALYSIS_BASE_INPUT_STREAM_H
#define VARVE_ANALYSIS_BASE_INPUT_STREAM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INPUT_STREAM_WINDOW_BYTES (256 * 1024)

struct file_kind;
struct input_source;
struct prefetch;

/* The reader moves `next` up to `end` as it likes; all else is input_stream.c's. */
struct input_stream {
    const unsigned char *next, *end;
    unsigned char *window;       /* INPUT_STREAM_WINDOW_BYTES */
    uint64_t window_offset;      /* of window[0] */
    bool is_at_end;              /* nothing follows `end` */
    bool is_alone;               /* no thread can be made */
    uint64_t done;               /* bytes of the file read for what is in the window */
    struct input_source *source; /* the thread's while there is one */
    struct prefetch *prefetch;   /* NULL: the reader's thread does it itself */
};

/// Errors, with path and reason: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (a directory, an empty file), IO.
int input_stream_open(const char *path, struct input_stream **stream_out, struct varve_message *message);
/// The same over bytes in memory (borrowed until the close); `name` stands for a path in messages.
int input_stream_open_memory(const char *name, const void *data, size_t bytes, struct input_stream **stream_out,
                             struct varve_message *message);
void input_stream_close(struct input_stream *stream); /* NULL is allowed */
/// Make at least `need` bytes (at most half a window) lie between next and end, fewer only at the end of the
/// data. Pointers into the window are void then. Errors: VARVE_ERROR_FORMAT (truncated, damaged, followed by
/// something else), IO.
int input_stream_fill(struct input_stream *stream, size_t need, struct varve_message *message);
/// What the first bytes are; they stay in the stream, but for a byte order mark. NULL: unknown. Errors: those of the
/// stream, if nothing can be read.
int input_stream_kind(struct input_stream *stream, const struct file_kind **kind_out, struct varve_message *message);
const char *input_stream_path(const struct input_stream *stream);
/// What the file is packed with: "xz", "gzip", "zstd", or "zip" of torch.save, whose pickle this is; NULL: nothing.
const char *input_stream_packing(const struct input_stream *stream);
/// Bytes of the file read so far and in all; 0 if that is not known (a pipe).
uint64_t input_stream_done(const struct input_stream *stream);
uint64_t input_stream_total(const struct input_stream *stream);

static inline uint64_t input_stream_offset(const struct input_stream *stream)
{
    return stream->window_offset + (uint64_t)(stream->next - stream->window);
}

#endif
