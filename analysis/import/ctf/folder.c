/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CTF traces as files, before babeltrace2 sees them. It aborts where the head of a packet is damaged, reads
 * for ever where the metadata is cut, and opens nothing of a trace one of whose streams is cut, as after a
 * full disk. So heads are checked here: LTTng-UST has laid them out the same way for ten years, and says in
 * the metadata that it is the tracer. Streams of other tracers are left to babeltrace2 as they are.
 *
 *   metadata packet (bytes)   0 magic, 4 uuid, 24 content and 28 packet in bits (32 bits each), 37 text
 *   packet of a stream        0 magic, 4 uuid, 20 stream, 24 instance, 32 begin, 40 end, 48 content and
 *                             56 packet in bits (64 bits each), 64 number, 72 discarded, 80 processor
 */
#include "analysis/import/ctf/ctf.h"

#include "analysis/output/format.h"
#include "analysis/output/memory.h"
#include "analysis/query/db.h"

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
#define METADATA_BYTES_MAX (INT64_C(256) * 1024 * 1024)
#define PACKET_MAGIC UINT32_C(0xc1fc1fc1)
#define PACKET_HEAD_BYTES 84U
#define UUID_BYTES 16U
#define SEARCH_BYTES (1024U * 1024)
#define INDEX "index"
#define HOLE_SHARE 64 /* padding may have become holes: that many bytes for each on the disk */
#define HOLE_SLACK (INT64_C(64) * 1024 * 1024)

static const char tracer[] = "tracer_name = \"lttng-ust\"";

static int fail_errno(struct varve_message *message, const char *path)
{
    int code = errno == EACCES || errno == EPERM     ? VARVE_ERROR_PERMISSION
               : errno == ENOENT || errno == ENOTDIR ? VARVE_ERROR_NOT_FOUND
                                                     : VARVE_ERROR_IO;

    return varve_message_set(message, code, "%s: %s", path, strerror(errno));
}

static uint64_t number_at(const unsigned char *bytes, unsigned width, bool is_big)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < width; i++) {
        number = number << 8 | bytes[is_big ? i : width - 1 - i];
    }
    return number;
}

/* Only files are read, by us and by babeltrace2: a pipe would wait for ever. One that is nearly all hole is
 * no trace, and walking and copying it would take as long, and as much of the disk, as it pretends to have.
 */
static int file_check(const char *path, const struct stat *status, struct varve_message *message)
{
    int64_t stored = (int64_t)status->st_blocks * 512;

    if (!S_ISREG(status->st_mode)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: is no file, as all of a CTF trace are",
                                 path);
    }
    if (status->st_size / HOLE_SHARE > stored + HOLE_SLACK / HOLE_SHARE) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s: of %s only %s are on the disk: no CTF trace", path,
                                 format_bytes(status->st_size).text, format_bytes(stored).text);
    }
    return VARVE_OK;
}

/* ---- metadata ---- */

/* The text of a packet or, without packets, all of it; false where it is cut or its sizes are impossible. */
static bool metadata_text(const unsigned char *bytes, size_t count, char *text)
{
    bool is_big = count >= 4 && number_at(bytes, 4, true) == METADATA_MAGIC;
    size_t length = 0;

    if (count < 4 || (!is_big && number_at(bytes, 4, false) != METADATA_MAGIC)) {
        memcpy(text, bytes, count);
        text[count] = '\0';
        return true;
    }
    while (count > 0) {
        uint64_t content;
        uint64_t packet;

        if (count < METADATA_HEAD_BYTES || number_at(bytes, 4, is_big) != METADATA_MAGIC) {
            return false;
        }
        content = number_at(bytes + 24, 4, is_big) / 8;
        packet = number_at(bytes + 28, 4, is_big) / 8;
        if (content < METADATA_HEAD_BYTES || content > packet || packet > count) {
            return false;
        }
        memcpy(text + length, bytes + METADATA_HEAD_BYTES, content - METADATA_HEAD_BYTES);
        length += content - METADATA_HEAD_BYTES;
        bytes += packet;
        count -= packet;
    }
    text[length] = '\0';
    return true;
}

/* The first one is the trace's. */
static bool metadata_uuid(const char *text, unsigned char uuid[UUID_BYTES])
{
    static const char before[] = "uuid = \"";
    const char *at = strstr(text, before);
    unsigned digits = 0;

    memset(uuid, 0, UUID_BYTES);
    for (at = at != NULL ? at + strlen(before) : ""; *at != '"' && *at != '\0' && digits < 2 * UUID_BYTES;
         at++) {
        char digit[2] = {*at, '\0'};

        if (strspn(digit, "0123456789abcdefABCDEF") == 1) {
            uuid[digits / 2] = (unsigned char)(uuid[digits / 2] << 4 | strtoul(digit, NULL, 16));
            digits++;
        } else if (*at != '-') {
            return false;
        }
    }
    return digits == 2 * UUID_BYTES;
}

static int file_load(const char *path, unsigned char **bytes_out, size_t *count_out,
                     struct varve_message *message)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    unsigned char *bytes = NULL;
    struct stat status;
    size_t count = 0;
    int code;

    if (descriptor < 0 || fstat(descriptor, &status) != 0 || status.st_size > METADATA_BYTES_MAX) {
        code = descriptor < 0 ? fail_errno(message, path)
                              : varve_message_set(message, VARVE_ERROR_FORMAT, "%s: too large", path);
        if (descriptor >= 0) {
            close(descriptor);
        }
        return code;
    }
    bytes = memory_resize(NULL, (size_t)status.st_size + 1);
    while (count < (size_t)status.st_size) {
        ssize_t got = read(descriptor, bytes + count, (size_t)status.st_size - count);

        if (got <= 0) {
            break;
        }
        count += (size_t)got;
    }
    close(descriptor);
    *bytes_out = bytes;
    *count_out = count;
    return VARVE_OK;
}

static int metadata_check(struct ctf_trace *trace, unsigned char uuid[UUID_BYTES],
                          struct varve_message *message)
{
    char *path = memory_resize(NULL, strlen(trace->path) + sizeof("/" METADATA));
    unsigned char *bytes = NULL;
    size_t count = 0;
    char *text;
    int error;

    sprintf(path, "%s/" METADATA, trace->path);
    error = file_load(path, &bytes, &count, message);
    free(path);
    if (error == VARVE_OK && bytes != NULL) {
        text = memory_resize(NULL, count + 1);
        trace->is_unreadable = !metadata_text(bytes, count, text);
        trace->is_known = !trace->is_unreadable && strstr(text, tracer) != NULL && metadata_uuid(text, uuid);
        free(text);
    }
    free(bytes);
    return error;
}

/* ---- packets ---- */

struct walk {
    int descriptor;
    const unsigned char *uuid;
    uint64_t file_bytes;
    uint64_t offset;
};

enum packet_state {
    PACKET_BAD,
    PACKET_CUT, /* its head is good, but it is longer than what is left of the file */
    PACKET_WHOLE,
};

/* What begins here. */
static enum packet_state packet_look(const struct walk *walk, uint64_t *bytes_out)
{
    unsigned char head[PACKET_HEAD_BYTES];
    uint64_t content;
    uint64_t packet;
    bool is_big;

    if (pread(walk->descriptor, head, sizeof(head), (off_t)walk->offset) != (ssize_t)sizeof(head)) {
        return PACKET_BAD;
    }
    is_big = number_at(head, 4, true) == PACKET_MAGIC;
    if ((!is_big && number_at(head, 4, false) != PACKET_MAGIC) ||
        memcmp(head + 4, walk->uuid, UUID_BYTES) != 0) {
        return PACKET_BAD;
    }
    content = number_at(head + 48, 8, is_big);
    packet = number_at(head + 56, 8, is_big);
    if (packet % 8 != 0 || content > packet || content < PACKET_HEAD_BYTES * 8) {
        return PACKET_BAD;
    }
    *bytes_out = packet / 8;
    return packet / 8 > walk->file_bytes - walk->offset ? PACKET_CUT : PACKET_WHOLE;
}

/* Where the next head could be, behind this place. */
static uint64_t packet_search(const struct walk *walk, unsigned char *buffer)
{
    uint64_t offset = walk->offset + 1;

    for (;;) {
        ssize_t count = pread(walk->descriptor, buffer, SEARCH_BYTES, (off_t)offset);
        unsigned char *found =
            count >= (ssize_t)(4 + UUID_BYTES) ? memmem(buffer, (size_t)count, walk->uuid, UUID_BYTES) : NULL;

        if (found != NULL && found - buffer >= 4) {
            return offset + (uint64_t)(found - buffer) - 4;
        }
        if (found != NULL) { /* its magic would be before this place */
            offset += (uint64_t)(found - buffer) + 1;
        } else if (count < (ssize_t)SEARCH_BYTES) {
            return walk->file_bytes;
        } else {
            offset += SEARCH_BYTES - UUID_BYTES - 3;
        }
    }
}

static void range_add(struct ctf_range **ranges, size_t *count, uint64_t offset, uint64_t bytes)
{
    if ((*count & (*count - 1)) == 0) { /* full at the powers of two */
        *ranges = memory_resize(*ranges, (*count > 0 ? *count * 2 : 1) * sizeof((*ranges)[0]));
    }
    (*ranges)[(*count)++] = (struct ctf_range){offset, bytes};
}

static void stream_walk(struct ctf_stream *stream, int descriptor, const unsigned char *uuid)
{
    struct walk walk = {.descriptor = descriptor, .uuid = uuid, .file_bytes = stream->bytes};
    unsigned char *buffer = NULL;

    while (walk.offset < walk.file_bytes) {
        uint64_t bytes = 0;
        enum packet_state state = packet_look(&walk, &bytes);

        if (state == PACKET_WHOLE) {
            range_add(&stream->packets, &stream->packet_count, walk.offset, bytes);
        } else {
            buffer = buffer != NULL ? buffer : memory_resize(NULL, SEARCH_BYTES);
            bytes = packet_search(&walk, buffer) - walk.offset;
            stream->bad_bytes += bytes;
        }
        if (state == PACKET_CUT) {
            range_add(&stream->cuts, &stream->cut_count, walk.offset, bytes);
        }
        walk.offset += bytes;
    }
    free(buffer);
}

/* ---- folders ---- */

static int stream_add(struct ctf_trace *trace, DIR *directory, const char *name, const unsigned char *uuid,
                      struct varve_message *message)
{
    struct ctf_stream *stream;
    struct stat status;
    char path[4096];
    int descriptor;
    int error;

    if (name[0] == '.' || strcmp(name, METADATA) == 0 || fstatat(dirfd(directory), name, &status, 0) != 0 ||
        S_ISDIR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size == 0)) {
        return VARVE_OK;
    }
    snprintf(path, sizeof(path), "%s/%s", trace->path, name);
    error = file_check(path, &status, message);
    if (error != VARVE_OK) {
        return error;
    }
    descriptor = openat(dirfd(directory), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return fail_errno(message, path);
    }
    trace->streams = memory_resize(trace->streams, (trace->stream_count + 1) * sizeof(trace->streams[0]));
    stream = &trace->streams[trace->stream_count++];
    *stream = (struct ctf_stream){.name = memory_copy_text(name), .bytes = (uint64_t)status.st_size};
    if (trace->is_known) {
        stream_walk(stream, descriptor, uuid);
        trace->has_damage |= stream->bad_bytes > 0;
    }
    close(descriptor);
    return VARVE_OK;
}

/* What babeltrace2 reads beside the streams. */
static int indexes_check(const struct ctf_trace *trace, struct varve_message *message)
{
    char path[4096];
    struct stat status;
    const struct dirent *entry;
    DIR *directory;
    int error = VARVE_OK;

    snprintf(path, sizeof(path), "%s/" INDEX, trace->path);
    directory = opendir(path);
    while (directory != NULL && error == VARVE_OK && (entry = readdir(directory)) != NULL) {
        if (fstatat(dirfd(directory), entry->d_name, &status, 0) == 0 && !S_ISDIR(status.st_mode)) {
            snprintf(path, sizeof(path), "%s/" INDEX "/%s", trace->path, entry->d_name);
            error = file_check(path, &status, message);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return error;
}

static int trace_add(struct ctf_folder *folder, const char *path, struct varve_message *message)
{
    unsigned char uuid[UUID_BYTES];
    struct ctf_trace *trace;
    struct dirent *entry;
    DIR *directory;
    int error;

    folder->traces = memory_resize(folder->traces, (folder->count + 1) * sizeof(folder->traces[0]));
    trace = &folder->traces[folder->count++];
    *trace = (struct ctf_trace){.path = memory_copy_text(path)};
    error = metadata_check(trace, uuid, message);
    if (error != VARVE_OK) {
        return error;
    }
    directory = opendir(path);
    if (directory == NULL) {
        return fail_errno(message, path);
    }
    while (error == VARVE_OK && (entry = readdir(directory)) != NULL) {
        error = stream_add(trace, directory, entry->d_name, uuid, message);
    }
    closedir(directory);
    return error == VARVE_OK ? indexes_check(trace, message) : error;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int folder_search(const char *path, struct ctf_folder *folder, struct varve_message *message)
{
    char *const paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    int error = VARVE_OK;
    FTSENT *entry;

    if (walk == NULL) {
        return fail_errno(message, path);
    }
    while (error == VARVE_OK && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
            errno = entry->fts_errno;
            error = fail_errno(message, entry->fts_path);
        } else if (entry->fts_info == FTS_F && strcmp(entry->fts_name, METADATA) == 0) {
            char *trace = memory_copy_text(entry->fts_path);

            trace[strlen(trace) - sizeof("/" METADATA) + 1] = '\0';
            error = trace_add(folder, trace, message);
            free(trace);
        }
    }
    fts_close(walk);
    return error;
}

int ctf_folder_open(const char *path, struct ctf_folder *folder, struct varve_message *message)
{
    bool is_known = true;
    int error;

    *folder = (struct ctf_folder){0};
    error = folder_search(path, folder, message);
    if (error == VARVE_OK && folder->count == 0) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT,
                                  "%s: no CTF trace in it (a folder with a file named metadata)", path);
    }
    if (error != VARVE_OK) {
        ctf_folder_close(folder);
        return error;
    }
    for (size_t i = 0; i < folder->count; i++) {
        is_known &= folder->traces[i].is_known;
        for (size_t k = 0; k < folder->traces[i].stream_count; k++) {
            folder->packets += folder->traces[i].streams[k].packet_count;
        }
    }
    if (!is_known) {
        folder->packets = 0;
    }
    return VARVE_OK;
}

void ctf_folder_close(struct ctf_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        for (size_t k = 0; k < folder->traces[i].stream_count; k++) {
            free(folder->traces[i].streams[k].name);
            free(folder->traces[i].streams[k].packets);
            free(folder->traces[i].streams[k].cuts);
        }
        free(folder->traces[i].streams);
        free(folder->traces[i].path);
    }
    free(folder->traces);
    *folder = (struct ctf_folder){0};
}
