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

/*
 * Data produced by one thread a few blocks before another consumes them, so that unpacking takes no time of the
 * reader's. Used by input_stream.c for compressed files.
 */

/* What came of one step; `done` is what the producer has used of its own input by then. */
struct prefetch_step {
    size_t made;
    uint64_t done;
    bool is_ended;
};

struct prefetch_producer {
    void *context;
    /* At most `room` bytes at `to`; it is not called again after an error or the end. */
    int (*make)(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                struct varve_message *message);
};

struct prefetch;

/// From now on `producer` is called on a thread of its own. NULL if there can be none.
struct prefetch *prefetch_start(const struct prefetch_producer *producer);
void prefetch_stop(struct prefetch *prefetch); /* NULL is allowed */
/// Move at most `room` bytes to `to`, waiting for the first of them; none only at the end. An error of the
/// producer comes after all that was made before it, and again on every later call.
int prefetch_read(struct prefetch *prefetch, unsigned char *to, size_t room, struct prefetch_step *step,
                  struct varve_message *message);

#define INPUT_STREAM_WINDOW_BYTES (256 * 1024)

struct file_kind;
struct input_source;

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

/*
 * What a stream reads from: a file or memory, plain or compressed as its first bytes say. Owns the file and the
 * decompressor; called by input_stream.c, and from the second window on by the thread of input_prefetch.c.
 */

/// `path` is copied; `file` is closed at the end; -1: `bytes` of `memory` instead. `total`: 0 if unknown.
struct input_source *input_source_new(const char *path, int file, const void *memory, size_t bytes, uint64_t total);
void input_source_free(struct input_source *source);
/// Look at the first bytes and begin to decompress. VARVE_ERROR_FORMAT: there are none.
int input_source_recognise(struct input_source *source, struct varve_message *message);
/// Decompressed bytes, as many as there is room for, fewer only at the end: prefetch_producer.make, with the
/// source as its context. Errors: VARVE_ERROR_FORMAT (truncated, damaged, followed by something else), IO.
int input_source_make(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                      struct varve_message *message);
const char *input_source_path(const struct input_source *source);
/// "xz", "gzip", "zstd", or "zip" of torch.save; NULL: plain.
const char *input_source_packing(const struct input_source *source);
uint64_t input_source_total(const struct input_source *source);

#endif
