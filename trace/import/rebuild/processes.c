/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a rebuild, found by their number and pid: two recordings in one trace use the same
 * numbers. Which of them the recording consists of is decided at the end, since descriptions may come after
 * records, or never. Also the table that finds processes and rings.
 */
#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS_FIRST 64U
#define RING_NONE UINT32_MAX /* key of a process */

/* ---- the table ---- */

static size_t home_of(const struct rebuild_key *key)
{
    uint64_t hash = ((uint64_t)key->pid << 32 | key->process) * UINT64_C(0x9e3779b97f4a7c15);

    hash = (hash ^ hash >> 29 ^ key->ring) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(hash ^ hash >> 32);
}

static struct rebuild_index_slot *slot_find(const struct rebuild_index *index, const struct rebuild_key *key)
{
    size_t at = home_of(key) & (index->slot_count - 1);

    while (index->slots[at].value != NULL &&
           (index->slots[at].key.ring != key->ring || index->slots[at].key.process != key->process ||
            index->slots[at].key.pid != key->pid)) {
        at = (at + 1) & (index->slot_count - 1);
    }
    return &index->slots[at];
}

static bool index_grow(struct rebuild_index *index)
{
    struct rebuild_index grown = {.used = index->used};

    grown.slot_count = index->slot_count == 0 ? SLOTS_FIRST : index->slot_count * 2;
    grown.slots = calloc(grown.slot_count, sizeof(*grown.slots));
    if (grown.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < index->slot_count; i++) {
        if (index->slots[i].value != NULL) {
            *slot_find(&grown, &index->slots[i].key) = index->slots[i];
        }
    }
    free(index->slots);
    *index = grown;
    return true;
}

void **rebuild_index_slot(struct rebuild_index *index, const struct rebuild_key *key)
{
    struct rebuild_index_slot *slot;

    if (index->used * 2 >= index->slot_count && !index_grow(index)) {
        return NULL;
    }
    slot = slot_find(index, key);
    slot->key = *key;
    return &slot->value;
}

/* ---- finding one ---- */

static struct rebuild_process *process_make(struct varve_rebuild *rebuild, uint32_t number, int32_t pid)
{
    struct rebuild_process *process = calloc(1, sizeof(*process));

    if (process == NULL || !array_grow((void **)&rebuild->processes, &rebuild->process_capacity,
                                       rebuild->process_count + 1, sizeof(struct rebuild_process *))) {
        free(process);
        return NULL;
    }
    process->number = number;
    process->pid = pid;
    process->file = rebuild->process_count;
    process->told.rank = -1;
    rebuild->processes[rebuild->process_count++] = process;
    return process;
}

struct rebuild_process *rebuild_process_of(struct varve_rebuild *rebuild, uint32_t number, int32_t pid)
{
    const struct rebuild_key key = {(uint32_t)pid, number, RING_NONE};
    struct varve_message message;
    void **slot;

    if (rebuild->error != VARVE_OK) {
        return NULL;
    }
    if (number == 0 || number > REBUILD_PROCESS_LIMIT || pid <= 0) {
        rebuild->damaged++;
        return NULL;
    }
    slot = rebuild_index_slot(&rebuild->process_index, &key);
    if (slot != NULL && *slot == NULL) {
        *slot = process_make(rebuild, number, pid);
        rebuild->process_index.used += *slot != NULL;
    }
    if (slot == NULL || *slot == NULL) {
        rebuild_keep(rebuild, rebuild_no_memory(&message), &message);
        return NULL;
    }
    return *slot;
}

void rebuild_process_free(struct rebuild_process *process)
{
    rebuild_sites_drop(&process->sites);
    free(process->executable);
    free(process->command_line);
    free(process->exec_path);
    free(process->rings);
    free(process);
}

/* ---- what is told of them ---- */

static int text_replace(struct varve_rebuild *rebuild, char **text, const char *told)
{
    struct varve_message message;
    char *copy = strdup(told != NULL ? told : "");

    if (copy == NULL) {
        return rebuild_keep(rebuild, rebuild_no_memory(&message), &message);
    }
    free(*text);
    *text = copy;
    return VARVE_OK;
}

int varve_rebuild_process(struct varve_rebuild *rebuild, const struct varve_mirror_process *told)
{
    struct rebuild_process *process = rebuild_process_of(rebuild, told->process, told->pid);

    if (process == NULL) {
        return rebuild->error;
    }
    process->is_described = true;
    process->is_foreign = !rebuild_is_ours(rebuild, told->trace_id);
    process->told = *told;
    process->told.executable = process->told.command_line = NULL;
    if (text_replace(rebuild, &process->executable, told->executable) == VARVE_OK) {
        text_replace(rebuild, &process->command_line, told->command_line);
    }
    return rebuild->error;
}

int varve_rebuild_process_end(struct varve_rebuild *rebuild, const struct varve_mirror_process_end *end)
{
    struct rebuild_process *process = rebuild_process_of(rebuild, end->process, end->pid);

    if (process == NULL) {
        return rebuild->error;
    }
    process->has_end = true;
    process->end = end->end;
    return text_replace(rebuild, &process->exec_path, end->exec_path);
}

/* ---- the choice ---- */

static uint64_t records_of(const struct rebuild_ring *ring)
{
    uint64_t count = rebuild_run_rows(&ring->run) - ring->run.markers + ring->side.count;

    for (uint32_t i = 0; i < ring->side.slice_count; i++) {
        count += ring->side.slices[i].count;
    }
    return count;
}

static int compare_rings(const void *left, const void *right)
{
    const struct rebuild_ring *a = *(struct rebuild_ring *const *)left;
    const struct rebuild_ring *b = *(struct rebuild_ring *const *)right;

    return a->origin.ring < b->origin.ring ? -1 : a->origin.ring > b->origin.ring;
}

static int give_rings(struct varve_rebuild *rebuild, uint64_t *left_out)
{
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        struct rebuild_ring *ring = rebuild->rings[i];
        struct rebuild_process *process = ring->process;
        uint32_t count = process->ring_count;

        if (!process->is_taken) {
            *left_out += records_of(ring);
            continue;
        }
        if ((count & (count - 1)) == 0) { /* at each power of two */
            struct rebuild_ring **grown = realloc(process->rings, (count * 2 + 1) * sizeof(*process->rings));
            if (grown == NULL) {
                return VARVE_ERROR_NO_MEMORY;
            }
            process->rings = grown;
        }
        process->rings[process->ring_count++] = ring;
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        struct rebuild_process *process = rebuild->processes[i];
        if (process->ring_count > 1) {
            qsort(process->rings, process->ring_count, sizeof(*process->rings), compare_rings);
        }
    }
    return VARVE_OK;
}

static int compare_by_pid(const void *left, const void *right)
{
    const struct rebuild_process *a = *(struct rebuild_process *const *)left;
    const struct rebuild_process *b = *(struct rebuild_process *const *)right;

    if (a->pid != b->pid) {
        return a->pid < b->pid ? -1 : 1;
    }
    return a->number < b->number ? -1 : a->number > b->number;
}

/* A later image under the same pid: the earlier one has ended, by exec if it is the same process. */
static int note_replaced(struct rebuild_process *const *by_number, uint32_t limit)
{
    struct rebuild_process **sorted = malloc(((size_t)limit + 1) * sizeof(*sorted));
    size_t count = 0;

    if (sorted == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t number = 0; number < limit; number++) {
        if (by_number[number] != NULL) {
            sorted[count++] = by_number[number];
        }
    }
    qsort(sorted, count, sizeof(*sorted), compare_by_pid);
    for (size_t i = 0; i + 1 < count; i++) {
        if (sorted[i]->pid == sorted[i + 1]->pid) {
            sorted[i]->has_end = true;
            sorted[i]->is_replaced =
                sorted[i]->told.start_ticks_proc == sorted[i + 1]->told.start_ticks_proc &&
                sorted[i]->is_described && sorted[i + 1]->is_described;
        }
    }
    free(sorted);
    return VARVE_OK;
}

int rebuild_processes_choose(struct varve_rebuild *rebuild, struct rebuild_process ***by_number_out,
                             uint32_t *limit_out, uint64_t *left_out, struct varve_message *message)
{
    struct rebuild_process **by_number;
    uint32_t limit = 1;
    int code;

    for (size_t i = 0; i < rebuild->process_count; i++) {
        limit = rebuild->processes[i]->number >= limit ? rebuild->processes[i]->number + 1 : limit;
    }
    by_number = calloc(limit, sizeof(*by_number));
    if (by_number == NULL) {
        return rebuild_no_memory(message);
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        struct rebuild_process *process = rebuild->processes[i];
        struct rebuild_process *other = by_number[process->number];

        if (!process->is_foreign && (other == NULL || (process->is_described && !other->is_described))) {
            by_number[process->number] = process;
            process->is_taken = true;
            if (other != NULL) {
                other->is_taken = false;
            }
        }
    }
    *left_out = 0;
    code = give_rings(rebuild, left_out);
    for (uint32_t number = 0; number < limit; number++) {
        struct rebuild_process *process = by_number[number];
        if (process != NULL && process->ring_count == 0 && !process->is_described) {
            by_number[number] = NULL; /* nothing is known of it but that it was there */
        }
    }
    if (code == VARVE_OK) {
        code = note_replaced(by_number, limit);
    }
    *by_number_out = by_number;
    *limit_out = limit;
    return code == VARVE_OK ? VARVE_OK : rebuild_no_memory(message);
}

/* ---- their files ---- */

static void control_fill(const struct rebuild_process *process, struct process_control *control)
{
    const struct varve_mirror_process *told = &process->told;
    uint32_t state = process->end == VARVE_MIRROR_END_EXITED      ? PROCESS_STATE_EXITED
                     : process->end == VARVE_MIRROR_END_EXECUTING ? PROCESS_STATE_EXECUTING
                                                                  : PROCESS_STATE_RUNNING;

    memset(control, 0, sizeof(*control));
    control->magic = PROCESS_MAGIC;
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = process->number;
    control->parent_id = told->parent;
    control->pid = process->pid;
    control->parent_pid = told->parent_pid;
    control->rank = told->rank;
    control->start_ticks_proc = told->start_ticks_proc;
    control->start_ticks = process->is_described ? told->start_ticks : process->first_ticks;
    control->state = state;
    control->ring_count = 1;
    if (process->is_described) {
        snprintf(control->executable, sizeof(control->executable), "%s", process->executable);
        snprintf(control->command_line, sizeof(control->command_line) - 1, "%s", process->command_line);
    }
    if (process->exec_path != NULL) {
        snprintf(control->exec_path, sizeof(control->exec_path), "%s", process->exec_path);
    }
}

int rebuild_process_write(struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    char sites[REBUILD_PATH_BYTES];
    struct process_control *control = malloc(PROCESS_CONTROL_BYTES);
    int code;

    if (control == NULL) {
        return rebuild_no_memory(message);
    }
    control_fill(process, control);
    snprintf(path, sizeof(path), "%s/p%u", rebuild->folder.path, process->number);
    code = rebuild_file_write(path, control, sizeof(*control), 0, message);
    free(control);
    if (code == VARVE_OK && truncate(path, PROCESS_CONTROL_BYTES) != 0) {
        code = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size", path);
    }
    if (code == VARVE_OK && process->sites.has_file) {
        rebuild_sites_path(&rebuild->folder, process->file, sites, sizeof(sites));
        snprintf(path, sizeof(path), "%s/p%u.sites", rebuild->folder.path, process->number);
        if (rename(sites, path) != 0) {
            code = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be renamed", sites);
        }
    }
    return code;
}
