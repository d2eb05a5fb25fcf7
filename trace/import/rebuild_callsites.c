/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call-site files of a rebuild. A trace may hold all of it several times (a second LTTng session was started in
 * mid-run): numbers are never used twice, so what has come once is passed over. Called by whoever reads the trace.
 */
#include "base/grown_array.h"
#include "trace/format/callsite_format.h"
#include "trace/import/rebuild.h"
#include "base/error.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (256U << 10)
#define TEXT_BYTES_MAX UINT16_MAX
#define BUILD_ID_BYTES_MAX 64U

void rebuild_callsites_path(const struct varve_rebuild *rebuild, uint64_t file, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/sites%llu", rebuild->folder, (unsigned long long)file);
}

void rebuild_callsites_drop(struct rebuild_callsites *callsites)
{
    for (unsigned tag = 0; tag < REBUILD_TAGS; tag++) {
        free(callsites->seen[tag].words);
    }
}

/* ---- entries ---- */

int rebuild_callsites_flush(struct varve_rebuild *rebuild)
{
    struct rebuild_callsites_buffer *buffer = &rebuild->callsites;
    struct varve_message message;
    char path[REBUILD_PATH_BYTES];
    int code = VARVE_OK;
    if (rebuild->error == VARVE_OK && buffer->count > 0) {
        rebuild_callsites_path(rebuild, buffer->file, path, sizeof(path));
        code = rebuild_file_write(path, buffer->bytes, buffer->count, -1, &message);
        buffer->count = 0;
    }
    return code == VARVE_OK ? rebuild->error : rebuild_keep(rebuild, code, &message);
}

/* Room for an entry of `bytes` after its head, padded with zeros; NULL: an error is kept. */
static uint8_t *entry_begin(struct varve_rebuild *rebuild, struct rebuild_process *process, uint32_t tag, size_t bytes)
{
    struct rebuild_callsites_buffer *buffer = &rebuild->callsites;
    const struct callsite_file_entry entry = {tag, (uint32_t)((bytes + 7) & ~(size_t)7)};
    size_t all = sizeof(entry) + entry.bytes;
    if (buffer->bytes == NULL && (buffer->bytes = malloc(BUFFER_BYTES)) == NULL) {
        rebuild_keep_no_memory(rebuild);
        return NULL;
    }
    assert(all <= BUFFER_BYTES);
    if ((buffer->file != process->file || buffer->count + all > BUFFER_BYTES) &&
        rebuild_callsites_flush(rebuild) != VARVE_OK) {
        return NULL;
    }
    uint8_t *at = buffer->bytes + buffer->count;
    memcpy(at, &entry, sizeof(entry));
    memset(at + sizeof(entry), 0, entry.bytes);
    buffer->file = process->file;
    buffer->count += all;
    process->callsites.has_file = true;
    return at + sizeof(entry);
}

static uint8_t *rebuild_callsites_put(uint8_t *at, const void *bytes, size_t count)
{
    if (count > 0) {
        memcpy(at, bytes, count);
    }
    return at + count;
}

static size_t text_bytes(const char *text)
{
    return text != NULL ? strnlen(text, TEXT_BYTES_MAX) : 0;
}

/* Room for an entry of `bytes` that did not come before, numbered `number` among those of its tag; NULL: it did, or
 * makes no sense, or an error is kept. */
static uint8_t *entry_new(struct varve_rebuild *rebuild, uint32_t process_number, int32_t pid, uint32_t tag,
                          uint32_t number, size_t bytes)
{
    struct rebuild_process *process = rebuild_process_of(rebuild, process_number, pid);
    uint64_t bit = UINT64_C(1) << number % 64;
    if (process == NULL) {
        return NULL;
    }
    if (number > CALLSITE_FILE_NUMBER_MAX) {
        rebuild->damaged++;
        return NULL;
    }
    struct rebuild_bits *seen = &process->callsites.seen[tag];
    if (!ARRAY_COVER(seen->words, seen->word_count, number / 64)) {
        rebuild_keep_no_memory(rebuild);
        return NULL;
    }
    bool is_new = (seen->words[number / 64] & bit) == 0;
    seen->words[number / 64] |= bit;
    return is_new ? entry_begin(rebuild, process, tag, bytes) : NULL;
}

/* ---- entries of each kind ---- */

void rebuild_module(struct varve_rebuild *rebuild, const struct varve_sink_module *from)
{
    bool has_build_id = from->build_id != NULL && from->build_id_bytes <= BUILD_ID_BYTES_MAX;
    const struct callsite_file_module module = {.base = from->base,
                                                .end = from->end,
                                                .bias = from->bias,
                                                .number = from->number,
                                                .build_id_bytes = has_build_id ? (uint16_t)from->build_id_bytes : 0,
                                                .path_bytes = (uint16_t)text_bytes(from->path)};
    uint8_t *at = entry_new(rebuild, from->process, from->pid, CALLSITE_FILE_TAG_MODULE, from->number,
                            sizeof(module) + module.build_id_bytes + module.path_bytes);
    if (at != NULL) {
        at = rebuild_callsites_put(at, &module, sizeof(module));
        at = rebuild_callsites_put(at, from->build_id, module.build_id_bytes);
        rebuild_callsites_put(at, from->path, module.path_bytes);
    }
}

void rebuild_module_gone(struct varve_rebuild *rebuild, uint32_t process, int32_t pid, uint32_t number)
{
    const struct callsite_file_gone gone = {.number = number};
    uint8_t *at = entry_new(rebuild, process, pid, CALLSITE_FILE_TAG_MODULE_GONE, number, sizeof(gone));
    if (at != NULL) {
        rebuild_callsites_put(at, &gone, sizeof(gone));
    }
}

void rebuild_code(struct varve_rebuild *rebuild, const struct varve_sink_code *from)
{
    const struct callsite_file_code code = {.code = from->code,
                                            .first_line = from->first_line,
                                            .name_bytes = (uint16_t)text_bytes(from->function),
                                            .file_bytes = (uint16_t)text_bytes(from->file)};
    uint8_t *at = entry_new(rebuild, from->process, from->pid, CALLSITE_FILE_TAG_CODE, from->code,
                            sizeof(code) + code.name_bytes + code.file_bytes);
    if (at != NULL) {
        at = rebuild_callsites_put(at, &code, sizeof(code));
        at = rebuild_callsites_put(at, from->function, code.name_bytes);
        rebuild_callsites_put(at, from->file, code.file_bytes);
    }
}

void rebuild_callsite(struct varve_rebuild *rebuild, const struct varve_sink_callsite *from)
{
    uint32_t native_count = from->native_count < CALLSITE_FILE_DEPTH_MAX ? from->native_count : CALLSITE_FILE_DEPTH_MAX;
    uint32_t python_count = from->python_count < CALLSITE_FILE_DEPTH_MAX ? from->python_count : CALLSITE_FILE_DEPTH_MAX;
    const struct callsite_file_stack callsite = {
        .callsite = from->callsite, .native_count = (uint16_t)native_count, .python_count = (uint16_t)python_count};
    uint8_t *at = entry_new(rebuild, from->process, from->pid, CALLSITE_FILE_TAG_STACK, from->callsite,
                            sizeof(callsite) + native_count * sizeof(*from->native) +
                                python_count * sizeof(struct callsite_file_python));
    if (at != NULL) {
        at = rebuild_callsites_put(at, &callsite, sizeof(callsite));
        at = rebuild_callsites_put(at, from->native, native_count * sizeof(*from->native));
        for (uint32_t i = 0; i < python_count; i++) {
            const struct callsite_file_python python = {.code = from->codes[i], .line = from->lines[i]};
            at = rebuild_callsites_put(at, &python, sizeof(python));
        }
    }
}
