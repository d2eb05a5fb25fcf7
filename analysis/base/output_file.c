/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/base/output_file.h"
#include "base/error.h"
#include "base/publish.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

int output_check(const char *path, bool may_replace, const char *const *inputs, int count,
                 struct varve_message *message)
{
    struct stat output;
    struct stat input;
    int error = varve_publish_check(path, may_replace, message);
    for (int i = 0; i < count && error == VARVE_OK && stat(path, &output) == 0; i++) {
        if (stat(inputs[i], &input) == 0 && output.st_dev == input.st_dev && output.st_ino == input.st_ino) {
            error = varve_message_set(message, VARVE_ERROR_INVALID,
                                      "%.300s: is what is read, and would be lost; name another file", path);
        }
    }
    return error;
}

int output_file(const char *path, bool may_replace, output_writer *write, const void *subject,
                struct varve_message *message)
{
    char folder[4096];
    int error = varve_publish_folder_make(path, may_replace, folder, sizeof(folder), message);
    if (error != VARVE_OK) {
        return error;
    }
    char whole[4096 + 16];
    snprintf(whole, sizeof(whole), "%s/whole", folder);
    FILE *out = fopen(whole, "wbxe");
    bool is_whole = false;
    if (out != NULL) {
        error = write(subject, out, message);
        is_whole = !ferror(out);
        is_whole = fclose(out) == 0 && is_whole;
    }
    if (!is_whole && error == VARVE_OK) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    VARVE_THEN(error, varve_publish_move(whole, path, may_replace, message));
    varve_publish_folder_remove(folder);
    return error;
}

int output_folder(const char *path, output_folder_writer *write, const void *subject, struct varve_message *message)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    char place[4096];
    if (snprintf(place, sizeof(place), "%.*s", (int)length, path) >= (int)sizeof(place)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    struct stat status;
    if (lstat(place, &status) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%.300s: exists already; name another folder, which will be made", path);
    }
    char folder[4096];
    int error = varve_publish_folder_make(place, false, folder, sizeof(folder), message);
    if (error != VARVE_OK) {
        return error;
    }
    error = write(subject, folder, message);
    VARVE_THEN(error, varve_publish_move(folder, place, false, message));
    varve_publish_folder_remove(folder);
    return error;
}
