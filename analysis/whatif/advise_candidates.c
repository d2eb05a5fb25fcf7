/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_split_size_mb is the one option whose useful values depend on the requests: it distinguishes those below it,
 * which split blocks, from the others, which take whole segments. Values between two sizes that occur are all the same,
 * so values lie just above sizes that do occur: those below which given shares of the requested bytes lie.
 */
#include "analysis/whatif/advise_candidates.h"

#include "alloc/alloc.h"
#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define SHARES 5 /* of the bytes of large requests: max_split_size_mb just above each */

static const char *const names[CANDIDATE_OPTIONS] = {
    [CANDIDATE_EXPANDABLE] = "expandable_segments",       [CANDIDATE_MAX_SPLIT] = "max_split_size_mb",
    [CANDIDATE_ROUNDUP] = "roundup_power2_divisions",     [CANDIDATE_GC] = "garbage_collection_threshold",
    [CANDIDATE_FRACTION] = "per_process_memory_fraction",
};

/* ---- the trace's own ---- */

/* The length of the item NAME:VALUE that `text` begins with; commas within brackets are part of it. */
static size_t item_length(const char *text)
{
    size_t length = 0;
    int depth = 0;
    for (; text[length] != '\0' && (depth > 0 || text[length] != ','); length++) {
        depth += text[length] == '[' ? 1 : text[length] == ']' ? -1 : 0;
    }
    return length;
}

static bool advise_candidates_add_item(struct candidate *out, const char *item)
{
    size_t used = strlen(out->rest);
    for (size_t i = 0; i < CANDIDATE_OPTIONS; i++) {
        size_t name = strlen(names[i]);
        if (strncmp(item, names[i], name) == 0 && item[name] == ':') {
            return (size_t)snprintf(out->values[i].text, sizeof(out->values[i].text), "%s", item + name + 1) <
                   sizeof(out->values[i].text);
        }
    }
    return (size_t)snprintf(out->rest + used, sizeof(out->rest) - used, "%s%s", used > 0 ? "," : "", item) <
           sizeof(out->rest) - used;
}

/* White space means nothing in PyTorch's syntax. */
static void without_space(const char *from, char *to)
{
    for (; *from != '\0'; from++) {
        if (strchr(" \t\n", *from) == NULL) {
            *to++ = *from;
        }
    }
    *to = '\0';
}

static bool parse_items(const char *conf, struct candidate *out)
{
    struct varve_alloc_config config;
    char text[sizeof(((struct history_settings *)NULL)->text)] = "";
    bool is_whole = strlen(conf) < sizeof(text) && varve_alloc_config_parse(conf, &config, NULL) == VARVE_OK;
    char *at = text;
    if (is_whole) {
        without_space(conf, text);
    }
    while (is_whole && *at != '\0') {
        size_t length = item_length(at);
        bool is_last = at[length] == '\0';
        at[length] = '\0';
        is_whole = length == 0 || advise_candidates_add_item(out, at);
        at += length + (is_last ? 0 : 1);
    }
    return is_whole;
}

/* What the figures of a snapshot say, whose string is in the words of another version. */
static void advise_candidates_add_figures(const struct history_settings *settings, struct candidate *out)
{
    bool is_uniform = true;
    for (size_t i = 1; i < sizeof(settings->divisions) / sizeof(settings->divisions[0]); i++) {
        is_uniform = is_uniform && settings->divisions[i] == settings->divisions[0];
    }
    if (settings->expandable_segments) {
        strcpy(out->values[CANDIDATE_EXPANDABLE].text, "True");
    }
    if (settings->max_split_size >= 0) {
        snprintf(out->values[CANDIDATE_MAX_SPLIT].text, sizeof(out->values[0].text), "%" PRIu64,
                 (uint64_t)settings->max_split_size / MIB);
    }
    if (is_uniform && settings->divisions[0] != 0) {
        snprintf(out->values[CANDIDATE_ROUNDUP].text, sizeof(out->values[0].text), "%" PRIu64, settings->divisions[0]);
    }
    if (settings->garbage_collection_threshold > 0) {
        snprintf(out->values[CANDIDATE_GC].text, sizeof(out->values[0].text), "%g",
                 settings->garbage_collection_threshold);
    }
}

bool candidate_of_history(const struct history *history, struct candidate *out)
{
    struct candidate_value *expandable = &out->values[CANDIDATE_EXPANDABLE];
    *out = (struct candidate){.rest = ""};
    if (!history->settings.is_known) {
        return true;
    }
    if (history->settings.text[0] != '\0' && parse_items(history->settings.text, out)) {
        if (strcmp(expandable->text, "False") == 0) {
            expandable->text[0] = '\0'; /* the default */
        }
        return true;
    }
    *out = (struct candidate){.rest = ""};
    advise_candidates_add_figures(&history->settings, out);
    return history->settings.text[0] == '\0';
}

/* ---- values ---- */

static void advise_candidates_add_value(struct candidate_range *range, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void advise_candidates_add_value(struct candidate_range *range, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct candidate_value value;
    vsnprintf(value.text, sizeof(value.text), format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < range->count; i++) {
        if (strcmp(range->values[i].text, value.text) == 0) {
            return;
        }
    }
    if (range->count < CANDIDATE_VALUES_MAX) {
        range->values[range->count++] = value;
    }
}

struct size_bytes {
    uint64_t size, bytes; /* of a request in whole MiB; of all such requests */
};

static int compare_sizes(const void *left_untyped, const void *right_untyped)
{
    const struct size_bytes *left = left_untyped;
    const struct size_bytes *right = right_untyped;
    return left->size < right->size ? -1 : left->size > right->size;
}

/* Bytes requested of each size of `least` and more, by size; their number. Owner of `sizes_out`: the
 * caller, by free. */
static size_t count_sizes(const struct history *history, uint64_t least, struct size_bytes **sizes_out)
{
    struct size_bytes *sizes = NULL;
    struct map numbers = {0};
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        const struct history_device *device = &history->devices[i];
        for (size_t j = 0; j < device->event_count; j++) {
            uint64_t size = device->events[j].size / MIB;
            if (device->events[j].action != HISTORY_ALLOC || device->events[j].size < least) {
                continue;
            }
            uint64_t number = map_find(&numbers, size);
            if (number == MAP_NONE || sizes == NULL) {
                map_put(&numbers, size, count);
                *MEMORY_ADD(sizes, count, capacity) = (struct size_bytes){size, device->events[j].size};
            } else {
                sizes[number].bytes += device->events[j].size;
            }
        }
    }
    map_free(&numbers);
    if (count > 0) {
        qsort(sizes, count, sizeof(*sizes), compare_sizes);
    }
    *sizes_out = sizes;
    return count;
}

static struct candidate_range max_split_range(const struct history *history)
{
    struct candidate_range range = {.count = 0};
    struct varve_alloc_config plain;
    varve_alloc_config_init(&plain);
    struct size_bytes *sizes;
    size_t count = count_sizes(history, plain.large_segment_size, &sizes);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += sizes[i].bytes;
    }
    if (count > 0) {
        advise_candidates_add_value(&range, "%" PRIu64,
                                    plain.large_segment_size / MIB); /* the least that PyTorch takes */
    }
    uint64_t below = 0, share = 1;
    for (size_t i = 0; i + 1 < count; i++) { /* above the largest it would change nothing */
        below += sizes[i].bytes;
        if (below >= total / (SHARES + 1) * share) {
            advise_candidates_add_value(&range, "%" PRIu64, sizes[i].size + 1);
            while (share <= SHARES && below >= total / (SHARES + 1) * share) {
                share++;
            }
        }
    }
    free(sizes);
    return range;
}

struct candidate_range candidate_range(const struct history *history, enum candidate_option option, bool has_limit)
{
    static const char *const divisions[] = {"2", "4", "8", "16", "32"};
    static const char *const thresholds[] = {"0.6", "0.7", "0.8", "0.9"};
    struct candidate_range range = {.count = 0};
    switch (option) {
    case CANDIDATE_EXPANDABLE:
        advise_candidates_add_value(&range, "True");
        break;
    case CANDIDATE_MAX_SPLIT:
        return max_split_range(history);
    case CANDIDATE_ROUNDUP:
        for (size_t i = 0; i < sizeof(divisions) / sizeof(divisions[0]); i++) {
            advise_candidates_add_value(&range, "%s", divisions[i]);
        }
        break;
    case CANDIDATE_GC:
        for (size_t i = 0; has_limit && i < sizeof(thresholds) / sizeof(thresholds[0]); i++) {
            advise_candidates_add_value(&range, "%s", thresholds[i]);
        }
        break;
    default:
        break;
    }
    return range;
}

/* ---- texts ---- */

void candidate_text(const struct candidate *candidate, char text[CANDIDATE_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(text, CANDIDATE_TEXT_BYTES, "%s", candidate->rest);
    for (size_t i = 0; i < CANDIDATE_OPTIONS; i++) {
        if (candidate->values[i].text[0] != '\0' && used < CANDIDATE_TEXT_BYTES) {
            used += (size_t)snprintf(text + used, CANDIDATE_TEXT_BYTES - used, "%s%s:%s", used > 0 ? "," : "", names[i],
                                     candidate->values[i].text);
        }
    }
}

unsigned candidate_size(const struct candidate *candidate)
{
    unsigned size = 0;
    for (size_t i = 0; i < CANDIDATE_OPTIONS; i++) {
        size += candidate->values[i].text[0] != '\0';
    }
    return size;
}
