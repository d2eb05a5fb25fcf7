/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file is, judged by its name, its neighbours and its first 100 bytes, before SQLite touches it.
 * SQLite would answer most wrong files with "file is not a database" or worse with no rows; people need to
 * hear what the file is and what to do: what is no SQLite file, base/file_kind.h names. Called by database.c only.
 *
 * Offsets in the header of an SQLite database (sqlite.org/fileformat2.html, section 1.3), big-endian:
 *   16 page size (1 = 65536)   18 write version (2 = WAL)   24 change counter   28 size in pages
 *   60 user_version   68 application_id   92 change counter for which the size in pages is valid
 */
#include "analysis/query/database.h"

#include "analysis/base/file_kind.h"
#include "analysis/base/number_format.h"
#include "base/error.h"
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 100
#define PATH_BYTES 4096

static uint32_t big_endian_32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3];
}

/* "PATH.d/owner" is there from the first moment of a recording to its last. */
static bool has_owner(const char *directory, bool *is_live_out)
{
    *is_live_out = false;
    char owner[PATH_BYTES];
    if (snprintf(owner, sizeof(owner), "%s/owner", directory) >= (int)sizeof(owner)) {
        return false;
    }
    int descriptor = open(owner, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return errno == EACCES;
    }
    /* The collector holds the lock while it lives. */
    if (flock(descriptor, LOCK_SH | LOCK_NB) != 0) {
        *is_live_out = errno == EWOULDBLOCK;
    }
    close(descriptor);
    return true;
}

static int refuse_directory(const char *path, struct varve_message *message)
{
    bool is_live;
    if (!has_owner(path, &is_live)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is a directory, not a trace database: varve import reads folders of LTTng traces",
                                 path);
    }
    if (is_live) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s is the directory of a recording that is still running: wait for it to end", path);
    }
    return varve_message_set(message, VARVE_ERROR_BUSY,
                             "%s is the directory of an incomplete recording: run varve recover %s", path, path);
}

/* A recording directory beside the database: it is being written, or its collector died. */
static int check_recording(const char *path, struct varve_message *message)
{
    char directory[PATH_BYTES];
    bool is_live;
    if (snprintf(directory, sizeof(directory), "%s.d", path) >= (int)sizeof(directory) ||
        !has_owner(directory, &is_live)) {
        return VARVE_OK;
    }
    if (is_live) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "%s: the recording is still running: wait for it to end",
                                 path);
    }
    return varve_message_set(message, VARVE_ERROR_BUSY, "%s: the recording is incomplete: run varve recover %s", path,
                             directory);
}

static int refuse_other(const char *path, struct varve_message *message)
{
    char head[FILE_KIND_BYTES];
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = descriptor >= 0 ? pread(descriptor, head, sizeof(head), 0) : -1;
    if (descriptor >= 0) {
        close(descriptor);
    }
    return file_kind_refuse(got > 0 ? file_kind_of(head, (size_t)got, path) : NULL, path, "a trace database", message);
}

static int database_file_read_header(const char *path, unsigned char *header, int64_t *bytes_out,
                                     struct varve_message *message)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        int error = errno;
        return varve_message_set(message, error == EACCES ? VARVE_ERROR_PERMISSION : VARVE_ERROR_IO, "%s: %s", path,
                                 strerror(error));
    }
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(descriptor);
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s is not a regular file", path);
    }
    *bytes_out = (int64_t)status.st_size;
    ssize_t got = pread(descriptor, header, HEADER_BYTES, 0);
    close(descriptor);
    if (got < 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "%s cannot be read", path);
    }
    if (got == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s is empty, not a trace database", path);
    }
    if (memcmp(header, "SQLite format 3", (size_t)got < 16 ? (size_t)got : 16) != 0) {
        return refuse_other(path, message);
    }
    if (got < HEADER_BYTES) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s is truncated: only %zd bytes are left", path, got);
    }
    return VARVE_OK;
}

static int check_identity(const char *path, const unsigned char *header, struct varve_message *message)
{
    uint32_t application = big_endian_32(header + 68);
    uint32_t version = big_endian_32(header + 60);
    if (application != VARVE_DATABASE_APPLICATION_ID) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is an SQLite database of another tool (application_id 0x%08" PRIx32
                                 ", a trace has 0x%08" PRIx32 "): varve import reads exports of Nsight Systems",
                                 path, application, (uint32_t)VARVE_DATABASE_APPLICATION_ID);
    }
    if (version > VARVE_DATABASE_SCHEMA_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s was written by a newer varve (schema %" PRIu32
                                 ", this one reads %d): use that version",
                                 path, version, VARVE_DATABASE_SCHEMA_VERSION);
    }
    if (version == 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s has no schema version: not a finished trace", path);
    }
    if (version < VARVE_DATABASE_SCHEMA_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s was written by an older varve (schema %" PRIu32
                                 ", this one reads %d): use that version, or record again",
                                 path, version, VARVE_DATABASE_SCHEMA_VERSION);
    }
    return VARVE_OK;
}

static int check_size(const char *path, const unsigned char *header, int64_t bytes, struct varve_message *message)
{
    int64_t page = (int64_t)header[16] << 8 | header[17];
    int64_t pages = big_endian_32(header + 28);
    page = page == 1 ? 65536 : page;
    if (big_endian_32(header + 24) == big_endian_32(header + 92) && pages * page > bytes) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s is truncated: %s of %s bytes are there", path,
                                 format_count(bytes).text, format_count(pages * page).text);
    }
    return VARVE_OK;
}

/* What SQLite would open beside the database, whatever it is. */
static int database_file_check_neighbours(const char *path, struct database_file *file, struct varve_message *message)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char name[PATH_BYTES];
        struct stat status;
        if (snprintf(name, sizeof(name), "%s%s", path, suffixes[i]) >= (int)sizeof(name) || stat(name, &status) != 0) {
            continue;
        }
        if (!S_ISREG(status.st_mode)) {
            return varve_message_set(message, VARVE_ERROR_FORMAT, "%s is not a regular file", name);
        }
        /* While a log holds the newest pages, the header in the file may lack its identity: so this comes
         * before that is looked at. */
        if (i == 0 && file->is_wal && status.st_size > 0) {
            return varve_message_set(message, VARVE_ERROR_BUSY,
                                     "%s: the recording is incomplete or still running (%s-wal holds a part of it): "
                                     "wait for it, or run varve recover %s.d",
                                     path, path, path);
        }
        file->is_wal |= i == 0; /* SQLite goes by the log, not by the header */
    }
    return VARVE_OK;
}

int database_file_check(const char *path, struct database_file *file_out, struct varve_message *message)
{
    *file_out = (struct database_file){0};
    struct stat status;
    if (stat(path, &status) != 0) {
        int error = errno;
        if (error == ENOENT && check_recording(path, message) != VARVE_OK) {
            return VARVE_ERROR_BUSY;
        }
        return varve_message_set(message, error == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_IO, "%s: %s", path,
                                 error == ENOENT ? "no such file" : strerror(error));
    }
    if (S_ISDIR(status.st_mode)) {
        return refuse_directory(path, message);
    }
    int result = check_recording(path, message);
    int64_t bytes = 0;
    unsigned char header[HEADER_BYTES] = {0};
    VARVE_THEN(result, database_file_read_header(path, header, &bytes, message));
    if (result != VARVE_OK) {
        return result;
    }
    file_out->is_wal = header[18] == 2 || header[19] == 2;
    result = database_file_check_neighbours(path, file_out, message);
    if (result != VARVE_OK) {
        return result;
    }
    result = check_identity(path, header, message);
    return result == VARVE_OK ? check_size(path, header, bytes, message) : result;
}

int database_file_check_other(const char *path, struct database_file *file_out, struct varve_message *message)
{
    unsigned char header[HEADER_BYTES] = {0};
    int64_t bytes = 0;
    int error = database_file_read_header(path, header, &bytes, message);
    *file_out = (struct database_file){0};
    if (error != VARVE_OK) {
        return error;
    }
    if (big_endian_32(header + 68) == VARVE_DATABASE_APPLICATION_ID) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s is a trace database already", path);
    }
    char log[PATH_BYTES];
    struct stat status;
    file_out->is_wal =
        header[18] == 2 || (snprintf(log, sizeof(log), "%s-wal", path) < (int)sizeof(log) && stat(log, &status) == 0);
    return check_size(path, header, bytes, message);
}
