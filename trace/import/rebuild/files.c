/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a rebuild, beside the database to come, and plain reading and writing in it. Files are opened
 * for each piece, which is large: ten thousand rings must not hold ten thousand descriptors. Called by all
 * rebuild*.c.
 */
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TARGET_BYTES_MAX 3800U /* names are put behind it, up to DIRECTORY_PATH_BYTES */

int rebuild_no_memory(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to rebuild a recording");
}

static int fail(struct varve_message *message, const char *what, const char *path)
{
    int code = errno == ENOENT || errno == ENOTDIR                    ? VARVE_ERROR_NOT_FOUND
               : errno == EACCES || errno == EPERM || errno == EROFS  ? VARVE_ERROR_PERMISSION
               : errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? VARVE_ERROR_FULL
                                                                      : VARVE_ERROR_IO;

    return varve_message_set(message, code, "%.300s: cannot %s: %s", path, what, strerror(errno));
}

int rebuild_folder_make(struct rebuild_folder *folder, const char *target, bool may_replace,
                        struct varve_message *message)
{
    int code;

    if (strlen(target) > TARGET_BYTES_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", target);
    }
    folder->block = malloc(RING_STAGING_RECORDS * sizeof(*folder->block));
    folder->packed = malloc(sizeof(struct record_block) + (size_t)RING_STAGING_RECORDS * RECORD_PACKED_MAX +
                            sizeof(uint64_t) + RECORD_BLOCK_ALIGNMENT);
    if (folder->block == NULL || folder->packed == NULL) {
        return rebuild_no_memory(message);
    }
    code = varve_publish_folder_make(target, may_replace, folder->path, sizeof(folder->path), message);
    if (code != VARVE_OK) {
        folder->path[0] = '\0'; /* there is nothing to remove */
    }
    return code;
}

void rebuild_folder_remove(struct rebuild_folder *folder)
{
    if (folder->path[0] != '\0') {
        varve_publish_folder_remove(folder->path);
    }
    folder->path[0] = '\0';
    free(folder->block);
    free(folder->packed);
    folder->block = NULL;
    folder->packed = NULL;
}

/* `offset` < 0: at the end, of a file opened for appending. */
static bool write_all(int fd, const char *bytes, size_t count, off_t offset)
{
    while (count > 0) {
        ssize_t written = offset < 0 ? write(fd, bytes, count) : pwrite(fd, bytes, count, offset);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        bytes += written;
        count -= (size_t)written;
        offset += offset < 0 ? 0 : written;
    }
    return true;
}

static int write_to(const char *path, const void *bytes, size_t count, off_t offset,
                    struct varve_message *message)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (offset < 0 ? O_APPEND : 0), 0600);
    int code = VARVE_OK;

    if (fd < 0) {
        return fail(message, "make the file", path);
    }
    if (!write_all(fd, bytes, count, offset)) {
        code = fail(message, "write", path);
    }
    close(fd);
    return code;
}

int rebuild_file_write(const char *path, const void *bytes, size_t count, uint64_t offset,
                       struct varve_message *message)
{
    return write_to(path, bytes, count, (off_t)offset, message);
}

int rebuild_file_append(const char *path, const void *bytes, size_t count, struct varve_message *message)
{
    return write_to(path, bytes, count, -1, message);
}

int rebuild_file_read(const char *path, void *bytes, size_t count, uint64_t offset,
                      struct varve_message *message)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    int code = VARVE_OK;

    if (fd < 0) {
        return fail(message, "open", path);
    }
    while (code == VARVE_OK && done < count) {
        ssize_t got = pread(fd, (char *)bytes + done, count - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            code = fail(message, "read", path);
        } else if (got == 0) {
            code = varve_message_set(message, VARVE_ERROR_IO, "%.300s: was cut short by somebody", path);
        } else {
            done += (size_t)got;
        }
    }
    close(fd);
    return code;
}
