/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is asked for a state when a trace begins in mid-run: allocators whose decisions are recorded. They come
 * and go while dumps run, a source that is removed is not asked any more, and a fork child begins with
 * nobody, whatever its parent was doing. Threads only note what went wrong; the main thread asserts.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/statedump.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3U
#define ROUNDS 60U
#define DUMPS 200U
#define MIB UINT64_C(0x100000)

/* ---- who is asked ---- */

/* An allocator with one block in use. NULL: no recorder. */
static struct varve_alloc *small_open(int index, const struct varve_alloc_recorder *recorder,
                                      struct varve_device **device_out)
{
    const struct varve_sim_options sim = {.index = index};
    struct varve_alloc_options options;
    struct varve_alloc *alloc;
    uint64_t addr;

    if (varve_sim_open(&sim, device_out, NULL) != VARVE_OK) {
        return NULL;
    }
    varve_alloc_options_init(&options);
    options.device = *device_out;
    options.recorder = recorder;
    if (varve_alloc_open(&options, &alloc, NULL) != VARVE_OK ||
        varve_alloc_raw_alloc(alloc, 5 * MIB, &addr, NULL) != VARVE_OK) {
        return NULL;
    }
    return alloc;
}

static void small_close(struct varve_alloc *alloc, struct varve_device *device)
{
    varve_alloc_close(alloc);
    device->ops->close(device);
}

static void forget(void *context, const struct varve_record *record)
{
    (void)context;
    (void)record;
}

static const struct varve_alloc_recorder forgetful = {.record = forget};

static void test_recorded_ones(void **state)
{
    const struct varve_state_sink only_segments = {.segment = take_segment};
    const struct varve_state_sink only_blocks = {.block = take_block};
    struct varve_device *devices[3];
    struct varve_alloc *allocs[3];

    (void)state;
    allocs[0] = small_open(10, &varve_alloc_recorder_ring, &devices[0]);
    allocs[1] = small_open(11, NULL, &devices[1]);
    allocs[2] = small_open(12, &forgetful, &devices[2]);
    assert_true(allocs[0] != NULL && allocs[1] != NULL && allocs[2] != NULL);
    ask();
    assert_int_equal(told.segment_count, 2);
    assert_int_equal(told.block_count, 4); /* one in use and the rest of its segment */
    assert_int_equal(told.segments[0].device + told.segments[1].device, 10 + 12);
    state_sources_dump(&only_segments);
    assert_int_equal(told.segment_count, 4);
    assert_int_equal(told.block_count, 4);
    state_sources_dump(&only_blocks);
    assert_int_equal(told.segment_count, 4);
    assert_int_equal(told.block_count, 8);
    for (int i = 0; i < 3; i++) {
        small_close(allocs[i], devices[i]);
    }
    ask();
    assert_int_equal(told.segment_count, 0);
}

/* ---- allocators come and go ---- */

/* Not guarded by anything but that there is one dump at a time. */
static struct {
    uint64_t next, left; /* of the segment whose blocks are being told */
    uint64_t segments, faults;
} stream;

static void follow_segment(const struct varve_mirror_segment *segment)
{
    stream.faults += stream.left != 0;
    stream.next = segment->addr;
    stream.left = segment->size;
    stream.segments++;
}

static void follow_block(const struct varve_mirror_block *block)
{
    stream.faults += block->addr != stream.next || block->size > stream.left;
    stream.next += block->size;
    stream.left -= block->size;
}

struct worker {
    pthread_t thread;
    bool *is_over; /* atomic */
    struct varve_alloc *alloc;
    int number;
    uint64_t failures, rounds;
};

static void *come_and_go(void *context)
{
    struct worker *worker = context;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct varve_device *device;
        struct varve_alloc *alloc = small_open(20 + worker->number, &forgetful, &device);
        if (alloc == NULL) {
            worker->failures++;
            break;
        }
        small_close(alloc, device);
    }
    return NULL;
}

static void *allocate(void *context)
{
    struct worker *worker = context;
    uint64_t live[16] = {0};

    for (unsigned i = 0; !__atomic_load_n(worker->is_over, __ATOMIC_ACQUIRE); i++) {
        uint64_t *slot = &live[i * 7 % 16];
        worker->failures += varve_alloc_raw_delete(worker->alloc, *slot, NULL) != VARVE_OK;
        worker->failures +=
            varve_alloc_raw_alloc(worker->alloc, 1000 + i % 900 * 1000, slot, NULL) != VARVE_OK;
    }
    return NULL;
}

static void *dump_often(void *context)
{
    const struct varve_state_sink following = {.segment = follow_segment, .block = follow_block};
    struct worker *worker = context;

    while (!__atomic_load_n(worker->is_over, __ATOMIC_ACQUIRE) || worker->rounds < DUMPS) {
        state_sources_dump(&following);
        worker->rounds++;
    }
    return NULL;
}

static void test_coming_and_going(void **state)
{
    bool is_over = false;
    struct varve_device *device;
    struct varve_alloc *alloc = small_open(20 + THREADS, &forgetful, &device);
    struct worker comers[THREADS], dumpers[2];
    struct worker allocating = {.is_over = &is_over, .alloc = alloc};

    (void)state;
    assert_non_null(alloc);
    assert_int_equal(pthread_create(&allocating.thread, NULL, allocate, &allocating), 0);
    for (int i = 0; i < 2; i++) {
        dumpers[i] = (struct worker){.is_over = &is_over};
        assert_int_equal(pthread_create(&dumpers[i].thread, NULL, dump_often, &dumpers[i]), 0);
    }
    for (int i = 0; i < (int)THREADS; i++) {
        comers[i] = (struct worker){.number = i};
        assert_int_equal(pthread_create(&comers[i].thread, NULL, come_and_go, &comers[i]), 0);
    }
    for (int i = 0; i < (int)THREADS; i++) {
        pthread_join(comers[i].thread, NULL);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    pthread_join(allocating.thread, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(dumpers[i].thread, NULL);
    }
    for (int i = 0; i < (int)THREADS; i++) {
        assert_int_equal(comers[i].failures, 0);
    }
    assert_int_equal(allocating.failures, 0);
    assert_int_equal(stream.faults, 0);
    assert_int_equal(stream.left, 0);
    assert_true(stream.segments >= dumpers[0].rounds + dumpers[1].rounds);
    small_close(alloc, device);
}

/* ---- a dump that takes long ---- */

/* A source that is in the middle of its dump until it is told to end. */
struct slow_source {
    struct varve_state_source source; /* first */
    sem_t has_begun, may_end;
    bool has_ended;       /* not atomic: a removal must make it safe to look at */
    bool was_seen_ending; /* by the one who removed it */
};

static void dump_slowly(struct varve_state_source *source, const struct varve_state_sink *unused)
{
    struct slow_source *slow = (struct slow_source *)source;

    (void)unused;
    sem_post(&slow->has_begun);
    while (sem_wait(&slow->may_end) != 0) {
    }
    slow->has_ended = true;
}

static void *dump_once(void *unused)
{
    (void)unused;
    state_sources_dump(&told_sink);
    return NULL;
}

static void *remove_source(void *context)
{
    struct slow_source *slow = context;

    varve_state_source_remove(&slow->source);
    slow->was_seen_ending = slow->has_ended;
    return NULL;
}

static void slow_begin(struct slow_source *slow, pthread_t *dumping)
{
    *slow = (struct slow_source){.source = {.dump = dump_slowly}};
    sem_init(&slow->has_begun, 0, 0);
    sem_init(&slow->may_end, 0, 0);
    told.segment_count = 0;
    told.block_count = 0;
    varve_state_source_add(&slow->source);
    assert_int_equal(pthread_create(dumping, NULL, dump_once, NULL), 0);
    while (sem_wait(&slow->has_begun) != 0) {
    }
}

static void slow_end(struct slow_source *slow)
{
    sem_destroy(&slow->has_begun);
    sem_destroy(&slow->may_end);
}

static void test_removal_waits(void **state)
{
    struct slow_source slow;
    pthread_t dumping, removing;
    struct varve_device *devices[2];
    struct varve_alloc *later, *early = small_open(30, &forgetful, &devices[0]);

    (void)state;
    assert_non_null(early);
    slow_begin(&slow, &dumping);
    assert_int_equal(pthread_create(&removing, NULL, remove_source, &slow), 0);
    /* others do not wait for it: one that the dump has yet to ask, and one that came later */
    later = small_open(31, &forgetful, &devices[1]);
    assert_non_null(later);
    small_close(early, devices[0]);
    usleep(20000); /* let the removal come as far as it can */
    sem_post(&slow.may_end);
    pthread_join(removing, NULL);
    pthread_join(dumping, NULL);
    assert_true(slow.was_seen_ending);
    assert_int_equal(told.segment_count, 0);
    ask();
    assert_int_equal(told.segment_count, 1); /* and `slow` is not asked */
    assert_int_equal(told.segments[0].device, 31);
    small_close(later, devices[1]);
    slow_end(&slow);
}

/* ---- fork ---- */

static int act_as_child(struct varve_alloc *inherited, struct varve_device *device)
{
    struct varve_device *own_device;
    struct varve_alloc *own;

    ask();
    if (told.segment_count != 0) {
        return 1; /* what it inherits may be half changed */
    }
    own = small_open(41, &forgetful, &own_device);
    if (own == NULL) {
        return 2;
    }
    ask();
    if (told.segment_count != 1 || told.segments[0].device != 41 || !is_whole(0)) {
        return 3;
    }
    small_close(inherited, device);
    ask();
    if (told.segment_count != 1) {
        return 4;
    }
    small_close(own, own_device);
    ask();
    return told.segment_count == 0 ? 0 : 5;
}

static void test_fork_in_dump(void **state)
{
    struct slow_source slow;
    pthread_t dumping;
    struct varve_device *device;
    struct varve_alloc *alloc = small_open(40, &forgetful, &device);
    int status = -1;
    pid_t child;

    (void)state;
    assert_non_null(alloc);
    slow_begin(&slow, &dumping);
    child = fork();
    if (child == 0) {
        alarm(60); /* a lock that stayed held */
        _exit(act_as_child(alloc, device));
    }
    sem_post(&slow.may_end);
    pthread_join(dumping, NULL);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    varve_state_source_remove(&slow.source);
    ask(); /* the parent's list is as it was */
    assert_int_equal(told.segment_count, 1);
    small_close(alloc, device);
    slow_end(&slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_ones),
        cmocka_unit_test(test_coming_and_going),
        cmocka_unit_test(test_removal_waits),
        cmocka_unit_test(test_fork_in_dump),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
