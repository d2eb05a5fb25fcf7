/* SPDX-License-Identifier: Apache-2.0 */
/* A hash index over the nodes written so far, by caller and symbol. */
#include "trace/store/stack_nodes.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/store.h"

#include <stdlib.h>

struct stack_nodes_key {
    const struct stack_node *nodes;
    const struct stack_node *wanted;
};

static bool node_is_equal(const void *context, uint64_t number)
{
    const struct stack_nodes_key *key = context;
    const struct stack_node *node = &key->nodes[number - 1];
    return node->parent_id == key->wanted->parent_id && node->symbol_id == key->wanted->symbol_id;
}

/* The row of the frame that a symbol is. */
static int frame_find(struct stack_nodes *nodes, struct store *store, uint32_t symbol_id, uint32_t *id_out)
{
    if (!ARRAY_COVER(nodes->frames, nodes->frame_capacity, symbol_id)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = VARVE_OK;
    if (nodes->frames[symbol_id] == 0) {
        error = store_stack_frame(store, nodes->frame_count + 1, symbol_id, -1);
        nodes->frame_count += error == VARVE_OK;
        nodes->frames[symbol_id] = error == VARVE_OK ? nodes->frame_count : 0;
    }
    *id_out = nodes->frames[symbol_id];
    return error;
}

int stack_nodes_find(struct stack_nodes *nodes, struct store *store, uint32_t parent_id, uint32_t symbol_id,
                     uint32_t *id_out)
{
    const struct stack_node node = {.parent_id = parent_id, .symbol_id = symbol_id};
    const struct stack_nodes_key key = {.nodes = nodes->nodes, .wanted = &node};
    if (parent_id > nodes->index.count) {
        return VARVE_ERROR_INVALID;
    }
    uint64_t hash = index_hash(&node, sizeof(node), 0);
    struct index_slot *slot = index_find_equal(&nodes->index, hash, node_is_equal, &key);
    if (slot == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (slot->number != 0) {
        *id_out = (uint32_t)slot->number;
        return VARVE_OK;
    }
    if (nodes->index.count == UINT32_MAX) {
        return VARVE_ERROR_FULL;
    }
    if (!ARRAY_GROW(nodes->nodes, nodes->capacity, nodes->index.count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    uint32_t id = (uint32_t)nodes->index.count + 1, frame = 0;
    int error = frame_find(nodes, store, symbol_id, &frame);
    VARVE_THEN(error, store_stack_node(store, id, parent_id, frame));
    if (error == VARVE_OK) {
        nodes->nodes[id - 1] = node;
        index_fill(&nodes->index, slot, hash, id);
        *id_out = id;
    }
    return error;
}

void stack_nodes_free(struct stack_nodes *nodes)
{
    index_free(&nodes->index);
    free(nodes->nodes);
    free(nodes->frames);
    *nodes = (struct stack_nodes){0};
}
