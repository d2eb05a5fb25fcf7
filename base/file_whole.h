/* SPDX-License-Identifier: Apache-2.0 */
/* All bytes at a place of a file, or false with errno. What was written before an error stays. Threads: any. */
#ifndef VARVE_BASE_FILE_WHOLE_H
#define VARVE_BASE_FILE_WHOLE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

static inline bool file_write_whole(int fd, const void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (now == 0 || (now < 0 && errno != EINTR)) {
            errno = now == 0 ? ENOSPC : errno;
            return false;
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return true;
}

/// False also where the file ends before.
static inline bool file_read_whole(int fd, void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = pread(fd, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (now == 0 || (now < 0 && errno != EINTR)) {
            errno = now == 0 ? EIO : errno;
            return false;
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return true;
}

#endif
