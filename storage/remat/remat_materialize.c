/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making tensors defined: inputs first, those that are evicted by their own operators, on a stack of our own. The order
 * of every step is that of simrd's runtime V2, on which its figures depend.
 */
#include "storage/remat/planner.h"

#include <inttypes.h>
#include <math.h>

#define UNLOCKS_MOST 100 /* times in one operation: each may mean that inputs are made once more */
#define WASTED_WITHIN 16 /* runs: an eviction whose storage was wanted again so soon */

/* ---- the stack ---- */

static bool is_passed_over(const struct varve_remat *remat, uint32_t input)
{
    return remat->graph.storages[remat->graph.tensors[input].storage].is_banished;
}

static void touch_inputs(struct varve_remat *remat, const struct remat_op *op)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        struct remat_storage *storage = &remat->graph.storages[remat->graph.tensors[op->inputs[i]].storage];
        if (remat->options.dealloc != VARVE_REMAT_DEALLOC_BANISH || storage->refs > 0) {
            storage->last_access = (int64_t)remat->clock;
            search_changed(remat, remat->graph.tensors[op->inputs[i]].storage);
        }
    }
}

static bool lock_input(struct varve_remat *remat, uint32_t input)
{
    uint32_t storage = remat->graph.tensors[input].storage;
    if (!number_list_append(&remat->locked, storage)) {
        return false;
    }
    lock_storage(remat, storage);
    return true;
}

/* Recomputations under way. */
static uint32_t depth(const struct varve_remat *remat)
{
    return remat->frame_count - !remat->frames[0].is_remat;
}

/* The inputs that are defined are locked, the others are listed. */
static void begin_frame(struct varve_remat *remat, struct remat_frame *frame)
{
    const struct remat_op *op = &remat->graph.ops[remat->graph.tensors[frame->tensor].op];
    remat->missing.count = frame->missing_next = frame->missing_first;
    remat->locked.count = frame->locked_first;
    frame->is_unlocked = false;
    for (uint32_t i = 0; i < op->input_count; i++) {
        bool is_done =
            is_passed_over(remat, op->inputs[i]) ||
            (remat->graph.tensors[op->inputs[i]].is_defined ? lock_input(remat, op->inputs[i])
                                                            : number_list_append(&remat->missing, op->inputs[i]));
        remat->is_broken |= !is_done;
    }
    frame->missing_end = remat->missing.count;
}

static int remat_materialize_push(struct varve_remat *remat, uint32_t tensor, bool is_remat)
{
    struct remat_frame frame = {.tensor = tensor,
                                .is_remat = is_remat,
                                .missing_first = remat->missing.count,
                                .locked_first = remat->locked.count};
    if (!growth_reserve(&remat->frames, &remat->frame_capacity, (uint64_t)remat->frame_count + 1,
                        sizeof(*remat->frames))) {
        remat->is_broken = true;
        return VARVE_ERROR_NO_MEMORY;
    }
    touch_inputs(remat, &remat->graph.ops[remat->graph.tensors[tensor].op]);
    begin_frame(remat, &frame);
    remat->frames[remat->frame_count++] = frame;
    if (depth(remat) > remat->counters.depth_max) {
        remat->counters.depth_max = depth(remat);
    }
    return remat->is_broken ? VARVE_ERROR_NO_MEMORY : 0;
}

static void pop(struct varve_remat *remat)
{
    const struct remat_frame *frame = &remat->frames[--remat->frame_count];
    remat->missing.count = frame->missing_first;
    remat->locked.count = frame->locked_first;
}

static void unlock_from(struct varve_remat *remat, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        if (remat->locked.numbers[i] != VARVE_REMAT_NONE) {
            unlock_storage(remat, remat->locked.numbers[i]);
            remat->locked.numbers[i] = VARVE_REMAT_NONE;
        }
    }
}

bool materialize_unlock_waiting(struct varve_remat *remat)
{
    uint32_t waiting = remat->frame_count > 0 ? remat->frame_count - 1 : 0;
    uint64_t before = remat->pool.bytes;
    if (!remat->options.is_live || waiting == 0 || remat->unlock_count >= UNLOCKS_MOST) {
        return false;
    }
    unlock_from(remat, remat->frames[0].locked_first, remat->frames[waiting].locked_first);
    for (uint32_t i = 0; i < waiting; i++) {
        remat->frames[i].is_unlocked = true;
    }
    remat->unlock_count++;
    return remat->pool.bytes > before;
}

/* ---- room ---- */

static void report_blocked(struct varve_remat *remat, uint32_t op, uint64_t needed, uint64_t kept)
{
    struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_FAILED,
                                      .op = op,
                                      .storage = VARVE_REMAT_NONE,
                                      .bytes = needed,
                                      .cost_ns = kept,
                                      .score = NAN,
                                      .time = remat->clock};
    remat->counters.failures++;
    if (remat->options.driver.event == NULL) {
        return;
    }
    planner_event(remat, &event);
    event.kind = VARVE_REMAT_EVENT_BLOCKED;
    event.cost_ns = 0;
    for (uint32_t i = 0; i < remat->graph.storage_count; i++) {
        const struct remat_storage *storage = &remat->graph.storages[i];
        if (storage->is_known && storage->locks > 0) {
            event.cause = storage->is_pinned ? VARVE_REMAT_CAUSE_PINNED : VARVE_REMAT_CAUSE_INPUT;
            event.op = remat->graph.tensors[storage->tensor_first].op;
            event.storage = i;
            event.bytes = storage->size;
            planner_event(remat, &event);
        }
    }
}

/* Room for the operator below the budget. */
static int remat_materialize_make_room(struct varve_remat *remat, uint32_t op, struct varve_message *message)
{
    uint64_t needed = planner_needed(remat, op), budget = remat->options.budget;
    uint64_t used = planner_used(remat);
    if (used + needed <= budget) {
        return 0;
    }
    uint64_t missing = used + needed - budget;
    uint64_t evicted = 0;
    do {
        /* Where what can't be evicted leaves no room it is no use to evict the rest. */
        while ((!remat->options.is_live || planner_kept(remat) + needed <= budget) &&
               planner_used(remat) + needed > budget && remat->pool.count > 0 && !remat->is_broken) {
            evicted += evict_for(remat, planner_used(remat) + needed - budget, VARVE_REMAT_CAUSE_BUDGET);
        }
    } while (planner_used(remat) + needed > budget && materialize_unlock_waiting(remat));
    used = planner_used(remat);
    if (remat->is_broken) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (used + needed > budget) {
        uint64_t kept = planner_kept(remat);
        report_blocked(remat, op, needed, kept);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY,
                                 "%" PRIu64 " bytes are needed, and %" PRIu64
                                 " can't be evicted (inputs of waiting operators, what is pinned): a budget of %" PRIu64
                                 " bytes would do here, it is %" PRIu64,
                                 needed, kept, kept + needed, budget);
    }
    remat->counters.wasted_bytes += evicted > missing ? evicted - missing : 0;
    return 0;
}

/* ---- a run ---- */

static void add_fresh(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t storage = remat->graph.tensors[tensor].storage;
    if (!remat->graph.storages[storage].is_resident) {
        remat->is_broken |= !number_list_append(&remat->fresh, storage);
    }
}

/* The driver's part, and what the first run says of the cost. */
static int drive(struct varve_remat *remat, const struct remat_frame *frame, uint64_t *cost_out,
                 struct varve_message *message)
{
    struct remat_graph *graph = &remat->graph;
    uint32_t number = graph->tensors[frame->tensor].op;
    struct remat_op *op = &graph->ops[number];
    uint64_t left = REMAT_SUM_LIMIT - remat->clock;
    struct varve_remat_run run = {.op = number,
                                  .inputs = op->inputs,
                                  .outputs = remat_op_outputs(op),
                                  .input_count = op->input_count,
                                  .output_count = op->output_count,
                                  .is_remat = frame->is_remat,
                                  .cost_ns = op->cost_ns};
    *cost_out = op->cost_ns;
    if (op->cost_ns >= left) {
        return varve_message_set(message, VARVE_ERROR_FULL, "costs exceed 2^62 ns in sum");
    }
    int error = 0;
    if (remat->options.driver.run != NULL) {
        error = remat->options.driver.run(remat->options.driver.context, &run, message);
        op = &graph->ops[number];
        run.cost_ns = run.cost_ns < left ? run.cost_ns : left - 1;
    }
    if (error == 0 && op->runs++ == 0 && run.cost_ns != op->cost_ns) {
        planner_set_cost(remat, number, run.cost_ns);
    }
    *cost_out = run.cost_ns;
    return error;
}

static void report_run(struct varve_remat *remat, const struct remat_frame *frame, uint64_t cost)
{
    const struct remat_graph *graph = &remat->graph;
    uint32_t number = graph->tensors[frame->tensor].op, own = graph->tensors[frame->tensor].storage;
    const struct remat_op *op = &graph->ops[number];
    struct varve_remat_event event = {
        .op = number, .storage = VARVE_REMAT_NONE, .cost_ns = cost, .score = NAN, .time = remat->clock};
    if (!frame->is_remat) {
        for (uint32_t i = 0; i < op->input_storage_count; i++) {
            event.input_bytes += graph->storages[remat_op_input_storages(op)[i]].size;
        }
        event.kind = VARVE_REMAT_EVENT_OP;
        event.bytes = op->total_size;
        planner_event(remat, &event);
        return;
    }
    event.kind = VARVE_REMAT_EVENT_REMAT;
    event.depth = depth(remat);
    event.cause = VARVE_REMAT_CAUSE_DIRECT;
    event.storage = own;
    event.bytes = graph->tensors[frame->tensor].size;
    planner_event(remat, &event);
    event.cause = VARVE_REMAT_CAUSE_COLLATERAL;
    event.cost_ns = 0;
    for (uint32_t i = 0; i < remat->fresh.count; i++) {
        if (remat->fresh.numbers[i] != own) {
            event.storage = remat->fresh.numbers[i];
            event.bytes = graph->storages[event.storage].size;
            planner_event(remat, &event);
        }
    }
}

static void count_run(struct varve_remat *remat, const struct remat_frame *frame, uint64_t cost)
{
    const struct remat_graph *graph = &remat->graph;
    struct varve_remat_counters *counters = &remat->counters;
    const struct remat_op *op = &graph->ops[graph->tensors[frame->tensor].op];
    counters->executions++;
    counters->operators += !frame->is_remat;
    *(frame->is_remat ? &counters->remat_compute_ns : &counters->model_compute_ns) += cost;
    counters->remats_direct += frame->is_remat;
    for (uint32_t i = 0; i < remat->fresh.count; i++) {
        const struct remat_storage *storage = &graph->storages[remat->fresh.numbers[i]];
        counters->remats_collateral +=
            frame->is_remat && remat->fresh.numbers[i] != graph->tensors[frame->tensor].storage;
        counters->wasted_evictions +=
            storage->was_evicted && counters->executions - storage->evicted_at <= WASTED_WITHIN;
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t output = remat_op_outputs(op)[i];
        bool is_duplicate =
            output != VARVE_REMAT_NONE && graph->tensors[output].is_defined && graph->tensors[output].size > 0;
        counters->duplicates += is_duplicate;
        counters->duplicate_bytes += is_duplicate ? graph->tensors[output].size : 0;
    }
}

/* What the run made is resident and defined, and may be evicted. */
static void define_outputs(struct varve_remat *remat, const struct remat_op *op)
{
    struct remat_graph *graph = &remat->graph;
    remat->defined.count = 0;
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t output = remat_op_outputs(op)[i];
        if (output != VARVE_REMAT_NONE) {
            if (remat->options.dealloc == VARVE_REMAT_DEALLOC_BANISH && !graph->tensors[output].is_defined) {
                remat->is_broken |= !number_list_append(&remat->defined, output);
            }
            graph->tensors[output].is_defined = true;
            graph->storages[graph->tensors[output].storage].is_resident = true;
        }
    }
    for (uint32_t i = 0; i < remat->fresh.count; i++) {
        evict_allow(remat, remat->fresh.numbers[i]);
    }
}

static void update_neighbourhoods(struct varve_remat *remat)
{
    if (remat->has_regions && remat->fresh.count > 0) {
        remat->is_broken |= !regions_made(&remat->regions, &remat->graph, remat->fresh.numbers, remat->fresh.count);
        search_regions_changed(remat);
    }
    for (uint32_t i = 0; remat->walks_regions && !remat->has_regions && i < remat->fresh.count; i++) {
        regions_set_resident(&remat->regions, remat->fresh.numbers[i], true);
    }
    for (uint32_t i = 0; remat->has_classes && i < remat->fresh.count; i++) {
        classes_leave(&remat->classes, &remat->graph.storages[remat->fresh.numbers[i]]);
        search_neighbours_changed(remat, remat->fresh.numbers[i]);
    }
    for (uint32_t i = 0; i < remat->fresh.count; i++) {
        search_changed(remat, remat->fresh.numbers[i]);
    }
}

static int remat_materialize_run(struct varve_remat *remat, const struct remat_frame *frame,
                                 struct varve_message *message)
{
    struct remat_graph *graph = &remat->graph;
    uint64_t cost;
    int error = drive(remat, frame, &cost, message);
    if (error != 0) {
        return error;
    }
    const struct remat_op *op = &graph->ops[graph->tensors[frame->tensor].op];
    remat->fresh.count = 0;
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t output = remat_op_outputs(op)[i];
        if (output != VARVE_REMAT_NONE && output != frame->tensor) {
            add_fresh(remat, output);
        }
    }
    add_fresh(remat, frame->tensor);
    uint64_t made_bytes = 0;
    for (uint32_t i = 0; i < remat->fresh.count; i++) {
        made_bytes += graph->storages[remat->fresh.numbers[i]].size;
    }
    remat->clock += cost;
    remat->used += op->total_size;
    if (planner_used(remat) > remat->counters.max_used_bytes) {
        remat->counters.max_used_bytes = planner_used(remat);
    }
    count_run(remat, frame, cost);
    if (remat->options.driver.event != NULL) {
        report_run(remat, frame, cost);
    }
    define_outputs(remat, op);
    remat->used -= op->total_size - made_bytes;
    update_neighbourhoods(remat);
    return remat->is_broken ? VARVE_ERROR_NO_MEMORY : 0;
}

/* ---- one operator, with all that it needs ---- */

static void unlock_inputs(struct varve_remat *remat, const struct remat_op *op)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        unlock_storage(remat, remat->graph.tensors[op->inputs[i]].storage);
    }
}

static void note_bottleneck(struct varve_remat *remat, const struct remat_op *op)
{
    uint64_t bytes = op->total_size;
    for (uint32_t i = 0; i < op->input_count; i++) {
        bytes += remat->graph.tensors[op->inputs[i]].size;
    }
    if (bytes > remat->counters.bottleneck_bytes) {
        remat->counters.bottleneck_bytes = bytes;
    }
}

/* All inputs of the frame on top are locked. */
static int remat_materialize_finish(struct varve_remat *remat, struct varve_message *message)
{
    const struct remat_frame frame = remat->frames[remat->frame_count - 1];
    uint32_t number = remat->graph.tensors[frame.tensor].op;
    int error = remat_materialize_make_room(remat, number, message);
    VARVE_THEN(error, remat_materialize_run(remat, &frame, message));
    if (error != 0) {
        return error;
    }
    if (remat->options.dealloc == VARVE_REMAT_DEALLOC_BANISH) {
        banish_unlock_inputs(remat, number);
    } else {
        unlock_inputs(remat, &remat->graph.ops[number]);
    }
    pop(remat);
    if (remat->counters.remat_compute_ns > remat->options.remat_limit_ns) {
        return varve_message_set(message, VARVE_ERROR_FULL,
                                 "recomputation has cost %" PRIu64 " ns, more than the limit of %" PRIu64,
                                 remat->counters.remat_compute_ns, remat->options.remat_limit_ns);
    }
    note_bottleneck(remat, &remat->graph.ops[number]);
    return 0;
}

/* What the waiting operators have locked is free again. */
static void unwind(struct varve_remat *remat)
{
    while (remat->frame_count > 0) {
        unlock_from(remat, remat->frames[remat->frame_count - 1].locked_first, remat->locked.count);
        pop(remat);
    }
}

int materialize(struct varve_remat *remat, uint32_t tensor, bool is_remat, struct varve_message *message)
{
    remat->unlock_count = 0;
    int error = remat_materialize_push(remat, tensor, is_remat);
    while (error == 0 && remat->frame_count > 0) {
        struct remat_frame *frame = &remat->frames[remat->frame_count - 1];
        if (frame->is_unlocked) {
            begin_frame(remat, frame);
        }
        if (frame->missing_next == frame->missing_end) {
            error = remat_materialize_finish(remat, message);
            continue;
        }
        uint32_t input = remat->missing.numbers[frame->missing_next];
        if (!remat->graph.tensors[input].is_defined) {
            error = remat_materialize_push(remat, input, true);
        } else {
            frame->missing_next++;
            remat->is_broken |= !lock_input(remat, input);
            error = remat->is_broken ? VARVE_ERROR_NO_MEMORY : 0;
        }
    }
    if (error != 0) {
        unwind(remat);
    }
    return remat->is_broken ? planner_no_memory(message) : error;
}
