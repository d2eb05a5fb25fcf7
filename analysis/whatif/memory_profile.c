/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The iteration is the shortest run of requests that the history ends with twice, by sizes and streams, and that makes
 * up a good part of it: loops within an iteration do not. It is found by the prefix function of the requests in reverse
 * (Knuth, Morris and Pratt): the first n of them have period p exactly if they have a border of n - p. How far back the
 * repetition goes says how many requests come before the first iteration.
 *
 * Lifetimes are those of the second iteration. What lives into the next one takes its place all the time; what outlives
 * that as well is none of the iteration's, and has no place in the plan.
 */
#include "analysis/whatif/memory_profile.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/history_lifetimes.h"
#include "analysis/whatif/placement.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_UNIT UINT64_C(512)
#define ITERATION_MIN 64 /* requests: shorter repetitions are a loop within one */
#define COVERED_PART 3   /* a third of the requests at least are iterations */
#define PLACEMENT_SECONDS_OF_STEPS 1.0

/* The requests of the default pool, in their order. */
struct requests {
    const struct history_lifetime **items;
    size_t count;
};

static uint64_t memory_profile_block_bytes(const struct history_lifetime *lifetime)
{
    return (lifetime->size + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

static bool are_alike(const struct history_lifetime *a, const struct history_lifetime *b)
{
    return memory_profile_block_bytes(a) == memory_profile_block_bytes(b) && a->stream == b->stream;
}

static void memory_profile_gather(const struct history_lifetimes *lifetimes, struct requests *out)
{
    out->items = memory_resize(NULL, (lifetimes->count + 1) * sizeof(struct history_lifetime *));
    out->count = 0;
    for (size_t i = 0; i < lifetimes->count; i++) {
        const struct history_lifetime *lifetime = &lifetimes->items[i];
        if (lifetime->lower != HISTORY_BEFORE && lifetime->pool == 0 && lifetime->size > 0) {
            out->items[out->count++] = lifetime;
        }
    }
}

static const struct history_lifetime *from_end(const struct requests *requests, size_t i)
{
    return requests->items[requests->count - 1 - i];
}

/* Requests before the repetition begins. */
static size_t find_begin(const struct requests *requests, size_t period)
{
    size_t begin = requests->count - period;
    while (begin > 0 && are_alike(requests->items[begin - 1], requests->items[begin - 1 + period])) {
        begin--;
    }
    return begin;
}

/* Requests in an iteration; 0: nothing repeats over a good part of the history. */
static size_t find_period(const struct requests *requests)
{
    size_t *border = memory_resize(NULL, (requests->count + 1) * sizeof(*border));
    border[0] = 0;
    size_t period = 0, refused = 0;
    for (size_t i = 1; i < requests->count && period == 0; i++) {
        size_t length = border[i - 1];
        while (length > 0 && !are_alike(from_end(requests, i), from_end(requests, length))) {
            length = border[length - 1];
        }
        border[i] = length + (are_alike(from_end(requests, i), from_end(requests, length)) ? 1 : 0);
        size_t found = i + 1 - border[i];
        if (found >= ITERATION_MIN && border[i] >= found && found != refused) {
            period = (requests->count - find_begin(requests, found)) * COVERED_PART >= requests->count ? found : 0;
            refused = found;
        }
    }
    free(border);
    return period;
}

/* The event that begins request `number`, or the end. */
static int64_t memory_profile_begin_of(const struct requests *requests, size_t number)
{
    return number < requests->count ? requests->items[number]->lower : INT64_MAX;
}

/* Of `count` requests from `first` on; with `repeats` they come again and again. Those without a place have size 0. */
static void make_buffers(const struct requests *requests, size_t first, size_t count, bool repeats,
                         struct placement_buffer *buffers)
{
    int64_t begin = memory_profile_begin_of(requests, first);
    int64_t end = memory_profile_begin_of(requests, first + count),
            next_end = memory_profile_begin_of(requests, first + 2 * count);
    for (size_t i = 0; i < count; i++) {
        const struct history_lifetime *lifetime = requests->items[first + i];
        buffers[i] = (struct placement_buffer){
            .lower = lifetime->lower, .upper = lifetime->upper, .size = memory_profile_block_bytes(lifetime)};
        if (repeats && lifetime->upper > next_end) {
            buffers[i].size = 0;
        } else if (repeats && lifetime->upper > end) {
            buffers[i].lower = begin;
            buffers[i].upper = end;
        }
    }
}

static int make_plan(const struct history *history, const struct requests *requests, struct varve_alloc_plan *plan,
                     bool *is_whole, struct varve_message *message)
{
    size_t period = find_period(requests);
    size_t begin = period > 0 ? find_begin(requests, period) : 0;
    size_t count = period > 0 ? period : requests->count;
    size_t first = period > 0 && begin + 3 * period <= requests->count ? begin + period : begin;
    struct placement_buffer *buffers = memory_resize(NULL, (count + 1) * sizeof(*buffers));
    struct varve_alloc_plan_entry *entries = memory_resize(NULL, (count + 1) * sizeof(*entries));
    const struct placement_options options = {
        .alignment = BLOCK_UNIT, .seconds = PLACEMENT_SECONDS_OF_STEPS, .by_steps = true};
    make_buffers(requests, first, count, period > 0, buffers);
    struct placement_result result = {0};
    int error = placement_solve(buffers, count, &options, &result, message);
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct varve_alloc_plan_entry){
            .bytes = memory_profile_block_bytes(requests->items[first + i]),
            .offset = buffers[i].size > 0 ? buffers[i].offset : VARVE_ALLOC_PLAN_NOWHERE,
            .stream = history->streams[requests->items[first + i]->stream],
        };
    }
    free(buffers);
    *is_whole = *is_whole || (period == 0 && count > 0);
    *plan = (struct varve_alloc_plan){
        .entries = entries, .count = count, .height = result.height, .requests_before = begin};
    return error;
}

bool whatif_needs_profile(const char *policy)
{
    return policy != NULL && (strcmp(policy, "plan") == 0 || strncmp(policy, "plan:", 5) == 0);
}

int whatif_profile_make(const struct history *history, struct whatif_profile *profile, struct varve_message *message)
{
    *profile = (struct whatif_profile){
        .plans = memory_resize(NULL, (history->device_count + 1) * sizeof(struct varve_alloc_plan))};
    int error = VARVE_OK;
    for (size_t i = 0; i < history->device_count && error == VARVE_OK; i++) {
        struct history_lifetimes lifetimes;
        history_lifetimes_make(history, &history->devices[i], &lifetimes);
        struct requests requests;
        memory_profile_gather(&lifetimes, &requests);
        error = make_plan(history, &requests, &profile->plans[profile->count++], &profile->is_whole, message);
        free(requests.items);
        history_lifetimes_free(&lifetimes);
    }
    if (error != VARVE_OK) {
        whatif_profile_free(profile);
    }
    return error;
}

void whatif_profile_free(struct whatif_profile *profile)
{
    for (size_t i = 0; i < profile->count; i++) {
        free((void *)(uintptr_t)profile->plans[i].entries);
    }
    free(profile->plans);
    *profile = (struct whatif_profile){0};
}
