/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of PATH, in order: program_find.h. Called by the collector (lttng_daemon.c), imports and the doctor. */
#include "base/program_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool program_find(const char *name, char *path, size_t path_bytes)
{
    const char *folders = getenv("PATH");
    for (; folders != NULL && *folders != '\0'; folders += strspn(folders, ":")) {
        int length = (int)strcspn(folders, ":");
        int written = snprintf(path, path_bytes, "%.*s/%s", length, folders, name);
        if (written > 0 && (size_t)written < path_bytes && access(path, X_OK) == 0) {
            return true;
        }
        folders += length;
    }
    return false;
}
