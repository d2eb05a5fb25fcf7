/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a solution: plain form, heuristics, what is proved. The check shares nothing with the
 * solvers.
 */
#include "analysis/whatif/placement.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/progress.h"
#include "analysis/whatif/placement_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX ((size_t)INT32_MAX)
#define GOOD_SHARE 100 /* a placement is good if it is above the target by one part of so many at most */
#define GOOD_SECONDS 1.0
#define SEARCH_COUNT_MAX 2048
#define SEARCH_SHARE 0.75 /* of the time */
#define BEFORE_SEARCH_SECONDS 0.02

static int check_input(const struct placement_buffer *buffers, size_t count, uint64_t alignment,
                       struct varve_message *message)
{
    if ((alignment & (alignment - 1)) != 0 || alignment > PLACEMENT_BYTES_MAX / 2) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "alignment %" PRIu64 " is no power of two", alignment);
    }
    if (count > BUFFERS_MAX) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "more than %zu buffers", BUFFERS_MAX);
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].lower >= buffers[i].upper) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "buffer %zu begins at %" PRId64 ", but ends at %" PRId64, i, buffers[i].lower,
                                     buffers[i].upper);
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

/* A solution on its way: answers grow better and bounds higher until they meet, or time is over. */
struct solution {
    const struct placement_instance *instance;
    struct portfolio portfolio;       /* has the best placement */
    struct placement_buffer *buffers; /* for the exact search: one for each item */
    uint64_t bound;                   /* what is proved so far */
    double seconds;                   /* all that there is */
    bool is_minimizing;               /* no capacity was given */
};

static struct solution begin_solution(const struct placement_instance *instance,
                                      const struct placement_options *options, struct placement_clock *clock,
                                      uint64_t *offsets)
{
    bool is_default = options->seconds <= 0;
    uint64_t target = options->capacity > instance->bound ? options->capacity : instance->bound;
    struct solution solution = {
        .instance = instance,
        .buffers = memory_resize(NULL, (instance->count + 1) * sizeof(*solution.buffers)),
        .bound = instance->bound,
        .seconds = is_default ? PLACEMENT_SECONDS : options->seconds,
        .is_minimizing = options->capacity == 0,
        .portfolio = {.instance = instance,
                      .target = target,
                      .good = is_default && options->capacity == 0 ? target + target / GOOD_SHARE : 0,
                      .clock = clock,
                      .begin = placement_clock_now(clock),
                      .threads = clock->by_steps ? 1 : parallel_threads(options->threads),
                      .progress = options->progress,
                      .offsets = offsets,
                      .method = "nothing to place"},
    };
    for (size_t i = 0; i < instance->count; i++) {
        const struct placement_item *item = &instance->items[i];
        solution.buffers[i] = (struct placement_buffer){.lower = item->first, .upper = item->end, .size = item->size};
    }
    return solution;
}

static double seconds_left(const struct solution *solution)
{
    const struct portfolio *portfolio = &solution->portfolio;
    bool is_good = portfolio->height <= portfolio->good && GOOD_SECONDS < solution->seconds;
    return portfolio->begin + (is_good ? GOOD_SECONDS : solution->seconds) - placement_clock_now(portfolio->clock);
}

/* More may be found, or proved. */
static bool placement_is_open(const struct solution *solution)
{
    return solution->portfolio.height > solution->portfolio.target && solution->bound <= solution->portfolio.target &&
           seconds_left(solution) > 0;
}

static void take_exact(struct solution *solution)
{
    struct portfolio *portfolio = &solution->portfolio;
    portfolio->height = 0;
    portfolio->method = "exact";
    for (size_t i = 0; i < solution->instance->count; i++) {
        uint64_t end = solution->buffers[i].offset + solution->buffers[i].size;
        portfolio->offsets[i] = solution->buffers[i].offset;
        portfolio->height = end > portfolio->height ? end : portfolio->height;
    }
}

/* The exact search under a capacity, with what follows for the answer and the bound. */
static enum placement_verdict try_capacity(struct solution *solution, uint64_t capacity, double seconds)
{
    struct portfolio *portfolio = &solution->portfolio;
    if (portfolio->progress != NULL) {
        progress_step(portfolio->progress, "searching",
                      (uint64_t)((placement_clock_now(portfolio->clock) - portfolio->begin) * 1e3),
                      (uint64_t)(solution->seconds * 1e3));
    }
    enum placement_verdict verdict =
        placement_exact(solution->buffers, solution->instance->count, capacity, 1, portfolio->clock, seconds);
    if (verdict == PLACEMENT_FITS) {
        take_exact(solution);
    } else if (verdict == PLACEMENT_IMPOSSIBLE) {
        uint64_t unit = solution->instance->unit;
        solution->bound = capacity / unit * unit + unit;
        portfolio->target = solution->is_minimizing ? solution->bound : portfolio->target;
    }
    return verdict;
}

/* The optimum is most often the load, so that a third of the time is for that; then what is open is halved
 * again and again. */
static void placement_search(struct solution *solution)
{
    struct portfolio *portfolio = &solution->portfolio;
    double whole = seconds_left(solution) * SEARCH_SHARE;
    double end = placement_clock_now(portfolio->clock) + whole;
    double slice = solution->is_minimizing ? whole / 3 : whole;
    while (placement_is_open(solution) && placement_clock_now(portfolio->clock) < end) {
        double begin = placement_clock_now(portfolio->clock);
        uint64_t low = portfolio->target;
        enum placement_verdict verdict = try_capacity(solution, low, slice);
        if (verdict == PLACEMENT_UNDECIDED && placement_clock_now(portfolio->clock) - begin < slice / 2) {
            return; /* it is not made for this many */
        }
        slice = slice > whole / 16 ? whole / 16 : slice * 2;
        while (verdict != PLACEMENT_IMPOSSIBLE && placement_is_open(solution) &&
               placement_clock_now(portfolio->clock) < end && portfolio->height - low > solution->instance->unit) {
            uint64_t middle = low + (portfolio->height - low) / 2;
            low = try_capacity(solution, middle, slice) == PLACEMENT_FITS ? low : middle;
        }
    }
}

static void placement_improve(struct solution *solution)
{
    if (solution->instance->count <= SEARCH_COUNT_MAX) {
        solution->portfolio.seconds = BEFORE_SEARCH_SECONDS;
        portfolio_run(&solution->portfolio);
        placement_search(solution);
    }
    if (solution->portfolio.height == 0 || placement_is_open(solution)) {
        solution->portfolio.seconds = solution->seconds;
        portfolio_run(&solution->portfolio);
    }
}

int placement_solve(struct placement_buffer *buffers, size_t count, const struct placement_options *options,
                    struct placement_result *result, struct varve_message *message)
{
    uint64_t alignment = options->alignment > 1 ? options->alignment : 1;
    struct placement_clock clock = {.by_steps = options->by_steps};
    double begin = monotonic_seconds();
    int error = check_input(buffers, count, alignment, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct placement_instance instance;
    placement_instance_make(&instance, buffers, count, alignment);
    uint64_t *offsets = memory_resize(NULL, (instance.count + 1) * sizeof(*offsets));
    struct solution solution = begin_solution(&instance, options, &clock, offsets);
    placement_improve(&solution);
    *result = (struct placement_result){
        .load = instance.load,
        .bound = solution.bound,
        .height = solution.portfolio.height,
        .optimal = solution.portfolio.height == solution.bound,
        .method = solution.portfolio.method,
        .seconds = monotonic_seconds() - begin,
    };
    for (size_t i = 0; i < count; i++) {
        buffers[i].offset = 0; /* of those of size 0 */
    }
    for (size_t i = 0; i < instance.count; i++) {
        buffers[instance.buffers[i]].offset = offsets[i];
    }
    free(offsets);
    free(solution.buffers);
    placement_instance_free(&instance);
    return VARVE_OK;
}

uint64_t placement_load(const struct placement_buffer *buffers, size_t count)
{
    struct placement_instance instance;
    placement_instance_make(&instance, buffers, count, 1);
    uint64_t load = instance.load;
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

static bool placement_walk(struct walker *walker, size_t count, struct varve_message *message)
{
    qsort_r(walker->by_lower, count, sizeof(*walker->by_lower), compare_lower, (void *)walker->buffers);
    qsort_r(walker->by_upper, count, sizeof(*walker->by_upper), compare_upper, (void *)walker->buffers);
    size_t ended = 0;
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
    is_valid = is_valid && placement_walk(&walker, with_size, message);
    free(walker.by_lower);
    free(walker.by_upper);
    free(walker.live);
    return is_valid;
}
