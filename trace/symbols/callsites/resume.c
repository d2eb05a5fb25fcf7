/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continues an interrupted recording with the numbers that its stored events already carry. The files are
 * read as always, which numbers the stacks in the order of reading; then the stacks are put where
 * callsite_origin says, and those that were not stored follow. The hard part is that files may be missing or
 * damaged by now: a number whose stack is gone keeps its place, with an empty stack.
 * Called once by the recovering collector, after all processes were announced and before any event.
 */
#include "trace/symbols/callsites/callsites.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct origin {
    uint32_t number, process_id, local;
};

struct origins {
    struct origin *rows;
    size_t count, capacity;
};

static int take_origin(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t site)
{
    struct origins *origins = context;

    if (!array_grow((void **)&origins->rows, &origins->capacity, origins->count + 1, sizeof(*origins->rows)))
        return VARVE_ERROR_NO_MEMORY;
    origins->rows[origins->count++] = (struct origin){callsite_id, process_id, site};
    return VARVE_OK;
}

static struct sites_process *process_of(const struct sites *sites, uint32_t process_id)
{
    return process_id < sites->process_capacity ? sites->processes[process_id] : NULL;
}

static uint32_t origin_stack(const struct sites *sites, const struct origin *origin)
{
    const struct sites_process *process = process_of(sites, origin->process_id);

    return process ? sites_map_get(&process->sites, origin->local) : 0;
}

static void note_gone(const struct sites *sites, uint32_t process_id)
{
    struct sites_process *process = process_of(sites, process_id);

    if (process)
        process->gone++;
}

static int take_unknown(void *context, int64_t idx, int64_t value)
{
    struct sites *sites = context;
    struct sites_process *process = idx > 0 && idx < UINT32_MAX ? process_of(sites, (uint32_t)idx) : NULL;

    if (process && value > 0)
        process->unknown = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    return VARVE_OK;
}

/* Fill the numbers 1..origins->count of `placed`; `moved` says for each stack read where it went. */
static int place_stored(const struct sites *sites, const struct origins *origins, struct sites_stack *placed,
                        uint32_t *moved, struct varve_message *message)
{
    bool *is_taken = calloc(origins->count + 1, sizeof(*is_taken));

    if (!is_taken)
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the call sites");
    for (size_t i = 0; i < origins->count; i++) {
        const struct origin *origin = &origins->rows[i];
        uint32_t read = origin_stack(sites, origin);

        if (origin->number == 0 || origin->number > origins->count || is_taken[origin->number]) {
            free(is_taken);
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "call site %u of %zu in callsite_origin",
                                     origin->number, origins->count);
        }
        is_taken[origin->number] = true;
        if (read == 0)
            note_gone(sites, origin->process_id);
        if (read) {
            placed[origin->number - 1] = sites->stacks.stacks[read - 1];
            if (moved[read] == 0)
                moved[read] = origin->number;
        }
        placed[origin->number - 1].process_id = origin->process_id;
        placed[origin->number - 1].local = origin->local;
    }
    free(is_taken);
    return VARVE_OK;
}

static void renumber_maps(struct sites *sites, const uint32_t *moved)
{
    for (size_t i = 0; i < sites->process_capacity; i++) {
        struct sites_process *process = sites->processes[i];

        for (size_t page = 0; process && page < process->sites.page_count; page++) {
            uint32_t *numbers = process->sites.pages[page];

            for (size_t at = 0; numbers && at < SITES_MAP_PAGE; at++)
                numbers[at] = moved[numbers[at]];
        }
    }
}

/* Stored stacks first, the others behind them; then maps and index follow. */
static int place_all(struct sites *sites, const struct origins *origins, struct varve_message *message)
{
    size_t capacity = origins->count + sites->stacks.count + 1;
    struct sites_stack *placed = calloc(capacity, sizeof(*placed));
    uint32_t *moved = calloc((size_t)sites->stacks.count + 1, sizeof(*moved));
    uint32_t count = (uint32_t)origins->count;
    int result = VARVE_ERROR_NO_MEMORY;

    if (!placed || !moved ||
        !array_grow((void **)&sites->stacks.words, &sites->stacks.words_capacity, 1, sizeof(uint32_t)))
        varve_message_set(message, result, "no memory for the call sites");
    else
        result = place_stored(sites, origins, placed, moved, message);
    if (result != VARVE_OK) {
        free(placed);
        free(moved);
        return result;
    }
    for (uint32_t read = 1; read <= sites->stacks.count; read++) {
        if (moved[read] == 0) {
            placed[count++] = sites->stacks.stacks[read - 1];
            moved[read] = count;
        }
    }
    renumber_maps(sites, moved);
    free(moved);
    free(sites->stacks.stacks);
    sites->stacks.stacks = placed;
    sites->stacks.count = count;
    sites->stacks.capacity = (uint32_t)capacity;
    sites->committed = (uint32_t)origins->count;
    if (!sites_stacks_reindex(&sites->stacks))
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the call sites");
    return VARVE_OK;
}

int sites_resume(struct sites *sites, struct store *store, struct varve_message *message)
{
    struct origins origins = {NULL, 0, 0};
    int result;

    assert(sites->committed == 0);
    for (size_t i = 0; i < sites->process_capacity; i++) {
        if (sites->processes[i])
            sites_process_read(sites, sites->processes[i], (uint32_t)i, 0);
    }
    result = store_each_callsite_origin(store, take_origin, &origins, message);
    if (result == VARVE_OK)
        result = store_each_stat(store, SITES_STAT_UNKNOWN, take_unknown, sites, message);
    if (result == VARVE_OK && origins.count >= (UINT32_C(1) << 31))
        result = varve_message_set(message, VARVE_ERROR_CORRUPT, "too many rows in callsite_origin");
    if (result == VARVE_OK)
        result = place_all(sites, &origins, message);
    free(origins.rows);
    return result;
}
