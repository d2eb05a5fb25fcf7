/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of stacks for those who have each stack as a list of frames: equal frames of equal callers become one row of
 * stack_node. It owns the index of the nodes written so far. callsites_finish and the writer of
 * imported traces call it.
 */
#ifndef VARVE_TRACE_STORE_STACK_NODES_H
#define VARVE_TRACE_STORE_STACK_NODES_H

#include "base/hash_index.h"

#include <stddef.h>
#include <stdint.h>

struct store;

struct stack_node {
    int64_t pc; /* -1: none */
    uint32_t parent_id;
    uint32_t symbol_id;
};

/* All zero: no nodes. Of one store, whose table is empty at first. */
struct stack_nodes {
    struct index index;
    struct stack_node *nodes; /* of row k at [k - 1] */
    size_t capacity;
};

/// The row of this frame, called from row `parent_id` (0: from nowhere), which is written if it is new. pc < 0: none.
/// A stack is entered from its outermost frame inwards. Errors: VARVE_ERROR_INVALID (no such parent), NO_MEMORY, FULL
/// (no number is left), those of store_stack_node.
int stack_nodes_find(struct stack_nodes *nodes, struct store *store, uint32_t parent_id, uint32_t symbol_id, int64_t pc,
                     uint32_t *id_out);
void stack_nodes_free(struct stack_nodes *nodes);

#endif
