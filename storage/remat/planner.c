/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's door: what a program says it runs, keeps and releases, and what can be asked. */
#include "storage/remat/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COST_LIMIT (UINT64_C(1) << 61) /* of cost_sum: a score's cost is three such sums at most, and signed */

/* ---- opening ---- */

void varve_remat_options_init(struct varve_remat_options *options)
{
    *options = (struct varve_remat_options){.budget = VARVE_REMAT_UNLIMITED, .remat_limit_ns = VARVE_REMAT_UNLIMITED};
}

static bool can_search(const struct varve_remat_heuristic *heuristic, enum varve_remat_search search)
{
    return search == VARVE_REMAT_SEARCH_SCAN ||
           (!heuristic->is_window && heuristic->score != VARVE_REMAT_SCORE_RANDOM &&
            heuristic->cost != VARVE_REMAT_COST_UNION &&
            (search == VARVE_REMAT_SEARCH_KINETIC || heuristic->score != VARVE_REMAT_SCORE_LAST_ACCESS));
}

static int planner_check_options(const struct varve_remat_options *options,
                                 const struct varve_remat_heuristic *heuristic, struct varve_message *message)
{
    if ((heuristic->is_window && options->driver.layout == NULL) ||
        (heuristic->has_free_neighbours && options->driver.free_neighbours == NULL)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "heuristic %s needs an allocator", heuristic->name);
    }
    if (!can_search(heuristic, options->search)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "heuristic %s can only be searched by a scan",
                                 heuristic->name);
    }
    if (options->is_live && options->dealloc != VARVE_REMAT_DEALLOC_EAGER) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "a live planner evicts what is released");
    }
    return 0;
}

int varve_remat_open(const struct varve_remat_options *options, struct varve_remat **remat_out,
                     struct varve_message *message)
{
    const struct varve_remat_heuristic *heuristic =
        options->heuristic != NULL ? options->heuristic : varve_remat_heuristic_find("dtr");
    int error = planner_check_options(options, heuristic, message);
    *remat_out = NULL;
    if (error != 0) {
        return error;
    }
    struct varve_remat *remat = calloc(1, sizeof(*remat));
    if (remat == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a planner");
    }
    remat->options = *options;
    remat->heuristic = heuristic;
    remat->has_classes = heuristic->cost == VARVE_REMAT_COST_CLASSES;
    remat->has_regions =
        heuristic->cost == VARVE_REMAT_COST_NEIGHBOURS || heuristic->cost == VARVE_REMAT_COST_ANCESTORS;
    remat->walks_regions = remat->has_regions || heuristic->cost == VARVE_REMAT_COST_UNION;
    remat->has_tournament = options->search == VARVE_REMAT_SEARCH_KINETIC;
    remat->graph.has_neighbours = remat->has_classes;
    remat->classes.unused = VARVE_REMAT_NONE;
    remat->clock = 1;
    twister_seed(&remat->random, options->seed);
    *remat_out = remat;
    if (options->budget != VARVE_REMAT_UNLIMITED) {
        varve_remat_set_budget(remat, options->budget);
    }
    return 0;
}

void varve_remat_close(struct varve_remat *remat)
{
    if (remat == NULL) {
        return;
    }
    graph_free(&remat->graph);
    pool_free(&remat->pool);
    classes_free(&remat->classes);
    regions_free(&remat->regions);
    tournament_free(&remat->tournament);
    number_list_free(&remat->missing);
    number_list_free(&remat->locked);
    number_list_free(&remat->fresh);
    number_list_free(&remat->defined);
    number_list_free(&remat->collect);
    free(remat->frames);
    free(remat->sums);
    free(remat);
}

/* ---- for the other parts ---- */

int planner_no_memory(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the planner's tables");
}

void planner_event(struct varve_remat *remat, const struct varve_remat_event *event)
{
    if (remat->options.driver.event != NULL) {
        remat->options.driver.event(remat->options.driver.context, event);
    }
}

uint64_t planner_used(const struct varve_remat *remat)
{
    return remat->options.driver.bytes_used != NULL ? remat->options.driver.bytes_used(remat->options.driver.context)
                                                    : remat->used;
}

uint64_t planner_kept(const struct varve_remat *remat)
{
    uint64_t used = planner_used(remat);
    return used > remat->pool.bytes ? used - remat->pool.bytes : 0;
}

uint64_t planner_needed(const struct varve_remat *remat, uint32_t op)
{
    return remat->options.driver.bytes_needed != NULL
               ? remat->options.driver.bytes_needed(remat->options.driver.context, op)
               : remat->graph.ops[op].total_size;
}

static uint64_t cost_most(const struct varve_remat *remat, uint32_t outputs)
{
    return (COST_LIMIT - 1 - remat->cost_sum) / outputs;
}

void planner_set_cost(struct varve_remat *remat, uint32_t number, uint64_t cost_ns)
{
    struct remat_graph *graph = &remat->graph;
    struct remat_op *op = &graph->ops[number];
    uint64_t most = cost_most(remat, op->output_count);
    op->cost_ns = cost_ns < most ? cost_ns : most;
    remat->cost_sum += op->cost_ns * op->output_count;
    for (uint32_t i = 0; i < op->output_storage_count; i++) {
        struct remat_storage *storage = &graph->storages[remat_op_output_storages(op)[i]];
        int64_t before = storage->compute;
        storage->compute = graph_compute_of(graph, remat_op_output_storages(op)[i]);
        if (remat->has_classes && remat->options.is_live) {
            classes_change(&remat->classes, storage, storage->compute - before);
        }
    }
}

/* ---- operators ---- */

static int check_op(const struct varve_remat *remat, const struct varve_remat_op *op, struct varve_message *message)
{
    uint64_t sizes = remat->used;
    if (op->output_count == 0 || op->cost_ns > cost_most(remat, op->output_count) ||
        op->cost_ns >= REMAT_SUM_LIMIT - remat->clock) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "an operator %s",
                                 op->output_count == 0 ? "without outputs"
                                                       : "by which costs would exceed 2^61 ns in sum");
    }
    for (unsigned i = 0; i < op->input_count; i++) {
        if (!varve_remat_is_tensor(remat, op->inputs[i])) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "input %u is no tensor: %" PRIu32, i, op->inputs[i]);
        }
    }
    for (unsigned i = 0; i < op->output_count; i++) {
        if (op->aliases[i] >= 0 && (unsigned)op->aliases[i] >= op->input_count) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "output %u is a view of input %" PRId32 " of %u", i,
                                     op->aliases[i], op->input_count);
        }
        if (op->aliases[i] < 0 && op->sizes[i] >= REMAT_SUM_LIMIT - sizes) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "sizes exceed 2^62 bytes in sum");
        }
        sizes += op->aliases[i] < 0 ? op->sizes[i] : 0;
    }
    return 0;
}

/* What the structures for neighbourhoods keep of new storages, and of views that make old ones dearer. */
static bool planner_prepare(struct varve_remat *remat, uint32_t number)
{
    const struct remat_op *op = &remat->graph.ops[number];
    remat->cost_sum += op->cost_ns * op->output_count;
    bool is_done = true;
    if (remat->walks_regions) {
        is_done &= regions_reserve(&remat->regions, &remat->graph);
    }
    for (uint32_t i = 0; i < op->output_storage_count; i++) {
        struct remat_storage *storage = &remat->graph.storages[remat_op_output_storages(op)[i]];
        bool is_new = remat->graph.tensors[storage->tensor_first].op == number;
        if (is_new) {
            remat->size_sum += storage->size;
            remat->size_count++;
        }
        /* The simulator's classes have new storages without their cost, and take it out as they are made. */
        if (remat->has_classes && is_new) {
            is_done &= classes_add(&remat->classes, storage, remat->options.is_live ? storage->compute : 0);
        } else if (remat->has_classes && remat->options.is_live) {
            classes_change(&remat->classes, storage, (int64_t)op->cost_ns);
        }
    }
    if (remat->options.dealloc == VARVE_REMAT_DEALLOC_BANISH) {
        is_done &= banish_add_dependents(remat, number);
    }
    return is_done;
}

/* An operator that did not run leaves nothing. */
static void drop_outputs(struct varve_remat *remat, const uint32_t *outputs, unsigned count)
{
    for (unsigned i = 0; i < count && remat->options.is_live && !remat->is_broken; i++) {
        collect_output(remat, outputs[i]);
    }
}

int varve_remat_compute(struct varve_remat *remat, const struct varve_remat_op *op, uint32_t *outputs_out,
                        struct varve_message *message)
{
    uint32_t number;
    int error = remat->is_broken ? VARVE_ERROR_NO_MEMORY : check_op(remat, op, message);
    if (error == 0) {
        error = graph_add(&remat->graph, op, &number);
        remat->is_broken |= error != 0 || !planner_prepare(remat, number);
    }
    if (remat->is_broken) {
        return planner_no_memory(message);
    }
    if (error != 0) {
        return error;
    }
    memcpy(outputs_out, remat_op_outputs(&remat->graph.ops[number]), op->output_count * sizeof(*outputs_out));
    error = materialize(remat, outputs_out[0], false, message);
    if (error != 0) {
        drop_outputs(remat, outputs_out, op->output_count);
        return error;
    }
    for (unsigned i = 0; i < op->output_count; i++) {
        uint32_t storage = remat->graph.tensors[outputs_out[i]].storage;
        remat->graph.storages[storage].last_access = (int64_t)remat->clock;
        search_changed(remat, storage);
    }
    return 0;
}

int varve_remat_materialize(struct varve_remat *remat, uint32_t tensor, struct varve_message *message)
{
    if (remat->is_broken) {
        return planner_no_memory(message);
    }
    return remat->graph.tensors[tensor].is_defined ? 0 : materialize(remat, tensor, true, message);
}

/* ---- references ---- */

void varve_remat_retain(struct varve_remat *remat, uint32_t tensor)
{
    remat->graph.tensors[tensor].refs++;
    remat->graph.storages[remat->graph.tensors[tensor].storage].refs++;
}

/* The simulator evicts at once. A live planner first looks whether anything evicted is made from the storage: if it
 * went for room, that was because it could be had again from here; from further back it may take more than there is. */
static bool is_evicted_at_once(const struct varve_remat *remat, uint32_t number)
{
    const struct remat_storage *storage = &remat->graph.storages[number];
    return remat->options.dealloc == VARVE_REMAT_DEALLOC_EAGER && storage->is_resident && storage->locks == 0 &&
           (!remat->options.is_live || !graph_has_evicted_children(&remat->graph, number));
}

void varve_remat_release(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    struct remat_storage *storage = &remat->graph.storages[number];
    remat->graph.tensors[tensor].refs--;
    storage->refs--;
    if (remat->is_broken) {
        return;
    }
    if (storage->refs == 0 && remat->options.dealloc == VARVE_REMAT_DEALLOC_BANISH) {
        banish_try(remat, number);
    } else if (storage->refs == 0 && is_evicted_at_once(remat, number)) {
        evict_storage(remat, number, VARVE_REMAT_CAUSE_RELEASED, NAN);
    }
    if (remat->options.is_live && remat->graph.tensors[tensor].refs == 0) {
        collect_from(remat, tensor);
    }
}

static void report_pin(struct varve_remat *remat, uint32_t number, enum varve_remat_event_kind kind)
{
    const struct remat_storage *storage = &remat->graph.storages[number];
    const struct varve_remat_event event = {.kind = kind,
                                            .cause = VARVE_REMAT_CAUSE_PINNED,
                                            .op = remat->graph.tensors[storage->tensor_first].op,
                                            .storage = number,
                                            .bytes = storage->size,
                                            .score = NAN,
                                            .time = remat->clock};
    planner_event(remat, &event);
}

void varve_remat_pin(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    struct remat_storage *storage = &remat->graph.storages[number];
    if (storage->is_pinned || remat->is_broken) {
        return;
    }
    lock_storage(remat, number);
    storage->is_pinned = true;
    remat->pinned_bytes += storage->size;
    report_pin(remat, number, VARVE_REMAT_EVENT_PIN);
}

/* Some tensor of it can't be made again. */
static bool is_constant(const struct varve_remat *remat, uint32_t number)
{
    const struct remat_graph *graph = &remat->graph;
    uint32_t t = graph->storages[number].tensor_first;
    while (t != VARVE_REMAT_NONE && graph->tensors[t].op != VARVE_REMAT_NONE) {
        t = graph->tensors[t].next;
    }
    return t != VARVE_REMAT_NONE;
}

void varve_remat_unpin(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    struct remat_storage *storage = &remat->graph.storages[number];
    if (!storage->is_pinned || remat->is_broken || is_constant(remat, number)) {
        return;
    }
    storage->is_pinned = false;
    remat->pinned_bytes -= storage->size;
    report_pin(remat, number, VARVE_REMAT_EVENT_UNPIN);
    unlock_storage(remat, number);
}

void varve_remat_drop_recipe(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    if (remat->is_broken) {
        return;
    }
    varve_remat_pin(remat, tensor);
    /* The storage can't be evicted any more, so none that is defined will have to be made again; a view that
     * is not still may. */
    for (uint32_t t = remat->graph.storages[number].tensor_first; t != VARVE_REMAT_NONE;
         t = remat->graph.tensors[t].next) {
        if (remat->graph.tensors[t].is_defined) {
            collect_drop_recipe(remat, t);
        }
    }
    remat->graph.storages[number].compute = graph_compute_of(&remat->graph, number);
    if (remat->has_regions) {
        remat->is_broken |= !regions_unlinked(&remat->regions, &remat->graph, number);
        search_regions_changed(remat);
    }
    collect_from(remat, tensor);
}

int varve_remat_evict(struct varve_remat *remat, uint32_t tensor, struct varve_message *message)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    const struct remat_storage *storage = &remat->graph.storages[number];
    if (remat->is_broken) {
        return planner_no_memory(message);
    }
    if (!storage->is_resident || storage->locks > 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "storage %" PRIu32 " is %s", number,
                                 !storage->is_resident ? "evicted already"
                                 : storage->is_pinned  ? "pinned"
                                                       : "in use");
    }
    evict_storage(remat, number, VARVE_REMAT_CAUSE_REQUESTED, NAN);
    return 0;
}

void varve_remat_lock(struct varve_remat *remat, uint32_t tensor)
{
    if (!remat->is_broken) {
        lock_storage(remat, remat->graph.tensors[tensor].storage);
    }
}

void varve_remat_unlock(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    if (remat->is_broken) {
        return;
    }
    unlock_storage(remat, number);
    if (!remat->options.is_live) {
        return;
    }
    /* What was released meanwhile: the lock has kept it. */
    for (uint32_t t = remat->graph.storages[number].tensor_first; t != VARVE_REMAT_NONE;
         t = remat->graph.tensors[t].next) {
        if (remat->graph.tensors[t].refs == 0 && remat->graph.tensors[t].uses == 0) {
            remat->is_broken |= !number_list_append(&remat->collect, t);
        }
    }
    collect_from(remat, tensor);
}

uint64_t varve_remat_make_room(struct varve_remat *remat, uint64_t bytes)
{
    uint64_t freed = evict_for(remat, bytes, VARVE_REMAT_CAUSE_ALLOCATOR);
    return freed > 0 || !materialize_unlock_waiting(remat) ? freed
                                                           : evict_for(remat, bytes, VARVE_REMAT_CAUSE_ALLOCATOR);
}

/* ---- settings ---- */

void varve_remat_set_budget(struct varve_remat *remat, uint64_t bytes)
{
    const struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_BUDGET,
                                            .op = VARVE_REMAT_NONE,
                                            .storage = VARVE_REMAT_NONE,
                                            .bytes = bytes,
                                            .score = NAN,
                                            .time = remat->clock};
    remat->options.budget = bytes;
    planner_event(remat, &event);
}

/* All that may be evicted, under another rule. */
static void refill_pool(struct varve_remat *remat)
{
    for (uint32_t i = 0; i < remat->graph.storage_count && !remat->is_broken; i++) {
        const struct remat_storage *storage = &remat->graph.storages[i];
        if (storage->is_known && storage->is_resident && storage->locks == 0) {
            evict_forbid(remat, i);
            evict_allow(remat, i);
        }
    }
}

void varve_remat_set_search(struct varve_remat *remat, enum varve_remat_search search)
{
    remat->options.search = can_search(remat->heuristic, search) ? search : VARVE_REMAT_SEARCH_SCAN;
    remat->has_tournament = remat->options.search == VARVE_REMAT_SEARCH_KINETIC;
    tournament_free(&remat->tournament); /* it has missed what another search saw */
    remat->tournament = (struct remat_tournament){0};
    refill_pool(remat);
}

void varve_remat_set_ignores_small(struct varve_remat *remat, bool is_on)
{
    remat->options.ignores_small = is_on;
    refill_pool(remat);
}

/* ---- questions ---- */

bool varve_remat_is_defined(const struct varve_remat *remat, uint32_t tensor)
{
    return remat->graph.tensors[tensor].is_defined;
}

uint32_t varve_remat_storage(const struct varve_remat *remat, uint32_t tensor)
{
    return remat->graph.tensors[tensor].storage;
}

bool varve_remat_is_tensor(const struct varve_remat *remat, uint32_t number)
{
    return number < remat->graph.tensor_count && remat->graph.tensors[number].storage != VARVE_REMAT_NONE;
}

uint64_t varve_remat_storage_bytes(const struct varve_remat *remat, uint32_t tensor)
{
    return remat->graph.storages[remat->graph.tensors[tensor].storage].size;
}

uint64_t varve_remat_cost(const struct varve_remat *remat, uint32_t tensor)
{
    uint32_t op = remat->graph.tensors[tensor].op;
    return op != VARVE_REMAT_NONE ? remat->graph.ops[op].cost_ns : 0;
}

uint32_t varve_remat_first_tensor(const struct varve_remat *remat, uint32_t storage)
{
    return remat->graph.storages[storage].tensor_first;
}

uint32_t varve_remat_next_tensor(const struct varve_remat *remat, uint32_t tensor)
{
    return remat->graph.tensors[tensor].next;
}

void *varve_remat_user(const struct varve_remat *remat, uint32_t op)
{
    return remat->graph.ops[op].user;
}

static uint64_t metadata(const struct varve_remat *remat)
{
    const struct remat_graph *graph = &remat->graph;
    uint64_t bytes = sizeof(*remat) + graph->list_bytes + remat->regions.bytes;
    bytes += (uint64_t)graph->storage_capacity * (sizeof(*graph->storages) + sizeof(*graph->stamps));
    bytes += (uint64_t)graph->tensor_capacity * sizeof(*graph->tensors);
    bytes += (uint64_t)graph->op_capacity * sizeof(*graph->ops);
    bytes += (uint64_t)remat->classes.capacity * sizeof(*remat->classes.nodes);
    bytes += (uint64_t)remat->regions.capacity * sizeof(*remat->regions.of);
    bytes += (uint64_t)remat->pool.capacity * sizeof(*remat->pool.slots);
    bytes += (uint64_t)remat->tournament.leaves *
             (sizeof(*remat->tournament.entries) + 2 * sizeof(*remat->tournament.nodes));
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        bytes += sizeof(uint32_t) * ((uint64_t)graph->storages[i].consumers.capacity +
                                     graph->storages[i].neighbours.capacity + graph->storages[i].dependents.capacity);
    }
    return bytes;
}

void varve_remat_get_counters(const struct varve_remat *remat, struct varve_remat_counters *counters_out)
{
    *counters_out = remat->counters;
    counters_out->heuristic_accesses += remat->classes.accesses + remat->regions.accesses;
    counters_out->clock = remat->clock;
    counters_out->used_bytes = planner_used(remat);
    counters_out->pinned_bytes = remat->pinned_bytes;
    counters_out->storages = remat->graph.storages_known;
    counters_out->candidates = remat->pool.count;
    counters_out->metadata_bytes = metadata(remat);
}

void varve_remat_reset_counters(struct varve_remat *remat)
{
    remat->counters =
        (struct varve_remat_counters){.max_used_bytes = planner_used(remat), .locked_bytes_max = remat->locked_bytes};
    remat->classes.accesses = 0;
    remat->regions.accesses = 0;
}
