/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace under another name, without what is damaged: links to the metadata and to whole streams, copies of
 * the whole packets of others. Everything lies in one scratch folder, which is removed in the end. Only
 * damaged traces need that.
 */
#include "analysis/import/ctf/ctf.h"

#include "analysis/output/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES (256U * 1024)

struct ctf_copy {
    char path[PATH_MAX];
    char stream_path[PATH_MAX + 16]; /* of ctf_copy_stream */
    unsigned traces;
    unsigned char buffer[COPY_BYTES];
};

static int fail_errno(const struct ctf_copy *copy, const char *path, struct varve_message *message)
{
    return varve_message_set(message,
                             errno == ENOSPC || errno == EDQUOT  ? VARVE_ERROR_FULL
                             : errno == EACCES || errno == EROFS ? VARVE_ERROR_PERMISSION
                                                                 : VARVE_ERROR_IO,
                             "%s: cannot be copied to %s: %s", path, copy->path, strerror(errno));
}

int ctf_copy_new(const char *near, struct ctf_copy **copy_out, struct varve_message *message)
{
    struct ctf_copy *copy = memory_resize(NULL, sizeof(*copy));
    const char *folder = getenv("TMPDIR");
    int length;

    copy->traces = 0;
    copy->stream_path[0] = '\0';
    length = near != NULL ? snprintf(copy->path, sizeof(copy->path), "%s.ctf-XXXXXX", near)
                          : snprintf(copy->path, sizeof(copy->path), "%s/varve-ctf-XXXXXX",
                                     folder != NULL && folder[0] != '\0' ? folder : "/tmp");
    if (length < 0 || (size_t)length >= sizeof(copy->path) || mkdtemp(copy->path) == NULL) {
        int code = varve_message_set(message, VARVE_ERROR_IO, "%s: no scratch folder can be made: %s",
                                     copy->path, strerror(errno));

        free(copy);
        return code;
    }
    *copy_out = copy;
    return VARVE_OK;
}

static void folder_remove(const char *path)
{
    char *const paths[] = {(char *)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
    FTSENT *entry;

    while (walk != NULL && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info == FTS_DP) {
            rmdir(entry->fts_path);
        } else if (entry->fts_info != FTS_D) {
            unlink(entry->fts_path);
        }
    }
    if (walk != NULL) {
        fts_close(walk);
    }
}

void ctf_copy_free(struct ctf_copy *copy)
{
    if (copy != NULL) {
        folder_remove(copy->path);
        free(copy);
    }
}

/* ---- files ---- */

/* A link must not depend on where it lies. */
static int file_link(struct ctf_copy *copy, const struct ctf_trace *trace, const char *name,
                     const char *folder, struct varve_message *message)
{
    char source[PATH_MAX];
    char target[PATH_MAX];
    char *resolved;
    int code = VARVE_OK;

    if (snprintf(source, sizeof(source), "%s/%s", trace->path, name) >= (int)sizeof(source) ||
        snprintf(target, sizeof(target), "%s/%s", folder, name) >= (int)sizeof(target)) {
        errno = ENAMETOOLONG;
        return fail_errno(copy, name, message);
    }
    resolved = realpath(source, NULL);
    if (resolved == NULL || symlink(resolved, target) != 0) {
        code = fail_errno(copy, source, message);
    }
    free(resolved);
    return code;
}

static bool range_copy(struct ctf_copy *copy, int from, int to, struct ctf_range range)
{
    while (range.bytes > 0) {
        size_t wanted = range.bytes < COPY_BYTES ? (size_t)range.bytes : COPY_BYTES;
        ssize_t got = pread(from, copy->buffer, wanted, (off_t)range.offset);

        if (got <= 0 || write(to, copy->buffer, (size_t)got) != got) {
            errno = got == 0 ? EIO : errno;
            return false;
        }
        range.offset += (uint64_t)got;
        range.bytes -= (uint64_t)got;
    }
    return true;
}

/* A packet that ends where the file does: its sizes are told anew. */
static bool head_repair(int from, int to, struct ctf_range cut)
{
    unsigned char head[64]; /* magic at 0; sizes of the content and of the packet, in bits, at 48 and 56 */
    uint64_t content = 0;
    bool is_big;

    if (pread(from, head, sizeof(head), (off_t)cut.offset) != (ssize_t)sizeof(head)) {
        return false;
    }
    is_big = head[1] == 0xfc; /* of c1 fc 1f c1 */
    for (unsigned i = 0; i < 8; i++) {
        content = content << 8 | head[is_big ? 48 + i : 55 - i];
    }
    content = content < cut.bytes * 8 ? content : cut.bytes * 8;
    for (unsigned i = 0; i < 8; i++) {
        head[is_big ? 55 - i : 48 + i] = (unsigned char)(content >> (8 * i));
        head[is_big ? 63 - i : 56 + i] = (unsigned char)(cut.bytes * 8 >> (8 * i));
    }
    return pwrite(to, head, sizeof(head), 0) == (ssize_t)sizeof(head);
}

static int ranges_copy(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                       const struct ctf_range *ranges, size_t count, bool is_cut, const char *folder,
                       struct varve_message *message)
{
    char source[PATH_MAX];
    char target[PATH_MAX];
    bool is_good;
    int from;
    int to;

    if (snprintf(source, sizeof(source), "%s/%s", trace->path, stream->name) >= (int)sizeof(source) ||
        snprintf(target, sizeof(target), "%s/%s", folder, stream->name) >= (int)sizeof(target)) {
        errno = ENAMETOOLONG;
        return fail_errno(copy, stream->name, message);
    }
    from = open(source, O_RDONLY | O_CLOEXEC);
    to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    is_good = from >= 0 && to >= 0;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = range_copy(copy, from, to, ranges[i]);
    }
    if (is_good && is_cut) {
        is_good = head_repair(from, to, ranges[0]);
    }
    if (!is_good) {
        (void)fail_errno(copy, source, message);
    }
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    return is_good ? VARVE_OK : VARVE_ERROR_IO;
}

static int stream_copy(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                       size_t first, const char *folder, struct varve_message *message)
{
    if (!trace->is_known || (first == 0 && stream->bad_bytes == 0)) {
        return file_link(copy, trace, stream->name, folder, message);
    }
    return ranges_copy(copy, trace, stream, stream->packets + first, stream->packet_count - first, false,
                       folder, message);
}

static int folder_make(struct ctf_copy *copy, const struct ctf_trace *trace, const char *folder,
                       struct varve_message *message)
{
    if (mkdir(folder, 0700) != 0) {
        return fail_errno(copy, trace->path, message);
    }
    return file_link(copy, trace, "metadata", folder, message);
}

/* ---- traces ---- */

/* Anew, in place of the one before. */
static int stream_folder_make(struct ctf_copy *copy, const struct ctf_trace *trace, const char **path_out,
                              struct varve_message *message)
{
    if (copy->stream_path[0] != '\0') {
        folder_remove(copy->stream_path);
    }
    snprintf(copy->stream_path, sizeof(copy->stream_path), "%s/stream", copy->path);
    *path_out = copy->stream_path;
    return folder_make(copy, trace, copy->stream_path, message);
}

int ctf_copy_stream(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                    size_t first, const char **path_out, struct varve_message *message)
{
    int error = stream_folder_make(copy, trace, path_out, message);

    if (error == VARVE_OK && stream != NULL) {
        error = stream_copy(copy, trace, stream, first, copy->stream_path, message);
    }
    return error;
}

int ctf_copy_cut(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                 size_t number, const char **path_out, struct varve_message *message)
{
    int error = stream_folder_make(copy, trace, path_out, message);

    return error != VARVE_OK
               ? error
               : ranges_copy(copy, trace, stream, stream->cuts + number, 1, true, copy->stream_path, message);
}

int ctf_copy_trace(struct ctf_copy *copy, const struct ctf_trace *trace, char **path_out,
                   struct varve_message *message)
{
    char folder[PATH_MAX + 16];
    int error;

    snprintf(folder, sizeof(folder), "%s/trace%u", copy->path, copy->traces++);
    *path_out = NULL;
    error = folder_make(copy, trace, folder, message);
    for (size_t i = 0; i < trace->stream_count && error == VARVE_OK; i++) {
        const struct ctf_stream *stream = &trace->streams[i];

        if (!trace->is_known || stream->packet_count > 0) {
            error = stream_copy(copy, trace, stream, 0, folder, message);
        }
    }
    if (error == VARVE_OK) {
        *path_out = memory_copy_text(folder);
    }
    return error;
}
