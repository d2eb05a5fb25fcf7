/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/model/event_groups.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void seqs_open(struct seqs *list)
{
    *list = (struct seqs){.fd = -1};
}

void seqs_close(struct seqs *list)
{
    if (list->fd >= 0) {
        close(list->fd);
    }
    free(list->buffer);
}

static int write_failed(int reason, struct varve_message *message)
{
    int error = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? VARVE_ERROR_FULL : VARVE_ERROR_IO;
    return varve_message_set(message, error, "a list of events cannot be written: %s", strerror(reason));
}

static int file_open(struct seqs *list, const char *beside, const char *suffix, struct varve_message *message)
{
    char path[4096 + 16];
    snprintf(path, sizeof(path), "%s.%s", beside, suffix);
    list->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (list->fd < 0) {
        return write_failed(errno, message);
    }
    unlink(path); /* nobody has to find it again */
    return VARVE_OK;
}

static int buffer_flush(struct seqs *list, struct varve_message *message)
{
    while (list->buffered > 0) {
        ssize_t done = pwrite(list->fd, list->buffer, list->buffered * sizeof(*list->buffer),
                              (off_t)(list->count * sizeof(*list->buffer)));
        if (done < (ssize_t)sizeof(*list->buffer)) {
            return write_failed(done < 0 ? errno : ENOSPC, message);
        }
        uint32_t count = (uint32_t)((size_t)done / sizeof(*list->buffer));
        list->count += count;
        list->buffered -= count;
        memmove(list->buffer, list->buffer + count, list->buffered * sizeof(*list->buffer));
    }
    return VARVE_OK;
}

int seqs_reserve(struct seqs *list, const char *path, const char *suffix, struct varve_message *message)
{
    if (list->buffer == NULL) {
        list->buffer = malloc(SEQS_BUFFERED * sizeof(*list->buffer));
    }
    if (list->buffer == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a list of events");
    }
    if (list->buffered < SEQS_BUFFERED) {
        return VARVE_OK;
    }
    int error = list->fd < 0 ? file_open(list, path, suffix, message) : VARVE_OK;
    return error == VARVE_OK ? buffer_flush(list, message) : error;
}

void seqs_add(struct seqs *list, uint64_t seq, unsigned tag)
{
    if (!list->is_closed) {
        list->buffer[list->buffered++] = seq << 8 | tag;
    }
}

int seqs_each(const struct seqs *list, int (*take)(void *context, uint64_t seq, unsigned tag), void *context,
              struct varve_message *message)
{
    uint64_t part[512];
    int error = VARVE_OK;
    for (uint64_t at = 0; at < list->count && error == VARVE_OK;) {
        ssize_t done = pread(list->fd, part, sizeof(part), (off_t)(at * sizeof(part[0])));
        size_t count = done > 0 ? (size_t)done / sizeof(part[0]) : 0;
        if (count == 0) {
            return varve_message_set(message, VARVE_ERROR_IO, "cannot read a list of events again");
        }
        for (size_t i = 0; i < count && error == VARVE_OK; i++) {
            error = take(context, part[i] >> 8, part[i] & 0xff);
        }
        at += count;
    }
    for (uint32_t i = 0; i < list->buffered && error == VARVE_OK; i++) {
        error = take(context, list->buffer[i] >> 8, list->buffer[i] & 0xff);
    }
    return error;
}
