/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments: a large range of addresses that gets memory in units where it is needed
 * (find_expandable_block, try_allocate_expandable_block, map_block, unmap_block). Address space without
 * memory is a block as well, in the pool's `unmapped` list, so that neighbours are found and merged in one
 * way.
 */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/block_links.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"

#include <inttypes.h>
#include <sys/mman.h>

#define SMALL_UNIT (UINT64_C(2) << 20)

uint64_t expandable_unit(const struct varve_alloc *alloc, const struct pool *pool)
{
    return pool->is_small ? SMALL_UNIT : alloc->config.large_segment_size;
}

/* ---- the device's side ---- */

static void device_unmap_units(struct varve_alloc *alloc, const struct expandable *segment, uint64_t first,
                               uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        alloc->device->ops->vmm_unmap(alloc->device, segment->addr + i * segment->unit, segment->unit);
    }
}

static int device_map_units(struct varve_alloc *alloc, struct expandable *segment, uint64_t first, uint64_t count)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    int error = VARVE_OK;
    for (uint64_t i = 0; error == VARVE_OK && i < count; i++) {
        error = ops->vmm_map(alloc->device, segment->addr + (first + i) * segment->unit, segment->unit,
                             segment->handles[first + i]);
        if (error != VARVE_OK) {
            device_unmap_units(alloc, segment, first, i);
        }
    }
    return error;
}

int mapping_open(const struct varve_alloc *alloc, uint64_t addr, uint64_t bytes)
{
    int error = alloc->device->ops->vmm_set_access(alloc->device, addr, bytes, alloc->device->index);
    for (uint32_t i = 0; error == VARVE_OK && i < alloc->peer_count; i++) {
        error = alloc->device->ops->vmm_set_access(alloc->device, addr, bytes, alloc->peers[i]);
    }
    return error;
}

static void device_release_handles(struct varve_alloc *alloc, struct expandable *segment, uint64_t first,
                                   uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        alloc->device->ops->vmm_release(alloc->device, segment->handles[i], segment->unit);
        segment->handles[i] = 0;
    }
}

/* Physical memory for all units first, then one mapping each, then access to all at once. The first `given` units have
 * handles already, which stay the caller's after an error. */
static int device_map(struct varve_alloc *alloc, struct expandable *segment, uint64_t first, uint64_t given,
                      uint64_t count)
{
    int error = VARVE_OK;
    uint64_t created = given;
    while (error == VARVE_OK && created < count) {
        error = alloc->device->ops->vmm_create(alloc->device, segment->unit, &segment->handles[first + created]);
        created += error == VARVE_OK;
    }
    VARVE_THEN(error, device_map_units(alloc, segment, first, count));
    if (error == VARVE_OK) {
        error = mapping_open(alloc, segment->addr + first * segment->unit, count * segment->unit);
        if (error != VARVE_OK) {
            device_unmap_units(alloc, segment, first, count);
        }
    }
    if (error != VARVE_OK) {
        device_release_handles(alloc, segment, first + given, created - given);
    }
    return error;
}

/* Units from the first one on that have been unmapped. None if the stream can't be waited for now (it is being
 * captured), so that its work may still use the memory. Their handles go to `handles`, or are released
 * if that is NULL. */
static uint64_t device_unmap(struct varve_alloc *alloc, struct expandable *segment, uint64_t stream, uint64_t first,
                             uint64_t count, uint64_t *handles, int *error_out)
{
    if (alloc->device->ops->stream_synchronize(alloc->device, stream) != VARVE_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        int error =
            alloc->device->ops->vmm_unmap(alloc->device, segment->addr + (first + i) * segment->unit, segment->unit);
        if (error != VARVE_OK) {
            *error_out = error;
            return i;
        }
        if (handles != NULL) {
            handles[i] = segment->handles[first + i];
            segment->handles[first + i] = 0;
        } else {
            device_release_handles(alloc, segment, first + i, 1);
        }
    }
    return count;
}

/* The address space and the descriptor go. */
static void expandable_end(struct varve_alloc *alloc, struct expandable *segment)
{
    alloc->device->ops->vmm_address_free(alloc->device, segment->addr, segment->bytes);
    munmap(segment, sizeof(*segment) + segment->bytes / segment->unit * sizeof(uint64_t));
}

/* ---- growing ---- */

int expandable_reserve(struct varve_alloc *alloc, const struct request *request, uint64_t unit,
                       struct block **block_out)
{
    const struct pool *pool = request->pool;
    struct varve_device_reservation reservation = {.stream = request->wanted.bins->stream, .is_small = pool->is_small};
    uint64_t wanted = alloc->device_total + alloc->device_total / 8;
    uint64_t units = (wanted + unit - 1) / unit;
    if (block_slab_reserve(&alloc->slab, 4) != VARVE_OK) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (pool->owner != NULL) {
        reservation.pool_id[0] = pool->owner->id.capture;
        reservation.pool_id[1] = pool->owner->id.user;
    }
    /* the descriptor and, behind it, the handles */
    struct expandable *segment = mmap(NULL, sizeof(*segment) + units * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (segment == MAP_FAILED) {
        return VARVE_ERROR_NO_MEMORY;
    }
    segment->handles = (uint64_t *)(segment + 1);
    segment->pool = pool;
    segment->unit = unit;
    segment->bytes = units * unit;
    int error = alloc->device->ops->vmm_reserve(alloc->device, segment->bytes, &reservation, &segment->addr);
    if (error != VARVE_OK) {
        munmap(segment, sizeof(*segment) + units * sizeof(uint64_t));
        return error;
    }
    segment->segment_id = ++alloc->segment_id;
    segment->next = alloc->expandables;
    alloc->expandables = segment;
    struct block *block = block_slab_acquire(&alloc->slab);
    block->addr = segment->addr;
    block->size = segment->bytes;
    block->bins = request->wanted.bins;
    block->expandable = segment;
    block->is_expandable = true;
    block->segment_id = segment->segment_id;
    pool_unmapped_insert(request->pool, block);
    *block_out = block;
    return VARVE_OK;
}

static bool segment_expandable_has_space(const struct block *block, uint64_t bytes)
{
    uint64_t found = 0;
    while (found < bytes && block_is_available(block)) {
        found += block->size;
        block = block->next;
    }
    return found >= bytes;
}

/* The lowest address where the request fits, counting free memory right before and after unmapped space. As in
 * PyTorch, a request that no segment can hold reserves one more at each attempt, which later ones may use. */
static int segment_expandable_find_space(struct varve_alloc *alloc, const struct request *request,
                                         struct block **block_out)
{
    for (struct block *block = request->pool->unmapped; block != NULL; block = block->right) {
        struct block *candidate = block_is_available(block->prev) ? block->prev : block;
        if (block->bins == request->wanted.bins && segment_expandable_has_space(candidate, request->wanted.rounded)) {
            *block_out = candidate;
            return VARVE_OK;
        }
    }
    return expandable_reserve(alloc, request, expandable_unit(alloc, request->pool), block_out);
}

int expandable_map(struct varve_alloc *alloc, struct block *block, uint64_t bytes, struct varve_message *message)
{
    return expandable_attach(alloc, block, bytes, NULL, 0, message);
}

int expandable_attach(struct varve_alloc *alloc, struct block *block, uint64_t bytes, const uint64_t *handles,
                      uint64_t given, struct varve_message *message)
{
    struct expandable *segment = block->expandable;
    struct pool *pool = block_pool(block);
    uint64_t first = (block->addr - segment->addr) / segment->unit;
    uint64_t count = (bytes + segment->unit - 1) / segment->unit;
    uint64_t mapped = count * segment->unit;
    assert(!block->is_mapped && (block->addr - segment->addr) % segment->unit == 0);
    if (block_slab_reserve(&alloc->slab, 2) != VARVE_OK) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < given; i++) {
        segment->handles[first + i] = handles[i];
    }
    int error = device_map(alloc, segment, first, given, count);
    for (uint64_t i = 0; error != VARVE_OK && i < given; i++) {
        segment->handles[first + i] = 0;
    }
    if (error != VARVE_OK) {
        return error == VARVE_ERROR_NO_MEMORY
                   ? error
                   : device_message(alloc, error, message, "the device failed to map %" PRIu64 " bytes", mapped);
    }
    pool_unmapped_remove(pool, block);
    if (mapped < block->size) {
        pool_unmapped_insert(pool, block_cut_back(&alloc->slab, block, block->size - mapped));
        block->size = mapped;
    }
    block->is_mapped = true;
    alloc->reserved_bytes += mapped;
    stat_change(alloc->counters.others.reserved_bytes, pool->is_small, (int64_t)mapped);
    alloc->counters.others.num_device_alloc++;
    emit_segment(alloc, VARVE_KIND_SEGMENT_MAP, VARVE_CAUSE_NONE, block, mapped, 0);
    block_merge(alloc, block, block->prev);
    block_merge(alloc, block, block->next);
    block_insert_free(block);
    return VARVE_OK;
}

static uint64_t segment_expandable_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What was mapped before a failure stays mapped, and free. */
int expandable_alloc(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    struct block *block = NULL;
    int error = segment_expandable_find_space(alloc, request, &block);
    if (error != VARVE_OK && error != VARVE_ERROR_NO_MEMORY) {
        return device_message(alloc, error, request->message, "the device failed to reserve addresses");
    }
    if (error == VARVE_OK && !block->is_mapped) {
        error = expandable_map(alloc, block, segment_expandable_least(block->size, request->wanted.rounded),
                               request->message);
    }
    while (error == VARVE_OK && block->size < request->wanted.rounded) {
        struct block *next = block->next;
        if (next == NULL) {
            return VARVE_ERROR_NO_MEMORY; /* the request is larger than all address space of a segment */
        }
        error = expandable_map(alloc, next, segment_expandable_least(request->wanted.rounded - block->size, next->size),
                               request->message);
        block = next; /* it has absorbed the block before */
    }
    if (error == VARVE_OK) {
        free_index_remove(&request->pool->index, block);
        *block_out = block;
    }
    return error;
}

/* ---- shrinking ---- */

uint64_t expandable_releasable(const struct block *block, uint64_t *addr_out)
{
    const struct expandable *segment = block->expandable;
    uint64_t from = (block->addr - segment->addr + segment->unit - 1) / segment->unit;
    uint64_t to = (block->addr + block->size - segment->addr) / segment->unit;
    *addr_out = segment->addr + from * segment->unit;
    return to > from ? (to - from) * segment->unit : 0;
}

static void release_address_space(struct varve_alloc *alloc, struct block *block)
{
    struct expandable *segment = block->expandable;
    struct expandable **link = &alloc->expandables;
    while (*link != segment) {
        link = &(*link)->next;
    }
    *link = segment->next;
    pool_unmapped_remove(block_pool(block), block);
    block_slab_release(&alloc->slab, block);
    expandable_end(alloc, segment);
}

uint64_t expandable_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, int *error_out)
{
    return expandable_detach(alloc, block, cause, NULL, error_out);
}

uint64_t expandable_detach(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, uint64_t *handles,
                           int *error_out)
{
    struct expandable *segment = block->expandable;
    struct pool *pool = block_pool(block);
    uint64_t begin = block->addr, end = block->addr + block->size;
    uint64_t addr;
    uint64_t bytes = expandable_releasable(block, &addr);
    if (bytes > 0 && block_slab_reserve(&alloc->slab, 2) != VARVE_OK) {
        return 0; /* it stays as it is */
    }
    if (bytes > 0) {
        bytes =
            segment->unit * device_unmap(alloc, segment, block->bins->stream, (addr - segment->addr) / segment->unit,
                                         bytes / segment->unit, handles, error_out);
        if (bytes == 0) {
            return 0;
        }
        free_index_remove(&pool->index, block);
        if (addr > begin) {
            block_insert_free(block_cut_front(&alloc->slab, block, addr - begin));
        }
        if (addr + bytes < end) {
            block_insert_free(block_cut_back(&alloc->slab, block, end - addr - bytes));
        }
        block->addr = addr;
        block->size = bytes;
        block->is_mapped = false;
        emit_segment(alloc, VARVE_KIND_SEGMENT_UNMAP, cause, block, bytes, 0);
        block_merge(alloc, block, block->prev);
        block_merge(alloc, block, block->next);
        pool_unmapped_insert(pool, block);
        alloc->reserved_bytes -= bytes;
        stat_change(alloc->counters.others.reserved_bytes, pool->is_small, -(int64_t)bytes);
        alloc->counters.others.num_device_free++;
    }
    if (handles == NULL && !block->is_mapped && !block_is_split(block)) {
        release_address_space(alloc, block);
    }
    return bytes;
}

void expandable_close(struct varve_alloc *alloc)
{
    while (alloc->expandables != NULL) {
        struct expandable *segment = alloc->expandables;
        size_t units = segment->bytes / segment->unit;
        for (uint64_t i = 0; i < units; i++) {
            if (segment->handles[i] != 0) {
                alloc->device->ops->vmm_unmap(alloc->device, segment->addr + i * segment->unit, segment->unit);
                device_release_handles(alloc, segment, i, 1);
            }
        }
        alloc->expandables = segment->next;
        expandable_end(alloc, segment);
    }
}
