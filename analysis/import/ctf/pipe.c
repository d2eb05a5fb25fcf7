/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items through a pipe, from the process that runs babeltrace2 to the one that rebuilds. Both are the same
 * program, so structures go as they are; but a process that babeltrace2 has damaged may send anything, and
 * one that dies leaves half a message: every size is checked before it is used.
 *
 *   message = header, structure, size of each part, parts; each padded to 8 bytes
 */
#include "analysis/import/ctf/ctf.h"

#include "analysis/output/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (UINT32_C(256) * 1024)
#define MESSAGE_BYTES_MAX (UINT32_C(64) * 1024 * 1024)

struct header {
    uint32_t kind;  /* enum ctf_item_kind */
    uint32_t bytes; /* of the whole message */
};

struct ctf_pipe_end {
    int descriptor;
    unsigned char *buffer;
    size_t capacity;
    size_t begin, end; /* what is not sent or not taken yet */
    struct ctf_item item;
};

struct ctf_pipe_end *ctf_pipe_end_new(int descriptor)
{
    struct ctf_pipe_end *end = memory_resize(NULL, sizeof(*end));

    *end = (struct ctf_pipe_end){.descriptor = descriptor, .capacity = BUFFER_BYTES};
    end->buffer = memory_resize(NULL, end->capacity);
    return end;
}

void ctf_pipe_end_free(struct ctf_pipe_end *end)
{
    if (end != NULL) {
        free(end->buffer);
        free(end);
    }
}

static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* ---- sending ---- */

int ctf_pipe_flush(struct ctf_pipe_end *end)
{
    while (end->begin < end->end) {
        ssize_t count = write(end->descriptor, end->buffer + end->begin, end->end - end->begin);

        if (count < 0 && errno != EINTR) {
            return VARVE_ERROR_IO;
        }
        end->begin += count > 0 ? (size_t)count : 0;
    }
    end->begin = end->end = 0;
    return VARVE_OK;
}

static void put_bytes(struct ctf_pipe_end *end, const void *bytes, size_t count)
{
    if (count > 0) {
        memcpy(end->buffer + end->end, bytes, count);
    }
    memset(end->buffer + end->end + count, 0, padded(count) - count);
    end->end += padded(count);
}

static int make_space(struct ctf_pipe_end *end, size_t bytes)
{
    int error = VARVE_OK;

    if (end->end + bytes > end->capacity) {
        error = ctf_pipe_flush(end);
    }
    if (bytes > end->capacity) {
        end->capacity = bytes;
        end->buffer = memory_resize(end->buffer, bytes);
    }
    return error;
}

int ctf_pipe_put(void *context, const struct ctf_item *item)
{
    struct ctf_pipe_end *end = context;
    const struct ctf_item_shape *shape = ctf_item_shape(item->kind);
    struct header header = {.kind = item->kind};
    uint32_t sizes[CTF_PARTS] = {0};
    size_t bytes = sizeof(header) + padded(shape->bytes);
    int error;

    for (unsigned i = 0; i < shape->parts; i++) {
        sizes[i] = item->parts[i].bytes;
        bytes += padded(sizes[i]);
    }
    bytes += shape->parts > 0 ? padded(shape->parts * sizeof(sizes[0])) : 0;
    if (bytes > MESSAGE_BYTES_MAX) {
        return VARVE_ERROR_INVALID;
    }
    error = make_space(end, bytes);
    if (error != VARVE_OK) {
        return error;
    }
    header.bytes = (uint32_t)bytes;
    put_bytes(end, &header, sizeof(header));
    put_bytes(end, &item->of, shape->bytes);
    put_bytes(end, sizes, shape->parts * sizeof(sizes[0]));
    for (unsigned i = 0; i < shape->parts; i++) {
        put_bytes(end, item->parts[i].data, sizes[i]);
    }
    return VARVE_OK;
}

/* ---- receiving ---- */

/* Until `bytes` are there. */
static int fill(struct ctf_pipe_end *end, size_t bytes)
{
    if (end->end - end->begin >= bytes) {
        return VARVE_OK;
    }
    memmove(end->buffer, end->buffer + end->begin, end->end - end->begin);
    end->end -= end->begin;
    end->begin = 0;
    if (bytes > end->capacity) {
        end->capacity = bytes;
        end->buffer = memory_resize(end->buffer, bytes);
    }
    while (end->end < bytes) {
        ssize_t count = read(end->descriptor, end->buffer + end->end, end->capacity - end->end);

        if (count == 0) {
            return VARVE_ERROR_NOT_FOUND;
        }
        if (count < 0) {
            return errno == EINTR ? VARVE_ERROR_BUSY : VARVE_ERROR_IO;
        }
        end->end += (size_t)count;
    }
    return VARVE_OK;
}

static bool take_parts(struct ctf_item *item, const struct ctf_item_shape *shape, const unsigned char *at,
                       size_t bytes)
{
    uint32_t sizes[CTF_PARTS];
    size_t sizes_bytes = shape->parts * sizeof(sizes[0]);

    if (padded(sizes_bytes) > bytes) {
        return false;
    }
    memcpy(sizes, at, sizes_bytes);
    at += padded(sizes_bytes);
    bytes -= padded(sizes_bytes);
    for (unsigned i = 0; i < shape->parts; i++) {
        if (padded(sizes[i]) > bytes) {
            return false;
        }
        if (i < shape->texts && (sizes[i] == 0 || at[sizes[i] - 1] != '\0')) {
            return false;
        }
        item->parts[i] = (struct ctf_part){.data = at, .bytes = sizes[i]};
        at += padded(sizes[i]);
        bytes -= padded(sizes[i]);
    }
    return bytes == 0;
}

int ctf_pipe_get(struct ctf_pipe_end *end, const struct ctf_item **item_out)
{
    const struct ctf_item_shape *shape;
    const unsigned char *at;
    struct header header;
    int error = fill(end, sizeof(header));

    *item_out = &end->item;
    if (error != VARVE_OK) {
        return error;
    }
    memcpy(&header, end->buffer + end->begin, sizeof(header));
    if (header.kind == CTF_ITEM_NONE || header.kind >= CTF_ITEM_KINDS || header.bytes > MESSAGE_BYTES_MAX) {
        return VARVE_ERROR_CORRUPT;
    }
    shape = ctf_item_shape((enum ctf_item_kind)header.kind);
    if (header.bytes < sizeof(header) + padded(shape->bytes) || header.bytes % 8 != 0) {
        return VARVE_ERROR_CORRUPT;
    }
    error = fill(end, header.bytes);
    if (error != VARVE_OK) {
        return error;
    }
    at = end->buffer + end->begin + sizeof(header);
    end->item.kind = (enum ctf_item_kind)header.kind;
    memcpy(&end->item.of, at, shape->bytes);
    if (!take_parts(&end->item, shape, at + padded(shape->bytes),
                    header.bytes - sizeof(header) - padded(shape->bytes))) {
        return VARVE_ERROR_CORRUPT;
    }
    ctf_item_bind(&end->item);
    end->begin += header.bytes;
    return VARVE_OK;
}
