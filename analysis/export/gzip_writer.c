/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/gzip_writer.h"

#include "analysis/base/memory_or_exit.h"

#define GZIP_WINDOW (15 + 16) /* the largest window, with gzip's header and trailer */
#define MEMORY_LEVEL 8        /* zlib's default */

void gzip_writer_begin(struct gzip_writer *writer, FILE *out)
{
    *writer = (struct gzip_writer){.out = out};
    if (deflateInit2(&writer->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        memory_exhausted();
    }
}

static void compress_input(struct gzip_writer *writer, int flush)
{
    unsigned char buffer[1 << 15];
    do {
        writer->stream.next_out = buffer;
        writer->stream.avail_out = sizeof(buffer);
        deflate(&writer->stream, flush);
        fwrite(buffer, 1, sizeof(buffer) - writer->stream.avail_out, writer->out);
    } while (writer->stream.avail_out == 0);
}

void gzip_writer_put(struct gzip_writer *writer, const void *bytes, size_t count)
{
    writer->stream.next_in = bytes;
    writer->stream.avail_in = (uInt)count; /* messages are far smaller */
    compress_input(writer, Z_NO_FLUSH);
}

void gzip_writer_end(struct gzip_writer *writer)
{
    writer->stream.next_in = NULL;
    writer->stream.avail_in = 0;
    compress_input(writer, Z_FINISH);
    deflateEnd(&writer->stream);
}
