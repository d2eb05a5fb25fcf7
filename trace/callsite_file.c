/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends entries to the call-site file, each by one writev(2), so that a killed process leaves whole entries
 * and at most one cut at the end. The hard part is to live with the program: its descriptors are numbered as
 * if ours were not there (it is moved high up), it may close ours (closefrom) and get the number back for a
 * file of its own (checked before each append), and its limits must not hurt it (SIGXFSZ). Called by
 * callsite.c and modules.c, under callsite.c's lock and with signals blocked.
 */
#include "trace/callsite_internal.h"
#include "trace/error.h"
#include "trace/recorder_syscall_internal.h"
#include "trace/sites_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Descriptors from here on are rarely anybody's; where the limit is lower the next one is tried. */
static const int descriptor_floors[] = {1000, 200, 60};

/* One file per process image. Guarded by callsite.c's lock; a fork child inherits it until it opens its own.
 */
static struct {
    int fd; /* valid if is_open, and if it still is `device`, `inode` */
    bool is_open;
    dev_t device;
    ino_t inode;
    char path[PATH_MAX];
} file;

static int file_open_high(const char *path, int flags)
{
    int fd = recorder_sys_open(path, flags | O_WRONLY | O_APPEND, 0600);

    for (size_t i = 0; fd >= 0 && i < sizeof(descriptor_floors) / sizeof(descriptor_floors[0]); i++) {
        int high = recorder_sys_dup_above(fd, descriptor_floors[i]);

        if (high >= 0) {
            recorder_sys_close(fd);
            return high;
        }
    }
    return fd;
}

/* Is the descriptor still ours? Then `size` is the file's. */
static bool file_is_ours(off_t *size)
{
    struct stat status;

    if (!file.is_open || recorder_sys_fstat(file.fd, &status) != 0) {
        return false;
    }
    *size = status.st_size;
    return status.st_dev == file.device && status.st_ino == file.inode;
}

int callsite_file_open(const char *path)
{
    struct stat status;
    int result;
    off_t size;

    if (file_is_ours(&size)) {
        recorder_sys_close(file.fd);
    }
    file.is_open = false;
    if (strlen(path) >= sizeof(file.path)) {
        return VARVE_ERROR_INVALID;
    }
    memcpy(file.path, path, strlen(path) + 1);
    file.fd = file_open_high(path, O_CREAT);
    result = file.fd < 0 ? file.fd : recorder_sys_fstat(file.fd, &status);
    if (result < 0) {
        return result == -EACCES || result == -EPERM ? VARVE_ERROR_PERMISSION : VARVE_ERROR_IO;
    }
    file.device = status.st_dev;
    file.inode = status.st_ino;
    file.is_open = true;
    return VARVE_OK;
}

/* After the program closed our descriptor: the same file by its path, or nothing. */
static bool file_reopen(off_t *size)
{
    int fd = file_open_high(file.path, 0);

    if (fd < 0) {
        return false;
    }
    file.fd = fd; /* the old number is the program's by now */
    if (file_is_ours(size)) {
        return true;
    }
    recorder_sys_close(fd);
    file.is_open = false;
    return false;
}

int callsite_file_append(uint32_t tag, const struct callsite_part *parts, unsigned count)
{
    static const char padding[8];
    struct sites_entry entry = {.tag = tag};
    struct iovec vectors[CALLSITE_PARTS_MAX + 2] = {{&entry, sizeof(entry)}};
    size_t bytes = 0;
    bool was_pending;
    long written;
    off_t size;

    assert(count <= CALLSITE_PARTS_MAX);
    for (unsigned i = 0; i < count; i++) {
        vectors[i + 1].iov_base = (void *)(uintptr_t)parts[i].data;
        vectors[i + 1].iov_len = parts[i].bytes;
        bytes += parts[i].bytes;
    }
    vectors[count + 1].iov_base = (void *)(uintptr_t)padding;
    vectors[count + 1].iov_len = (8 - bytes % 8) % 8;
    bytes += vectors[count + 1].iov_len;
    entry.bytes = (uint32_t)bytes;

    if (!file_is_ours(&size) && (!file.is_open || !file_reopen(&size))) {
        return VARVE_ERROR_IO;
    }
    was_pending = recorder_size_signal_begin();
    written = recorder_sys_writev(file.fd, vectors, count + 2);
    recorder_size_signal_end(was_pending, written);
    if (written == (long)(sizeof(entry) + bytes)) {
        return VARVE_OK;
    }
    if (written > 0) {
        /* A cut entry in the middle would end the file for its reader. */
        recorder_sys_ftruncate(file.fd, (uint64_t)size);
    }
    return written < 0 && written != -ENOSPC && written != -EFBIG && written != -EDQUOT ? VARVE_ERROR_IO
                                                                                        : VARVE_ERROR_FULL;
}
