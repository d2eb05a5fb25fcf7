/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/import/import_log.h"

#include "analysis/base/file_kind.h"
#include "analysis/base/input_stream.h"
#include "analysis/base/number_format.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES 256

/* A log of RMM needs no header, so its lines are the last thing to be looked for. */
static enum import_source source_of(const struct file_kind *kind, const struct input_stream *input)
{
    const char *begin = (const char *)input->next;
    size_t count = (size_t)(input->end - input->next);
    const char *newline = count > 0 ? memchr(begin, '\n', count) : NULL;
    if (kind != NULL && kind->use == FILE_DATABASE && input_stream_packing(input) == NULL) {
        return IMPORT_SOURCE_DATABASE;
    }
    if (kind != NULL && (kind->use == FILE_SNAPSHOT || kind->use == FILE_OLD_SAVE)) {
        return IMPORT_SOURCE_PYTORCH;
    }
    if (count > 0 && rmm_is_line(begin, newline != NULL ? (size_t)(newline - begin) : count)) {
        return IMPORT_SOURCE_RMM;
    }
    return kind != NULL && (kind->use == FILE_LOG || kind->use == FILE_JSON) ? IMPORT_SOURCE_PROFILER
                                                                             : IMPORT_SOURCE_UNKNOWN;
}

int import_recognise(struct input_stream *input, enum import_source *source_out, struct varve_message *message)
{
    const struct file_kind *kind;
    int error = input_stream_kind(input, &kind, message);
    *source_out = error == VARVE_OK ? source_of(kind, input) : IMPORT_SOURCE_UNKNOWN;
    return error;
}

static int import_log_refuse(struct input_stream *input, struct varve_message *message)
{
    const struct file_kind *kind;
    int error = input_stream_kind(input, &kind, message);
    VARVE_THEN(error, file_kind_refuse(kind, input_stream_path(input), NULL, message));
    input_stream_close(input);
    return error;
}

/* The number in NAME.devN.csv, else `otherwise`. */
static unsigned import_log_device_of(const char *path, unsigned otherwise)
{
    const char *at = strstr(format_base_name(path), ".dev");
    if (at == NULL || at[4] < '0' || at[4] > '9') {
        return otherwise;
    }
    char *end;
    unsigned long number = strtoul(at + 4, &end, 10);
    return number < DEVICES && (*end == '.' || *end == '\0') ? (unsigned)number : otherwise;
}

static int read_rmm(const char *const *paths, size_t count, struct input_stream *first,
                    struct import_requests *requests, struct progress *progress, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < count && error == VARVE_OK; i++) {
        struct input_stream *input = first;
        enum import_source source = IMPORT_SOURCE_RMM;
        if (i > 0) {
            error = input_stream_open(paths[i], &input, message);
            error = error == VARVE_OK ? import_recognise(input, &source, message) : error;
        }
        if (error == VARVE_OK && source != IMPORT_SOURCE_RMM) {
            error = varve_message_set(message, VARVE_ERROR_FORMAT,
                                      "%s is no RMM log: only these can be imported several at a time", paths[i]);
        }
        if (error == VARVE_OK) {
            error = rmm_read(input, import_log_device_of(paths[i], (unsigned)i), i * IMPORT_NUMBERS_PER_FILE, requests,
                             progress, message);
        } else if (i > 0) {
            input_stream_close(input);
        }
    }
    return error;
}

/* The requests of the source that `input`, which is taken, begins with. */
static int read_source(const char *const *paths, size_t count, enum import_source source, struct input_stream *input,
                       struct import_requests **requests_out, struct progress *progress, struct varve_message *message)
{
    switch (source) {
    case IMPORT_SOURCE_RMM:
        *requests_out = import_requests_new("RMM log", "line");
        return read_rmm(paths, count, input, *requests_out, progress, message);
    case IMPORT_SOURCE_PROFILER:
        *requests_out = import_requests_new("PyTorch profiler trace", "event");
        return profiler_read(input, *requests_out, progress, message);
    case IMPORT_SOURCE_DATABASE:
        input_stream_close(input);
        *requests_out = import_requests_new("Nsight Systems export", "row");
        return nsight_read(paths[0], *requests_out, progress, message);
    default:
        return import_log_refuse(input, message);
    }
}

int import_log(const char *const *paths, size_t count, struct input_stream *input, enum import_source source,
               const char *output, bool may_replace, struct progress *progress, struct import_log_result *result,
               struct varve_message *message)
{
    if (count > 1 && source != IMPORT_SOURCE_RMM) {
        input_stream_close(input);
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is no RMM log: only these can be imported several at a time", paths[0]);
    }
    if (count > DEVICES) {
        input_stream_close(input);
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%zu logs: no machine has that many GPUs", count);
    }
    struct import_requests *requests = NULL;
    int error = read_source(paths, count, source, input, &requests, progress, message);
    VARVE_THEN(error, import_requests_write(requests, source == IMPORT_SOURCE_RMM ? IMPORT_BY_NUMBER : IMPORT_BY_TIME,
                                            paths[0], output, may_replace, progress, result, message));
    import_requests_free(requests);
    return error;
}
