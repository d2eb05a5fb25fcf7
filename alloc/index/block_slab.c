/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory comes from the kernel and goes back only when the allocator closes. A region is cut up as it is
 * needed, not linked when it is mapped, so a region of millions costs one call and no page fault.
 */
#include "alloc/index/block_slab.h"
#include "alloc/index/block.h"

#define REGION_BYTES_MIN (UINT64_C(1) << 20)
#define REGION_BYTES_MAX (UINT64_C(32) << 20)

/* At the start of each region; descriptors follow, one cache line further. */
struct region {
    struct region *next;
    uint64_t bytes;
};

#define REGION_HEADER_BYTES SLAB_LINE_BYTES
static_assert(sizeof(struct region) <= REGION_HEADER_BYTES, "the header of a region leaves its cache line");
static_assert(sizeof(struct block) == 2 * SLAB_LINE_BYTES, "a descriptor is two cache lines");
static_assert(offsetof(struct block, up) == SLAB_LINE_BYTES, "what is hot is in the first");

/* Regions double, so that a million descriptors need few mappings and can use huge pages. */
static int region_add(struct block_slab *slab, uint64_t count)
{
    if (count > (UINT64_C(1) << 48)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    uint64_t bytes = slab->region_bytes;
    bytes = bytes < REGION_BYTES_MIN ? REGION_BYTES_MIN : bytes;
    bytes = bytes > REGION_BYTES_MAX ? REGION_BYTES_MAX : bytes;
    uint64_t needed = REGION_HEADER_BYTES + count * sizeof(struct block);
    needed = (needed + REGION_BYTES_MIN - 1) & ~(REGION_BYTES_MIN - 1);
    bytes = bytes < needed ? needed : bytes;
    struct region *region = pages_map(bytes);
    if (region == NULL && bytes > needed) {
        bytes = needed;
        region = pages_map(bytes);
    }
    if (region == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    /* What the older region still has is less than the caller is about to take, so linking it costs little.
     */
    for (; slab->fresh < slab->fresh_end; slab->fresh++) {
        slab->fresh->next = slab->spare;
        slab->spare = slab->fresh;
    }
    *region = (struct region){.next = slab->regions, .bytes = bytes};
    slab->regions = region;
    slab->region_bytes += bytes;
    uint64_t blocks = (bytes - REGION_HEADER_BYTES) / sizeof(struct block);
    slab->fresh = (struct block *)(void *)((char *)region + REGION_HEADER_BYTES);
    slab->fresh_end = slab->fresh + blocks;
    slab->capacity += blocks;
    return VARVE_OK;
}

struct block *block_slab_acquire_fresh(struct block_slab *slab)
{
    if (slab->fresh == slab->fresh_end && region_add(slab, 1) != VARVE_OK) {
        return NULL;
    }
    slab->in_use++;
    return slab->fresh++;
}

int block_slab_reserve(struct block_slab *slab, uint64_t count)
{
    uint64_t available = slab->capacity - slab->in_use;
    return available >= count ? VARVE_OK : region_add(slab, count - available);
}

void block_slab_close(struct block_slab *slab)
{
    struct region *region = slab->regions;
    while (region != NULL) {
        struct region *next = region->next;
        pages_unmap(region, region->bytes);
        region = next;
    }
    *slab = (struct block_slab){0};
}

static bool region_holds(const struct region *region, const struct block *block)
{
    uintptr_t first = (uintptr_t)region + REGION_HEADER_BYTES;
    uintptr_t at = (uintptr_t)block;
    uint64_t blocks = (region->bytes - REGION_HEADER_BYTES) / sizeof(*block);
    return at >= first && (at - first) / sizeof(*block) < blocks && (at - first) % sizeof(*block) == 0;
}

int block_slab_check(const struct block_slab *slab, struct varve_message *message)
{
    uint64_t bytes = 0;
    uint64_t capacity = 0;
    for (const struct region *region = slab->regions; region != NULL; region = region->next) {
        bytes += region->bytes;
        capacity += (region->bytes - REGION_HEADER_BYTES) / sizeof(struct block);
    }
    uint64_t fresh = (uint64_t)(slab->fresh_end - slab->fresh);
    if (bytes != slab->region_bytes || capacity != slab->capacity || slab->in_use > capacity ||
        fresh > capacity - slab->in_use) {
        return varve_message_set(
            message, VARVE_ERROR_CORRUPT, "slab: %llu of %llu descriptors in use, %llu fresh, %llu bytes of %llu",
            (unsigned long long)slab->in_use, (unsigned long long)slab->capacity, (unsigned long long)fresh,
            (unsigned long long)slab->region_bytes, (unsigned long long)bytes);
    }
    uint64_t spare_expected = capacity - slab->in_use - fresh;
    uint64_t spare = 0;
    for (const struct block *block = slab->spare; block != NULL && spare <= spare_expected; spare++) {
        const struct region *region = slab->regions;
        while (region != NULL && !region_holds(region, block)) {
            region = region->next;
        }
        if (region == NULL || (block >= slab->fresh && block < slab->fresh_end)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "slab: spare descriptor %llu is not ours",
                                     (unsigned long long)spare);
        }
        block = block->next;
    }
    if (spare != spare_expected) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "slab: %llu spare descriptors, expected %llu",
                                 (unsigned long long)spare, (unsigned long long)spare_expected);
    }
    return VARVE_OK;
}
