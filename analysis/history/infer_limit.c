/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was reserved never exceeded the limit, and what was refused would have: the recorded peak, taken for the limit,
 * grants and refuses the same. Not so with expandable segments, which map less or more than the limit is tested with,
 * nor with garbage collection, which begins at a fraction of it. There the first decision that differs says on which
 * side the limit lies, since the larger it is, the less is refused and given back; halving finds it. Where a refusal
 * says what the device had free, that and what was reserved is the limit if the history comes out under it.
 */
#include "analysis/history/infer_device.h"

/* Of a request's segment, beyond the request itself. */
#define SEGMENT_SLACK (UINT64_C(32) << 20)
/* Of all plays that look for the largest limit: it is worth a second or two. */
#define EVENTS_MAX (UINT64_C(1) << 25)

/* What the limit cannot have been less than, by an event after which `reserved` is reserved, and before it `before`. */
static uint64_t granted_by(const struct history_device *device, size_t index, uint64_t before, uint64_t reserved)
{
    unsigned action = device->events[index].action;
    bool goes_on = index > 0 && device->events[index - 1].action == HISTORY_SEGMENT_MAP;
    return action == HISTORY_SEGMENT_ALLOC ? reserved : action == HISTORY_SEGMENT_MAP && !goes_on ? before : 0;
}

static uint64_t reserved_after(uint64_t reserved, const struct history_event *event)
{
    if (event->action == HISTORY_SEGMENT_ALLOC || event->action == HISTORY_SEGMENT_MAP) {
        return reserved + event->size;
    }
    if (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP) {
        return event->size < reserved ? reserved - event->size : 0;
    }
    return reserved;
}

int replay_limit_bounds(const struct history_device *device, bool says_free, double threshold,
                        struct replay_limit_bounds *out)
{
    struct varve_message ignored = {""};
    uint64_t reserved = 0;
    uint64_t capacity = UINT64_MAX;
    uint64_t largest = 0;
    *out = (struct replay_limit_bounds){.is_exact = threshold == 0};
    if (replay_reserved_at_start(device, &reserved, &ignored) == VARVE_ERROR_NO_MEMORY) {
        return VARVE_ERROR_NO_MEMORY;
    }
    out->peak = reserved;
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        uint64_t before = reserved;
        reserved = reserved_after(reserved, event);
        out->peak = reserved > out->peak ? reserved : out->peak;
        uint64_t granted = granted_by(device, i, before, reserved);
        out->granted = granted > out->granted ? granted : out->granted;
        out->is_exact &= event->action != HISTORY_SEGMENT_MAP;
        out->may_be_limited |= reserved < before || event->action == HISTORY_OOM;
        largest = event->action != HISTORY_FREE_COMPLETED && event->size > largest ? event->size : largest;
        if (event->action == HISTORY_OOM && says_free && event->addr < INT64_MAX - reserved) {
            capacity = reserved + event->addr < capacity ? reserved + event->addr : capacity;
        }
    }
    out->capacity = capacity == UINT64_MAX || capacity < out->peak ? 0 : capacity;
    out->unrefused = out->peak + largest + SEGMENT_SLACK;
    if (threshold > 0 && (double)out->peak / threshold > (double)out->unrefused) {
        out->unrefused = (uint64_t)((double)out->peak / threshold) + 1;
    }
    return VARVE_OK;
}

/* One search: the one under which most events came out may be what is left of it. */
struct find {
    const struct replay_limit_search *search;
    struct replay_limit *out;
    size_t reached;
    uint64_t refusals;              /* under out->used */
    struct replay_limit_trial last; /* what came of the last play */
};

/* A play that came out without a retry or a failure is explained as well by no limit at all. */
static int infer_limit_play(struct find *find, uint64_t limit, bool *explains_out)
{
    const struct replay_limit_search *search = find->search;
    int error = search->play(search->context, limit, &find->last);
    *explains_out =
        error == VARVE_OK && find->last.comes_out && (find->last.refusals > 0 || !search->unlimited.comes_out);
    if (error == VARVE_OK && find->last.reached > find->reached) {
        find->reached = find->last.reached;
        find->out->nearest = limit;
    }
    return error;
}

static int try_one(struct find *find, uint64_t limit)
{
    bool explains;
    int error = infer_limit_play(find, limit, &explains);
    if (explains) {
        find->out->used = limit;
        find->refusals = find->last.refusals;
    }
    return error;
}

/* Any limit that explains the history, into `used`. */
static int find_one(struct find *find)
{
    const struct replay_limit_bounds *bounds = &find->search->bounds;
    int error = VARVE_OK;
    if (bounds->capacity > bounds->peak) {
        error = try_one(find, bounds->capacity);
        find->out->is_capacity = find->out->used != 0;
    }
    uint64_t low = bounds->granted;
    uint64_t high = bounds->unrefused;
    uint64_t limit = low;
    while (error == VARVE_OK && find->out->used == 0 && low <= high) {
        error = try_one(find, limit);
        if (find->search->unlimited.comes_out || find->last.comes_out || bounds->is_exact) {
            return error;
        }
        if (find->last.is_too_small) {
            low = limit + 1;
        } else {
            high = limit - 1;
        }
        limit = low + (high - low) / 2;
    }
    return error;
}

/* Down from there to the smallest. */
static int find_least(struct find *find)
{
    struct replay_limit *out = find->out;
    uint64_t low = find->search->bounds.granted;
    uint64_t limit = low;
    int error = VARVE_OK;
    out->least = out->used;
    while (error == VARVE_OK && low < out->least) {
        bool explains;
        error = infer_limit_play(find, limit, &explains);
        if (explains) {
            out->least = limit;
        } else {
            low = limit + 1;
        }
        if (explains && !out->is_capacity) {
            out->used = limit;
            find->refusals = find->last.refusals;
        }
        limit = low + (out->least - low) / 2;
    }
    return error;
}

static int find_most(struct find *find)
{
    struct replay_limit *out = find->out;
    uint64_t high = find->search->bounds.unrefused;
    uint64_t played = 0;
    int error = VARVE_OK;
    out->most = out->used;
    while (error == VARVE_OK && out->most < high && played < EVENTS_MAX) {
        uint64_t limit = high - (high - out->most) / 2;
        bool explains;
        error = infer_limit_play(find, limit, &explains);
        if (explains && find->last.refusals == find->refusals) {
            out->most = limit;
        } else {
            high = limit - 1;
        }
        played += find->last.reached;
    }
    return error;
}

int replay_limit_find(const struct replay_limit_search *search, struct replay_limit *out)
{
    struct find find = {.search = search, .out = out, .reached = search->unlimited.reached};
    *out = (struct replay_limit){.used = 0};
    if (!search->bounds.may_be_limited || search->bounds.granted == 0) {
        return VARVE_OK;
    }
    int error = find_one(&find);
    if (error != VARVE_OK || out->used == 0) {
        return error;
    }
    error = find_least(&find);
    return error == VARVE_OK && search->finds_most ? find_most(&find) : error;
}
