/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools as PyTorch names them: those of graph captures and of torch.cuda.MemPool, and the states of them that
 * CUDA graph trees keep and go back to.
 */
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"

static struct varve_pool_id pool_id(uint64_t capture, uint64_t user)
{
    return (struct varve_pool_id){capture, user};
}

static int torch_pools_describe(int error, struct varve_pool_id pool, const char *what, struct varve_message *message)
{
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, error, "pool (%llu, %llu): %s: %s", (unsigned long long)pool.capture,
                                   (unsigned long long)pool.user, what, varve_strerror(error));
}

/* ---- hooks ---- */

int torch_pool_begin(int ordinal, struct varve_pool_id pool, bool (*filter)(void *context, uint64_t stream),
                     void *context, struct varve_message *message)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = varve_alloc_begin_allocate_to_pool(device->alloc, pool, filter, context);
    return torch_pools_describe(error, pool, "allocating to it can't begin", message);
}

int torch_pool_end(int ordinal, struct varve_pool_id pool, struct varve_message *message)
{
    struct frontend_device *device = registry_find(ordinal);
    if (registry_is_inherited()) {
        return VARVE_OK;
    }
    int error = device != NULL ? varve_alloc_end_allocate_to_pool(device->alloc, pool) : VARVE_ERROR_NOT_FOUND;
    return torch_pools_describe(error, pool, "nothing is allocated to it", message);
}

void torch_pool_release(int ordinal, struct varve_pool_id pool)
{
    struct frontend_device *device = registry_find(ordinal);
    if (device != NULL) {
        varve_alloc_release_pool(device->alloc, pool);
    }
}

/* ---- references and rules ---- */

int varve_torch_take_pool(int ordinal, uint64_t capture, uint64_t user)
{
    struct varve_pool_id pool = pool_id(capture, user);
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, registry_message());
    if (error != VARVE_OK) {
        return error;
    }
    error = varve_alloc_create_or_incref_pool(device->alloc, pool);
    return torch_pools_describe(error, pool, "it can't be made", registry_message());
}

/* A change of a pool of a device that is open. */
static int torch_pools_change(int ordinal, struct varve_pool_id pool,
                              int (*act)(struct varve_alloc *alloc, struct varve_pool_id pool), const char *what)
{
    struct frontend_device *device = registry_find(ordinal);
    int error = device != NULL ? act(device->alloc, pool) : VARVE_ERROR_NOT_FOUND;
    return torch_pools_describe(error, pool, what, registry_message());
}

int varve_torch_drop_pool(int ordinal, uint64_t capture, uint64_t user)
{
    return torch_pools_change(ordinal, pool_id(capture, user), varve_alloc_release_pool, "it has no reference to drop");
}

int varve_torch_set_use_on_oom(int ordinal, uint64_t capture, uint64_t user, uint32_t is_used)
{
    struct frontend_device *device = registry_find(ordinal);
    int error = device != NULL ? varve_alloc_set_use_on_oom(device->alloc, pool_id(capture, user), is_used != 0)
                               : VARVE_ERROR_NOT_FOUND;
    return torch_pools_describe(error, pool_id(capture, user), "use_on_oom", registry_message());
}

int varve_torch_set_no_split(int ordinal, uint64_t capture, uint64_t user)
{
    return torch_pools_change(ordinal, pool_id(capture, user), varve_alloc_set_no_split, "no_split");
}

int varve_torch_pool_use_count(int ordinal, uint64_t capture, uint64_t user)
{
    struct frontend_device *device = registry_find(ordinal);
    return device != NULL ? (int)varve_alloc_pool_use_count(device->alloc, pool_id(capture, user)) : 0;
}

/* ---- states ---- */

int torch_pool_look(int ordinal, struct varve_alloc_snapshot *snapshot_out, struct varve_message *message)
{
    *snapshot_out = (struct varve_alloc_snapshot){0};
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    if (error == VARVE_OK) {
        error = varve_alloc_snapshot(device->alloc, snapshot_out);
        if (error != VARVE_OK) {
            varve_message_set(message, error, "no memory for the state of a pool");
        }
    }
    return error;
}

int torch_pool_restore(int ordinal, struct varve_pool_id pool, const struct varve_alloc_snapshot *snapshot,
                       struct varve_pool_change *change_out, struct varve_message *message)
{
    *change_out = (struct varve_pool_change){0};
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    return error == VARVE_OK ? varve_alloc_restore_pool(device->alloc, pool, snapshot, change_out, message) : error;
}

bool torch_pool_holds(const struct varve_alloc_snapshot *snapshot, struct varve_pool_id pool, size_t count,
                      bool (*is_expected)(const void *context, uint64_t addr), const void *context)
{
    size_t found = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot->segments[i];
        bool is_of_pool = segment->pool.capture == pool.capture && segment->pool.user == pool.user;
        for (size_t k = 0; is_of_pool && k < segment->block_count; k++) {
            const struct varve_block_info *block = &snapshot->blocks[segment->first_block + k];
            if (block->state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
                if (!is_expected(context, block->addr)) {
                    return false;
                }
                found++;
            }
        }
    }
    return found == count;
}
