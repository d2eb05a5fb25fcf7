/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding a recording from what a second sink got (writer.h): begin, end without a result, and all that comes of
 * processes, threads, records and the recording as a whole. Nothing is decided before the end but one thing: which of
 * two recordings in one trace is meant, the one that is heard of first. Called by whoever reads the trace.
 */
#include "trace/import/rebuild.h"

#include "base/grown_array.h"
#include "trace/collector/collector_clock.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/publish.h"
#include "trace/record.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TARGET_BYTES_MAX 3800U /* names are put behind it, up to DIRECTORY_PATH_BYTES */

int rebuild_no_memory(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to rebuild a recording");
}

int rebuild_keep(struct varve_rebuild *rebuild, int code, const struct varve_message *message)
{
    if (code != VARVE_OK && rebuild->error == VARVE_OK) {
        rebuild->error = code;
        rebuild->message = *message;
    }
    return rebuild->error;
}

int rebuild_keep_no_memory(struct varve_rebuild *rebuild)
{
    struct varve_message message;
    return rebuild_keep(rebuild, rebuild_no_memory(&message), &message);
}

/* Does this belong to the recording that is rebuilt? The first one to ask decides. */
static bool rebuild_is_ours(struct varve_rebuild *rebuild, uint64_t trace_id)
{
    if (!rebuild->has_trace_id) {
        rebuild->has_trace_id = true;
        rebuild->trace_id = trace_id;
    }
    return rebuild->trace_id == trace_id;
}

/* ---- files ---- */

static int file_fail(struct varve_message *message, const char *what, const char *path)
{
    return varve_message_set(message, file_error(errno), "%.300s: cannot %s: %s", path, what, strerror(errno));
}

/* `offset` < 0: at the end, of a file opened for appending. */
static bool rebuild_write_all(int fd, const char *bytes, size_t count, off_t offset)
{
    while (count > 0) {
        ssize_t written = offset < 0 ? write(fd, bytes, count) : pwrite(fd, bytes, count, offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        bytes += written;
        count -= (size_t)written;
        offset += offset < 0 ? 0 : written;
    }
    return true;
}

int rebuild_file_write(const char *path, const void *bytes, size_t count, int64_t offset, struct varve_message *message)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (offset < 0 ? O_APPEND : 0), 0600);
    if (fd < 0) {
        return file_fail(message, "make the file", path);
    }
    int error = VARVE_OK;
    if (!rebuild_write_all(fd, bytes, count, offset)) {
        error = file_fail(message, "write", path);
    }
    close(fd);
    return error;
}

/* ---- begin and end ---- */

int varve_rebuild_open(const char *path, bool replace, struct varve_rebuild **rebuild_out,
                       struct varve_message *message)
{
    *rebuild_out = NULL;
    if (strlen(path) > TARGET_BYTES_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    struct varve_rebuild *rebuild = calloc(1, sizeof(*rebuild));
    if (rebuild == NULL || (rebuild->path = strdup(path)) == NULL) {
        free(rebuild);
        return rebuild_no_memory(message);
    }
    rebuild->may_replace = replace;
    int error = varve_publish_folder_make(path, replace, rebuild->folder, sizeof(rebuild->folder), message);
    if (error != VARVE_OK) {
        rebuild->folder[0] = '\0'; /* there is nothing to remove */
        varve_rebuild_abandon(rebuild);
        return error;
    }
    *rebuild_out = rebuild;
    return VARVE_OK;
}

static void texts_free(struct varve_rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->meta_count; i++) {
        free(rebuild->meta[i].key);
        free(rebuild->meta[i].text);
    }
    for (size_t i = 0; i < rebuild->stat_count; i++) {
        free(rebuild->stats[i].name);
    }
    free(rebuild->meta);
    free(rebuild->stats);
    free(rebuild->anchors);
}

static void rebuild_process_free(struct rebuild_process *process)
{
    rebuild_callsites_drop(&process->callsites);
    free(process->executable);
    free(process->command_line);
    free(process->exec_path);
    free(process);
}

void varve_rebuild_abandon(struct varve_rebuild *rebuild)
{
    if (rebuild == NULL) {
        return;
    }
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        rebuild_ring_free(rebuild->rings[i]);
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        rebuild_process_free(rebuild->processes[i]);
    }
    texts_free(rebuild);
    if (rebuild->folder[0] != '\0') {
        varve_publish_folder_remove(rebuild->folder);
    }
    free(rebuild->rings);
    free(rebuild->processes);
    index_free(&rebuild->ring_index);
    index_free(&rebuild->process_index);
    free(rebuild->callsites.bytes);
    free(rebuild->path);
    free(rebuild);
}

uint64_t varve_rebuild_events(const struct varve_rebuild *rebuild)
{
    return rebuild->events;
}

/* ---- the recording as a whole ---- */

static void rebuild_take_clock(struct varve_rebuild *rebuild, const struct varve_sink_clock *from)
{
    if (!rebuild_is_ours(rebuild, from->trace_id)) {
        return;
    }
    if (!ARRAY_GROW(rebuild->anchors, rebuild->anchor_capacity, rebuild->anchor_count + 1)) {
        rebuild_keep_no_memory(rebuild);
        return;
    }
    rebuild->anchors[rebuild->anchor_count++] =
        (struct clock_anchor){.ticks = from->ticks, .mono_ns = from->mono_ns, .real_ns = from->real_ns};
}

static void text_replace(struct varve_rebuild *rebuild, char **text, const char *from)
{
    char *copy = strdup(from != NULL ? from : "");
    if (copy == NULL) {
        rebuild_keep_no_memory(rebuild);
        return;
    }
    free(*text);
    *text = copy;
}

/* The row of a key, a new one if there is none; NULL: an error is kept, or it is another recording's. */
static struct rebuild_meta *meta_of(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key)
{
    if (!rebuild_is_ours(rebuild, trace_id)) {
        return NULL;
    }
    for (size_t i = 0; i < rebuild->meta_count; i++) {
        if (strcmp(rebuild->meta[i].key, key) == 0) {
            return &rebuild->meta[i];
        }
    }
    char *copy = strdup(key);
    if (copy == NULL || !ARRAY_GROW(rebuild->meta, rebuild->meta_capacity, rebuild->meta_count + 1)) {
        free(copy);
        rebuild_keep_no_memory(rebuild);
        return NULL;
    }
    rebuild->meta[rebuild->meta_count] = (struct rebuild_meta){.key = copy};
    return &rebuild->meta[rebuild->meta_count++];
}

static void rebuild_take_meta_text(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key, const char *value)
{
    struct rebuild_meta *meta = meta_of(rebuild, trace_id, key);
    if (meta != NULL) {
        text_replace(rebuild, &meta->text, value);
    }
}

static void rebuild_take_meta_integer(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key, int64_t value)
{
    struct rebuild_meta *meta = meta_of(rebuild, trace_id, key);
    if (meta != NULL) {
        free(meta->text);
        meta->text = NULL;
        meta->integer = value;
    }
}

int varve_rebuild_stat(struct varve_rebuild *rebuild, const char *name, bool is_loss, uint64_t value)
{
    if (rebuild->error != VARVE_OK) {
        return rebuild->error;
    }
    for (size_t i = 0; i < rebuild->stat_count; i++) {
        if (strcmp(rebuild->stats[i].name, name) == 0) {
            rebuild->stats[i].value += value;
            rebuild->stats[i].is_loss = rebuild->stats[i].is_loss || is_loss;
            return VARVE_OK;
        }
    }
    char *copy = strdup(name);
    if (copy == NULL || !ARRAY_GROW(rebuild->stats, rebuild->stat_capacity, rebuild->stat_count + 1)) {
        free(copy);
        return rebuild_keep_no_memory(rebuild);
    }
    rebuild->stats[rebuild->stat_count++] = (struct rebuild_stat){.name = copy, .is_loss = is_loss, .value = value};
    return VARVE_OK;
}

/* ---- finding processes and rings ---- */

struct key {
    const struct varve_rebuild *rebuild;
    struct varve_sink_origin origin; /* `tid` does not matter, nor `ring` to a process */
};

static bool rebuild_is_process(const void *key_untyped, uint64_t number)
{
    const struct key *key = key_untyped;
    const struct rebuild_process *process = key->rebuild->processes[number - 1];
    return process->number == key->origin.process && process->pid == key->origin.pid;
}

static bool rebuild_is_of(const struct rebuild_ring *ring, const struct varve_sink_origin *origin)
{
    return ring->origin.ring == origin->ring && ring->origin.process == origin->process &&
           ring->origin.pid == origin->pid;
}

static bool is_ring(const void *key_untyped, uint64_t number)
{
    const struct key *key = key_untyped;
    return rebuild_is_of(key->rebuild->rings[number - 1], &key->origin);
}

static struct rebuild_process *process_make(struct varve_rebuild *rebuild, uint32_t number, int32_t pid)
{
    struct rebuild_process *process = calloc(1, sizeof(*process));
    if (process == NULL || !ARRAY_GROW(rebuild->processes, rebuild->process_capacity, rebuild->process_count + 1)) {
        free(process);
        return NULL;
    }
    process->number = number;
    process->pid = pid;
    process->file = rebuild->process_count;
    process->description.rank = -1;
    rebuild->processes[rebuild->process_count++] = process;
    return process;
}

struct rebuild_process *rebuild_process_of(struct varve_rebuild *rebuild, uint32_t number, int32_t pid)
{
    const struct key key = {rebuild, {.process = number, .pid = pid}};
    uint64_t hash = index_hash(&number, sizeof(number), (uint64_t)pid);
    if (number == 0 || number > REBUILD_PROCESS_LIMIT || pid <= 0) {
        rebuild->damaged++;
        return NULL;
    }
    struct index_slot *slot = index_find_equal(&rebuild->process_index, hash, rebuild_is_process, &key);
    if (slot != NULL && slot->number != 0) {
        return rebuild->processes[slot->number - 1];
    }
    struct rebuild_process *process = slot != NULL ? process_make(rebuild, number, pid) : NULL;
    if (process == NULL) {
        rebuild_keep_no_memory(rebuild);
        return NULL;
    }
    index_fill(&rebuild->process_index, slot, hash, (uint32_t)rebuild->process_count);
    return process;
}

static struct rebuild_ring *rebuild_ring_make(struct varve_rebuild *rebuild, const struct varve_sink_origin *origin,
                                              struct rebuild_process *process)
{
    struct rebuild_ring *ring = calloc(1, sizeof(*ring));
    if (ring == NULL || !ARRAY_GROW(rebuild->rings, rebuild->ring_capacity, rebuild->ring_count + 1)) {
        free(ring);
        return NULL;
    }
    ring->origin = *origin;
    ring->process = process;
    ring->tid_number = ring->first_ticks = UINT64_MAX;
    ring->id = (uint32_t)rebuild->ring_count;
    rebuild->rings[rebuild->ring_count++] = ring;
    return ring;
}

static struct rebuild_ring *ring_of(struct varve_rebuild *rebuild, const struct varve_sink_origin *origin)
{
    const struct key key = {rebuild, *origin};
    const uint32_t numbers[] = {origin->process, origin->ring};
    uint64_t hash = index_hash(numbers, sizeof(numbers), (uint64_t)origin->pid);
    if (rebuild->ring_last != NULL && rebuild_is_of(rebuild->ring_last, origin)) {
        return rebuild->ring_last;
    }
    if (origin->ring == UINT32_MAX) {
        rebuild->damaged++;
        return NULL;
    }
    struct index_slot *slot = index_find_equal(&rebuild->ring_index, hash, is_ring, &key);
    if (slot != NULL && slot->number != 0) {
        rebuild->ring_last = rebuild->rings[slot->number - 1];
        return rebuild->ring_last;
    }
    struct rebuild_process *process = rebuild_process_of(rebuild, origin->process, origin->pid);
    if (process == NULL) {
        return NULL;
    }
    struct rebuild_ring *ring = slot != NULL ? rebuild_ring_make(rebuild, origin, process) : NULL;
    if (ring == NULL) {
        rebuild_keep_no_memory(rebuild);
        return NULL;
    }
    index_fill(&rebuild->ring_index, slot, hash, (uint32_t)rebuild->ring_count);
    rebuild->ring_last = ring;
    return ring;
}

/* ---- processes ---- */

static void rebuild_take_process(struct varve_rebuild *rebuild, const struct varve_sink_process *from)
{
    struct rebuild_process *process = rebuild_process_of(rebuild, from->process, from->pid);
    if (process != NULL) {
        process->is_described = true;
        process->is_of_another = !rebuild_is_ours(rebuild, from->trace_id);
        process->description = *from;
        process->description.executable = process->description.command_line = NULL;
        text_replace(rebuild, &process->executable, from->executable);
        text_replace(rebuild, &process->command_line, from->command_line);
    }
}

static void rebuild_take_process_end(struct varve_rebuild *rebuild, const struct varve_sink_process_end *end)
{
    struct rebuild_process *process = rebuild_process_of(rebuild, end->process, end->pid);
    if (process != NULL) {
        process->has_end = true;
        process->end = end->end;
        text_replace(rebuild, &process->exec_path, end->exec_path);
    }
}

/* ---- threads and records ---- */

static void rebuild_take_thread(struct varve_rebuild *rebuild, const struct varve_sink_thread *thread)
{
    struct rebuild_ring *ring = ring_of(rebuild, &thread->origin);
    if (ring != NULL) {
        const char *name = thread->name != NULL ? thread->name : "";
        ring->is_described = true;
        ring->origin.tid = thread->origin.tid;
        ring->created_ticks = thread->created_ticks;
        memset(ring->name, 0, sizeof(ring->name));
        memcpy(ring->name, name, strnlen(name, sizeof(ring->name)));
    }
}

static void rebuild_take_thread_end(struct varve_rebuild *rebuild, const struct varve_sink_thread_end *end)
{
    struct rebuild_ring *ring = ring_of(rebuild, &end->origin);
    if (ring != NULL && end->emitted < REBUILD_NUMBER_LIMIT && end->lost < REBUILD_NUMBER_LIMIT) {
        ring->has_end = true;
        ring->end = *end;
    } else if (ring != NULL) {
        rebuild->damaged++;
    }
}

static void rebuild_take_record(struct varve_rebuild *rebuild, const struct varve_sink_origin *origin,
                                uint64_t ring_seq, const struct varve_record *record)
{
    struct varve_record taken = *record;
    if (ring_seq == 0 || ring_seq >= REBUILD_NUMBER_LIMIT) {
        rebuild->damaged++;
        return;
    }
    struct rebuild_ring *ring = ring_of(rebuild, origin);
    if (ring == NULL) {
        return;
    }
    taken.dev_seq_kind_flags &= ~(uint64_t)(0xffU & ~VARVE_FLAGS_STORED);
    rebuild->events++;
    if (ring_seq < ring->tid_number) {
        ring->tid_number = ring_seq;
        ring->origin.tid = ring->is_described ? ring->origin.tid : origin->tid;
    }
    struct varve_message message;
    int code = rebuild_ring_add(rebuild, ring, ring_seq, &taken, &message);
    rebuild_keep(rebuild, code, &message);
}

static void rebuild_take_item(struct varve_rebuild *rebuild, const struct varve_sink_item *item)
{
    switch (item->kind) {
    case VARVE_SINK_ITEM_NONE:
        break;
    case VARVE_SINK_ITEM_RECORD:
        rebuild_take_record(rebuild, &item->of.record.origin, item->of.record.ring_seq, &item->of.record.record);
        break;
    case VARVE_SINK_ITEM_PROCESS:
        rebuild_take_process(rebuild, &item->of.process);
        break;
    case VARVE_SINK_ITEM_PROCESS_END:
        rebuild_take_process_end(rebuild, &item->of.process_end);
        break;
    case VARVE_SINK_ITEM_THREAD:
        rebuild_take_thread(rebuild, &item->of.thread);
        break;
    case VARVE_SINK_ITEM_THREAD_END:
        rebuild_take_thread_end(rebuild, &item->of.thread_end);
        break;
    case VARVE_SINK_ITEM_CLOCK:
        rebuild_take_clock(rebuild, &item->of.clock);
        break;
    case VARVE_SINK_ITEM_MODULE:
        rebuild_module(rebuild, &item->of.module);
        break;
    case VARVE_SINK_ITEM_MODULE_GONE:
        rebuild_module_gone(rebuild, item->of.module_gone.process, item->of.module_gone.pid,
                            item->of.module_gone.number);
        break;
    case VARVE_SINK_ITEM_CODE:
        rebuild_code(rebuild, &item->of.code);
        break;
    case VARVE_SINK_ITEM_CALLSITE:
        rebuild_callsite(rebuild, &item->of.callsite);
        break;
    case VARVE_SINK_ITEM_META_TEXT:
        rebuild_take_meta_text(rebuild, item->of.meta.trace_id, item->of.meta.key, item->of.meta.text);
        break;
    case VARVE_SINK_ITEM_META_INTEGER:
        rebuild_take_meta_integer(rebuild, item->of.meta.trace_id, item->of.meta.key, item->of.meta.value);
        break;
    }
}

int varve_rebuild_item(struct varve_rebuild *rebuild, const struct varve_sink_item *item)
{
    if (rebuild->error == VARVE_OK) {
        rebuild_take_item(rebuild, item);
    }
    return rebuild->error;
}
