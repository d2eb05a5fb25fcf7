/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rematerialization did. A planner numbers storages, and may give the number of one that it has forgotten to
 * another: one with another size, or of another operator, gets a row of its own; one that is alike goes on with the
 * row. A run of an operator is an `op`, or a `remat` that is not collateral.
 */
#include "trace/model/derive_remat.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>

struct derive_remat *derive_remat_open(void)
{
    struct derive_remat *remat = calloc(1, sizeof(*remat));
    if (remat != NULL) {
        seqs_open(&remat->events);
    }
    return remat;
}

void derive_remat_close(struct derive_remat *remat)
{
    if (remat != NULL) {
        seqs_close(&remat->events);
        index_free(&remat->index);
        free(remat->operators);
        free(remat->storages);
        free(remat->budgets);
        free(remat->failures);
        free(remat->blocked);
        free(remat);
    }
}

void derive_remat_end(struct derive_process *process)
{
    if (process->remat != NULL) {
        index_free(&process->remat->storages);
        index_free(&process->remat->blocked);
        free(process->remat);
        process->remat = NULL;
    }
}

/* ---- rows ---- */

/* Space for whatever one event may add. */
static int derive_remat_reserve(const struct derive_step *step, struct varve_message *message)
{
    struct derive_remat *remat = step->derive->remat;
    struct derive_process *process = step->process;
    if (process->remat == NULL) {
        process->remat = calloc(1, sizeof(*process->remat));
    }
    if (process->remat == NULL || !index_reserve(&process->remat->storages) ||
        !index_reserve(&process->remat->blocked) || !index_reserve(&remat->index) ||
        !ARRAY_GROW(remat->operators, remat->operator_capacity, remat->operator_count + 1) ||
        !ARRAY_GROW(remat->storages, remat->storage_capacity, remat->storage_count + 1) ||
        !ARRAY_GROW(remat->budgets, remat->budget_capacity, remat->budget_count + 1) ||
        !ARRAY_GROW(remat->failures, remat->failure_capacity, remat->failure_count + 1) ||
        !ARRAY_GROW(remat->blocked, remat->blocked_capacity, remat->blocked_count + 1)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to follow rematerialization");
    }
    return seqs_reserve(&remat->events, step->derive->path, "remats", message);
}

static struct derive_operator *operator_get(const struct derive_step *step, uint16_t number)
{
    struct derive_remat *remat = step->derive->remat;
    uint64_t key = (uint64_t)step->event->process_id << 16 | number;
    uint64_t row = index_find(&remat->index, key);
    if (row == 0) {
        remat->operators[remat->operator_count++] =
            (struct derive_operator){.process_id = step->event->process_id, .number = number};
        row = remat->operator_count;
        index_insert(&remat->index, key, row);
    }
    return &remat->operators[row - 1];
}

static struct derive_remat_storage *storage_get(const struct derive_step *step)
{
    struct derive_remat *remat = step->derive->remat;
    const struct event *event = step->event;
    uint64_t number = index_find(&step->process->remat->storages, event->id);
    struct derive_remat_storage *row;
    if (number != 0) {
        row = &remat->storages[number - 1];
        if (row->maker == event->pool && row->size == event->size) {
            return row;
        }
    }
    row = &remat->storages[remat->storage_count++];
    *row = (struct derive_remat_storage){
        .number = event->id, .size = event->size, .process_id = event->process_id, .maker = event->pool};
    index_insert(&step->process->remat->storages, event->id, remat->storage_count);
    return row;
}

/* ---- events ---- */

static void derive_remat_name_take(const struct derive_step *step)
{
    const struct event *event = step->event;
    const uint64_t words[] = {event->addr, event->size, event->requested, event->arg};
    char *name = operator_get(step, (uint16_t)event->id)->name;

    static_assert(sizeof(words) == OPERATOR_NAME_BYTES, "a name is four words");
    memcpy(name, words, sizeof(words));
    for (size_t i = 0; name[i] != '\0'; i++) {
        name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?'; /* a damaged one is text all the same */
    }
}

static void op_take(const struct derive_step *step)
{
    struct derive_operator *row = operator_get(step, step->event->pool);
    row->runs++;
    row->run_ns += step->event->arg;
    row->input_bytes += step->event->requested;
    row->output_bytes += step->event->size;
    step->process->remat->runs++;
}

static void evict_take(const struct derive_step *step)
{
    const struct event *event = step->event;
    struct derive_operator *maker = operator_get(step, event->pool);
    struct derive_remat_storage *row = storage_get(step);
    unsigned cause = event->cause >= VARVE_CAUSE_EVICT_RELEASED && event->cause <= VARVE_CAUSE_EVICT_BANISHED
                         ? event->cause - VARVE_CAUSE_EVICT_RELEASED + 1
                         : 0;
    maker->evictions[cause]++;
    maker->evicted_bytes[cause] += event->size;
    row->evictions++;
    row->is_evicted = true;
    row->evict_run = step->process->remat->runs;
}

/* Returns whether the eviction before it was a wasted one. */
static bool remat_take(const struct derive_step *step)
{
    const struct event *event = step->event;
    bool is_collateral = event->cause == VARVE_CAUSE_REMAT_COLLATERAL;
    struct derive_operator *maker = operator_get(step, event->pool);
    struct derive_remat_storage *row = storage_get(step);
    step->process->remat->runs += !is_collateral;
    bool is_wasted = row->is_evicted && step->process->remat->runs - row->evict_run <= REMAT_WASTED_RUNS;
    maker->remats += !is_collateral;
    maker->collateral += is_collateral;
    maker->remat_ns += event->arg;
    maker->wasted += is_wasted;
    if (event->requested > maker->depth_max) {
        maker->depth_max = event->requested < UINT32_MAX ? (uint32_t)event->requested : UINT32_MAX;
    }
    row->remats += !is_collateral;
    row->collateral += is_collateral;
    row->remat_ns += event->arg;
    row->wasted += is_wasted;
    row->is_evicted = false;
    return is_wasted;
}

static void budget_take(const struct derive_step *step)
{
    struct derive_remat *remat = step->derive->remat;
    const struct event *event = step->event;
    remat->budgets[remat->budget_count++] = (struct derive_budget){
        .seq = event->seq, .bytes = event->size, .ts_ns = event->ts_ns, .process_id = event->process_id};
    step->process->remat->budget = remat->budget_count;
}

static void failure_take(const struct derive_step *step)
{
    struct derive_remat *remat = step->derive->remat;
    const struct event *event = step->event;
    operator_get(step, event->pool);
    remat->failures[remat->failure_count++] = (struct derive_remat_failure){
        .seq = event->seq,
        .op = event->id,
        .needed = event->size,
        .blocked = event->arg,
        .budget = step->process->remat->budget,
        .ts_ns = event->ts_ns,
        .process_id = event->process_id,
        .maker = event->pool,
    };
    step->process->remat->failure_seq = event->seq;
    index_free(&step->process->remat->blocked);
}

/* Of the failure before it; without one it says nothing. */
static void blocked_take(const struct derive_step *step)
{
    struct derive_remat *remat = step->derive->remat;
    struct derive_remat_process *own = step->process->remat;
    const struct event *event = step->event;
    uint64_t key = (uint64_t)event->pool << 8 | event->cause;
    uint64_t number = index_find(&own->blocked, key);
    if (own->failure_seq == 0) {
        return;
    }
    operator_get(step, event->pool);
    if (number == 0) {
        remat->blocked[remat->blocked_count++] =
            (struct derive_blocked){.failure_seq = own->failure_seq, .maker = event->pool, .cause = event->cause};
        number = remat->blocked_count;
        index_insert(&own->blocked, key, number);
    }
    remat->blocked[number - 1].storages++;
    remat->blocked[number - 1].bytes += event->size;
}

static void pin_take(const struct derive_step *step)
{
    operator_get(step, step->event->pool);
    storage_get(step)->is_pinned = step->event->kind == VARVE_KIND_PIN;
}

int derive_remat(const struct derive_step *step, struct varve_message *message)
{
    const struct event *event = step->event;
    bool has_failed = (event->flags & VARVE_FLAG_FAILED) != 0;
    int error = derive_remat_reserve(step, message);
    if (error != VARVE_OK) {
        return error;
    }
    bool is_wasted = false;
    switch (event->kind) {
    case VARVE_KIND_OP_NAME:
        derive_remat_name_take(step);
        break;
    case VARVE_KIND_OP:
        op_take(step);
        break;
    case VARVE_KIND_EVICT:
        evict_take(step);
        break;
    case VARVE_KIND_REMAT:
        is_wasted = remat_take(step);
        break;
    case VARVE_KIND_BUDGET:
        (has_failed ? failure_take : budget_take)(step);
        break;
    default:
        (has_failed ? blocked_take : pin_take)(step);
        break;
    }
    seqs_add(&step->derive->remat->events, event->seq, event->kind | (is_wasted ? REMAT_WASTED : 0));
    return VARVE_OK;
}

/* ---- the walker ---- */

/* What is counted by operator and by storage, added up. */
struct sums {
    uint64_t evictions, remats, collateral, remat_ns, wasted;
};

static bool indexes_are_sound(const struct derive *derive)
{
    const struct derive_remat *remat = derive->remat;
    for (size_t i = 0; i < remat->operator_count; i++) {
        const struct derive_operator *row = &remat->operators[i];
        if (index_find(&remat->index, (uint64_t)row->process_id << 16 | row->number) != i + 1) {
            return false;
        }
    }
    for (size_t p = 0; p < derive->process_limit; p++) {
        const struct derive_remat_process *own = derive->processes[p] != NULL ? derive->processes[p]->remat : NULL;
        for (uint64_t i = 0; own != NULL && i < index_slots(&own->storages); i++) {
            const struct index_slot *slot = &own->storages.slots[i];
            if (slot->number > remat->storage_count ||
                (slot->number != 0 && (remat->storages[slot->number - 1].number != slot->key ||
                                       remat->storages[slot->number - 1].process_id != p))) {
                return false;
            }
        }
    }
    return index_check(&remat->index);
}

int derive_remat_check(const struct derive *derive, struct varve_message *message)
{
    const struct derive_remat *remat = derive->remat;
    struct sums sums = {0};
    for (size_t i = 0; i < remat->operator_count; i++) {
        const struct derive_operator *row = &remat->operators[i];
        for (unsigned cause = 0; cause < EVICT_CAUSES; cause++) {
            sums.evictions += row->evictions[cause];
        }
        sums.remats += row->remats;
        sums.collateral += row->collateral;
        sums.remat_ns += row->remat_ns;
        sums.wasted += row->wasted;
    }
    for (size_t i = 0; i < remat->storage_count; i++) {
        const struct derive_remat_storage *row = &remat->storages[i];
        sums.evictions -= row->evictions;
        sums.remats -= row->remats;
        sums.collateral -= row->collateral;
        sums.remat_ns -= row->remat_ns;
        sums.wasted -= row->wasted;
    }
    if ((sums.evictions | sums.remats | sums.collateral | sums.remat_ns | sums.wasted) != 0) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "rematerialization: sums by operator and by storage differ");
    }
    return indexes_are_sound(derive)
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_CORRUPT, "rematerialization: an index and its rows differ");
}
