/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of stacks for those who have each stack as a list of symbols: equal symbols of equal callers become one row
 * of stack_node, and each symbol one of stack_frame. It owns the index of the nodes written so far. The writer of
 * imported traces calls it.
 */
#ifndef VARVE_TRACE_STORE_STACK_NODES_H
#define VARVE_TRACE_STORE_STACK_NODES_H

#include "base/hash_index.h"

#include <stddef.h>
#include <stdint.h>

struct store;

struct stack_node {
    uint32_t parent_id;
    uint32_t symbol_id;
};

/* All zero: no nodes. Of one store, whose table is empty at first. */
struct stack_nodes {
    struct index index;
    struct stack_node *nodes; /* of row k at [k - 1] */
    size_t capacity;
    uint32_t *frames; /* of symbol n at [n]: its row of stack_frame, 0: it has none */
    size_t frame_capacity;
    uint32_t frame_count;
};

/// The row of this symbol, called from row `parent_id` (0: from nowhere), which is written if it is new. A stack is
/// entered from its outermost frame inwards. Errors: VARVE_ERROR_INVALID (no such parent), NO_MEMORY, FULL (no number
/// is left), those of store_stack_node.
int stack_nodes_find(struct stack_nodes *nodes, struct store *store, uint32_t parent_id, uint32_t symbol_id,
                     uint32_t *id_out);
void stack_nodes_free(struct stack_nodes *nodes);

#endif
