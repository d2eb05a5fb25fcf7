/* SPDX-License-Identifier: Apache-2.0 */
/* Lifetimes into points, by one walk over all begins and ends in the order of time. */
#include "analysis/whatif/placement.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

struct edge {
    int64_t time;
    uint32_t item;
    bool is_begin;
};

/* By time; ends before begins, since lifetimes are half-open. */
static int compare_edges(const void *a_untyped, const void *b_untyped)
{
    const struct edge *a = a_untyped;
    const struct edge *b = b_untyped;
    if (a->time != b->time) {
        return a->time < b->time ? -1 : 1;
    }
    return (int)a->is_begin - (int)b->is_begin;
}

static struct edge *sort_edges(const struct placement_instance *instance, const struct placement_buffer *buffers)
{
    struct edge *edges = memory_resize(NULL, (2 * instance->count + 1) * sizeof(*edges));
    for (size_t i = 0; i < instance->count; i++) {
        const struct placement_buffer *buffer = &buffers[instance->buffers[i]];
        edges[2 * i] = (struct edge){buffer->lower, (uint32_t)i, true};
        edges[2 * i + 1] = (struct edge){buffer->upper, (uint32_t)i, false};
    }
    qsort(edges, 2 * instance->count, sizeof(*edges), compare_edges);
    return edges;
}

/* Points, load and bound. */
static void walk_edges(struct placement_instance *instance, const struct placement_buffer *buffers,
                       const struct edge *edges)
{
    uint64_t live = 0;
    uint64_t rounded = 0; /* of what is live */
    bool was_begin = false;
    for (size_t i = 0; i < 2 * instance->count; i++) {
        struct placement_item *item = &instance->items[edges[i].item];
        uint64_t size = buffers[instance->buffers[edges[i].item]].size;
        if (!edges[i].is_begin) {
            item->end = instance->points;
            live -= size;
            rounded -= item->size;
            was_begin = false;
            continue;
        }
        instance->points += was_begin ? 0 : 1;
        was_begin = true;
        item->first = instance->points - 1;
        live += size;
        rounded += item->size;
        instance->load = live > instance->load ? live : instance->load;
        instance->bound = rounded > instance->bound ? rounded : instance->bound;
    }
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void placement_instance_make(struct placement_instance *instance, const struct placement_buffer *buffers, size_t count,
                             uint64_t alignment)
{
    *instance = (struct placement_instance){
        .items = memory_resize(NULL, (count + 1) * sizeof(*instance->items)),
        .buffers = memory_resize(NULL, (count + 1) * sizeof(*instance->buffers)),
    };
    for (size_t i = 0; i < count; i++) {
        uint64_t size = placement_round(buffers[i].size, alignment);
        if (size > 0) {
            instance->unit = greatest_common_divisor(instance->unit, size);
            instance->items[instance->count] = (struct placement_item){.size = size};
            instance->buffers[instance->count++] = i;
        }
    }
    struct edge *edges = sort_edges(instance, buffers);
    walk_edges(instance, buffers, edges);
    free(edges);
}

void placement_instance_free(struct placement_instance *instance)
{
    free(instance->items);
    free(instance->buffers);
    *instance = (struct placement_instance){0};
}
