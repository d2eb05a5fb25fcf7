/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a solution: plain form, heuristics, what is proved. The check shares nothing with the solvers.
 */
#define _GNU_SOURCE
#include "analysis/placement/placement.h"

#include "analysis/base/memory.h"
#include "analysis/placement/portfolio.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFERS_MAX ((size_t)INT32_MAX)
#define GOOD_PER_THOUSAND 1
#define GOOD_SECONDS 0.5 /* with a good placement, by default */

static int check_input(const struct placement_buffer *buffers, size_t count, uint64_t alignment,
                       struct varve_message *message)
{
    uint64_t bytes = 0;

    if ((alignment & (alignment - 1)) != 0 || alignment > PLACEMENT_BYTES_MAX / 2) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "alignment %" PRIu64 " is no power of two",
                                 alignment);
    }
    if (count > BUFFERS_MAX) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "more than %zu buffers", BUFFERS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].lower >= buffers[i].upper) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "buffer %zu begins at %" PRId64 ", but ends at %" PRId64, i,
                                     buffers[i].lower, buffers[i].upper);
        }
        if (buffers[i].size > PLACEMENT_BYTES_MAX - bytes ||
            placement_round(buffers[i].size, alignment) > PLACEMENT_BYTES_MAX - bytes) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "the sizes up to that of buffer %zu add up to more than 2^62 bytes", i);
        }
        bytes += placement_round(buffers[i].size, alignment);
    }
    return VARVE_OK;
}

static unsigned thread_count(unsigned threads)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return threads > 0 ? threads : cores > 0 ? (unsigned)cores : 1;
}

static void solve(const struct placement_instance *instance, const struct placement_options *options,
                  uint64_t *offsets, struct placement_result *result)
{
    bool is_default = options->seconds <= 0;
    struct portfolio portfolio = {
        .instance = instance,
        .target = options->capacity > instance->bound ? options->capacity : instance->bound,
        .begin = portfolio_now(),
        .seconds = is_default ? PLACEMENT_SECONDS : options->seconds,
        .good_seconds = GOOD_SECONDS,
        .threads = thread_count(options->threads),
        .progress = options->progress,
        .offsets = offsets,
        .method = "none needed",
    };

    portfolio.good = is_default ? portfolio.target + portfolio.target / 1000 * GOOD_PER_THOUSAND : 0;
    portfolio_run(&portfolio);
    result->bound = instance->bound;
    result->height = portfolio.height;
    result->method = portfolio.method;
    result->optimal = result->height == result->bound;
    result->seconds = portfolio_now() - portfolio.begin;
}

int placement_solve(struct placement_buffer *buffers, size_t count, const struct placement_options *options,
                    struct placement_result *result, struct varve_message *message)
{
    uint64_t alignment = options->alignment > 1 ? options->alignment : 1;
    struct placement_instance instance;
    uint64_t *offsets;
    int error = check_input(buffers, count, alignment, message);

    if (error != VARVE_OK) {
        return error;
    }
    placement_instance_make(&instance, buffers, count, alignment);
    offsets = memory_resize(NULL, (instance.count + 1) * sizeof(*offsets));
    *result = (struct placement_result){.load = instance.load};
    solve(&instance, options, offsets, result);
    for (size_t i = 0; i < count; i++) {
        buffers[i].offset = 0; /* of those of size 0 */
    }
    for (size_t i = 0; i < instance.count; i++) {
        buffers[instance.buffers[i]].offset = offsets[i];
    }
    free(offsets);
    placement_instance_free(&instance);
    return VARVE_OK;
}

uint64_t placement_load(const struct placement_buffer *buffers, size_t count)
{
    struct placement_instance instance;
    uint64_t load;

    placement_instance_make(&instance, buffers, count, 1);
    load = instance.load;
    placement_instance_free(&instance);
    return load;
}

/* ---- the check: along time, with what is live by address ---- */

struct walker {
    const struct placement_buffer *buffers;
    size_t *by_lower, *by_upper;
    size_t *live; /* by offset: none overlaps another */
    size_t live_count;
};

static int compare_lower(const void *a_untyped, const void *b_untyped, void *buffers_untyped)
{
    const struct placement_buffer *buffers = buffers_untyped;
    int64_t a = buffers[*(const size_t *)a_untyped].lower;
    int64_t b = buffers[*(const size_t *)b_untyped].lower;

    return (a > b) - (a < b);
}

static int compare_upper(const void *a_untyped, const void *b_untyped, void *buffers_untyped)
{
    const struct placement_buffer *buffers = buffers_untyped;
    int64_t a = buffers[*(const size_t *)a_untyped].upper;
    int64_t b = buffers[*(const size_t *)b_untyped].upper;

    return (a > b) - (a < b);
}

/* The first of those that are live at or above `offset`. */
static size_t find_live(const struct walker *walker, uint64_t offset)
{
    size_t low = 0;
    size_t high = walker->live_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (walker->buffers[walker->live[middle]].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool walker_begin(struct walker *walker, size_t number, struct varve_message *message)
{
    const struct placement_buffer *buffer = &walker->buffers[number];
    size_t at = find_live(walker, buffer->offset);
    const size_t *other = NULL;

    if (at < walker->live_count && walker->buffers[walker->live[at]].offset - buffer->offset < buffer->size) {
        other = &walker->live[at];
    } else if (at > 0) {
        const struct placement_buffer *below = &walker->buffers[walker->live[at - 1]];

        other = buffer->offset - below->offset < below->size ? &walker->live[at - 1] : NULL;
    }
    if (other != NULL) {
        varve_message_set(message, VARVE_ERROR_CORRUPT, "buffers %zu and %zu overlap", *other, number);
        return false;
    }
    memmove(&walker->live[at + 1], &walker->live[at], (walker->live_count - at) * sizeof(*walker->live));
    walker->live[at] = number;
    walker->live_count++;
    return true;
}

static void walker_end(struct walker *walker, size_t number)
{
    size_t at = find_live(walker, walker->buffers[number].offset);

    walker->live_count--;
    memmove(&walker->live[at], &walker->live[at + 1], (walker->live_count - at) * sizeof(*walker->live));
}

static bool walk(struct walker *walker, size_t count, struct varve_message *message)
{
    size_t ended = 0;

    qsort_r(walker->by_lower, count, sizeof(*walker->by_lower), compare_lower, (void *)walker->buffers);
    qsort_r(walker->by_upper, count, sizeof(*walker->by_upper), compare_upper, (void *)walker->buffers);
    for (size_t i = 0; i < count; i++) {
        int64_t now = walker->buffers[walker->by_lower[i]].lower;

        while (walker->buffers[walker->by_upper[ended]].upper <= now) {
            walker_end(walker, walker->by_upper[ended++]);
        }
        if (!walker_begin(walker, walker->by_lower[i], message)) {
            return false;
        }
    }
    return true;
}

bool placement_check(const struct placement_buffer *buffers, size_t count, uint64_t height,
                     struct varve_message *message)
{
    struct walker walker = {
        .buffers = buffers,
        .by_lower = memory_resize(NULL, (count + 1) * sizeof(*walker.by_lower)),
        .by_upper = memory_resize(NULL, (count + 1) * sizeof(*walker.by_upper)),
        .live = memory_resize(NULL, (count + 1) * sizeof(*walker.live)),
    };
    size_t with_size = 0;
    bool is_valid = true;

    for (size_t i = 0; i < count && is_valid; i++) {
        is_valid = buffers[i].size <= height && buffers[i].offset <= height - buffers[i].size;
        if (!is_valid) {
            varve_message_set(message, VARVE_ERROR_CORRUPT, "buffer %zu ends above %" PRIu64, i, height);
        } else if (buffers[i].size > 0) {
            walker.by_lower[with_size] = i;
            walker.by_upper[with_size++] = i;
        }
    }
    is_valid = is_valid && walk(&walker, with_size, message);
    free(walker.by_lower);
    free(walker.by_upper);
    free(walker.live);
    return is_valid;
}
