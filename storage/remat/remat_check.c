/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/planner.h"

#include <inttypes.h>

static int check_storage(const struct varve_remat *remat, uint32_t number, struct varve_message *message)
{
    const struct remat_graph *graph = &remat->graph;
    const struct remat_storage *storage = &graph->storages[number];
    bool is_in_pool = storage->pool_slot != VARVE_REMAT_NONE;
    uint32_t refs = 0;
    const char *wrong = NULL;
    for (uint32_t t = storage->tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        const struct remat_tensor *tensor = &graph->tensors[t];
        refs += tensor->refs;
        wrong = tensor->storage != number                     ? "a tensor says that it is another's"
                : tensor->is_defined && !storage->is_resident ? "a tensor of an evicted storage is defined"
                : tensor->op != VARVE_REMAT_NONE && graph->ops[tensor->op].live_outputs == 0
                    ? "a tensor's operator has no outputs"
                    : wrong;
    }
    wrong = refs != storage->refs                                           ? "references do not add up"
            : is_in_pool && (storage->locks > 0 || !storage->is_resident)   ? "locked or evicted, and in the pool"
            : is_in_pool && remat->pool.slots[storage->pool_slot] != number ? "another is in its slot of the pool"
            : storage->is_resident && storage->locks == 0 && !is_in_pool && !remat->options.ignores_small
                ? "resident, not locked, and not in the pool"
            : storage->compute != graph_compute_of(graph, number)                ? "costs do not add up"
            : storage->is_pinned && storage->locks == 0 && !storage->is_banished ? "pinned without a lock"
                                                                                 : wrong;
    return wrong == NULL ? 0
                         : varve_message_set(message, VARVE_ERROR_CORRUPT, "storage %" PRIu32 ": %s", number, wrong);
}

static int remat_check_sums(const struct varve_remat *remat, struct varve_message *message)
{
    uint64_t used = 0, locked = 0, pooled = 0, pooled_bytes = 0, known = 0;
    for (uint32_t i = 0; i < remat->graph.storage_count; i++) {
        const struct remat_storage *storage = &remat->graph.storages[i];
        known += storage->is_known;
        used += storage->is_known && storage->is_resident ? storage->size : 0;
        locked += storage->is_known && storage->locks > 0 ? storage->size : 0;
        if (storage->is_known && storage->pool_slot != VARVE_REMAT_NONE) {
            pooled++;
            pooled_bytes += storage->size;
        }
    }
    if (used != remat->used || locked != remat->locked_bytes || pooled != remat->pool.count ||
        pooled_bytes != remat->pool.bytes || known != remat->graph.storages_known) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "sums: used %" PRIu64 "/%" PRIu64 ", locked %" PRIu64 "/%" PRIu64
                                 ", in the pool %" PRIu64 "/%" PRIu32,
                                 used, remat->used, locked, remat->locked_bytes, pooled, remat->pool.count);
    }
    return 0;
}

int varve_remat_check(struct varve_remat *remat, struct varve_message *message)
{
    int error = remat_check_sums(remat, message);
    for (uint32_t i = 0; i < remat->graph.storage_count && error == 0; i++) {
        if (remat->graph.storages[i].is_known) {
            error = check_storage(remat, i, message);
        }
    }
    if (error == 0 && remat->has_classes) {
        error = classes_check(&remat->classes, &remat->graph, remat->options.is_live, message);
    }
    /* As in simrd, a view's run finds no region anew, even if it leads to its storage from elsewhere. And what is
     * banished stays in the regions that it was evicted into. */
    if (error == 0 && remat->has_regions && !remat->graph.has_late_edges &&
        remat->options.dealloc != VARVE_REMAT_DEALLOC_BANISH) {
        error = regions_check(&remat->regions, &remat->graph, message);
    }
    return error;
}
