/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of requests and frees. What is usual goes the short way of cached_path.h, under a brief hold of the
 * lock; every long way, with a hold that callbacks may re-enter, is a function of its own that ends the call, so that
 * the short way saves no registers for it.
 */
#include "alloc/core/cached_path.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/rounding.h"

#include <inttypes.h>
#include <string.h>

#define APART static __attribute__((noinline))

HOT int end_short(struct varve_alloc *alloc)
{
    lock_end_brief(&alloc->lock);
    ALLOC_CHECK_STEP(alloc);
    return VARVE_OK;
}

/* ---- requests ---- */

static void allocator_allocate_report_oom(struct varve_alloc *alloc, const struct request *request,
                                          struct varve_alloc_oom *oom)
{
    oom_account(alloc, request, oom);
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_OOM,
                                  .bins = request->wanted.bins,
                                  .addr = oom->largest_free,
                                  .size = request->wanted.rounded,
                                  .requested = oom->allocated,
                                  .arg = oom->reserved,
                                  .flags = VARVE_FLAG_FAILED});
    alloc->counters.others.num_ooms++;
}

/* Observers run without the lock: they may allocate, free or end the program. */
APART void notify(struct varve_alloc *alloc, const struct varve_alloc_oom *oom)
{
    alloc_lock(alloc);
    uint32_t count = alloc->observer_count;
    struct observer observers[CALLBACKS_MAX];
    memcpy(observers, alloc->observers, sizeof(observers));
    alloc_unlock(alloc);
    for (uint32_t i = 0; i < count; i++) {
        observers[i].call(observers[i].context, oom);
    }
}

APART int refuse_size(uint64_t bytes, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_INVALID,
                             "a request of %" PRIu64 " bytes; less than 2^60 are possible", bytes);
}

/* The request has failed, for want of memory or for another reason. The lock is open afterwards. */
APART void end_failed(struct varve_alloc *alloc, const struct request *request, int error,
                      struct varve_message *message)
{
    struct varve_alloc_oom oom;
    if (error == VARVE_ERROR_NO_MEMORY) {
        allocator_allocate_report_oom(alloc, request, &oom);
    }
    ALLOC_CHECK_STEP(alloc);
    alloc_unlock(alloc);
    if (error == VARVE_ERROR_NO_MEMORY) {
        notify(alloc, &oom);
        oom_message(&oom, message);
    }
}

APART int poll_events(struct varve_alloc *alloc, struct varve_message *message)
{
    int error = stream_use_poll(alloc);
    if (error != VARVE_OK) {
        device_message(alloc, error, message, "freed blocks that other streams used");
        ALLOC_CHECK_STEP(alloc);
        alloc_unlock(alloc);
    }
    return error;
}

/* What a request gives: its address, or a handle. Which one is known when it is compiled, but for the long way. */
HOT void put_out(void *out, struct block *block, bool is_handle)
{
    if (is_handle) {
        *(struct varve_allocation *)out =
            block != NULL ? (struct varve_allocation){block, block->id} : (struct varve_allocation){NULL, 0};
    } else {
        *(uint64_t *)out = block != NULL ? block->addr : 0;
    }
}

/* The lock is held, perhaps briefly. */
APART int alloc_long(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, void *out,
                     struct varve_message *message, bool is_handle)
{
    lock_keep(&alloc->lock);
    put_out(out, NULL, is_handle);
    if (UNLIKELY(bytes - 1 >= ROUNDING_REQUEST_LIMIT - 1)) {
        alloc_unlock(alloc);
        return bytes == 0 ? VARVE_OK : refuse_size(bytes, message);
    }
    int error;
    if (UNLIKELY(alloc->pending_events > 0 || alloc->deferred != NULL) && alloc->capture_count == 0) {
        error = poll_events(alloc, message);
        if (error != VARVE_OK) {
            return error;
        }
    }
    struct request request;
    struct block *block;
    error = request_run(alloc, bytes, stream, message, &request, &block);
    if (UNLIKELY(error != VARVE_OK)) {
        end_failed(alloc, &request, error, message);
        return error;
    }
    put_out(out, block, is_handle);
    ALLOC_CHECK_STEP(alloc);
    alloc_unlock(alloc);
    return VARVE_OK;
}

/* ---- the short ways of requests: without a recorder and with one, for an address and for a handle ---- */

/* What no block serves that is just of its size, and alone of it. */
HOT int inexact(struct varve_alloc *alloc, struct stream_bins *bins, unsigned bin, uint64_t bytes, void *out,
                struct varve_message *message, bool is_handle, bool is_recorded)
{
    struct block *block = cached_alloc(alloc, bins, bin, bytes, is_recorded);
    if (UNLIKELY(block == NULL)) {
        return alloc_long(alloc, bytes, bins->stream, out, message, is_handle);
    }
    put_out(out, block, is_handle);
    return end_short(alloc);
}

typedef int inexact_way(struct varve_alloc *alloc, struct stream_bins *bins, unsigned bin, uint64_t bytes, void *out,
                        struct varve_message *message);

HOT int exact(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, void *out, struct varve_message *message,
              bool is_handle, bool is_recorded, inexact_way *go_on)
{
    struct stream_bins *bins = cached_bins(alloc, bytes, stream);
    unsigned bin = cached_bin(bytes);
    if (UNLIKELY(bins == NULL)) {
        return alloc_long(alloc, bytes, stream, out, message, is_handle);
    }
    struct block *block = cached_alloc_exact(alloc, bins, bin, bytes, is_recorded);
    if (block == NULL) {
        return go_on(alloc, bins, bin, bytes, out, message);
    }
    put_out(out, block, is_handle);
    return end_short(alloc);
}

#define REQUEST_WAY(name, is_handle, is_recorded)                                                               \
    APART int name##_inexact(struct varve_alloc *alloc, struct stream_bins *bins, unsigned bin, uint64_t bytes, \
                             void *out, struct varve_message *message)                                          \
    {                                                                                                           \
        return inexact(alloc, bins, bin, bytes, out, message, is_handle, is_recorded);                          \
    }                                                                                                           \
                                                                                                                \
    APART int name(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, void *out,                       \
                   struct varve_message *message)                                                               \
    {                                                                                                           \
        return exact(alloc, bytes, stream, out, message, is_handle, is_recorded, name##_inexact);               \
    }

REQUEST_WAY(alloc_short, false, false)
REQUEST_WAY(alloc_recorded, false, true)
REQUEST_WAY(handle_short, true, false)
REQUEST_WAY(handle_recorded, true, true)

/* The lock is held briefly. */
HOT int alloc_held(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, void *out, struct varve_message *message,
                   bool is_handle)
{
    if (LIKELY(alloc->way == ALLOC_WAY_SHORT)) {
        return is_handle ? handle_short(alloc, bytes, stream, out, message)
                         : alloc_short(alloc, bytes, stream, out, message);
    }
    if (alloc->way == ALLOC_WAY_RECORDED) {
        return is_handle ? handle_recorded(alloc, bytes, stream, out, message)
                         : alloc_recorded(alloc, bytes, stream, out, message);
    }
    return alloc_long(alloc, bytes, stream, out, message, is_handle);
}

APART int alloc_waiting(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, void *out,
                        struct varve_message *message, bool is_handle)
{
    return lock_wait_briefly(&alloc->lock) ? alloc_held(alloc, bytes, stream, out, message, is_handle)
                                           : alloc_long(alloc, bytes, stream, out, message, is_handle);
}

int varve_alloc_raw_alloc_with_stream(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, uint64_t *addr_out,
                                      struct varve_message *message)
{
    return LIKELY(lock_take_brief(&alloc->lock)) ? alloc_held(alloc, bytes, stream, addr_out, message, false)
                                                 : alloc_waiting(alloc, bytes, stream, addr_out, message, false);
}

int varve_alloc_raw_alloc(struct varve_alloc *alloc, uint64_t bytes, uint64_t *addr_out, struct varve_message *message)
{
    return varve_alloc_raw_alloc_with_stream(alloc, bytes, 0, addr_out, message);
}

int varve_alloc_allocate(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                         struct varve_allocation *allocation_out, struct varve_message *message)
{
    return LIKELY(lock_take_brief(&alloc->lock)) ? alloc_held(alloc, bytes, stream, allocation_out, message, true)
                                                 : alloc_waiting(alloc, bytes, stream, allocation_out, message, true);
}

/* ---- freeing ---- */

APART int refuse_addr(uint64_t addr, bool was_freed, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             was_freed ? "address %#" PRIx64 " was freed already"
                                       : "address %#" PRIx64 " is not allocated by this allocator",
                             addr);
}

APART int wait_for_streams(struct varve_alloc *alloc, struct block *block, struct varve_message *message)
{
    int error = stream_use_wait(alloc, block);
    return error == VARVE_OK ? error
                             : device_message(alloc, error, message,
                                              "freed, but the device failed to order it behind its streams' "
                                              "work, which is tried again");
}

APART int refuse_allocation(struct varve_allocation allocation, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "allocation %" PRIu64 " was freed already", allocation.id);
}

static int block_delete(struct varve_alloc *alloc, struct block_map_slot *slot, struct varve_message *message)
{
    struct block *block = slot->block;
    struct pool *pool = block_pool(block);
    unsigned state = block->state;
    block->state = (uint8_t)(state & ~(unsigned)BLOCK_ALLOCATED);
    stat_free(&alloc->counters, pool->is_small, block->size);
    if (block->size >= alloc->config.max_split_size) {
        stat_decrease(&alloc->counters.others.oversize_allocations, 1);
    }
    if (UNLIKELY((state & BLOCK_HAS_USERS) != 0 || block_is_ordered(alloc, block))) {
        emit_free(alloc, VARVE_KIND_FREE_REQUESTED, block);
        return wait_for_streams(alloc, block, message);
    }
    block_complete(alloc, pool, block, slot, VARVE_KIND_FREE_REQUESTED);
    return VARVE_OK;
}

/* The lock is held, perhaps briefly. */
APART int free_long(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    lock_keep(&alloc->lock);
    struct block_map_slot *slot = block_map_find_slot(&alloc->map, addr);
    int error = UNLIKELY(slot == NULL || !slot->block->is_allocated) ? refuse_addr(addr, slot != NULL, message)
                                                                     : block_delete(alloc, slot, message);
    ALLOC_CHECK_STEP(alloc);
    alloc_unlock(alloc);
    return error;
}

APART int free_handle_long(struct varve_alloc *alloc, struct varve_allocation allocation, struct varve_message *message)
{
    const struct block *block = allocation.block;
    lock_keep(&alloc->lock);
    int error = UNLIKELY(block->id != allocation.id || !block->is_allocated)
                    ? refuse_allocation(allocation, message)
                    : block_delete(alloc, block_map_find_slot(&alloc->map, block->addr), message);
    ALLOC_CHECK_STEP(alloc);
    alloc_unlock(alloc);
    return error;
}

/* ---- the short ways of frees, without a recorder and with one ---- */

/* Neighbours that are free, as is known when it is compiled. `has_tree`: others may be in the bin of
 * the block's size. */
HOT int free_block(struct varve_alloc *alloc, struct block_map_slot *slot, bool takes_previous, bool takes_next,
                   bool has_tree, bool is_recorded)
{
    struct block *block = slot->block;
    if (is_recorded) {
        emit_freed_here(alloc, VARVE_KIND_FREE_REQUESTED,
                        (struct freed){
                            .bins = block->bins,
                            .addr = block->addr,
                            .size = block->size,
                            .requested = block->requested,
                            .id = block->id,
                            .before = takes_previous ? block->prev->size : 0,
                            .after = takes_next ? block->next->size : 0,
                            .segment_id = block->segment_id,
                        });
    }
    if (takes_previous || takes_next) {
        cached_free_merging(alloc, slot, takes_previous, takes_next);
    } else {
        cached_free_alone(alloc, block, has_tree);
    }
    return end_short(alloc);
}

/* Each a function of its own, so that none saves registers for another. */
#define FREE_WAY(name, takes_previous, takes_next, has_tree, is_recorded)                  \
    APART int name(struct varve_alloc *alloc, struct block_map_slot *slot)                 \
    {                                                                                      \
        return free_block(alloc, slot, takes_previous, takes_next, has_tree, is_recorded); \
    }

FREE_WAY(free_alone, false, false, false, false)
FREE_WAY(free_in_tree, false, false, true, false)
FREE_WAY(free_with_next, false, true, true, false)
FREE_WAY(free_with_previous, true, false, true, false)
FREE_WAY(free_with_both, true, true, true, false)
FREE_WAY(free_alone_recorded, false, false, false, true)
FREE_WAY(free_in_tree_recorded, false, false, true, true)
FREE_WAY(free_with_next_recorded, false, true, true, true)
FREE_WAY(free_with_previous_recorded, true, false, true, true)
FREE_WAY(free_with_both_recorded, true, true, true, true)

HOT bool is_bin_empty(const struct block *block)
{
    return LIKELY(block->bins->roots[index_bin_of(block->size)] == NULL);
}

#define FREE_BY_NEIGHBOURS(name, suffix)                                                                        \
    HOT int name(struct varve_alloc *alloc, struct block_map_slot *slot)                                        \
    {                                                                                                           \
        if (cached_absorbs(slot->block->next)) {                                                                \
            return cached_absorbs(slot->block->prev) ? free_with_both##suffix(alloc, slot)                      \
                                                     : free_with_next##suffix(alloc, slot);                     \
        }                                                                                                       \
        if (cached_absorbs(slot->block->prev)) {                                                                \
            return free_with_previous##suffix(alloc, slot);                                                     \
        }                                                                                                       \
        return is_bin_empty(slot->block) ? free_alone##suffix(alloc, slot) : free_in_tree##suffix(alloc, slot); \
    }

FREE_BY_NEIGHBOURS(free_found, )
FREE_BY_NEIGHBOURS(free_found_recorded, _recorded)

HOT int free_short(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    struct block_map_slot *slot = cached_find(alloc, addr);
    return UNLIKELY(slot == NULL) ? free_long(alloc, addr, message) : free_found(alloc, slot);
}

APART int free_recorded(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    struct block_map_slot *slot = cached_find(alloc, addr);
    return UNLIKELY(slot == NULL) ? free_long(alloc, addr, message) : free_found_recorded(alloc, slot);
}

/* The map is needed only where the block's address changes. The lock is held briefly. */
HOT int free_handle_held(struct varve_alloc *alloc, struct varve_allocation allocation, struct varve_message *message)
{
    struct block *block = allocation.block;
    struct block_map_slot unmapped = {.addr = block->addr, .block = block}, *slot = &unmapped;
    if (UNLIKELY(alloc->way == ALLOC_WAY_LONG || block->id != allocation.id || !cached_is_used(alloc, block))) {
        return free_handle_long(alloc, allocation, message);
    }
    if (cached_absorbs(block->prev)) {
        slot = block_map_find_slot(&alloc->map, block->addr);
    }
    return alloc->way == ALLOC_WAY_SHORT ? free_found(alloc, slot) : free_found_recorded(alloc, slot);
}

/* The lock is held briefly. */
HOT int free_held(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    if (LIKELY(alloc->way == ALLOC_WAY_SHORT)) {
        return free_short(alloc, addr, message);
    }
    return alloc->way == ALLOC_WAY_RECORDED ? free_recorded(alloc, addr, message) : free_long(alloc, addr, message);
}

APART int free_waiting(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    return lock_wait_briefly(&alloc->lock) ? free_held(alloc, addr, message) : free_long(alloc, addr, message);
}

int varve_alloc_raw_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    if (UNLIKELY(addr == 0)) {
        return VARVE_OK;
    }
    return LIKELY(lock_take_brief(&alloc->lock)) ? free_held(alloc, addr, message) : free_waiting(alloc, addr, message);
}

APART int free_handle_waiting(struct varve_alloc *alloc, struct varve_allocation allocation,
                              struct varve_message *message)
{
    return lock_wait_briefly(&alloc->lock) ? free_handle_held(alloc, allocation, message)
                                           : free_handle_long(alloc, allocation, message);
}

int varve_alloc_free(struct varve_alloc *alloc, struct varve_allocation allocation, struct varve_message *message)
{
    if (UNLIKELY(allocation.block == NULL)) {
        return VARVE_OK;
    }
    return LIKELY(lock_take_brief(&alloc->lock)) ? free_handle_held(alloc, allocation, message)
                                                 : free_handle_waiting(alloc, allocation, message);
}
