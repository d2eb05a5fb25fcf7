/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is alive, and what of it looks like a leak. Each storage is accused of one thing at most, of the
 * surest that holds.
 */
#include "storage/core/storage_object.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROWTH_USUAL 8

/* ---- what is alive ---- */

void varve_tracker_enable(bool is_enabled)
{
    __atomic_store_n(&object_tracking, is_enabled ? 1U : 0U, __ATOMIC_RELAXED);
}

uint64_t varve_tracker_mark(void)
{
    return object_last_id();
}

static uint64_t owned_bytes(const struct varve_storage *storage)
{
    return storage->base != NULL ? varve_storage_bytes(storage) : storage->bytes;
}

static struct varve_tracked storage_tracker_describe(const struct living_entry *entry, uint64_t now_ns)
{
    struct varve_storage *storage = entry->storage;
    return (struct varve_tracked){
        .storage = storage,
        .id = storage->id,
        .base_id = storage->base != NULL ? storage->base->id : 0,
        .bytes = owned_bytes(storage),
        .age_ns = storage->created_ns != 0 && now_ns > storage->created_ns ? now_ns - storage->created_ns : 0,
        .caller = __atomic_load_n(&storage->caller, __ATOMIC_RELAXED),
        .callsite = __atomic_load_n(&storage->callsite, __ATOMIC_RELAXED),
        .external = living_external(entry),
        .is_touched = __atomic_load_n(&storage->is_touched, __ATOMIC_RELAXED),
    };
}

int varve_tracker_each(bool (*take)(void *context, const struct varve_tracked *tracked), void *context,
                       struct varve_message *message)
{
    struct living living;
    VARVE_TRY(living_open(&living, message));
    for (size_t i = 0; i < living.count; i++) {
        struct varve_tracked tracked = storage_tracker_describe(&living.entries[i], varve_clock_monotonic_ns());
        if (!take(context, &tracked)) {
            break;
        }
    }
    living_close(&living);
    return VARVE_OK;
}

void varve_tracker_get_totals(struct varve_tracker_totals *totals_out)
{
    struct varve_tracker_totals totals = {0};
    for (const struct varve_storage *each = object_newest(); each != NULL; each = each->next_made) {
        struct varve_storage *storage = varve_storage_weak_lock((struct varve_storage_weak *)(uintptr_t)each);
        if (storage == NULL) {
            continue;
        }
        totals.views += storage->base != NULL;
        totals.storages += storage->base == NULL;
        if (storage->base == NULL && storage->is_foreign) {
            totals.foreign_bytes += storage->bytes;
        } else if (storage->base == NULL) {
            totals.bytes += storage->bytes;
        }
        varve_storage_release(storage, NULL);
    }
    *totals_out = totals;
}

/* ---- leaks ---- */

static const char *const kind_names[] = {
    [VARVE_LEAK_CYCLE] = "cycle",   [VARVE_LEAK_HELD] = "held by views",     [VARVE_LEAK_UNTOUCHED] = "untouched",
    [VARVE_LEAK_GROWTH] = "growth", [VARVE_LEAK_ALIVE] = "alive at the end",
};

const char *varve_leak_kind_name(enum varve_leak_kind kind)
{
    return (unsigned)kind < sizeof(kind_names) / sizeof(*kind_names) ? kind_names[kind] : "?";
}

/* The search for leaks among what is alive. */
struct search {
    struct living living;
    struct varve_leak_options options;
    uint64_t now_ns;
    uint64_t *shown;  /* bytes that the views of an entry show, by entry */
    uint8_t *accused; /* of what, by entry: 0, or an enum varve_leak_kind and 1 */
    struct varve_leak *leaks;
    size_t count;
};

static bool is_old_enough(const struct search *search, const struct varve_tracked *tracked)
{
    return tracked->id > search->options.after && tracked->age_ns >= search->options.min_age_ns;
}

static struct varve_leak *accuse(struct search *search, size_t entry, const struct varve_tracked *tracked,
                                 enum varve_leak_kind kind, double score)
{
    struct varve_leak *leak = &search->leaks[search->count++];
    *leak = (struct varve_leak){
        .kind = kind,
        .id = tracked->id,
        .bytes = tracked->bytes,
        .storages = 1,
        .age_ns = tracked->age_ns,
        .caller = tracked->caller,
        .callsite = tracked->callsite,
        .score = score,
    };
    search->accused[entry] = (uint8_t)(kind + 1);
    return leak;
}

static const char *storage_tracker_name_of(const struct varve_storage *storage)
{
    return storage->name[0] != '\0' ? storage->name : "without a name";
}

/* Nobody reaches it. Views are not accused beside their bases. */
static void find_cycles(struct search *search)
{
    for (size_t i = 0; i < search->living.count; i++) {
        const struct living_entry *entry = &search->living.entries[i];
        struct varve_tracked tracked = storage_tracker_describe(entry, search->now_ns);
        if (entry->is_reached || entry->storage->base != NULL || !is_old_enough(search, &tracked)) {
            continue;
        }
        struct varve_leak *leak = accuse(search, i, &tracked, VARVE_LEAK_CYCLE, 1);
        snprintf(leak->evidence, sizeof(leak->evidence),
                 "storage %" PRIu64
                 " (%s) is kept alive only by storages that the program has no reference to (%" PRIu32 " references)",
                 tracked.id, storage_tracker_name_of(entry->storage), entry->internal);
    }
}

static void sum_shown(struct search *search)
{
    for (size_t i = 0; i < search->living.count; i++) {
        const struct varve_storage *storage = search->living.entries[i].storage;
        const struct living_entry *base = storage->base != NULL ? living_find(&search->living, storage->base) : NULL;
        if (base != NULL) {
            search->shown[base - search->living.entries] += varve_storage_bytes(storage);
        }
    }
}

static void find_held(struct search *search)
{
    sum_shown(search);
    for (size_t i = 0; i < search->living.count; i++) {
        const struct living_entry *entry = &search->living.entries[i];
        struct varve_tracked tracked = storage_tracker_describe(entry, search->now_ns);
        uint32_t views = __atomic_load_n(&entry->storage->views, __ATOMIC_RELAXED);
        if (search->accused[i] || entry->storage->base != NULL || views == 0 || entry->references != views ||
            search->shown[i] * 2 >= tracked.bytes || !is_old_enough(search, &tracked)) {
            continue;
        }
        struct varve_leak *leak =
            accuse(search, i, &tracked, VARVE_LEAK_HELD, 1 - (double)search->shown[i] / (double)tracked.bytes);
        snprintf(leak->evidence, sizeof(leak->evidence),
                 "storage %" PRIu64 " (%s) of %" PRIu64 " bytes is held by %" PRIu32
                 " views alone, which show %" PRIu64,
                 tracked.id, storage_tracker_name_of(entry->storage), tracked.bytes, views, search->shown[i]);
    }
}

/* ---- many of one caller ---- */

struct origin {
    const void *caller;
    uint32_t callsite;
    size_t entry;
};

static int compare_origins(const void *left, const void *right)
{
    const struct origin *a = left, *b = right;
    if (a->caller != b->caller) {
        return (uintptr_t)a->caller < (uintptr_t)b->caller ? -1 : 1;
    }
    if (a->callsite != b->callsite) {
        return a->callsite < b->callsite ? -1 : 1;
    }
    return (a->entry > b->entry) - (a->entry < b->entry);
}

static void accuse_group(struct search *search, const struct origin *origins, size_t count)
{
    const struct living_entry *entries = search->living.entries;
    struct varve_tracked newest = storage_tracker_describe(&entries[origins[count - 1].entry], search->now_ns);
    struct varve_leak *leak =
        accuse(search, origins[count - 1].entry, &newest, VARVE_LEAK_GROWTH, 1 - 1 / (double)count);
    for (size_t i = 0; i + 1 < count; i++) {
        struct varve_tracked tracked = storage_tracker_describe(&entries[origins[i].entry], search->now_ns);
        leak->bytes += tracked.bytes;
        leak->age_ns = tracked.age_ns > leak->age_ns ? tracked.age_ns : leak->age_ns;
        search->accused[origins[i].entry] = VARVE_LEAK_GROWTH + 1;
    }
    leak->storages = count;
    snprintf(leak->evidence, sizeof(leak->evidence),
             "%zu storages of one caller (the last: %" PRIu64 ", %s) were created since the mark and are alive", count,
             newest.id, storage_tracker_name_of(entries[origins[count - 1].entry].storage));
}

static int find_growth(struct search *search, struct varve_message *message)
{
    uint64_t least = search->options.min_growth != 0 ? search->options.min_growth : GROWTH_USUAL;
    struct origin *origins = malloc((search->living.count + 1) * sizeof(*origins));
    if (origins == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to search for leaks");
        return VARVE_ERROR_NO_MEMORY;
    }
    size_t count = 0;
    for (size_t i = 0; i < search->living.count; i++) {
        struct varve_tracked tracked = storage_tracker_describe(&search->living.entries[i], search->now_ns);
        if (!search->accused[i] && tracked.base_id == 0 && tracked.id > search->options.after &&
            (tracked.caller != NULL || tracked.callsite != 0)) {
            origins[count++] = (struct origin){tracked.caller, tracked.callsite, i};
        }
    }
    qsort(origins, count, sizeof(*origins), compare_origins);
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1;
             to < count && origins[to].caller == origins[from].caller && origins[to].callsite == origins[from].callsite;
             to++) {
        }
        if (to - from >= least) {
            accuse_group(search, origins + from, to - from);
        }
    }
    free(origins);
    return VARVE_OK;
}

/* ---- what is left ---- */

static void find_untouched(struct search *search)
{
    for (size_t i = 0; i < search->living.count; i++) {
        const struct living_entry *entry = &search->living.entries[i];
        struct varve_tracked tracked = storage_tracker_describe(entry, search->now_ns);
        if (search->accused[i] || tracked.base_id != 0 || tracked.is_touched || tracked.bytes == 0 ||
            !is_old_enough(search, &tracked)) {
            continue;
        }
        struct varve_leak *leak = accuse(search, i, &tracked, VARVE_LEAK_UNTOUCHED, 0.5);
        snprintf(leak->evidence, sizeof(leak->evidence),
                 "nobody has looked at storage %" PRIu64 " (%s) since it was created, %.3f s ago", tracked.id,
                 storage_tracker_name_of(entry->storage), (double)tracked.age_ns * 1e-9);
    }
}

static void find_alive(struct search *search)
{
    for (size_t i = 0; i < search->living.count; i++) {
        const struct living_entry *entry = &search->living.entries[i];
        struct varve_tracked tracked = storage_tracker_describe(entry, search->now_ns);
        if (search->accused[i] || tracked.base_id != 0 || tracked.id <= search->options.after) {
            continue;
        }
        struct varve_leak *leak = accuse(search, i, &tracked, VARVE_LEAK_ALIVE, 0.9);
        snprintf(leak->evidence, sizeof(leak->evidence),
                 "storage %" PRIu64 " (%s) was not released: the program has %" PRIu32
                 " references to it, views %" PRIu32,
                 tracked.id, storage_tracker_name_of(entry->storage), tracked.external, entry->internal);
    }
}

static int compare_leaks(const void *left, const void *right)
{
    const struct varve_leak *a = left, *b = right;
    double one = (double)a->bytes * a->score, two = (double)b->bytes * b->score;
    return one != two ? (one < two) - (one > two) : (a->id > b->id) - (a->id < b->id);
}

static int search_all(struct search *search, struct varve_message *message)
{
    size_t count = search->living.count + 1;
    search->shown = calloc(count, sizeof(*search->shown));
    search->accused = calloc(count, sizeof(*search->accused));
    search->leaks = calloc(count, sizeof(*search->leaks));
    int error = VARVE_ERROR_NO_MEMORY;
    if (search->shown != NULL && search->accused != NULL && search->leaks != NULL) {
        find_cycles(search);
        find_held(search);
        error = find_growth(search, message);
    } else {
        varve_message_set(message, error, "no memory to search for leaks");
    }
    if (error == VARVE_OK && search->options.is_end) {
        find_alive(search);
    } else if (error == VARVE_OK) {
        find_untouched(search);
    }
    return error;
}

/* Growth, and to be alive at the end, are seen in the trace itself, but not whether anybody has looked
 * at the elements. */
static enum varve_cause storage_tracker_cause_of(unsigned accused, const struct varve_storage *storage)
{
    switch ((enum varve_leak_kind)(accused - 1)) {
    case VARVE_LEAK_CYCLE:
        return VARVE_CAUSE_LEAK_CYCLE;
    case VARVE_LEAK_HELD:
        return VARVE_CAUSE_LEAK_HELD;
    default:
        return __atomic_load_n(&storage->is_touched, __ATOMIC_RELAXED) ? VARVE_CAUSE_NONE : VARVE_CAUSE_LEAK_UNTOUCHED;
    }
}

int varve_tracker_check_leaks(const struct varve_leak_options *options, struct varve_leak **leaks_out,
                              size_t *count_out, struct varve_message *message)
{
    struct search search = {.now_ns = varve_clock_monotonic_ns()};
    VARVE_TRY(living_open(&search.living, message));
    if (options != NULL) {
        search.options = *options;
    }
    int error = search_all(&search, message);
    if (error == VARVE_OK) {
        qsort(search.leaks, search.count, sizeof(*search.leaks), compare_leaks);
        for (size_t i = 0; i < search.living.count; i++) {
            if (search.accused[i]) {
                struct varve_storage *storage = search.living.entries[i].storage;
                emit_leak(storage, storage_tracker_cause_of(search.accused[i], storage), search.now_ns);
            }
        }
        *leaks_out = search.leaks;
        *count_out = search.count;
    } else {
        free(search.leaks);
    }
    free(search.shown);
    free(search.accused);
    living_close(&search.living);
    return error;
}
