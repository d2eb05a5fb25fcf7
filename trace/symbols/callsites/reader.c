/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the call-site files of all processes while they are written, and numbers their stacks for the whole
 * recording. The hard part is that a file may be anything: not there yet, growing, cut in the middle of an
 * entry by a kill, truncated, damaged. Only complete entries are taken; damage ends the file and is counted.
 * The collector calls sites_global for every event, so a known number costs two array look-ups, and the file
 * is read only when a number is not known. The tables are in intern.c, the entries in entry.c.
 */
#include "trace/symbols/callsites/callsites.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256U << 10)
#define ENTRY_BYTES_MAX (160U << 10) /* a path and a build id of 16-bit lengths fit */
#define OPEN_FILES_MAX 200U          /* more files are opened for each read: descriptors are limited */
#define PROCESS_ID_MAX (1U << 24)

int sites_open(struct sites **sites_out)
{
    struct sites *sites = calloc(1, sizeof(*sites));

    *sites_out = NULL;
    if (!sites)
        return VARVE_ERROR_NO_MEMORY;
    sites->buffer = malloc(BUFFER_BYTES);
    if (!sites->buffer) {
        free(sites);
        return VARVE_ERROR_NO_MEMORY;
    }
    *sites_out = sites;
    return VARVE_OK;
}

static void process_file_close(struct sites *sites, struct sites_process *process)
{
    if (process->file < 0)
        return;
    close(process->file);
    process->file = -1;
    sites->open_files--;
}

/* What is only needed to read on. */
static void process_end(struct sites *sites, struct sites_process *process)
{
    process->is_ended = true;
    process_file_close(sites, process);
    sites_map_free(&process->codes);
    free(process->mapped);
    process->mapped = NULL;
    process->mapped_count = process->mapped_capacity = 0;
}

void sites_close(struct sites *sites)
{
    if (!sites)
        return;
    for (size_t i = 0; i < sites->process_capacity; i++) {
        struct sites_process *process = sites->processes[i];

        if (!process)
            continue;
        process_end(sites, process);
        sites_map_free(&process->sites);
        free(process->path);
        free(process);
    }
    free(sites->processes);
    free(sites->texts.bytes);
    free(sites->texts.starts);
    free(sites->texts.index.slots);
    free(sites->modules.pairs);
    free(sites->modules.index.slots);
    free(sites->codes.pairs);
    free(sites->codes.index.slots);
    free(sites->frames.frames);
    free(sites->frames.index.slots);
    free(sites->stacks.stacks);
    free(sites->stacks.words);
    free(sites->stacks.index.slots);
    free(sites->buffer);
    free(sites);
}

int sites_process(struct sites *sites, uint32_t process_id, const char *path)
{
    size_t capacity = sites->process_capacity;
    struct sites_process *process;

    if (process_id == 0 || process_id > PROCESS_ID_MAX)
        return VARVE_ERROR_INVALID;
    if (!array_grow((void **)&sites->processes, &capacity, (size_t)process_id + 1,
                    sizeof(struct sites_process *)))
        return VARVE_ERROR_NO_MEMORY;
    if (capacity > sites->process_capacity)
        memset(sites->processes + sites->process_capacity, 0,
               (capacity - sites->process_capacity) * sizeof(struct sites_process *));
    sites->process_capacity = capacity;
    if (sites->processes[process_id])
        return VARVE_ERROR_INVALID;
    process = calloc(1, sizeof(*process));
    if (!process)
        return VARVE_ERROR_NO_MEMORY;
    process->path = strdup(path);
    process->file = -1;
    if (!process->path) {
        free(process);
        return VARVE_ERROR_NO_MEMORY;
    }
    sites->processes[process_id] = process;
    return VARVE_OK;
}

/* Bytes of the complete entries at the front of the buffer, as far as their heads make sense. */
static size_t complete_bytes(const struct sites *sites, size_t bytes)
{
    struct sites_entry entry;
    size_t at = 0;

    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, sites->buffer + at, sizeof(entry));
        if (entry.tag == 0 || entry.bytes > ENTRY_BYTES_MAX || bytes - at - sizeof(entry) < entry.bytes)
            break;
        at += sizeof(entry) + ((size_t)entry.bytes + 7) / 8 * 8;
    }
    return at < bytes ? at : bytes;
}

/* Takes the complete entries at the front of the buffer; returns their bytes. */
static size_t take_entries(struct sites *sites, struct sites_process *process, uint32_t process_id,
                           size_t bytes)
{
    struct sites_entry entry;
    size_t at = 0;

    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, sites->buffer + at, sizeof(entry));
        if (entry.tag == 0 && entry.bytes == 0)
            break; /* the writer has not come further */
        if (entry.bytes > ENTRY_BYTES_MAX || entry.bytes % 8 != 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        if (bytes - at - sizeof(entry) < entry.bytes)
            break;
        if (!sites_entry_take(sites, process, process_id, &entry, sites->buffer + at + sizeof(entry))) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        if (sites->listener && entry.tag < SITES_TAG_PADDING)
            sites->listener(sites->listener_context, process_id, &entry, sites->buffer + at + sizeof(entry));
        at += sizeof(entry) + entry.bytes;
    }
    return at;
}

void sites_listen(struct sites *sites, sites_listener *listener, void *context)
{
    sites->listener = listener;
    sites->listener_context = context;
}

/* Entries [0, offset) were sound when they were taken; the file may have changed since. */
static void retell_process(const struct sites *sites, const struct sites_process *process,
                           uint32_t process_id)
{
    int file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    uint8_t *entries = malloc(process->offset + 1);
    struct sites_entry entry;

    if (file >= 0 && entries && pread(file, entries, process->offset, 0) == (ssize_t)process->offset) {
        for (uint64_t at = 0; at + sizeof(entry) <= process->offset; at += sizeof(entry) + entry.bytes) {
            memcpy(&entry, entries + at, sizeof(entry));
            if (entry.bytes > process->offset - at - sizeof(entry))
                break;
            if (entry.tag < SITES_TAG_PADDING && sites_entry_is_sound(&entry, entries + at + sizeof(entry)))
                sites->listener(sites->listener_context, process_id, &entry, entries + at + sizeof(entry));
        }
    }
    free(entries);
    if (file >= 0)
        close(file);
}

void sites_retell(const struct sites *sites)
{
    for (uint32_t id = 1; sites->listener && id < sites->process_capacity; id++) {
        if (sites->processes[id] && sites->processes[id]->offset > 0)
            retell_process(sites, sites->processes[id], id);
    }
}

/* True if the file is open and is a file; `size_out` is how much it holds now. */
static bool process_file_open(struct sites *sites, struct sites_process *process, uint64_t *size_out)
{
    struct stat status;

    if (process->file < 0) {
        process->file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (process->file < 0)
            return false;
        sites->open_files++;
    }
    if (fstat(process->file, &status) != 0 || !S_ISREG(status.st_mode)) {
        process->errors++;
        process->is_ended = true;
        return false;
    }
    *size_out = (uint64_t)status.st_size;
    return true;
}

void sites_process_read(struct sites *sites, struct sites_process *process, uint32_t process_id,
                        uint32_t wanted)
{
    uint64_t size = 0;

    if (process->is_ended)
        return;
    while (process_file_open(sites, process, &size) && process->offset < size) {
        ssize_t bytes = pread(process->file, sites->buffer, BUFFER_BYTES, (off_t)process->offset);
        size_t complete, taken;

        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        /* A payload may be written between its own copy and that of its head: what is behind heads that were
         * there is copied again. */
        complete = complete_bytes(sites, (size_t)bytes);
        if (pread(process->file, sites->buffer, complete, (off_t)process->offset) != (ssize_t)complete)
            continue;
        taken = take_entries(sites, process, process_id, (size_t)bytes);
        process->offset += taken;
        /* Nothing complete is left: the end, or an entry that is still being written. */
        if (taken == 0 || process->is_ended || (wanted && sites_map_get(&process->sites, wanted)))
            break;
    }
    if (process->is_ended)
        process_end(sites, process);
    else if (sites->open_files > OPEN_FILES_MAX)
        process_file_close(sites, process);
}

static struct sites_process *process_of(const struct sites *sites, uint32_t process_id)
{
    return process_id < sites->process_capacity ? sites->processes[process_id] : NULL;
}

static void read_lost(struct sites *sites, struct sites_process *process)
{
    struct {
        struct sites_entry entry;
        struct sites_lost lost;
    } first;
    uint64_t size = 0;

    if (!process->is_ended && process_file_open(sites, process, &size) &&
        pread(process->file, &first, sizeof(first), 0) == (ssize_t)sizeof(first) &&
        first.entry.tag == SITES_TAG_LOST)
        process->lost = first.lost.stacks;
}

void sites_process_end(struct sites *sites, uint32_t process_id)
{
    struct sites_process *process = process_of(sites, process_id);

    if (!process)
        return;
    sites_process_read(sites, process, process_id, 0);
    read_lost(sites, process);
    process_end(sites, process);
}

uint32_t sites_global(struct sites *sites, uint32_t process_id, uint32_t local)
{
    struct sites_process *process = process_of(sites, process_id);
    uint32_t number;

    if (local == 0 || !process)
        return 0;
    number = sites_map_get(&process->sites, local);
    if (number)
        return number;
    sites_process_read(sites, process, process_id, local);
    number = sites_map_get(&process->sites, local);
    if (number == 0 && process->unknown < UINT32_MAX)
        process->unknown++;
    sites->has_new_unknown = sites->has_new_unknown || number == 0;
    return number;
}

/* With the events that lack them: whoever continues counts from there. */
static int commit_unknown(struct sites *sites, struct store *store)
{
    int result = VARVE_OK;

    for (uint32_t id = 1; sites->has_new_unknown && id < sites->process_capacity && result == VARVE_OK;
         id++) {
        if (sites->processes[id] && sites->processes[id]->unknown)
            result = store_stat(store, SITES_STAT_UNKNOWN, (int64_t)id, "data_loss", "sites",
                                sites->processes[id]->unknown);
    }
    sites->has_new_unknown = sites->has_new_unknown && result != VARVE_OK;
    return result;
}

int sites_commit(struct sites *sites, struct store *store)
{
    while (sites->committed < sites->stacks.count) {
        uint32_t number = sites->committed + 1;
        const struct sites_stack *stack = &sites->stacks.stacks[number - 1];
        int result = store_callsite_origin(store, number, stack->process_id, stack->local);

        if (result != VARVE_OK)
            return result;
        sites->committed = number;
    }
    return commit_unknown(sites, store);
}
