/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Leaks that were planted, among storages that only look like leaks, in any memory (pool.h): the tracker finds all of
 * the former, of their kind, and accuses none of the latter.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_TRACKER_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_TRACKER_RULES_H

#include <cmocka.h>

#include "support/storage/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACKER_KEPT 64

static struct varve_message tracker_message;
static const struct pool *tracker_pool; /* of the case that runs */

/* What the program refers to until the test ends. */
static struct varve_storage *tracker_kept[TRACKER_KEPT];
static size_t tracker_kept_count;

static inline int tracker_on(void **state)
{
    int error = pool_setup(state);
    tracker_pool = *state;
    varve_tracker_enable(true);
    return error;
}

static inline int tracker_off(void **state)
{
    varve_tracker_enable(false);
    return pool_teardown(state);
}

static inline struct varve_storage *tracker_make(const char *name, int64_t bytes)
{
    const struct varve_storage_options options = {.memory = tracker_pool->memory, .name = name};
    struct varve_storage *storage;
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, &bytes, &storage, &tracker_message), VARVE_OK);
    return storage;
}

static inline struct varve_storage *tracker_make_touched(const char *name, int64_t bytes)
{
    struct varve_storage *storage = tracker_make(name, bytes);
    assert_non_null(varve_storage_data(storage));
    return storage;
}

static inline struct varve_storage *tracker_keep(struct varve_storage *storage)
{
    assert_true(tracker_kept_count < TRACKER_KEPT);
    tracker_kept[tracker_kept_count++] = storage;
    return storage;
}

static inline struct varve_storage *tracker_slice_of(struct varve_storage *storage, int64_t from, int64_t to)
{
    struct varve_storage *view;
    assert_int_equal(varve_storage_slice(storage, 0, from, to, 1, &view, &tracker_message), VARVE_OK);
    return view;
}

/* A touched storage of 1,000 bytes of which the program keeps the view alone. */
static inline void tracker_keep_slice(const char *name, int64_t from, int64_t to)
{
    struct varve_storage *storage = tracker_make_touched(name, 1000);
    tracker_keep(tracker_slice_of(storage, from, to));
    assert_int_equal(varve_storage_release(storage, &tracker_message), VARVE_OK);
}

static inline void tracker_release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &tracker_message), VARVE_OK);
}

static inline void tracker_attach(struct varve_storage *storage, struct varve_storage *other)
{
    assert_int_equal(varve_storage_attach(storage, other, &tracker_message), VARVE_OK);
}

static inline void tracker_release_kept(void)
{
    while (tracker_kept_count > 0) {
        tracker_release(tracker_kept[--tracker_kept_count]);
    }
}

/* ---- what is found ---- */

struct tracker_found {
    struct varve_leak *leaks;
    size_t count;
};

static inline struct tracker_found tracker_check(struct varve_leak_options options)
{
    struct tracker_found found;
    assert_int_equal(varve_tracker_check_leaks(&options, &found.leaks, &found.count, &tracker_message), VARVE_OK);
    return found;
}

/* The leak whose evidence names it. */
static inline const struct varve_leak *tracker_leak_of(const struct tracker_found *found, const char *name)
{
    char wanted[80];
    const struct varve_leak *leak = NULL;
    snprintf(wanted, sizeof(wanted), "%s)", name);
    for (size_t i = 0; i < found->count; i++) {
        if (strstr(found->leaks[i].evidence, wanted) != NULL) {
            assert_null(leak); /* accused twice */
            leak = &found->leaks[i];
        }
    }
    return leak;
}

static inline void tracker_expect(const struct tracker_found *found, const char *name, enum varve_leak_kind kind,
                                  uint64_t bytes)
{
    const struct varve_leak *leak = tracker_leak_of(found, name);
    if (leak == NULL) {
        fail_msg("%s was not found", name);
    }
    assert_string_equal(varve_leak_kind_name(leak->kind), varve_leak_kind_name(kind));
    assert_int_equal(leak->bytes, bytes);
    assert_true(leak->score > 0 && leak->score <= 1);
}

/* ---- cycles ---- */

static inline void tracker_cycle(struct varve_storage *one, struct varve_storage *other)
{
    tracker_attach(one, other);
    tracker_attach(other, one);
    tracker_release(other);
}

static inline void rule_tracker_cycles(void **state)
{
    struct varve_storage *one = tracker_make_touched("one", 100), *two = tracker_make_touched("two", 200);
    struct varve_storage *through = tracker_make_touched("by its view", 400), *view = tracker_slice_of(through, 0, 400);
    struct varve_storage *reached = tracker_make_touched("reached", 500), *too = tracker_make_touched("too", 600);
    struct varve_storage *chain = tracker_make_touched("end of a chain", 700);
    (void)state;
    tracker_cycle(one, two);
    tracker_release(one);
    tracker_attach(through, view);
    tracker_release(view);
    tracker_release(through);
    tracker_cycle(reached, too); /* the program has a reference to the former */
    tracker_keep(reached);
    tracker_attach(too, chain);
    tracker_release(chain);
    struct tracker_found found = tracker_check((struct varve_leak_options){.min_growth = 100});
    assert_int_equal(found.count, 3);
    tracker_expect(&found, "one", VARVE_LEAK_CYCLE, 100);
    tracker_expect(&found, "two", VARVE_LEAK_CYCLE, 200);
    tracker_expect(&found, "by its view", VARVE_LEAK_CYCLE, 400);
    assert_int_equal(found.leaks[0].bytes, 400); /* the worst first */
    free(found.leaks);
    /* Broken from the outside, they go. */
    assert_int_equal(varve_storage_detach(too, reached, &tracker_message), VARVE_OK);
    assert_int_equal(varve_storage_detach(too, reached, &tracker_message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_storage_detach(one, two, &tracker_message), VARVE_OK);
    assert_int_equal(varve_storage_detach(through, view, &tracker_message), VARVE_OK);
    tracker_release_kept();
}

/* ---- views that hold much, and storages that nobody looks at ---- */

static inline void rule_tracker_held_and_untouched(void **state)
{
    struct varve_storage *halves = tracker_make_touched("two halves", 1000),
                         *owned = tracker_keep(tracker_make_touched("owned", 1000));
    struct varve_storage *viewed = tracker_make("looked at through a view", 1000);
    struct varve_storage *copied = tracker_keep(tracker_make("copied", 40)), *copy;
    (void)state;
    tracker_keep_slice("small view", 10, 20);
    tracker_keep_slice("whole view", 0, 900);
    tracker_keep(tracker_slice_of(halves, 0, 400));
    tracker_keep(tracker_slice_of(halves, 600, 1000));
    tracker_release(halves);
    tracker_keep(tracker_slice_of(owned, 1, 2));
    assert_non_null(varve_storage_data(tracker_keep(tracker_slice_of(viewed, 0, 600))));
    tracker_release(viewed);
    tracker_keep(tracker_make("nobody", 50));
    assert_int_equal(varve_storage_clone(copied, NULL, &copy, &tracker_message), VARVE_OK);
    varve_storage_set_name(tracker_keep(copy), "copy");
    struct tracker_found found = tracker_check((struct varve_leak_options){.min_growth = 100});
    assert_int_equal(found.count, 3);
    tracker_expect(&found, "small view", VARVE_LEAK_HELD, 1000);
    tracker_expect(&found, "nobody", VARVE_LEAK_UNTOUCHED, 50);
    tracker_expect(&found, "copy", VARVE_LEAK_UNTOUCHED, 40);
    free(found.leaks);
    found = tracker_check((struct varve_leak_options){.min_age_ns = UINT64_C(3600) * 1000000000});
    assert_int_equal(found.count, 0); /* all too young */
    free(found.leaks);
    tracker_release_kept();
}

/* ---- growth between marks ---- */

static __attribute__((noinline)) struct varve_storage *tracker_make_in_a_loop(const char *name)
{
    struct varve_storage *storage = tracker_make(name, 64);
    assert_non_null(varve_storage_data(storage));
    __asm__ volatile("" : : "r"(storage)); /* no tail call: the caller is this function */
    return storage;
}

/* Another caller of the library's than tracker_make. */
static inline void tracker_keep_elsewhere(void)
{
    const struct varve_storage_options options = {.memory = tracker_pool->memory, .name = "elsewhere"};
    const int64_t bytes = 32;
    struct varve_storage *storage;
    assert_int_equal(varve_storage_zeros(&options, VARVE_DTYPE_U8, 1, &bytes, &storage, &tracker_message), VARVE_OK);
    assert_non_null(varve_storage_data(tracker_keep(storage)));
}

static inline void rule_tracker_growth(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        tracker_keep(tracker_make_in_a_loop("before the mark"));
    }
    uint64_t mark = varve_tracker_mark();
    for (unsigned i = 0; i < 12; i++) {
        tracker_keep(tracker_make_in_a_loop("growing"));
        tracker_release(tracker_make_in_a_loop("released"));
    }
    for (unsigned i = 0; i < 7; i++) {
        tracker_keep_elsewhere();
    }
    struct tracker_found found = tracker_check((struct varve_leak_options){.after = mark});
    assert_int_equal(found.count, 1);
    tracker_expect(&found, "growing", VARVE_LEAK_GROWTH, 12 * 64);
    assert_int_equal(found.leaks[0].storages, 12);
    assert_non_null(found.leaks[0].caller);
    free(found.leaks);
    found = tracker_check((struct varve_leak_options){.after = mark, .min_growth = 7});
    assert_int_equal(found.count, 2);
    tracker_expect(&found, "elsewhere", VARVE_LEAK_GROWTH, 7 * 32);
    free(found.leaks);
    tracker_release_kept();
}

/* ---- the end ---- */

static inline void rule_tracker_end(void **state)
{
    static char bytes[16];
    struct varve_foreign foreign = {.data = bytes, .bytes = sizeof(bytes)};
    const int64_t shape = sizeof(bytes);
    (void)state;
    tracker_keep(tracker_make("a table that lives as long as the program", 10));
    uint64_t mark = varve_tracker_mark();
    tracker_keep(tracker_make("forgotten", 20));
    struct varve_storage *view = tracker_make_touched("by a view", 30);
    tracker_keep(tracker_slice_of(view, 0, 30));
    tracker_release(view);
    struct varve_geometry geometry;
    varve_geometry_contiguous(1, &shape, &geometry, NULL);
    struct varve_storage *storage;
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I8, &geometry, "foreign", &storage, &tracker_message),
                     VARVE_OK);
    tracker_keep(storage);
    tracker_release(tracker_make("released", 40));
    struct tracker_found found = tracker_check((struct varve_leak_options){.after = mark, .is_end = true});
    assert_int_equal(found.count, 3);
    tracker_expect(&found, "forgotten", VARVE_LEAK_ALIVE, 20);
    tracker_expect(&found, "by a view", VARVE_LEAK_ALIVE, 30);
    tracker_expect(&found, "foreign", VARVE_LEAK_ALIVE, 16);
    free(found.leaks);
    tracker_release_kept();
}

/* ---- totals and the list ---- */

struct tracker_seen {
    uint64_t ids[4], ages[4];
    const void *callers[4];
    uint32_t external[4];
    size_t count;
};

static inline bool tracker_see(void *context, const struct varve_tracked *tracked)
{
    struct tracker_seen *seen = context;
    seen->ids[seen->count] = tracked->id;
    seen->ages[seen->count] = tracked->age_ns;
    seen->callers[seen->count] = tracked->caller;
    seen->external[seen->count++] = tracked->external;
    return seen->count < 3;
}

static inline void rule_tracker_list(void **state)
{
    struct tracker_seen seen = {.count = 0};
    (void)state;
    varve_tracker_enable(false);
    struct varve_storage *before = tracker_keep(tracker_make("before", 100));
    varve_tracker_enable(true);
    struct varve_storage *storage = tracker_keep(tracker_make("one", 10));
    tracker_keep(tracker_slice_of(storage, 0, 5));
    tracker_keep(varve_storage_retain(storage));
    tracker_keep(tracker_make("beyond", 1));
    struct varve_tracker_totals totals;
    varve_tracker_get_totals(&totals);
    assert_int_equal(totals.storages, 3);
    assert_int_equal(totals.views, 1);
    assert_int_equal(totals.bytes, 111);
    assert_int_equal(varve_tracker_each(tracker_see, &seen, &tracker_message), VARVE_OK);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.ids[0], varve_storage_id(before));
    assert_int_equal(seen.ids[1], varve_storage_id(storage));
    assert_int_equal(seen.external[1], 2);
    assert_int_equal(seen.external[2], 1);
    assert_true(seen.ages[0] == 0 && seen.ages[1] > 0);
    assert_true(seen.callers[0] == NULL && seen.callers[1] != NULL);
    assert_int_equal(varve_storage_use_count(storage), 3);
    tracker_release_kept();
}

/* ---- beside threads that create and release ---- */

static inline void *tracker_churn(void *context)
{
    const struct varve_storage_options options = {.memory = tracker_pool->memory};
    const int64_t bytes = 8;
    while (!__atomic_load_n((bool *)context, __ATOMIC_ACQUIRE)) {
        struct varve_storage *storage, *view;
        if (varve_storage_empty(&options, VARVE_DTYPE_U8, 1, &bytes, &storage, NULL) == VARVE_OK) {
            if (varve_storage_slice(storage, 0, 0, 4, 1, &view, NULL) == VARVE_OK) {
                varve_storage_release(view, NULL);
            }
            varve_storage_release(storage, NULL);
        }
    }
    return NULL;
}

/* What is counted one after the other may be more than there is at any moment, but each of it is whole. */
static inline void rule_tracker_beside_threads(void **state)
{
    bool is_over = false;
    (void)state;
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, tracker_churn, &is_over), 0);
    }
    struct varve_tracker_totals totals;
    for (unsigned i = 0; i < 300; i++) {
        free(tracker_check((struct varve_leak_options){.min_growth = 1000}).leaks);
        varve_tracker_get_totals(&totals);
        assert_int_equal(totals.bytes, 8 * totals.storages);
        assert_int_equal(totals.foreign_bytes, 0);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    varve_tracker_get_totals(&totals);
    assert_int_equal(totals.storages + totals.views, 0);
}

#define TRACKER_CASE(function, of_kind)                                                     \
    {                                                                                       \
        .name = #function ", " #of_kind, .test_func = (function), .setup_func = tracker_on, \
        .teardown_func = tracker_off, .initial_state = (void *)(uintptr_t) & (of_kind)      \
    }

#define TRACKER_RULES(kind)                                                                       \
    TRACKER_CASE(rule_tracker_cycles, kind), TRACKER_CASE(rule_tracker_held_and_untouched, kind), \
        TRACKER_CASE(rule_tracker_growth, kind), TRACKER_CASE(rule_tracker_end, kind),            \
        TRACKER_CASE(rule_tracker_list, kind), TRACKER_CASE(rule_tracker_beside_threads, kind)

#endif
