/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes and other devices: a segment is exported with the block's offset in it; an import
 * is mapped once, however many blocks of it are opened. Of an expandable segment only the pages below the block are
 * exported, and each import of pages is mapped anew. Peers get access to expandable segments, which have
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
    uint64_t *pages;   /* handles; NULL: a whole segment */
    size_t page_count; /* that are mapped */
    uint64_t unit, reserved;
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
    while (mapping != NULL && (mapping->pages != NULL || memcmp(&mapping->handle, handle, sizeof(*handle)) != 0)) {
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

static void shared_pages_drop(const struct varve_alloc *alloc, const struct shared_mapping *mapping)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    ops->synchronize(alloc->device); /* unmapping does not wait for who reads there */
    for (size_t i = 0; i < mapping->page_count; i++) {
        ops->vmm_unmap(alloc->device, mapping->addr + i * mapping->unit, mapping->unit);
        ops->vmm_release(alloc->device, mapping->pages[i], mapping->unit);
    }
    if (mapping->addr != 0) {
        ops->vmm_address_free(alloc->device, mapping->addr, mapping->reserved);
    }
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
    if (mapping->pages != NULL) {
        shared_pages_drop(alloc, mapping);
    } else {
        alloc->device->ops->ipc_close(alloc->device, mapping->addr);
    }
    free(mapping->pages);
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

/* ---- pages of expandable segments ---- */

static int shared_pages_export(const struct varve_alloc *alloc, const struct block *block,
                               struct varve_alloc_pages *pages)
{
    const struct expandable *segment = block->expandable;
    uint64_t first = (block->addr - segment->addr) / segment->unit;
    uint64_t end = (block->addr + block->size - segment->addr + segment->unit - 1) / segment->unit;
    int *fds = calloc(end - first, sizeof(*fds));
    int error = fds != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    for (uint64_t i = first; error == VARVE_OK && i < end; i++) {
        error = alloc->device->ops->vmm_export(alloc->device, segment->handles[i], &fds[i - first]);
    }
    if (error != VARVE_OK) {
        free(fds);
        return error;
    }
    *pages = (struct varve_alloc_pages){
        .fds = fds,
        .count = end - first,
        .unit = segment->unit,
        .offset = block->addr - segment->addr - first * segment->unit,
    };
    return VARVE_OK;
}

int varve_alloc_ipc_export_pages(struct varve_alloc *alloc, uint64_t addr, struct varve_alloc_pages *pages_out)
{
    alloc_lock(alloc);
    const struct block *block = block_map_find(&alloc->map, addr);
    int error = block == NULL ? VARVE_ERROR_NOT_FOUND : VARVE_OK;
    if (block != NULL && (block->expandable == NULL || alloc->device->ops->vmm_export == NULL)) {
        error = VARVE_ERROR_UNSUPPORTED;
    }
    VARVE_THEN(error, shared_pages_export(alloc, block, pages_out));
    alloc_unlock(alloc);
    return error;
}

/* Handles, addresses, mappings and access; after an error as much of it is there as `mapping` says. */
static int shared_pages_map(const struct varve_alloc *alloc, const struct varve_alloc_pages *pages,
                            struct shared_mapping *mapping)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    struct varve_device *device = alloc->device;
    int error = ops->vmm_reserve(device, mapping->reserved, NULL, &mapping->addr);
    for (size_t i = 0; error == VARVE_OK && i < pages->count; i++) {
        const uint64_t addr = mapping->addr + i * pages->unit;
        error = ops->vmm_import(device, pages->fds[i], pages->unit, &mapping->pages[i]);
        if (error == VARVE_OK) {
            error = ops->vmm_map(device, addr, pages->unit, mapping->pages[i]);
            if (error != VARVE_OK) {
                ops->vmm_release(device, mapping->pages[i], pages->unit);
            } else {
                mapping->page_count++;
            }
        }
    }
    VARVE_THEN(error, mapping_open(alloc, mapping->addr, mapping->reserved));
    return error;
}

int varve_alloc_ipc_open_pages(struct varve_alloc *alloc, const struct varve_alloc_pages *pages, uint64_t *addr_out,
                               struct varve_message *message)
{
    if (alloc->device->ops->vmm_import == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "device %s takes no pages of other processes",
                                 alloc->device->ops->name);
    }
    struct shared_mapping *mapping = calloc(1, sizeof(*mapping));
    uint64_t *handles = calloc(pages->count, sizeof(*handles));
    if (mapping == NULL || handles == NULL) {
        free(mapping);
        free(handles);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the entry of shared memory");
    }
    mapping->pages = handles;
    mapping->unit = pages->unit;
    mapping->reserved = pages->count * pages->unit;
    alloc_lock(alloc);
    int error = shared_pages_map(alloc, pages, mapping);
    VARVE_THEN(error, count_open(mapping, mapping->addr));
    mapping->next = alloc->shared;
    alloc->shared = mapping;
    if (error == VARVE_OK) {
        *addr_out = mapping->addr;
    } else {
        mapping_drop(alloc, &alloc->shared);
    }
    alloc_unlock(alloc);
    return error == VARVE_OK ? error : device_message(alloc, error, message, "cannot map the shared memory");
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
    for (const struct shared_mapping *mapping = alloc->shared; mapping != NULL; mapping = mapping->next) {
        for (size_t i = 0; error == VARVE_OK && mapping->pages != NULL && i < mapping->page_count; i++) {
            error = ops->vmm_set_access(alloc->device, mapping->addr + i * mapping->unit, mapping->unit, peer);
        }
    }
    if (error == VARVE_OK) {
        alloc->peers[alloc->peer_count++] = peer;
    }
    alloc_unlock(alloc);
    return error;
}
