/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers as the CSV files of placement benchmarks have them: a line of names, then a buffer a line. Columns in any
 * order: id, lower, upper, size, and offset where the file has a placement. Others are skipped, but for those that
 * would change the problem. The file may be compressed. One thread uses a struct buffer_file.
 *
 * Source: google/minimalloc, README.md; its older names are known, too (buffer, buffer_id; start, begin; end,
 * which is inclusive).
 */
#ifndef VARVE_ANALYSIS_WHATIF_BUFFER_FILE_H
#define VARVE_ANALYSIS_WHATIF_BUFFER_FILE_H

#include "analysis/whatif/placement.h"

#include <stdio.h>

struct input_stream;

struct buffer_file {
    struct placement_buffer *buffers; /* in the order of the file; offset 0 unless has_offsets */
    size_t count, buffer_capacity;
    size_t *ids; /* of each buffer: where in `texts` its id begins */
    size_t id_capacity;
    char *texts;
    size_t text_bytes, text_capacity;
    bool has_offsets;
};

/// Whether a file looks like one: its first line is text with commas. False for what can't be read, and for pipes,
/// which can be read only once.
bool buffer_file_recognise(const char *path);
/// Owner: the caller, by buffer_file_free, if VARVE_OK is returned. Errors, with the file, and of contents with the
/// line: VARVE_ERROR_NOT_FOUND, PERMISSION, IO, FORMAT (a missing column; no number; lower >= upper; a negative size or
/// offset; more than PLACEMENT_BYTES_MAX in all; no buffer).
int buffer_file_read(const char *path, struct buffer_file *file, struct varve_message *message);
/// The same; takes the stream.
int buffer_file_read_stream(struct input_stream *input, struct buffer_file *file, struct varve_message *message);
/// With offsets. `id` of buffer i is its text, or i if `file` is NULL.
void buffer_file_write(FILE *out, const struct buffer_file *file, const struct placement_buffer *buffers, size_t count);
const char *buffer_file_id(const struct buffer_file *file, size_t number);
void buffer_file_free(struct buffer_file *file);

#endif
