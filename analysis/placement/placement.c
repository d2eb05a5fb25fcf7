/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First fit by decreasing size: each buffer gets the lowest address at which nothing lies that lives at the same time.
 */
#define _GNU_SOURCE
#include "analysis/placement/placement.h"

#include "analysis/base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct edge {
    int64_t time;
    bool is_begin;
    size_t buffer;
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

static struct edge *edges_of(const struct placement_buffer *buffers, size_t count)
{
    struct edge *edges = memory_resize(NULL, (2 * count + 1) * sizeof(*edges));

    for (size_t i = 0; i < count; i++) {
        edges[2 * i] = (struct edge){buffers[i].lower, true, i};
        edges[2 * i + 1] = (struct edge){buffers[i].upper, false, i};
    }
    qsort(edges, 2 * count, sizeof(*edges), compare_edges);
    return edges;
}

uint64_t placement_load(const struct placement_buffer *buffers, size_t count)
{
    struct edge *edges = edges_of(buffers, count);
    uint64_t live = 0;
    uint64_t load = 0;

    for (size_t i = 0; i < 2 * count; i++) {
        uint64_t size = buffers[edges[i].buffer].size;

        live = edges[i].is_begin ? live + size : live - size;
        load = live > load ? live : load;
    }
    free(edges);
    return load;
}

static int compare_sizes(const void *a_untyped, const void *b_untyped, void *buffers_untyped)
{
    const struct placement_buffer *buffers = buffers_untyped;
    const struct placement_buffer *a = &buffers[*(const size_t *)a_untyped];
    const struct placement_buffer *b = &buffers[*(const size_t *)b_untyped];

    if (a->size != b->size) {
        return a->size > b->size ? -1 : 1;
    }
    return a < b ? -1 : 1;
}

static uint64_t align_up(uint64_t offset, uint64_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

/* `placed` is by offset. */
static uint64_t first_fit(const struct placement_buffer *buffers, const size_t *placed, size_t count,
                          const struct placement_buffer *buffer, uint64_t alignment)
{
    uint64_t offset = 0;

    for (size_t i = 0; i < count; i++) {
        const struct placement_buffer *other = &buffers[placed[i]];

        if (other->lower >= buffer->upper || buffer->lower >= other->upper) {
            continue;
        }
        if (other->offset >= offset + buffer->size) {
            break;
        }
        if (other->offset + other->size > offset) {
            offset = align_up(other->offset + other->size, alignment);
        }
    }
    return offset;
}

static uint64_t place(struct placement_buffer *buffers, size_t count, uint64_t alignment)
{
    size_t *order = memory_resize(NULL, (count + 1) * sizeof(*order));
    size_t *placed = memory_resize(NULL, (count + 1) * sizeof(*placed));
    uint64_t height = 0;

    for (size_t i = 0; i < count; i++) {
        order[i] = i;
    }
    qsort_r(order, count, sizeof(*order), compare_sizes, buffers);
    for (size_t i = 0; i < count; i++) {
        struct placement_buffer *buffer = &buffers[order[i]];
        size_t at = i;

        buffer->offset = first_fit(buffers, placed, i, buffer, alignment);
        for (; at > 0 && buffers[placed[at - 1]].offset > buffer->offset; at--) {
            placed[at] = placed[at - 1];
        }
        placed[at] = order[i];
        height = buffer->offset + buffer->size > height ? buffer->offset + buffer->size : height;
    }
    free(order);
    free(placed);
    return height;
}

static int check_input(const struct placement_buffer *buffers, size_t count, uint64_t alignment,
                       struct varve_message *message)
{
    uint64_t bytes = 0;

    if ((alignment & (alignment - 1)) != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "alignment %" PRIu64 " is no power of two",
                                 alignment);
    }
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].lower >= buffers[i].upper) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "buffer %zu ends at %" PRId64 ", but begins at %" PRId64, i,
                                     buffers[i].upper, buffers[i].lower);
        }
        if (buffers[i].size > PLACEMENT_BYTES_MAX - alignment - bytes) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "the sizes up to buffer %zu add up to more "
                                     "than 2^62 bytes",
                                     i);
        }
        bytes += align_up(buffers[i].size, alignment);
    }
    return VARVE_OK;
}

int placement_solve(struct placement_buffer *buffers, size_t count, const struct placement_options *options,
                    struct placement_result *result, struct varve_message *message)
{
    uint64_t alignment = options->alignment > 1 ? options->alignment : 1;
    double begin = seconds_now();
    int error = check_input(buffers, count, alignment, message);

    if (error != VARVE_OK) {
        return error;
    }
    *result = (struct placement_result){.load = placement_load(buffers, count), .method = "size"};
    result->bound = result->load;
    result->height = place(buffers, count, alignment);
    result->optimal = result->height == result->bound;
    result->seconds = seconds_now() - begin;
    return VARVE_OK;
}

bool placement_check(const struct placement_buffer *buffers, size_t count, uint64_t height,
                     struct varve_message *message)
{
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].offset > height || buffers[i].size > height - buffers[i].offset) {
            varve_message_set(message, VARVE_ERROR_CORRUPT, "buffer %zu ends above %" PRIu64, i, height);
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper &&
                buffers[i].offset < buffers[j].offset + buffers[j].size &&
                buffers[j].offset < buffers[i].offset + buffers[i].size) {
                varve_message_set(message, VARVE_ERROR_CORRUPT, "buffers %zu and %zu overlap", j, i);
                return false;
            }
        }
    }
    return true;
}
