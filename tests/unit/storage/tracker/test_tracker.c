/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaks that were planted, among storages that only look like leaks: the tracker finds all of the former, of their kind, and accuses
 * none of the latter.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "storage/storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 64

static struct varve_message message;

/* What the program refers to until the test ends. */
static struct varve_storage *kept[KEPT_MAX];
static size_t kept_count;

static int tracker_on(void **state)
{
    (void)state;
    varve_tracker_enable(true);
    return 0;
}

static int nothing_is_left(void **state)
{
    (void)state;
    varve_tracker_enable(false);
    return varve_storage_live() == 0 ? 0 : -1;
}

static struct varve_storage *make(const char *name, int64_t bytes)
{
    const struct varve_storage_options options = {.name = name};
    struct varve_storage *storage;

    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, &bytes, &storage, &message), VARVE_OK);
    return storage;
}

static struct varve_storage *keep(struct varve_storage *storage)
{
    assert_true(kept_count < KEPT_MAX);
    kept[kept_count++] = storage;
    return storage;
}

static struct varve_storage *make_touched(const char *name, int64_t bytes)
{
    struct varve_storage *storage = make(name, bytes);

    assert_non_null(varve_storage_data(storage));
    return storage;
}

static struct varve_storage *slice_of(struct varve_storage *storage, int64_t from, int64_t to)
{
    struct varve_storage *view;

    assert_int_equal(varve_storage_slice(storage, 0, from, to, 1, &view, &message), VARVE_OK);
    return view;
}

static void release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &message), VARVE_OK);
}

static void attach(struct varve_storage *storage, struct varve_storage *other)
{
    assert_int_equal(varve_storage_attach(storage, other, &message), VARVE_OK);
}

static void release_kept(void)
{
    while (kept_count > 0) {
        release(kept[--kept_count]);
    }
}

/* ---- what is found ---- */

struct found {
    struct varve_leak *leaks;
    size_t count;
};

static struct found check(struct varve_leak_options options)
{
    struct found found;

    assert_int_equal(varve_tracker_check_leaks(&options, &found.leaks, &found.count, &message), VARVE_OK);
    return found;
}

/* The leak whose evidence names it. */
static const struct varve_leak *leak_of(const struct found *found, const char *name)
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

static void expect(const struct found *found, const char *name, enum varve_leak_kind kind, uint64_t bytes)
{
    const struct varve_leak *leak = leak_of(found, name);

    if (leak == NULL) {
        fail_msg("%s was not found", name);
    }
    assert_string_equal(varve_leak_kind_name(leak->kind), varve_leak_kind_name(kind));
    assert_int_equal(leak->bytes, bytes);
    assert_true(leak->score > 0 && leak->score <= 1);
}

/* ---- cycles ---- */

static void test_cycles(void **state)
{
    struct varve_storage *one = make_touched("two one", 100), *two = make_touched("two other", 200), *view,
                         *chain;
    struct varve_storage *self = make_touched("itself", 300), *through = make_touched("by its view", 400);
    struct varve_storage *open_cycle = make_touched("reached", 500),
                         *open_other = make_touched("reached too", 600);
    struct found found;

    (void)state;
    attach(one, two);
    attach(two, one);
    release(one);
    release(two);
    attach(self, self);
    release(self);
    view = slice_of(through, 0, 400);
    attach(through, view);
    release(view);
    release(through);
    attach(open_cycle, open_other); /* a cycle that the program has a reference to */
    attach(open_other, open_cycle);
    release(open_other);
    keep(open_cycle);
    chain = make_touched("end of a chain", 700);
    attach(open_other, chain);
    release(chain);
    found = check((struct varve_leak_options){.min_growth = 100});
    assert_int_equal(found.count, 4);
    expect(&found, "two one", VARVE_LEAK_CYCLE, 100);
    expect(&found, "two other", VARVE_LEAK_CYCLE, 200);
    expect(&found, "itself", VARVE_LEAK_CYCLE, 300);
    expect(&found, "by its view", VARVE_LEAK_CYCLE, 400);
    assert_int_equal(found.leaks[0].bytes, 400); /* the worst first */
    free(found.leaks);
    /* Broken from the outside, they go. */
    assert_int_equal(varve_storage_detach(open_other, open_cycle, &message), VARVE_OK);
    assert_int_equal(varve_storage_detach(open_other, open_cycle, &message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_storage_detach(one, two, &message), VARVE_OK);
    assert_int_equal(varve_storage_detach(self, self, &message), VARVE_OK);
    assert_int_equal(varve_storage_detach(through, view, &message), VARVE_OK);
    release_kept();
}

/* ---- views that hold much, and storages that nobody looks at ---- */

static void test_held_and_untouched(void **state)
{
    struct varve_storage *small = make_touched("small view", 1000), *whole = make_touched("whole view", 1000);
    struct varve_storage *halves = make_touched("two halves", 1000), *owned = make_touched("owned", 1000);
    struct varve_storage *viewed = make("looked at through a view", 1000), *nobody = make("nobody", 50);
    struct varve_storage *copied = make("copied", 40), *copy;
    struct found found;

    (void)state;
    keep(slice_of(small, 10, 20));
    release(small);
    keep(slice_of(whole, 0, 900));
    release(whole);
    keep(slice_of(halves, 0, 400));
    keep(slice_of(halves, 600, 1000));
    release(halves);
    keep(slice_of(owned, 1, 2));
    keep(owned);
    assert_non_null(varve_storage_data(keep(slice_of(viewed, 0, 600))));
    release(viewed);
    keep(nobody);
    assert_int_equal(varve_storage_clone(copied, NULL, &copy, &message), VARVE_OK);
    varve_storage_set_name(copy, "copy");
    keep(copied);
    keep(copy);
    found = check((struct varve_leak_options){.min_growth = 100});
    assert_int_equal(found.count, 3);
    expect(&found, "small view", VARVE_LEAK_HELD, 1000);
    expect(&found, "nobody", VARVE_LEAK_UNTOUCHED, 50);
    expect(&found, "copy", VARVE_LEAK_UNTOUCHED, 40);
    free(found.leaks);
    found = check((struct varve_leak_options){.min_age_ns = UINT64_C(3600) * 1000000000});
    assert_int_equal(found.count, 0); /* all too young */
    free(found.leaks);
    release_kept();
}

/* ---- growth between marks ---- */

static __attribute__((noinline)) struct varve_storage *make_in_a_loop(const char *name)
{
    struct varve_storage *storage = make(name, 64);

    assert_non_null(varve_storage_data(storage));
    __asm__ volatile("" : : "r"(storage)); /* no tail call: the caller is this function */
    return storage;
}

static void make_elsewhere(struct varve_storage **storage)
{
    const int64_t bytes = 32;

    assert_int_equal(varve_storage_zeros(NULL, VARVE_DTYPE_U8, 1, &bytes, storage, &message), VARVE_OK);
    varve_storage_set_name(*storage, "elsewhere");
    assert_non_null(varve_storage_data(*storage));
}

static void test_growth(void **state)
{
    struct varve_storage *storage;
    struct found found;
    uint64_t mark;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        keep(make_in_a_loop("before the mark"));
    }
    mark = varve_tracker_mark();
    for (unsigned i = 0; i < 12; i++) {
        keep(make_in_a_loop("growing"));
        release(make_in_a_loop("released"));
    }
    for (unsigned i = 0; i < 7; i++) {
        make_elsewhere(&storage);
        keep(storage);
    }
    found = check((struct varve_leak_options){.after = mark});
    assert_int_equal(found.count, 1);
    expect(&found, "growing", VARVE_LEAK_GROWTH, 12 * 64);
    assert_int_equal(found.leaks[0].storages, 12);
    assert_non_null(found.leaks[0].caller);
    free(found.leaks);
    found = check((struct varve_leak_options){.after = mark, .min_growth = 7});
    assert_int_equal(found.count, 2);
    expect(&found, "elsewhere", VARVE_LEAK_GROWTH, 7 * 32);
    free(found.leaks);
    release_kept();
}

/* ---- the end ---- */

static void test_end(void **state)
{
    static char bytes[16];
    struct varve_foreign foreign = {.data = bytes, .bytes = sizeof(bytes)};
    const int64_t shape = sizeof(bytes);
    struct varve_geometry geometry;
    struct varve_storage *view, *storage;
    struct found found;
    uint64_t mark;

    (void)state;
    keep(make("a table that lives as long as the program", 10));
    mark = varve_tracker_mark();
    keep(make("forgotten", 20));
    view = make_touched("by a view", 30);
    keep(slice_of(view, 0, 30));
    release(view);
    varve_geometry_contiguous(1, &shape, &geometry, NULL);
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I8, &geometry, "foreign", &storage, &message),
                     VARVE_OK);
    keep(storage);
    release(make("released", 40));
    found = check((struct varve_leak_options){.after = mark, .is_end = true});
    assert_int_equal(found.count, 3);
    expect(&found, "forgotten", VARVE_LEAK_ALIVE, 20);
    expect(&found, "by a view", VARVE_LEAK_ALIVE, 30);
    expect(&found, "foreign", VARVE_LEAK_ALIVE, 16);
    free(found.leaks);
    release_kept();
}

/* ---- totals and the list ---- */

struct seen {
    uint64_t ids[4], ages[4];
    const void *callers[4];
    uint32_t external[4];
    size_t count;
};

static bool see(void *context, const struct varve_tracked *tracked)
{
    struct seen *seen = context;

    seen->ids[seen->count] = tracked->id;
    seen->ages[seen->count] = tracked->age_ns;
    seen->callers[seen->count] = tracked->caller;
    seen->external[seen->count++] = tracked->external;
    return seen->count < 3;
}

static void test_list(void **state)
{
    struct varve_tracker_totals totals;
    struct varve_storage *storage, *before;
    struct seen seen = {.count = 0};

    (void)state;
    varve_tracker_enable(false);
    before = keep(make("before", 100));
    varve_tracker_enable(true);
    storage = keep(make("one", 10));
    keep(slice_of(storage, 0, 5));
    keep(varve_storage_retain(storage));
    keep(make("beyond", 1));
    varve_tracker_get_totals(&totals);
    assert_int_equal(totals.storages, 3);
    assert_int_equal(totals.views, 1);
    assert_int_equal(totals.bytes, 111);
    assert_int_equal(varve_tracker_each(see, &seen, &message), VARVE_OK);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.ids[0], varve_storage_id(before));
    assert_int_equal(seen.ids[1], varve_storage_id(storage));
    assert_int_equal(seen.external[1], 2);
    assert_int_equal(seen.external[2], 1);
    assert_true(seen.ages[0] == 0 && seen.ages[1] > 0);
    assert_true(seen.callers[0] == NULL && seen.callers[1] != NULL);
    assert_int_equal(varve_storage_use_count(storage), 3);
    release_kept();
}

/* ---- beside threads that create and release ---- */

static void *churn(void *context)
{
    const int64_t bytes = 8;

    while (!__atomic_load_n((bool *)context, __ATOMIC_ACQUIRE)) {
        struct varve_storage *storage, *view;

        if (varve_storage_empty(NULL, VARVE_DTYPE_U8, 1, &bytes, &storage, NULL) == VARVE_OK) {
            if (varve_storage_slice(storage, 0, 0, 4, 1, &view, NULL) == VARVE_OK) {
                varve_storage_release(view, NULL);
            }
            varve_storage_release(storage, NULL);
        }
    }
    return NULL;
}

static void test_beside_threads(void **state)
{
    pthread_t threads[2];
    bool is_over = false;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &is_over), 0);
    }
    for (unsigned i = 0; i < 300; i++) {
        struct varve_tracker_totals totals;
        struct found found = check((struct varve_leak_options){.min_growth = 1000});

        varve_tracker_get_totals(&totals);
        assert_true(totals.storages <= 2 && totals.views <= 2);
        free(found.leaks);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

int main(void)
{
#define TRACKER_TEST(function) cmocka_unit_test_setup_teardown(function, tracker_on, nothing_is_left)
    const struct CMUnitTest tests[] = {
        TRACKER_TEST(test_cycles), TRACKER_TEST(test_held_and_untouched),
        TRACKER_TEST(test_growth), TRACKER_TEST(test_end),
        TRACKER_TEST(test_list),   TRACKER_TEST(test_beside_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
