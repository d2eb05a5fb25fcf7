/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses, none overlapping another, in a treap: a search tree by address that is a heap by
 * random priorities, hence of logarithmic depth whatever the order of calls. Each node knows the free bytes
 * in front of it and the most of its subtree, so that the first gap that fits is found on one way down. A
 * range's gap changes with its neighbour, which may be anywhere on the way to the root.
 * Called by the resource table for addresses and for offsets in the host's file.
 */
#include "alloc/device/device_ranges.h"

#include <stdlib.h>

#define RANGES_CEILING ((uint64_t)1 << 63)
#define RANGES_SEED 0x9e3779b97f4a7c15U

static uint64_t device_range_end(const struct device_range *range)
{
    return range->addr + range->bytes;
}

static uint64_t device_ranges_align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

static uint32_t random_next(struct device_ranges *ranges)
{
    ranges->random ^= ranges->random << 13;
    ranges->random ^= ranges->random >> 7;
    ranges->random ^= ranges->random << 17;
    return (uint32_t)(ranges->random >> 32);
}

/* Where a range could begin behind `previous` (NULL: at the floor). */
static uint64_t gap_begin(const struct device_ranges *ranges, const struct device_range *previous)
{
    uint64_t from = ranges->floor;
    if (previous && device_range_end(previous) > from) {
        from = device_range_end(previous);
    }
    if (from > UINT64_MAX - ranges->alignment) {
        return UINT64_MAX;
    }
    return device_ranges_align_up(from, ranges->alignment);
}

static uint64_t gap_between(const struct device_ranges *ranges, const struct device_range *previous,
                            const struct device_range *range)
{
    uint64_t begin = gap_begin(ranges, previous);
    return range->addr > begin ? range->addr - begin : 0;
}

static void pull(struct device_range *range)
{
    range->gap_max = range->gap;
    if (range->left && range->left->gap_max > range->gap_max) {
        range->gap_max = range->left->gap_max;
    }
    if (range->right && range->right->gap_max > range->gap_max) {
        range->gap_max = range->right->gap_max;
    }
}

/* Sums up anew on the way to the range that begins at `addr`. */
static void device_ranges_refresh(struct device_range *tree, uint64_t addr)
{
    if (addr != tree->addr) {
        device_ranges_refresh(addr < tree->addr ? tree->left : tree->right, addr);
    }
    pull(tree);
}

static void device_ranges_split(struct device_range *tree, uint64_t addr, struct device_range **below,
                                struct device_range **above)
{
    if (!tree) {
        *below = NULL;
        *above = NULL;
    } else if (tree->addr < addr) {
        device_ranges_split(tree->right, addr, &tree->right, above);
        pull(tree);
        *below = tree;
    } else {
        device_ranges_split(tree->left, addr, below, &tree->left);
        pull(tree);
        *above = tree;
    }
}

static struct device_range *device_ranges_join(struct device_range *below, struct device_range *above)
{
    if (!below || !above) {
        return below ? below : above;
    }
    if (below->priority > above->priority) {
        below->right = device_ranges_join(below->right, above);
        pull(below);
        return below;
    }
    above->left = device_ranges_join(below, above->left);
    pull(above);
    return above;
}

static struct device_range *tree_insert(struct device_range *tree, struct device_range *range)
{
    if (!tree || range->priority > tree->priority) {
        device_ranges_split(tree, range->addr, &range->left, &range->right);
        pull(range);
        return range;
    }
    if (range->addr < tree->addr) {
        tree->left = tree_insert(tree->left, range);
    } else {
        tree->right = tree_insert(tree->right, range);
    }
    pull(tree);
    return tree;
}

static struct device_range *tree_remove(struct device_range *tree, const struct device_range *range)
{
    assert(tree);
    if (tree == range) {
        return device_ranges_join(tree->left, tree->right);
    }
    if (range->addr < tree->addr) {
        tree->left = tree_remove(tree->left, range);
    } else {
        tree->right = tree_remove(tree->right, range);
    }
    pull(tree);
    return tree;
}

static void tree_free(struct device_range *tree)
{
    if (tree) {
        tree_free(tree->left);
        tree_free(tree->right);
        free(tree);
    }
}

struct walk {
    const struct device_ranges *ranges;
    const struct device_range *previous;
    const char *name;
    struct varve_message *message;
    uint64_t count;
};

static int walk_one(struct walk *walk, const struct device_range *range)
{
    const struct device_range *before = walk->previous;
    unsigned long long addr = range->addr;
    if (range->addr == 0 || range->bytes == 0 || device_range_end(range) <= range->addr) {
        return varve_message_set(walk->message, VARVE_ERROR_CORRUPT, "%s: the range at %#llx is empty or wraps",
                                 walk->name, addr);
    }
    if (before && device_range_end(before) > range->addr) {
        return varve_message_set(walk->message, VARVE_ERROR_CORRUPT,
                                 "%s: the range at %#llx begins inside the one at %#llx", walk->name, addr,
                                 (unsigned long long)before->addr);
    }
    if (range->gap != gap_between(walk->ranges, before, range)) {
        return varve_message_set(walk->message, VARVE_ERROR_CORRUPT, "%s: the gap in front of %#llx is not %llu",
                                 walk->name, addr, (unsigned long long)range->gap);
    }
    walk->previous = range;
    walk->count++;
    return 0;
}

static int tree_check(struct walk *walk, const struct device_range *tree)
{
    uint64_t most = tree->gap;
    const struct device_range *children[2] = {tree->left, tree->right};
    for (size_t i = 0; i < 2; i++) {
        if (children[i] && children[i]->priority > tree->priority) {
            return varve_message_set(walk->message, VARVE_ERROR_CORRUPT, "%s: no heap below %#llx", walk->name,
                                     (unsigned long long)tree->addr);
        }
        if (children[i] && children[i]->gap_max > most) {
            most = children[i]->gap_max;
        }
    }
    if (most != tree->gap_max) {
        return varve_message_set(walk->message, VARVE_ERROR_CORRUPT, "%s: the largest gap below %#llx is %llu",
                                 walk->name, (unsigned long long)tree->addr, (unsigned long long)most);
    }
    int error = tree->left ? tree_check(walk, tree->left) : 0;
    VARVE_THEN(error, walk_one(walk, tree));
    if (error == 0 && tree->right) {
        error = tree_check(walk, tree->right);
    }
    return error;
}

void device_ranges_init(struct device_ranges *ranges, uint64_t floor, uint64_t alignment)
{
    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    *ranges = (struct device_ranges){.floor = floor, .alignment = alignment, .random = RANGES_SEED};
}

void device_ranges_insert(struct device_ranges *ranges, struct device_range *range)
{
    struct device_range *before = device_ranges_at_or_before(ranges, range->addr);
    struct device_range *after = device_ranges_at_or_after(ranges, range->addr);
    assert(range->addr != 0 && range->bytes != 0 && device_range_end(range) > range->addr);
    assert(!before || device_range_end(before) <= range->addr);
    assert(!after || device_range_end(range) <= after->addr);
    range->left = NULL;
    range->right = NULL;
    range->priority = random_next(ranges);
    range->gap = gap_between(ranges, before, range);
    ranges->root = tree_insert(ranges->root, range);
    ranges->count++;
    if (after) {
        after->gap = gap_between(ranges, range, after);
        device_ranges_refresh(ranges->root, after->addr);
    }
}

void device_ranges_remove(struct device_ranges *ranges, struct device_range *range)
{
    struct device_range *before = device_ranges_at_or_before(ranges, range->addr - 1);
    struct device_range *after = device_ranges_at_or_after(ranges, range->addr + 1);
    ranges->root = tree_remove(ranges->root, range);
    ranges->count--;
    if (after) {
        after->gap = gap_between(ranges, before, after);
        device_ranges_refresh(ranges->root, after->addr);
    }
}

struct device_range *device_ranges_at_or_before(const struct device_ranges *ranges, uint64_t addr)
{
    struct device_range *found = NULL;
    for (struct device_range *range = ranges->root; range;) {
        if (range->addr <= addr) {
            found = range;
            range = range->right;
        } else {
            range = range->left;
        }
    }
    return found;
}

struct device_range *device_ranges_at_or_after(const struct device_ranges *ranges, uint64_t addr)
{
    struct device_range *found = NULL;
    for (struct device_range *range = ranges->root; range;) {
        if (range->addr >= addr) {
            found = range;
            range = range->left;
        } else {
            range = range->right;
        }
    }
    return found;
}

struct device_range *device_ranges_overlap(const struct device_ranges *ranges, uint64_t addr, uint64_t bytes)
{
    struct device_range *range = device_ranges_at_or_before(ranges, addr);
    if (range && device_range_end(range) > addr) {
        return range;
    }
    range = device_ranges_at_or_after(ranges, addr);
    return range && range->addr - addr < bytes ? range : NULL;
}

bool device_ranges_first_fit(const struct device_ranges *ranges, uint64_t bytes, uint64_t *addr_out)
{
    const struct device_range *range = ranges->root;
    uint64_t begin;
    if (!range || range->gap_max < bytes) {
        begin = gap_begin(ranges, device_ranges_at_or_before(ranges, UINT64_MAX));
    } else {
        while ((range->left && range->left->gap_max >= bytes) || range->gap < bytes) {
            range = range->left && range->left->gap_max >= bytes ? range->left : range->right;
        }
        begin = gap_begin(ranges, device_ranges_at_or_before(ranges, range->addr - 1));
    }
    if (begin > RANGES_CEILING || bytes > RANGES_CEILING - begin) {
        return false;
    }
    *addr_out = begin;
    return true;
}

void device_ranges_close(struct device_ranges *ranges)
{
    tree_free(ranges->root);
    ranges->root = NULL;
    ranges->count = 0;
}

int device_ranges_check(const struct device_ranges *ranges, const char *name, struct varve_message *message)
{
    struct walk walk = {.ranges = ranges, .name = name, .message = message};
    int error = ranges->root ? tree_check(&walk, ranges->root) : 0;
    if (error == 0 && walk.count != ranges->count) {
        error = varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: %llu ranges, %llu counted", name,
                                  (unsigned long long)walk.count, (unsigned long long)ranges->count);
    }
    return error;
}
