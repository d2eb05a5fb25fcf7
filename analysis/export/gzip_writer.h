/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of bytes, gzipped, to a FILE. One thread. */
#ifndef VARVE_ANALYSIS_EXPORT_GZIP_WRITER_H
#define VARVE_ANALYSIS_EXPORT_GZIP_WRITER_H

#include <stddef.h>
#include <stdio.h>
#define ZLIB_CONST /* what is compressed is only read */
#include <zlib.h>

struct gzip_writer {
    z_stream stream;
    FILE *out; /* borrowed; failures show in ferror */
};

void gzip_writer_begin(struct gzip_writer *writer, FILE *out);
void gzip_writer_put(struct gzip_writer *writer, const void *bytes, size_t count);
/// Write what is left and the trailer; the writer can be begun again.
void gzip_writer_end(struct gzip_writer *writer);

#endif
