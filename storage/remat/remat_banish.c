/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Banishing, simrd's runtime V1: a storage without references that no evicted storage needs goes for good, and what was
 * made of it can't be recomputed, so it stays. V1 takes a banished storage's tensors out of the lists of inputs and
 * children; here they stay in them and are passed over.
 */
#include "storage/remat/planner.h"

#include <math.h>

static bool add_dependent(struct varve_remat *remat, uint32_t tensor, uint32_t input)
{
    struct remat_storage *needed = &remat->graph.storages[remat->graph.tensors[input].storage];
    if (remat->graph.tensors[tensor].storage == remat->graph.tensors[input].storage || needed->is_banished ||
        number_list_has(&needed->dependents, tensor)) {
        return true;
    }
    return number_list_append(&needed->dependents, tensor);
}

bool banish_add_dependents(struct varve_remat *remat, uint32_t number)
{
    const struct remat_op *op = &remat->graph.ops[number];
    bool is_done = true;
    for (uint32_t i = 0; i < op->output_count; i++) {
        for (uint32_t j = 0; j < op->input_count; j++) {
            is_done &= add_dependent(remat, remat_op_outputs(op)[i], op->inputs[j]);
        }
    }
    return is_done;
}

bool banish_evicted(struct varve_remat *remat, uint32_t storage)
{
    const struct remat_graph *graph = &remat->graph;
    bool is_done = true;
    for (uint32_t t = graph->storages[storage].tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        const struct remat_op *op = &graph->ops[graph->tensors[t].op];
        for (uint32_t i = 0; i < op->input_count; i++) {
            is_done &= add_dependent(remat, t, op->inputs[i]);
        }
    }
    return is_done;
}

/* The storage's tensors are no inputs of what was made of it any more, which stays resident for good then. */
static void detach_children(struct varve_remat *remat, uint32_t storage)
{
    struct remat_graph *graph = &remat->graph;
    const struct number_list *consumers = &graph->storages[storage].consumers;
    for (uint32_t i = 0; i < consumers->count; i++) {
        const struct remat_op *op = &graph->ops[consumers->numbers[i]];
        for (uint32_t j = 0; j < op->output_count; j++) {
            uint32_t output = remat_op_outputs(op)[j];
            struct remat_storage *made = &graph->storages[graph->tensors[output].storage];
            if (graph->tensors[output].storage == storage || made->is_banished) {
                continue;
            }
            for (uint32_t k = 0; k < op->input_count; k++) {
                made->parent_visits -= graph->tensors[op->inputs[k]].storage == storage;
            }
            varve_remat_pin(remat, output);
        }
    }
}

/* The storage's tensors are no children of what they were made from. */
static void detach_from_parents(struct varve_remat *remat, uint32_t storage)
{
    struct remat_graph *graph = &remat->graph;
    for (uint32_t t = graph->storages[storage].tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        const struct remat_op *op = &graph->ops[graph->tensors[t].op];
        for (uint32_t i = 0; i < op->input_count; i++) {
            struct remat_storage *parent = &graph->storages[graph->tensors[op->inputs[i]].storage];
            if (graph->tensors[op->inputs[i]].storage != storage && !parent->is_banished) {
                number_list_remove(&parent->dependents, t);
                parent->child_visits--;
            }
        }
    }
}

void banish_try(struct varve_remat *remat, uint32_t number)
{
    struct remat_storage *storage = &remat->graph.storages[number];
    if (storage->refs > 0 || storage->dependents.count > 0 || storage->is_banished) {
        return;
    }
    if (storage->is_resident) {
        if (storage->locks > 0) {
            storage->locks = 0; /* whoever has locked it is past its use, or never needs it: V1 forces it open */
            remat->locked_bytes -= storage->size;
        }
        evict_storage(remat, number, VARVE_REMAT_CAUSE_BANISHED, NAN);
    }
    detach_from_parents(remat, number);
    detach_children(remat, number);
    storage->is_banished = true;
    storage->banished_as = remat->graph.banished++;
}

void banish_unlock_inputs(struct varve_remat *remat, uint32_t op)
{
    struct remat_graph *graph = &remat->graph;
    const struct number_list *defined = &remat->defined;
    struct number_list left = {0};
    for (uint32_t i = 0; i < graph->ops[op].input_count; i++) {
        uint32_t input = graph->ops[op].inputs[i];
        if (!graph->storages[graph->tensors[input].storage].is_banished) {
            remat->is_broken |= !number_list_append(&left, input);
        }
    }
    /* V1 takes a banished input out of the list that it is going through, so the one behind it is passed over,
     * locked as it is. */
    for (uint32_t i = 0; i < left.count; i++) {
        uint32_t number = graph->tensors[left.numbers[i]].storage;
        struct remat_storage *storage = &graph->storages[number];
        if (storage->locks > 0) {
            unlock_storage(remat, number);
        }
        for (uint32_t j = 0; j < defined->count; j++) {
            number_list_remove(&storage->dependents, defined->numbers[j]);
        }
        banish_try(remat, number);
        uint32_t kept = 0;
        for (uint32_t j = 0; storage->is_banished && j < left.count; j++) {
            if (graph->tensors[left.numbers[j]].storage != number) {
                left.numbers[kept++] = left.numbers[j];
            }
        }
        left.count = storage->is_banished ? kept : left.count;
    }
    number_list_free(&left);
}
