/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/remat_regions.h"

#include <stdlib.h>

void classes_free(struct remat_classes *classes)
{
    free(classes->nodes);
}

/* Nobody uses the node: it can be another's. */
static void free_node(struct remat_classes *classes, uint32_t number)
{
    classes->nodes[number].parent = classes->unused;
    classes->unused = number;
}

static void drop_use(struct remat_classes *classes, uint32_t number)
{
    struct class_node *nodes = classes->nodes;
    while (--nodes[number].uses == 0) {
        uint32_t parent = nodes[number].parent;
        free_node(classes, number);
        if (parent == number) {
            return;
        }
        number = parent;
    }
}

/* All nodes on the way become children of the root. */
static void compress(struct remat_classes *classes, uint32_t number, uint32_t root)
{
    struct class_node *nodes = classes->nodes;
    while (number != root && nodes[number].parent != root) {
        uint32_t above = nodes[number].parent;
        nodes[number].parent = root;
        nodes[root].uses++;
        nodes[above].uses--;
        if (nodes[number].uses == 0) {
            free_node(classes, number);
            nodes[root].uses--;
        }
        number = above;
    }
    if (number != root && nodes[number].uses == 0) {
        free_node(classes, number);
        nodes[root].uses--;
    }
}

static uint32_t find_root(struct remat_classes *classes, uint32_t number)
{
    const struct class_node *nodes = classes->nodes;
    uint32_t root = number;
    classes->accesses++;
    while (nodes[root].parent != root) {
        root = nodes[root].parent;
        classes->accesses++;
    }
    compress(classes, number, root);
    return root;
}

bool classes_add(struct remat_classes *classes, struct remat_storage *storage, int64_t cost)
{
    uint32_t number = classes->unused;
    if (number != VARVE_REMAT_NONE) {
        classes->unused = classes->nodes[number].parent;
    } else if (growth_reserve(&classes->nodes, &classes->capacity, (uint64_t)classes->count + 1,
                              sizeof(*classes->nodes))) {
        number = classes->count++;
    } else {
        return false;
    }
    classes->nodes[number] = (struct class_node){.cost = cost, .parent = number, .uses = 1};
    storage->class_node = number;
    return true;
}

bool classes_evict(struct remat_classes *classes, struct remat_graph *graph, uint32_t number)
{
    struct remat_storage *storage = &graph->storages[number];
    if (!classes_add(classes, storage, storage->compute)) {
        return false;
    }
    uint32_t own = storage->class_node;
    classes->accesses += graph_visits(storage);
    for (uint32_t i = 0; i < storage->neighbours.count; i++) {
        const struct remat_storage *neighbour = &graph->storages[storage->neighbours.numbers[i]];
        if (!remat_storage_is_evicted(neighbour) || neighbour->class_node == VARVE_REMAT_NONE) {
            continue;
        }
        uint32_t root = find_root(classes, neighbour->class_node);
        classes->accesses++; /* the storage's node, a root */
        if (root != own) {
            classes->nodes[root].parent = own;
            classes->nodes[own].uses++;
            classes->nodes[own].cost += classes->nodes[root].cost;
        }
    }
    return true;
}

void classes_leave(struct remat_classes *classes, struct remat_storage *storage)
{
    if (storage->class_node == VARVE_REMAT_NONE) {
        return;
    }
    uint32_t root = find_root(classes, storage->class_node);
    classes->accesses += root == storage->class_node ? 1 : 2; /* the simulator looks it up again to write it */
    classes->nodes[root].cost -= storage->compute;
    drop_use(classes, storage->class_node);
    storage->class_node = VARVE_REMAT_NONE;
}

void classes_change(struct remat_classes *classes, const struct remat_storage *storage, int64_t by)
{
    if (storage->class_node != VARVE_REMAT_NONE) {
        classes->nodes[find_root(classes, storage->class_node)].cost += by;
    }
}

int64_t classes_cost(struct remat_classes *classes, const struct remat_graph *graph,
                     const struct remat_storage *storage)
{
    uint64_t stamp = ++classes->stamp;
    classes->accesses += graph_visits(storage);
    int64_t cost = 0;
    for (uint32_t i = 0; i < storage->neighbours.count; i++) {
        const struct remat_storage *neighbour = &graph->storages[storage->neighbours.numbers[i]];
        if (neighbour->is_resident || neighbour->class_node == VARVE_REMAT_NONE) {
            continue;
        }
        uint32_t root = find_root(classes, neighbour->class_node);
        if (classes->nodes[root].stamp != stamp) {
            classes->nodes[root].stamp = stamp;
            cost += classes->nodes[root].cost;
        }
    }
    return cost;
}

static int check_costs(const struct remat_classes *classes, const struct remat_graph *graph,
                       struct varve_message *message)
{
    int64_t *costs = calloc(classes->count > 0 ? classes->count : 1, sizeof(*costs));
    if (costs == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        uint32_t node = graph->storages[i].is_known ? graph->storages[i].class_node : VARVE_REMAT_NONE;
        while (node != VARVE_REMAT_NONE && classes->nodes[node].parent != node) {
            node = classes->nodes[node].parent;
        }
        if (node != VARVE_REMAT_NONE) {
            costs[node] += graph->storages[i].compute;
        }
    }
    int error = 0;
    for (uint32_t i = 0; i < graph->storage_count && error == 0; i++) {
        uint32_t node = graph->storages[i].is_known ? graph->storages[i].class_node : VARVE_REMAT_NONE;
        if (node != VARVE_REMAT_NONE && classes->nodes[node].parent == node &&
            classes->nodes[node].cost != costs[node]) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "class of storage %u: a cost of %lld, not %lld", i,
                                      (long long)classes->nodes[node].cost, (long long)costs[node]);
        }
    }
    free(costs);
    return error;
}

/* Every storage's node leads to a root, and nodes have as many uses as they say. */
int classes_check(const struct remat_classes *classes, const struct remat_graph *graph, bool has_costs,
                  struct varve_message *message)
{
    uint32_t *uses = calloc(classes->count > 0 ? classes->count : 1, sizeof(*uses));
    if (uses == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    uint32_t unused = 0;
    for (uint32_t i = classes->unused; i != VARVE_REMAT_NONE && unused <= classes->count; unused++) {
        uses[i] = UINT32_MAX;
        i = classes->nodes[i].parent;
    }
    int error = 0;
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        uint32_t node = graph->storages[i].is_known ? graph->storages[i].class_node : VARVE_REMAT_NONE;
        if (node != VARVE_REMAT_NONE && (node >= classes->count || uses[node]++ == UINT32_MAX)) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "storage %u: no class node %u", i, node);
        }
    }
    for (uint32_t i = 0; i < classes->count && error == 0; i++) {
        if (uses[i] != UINT32_MAX && classes->nodes[i].parent != i) {
            uses[classes->nodes[i].parent]++;
        }
    }
    for (uint32_t i = 0; i < classes->count && error == 0; i++) {
        if (uses[i] != UINT32_MAX && uses[i] != classes->nodes[i].uses) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "class node %u: %u uses, not %u", i, uses[i],
                                      classes->nodes[i].uses);
        }
    }
    free(uses);
    return error == 0 && has_costs ? check_costs(classes, graph, message) : error;
}
