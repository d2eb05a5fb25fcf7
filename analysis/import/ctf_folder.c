/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CTF traces of a folder and looks at what babeltrace2 would not survive: ctf.h. Called by
 * import_ctf.c.
 *
 *   a packet of metadata (bytes)   0 magic, 4 uuid, 24 content and 28 packet in bits (32 bits each), 37 text
 */
#include "analysis/import/ctf.h"

#include "analysis/base/number_format.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define METADATA "metadata"
#define METADATA_MAGIC UINT32_C(0x75d11d57)
#define METADATA_HEAD_BYTES 37U
#define HOLE_SHARE 64 /* padding may have become holes: that many bytes for each on the disk */
#define HOLE_SLACK (INT64_C(64) * 1024 * 1024)

static int fail_errno(struct varve_message *message, const char *path)
{
    int error = errno == EACCES || errno == EPERM     ? VARVE_ERROR_PERMISSION
                : errno == ENOENT || errno == ENOTDIR ? VARVE_ERROR_NOT_FOUND
                                                      : VARVE_ERROR_IO;
    return varve_message_set(message, error, "%s: %s", path, strerror(errno));
}

static uint64_t ctf_folder_number_at(const unsigned char *bytes, unsigned width, bool is_big)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < width; i++) {
        number = number << 8 | bytes[is_big ? i : width - 1 - i];
    }
    return number;
}

/* A pipe would be waited for for ever. A file that is nearly all hole is no trace, and reading it would take as long as
 * it pretends to be. */
static int ctf_folder_file_check(const char *path, const struct stat *status, struct varve_message *message)
{
    int64_t stored = (int64_t)status->st_blocks * 512;
    if (!S_ISREG(status->st_mode)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: is not a regular file, as all of a CTF trace are",
                                 path);
    }
    if (status->st_size / HOLE_SHARE > stored + HOLE_SLACK / HOLE_SHARE) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: of %s only %s are on the disk: no CTF trace", path,
                                 BYTES(status->st_size), BYTES(stored));
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return fail_errno(message, path);
    }
    close(descriptor);
    return VARVE_OK;
}

/* ---- metadata ---- */

/* False where a packet is cut, or its sizes are impossible; a file without packets is text. */
static bool packets_are_whole(FILE *file, int64_t bytes)
{
    unsigned char head[METADATA_HEAD_BYTES];
    int64_t offset = 0;
    while (offset < bytes) {
        size_t got = fseeko(file, (off_t)offset, SEEK_SET) == 0 ? fread(head, 1, sizeof(head), file) : 0;
        bool is_big = got >= 4 && ctf_folder_number_at(head, 4, true) == METADATA_MAGIC;
        if (got < 4 || (!is_big && ctf_folder_number_at(head, 4, false) != METADATA_MAGIC)) {
            return offset == 0;
        }
        if (got < sizeof(head)) {
            return false;
        }
        uint64_t content = ctf_folder_number_at(head + 24, 4, is_big) / 8;
        uint64_t packet = ctf_folder_number_at(head + 28, 4, is_big) / 8;
        if (content < METADATA_HEAD_BYTES || content > packet || packet > (uint64_t)(bytes - offset)) {
            return false;
        }
        offset += (int64_t)packet;
    }
    return true;
}

static int metadata_check(const char *path, const struct stat *status, struct varve_message *message)
{
    int error = ctf_folder_file_check(path, status, message);
    FILE *file = error == VARVE_OK ? fopen(path, "re") : NULL;
    if (error == VARVE_OK && file == NULL) {
        return fail_errno(message, path);
    }
    if (error == VARVE_OK && !packets_are_whole(file, status->st_size)) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT, "%s: is cut or damaged", path);
    }
    if (file != NULL) {
        fclose(file);
    }
    return error;
}

/* ---- folders ---- */

/* Files beside the metadata, or those of the index; `*count` of them are not empty. */
static int files_check(const char *path, size_t *count, struct varve_message *message)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return errno == ENOENT ? VARVE_OK : fail_errno(message, path);
    }
    const struct dirent *entry;
    int error = VARVE_OK;
    while (error == VARVE_OK && (entry = readdir(directory)) != NULL) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        struct stat status;
        if (entry->d_name[0] == '.' || fstatat(dirfd(directory), entry->d_name, &status, 0) != 0 ||
            S_ISDIR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size == 0)) {
            continue;
        }
        if (strcmp(entry->d_name, METADATA) == 0) {
            error = metadata_check(file, &status, message);
        } else {
            error = ctf_folder_file_check(file, &status, message);
            (*count)++;
        }
    }
    closedir(directory);
    return error;
}

static int trace_add(struct ctf_folder *folder, const char *path, struct varve_message *message)
{
    char index[4096];
    size_t streams = 0;
    int error = files_check(path, &streams, message);
    snprintf(index, sizeof(index), "%s/index", path);
    size_t indexes = 0;
    VARVE_THEN(error, files_check(index, &indexes, message));
    if (error == VARVE_OK && streams > 0) {
        folder->traces = memory_resize(folder->traces, (folder->count + 1) * sizeof(folder->traces[0]));
        folder->traces[folder->count++] = memory_copy_text(path);
    }
    return error;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int folder_search(const char *path, struct ctf_folder *folder, size_t *found, struct varve_message *message)
{
    char *const paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    if (walk == NULL) {
        return fail_errno(message, path);
    }
    int error = VARVE_OK;
    FTSENT *entry;
    while (error == VARVE_OK && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
            errno = entry->fts_errno;
            error = fail_errno(message, entry->fts_path);
        } else if (entry->fts_info == FTS_F && strcmp(entry->fts_name, METADATA) == 0) {
            char *trace = memory_copy_text(entry->fts_path);
            trace[strlen(trace) - sizeof("/" METADATA) + 1] = '\0';
            (*found)++;
            error = trace_add(folder, trace, message);
            free(trace);
        }
    }
    fts_close(walk);
    return error;
}

int ctf_folder_open(const char *path, struct ctf_folder *folder, struct varve_message *message)
{
    *folder = (struct ctf_folder){0};
    size_t found = 0;
    int error = folder_search(path, folder, &found, message);
    if (error == VARVE_OK && folder->count == 0) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT,
                                  found > 0 ? "%s: no varve events in it, nor any others"
                                            : "%s: no CTF trace in it (a folder with a file named metadata)",
                                  path);
    }
    return error;
}

void ctf_folder_close(struct ctf_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        free(folder->traces[i]);
    }
    free(folder->traces);
    *folder = (struct ctf_folder){0};
}
