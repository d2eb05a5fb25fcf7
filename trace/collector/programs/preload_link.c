/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/collector/programs/preload_link.h"

#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEPARATORS " \t\n:" /* in LD_PRELOAD */
#define FOLDER_BYTES 64U

/* Anybody may make folders in /tmp: only one of ours, in which nobody else can put anything, will do. */
static bool own_folder(const char *path)
{
    struct stat status;
    if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        return false;
    }
    errno = EPERM;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static bool leads_to(const char *link, const char *library)
{
    char target[PATH_MAX];
    const ssize_t length = readlink(link, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    return strcmp(target, library) == 0;
}

/* By its number, a library that was put in another's place has a link of its own. */
static bool link_make(const char *library, char *link, size_t bytes)
{
    char folder[FOLDER_BYTES];
    struct stat status;
    snprintf(folder, sizeof(folder), "/tmp/varve-%u", (unsigned)geteuid());
    if (stat(library, &status) != 0 || !own_folder(folder)) {
        return false;
    }
    snprintf(folder, sizeof(folder), "/tmp/varve-%u/%llx-%llx", (unsigned)geteuid(), (unsigned long long)status.st_dev,
             (unsigned long long)status.st_ino);
    snprintf(link, bytes, "%s/libvarve_preload.so", folder);
    return own_folder(folder) &&
           (leads_to(link, library) || symlink(library, link) == 0 ||
            (errno == EEXIST && (leads_to(link, library) || (unlink(link) == 0 && symlink(library, link) == 0))));
}

int preload_link(const char *library, char **name_out, struct varve_message *message)
{
    char link[PATH_MAX];
    *name_out = realpath(library, NULL);
    if (*name_out == NULL) {
        return varve_message_set(message, errno == ENOMEM ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_NOT_FOUND, "'%s': %s",
                                 library, strerror(errno));
    }
    if (strpbrk(*name_out, SEPARATORS) == NULL) {
        return VARVE_OK;
    }
    if (!link_make(*name_out, link, sizeof(link))) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "'%s' can't be preloaded because of the space or colon in its path, and no link to it "
                                 "can be made in /tmp/varve-%u (%s): install varve elsewhere",
                                 *name_out, (unsigned)geteuid(), strerror(errno));
    }
    free(*name_out);
    *name_out = strdup(link);
    return *name_out != NULL ? VARVE_OK : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a path");
}
