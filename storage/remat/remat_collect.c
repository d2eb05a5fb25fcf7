/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live planners run for days, so they forget: a view without references that no operator uses, a storage without
 * references that no operator of another storage uses, the operators that made them, and then whatever
 * was kept for those.
 */
#include "storage/remat/planner.h"

#include <math.h>

static bool remat_collect_is_wanted(const struct varve_remat *remat, uint32_t number)
{
    const struct remat_storage *storage = &remat->graph.storages[number];
    return storage->refs > 0 || storage->locks > (storage->is_pinned ? 1U : 0U) ||
           graph_is_needed(&remat->graph, number);
}

static void drop_op(struct varve_remat *remat, uint32_t number)
{
    const struct remat_op *op = &remat->graph.ops[number];
    for (uint32_t i = 0; i < op->input_count; i++) {
        remat->is_broken |= !number_list_append(&remat->collect, op->inputs[i]);
    }
    if (remat->options.driver.forget_op != NULL) {
        remat->options.driver.forget_op(remat->options.driver.context, op->user);
    }
    graph_remove_op(&remat->graph, number);
}

void collect_drop_recipe(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t op = remat->graph.tensors[tensor].op;
    if (graph_drop_recipe(&remat->graph, tensor)) {
        drop_op(remat, op);
    }
}

static void remat_collect_forget(struct varve_remat *remat, uint32_t number)
{
    struct remat_graph *graph = &remat->graph;
    struct remat_storage *storage = &graph->storages[number];
    if (storage->is_pinned) {
        storage->is_pinned = false;
        storage->locks = 0;
        remat->locked_bytes -= storage->size;
        remat->pinned_bytes -= storage->size;
    }
    if (storage->is_resident) {
        evict_storage(remat, number, VARVE_REMAT_CAUSE_RELEASED, NAN);
    }
    if (remat->has_classes) {
        classes_leave(&remat->classes, storage);
    }
    if (remat->has_regions) {
        remat->is_broken |= !regions_forget(&remat->regions, graph, number);
        search_regions_changed(remat);
    }
    for (uint32_t t = storage->tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        collect_drop_recipe(remat, t);
    }
    if (remat->options.driver.forget != NULL) {
        remat->options.driver.forget(remat->options.driver.context, number);
    }
    graph_remove_storage(graph, number);
}

/* The storage stays: another tensor of it is wanted. */
static void forget_view(struct varve_remat *remat, uint32_t tensor)
{
    struct remat_graph *graph = &remat->graph;
    uint32_t number = graph->tensors[tensor].storage, op = graph->tensors[tensor].op;
    struct remat_storage *storage = &graph->storages[number];
    bool has_edges = op != VARVE_REMAT_NONE && graph->ops[op].input_storage_count > 1;
    int64_t before = storage->compute;
    if (remat->options.driver.forget_view != NULL) {
        remat->options.driver.forget_view(remat->options.driver.context, tensor);
    }
    collect_drop_recipe(remat, tensor);
    graph_remove_view(graph, tensor);
    storage->compute = graph_compute_of(graph, number);
    if (remat->has_classes) {
        classes_change(&remat->classes, storage, storage->compute - before);
    }
    if (remat->has_regions && has_edges && storage->is_resident) {
        remat->is_broken |= !regions_unlinked(&remat->regions, graph, number);
        search_regions_changed(remat);
    }
    search_changed(remat, number);
}

static bool is_lost_view(const struct varve_remat *remat, uint32_t number)
{
    const struct remat_tensor *tensor = &remat->graph.tensors[number];
    const struct remat_storage *storage = &remat->graph.storages[tensor->storage];
    return tensor->refs == 0 && tensor->uses == 0 && storage->tensor_first != number &&
           storage->locks == (storage->is_pinned ? 1U : 0U);
}

void collect_output(struct varve_remat *remat, uint32_t tensor)
{
    uint32_t number = remat->graph.tensors[tensor].storage;
    varve_remat_release(remat, tensor);
    /* What is left is a view of a storage with a lock, of which others' views are kept for the unlock. */
    if (!remat->is_broken && varve_remat_is_tensor(remat, tensor)) {
        forget_view(remat, tensor);
        collect_from(remat, remat->graph.storages[number].tensor_first);
    }
}

void collect_from(struct varve_remat *remat, uint32_t tensor)
{
    remat->is_broken |= !number_list_append(&remat->collect, tensor);
    while (remat->collect.count > 0) {
        uint32_t next = remat->collect.numbers[--remat->collect.count];
        uint32_t storage = remat->graph.tensors[next].storage;
        if (storage == VARVE_REMAT_NONE) {
            continue;
        }
        if (is_lost_view(remat, next)) {
            forget_view(remat, next);
        }
        if (!remat_collect_is_wanted(remat, storage)) {
            remat_collect_forget(remat, storage);
        }
    }
}
