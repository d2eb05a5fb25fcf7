/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twelve storages, or groups of them, that are leaked, each in another way, and twelve that look like it and are not.
 * Each is made by a function of its own, whose name begins with planted_ or innocent_; standard output says which
 * storages they made, and what the tracker found, in lines of JSON.
 *
 *   storage_hunt exit     asks the tracker in the middle and at the end, and exits
 *   storage_hunt kill     the same, and kills itself instead
 *   storage_hunt middle   asks the tracker in the middle, and kills itself there
 *   storage_hunt stop     as exit, but stops in the middle until it is continued
 *   storage_hunt silent   does not ask the tracker, and exits; silent-kill: kills itself in the middle
 */
#include "storage/storage.h"
#include "base/error.h"
#include "trace/emit.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define MANY 10 /* storages of a growing call site */
#define CACHED 6

static struct varve_memory *pool;
static struct varve_storage *living_base, *living_view, *cache[CACHED], *parent, *ring[2], *global, *whole_view;
static struct varve_storage *in_place, *shared, *handed_over, *made;
static struct varve_storage_weak *weak;

static void must(int error)
{
    if (error != VARVE_OK) {
        fprintf(stderr, "storage_hunt: %s\n", varve_strerror(error));
        exit(1);
    }
}

/* The storage that was just made. */
static struct varve_storage *note(const char *function, int error)
{
    must(error);
    printf("{\"made\": \"%s\", \"id\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n", function, varve_storage_id(made),
           varve_storage_bytes(made));
    return made;
}

/* A storage of so many KiB on the pool. No function of its own: whoever uses it is the tracker's caller. */
#define MAKE(rows)                                                                                        \
    note(__func__, varve_storage_zeros(&(struct varve_storage_options){.memory = pool, .name = __func__}, \
                                       VARVE_DTYPE_F32, 2, (const int64_t[]){(rows), 256}, &made, NULL))

static struct varve_storage *touched(struct varve_storage *storage)
{
    memset(varve_storage_data(storage), 1, varve_storage_bytes(storage));
    return storage;
}

static NOINLINE struct varve_storage *rows_of(struct varve_storage *storage, int64_t first, int64_t end)
{
    struct varve_storage *view;
    must(varve_storage_slice(storage, 0, first, end, 1, &view, NULL));
    return view;
}

/* Each holds the next one, the last the first. */
static void ring_of(struct varve_storage *const *members, int count)
{
    for (int i = 0; i < count; i++) {
        must(varve_storage_attach(members[i], members[(i + 1) % count], NULL));
    }
}

static void release_all(struct varve_storage *const *storages, int count)
{
    for (int i = 0; i < count; i++) {
        must(varve_storage_release(storages[i], NULL));
    }
}

/* ---- leaks ---- */

static NOINLINE void planted_two_that_hold_each_other(void)
{
    struct varve_storage *const members[] = {MAKE(3), MAKE(3)};
    ring_of(members, 2);
    release_all(members, 2);
}

static NOINLINE void planted_ring_of_three(void)
{
    struct varve_storage *const members[] = {touched(MAKE(2)), touched(MAKE(2)), touched(MAKE(2))};
    ring_of(members, 3);
    release_all(members, 3);
}

static NOINLINE void planted_one_that_holds_itself(void)
{
    struct varve_storage *const storage = MAKE(5);
    ring_of(&storage, 1);
    release_all(&storage, 1);
}

static NOINLINE void planted_one_that_its_own_view_holds(void)
{
    struct varve_storage *storage = touched(MAKE(6)), *view = rows_of(storage, 0, 6);
    must(varve_storage_attach(storage, view, NULL));
    must(varve_storage_release(view, NULL));
    must(varve_storage_release(storage, NULL));
}

static NOINLINE void planted_small_view_of_a_large_base(void)
{
    struct varve_storage *base = touched(MAKE(64)), *view = rows_of(base, 0, 1);
    must(varve_storage_release(base, NULL));
    (void)view;
}

static NOINLINE void planted_three_views_of_a_large_base(void)
{
    struct varve_storage *base = touched(MAKE(40));
    for (int i = 0; i < 3; i++) {
        rows_of(base, i, i + 1);
    }
    must(varve_storage_release(base, NULL));
}

static NOINLINE void planted_one_a_phase(void)
{
    (void)touched(MAKE(1));
}

static NOINLINE void planted_many_in_a_loop(void)
{
    for (int i = 0; i < MANY; i++) {
        (void)touched(MAKE(2));
    }
}

static NOINLINE void planted_made_and_forgotten(void)
{
    (void)MAKE(7);
}

static NOINLINE void planted_result_nobody_fetched(void)
{
    struct varve_storage *result = MAKE(9);
    must(varve_storage_release(varve_storage_retain(result), NULL));
}

static NOINLINE void planted_one_reference_too_many(void)
{
    struct varve_storage *storage = touched(MAKE(4));
    must(varve_storage_release(varve_storage_retain(varve_storage_retain(storage)), NULL));
    must(varve_storage_release(storage, NULL));
}

static NOINLINE void planted_view_of_all_of_it(void)
{
    struct varve_storage *base = touched(MAKE(8)), *view = rows_of(base, 0, 8);
    must(varve_storage_release(base, NULL));
    (void)view;
}

/* ---- what looks like it ---- */

static NOINLINE void innocent_small_view_of_a_living_base(void)
{
    living_base = touched(MAKE(64));
    living_view = rows_of(living_base, 0, 1);
}

static NOINLINE void innocent_cache(void)
{
    for (int i = 0; i < CACHED; i++) {
        cache[i] = touched(MAKE(2));
    }
}

static NOINLINE void innocent_child_of_a_parent(void)
{
    struct varve_storage *child = touched(MAKE(3));
    parent = touched(MAKE(3));
    must(varve_storage_attach(parent, child, NULL));
    must(varve_storage_release(child, NULL));
}

static NOINLINE void innocent_ring_that_will_be_cut(void)
{
    ring[0] = touched(MAKE(2));
    ring[1] = touched(MAKE(2));
    ring_of(ring, 2);
    must(varve_storage_release(ring[1], NULL)); /* the other one is still ours, and reaches it */
}

static NOINLINE void innocent_global(void)
{
    global = touched(MAKE(30));
}

static NOINLINE void innocent_view_that_outlives_its_base(void)
{
    struct varve_storage *base = touched(MAKE(12));
    whole_view = rows_of(base, 0, 12);
    must(varve_storage_release(base, NULL));
}

static NOINLINE void innocent_temporaries(void)
{
    for (int i = 0; i < 3 * MANY; i++) {
        must(varve_storage_release(MAKE(2), NULL));
    }
}

static NOINLINE void innocent_used_in_place(void)
{
    in_place = touched(MAKE(20)); /* of which no event tells */
}

static NOINLINE void innocent_weak_reference(void)
{
    struct varve_storage *storage = MAKE(5);
    weak = varve_storage_weak_retain(storage);
    must(varve_storage_release(storage, NULL));
}

static void *release_elsewhere(void *storage)
{
    must(varve_storage_release(storage, NULL));
    return NULL;
}

static NOINLINE void innocent_released_by_another_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, release_elsewhere, MAKE(5)) != 0) {
        exit(1);
    }
    pthread_join(thread, NULL);
}

static NOINLINE void innocent_shared_by_two(void)
{
    shared = touched(MAKE(6));
    varve_storage_retain(shared);
}

static NOINLINE void innocent_handed_over(void)
{
    struct varve_storage *from = touched(MAKE(4));
    handed_over = touched(MAKE(4));
    must(varve_storage_copy(handed_over, from, NULL));
    must(varve_storage_release(from, NULL));
}

/* ---- the program ---- */

static void make_all(void)
{
    innocent_small_view_of_a_living_base();
    innocent_cache();
    innocent_child_of_a_parent();
    innocent_ring_that_will_be_cut();
    innocent_global();
    innocent_view_that_outlives_its_base();
    for (int i = 0; i < MANY; i++) {
        varve_mark_begin("step");
        planted_one_a_phase();
        innocent_temporaries();
        varve_mark_end("step");
    }
    varve_mark_begin("work");
    planted_two_that_hold_each_other();
    planted_ring_of_three();
    planted_one_that_holds_itself();
    planted_one_that_its_own_view_holds();
    planted_small_view_of_a_large_base();
    planted_three_views_of_a_large_base();
    planted_many_in_a_loop();
    planted_made_and_forgotten();
    planted_result_nobody_fetched();
    planted_one_reference_too_many();
    planted_view_of_all_of_it();
    innocent_used_in_place();
    innocent_weak_reference();
    innocent_released_by_another_thread();
    innocent_shared_by_two();
    innocent_handed_over();
    varve_mark_end("work");
}

static void release_innocents(void)
{
    struct varve_storage *const kept[] = {living_view, living_base, parent, global,     whole_view,
                                          in_place,    shared,      shared, handed_over};
    must(varve_storage_detach(ring[0], ring[1], NULL));
    release_all(ring, 1);
    release_all(kept, sizeof(kept) / sizeof(kept[0]));
    release_all(cache, CACHED);
    varve_storage_weak_release(weak);
}

static void ask_tracker(const char *when, bool is_end)
{
    struct varve_leak *leaks;
    size_t count;
    must(varve_tracker_check_leaks(&(struct varve_leak_options){.is_end = is_end}, &leaks, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        printf("{\"found\": \"%s\", \"kind\": \"%s\", \"id\": %" PRIu64 ", \"storages\": %" PRIu64 "}\n", when,
               varve_leak_kind_name(leaks[i].kind), leaks[i].id, leaks[i].storages);
    }
    free(leaks);
}

static void die(void)
{
    fflush(stdout);
    kill(getpid(), SIGKILL);
    pause();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "exit";
    bool is_silent = strncmp(mode, "silent", 6) == 0;
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.recorder = &varve_alloc_recorder_ring;
    must(varve_host_open(&(struct varve_host_options){.limit_bytes = 64 << 20}, &options.device, NULL));
    struct varve_alloc *alloc;
    must(varve_alloc_open(&options, &alloc, NULL));
    must(varve_memory_open(alloc, &pool, NULL));
    varve_tracker_enable(!is_silent);
    make_all();
    if (!is_silent) {
        ask_tracker("middle", false);
    }
    if (strcmp(mode, "stop") == 0) {
        raise(SIGSTOP);
    }
    if (strcmp(mode, "middle") == 0 || strcmp(mode, "silent-kill") == 0) {
        die();
    }
    release_innocents();
    if (!is_silent) {
        ask_tracker("end", true);
    }
    if (strcmp(mode, "kill") == 0) {
        die();
    }
    return 0;
}
