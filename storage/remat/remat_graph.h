/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages, tensors and operators, and who is made from whom. The tables are plain; what they mean for memory is
 * decided elsewhere. In a live planner what nobody can need any more is removed and its numbers are used again.
 *
 * An edge leads from the storage of an operator's input to that of its output. Edges are kept by operator: a storage
 * knows the operators that use it (consumers), its tensors know the operators that made them (producers).
 */
#ifndef VARVE_STORAGE_REMAT_REMAT_GRAPH_H
#define VARVE_STORAGE_REMAT_REMAT_GRAPH_H

#include "storage/remat/remat_growth.h"
#include "storage/remat.h"

/* What searches and walks look at comes first. */
struct remat_storage {
    int64_t compute; /* of the distinct operators that made its tensors */
    uint64_t size;
    int64_t last_access; /* clock; 0: never */
    uint64_t parent_visits,
        child_visits;    /* inputs of its tensors' operators, and outputs of the operators that use them: each as
                                           * often as it occurs */
    uint32_t pool_slot;  /* VARVE_REMAT_NONE: not evictable */
    uint32_t class_node; /* while evicted; VARVE_REMAT_NONE */
    uint32_t tensor_first, tensor_last; /* in the order of their making; the first is the root */
    uint32_t locks;                     /* a pin is one, for ever */
    uint32_t refs;                      /* of the program, to any of its tensors */
    bool is_known;                      /* the number is in use */
    bool is_resident, is_pinned, is_banished;
    uint32_t banished_as; /* the how-manieth; UINT32_MAX: it is not */
    bool was_evicted;
    bool was_released;             /* its last eviction was for the release of its last reference */
    uint64_t evicted_at;           /* executions at its last eviction */
    struct number_list consumers;  /* distinct operators */
    struct number_list neighbours; /* distinct other storages at the end of an edge, unless they were pinned then */
    struct number_list dependents; /* banishing: tensors that are made from it and not defined */
};

struct remat_tensor {
    uint64_t size;    /* its own: 0 for a view */
    uint32_t storage; /* VARVE_REMAT_NONE: the number is not in use */
    uint32_t op;      /* VARVE_REMAT_NONE: its recipe was dropped */
    uint32_t next;    /* in its storage */
    uint32_t refs;
    uint32_t uses; /* as an input of operators, as often as it occurs */
    bool is_defined;
};

struct remat_op {
    uint64_t cost_ns, total_size;
    void *user;
    uint32_t *inputs; /* one array: inputs, outputs, distinct storages of the inputs, then of the outputs */
    uint32_t input_count, output_count;
    uint32_t input_storage_count, output_storage_count;
    uint32_t live_outputs; /* that still have it as recipe; 0: the number is not in use */
    uint32_t runs;
};

struct remat_graph {
    struct remat_storage *storages;
    struct remat_tensor *tensors;
    struct remat_op *ops;
    uint32_t storage_count, tensor_count, op_count; /* numbers ever used */
    uint32_t storage_capacity, tensor_capacity, op_capacity;
    struct number_list free_storages, free_tensors, free_ops; /* numbers to use again */
    uint64_t *stamps;                                         /* of storages */
    uint32_t stamp_capacity;
    uint64_t stamp;
    bool has_neighbours; /* keep remat_storage.neighbours */
    bool has_late_edges; /* to a storage that was there already: its view has other inputs, too */
    uint64_t list_bytes; /* of all operators' arrays */
    uint64_t storages_known;
    uint32_t banished; /* storages */
};

static inline uint32_t *remat_op_outputs(const struct remat_op *op)
{
    return op->inputs + op->input_count;
}

static inline uint32_t *remat_op_input_storages(const struct remat_op *op)
{
    return op->inputs + op->input_count + op->output_count;
}

static inline uint32_t *remat_op_output_storages(const struct remat_op *op)
{
    return op->inputs + op->input_count + op->output_count + op->input_storage_count;
}

static inline bool remat_storage_is_evicted(const struct remat_storage *storage)
{
    return storage->is_known && !storage->is_resident;
}

void graph_free(struct remat_graph *graph);
/// An operator, its outputs with a reference each, and new storages for those that are no views; nothing is resident or
/// defined yet. The operator's number is returned in `op_out`. VARVE_ERROR_NO_MEMORY: the graph can only be freed.
int graph_add(struct remat_graph *graph, const struct varve_remat_op *op, uint32_t *op_out);
/// What the costs of the operators that made the storage's tensors sum up to.
int64_t graph_compute_of(const struct remat_graph *graph, uint32_t storage);
/// The tensor is no output of its operator any more. True: the operator has none now, and wants graph_remove_op.
bool graph_drop_recipe(struct remat_graph *graph, uint32_t tensor);
void graph_remove_op(struct remat_graph *graph, uint32_t op);
/// Is it an input of operators that make other storages?
bool graph_is_needed(const struct remat_graph *graph, uint32_t storage);
/// The tensor, which is not its storage's first, goes. Its recipe was dropped, nobody uses it.
void graph_remove_view(struct remat_graph *graph, uint32_t tensor);
/// Was anything that is made from it evicted for room, and not been recomputed since?
bool graph_has_evicted_children(const struct remat_graph *graph, uint32_t storage);
/// The storage and its tensors go. Their recipes were dropped, nobody needs it.
void graph_remove_storage(struct remat_graph *graph, uint32_t storage);
/// Visits of the storage's edges: what the published simulator counts as it walks over tensors.
static inline uint64_t graph_visits(const struct remat_storage *storage)
{
    return storage->parent_visits + storage->child_visits;
}

#endif
