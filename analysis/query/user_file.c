/* SPDX-License-Identifier: Apache-2.0 */
/* Small texts of the user's, read whole. hidden_lines.c and report/leak_suppress.c call it. */
#include "analysis/query/hidden_lines.h"

#include "analysis/base/memory_or_exit.h"
#include "base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (1U << 20)

static bool config_path(const char *name, char *path, size_t bytes)
{
    const char *folder = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (folder != NULL && folder[0] == '/') {
        return (size_t)snprintf(path, bytes, "%s/varve/%s", folder, name) < bytes;
    }
    return home != NULL && home[0] == '/' && (size_t)snprintf(path, bytes, "%s/.config/varve/%s", home, name) < bytes;
}

static int text_read(FILE *file, const char *path, char **text_out, struct varve_message *message)
{
    *text_out = memory_resize(NULL, FILE_BYTES_MAX + 1);
    size_t bytes = fread(*text_out, 1, FILE_BYTES_MAX, file);
    (*text_out)[bytes] = '\0';
    if (ferror(file)) {
        return varve_message_set(message, VARVE_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
    }
    return bytes < FILE_BYTES_MAX ? VARVE_OK
                                  : varve_message_set(message, VARVE_ERROR_INVALID, "%s: larger than 1 MiB", path);
}

static int read_or_refuse(const char *path, bool may_lack, char **text_out, struct varve_message *message)
{
    *text_out = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return may_lack && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
                   ? VARVE_OK
                   : varve_message_set(message, errno == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_IO,
                                       "%s: cannot be read: %s", path, strerror(errno));
    }
    int error = text_read(file, path, text_out, message);
    fclose(file);
    return error;
}

int user_file_of_config(const char *name, char *path, size_t path_bytes, char **text_out, struct varve_message *message)
{
    *text_out = NULL;
    /* who may not read it is somebody else, with the environment of its owner */
    return config_path(name, path, path_bytes) ? read_or_refuse(path, true, text_out, message) : VARVE_OK;
}

int user_file_read(const char *path, char **text_out, struct varve_message *message)
{
    return read_or_refuse(path, false, text_out, message);
}
