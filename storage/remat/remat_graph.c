/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/remat_graph.h"

#include <stdlib.h>
#include <string.h>

void graph_free(struct remat_graph *graph)
{
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        number_list_free(&graph->storages[i].consumers);
        number_list_free(&graph->storages[i].neighbours);
        number_list_free(&graph->storages[i].dependents);
    }
    for (uint32_t i = 0; i < graph->op_count; i++) {
        free(graph->ops[i].inputs);
    }
    free(graph->storages);
    free(graph->tensors);
    free(graph->ops);
    free(graph->stamps);
    number_list_free(&graph->free_storages);
    number_list_free(&graph->free_tensors);
    number_list_free(&graph->free_ops);
}

/* ---- adding ---- */

/* Room for what graph_add adds, so that it can't fail in the middle. */
static bool remat_graph_reserve(struct remat_graph *graph, const struct varve_remat_op *op)
{
    uint64_t storages = (uint64_t)graph->storage_count + op->output_count;
    return growth_reserve(&graph->storages, &graph->storage_capacity, storages, sizeof(*graph->storages)) &&
           growth_reserve(&graph->stamps, &graph->stamp_capacity, graph->storage_capacity, sizeof(*graph->stamps)) &&
           growth_reserve(&graph->tensors, &graph->tensor_capacity, (uint64_t)graph->tensor_count + op->output_count,
                          sizeof(*graph->tensors)) &&
           growth_reserve(&graph->ops, &graph->op_capacity, (uint64_t)graph->op_count + 1, sizeof(*graph->ops)) &&
           growth_reserve(&graph->free_storages.numbers, &graph->free_storages.capacity, storages, sizeof(uint32_t)) &&
           growth_reserve(&graph->free_tensors.numbers, &graph->free_tensors.capacity,
                          (uint64_t)graph->tensor_count + op->output_count, sizeof(uint32_t)) &&
           growth_reserve(&graph->free_ops.numbers, &graph->free_ops.capacity, (uint64_t)graph->op_count + 1,
                          sizeof(uint32_t));
}

static uint32_t new_number(struct number_list *unused, uint32_t *count)
{
    return unused->count > 0 ? unused->numbers[--unused->count] : (*count)++;
}

static uint32_t new_storage(struct remat_graph *graph, uint64_t size)
{
    uint32_t number = new_number(&graph->free_storages, &graph->storage_count);
    struct remat_storage *storage = &graph->storages[number];
    struct number_list consumers = storage->consumers, neighbours = storage->neighbours,
                       dependents = storage->dependents;
    consumers.count = neighbours.count = dependents.count = 0;
    *storage = (struct remat_storage){.size = size,
                                      .pool_slot = VARVE_REMAT_NONE,
                                      .tensor_first = VARVE_REMAT_NONE,
                                      .tensor_last = VARVE_REMAT_NONE,
                                      .class_node = VARVE_REMAT_NONE,
                                      .consumers = consumers,
                                      .neighbours = neighbours,
                                      .dependents = dependents,
                                      .banished_as = UINT32_MAX,
                                      .is_known = true};
    graph->storages_known++;
    return number;
}

/* One of the operator's outputs, in a storage of its own or of the input that it is a view of. */
static void add_output(struct remat_graph *graph, const struct varve_remat_op *op, uint32_t op_number, unsigned index)
{
    int32_t alias = op->aliases[index];
    uint32_t storage = alias >= 0 ? graph->tensors[op->inputs[alias]].storage : new_storage(graph, op->sizes[index]);
    uint32_t number = new_number(&graph->free_tensors, &graph->tensor_count);
    struct remat_storage *in = &graph->storages[storage];
    graph->tensors[number] = (struct remat_tensor){.size = alias >= 0 ? 0 : op->sizes[index],
                                                   .storage = storage,
                                                   .op = op_number,
                                                   .next = VARVE_REMAT_NONE,
                                                   .refs = 1};
    /* Tensors of one operator follow each other: its cost is new to the storage unless the last one is its. */
    if (in->tensor_last == VARVE_REMAT_NONE || graph->tensors[in->tensor_last].op != op_number) {
        in->compute += (int64_t)op->cost_ns;
    }
    if (in->tensor_last == VARVE_REMAT_NONE) {
        in->tensor_first = number;
    } else {
        graph->tensors[in->tensor_last].next = number;
    }
    in->tensor_last = number;
    in->refs++;
    in->parent_visits += op->input_count;
    remat_op_outputs(&graph->ops[op_number])[index] = number;
}

/* The distinct storages of `count` tensors, at `to`. */
static uint32_t distinct_storages(struct remat_graph *graph, const uint32_t *tensors, uint32_t count, uint32_t *to)
{
    uint64_t stamp = ++graph->stamp;
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t storage = graph->tensors[tensors[i]].storage;
        if (graph->stamps[storage] != stamp) {
            graph->stamps[storage] = stamp;
            to[found++] = storage;
        }
    }
    return found;
}

static bool add_neighbours(struct remat_graph *graph, uint32_t from, uint32_t to, bool is_new)
{
    struct remat_storage *a = &graph->storages[from], *b = &graph->storages[to];
    const struct remat_storage *fewer = a->neighbours.count < b->neighbours.count ? a : b;
    if (from == to || a->is_pinned || b->is_pinned ||
        (!is_new && number_list_has(&fewer->neighbours, fewer == a ? to : from))) {
        return true;
    }
    return number_list_append(&a->neighbours, to) && number_list_append(&b->neighbours, from);
}

static bool add_edges(struct remat_graph *graph, uint32_t op_number)
{
    struct remat_op *op = &graph->ops[op_number];
    const uint32_t *from = remat_op_input_storages(op), *to = remat_op_output_storages(op);
    bool is_done = true;
    for (uint32_t i = 0; i < op->input_storage_count; i++) {
        is_done &= number_list_append(&graph->storages[from[i]].consumers, op_number);
        for (uint32_t j = 0; j < op->output_storage_count; j++) {
            uint32_t root = graph->storages[to[j]].tensor_first;
            graph->has_late_edges |= from[i] != to[j] && graph->tensors[root].op != op_number;
            if (graph->has_neighbours) {
                is_done &= add_neighbours(graph, from[i], to[j], root == remat_op_outputs(op)[0]);
            }
        }
    }
    for (uint32_t i = 0; i < op->input_count; i++) {
        graph->tensors[op->inputs[i]].uses++;
        graph->storages[graph->tensors[op->inputs[i]].storage].child_visits += op->output_count;
    }
    return is_done;
}

int graph_add(struct remat_graph *graph, const struct varve_remat_op *op, uint32_t *op_out)
{
    size_t most = 2 * ((size_t)op->input_count + op->output_count);
    uint32_t *lists = malloc(most * sizeof(*lists));
    if (lists == NULL || !remat_graph_reserve(graph, op)) {
        free(lists);
        return VARVE_ERROR_NO_MEMORY;
    }
    *op_out = new_number(&graph->free_ops, &graph->op_count);
    struct remat_op *added = &graph->ops[*op_out];
    *added = (struct remat_op){.cost_ns = op->cost_ns,
                               .user = op->user,
                               .inputs = lists,
                               .input_count = op->input_count,
                               .output_count = op->output_count,
                               .live_outputs = op->output_count};
    if (op->input_count > 0) {
        memcpy(lists, op->inputs, op->input_count * sizeof(*lists));
    }
    for (unsigned i = 0; i < op->output_count; i++) {
        add_output(graph, op, *op_out, i);
        added->total_size += op->aliases[i] >= 0 ? 0 : op->sizes[i];
    }
    added->input_storage_count =
        distinct_storages(graph, added->inputs, added->input_count, remat_op_input_storages(added));
    added->output_storage_count =
        distinct_storages(graph, remat_op_outputs(added), added->output_count, remat_op_output_storages(added));
    graph->list_bytes += most * sizeof(*lists);
    return add_edges(graph, *op_out) ? 0 : VARVE_ERROR_NO_MEMORY;
}

int64_t graph_compute_of(const struct remat_graph *graph, uint32_t storage)
{
    int64_t compute = 0;
    uint32_t last = VARVE_REMAT_NONE;
    for (uint32_t t = graph->storages[storage].tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        if (graph->tensors[t].op != VARVE_REMAT_NONE && graph->tensors[t].op != last) {
            last = graph->tensors[t].op;
            compute += (int64_t)graph->ops[last].cost_ns;
        }
    }
    return compute;
}

/* ---- removing: live planners ---- */

void graph_remove_op(struct remat_graph *graph, uint32_t number)
{
    struct remat_op *op = &graph->ops[number];
    for (uint32_t i = 0; i < op->input_storage_count; i++) {
        number_list_remove(&graph->storages[remat_op_input_storages(op)[i]].consumers, number);
    }
    for (uint32_t i = 0; i < op->input_count; i++) {
        graph->tensors[op->inputs[i]].uses--;
        graph->storages[graph->tensors[op->inputs[i]].storage].child_visits -= op->output_count;
    }
    graph->list_bytes -= 2 * ((uint64_t)op->input_count + op->output_count) * sizeof(*op->inputs);
    free(op->inputs);
    *op = (struct remat_op){0};
    graph->free_ops.numbers[graph->free_ops.count++] = number;
}

/* The operator makes nothing in the storage any more, unless another of its outputs is there. */
static void drop_output_storage(struct remat_graph *graph, struct remat_op *op, uint32_t storage)
{
    uint32_t *storages = remat_op_output_storages(op);
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t output = remat_op_outputs(op)[i];
        if (output != VARVE_REMAT_NONE && graph->tensors[output].storage == storage) {
            return;
        }
    }
    for (uint32_t i = 0; i < op->output_storage_count; i++) {
        if (storages[i] == storage) {
            storages[i] = storages[--op->output_storage_count];
        }
    }
}

bool graph_drop_recipe(struct remat_graph *graph, uint32_t tensor)
{
    struct remat_tensor *of = &graph->tensors[tensor];
    struct remat_op *op = of->op == VARVE_REMAT_NONE ? NULL : &graph->ops[of->op];
    if (op == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        if (remat_op_outputs(op)[i] == tensor) {
            remat_op_outputs(op)[i] = VARVE_REMAT_NONE;
        }
    }
    drop_output_storage(graph, op, of->storage);
    graph->storages[of->storage].parent_visits -= op->input_count;
    of->op = VARVE_REMAT_NONE;
    op->live_outputs--;
    return op->live_outputs == 0;
}

bool graph_is_needed(const struct remat_graph *graph, uint32_t number)
{
    const struct number_list *consumers = &graph->storages[number].consumers;
    for (uint32_t i = 0; i < consumers->count; i++) {
        const struct remat_op *op = &graph->ops[consumers->numbers[i]];
        if (op->output_storage_count != 1 || remat_op_output_storages(op)[0] != number) {
            return true;
        }
    }
    return false;
}

static void free_tensor(struct remat_graph *graph, uint32_t tensor)
{
    graph->tensors[tensor] = (struct remat_tensor){.storage = VARVE_REMAT_NONE};
    graph->free_tensors.numbers[graph->free_tensors.count++] = tensor;
}

void graph_remove_view(struct remat_graph *graph, uint32_t tensor)
{
    struct remat_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    uint32_t before = storage->tensor_first;
    while (graph->tensors[before].next != tensor) {
        before = graph->tensors[before].next;
    }
    graph->tensors[before].next = graph->tensors[tensor].next;
    storage->tensor_last = storage->tensor_last == tensor ? before : storage->tensor_last;
    free_tensor(graph, tensor);
}

bool graph_has_evicted_children(const struct remat_graph *graph, uint32_t number)
{
    const struct number_list *consumers = &graph->storages[number].consumers;
    for (uint32_t i = 0; i < consumers->count; i++) {
        const struct remat_op *op = &graph->ops[consumers->numbers[i]];
        for (uint32_t j = 0; j < op->output_storage_count; j++) {
            uint32_t made = remat_op_output_storages(op)[j];
            if (made != number && remat_storage_is_evicted(&graph->storages[made]) &&
                graph->storages[made].was_evicted && !graph->storages[made].was_released) {
                return true;
            }
        }
    }
    return false;
}

void graph_remove_storage(struct remat_graph *graph, uint32_t number)
{
    struct remat_storage *storage = &graph->storages[number];
    for (uint32_t i = 0; i < storage->neighbours.count; i++) {
        number_list_remove(&graph->storages[storage->neighbours.numbers[i]].neighbours, number);
    }
    for (uint32_t t = storage->tensor_first, next; t != VARVE_REMAT_NONE; t = next) {
        next = graph->tensors[t].next;
        free_tensor(graph, t);
    }
    storage->neighbours.count = 0;
    storage->is_known = false;
    graph->storages_known--;
    graph->free_storages.numbers[graph->free_storages.count++] = number;
}
