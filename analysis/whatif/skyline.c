/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The skyline of the exact search. Its time goes into infer_section: lists of items over a section are kept nearly
 * sorted by `low`, so that sorting one again takes little more than a walk over it.
 */
#include "analysis/whatif/skyline.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

struct skyline_change {
    enum { CHANGE_FLOOR, CHANGE_LOW, CHANGE_PLACED } kind;
    uint32_t index; /* section; item; item */
    int64_t before; /* floor; low; low */
};

static void *skyline_allocate(size_t count, size_t bytes)
{
    void *memory = memory_resize(NULL, (count + 1) * bytes);
    memset(memory, 0, (count + 1) * bytes);
    return memory;
}

static bool are_twins(const struct skyline_item *a, const struct skyline_item *b)
{
    return a->first == b->first && a->end == b->end && a->size == b->size && a->highest == b->highest;
}

static int compare_items(const void *a_untyped, const void *b_untyped)
{
    const struct skyline_item *a = a_untyped;
    const struct skyline_item *b = b_untyped;
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    if (a->size != b->size) {
        return a->size < b->size ? -1 : 1;
    }
    if (a->highest != b->highest) {
        return a->highest < b->highest ? -1 : 1;
    }
    return a->buffer < b->buffer ? -1 : 1;
}

static void forget_options(struct skyline *skyline, uint32_t first, uint32_t end)
{
    memset(&skyline->options[first], 0xff, (end - first) * sizeof(*skyline->options)); /* SKYLINE_UNKNOWN */
}

uint32_t skyline_options(struct skyline *skyline, uint32_t section)
{
    uint32_t options = 0;
    if (skyline->options[section] == SKYLINE_UNKNOWN) {
        for (uint32_t k = skyline->placed[section]; k < skyline->covered[section]; k++) {
            options += skyline_is_option(skyline, skyline->cover[section][k], section);
        }
        skyline->options[section] = options;
    }
    return skyline->options[section];
}

void skyline_make(struct skyline *skyline, struct skyline_item *items, size_t count, uint32_t sections, int64_t height)
{
    *skyline = (struct skyline){.items = items, .count = count, .sections = sections, .height = height};
    skyline->begin = skyline_allocate(sections, sizeof(*skyline->begin));
    skyline->cover = skyline_allocate(sections, sizeof(*skyline->cover));
    skyline->covered = skyline_allocate(sections, sizeof(*skyline->covered));
    skyline->placed = skyline_allocate(sections, sizeof(*skyline->placed));
    skyline->low = skyline_allocate(count, sizeof(*skyline->low));
    skyline->offset = skyline_allocate(count, sizeof(*skyline->offset));
    skyline->floor = skyline_allocate(sections, sizeof(*skyline->floor));
    skyline->left = skyline_allocate(sections, sizeof(*skyline->left));
    skyline->crossings = skyline_allocate(sections, sizeof(*skyline->crossings));
    skyline->options = skyline_allocate(sections, sizeof(*skyline->options));
    skyline->is_stale = skyline_allocate(sections, sizeof(*skyline->is_stale));
    qsort(items, count, sizeof(*items), compare_items);
    for (size_t i = 0; i < count; i++) {
        items[i].twin = i > 0 && are_twins(&items[i - 1], &items[i]) ? i - 1 : SIZE_MAX;
        skyline->begin[items[i].first + 1] = i + 1;
        for (uint32_t s = items[i].first; s < items[i].end; s++) {
            skyline->covered[s]++;
            skyline->left[s] += items[i].size;
            skyline->crossings[s] += s > items[i].first;
        }
    }
    skyline->stale_first = sections;
    forget_options(skyline, 0, sections);
    for (uint32_t s = 0; s < sections; s++) {
        if (skyline->begin[s + 1] < skyline->begin[s]) {
            skyline->begin[s + 1] = skyline->begin[s]; /* no item begins in section s */
        }
        skyline->cover[s] = skyline_allocate(skyline->covered[s], sizeof(**skyline->cover));
        skyline->covered[s] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t s = items[i].first; s < items[i].end; s++) {
            skyline->cover[s][skyline->covered[s]++] = (uint32_t)i;
        }
    }
}

void skyline_free(struct skyline *skyline)
{
    for (uint32_t s = 0; s < skyline->sections; s++) {
        free(skyline->cover[s]);
    }
    free(skyline->items);
    free(skyline->begin);
    free(skyline->cover);
    free(skyline->covered);
    free(skyline->placed);
    free(skyline->low);
    free(skyline->offset);
    free(skyline->floor);
    free(skyline->left);
    free(skyline->crossings);
    free(skyline->options);
    free(skyline->is_stale);
    free(skyline->trail);
}

static void skyline_set(struct skyline *skyline, int kind, uint32_t index, int64_t *value, int64_t after)
{
    skyline->trail = memory_grow(skyline->trail, &skyline->changes_capacity, skyline->changes, sizeof(*skyline->trail));
    skyline->trail[skyline->changes].kind = kind;
    skyline->trail[skyline->changes].index = index;
    skyline->trail[skyline->changes++].before = *value;
    *value = after;
}

void skyline_undo(struct skyline *skyline, size_t changes)
{
    while (skyline->changes > changes) {
        const struct skyline_change *change = &skyline->trail[--skyline->changes];
        if (change->kind == CHANGE_FLOOR) {
            skyline->floor[change->index] = change->before;
            forget_options(skyline, change->index, change->index + 1);
            continue;
        }
        const struct skyline_item *item = &skyline->items[change->index];

        skyline->low[change->index] = change->before;
        forget_options(skyline, item->first, item->end);
        for (uint32_t s = item->first; change->kind == CHANGE_PLACED && s < item->end; s++) {
            skyline->left[s] += item->size;
            skyline->crossings[s] += s > item->first;
            skyline->placed[s]--;
        }
    }
}

/* The items left over the section by their lows: by insertion, as little has moved since the last time. */
static void sort_by_low(struct skyline *skyline, uint32_t section)
{
    uint32_t *cover = &skyline->cover[section][skyline->placed[section]];
    uint32_t count = skyline->covered[section] - skyline->placed[section];
    const int64_t *low = skyline->low;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t item = cover[i];
        uint32_t at = i;
        for (; at > 0 && low[cover[at - 1]] > low[item]; at--) {
            cover[at] = cover[at - 1];
        }
        cover[at] = item;
    }
}

/* Items in the order of their lows, each on the one before or on its low, end as low as the section alone allows. */
static bool fits_section(const struct skyline *skyline, uint32_t section)
{
    int64_t end = skyline->floor[section];
    for (uint32_t i = skyline->placed[section]; i < skyline->covered[section]; i++) {
        uint32_t item = skyline->cover[section][i];
        end = (skyline->low[item] > end ? skyline->low[item] : end) + skyline->items[item].size;
    }
    return end <= skyline->height;
}

static void mark_stale(struct skyline *skyline, uint32_t first, uint32_t end)
{
    forget_options(skyline, first, end);
    memset(&skyline->is_stale[first], true, end - first);
    skyline->stale_first = first < skyline->stale_first ? first : skyline->stale_first;
    skyline->stale_end = end > skyline->stale_end ? end : skyline->stale_end;
}

/* The floor rises to the lowest item, items rise to the floor, and the sections of those become stale. */
static bool infer_section(struct skyline *skyline, uint32_t section)
{
    const uint32_t *cover = skyline->cover[section];
    uint32_t placed = skyline->placed[section];
    sort_by_low(skyline, section);
    if (!fits_section(skyline, section)) {
        return false;
    }
    if (skyline->low[cover[placed]] > skyline->floor[section]) {
        skyline_set(skyline, CHANGE_FLOOR, section, &skyline->floor[section], skyline->low[cover[placed]]);
        forget_options(skyline, section, section + 1);
    }
    for (uint32_t i = placed; i < skyline->covered[section]; i++) {
        const struct skyline_item *item = &skyline->items[cover[i]];
        if (skyline->low[cover[i]] >= skyline->floor[section]) {
            break; /* sorted */
        }
        if (skyline->floor[section] > item->highest) {
            return false;
        }
        skyline_set(skyline, CHANGE_LOW, cover[i], &skyline->low[cover[i]], skyline->floor[section]);
        mark_stale(skyline, item->first, item->end);
    }
    return true;
}

/* Sweeps over the stale sections until there are none. */
static bool skyline_infer(struct skyline *skyline)
{
    bool fits = true;
    while (fits && skyline->stale_first < skyline->stale_end) {
        uint32_t s = skyline->stale_first;
        skyline->stale_first = skyline->sections;
        for (; fits && s < skyline->stale_end; s++) {
            if (skyline->is_stale[s]) {
                fits = skyline->left[s] == 0 || infer_section(skyline, s);
                skyline->is_stale[s] = false;
            }
        }
    }
    if (!fits) {
        memset(skyline->is_stale, false, skyline->sections);
    }
    skyline->stale_first = skyline->sections;
    skyline->stale_end = 0;
    return fits;
}

/* Moves the item behind the placed ones. */
static void cover_placed(struct skyline *skyline, uint32_t section, uint32_t item)
{
    uint32_t *cover = skyline->cover[section];
    uint32_t to = skyline->placed[section]++;
    uint32_t at = to;
    while (cover[at] != item) {
        at++;
    }
    for (; at > to; at--) {
        cover[at] = cover[at - 1];
    }
    cover[to] = item;
}

bool skyline_place(struct skyline *skyline, size_t index)
{
    const struct skyline_item *item = &skyline->items[index];
    int64_t offset = skyline->low[index];
    skyline->offset[index] = offset;
    skyline_set(skyline, CHANGE_PLACED, (uint32_t)index, &skyline->low[index], SKYLINE_PLACED);
    for (uint32_t s = item->first; s < item->end; s++) {
        skyline->left[s] -= item->size;
        skyline->crossings[s] -= s > item->first;
        cover_placed(skyline, s, (uint32_t)index);
        skyline_set(skyline, CHANGE_FLOOR, s, &skyline->floor[s], offset + item->size);
    }
    mark_stale(skyline, item->first, item->end);
    return skyline_infer(skyline);
}

bool skyline_raise(struct skyline *skyline, uint32_t section, int64_t floor)
{
    skyline_set(skyline, CHANGE_FLOOR, section, &skyline->floor[section], floor);
    mark_stale(skyline, section, section + 1);
    return skyline_infer(skyline);
}

/* ---- the check ---- */

static bool is_placed(const struct skyline *skyline, size_t item)
{
    return skyline->low[item] == SKYLINE_PLACED;
}

static int check_section(const struct skyline *skyline, uint32_t s, struct varve_message *message)
{
    int64_t left = 0;
    int64_t lowest = INT64_MAX;
    int64_t top = 0; /* of what is placed */
    uint32_t options = 0;
    for (uint32_t k = 0; k < skyline->covered[s]; k++) {
        uint32_t i = skyline->cover[s][k];
        const struct skyline_item *item = &skyline->items[i];
        if (s < item->first || s >= item->end || is_placed(skyline, i) != (k < skyline->placed[s]) ||
            (is_placed(skyline, i) && skyline->offset[i] < top)) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "section %u, item %u out of order", s, i);
        }
        if (is_placed(skyline, i)) {
            top = skyline->offset[i] + item->size;
            continue;
        }
        left += item->size;
        lowest = skyline->low[i] < lowest ? skyline->low[i] : lowest;
        options += skyline_is_option(skyline, i, s);
    }
    if (left != skyline->left[s] || top > skyline->floor[s] || (left > 0 && lowest != skyline->floor[s]) ||
        (left > 0 && skyline->floor[s] + left > skyline->height) || skyline->is_stale[s] ||
        (skyline->options[s] != SKYLINE_UNKNOWN && skyline->options[s] != options)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "section %u is not what its items make it", s);
    }
    return VARVE_OK;
}

int skyline_check(const struct skyline *skyline, struct varve_message *message)
{
    for (uint32_t s = 0; s < skyline->sections; s++) {
        uint32_t covered = 0;
        uint32_t crossings = 0;
        for (size_t i = 0; i < skyline->count; i++) {
            const struct skyline_item *item = &skyline->items[i];
            bool covers = item->first <= s && s < item->end;
            covered += covers;
            crossings += covers && item->first < s && !is_placed(skyline, i);
            if (covers && !is_placed(skyline, i) && skyline->low[i] < skyline->floor[s]) {
                return varve_message_set(message, VARVE_ERROR_INVALID, "item %zu is below section %u", i, s);
            }
        }
        if (covered != skyline->covered[s] || crossings != skyline->crossings[s]) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "section %u has lost items", s);
        }
        int error = check_section(skyline, s, message);

        if (error != VARVE_OK) {
            return error;
        }
    }
    return VARVE_OK;
}
