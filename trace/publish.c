/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database that is there whole or not at all: it grows in a folder beside its place and moves there at the
 * end. Used by whoever makes one without a recording: writer.c and rebuild.c.
 */
#include "trace/collect_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int publish_folder_make(const char *path, bool may_replace, char *folder, size_t folder_bytes,
                        struct varve_message *message)
{
    struct stat status;
    int code;

    if (lstat(path, &status) == 0 && (!may_replace || S_ISDIR(status.st_mode))) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%.300s: exists already%s", path,
                                 S_ISDIR(status.st_mode) ? ", and is a folder" : "; name another file");
    }
    if ((size_t)snprintf(folder, folder_bytes, "%s.XXXXXX", path) >= folder_bytes) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    if (mkdtemp(folder) != NULL) {
        return VARVE_OK;
    }
    code = errno == ENOENT || errno == ENOTDIR                   ? VARVE_ERROR_NOT_FOUND
           : errno == EACCES || errno == EPERM || errno == EROFS ? VARVE_ERROR_PERMISSION
           : errno == ENOSPC || errno == EDQUOT                  ? VARVE_ERROR_FULL
                                                                 : VARVE_ERROR_IO;
    return varve_message_set(message, code, "%.300s: cannot be written: %s", path, strerror(errno));
}

int publish_file(const char *folder, const char *path, bool may_replace, struct varve_message *message)
{
    char from[4096 + 64];
    int result;

    snprintf(from, sizeof(from), "%.4096s/trace.db", folder);
    result = renameat2(AT_FDCWD, from, AT_FDCWD, path, may_replace ? 0 : RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS) && !may_replace) {
        /* This file system cannot do it in one step. */
        result = link(from, path);
    }
    if (result != 0) {
        return varve_message_set(message, errno == EEXIST ? VARVE_ERROR_INVALID : VARVE_ERROR_IO,
                                 "%.300s: cannot move the database there: %s", path, strerror(errno));
    }
    return VARVE_OK;
}
