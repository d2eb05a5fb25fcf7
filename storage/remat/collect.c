/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live planners run for days, so they forget: a storage without references that no operator of another storage uses, the operators
 * that made it, and then whatever was kept for those.
 */
#include "storage/remat/planner.h"

#include <math.h>

static bool is_wanted(const struct varve_remat *remat, uint32_t number)
{
    const struct remat_storage *storage = &remat->graph.storages[number];

    return storage->refs > 0 || storage->locks > (storage->is_pinned ? 1U : 0U) ||
           graph_is_needed(&remat->graph, number);
}

static void drop_op(struct varve_remat *remat, uint32_t number)
{
    const struct remat_op *op = &remat->graph.ops[number];

    for (uint32_t i = 0; i < op->input_storage_count; i++) {
        remat->is_broken |= !number_list_append(&remat->collect, remat_op_input_storages(op)[i]);
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

static void forget(struct varve_remat *remat, uint32_t number)
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
    }
    for (uint32_t t = storage->tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        collect_drop_recipe(remat, t);
    }
    if (remat->options.driver.forget != NULL) {
        remat->options.driver.forget(remat->options.driver.context, number);
    }
    graph_remove_storage(graph, number);
}

void collect_from(struct varve_remat *remat, uint32_t storage)
{
    remat->is_broken |= !number_list_append(&remat->collect, storage);
    while (remat->collect.count > 0) {
        uint32_t number = remat->collect.numbers[--remat->collect.count];

        if (remat->graph.storages[number].is_known && !is_wanted(remat, number)) {
            forget(remat, number);
        }
    }
}
