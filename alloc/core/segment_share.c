/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes and other devices: a segment is exported with the block's offset in it; an import
 * is mapped once, however many blocks of it are opened. Peers get access to expandable segments, which have
 * no access of their own by default.
 */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_emit.h"

#include <stdlib.h>
#include <string.h>

struct shared_mapping {
    struct shared_mapping *next;
    struct varve_ipc_handle handle;
    uint64_t addr;
    struct shared_open *opens; /* never empty */
};

/* A block of the mapping that was opened, once or more. */
struct shared_open {
    struct shared_open *next;
    uint64_t addr;
    uint64_t count;
};

int varve_alloc_ipc_export(struct varve_alloc *alloc, uint64_t addr, struct varve_alloc_ipc *ipc_out)
{
    alloc_lock(alloc); /* over both steps: the block must not go meanwhile */
    uint64_t base = 0, bytes = 0;
    int error = varve_alloc_get_base_allocation(alloc, addr, &base, &bytes);
    if (error == VARVE_OK &&
        (block_map_find(&alloc->map, addr)->expandable != NULL ||
         block_is_ordered(alloc, block_map_find(&alloc->map, addr)) || alloc->device->ops->ipc_export == NULL)) {
        error = VARVE_ERROR_UNSUPPORTED;
    }
    if (error == VARVE_OK) {
        error = alloc->device->ops->ipc_export(alloc->device, base, &ipc_out->handle);
        ipc_out->offset = addr - base;
    }
    alloc_unlock(alloc);
    return error;
}

static struct shared_mapping *segment_share_find_handle(const struct varve_alloc *alloc,
                                                        const struct varve_ipc_handle *handle)
{
    struct shared_mapping *mapping = alloc->shared;
    while (mapping != NULL && memcmp(&mapping->handle, handle, sizeof(*handle)) != 0) {
        mapping = mapping->next;
    }
    return mapping;
}

static struct shared_open **find_open(struct shared_mapping *mapping, uint64_t addr)
{
    struct shared_open **link = &mapping->opens;
    while (*link != NULL && (*link)->addr != addr) {
        link = &(*link)->next;
    }
    return link;
}

static int count_open(struct shared_mapping *mapping, uint64_t addr)
{
    struct shared_open **link = find_open(mapping, addr);
    if (*link == NULL) {
        *link = calloc(1, sizeof(**link));
        if (*link == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        (*link)->addr = addr;
    }
    (*link)->count++;
    return VARVE_OK;
}

static void mapping_drop(struct varve_alloc *alloc, struct shared_mapping **link)
{
    struct shared_mapping *mapping = *link;
    *link = mapping->next;
    while (mapping->opens != NULL) {
        struct shared_open *open = mapping->opens;
        mapping->opens = open->next;
        free(open);
    }
    alloc->device->ops->ipc_close(alloc->device, mapping->addr);
    free(mapping);
}

static int mapping_make(struct varve_alloc *alloc, const struct varve_ipc_handle *handle)
{
    struct shared_mapping *mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    mapping->handle = *handle;
    int error = alloc->device->ops->ipc_open(alloc->device, handle, &mapping->addr);
    if (error != VARVE_OK) {
        free(mapping);
        return error;
    }
    mapping->next = alloc->shared;
    alloc->shared = mapping;
    return VARVE_OK;
}

int varve_alloc_ipc_open(struct varve_alloc *alloc, const struct varve_alloc_ipc *ipc, uint64_t *addr_out,
                         struct varve_message *message)
{
    if (alloc->device->ops->ipc_open == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "device %s shares no memory with processes",
                                 alloc->device->ops->name);
    }
    alloc_lock(alloc);
    struct shared_mapping *mapping = segment_share_find_handle(alloc, &ipc->handle);
    int error = VARVE_OK;
    if (mapping == NULL) {
        error = mapping_make(alloc, &ipc->handle);
        mapping = alloc->shared;
    }
    if (error == VARVE_OK) {
        error = count_open(mapping, mapping->addr + ipc->offset);
        if (error != VARVE_OK && mapping->opens == NULL) {
            mapping_drop(alloc, &alloc->shared);
        }
    }
    if (error == VARVE_OK) {
        *addr_out = mapping->addr + ipc->offset;
    }
    alloc_unlock(alloc);
    return error == VARVE_OK ? error : device_message(alloc, error, message, "cannot open the shared memory");
}

int varve_alloc_ipc_close(struct varve_alloc *alloc, uint64_t addr)
{
    alloc_lock(alloc);
    int error = VARVE_ERROR_NOT_FOUND;
    for (struct shared_mapping **link = &alloc->shared; *link != NULL; link = &(*link)->next) {
        struct shared_open **open_link = find_open(*link, addr);
        struct shared_open *open = *open_link;
        if (open == NULL) {
            continue;
        }
        error = VARVE_OK;
        if (--open->count == 0) {
            *open_link = open->next;
            free(open);
        }
        if ((*link)->opens == NULL) {
            mapping_drop(alloc, link);
        }
        break;
    }
    alloc_unlock(alloc);
    return error;
}

void share_close(struct varve_alloc *alloc)
{
    while (alloc->shared != NULL) {
        mapping_drop(alloc, &alloc->shared);
    }
    free(alloc->peers);
}

/* Room for one peer more, before it gets access that would not be noted. */
static int reserve_peer(struct varve_alloc *alloc)
{
    int *grown = realloc(alloc->peers, (alloc->peer_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    alloc->peers = grown;
    return VARVE_OK;
}

int varve_alloc_enable_peer(struct varve_alloc *alloc, int peer)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    if (ops->peer_enable == NULL) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    alloc_lock(alloc);
    for (uint32_t i = 0; i < alloc->peer_count; i++) {
        if (alloc->peers[i] == peer) {
            alloc_unlock(alloc);
            return VARVE_OK;
        }
    }
    int error = reserve_peer(alloc);
    VARVE_THEN(error, ops->peer_enable(alloc->device, peer));
    for (const struct expandable *segment = alloc->expandables; error == VARVE_OK && segment != NULL;
         segment = segment->next) {
        for (uint64_t i = 0; error == VARVE_OK && i < segment->bytes / segment->unit; i++) {
            if (segment->handles[i] != 0) {
                error = ops->vmm_set_access(alloc->device, segment->addr + i * segment->unit, segment->unit, peer);
            }
        }
    }
    if (error == VARVE_OK) {
        alloc->peers[alloc->peer_count++] = peer;
    }
    alloc_unlock(alloc);
    return error;
}
