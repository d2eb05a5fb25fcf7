/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disjoint ranges in order of address. munmap and mmap over old mappings cut them anywhere, so a hash of first
 * addresses would not do. Two levels of sorted arrays: the upper one is searched by bisection and moved only when a
 * leaf splits or goes away.
 */
#include "base/range_set.h"

#include "base/grown_array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The last leaf that begins at or below `addr`; 0 if there is none. */
static size_t leaf_find(const struct ranges *ranges, uint64_t addr)
{
    size_t low = 0;
    size_t high = ranges->leaf_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ranges->leaves[middle]->ranges[0].start <= addr) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Position in a leaf of the first range that ends after `addr`; leaf->count if there is none. */
static uint32_t position_find(const struct range_leaf *leaf, uint64_t addr)
{
    uint32_t low = 0;
    uint32_t high = leaf->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (leaf->ranges[middle].end <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool ranges_reserve(struct ranges *ranges, uint32_t count)
{
    if (!ARRAY_GROW(ranges->leaves, ranges->leaf_capacity, ranges->leaf_count + count)) {
        return false;
    }
    while (ranges->spare_count < count) {
        struct range_leaf *leaf = malloc(sizeof(*leaf));
        if (leaf == NULL) {
            return false;
        }
        leaf->next = ranges->spare;
        ranges->spare = leaf;
        ranges->spare_count++;
    }
    return true;
}

bool ranges_first(const struct ranges *ranges, uint64_t start, uint64_t end, struct range *range_out)
{
    if (ranges->leaf_count == 0) {
        return false;
    }
    size_t at = leaf_find(ranges, start);
    uint32_t position = position_find(ranges->leaves[at], start);
    if (position == ranges->leaves[at]->count) {
        if (++at == ranges->leaf_count) {
            return false;
        }
        position = 0;
    }
    *range_out = ranges->leaves[at]->ranges[position];
    return range_out->start < end;
}

struct range *ranges_at(const struct ranges *ranges, uint64_t addr)
{
    if (ranges->leaf_count == 0) {
        return NULL;
    }
    struct range_leaf *leaf = ranges->leaves[leaf_find(ranges, addr)];
    uint32_t position = position_find(leaf, addr);
    bool is_there = position < leaf->count && leaf->ranges[position].start <= addr;
    return is_there ? &leaf->ranges[position] : NULL;
}

static struct range_leaf *leaf_insert(struct ranges *ranges, size_t at)
{
    assert(ranges->spare != NULL && ranges->leaf_count < ranges->leaf_capacity);
    struct range_leaf *leaf = ranges->spare;
    ranges->spare = leaf->next;
    ranges->spare_count--;
    leaf->count = 0;
    memmove(&ranges->leaves[at + 1], &ranges->leaves[at], (ranges->leaf_count - at) * sizeof(void *));
    ranges->leaves[at] = leaf;
    ranges->leaf_count++;
    return leaf;
}

static void leaf_remove(struct ranges *ranges, size_t at)
{
    free(ranges->leaves[at]);
    ranges->leaf_count--;
    memmove(&ranges->leaves[at], &ranges->leaves[at + 1], (ranges->leaf_count - at) * sizeof(void *));
}

void ranges_insert(struct ranges *ranges, const struct range *range)
{
    assert(range->start < range->end && range->id != 0);
    size_t at = leaf_find(ranges, range->start);
    struct range_leaf *leaf = ranges->leaf_count > 0 ? ranges->leaves[at] : leaf_insert(ranges, 0);
    if (leaf->count == RANGE_LEAF_MAX) {
        struct range_leaf *upper = leaf_insert(ranges, at + 1);
        upper->count = RANGE_LEAF_MAX / 2;
        leaf->count -= upper->count;
        memcpy(upper->ranges, &leaf->ranges[leaf->count], upper->count * sizeof(*upper->ranges));
        if (range->start >= upper->ranges[0].start) {
            leaf = upper;
        }
    }
    uint32_t position = position_find(leaf, range->start);
    assert(position == leaf->count || leaf->ranges[position].start >= range->end);
    memmove(&leaf->ranges[position + 1], &leaf->ranges[position], (leaf->count - position) * sizeof(*leaf->ranges));
    leaf->ranges[position] = *range;
    leaf->count++;
    ranges->count++;
}

/* Two neighbours that fit half a leaf together become one. */
static bool leaves_merge(struct ranges *ranges, size_t at)
{
    if (at + 1 >= ranges->leaf_count) {
        return false;
    }
    struct range_leaf *lower = ranges->leaves[at];
    struct range_leaf *upper = ranges->leaves[at + 1];
    if (lower->count + upper->count > RANGE_LEAF_MAX / 2) {
        return false;
    }
    memcpy(&lower->ranges[lower->count], upper->ranges, upper->count * sizeof(*upper->ranges));
    lower->count += upper->count;
    leaf_remove(ranges, at + 1);
    return true;
}

void ranges_remove(struct ranges *ranges, uint64_t start)
{
    assert(ranges->leaf_count > 0);
    size_t at = leaf_find(ranges, start);
    struct range_leaf *leaf = ranges->leaves[at];
    uint32_t position = position_find(leaf, start);
    assert(position < leaf->count && leaf->ranges[position].start == start);
    leaf->count--;
    ranges->count--;
    memmove(&leaf->ranges[position], &leaf->ranges[position + 1], (leaf->count - position) * sizeof(*leaf->ranges));
    if (leaf->count == 0) {
        leaf_remove(ranges, at);
        if (at > 0) {
            leaves_merge(ranges, at - 1);
        }
    } else if (!leaves_merge(ranges, at) && at > 0) {
        leaves_merge(ranges, at - 1);
    }
}

void ranges_around(const struct ranges *ranges, uint64_t start, struct range *before_out, struct range *after_out)
{
    size_t at = leaf_find(ranges, start);
    const struct range_leaf *leaf = ranges->leaves[at];
    uint32_t position = position_find(leaf, start);
    assert(position < leaf->count && leaf->ranges[position].start == start);
    *before_out = (struct range){0};
    *after_out = (struct range){0};
    if (position > 0) {
        *before_out = leaf->ranges[position - 1];
    } else if (at > 0) {
        *before_out = ranges->leaves[at - 1]->ranges[ranges->leaves[at - 1]->count - 1];
    }
    if (position + 1 < leaf->count) {
        *after_out = leaf->ranges[position + 1];
    } else if (at + 1 < ranges->leaf_count) {
        *after_out = ranges->leaves[at + 1]->ranges[0];
    }
}

void ranges_absorb(struct ranges *ranges, uint64_t start)
{
    size_t at = leaf_find(ranges, start);
    struct range_leaf *leaf = ranges->leaves[at];
    uint32_t position = position_find(leaf, start);
    assert(position < leaf->count && leaf->ranges[position].start == start);
    if (position + 1 < leaf->count) {
        struct range *range = &leaf->ranges[position];
        assert(range->end == range[1].start);
        range->end = range[1].end;
        leaf->count--;
        ranges->count--;
        memmove(range + 1, range + 2, (leaf->count - position - 1) * sizeof(*range));
        if (!leaves_merge(ranges, at) && at > 0) {
            leaves_merge(ranges, at - 1);
        }
    } else {
        const struct range after = ranges->leaves[at + 1]->ranges[0];
        assert(leaf->ranges[position].end == after.start);
        ranges_remove(ranges, after.start);
        ranges_at(ranges, start)->end = after.end; /* removing may have moved it */
    }
}

void ranges_clear(struct ranges *ranges)
{
    for (size_t i = 0; i < ranges->leaf_count; i++) {
        free(ranges->leaves[i]);
    }
    while (ranges->spare != NULL) {
        struct range_leaf *next = ranges->spare->next;
        free(ranges->spare);
        ranges->spare = next;
    }
    free(ranges->leaves);
    *ranges = (struct ranges){0};
}

int ranges_each(const struct ranges *ranges, int (*take)(void *context, const struct range *range), void *context)
{
    for (size_t i = 0; i < ranges->leaf_count; i++) {
        for (uint32_t k = 0; k < ranges->leaves[i]->count; k++) {
            int result = take(context, &ranges->leaves[i]->ranges[k]);
            if (result != 0) {
                return result;
            }
        }
    }
    return 0;
}

bool ranges_check(const struct ranges *ranges)
{
    uint64_t count = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < ranges->leaf_count; i++) {
        const struct range_leaf *leaf = ranges->leaves[i];
        bool is_sparse = i > 0 && ranges->leaves[i - 1]->count + leaf->count <= RANGE_LEAF_MAX / 2;
        if (leaf->count == 0 || leaf->count > RANGE_LEAF_MAX || is_sparse) {
            return false;
        }
        for (uint32_t k = 0; k < leaf->count; k++) {
            const struct range *range = &leaf->ranges[k];
            if (range->start >= range->end || range->start < end || range->id == 0) {
                return false;
            }
            end = range->end;
            count++;
        }
    }
    return count == ranges->count;
}
