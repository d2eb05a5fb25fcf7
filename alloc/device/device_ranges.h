/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses, ordered, O(log n), with a search for the first gap that fits. Owns its ranges. Used by
 * the resource table for addresses and mappings, and by the host device for offsets in its file.
 */
#ifndef VARVE_ALLOC_DEVICE_DEVICE_RANGES_H
#define VARVE_ALLOC_DEVICE_DEVICE_RANGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <assert.h>

enum device_range_kind {
    DEVICE_RANGE_SEGMENT,
    DEVICE_RANGE_RESERVATION,
    DEVICE_RANGE_IMPORT,  /* another process's segment */
    DEVICE_RANGE_POOLED,  /* in the pool of stream-ordered memory, of a sim */
    DEVICE_RANGE_MAPPING, /* of a handle, in a reservation */
    DEVICE_RANGE_EXTENT,  /* of a file */
    DEVICE_RANGE_PINNED,  /* host memory for transfers */
};

/* A node of a treap over `addr`; its `gap` is what lies free in front of it, from an aligned address on. */
struct device_range {
    struct device_range *left, *right;
    uint64_t addr, bytes;
    uint64_t gap, gap_max; /* gap_max: of the subtree */
    uint64_t value;        /* mappings: the handle; segments of the host: offset in its file */
    uint64_t export_id;    /* segments of the host: entry of its table of exports, 0: none */
    uint32_t priority;
    enum device_range_kind kind;
    bool is_accessible; /* mappings: to the device itself */
};

struct device_ranges {
    struct device_range *root;
    uint64_t count;
    uint64_t floor;     /* gaps begin here */
    uint64_t alignment; /* of the first address of a gap; a power of two */
    uint64_t random;
};

void device_ranges_init(struct device_ranges *ranges, uint64_t floor, uint64_t alignment);
/// `range` overlaps no other one, is not empty and does not wrap.
void device_ranges_insert(struct device_ranges *ranges, struct device_range *range);
void device_ranges_remove(struct device_ranges *ranges, struct device_range *range);
/// Last range that begins at or before `addr`; first one that begins at or after it; NULL if there is none.
struct device_range *device_ranges_at_or_before(const struct device_ranges *ranges, uint64_t addr);
struct device_range *device_ranges_at_or_after(const struct device_ranges *ranges, uint64_t addr);
/// A range that shares an address with [addr, addr + bytes), the lowest; NULL if there is none.
struct device_range *device_ranges_overlap(const struct device_ranges *ranges, uint64_t addr, uint64_t bytes);
/// Lowest aligned address from `floor` on with `bytes` free behind it; false if that is beyond 2^63.
bool device_ranges_first_fit(const struct device_ranges *ranges, uint64_t bytes, uint64_t *addr_out);
/// Frees all ranges.
void device_ranges_close(struct device_ranges *ranges);
int device_ranges_check(const struct device_ranges *ranges, const char *name, struct varve_message *message);

#endif
