/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A result that is there whole or not at all: it grows beside its place and moves there at the end; from another
 * file system a copy does. What is
 * in the way is judged twice, at the beginning, to say so before the work, and at the end, by the kernel, in
 * the same step that moves the file: what was created meanwhile is not overwritten. Links are never followed:
 * with permission to replace, a link itself goes. Used by whoever makes a database (collector/collector.c,
 * import/database_writer.c, import/rebuild.c) and by analysis/ for files of other formats.
 */
#include "base/publish.h"

#include "base/error.h"
#include "base/file_error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_BYTES 4096

static char unfinished[4096 + 16]; /* the folder that is being filled; one at a time */
static pid_t unfinished_by;        /* a child has a copy of its name, not the folder */

static const char *type_name(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

int varve_publish_check(const char *path, bool may_replace, struct varve_message *message)
{
    struct stat status;
    if (lstat(path, &status) != 0) {
        return VARVE_OK; /* or cannot be written, which comes out soon */
    }
    if (S_ISLNK(status.st_mode) && stat(path, &status) != 0) {
        status.st_mode = S_IFREG; /* a link to nothing */
    }
    if (!S_ISREG(status.st_mode)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%.300s: exists already, and is %s: only a file can be replaced", path,
                                 type_name(status.st_mode));
    }
    if (!may_replace) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%.300s: exists already; name another file, or replace it with --force", path);
    }
    return VARVE_OK;
}

int varve_publish_folder_make(const char *path, bool may_replace, char *folder, size_t folder_bytes,
                              struct varve_message *message)
{
    int error = varve_publish_check(path, may_replace, message);
    if (error != VARVE_OK) {
        return error;
    }
    if ((size_t)snprintf(folder, folder_bytes, "%s.XXXXXX", path) >= folder_bytes) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    if (mkdtemp(folder) != NULL) {
        snprintf(unfinished, sizeof(unfinished), "%s", folder);
        unfinished_by = getpid();
        return VARVE_OK;
    }
    return varve_message_set(message, file_error(errno), "%.300s: cannot be written: %s", path, strerror(errno));
}

/* Without opendir, which needs memory: it is called when there is none, too. Files only, as it has no others.
 */
void varve_publish_folder_remove(const char *folder)
{
    _Alignas(struct dirent64) char entries[ENTRIES_BYTES];
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t bytes = 0;
    while (descriptor >= 0 && (bytes = getdents64(descriptor, entries, sizeof(entries))) > 0) {
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);
            unlinkat(descriptor, entry->d_name, 0); /* "." and ".." are refused */
            at += entry->d_reclen;
        }
    }
    if (descriptor >= 0) {
        close(descriptor);
    }
    rmdir(folder);
    if (strcmp(folder, unfinished) == 0) {
        unfinished[0] = '\0';
    }
}

static int copy_bytes(int from, int to)
{
    static char buffer[1U << 16];
    ssize_t got;
    while ((got = read(from, buffer, sizeof(buffer))) != 0) {
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        for (ssize_t at = 0; at < got;) {
            ssize_t wrote = write(to, buffer + at, (size_t)(got - at));
            if (wrote < 0 && errno != EINTR) {
                return -1;
            }
            at += wrote > 0 ? wrote : 0;
        }
    }
    return 0;
}

static int copy_file(const char *from, const char *to)
{
    int source = open(from, O_RDONLY | O_CLOEXEC);
    struct stat status;
    int target = -1;
    int result = source >= 0 ? fstat(source, &status) : -1;
    if (result == 0) {
        target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status.st_mode & 0777);
        result = target >= 0 ? copy_bytes(source, target) : -1;
    }
    if (result == 0) {
        result = fsync(target); /* where it is moved from may be removed next */
    }
    int reason = errno;
    if (target >= 0 && close(target) != 0 && result == 0) {
        reason = errno;
        result = -1;
    }
    if (source >= 0) {
        close(source);
    }
    errno = reason;
    return result;
}

int publish_copy(const char *from, const char *path, bool may_replace, struct varve_message *message)
{
    char folder[ENTRIES_BYTES];
    int result = varve_publish_folder_make(path, may_replace, folder, sizeof(folder), message);
    if (result != VARVE_OK) {
        return result;
    }
    char copy[ENTRIES_BYTES + 16];
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    if (copy_file(from, copy) == 0) {
        result = varve_publish_move(copy, path, may_replace, message);
    } else {
        result = varve_message_set(message, errno == ENOSPC || errno == EDQUOT ? VARVE_ERROR_FULL : VARVE_ERROR_IO,
                                   "%.300s: cannot be written: %s", path, strerror(errno));
    }
    varve_publish_folder_remove(folder);
    return result;
}

/* In two steps, where the file system cannot do it in one: nothing that is there is overwritten by them either. */
static int move_without_replacing(const char *from, const char *path)
{
    struct stat status;
    if (lstat(from, &status) != 0 || !S_ISDIR(status.st_mode)) {
        if (link(from, path) != 0) {
            return -1;
        }
        unlink(from);
        return 0;
    }
    if (mkdir(path, 0700) != 0) { /* an empty folder may be replaced by rename */
        return -1;
    }
    if (rename(from, path) == 0) {
        return 0;
    }
    int reason = errno;
    rmdir(path);
    errno = reason;
    return -1;
}

int varve_publish_move(const char *from, const char *path, bool may_replace, struct varve_message *message)
{
    int result = may_replace ? varve_publish_check(path, true, message) : VARVE_OK;
    if (result != VARVE_OK) {
        return result;
    }
    result = renameat2(AT_FDCWD, from, AT_FDCWD, path, may_replace ? 0 : RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS) && !may_replace) {
        result = move_without_replacing(from, path);
    }
    if (result != 0 && errno == EXDEV) {
        result = publish_copy(from, path, may_replace, message);
        if (result == VARVE_OK) {
            unlink(from);
        }
        return result;
    }
    if (result != 0) {
        return errno == EEXIST
                   ? varve_message_set(message, VARVE_ERROR_INVALID,
                                       "%.300s: was created meanwhile, and is not overwritten without --force", path)
                   : varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be moved there: %s", path,
                                       strerror(errno));
    }
    return VARVE_OK;
}

void varve_publish_abandon(void)
{
    if (unfinished[0] != '\0' && unfinished_by == getpid()) {
        varve_publish_folder_remove(unfinished);
    }
}

int publish_file(const char *folder, const char *path, bool may_replace, struct varve_message *message)
{
    char from[4096 + 64];
    snprintf(from, sizeof(from), "%.4096s/trace.db", folder);
    return varve_publish_move(from, path, may_replace, message);
}
