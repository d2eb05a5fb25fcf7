/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as the files of a CTF trace, walked packet by packet as before babeltrace2 sees
 * them, and as what a child that babeltrace2 has damaged sends back. babeltrace2 itself, which runs in a
 * process of its own because it may crash, is not run.
 */
#include "analysis/import/ctf/ctf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static const char *const names[] = {"metadata", "stream_0", "stream_1"};

static uint64_t read_sum; /* so that each byte is read */

static void check(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void clean(void)
{
    char path[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void file_write(const char *name, const uint8_t *data, size_t size)
{
    char path[128];
    int file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(file >= 0 && write(file, data, size) == (ssize_t)size);
    close(file);
}

static void check_ranges(const struct ctf_stream *stream, const struct ctf_range *ranges, size_t count)
{
    uint64_t end = 0;

    for (size_t i = 0; i < count; i++) {
        check(ranges[i].bytes > 0 && ranges[i].offset >= end && ranges[i].bytes <= stream->bytes);
        end = ranges[i].offset + ranges[i].bytes;
        check(end <= stream->bytes);
    }
}

static void read_folder(void)
{
    struct ctf_folder found = {0};
    struct varve_message message = {""};
    int code = ctf_folder_open(folder, &found, &message);

    if (code != VARVE_OK) {
        check(message.text[0] != '\0' && strchr(message.text, '\n') == NULL);
        return;
    }
    for (size_t i = 0; i < found.count; i++) {
        for (size_t j = 0; j < found.traces[i].stream_count; j++) {
            const struct ctf_stream *stream = &found.traces[i].streams[j];

            check_ranges(stream, stream->packets, stream->packet_count);
            check_ranges(stream, stream->cuts, stream->cut_count);
            check(stream->bad_bytes <= stream->bytes);
        }
    }
    ctf_folder_close(&found);
}

static void read_pipe(const uint8_t *data, size_t size)
{
    int file = memfd_create("items", MFD_CLOEXEC);
    struct ctf_pipe_end *end;
    const struct ctf_item *item;

    check(file >= 0 && write(file, data, size) == (ssize_t)size && lseek(file, 0, SEEK_SET) == 0);
    end = ctf_pipe_end_new(file);
    while (ctf_pipe_get(end, &item) == VARVE_OK) {
        const struct ctf_item_shape *shape = ctf_item_shape(item->kind);

        for (unsigned i = 0; i < shape->parts; i++) {
            const uint8_t *bytes = item->parts[i].data;

            for (uint32_t at = 0; at < item->parts[i].bytes; at++) {
                read_sum += bytes[at];
            }
            check(i >= shape->texts || bytes[item->parts[i].bytes - 1] == '\0');
        }
    }
    ctf_pipe_end_free(end);
    close(file);
}

/* An odd first byte: items. Else two lengths of two bytes each, for the metadata and the first stream. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t lengths[2];

    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "/tmp/varve-fuzz-XXXXXX");
        check(mkdtemp(folder) != NULL);
        atexit(clean);
    }
    if (size < 5 || data[0] % 2 == 1) {
        read_pipe(data + (size > 0), size - (size > 0));
        return 0;
    }
    lengths[0] = (size_t)data[1] | (size_t)data[2] << 8;
    lengths[1] = (size_t)data[3] | (size_t)data[4] << 8;
    data += 5;
    size -= 5;
    for (unsigned i = 0; i < 2; i++) {
        lengths[i] = lengths[i] < size ? lengths[i] : size;
        file_write(names[i], data, lengths[i]);
        data += lengths[i];
        size -= lengths[i];
    }
    file_write(names[2], data, size);
    read_folder();
    return 0;
}
