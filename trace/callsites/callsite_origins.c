/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the numbers of call sites come from, in the store: written with each commit, read by who continues a recording.
 * Then the files are read as always, which numbers the stacks in the order of reading; the stacks are put where
 * callsite_origin says, and those that were not stored follow. A number whose stack is gone keeps its slot, with an
 * empty stack. The collector calls it.
 */
#include "trace/callsites/callsites.h"

#include "base/error.h"
#include "base/grown_array.h"
#include "trace/callsites/callsite_pairs.h"
#include "trace/callsites/callsite_reader.h"
#include "trace/format/callsite_format.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"

#include <assert.h>
#include <stdlib.h>

#define ORIGINS_MAX (UINT32_C(1) << 26)

/* ---- commits ---- */

/* With the events that lack them: whoever continues counts from there. */
static int commit_unknown(struct callsites *callsites, struct store *store)
{
    int result = VARVE_OK;
    for (uint32_t id = 1; callsites->has_new_unknown && id < callsites->process_capacity && result == VARVE_OK; id++) {
        if (callsites->processes[id] && callsites->processes[id]->unknown) {
            result = store_stat(store, CALLSITES_STAT_UNKNOWN, (int64_t)id, "data_loss", "sites",
                                callsites->processes[id]->unknown);
        }
    }
    callsites->has_new_unknown = callsites->has_new_unknown && result != VARVE_OK;
    return result;
}

/* How many call sites from `number` on were first seen one after the other. */
static uint32_t origin_run(const struct callsites *callsites, uint32_t number)
{
    const struct callsites_origin *first = &callsites->origins[number - 1];
    uint32_t count = 1;
    while (number + count <= callsites->stacks.count && first[count].process_id == first->process_id &&
           first[count].local == first->local + count) {
        count++;
    }
    return count;
}

int callsites_commit(struct callsites *callsites, struct store *store)
{
    while (callsites->committed < callsites->stacks.count) {
        uint32_t number = callsites->committed + 1, count = origin_run(callsites, number);
        const struct callsites_origin *origin = &callsites->origins[number - 1];
        int result = store_callsite_origin(store, number, origin->process_id, origin->local, count);
        if (result != VARVE_OK) {
            return result;
        }
        callsites->committed += count;
    }
    return commit_unknown(callsites, store);
}

/* ---- an interrupted recording: the numbers that its stored events already carry ---- */

struct origin {
    uint32_t number, process_id, local;
};

struct origins {
    struct callsites *callsites;
    struct origin *rows;
    size_t count, capacity;
};

static int take_origin(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t callsite, uint32_t count)
{
    struct origins *origins = context;
    struct callsites_process *process = process_of(origins->callsites, process_id);
    if (count > ORIGINS_MAX - origins->count || count > CALLSITE_FILE_NOT_KEPT) {
        return VARVE_ERROR_CORRUPT;
    }
    if (!ARRAY_GROW(origins->rows, origins->capacity, origins->count + count)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        origins->rows[origins->count++] = (struct origin){callsite_id + i, process_id, callsite + i};
    }
    if (callsite == CALLSITE_FILE_NOT_KEPT && process != NULL &&
        callsite_not_kept(origins->callsites, process, process_id) == 0) {
        return VARVE_ERROR_NO_MEMORY;
    }
    return VARVE_OK;
}

static int take_unknown(void *context, int64_t idx, int64_t value)
{
    struct callsites *callsites = context;
    struct callsites_process *process = idx > 0 && idx < UINT32_MAX ? process_of(callsites, (uint32_t)idx) : NULL;
    if (process && value > 0) {
        process->unknown = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    }
    return VARVE_OK;
}

/* The stacks and where they were seen under their new numbers; `moved` says for each stack read where it went. */
struct placed {
    struct pair *stacks;
    struct callsites_origin *origins;
    uint32_t *moved;
    bool *is_taken;
};

static uint32_t find_read(const struct callsites_process *process, uint32_t local)
{
    return local == CALLSITE_FILE_NOT_KEPT ? process->not_kept : numbers_find(&process->callsites, local);
}

/* Fill the numbers 1..origins->count. */
static int place_stored(const struct callsites *callsites, const struct origins *origins, const struct placed *placed,
                        struct varve_message *message)
{
    for (size_t i = 0; i < origins->count; i++) {
        const struct origin *origin = &origins->rows[i];
        struct callsites_process *process = process_of(callsites, origin->process_id);
        uint32_t read = process ? find_read(process, origin->local) : 0;
        if (origin->number == 0 || origin->number > origins->count || placed->is_taken[origin->number]) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "call site %u of %zu in callsite_origin",
                                     origin->number, origins->count);
        }
        placed->is_taken[origin->number] = true;
        placed->origins[origin->number - 1] = (struct callsites_origin){origin->process_id, origin->local};
        if (read) {
            placed->stacks[origin->number - 1] = callsites->stacks.pairs[read - 1];
            placed->moved[read] = placed->moved[read] ? placed->moved[read] : origin->number;
        } else if (process) {
            process->gone++;
        }
    }
    return VARVE_OK;
}

/* The other stacks behind those that were stored; then the indexes follow. Stacks and origins are the reader's now. */
static int place_rest(struct callsites *callsites, const struct origins *origins, const struct placed *placed)
{
    uint32_t count = (uint32_t)origins->count;
    for (uint32_t read = 1; read <= callsites->stacks.count; read++) {
        if (placed->moved[read] == 0) {
            placed->stacks[count] = callsites->stacks.pairs[read - 1];
            placed->origins[count] = callsites->origins[read - 1];
            placed->moved[read] = ++count;
        }
    }
    for (size_t i = 0; i < callsites->process_capacity; i++) {
        struct callsites_process *process = callsites->processes[i];
        for (size_t at = 0; process && at < process->callsites.capacity; at++) {
            process->callsites.ours[at] = placed->moved[process->callsites.ours[at]];
        }
        if (process) {
            process->not_kept = placed->moved[process->not_kept];
        }
    }
    free(callsites->origins);
    callsites->origins = placed->origins;
    callsites->origin_capacity = count;
    callsites->committed = (uint32_t)origins->count;
    return pairs_renumber(&callsites->stacks, placed->stacks, count);
}

static int origins_renumber(struct callsites *callsites, const struct origins *origins, struct varve_message *message)
{
    size_t capacity = origins->count + callsites->stacks.count + 1;
    const struct placed placed = {
        .stacks = calloc(capacity, sizeof(*placed.stacks)),
        .origins = calloc(capacity, sizeof(*placed.origins)),
        .moved = calloc((size_t)callsites->stacks.count + 1, sizeof(*placed.moved)),
        .is_taken = calloc(origins->count + 1, sizeof(*placed.is_taken)),
    };
    int result = VARVE_ERROR_NO_MEMORY;
    if (placed.stacks && placed.origins && placed.moved && placed.is_taken) {
        result = place_stored(callsites, origins, &placed, message);
    }
    if (result == VARVE_OK) {
        result = place_rest(callsites, origins, &placed);
    } else {
        free(placed.stacks);
        free(placed.origins);
    }
    free(placed.moved);
    free(placed.is_taken);
    return result == VARVE_ERROR_NO_MEMORY ? varve_message_set(message, result, "no memory for the call sites")
                                           : result;
}

int callsites_resume(struct callsites *callsites, struct store *store, struct varve_message *message)
{
    struct origins origins = {.callsites = callsites};
    assert(callsites->committed == 0);
    for (size_t i = 0; i < callsites->process_capacity; i++) {
        if (callsites->processes[i]) {
            callsites_process_read(callsites, callsites->processes[i], (uint32_t)i, 0);
        }
    }
    int result = store_each_callsite_origin(store, take_origin, &origins, message);
    VARVE_THEN(result, store_each_stat(store, CALLSITES_STAT_UNKNOWN, take_unknown, callsites, message));
    if (result == VARVE_ERROR_CORRUPT) {
        result = varve_message_set(message, result, "too many call sites in callsite_origin");
    }
    VARVE_THEN(result, origins_renumber(callsites, &origins, message));
    free(origins.rows);
    return result;
}
