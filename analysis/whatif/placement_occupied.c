/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree lies in an array as a heap does: node n has the halves 2n and 2n + 1, points are the nodes from `leaves` on.
 */
#include "analysis/whatif/placement_occupied.h"

#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint64_t begin, end;
};

/* Apart from one another, by address. */
struct range_set {
    struct range *ranges;
    uint32_t count, capacity;
};

struct node {
    struct range_set any, whole;
};

/* A set on the way upwards: what lies below ranges[next] ends below the offset that is tried. */
struct cursor {
    const struct range_set *set;
    uint32_t next;
};

/* What is added to the sets of several nodes. */
struct addition {
    uint32_t first, end;
    struct range range;
    uint64_t size_min;
};

#define CURSORS_MAX 128 /* at most four nodes a level are visited, and there are at most 32 levels */

struct occupied {
    struct node *nodes;
    uint32_t leaves;
    struct cursor cursors[CURSORS_MAX];
    size_t cursor_count;
};

struct occupied *occupied_new(uint32_t points)
{
    struct occupied *occupied = memory_resize(NULL, sizeof(*occupied));
    *occupied = (struct occupied){.leaves = 1};
    while (occupied->leaves < points) {
        occupied->leaves *= 2;
    }
    occupied->nodes = memory_resize(NULL, 2 * (size_t)occupied->leaves * sizeof(*occupied->nodes));
    memset(occupied->nodes, 0, 2 * (size_t)occupied->leaves * sizeof(*occupied->nodes));
    return occupied;
}

void occupied_free(struct occupied *occupied)
{
    if (occupied == NULL) {
        return;
    }
    for (size_t i = 0; i < 2 * (size_t)occupied->leaves; i++) {
        free(occupied->nodes[i].any.ranges);
        free(occupied->nodes[i].whole.ranges);
    }
    free(occupied->nodes);
    free(occupied);
}

void occupied_clear(struct occupied *occupied)
{
    for (size_t i = 0; i < 2 * (size_t)occupied->leaves; i++) {
        occupied->nodes[i].any.count = 0;
        occupied->nodes[i].whole.count = 0;
    }
}

/* The first range that ends above `offset`, from number `from` on. */
static uint32_t find_end_above(const struct range_set *set, uint32_t from, uint64_t offset)
{
    uint32_t low = from;
    uint32_t high = set->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (set->ranges[middle].end > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Ranges with less than `size_min` between them become one. */
static void set_add(struct range_set *set, struct range range, uint64_t size_min)
{
    /* the first that is not wholly below, with a gap that counts; then all up to the first that is so above */
    uint32_t first = range.begin < size_min ? 0 : find_end_above(set, 0, range.begin - size_min);
    uint32_t end;
    for (end = first; end < set->count && set->ranges[end].begin < range.end + size_min; end++) {
    }
    if (first == end) {
        if (set->count == set->capacity) {
            set->capacity = set->capacity == 0 ? 2 : 2 * set->capacity;
            set->ranges = memory_resize(set->ranges, set->capacity * sizeof(*set->ranges));
        }
        memmove(&set->ranges[first + 1], &set->ranges[first], (set->count - first) * sizeof(*set->ranges));
        set->ranges[first] = range;
        set->count++;
        return;
    }
    if (set->ranges[first].begin < range.begin) {
        range.begin = set->ranges[first].begin;
    }
    if (set->ranges[end - 1].end > range.end) {
        range.end = set->ranges[end - 1].end;
    }
    set->ranges[first] = range;
    memmove(&set->ranges[first + 1], &set->ranges[end], (set->count - end) * sizeof(*set->ranges));
    set->count -= end - first - 1;
}

/* Of a node with `points` points from `from` on; some of its points are in [first, end). */
static void add_below(struct occupied *occupied, uint32_t number, uint32_t from, uint32_t points,
                      const struct addition *addition)
{
    struct node *node = &occupied->nodes[number];
    set_add(&node->any, addition->range, addition->size_min);
    if (addition->first <= from && from + points <= addition->end) {
        set_add(&node->whole, addition->range, addition->size_min);
        return;
    }
    points /= 2;
    if (addition->first < from + points) {
        add_below(occupied, 2 * number, from, points, addition);
    }
    if (from + points < addition->end) {
        add_below(occupied, 2 * number + 1, from + points, points, addition);
    }
}

void occupied_add(struct occupied *occupied, uint32_t first, uint32_t end, uint64_t offset, uint64_t size,
                  uint64_t size_min)
{
    struct addition addition = {first, end, {offset, offset + size}, size_min};
    add_below(occupied, 1, 0, occupied->leaves, &addition);
}

static void add_cursor(struct occupied *occupied, const struct range_set *set)
{
    if (set->count > 0) {
        assert(occupied->cursor_count < CURSORS_MAX);
        occupied->cursors[occupied->cursor_count++] = (struct cursor){set, 0};
    }
}

/* What is taken during [first, end) is in the sets of the cursors then. */
static void find_sets(struct occupied *occupied, uint32_t number, uint32_t from, uint32_t points, uint32_t first,
                      uint32_t end)
{
    const struct node *node = &occupied->nodes[number];
    if (first <= from && from + points <= end) {
        add_cursor(occupied, &node->any);
        return;
    }
    add_cursor(occupied, &node->whole);
    points /= 2;
    if (first < from + points) {
        find_sets(occupied, 2 * number, from, points, first, end);
    }
    if (from + points < end) {
        find_sets(occupied, 2 * number + 1, from + points, points, first, end);
    }
}

uint64_t occupied_first_fit(struct occupied *occupied, uint32_t first, uint32_t end, uint64_t size)
{
    occupied->cursor_count = 0;
    find_sets(occupied, 1, 0, occupied->leaves, first, end);
    uint64_t offset = 0;
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (size_t i = 0; i < occupied->cursor_count;) {
            struct cursor *cursor = &occupied->cursors[i];
            const struct range *ranges = cursor->set->ranges;
            if (ranges[cursor->next].end <= offset) {
                cursor->next = find_end_above(cursor->set, cursor->next + 1, offset);
            }
            if (cursor->next == cursor->set->count) {
                *cursor = occupied->cursors[--occupied->cursor_count];
                continue;
            }
            if (ranges[cursor->next].begin < offset + size) {
                offset = ranges[cursor->next].end;
                has_moved = true;
            }
            i++;
        }
    }
    return offset;
}
