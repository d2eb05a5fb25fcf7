/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads, many streams, real memory: every thread fills its blocks with a pattern of its own and looks
 * at all of it before it frees them, so that a block handed out twice shows as another's pattern. Blocks are
 * used by other streams too, whose events stay incomplete while a stream is held back; the memory of a freed
 * block must not come back before. The thread that holds streams back never takes the allocator's lock, since
 * empty_cache waits for streams with it.
 *
 * Threads only note what went wrong; the main thread asserts.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "alloc/alloc.h"
#include "support/random.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 6
#define STREAMS 4
#define STEPS 2000
#define LIVE 24
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

struct worker {
    pthread_t thread;
    struct varve_alloc *alloc;
    unsigned number;
    uint64_t random;
    struct {
        uint64_t addr, bytes, pattern;
    } live[LIVE];
    uint64_t served, failed;
    char trouble[200];
};

static void note(struct worker *worker, const char *what, uint64_t addr)
{
    if (worker->trouble[0] == '\0') {
        snprintf(worker->trouble, sizeof(worker->trouble), "thread %u: %s at %#llx", worker->number, what,
                 (unsigned long long)addr);
    }
}

/* Every word of small blocks, and one of each KiB of large ones. */
static uint64_t stride(uint64_t bytes)
{
    return bytes <= 8 * KIB ? 1 : 128;
}

static void fill(const struct worker *worker, unsigned slot)
{
    uint64_t *words = (uint64_t *)(uintptr_t)worker->live[slot].addr;
    uint64_t bytes = worker->live[slot].bytes;
    for (uint64_t i = 0; i < bytes / 8; i += stride(bytes)) {
        words[i] = worker->live[slot].pattern + i;
    }
}

static bool is_intact(const struct worker *worker, unsigned slot)
{
    const uint64_t *words = (const uint64_t *)(uintptr_t)worker->live[slot].addr;
    uint64_t bytes = worker->live[slot].bytes;
    for (uint64_t i = 0; i < bytes / 8; i += stride(bytes)) {
        if (words[i] != worker->live[slot].pattern + i) {
            return false;
        }
    }
    return true;
}

static void drop(struct worker *worker, unsigned slot)
{
    uint64_t addr = worker->live[slot].addr;
    if (addr == 0) {
        return;
    }
    if (!is_intact(worker, slot)) {
        note(worker, "another's pattern", addr);
    }
    if (random_below(&worker->random, 5) == 0 &&
        varve_alloc_record_stream(worker->alloc, addr, 1 + random_below(&worker->random, STREAMS), NULL) != VARVE_OK) {
        note(worker, "record_stream failed", addr);
    }
    worker->live[slot].addr = 0;
    if (varve_alloc_raw_delete(worker->alloc, addr, NULL) != VARVE_OK) {
        note(worker, "the free failed", addr);
    }
}

static void take(struct worker *worker, unsigned slot)
{
    static const uint64_t sizes[] = {512, 3000, 40 * KIB, 600 * KIB, 1200 * KIB, 3 * MIB};
    uint64_t bytes = 8 + random_below(&worker->random, sizes[random_below(&worker->random, 6)]);
    uint64_t stream = random_below(&worker->random, STREAMS + 1);
    int error = varve_alloc_raw_alloc_with_stream(worker->alloc, bytes, stream, &worker->live[slot].addr, NULL);
    if (error != VARVE_OK) {
        worker->failed++;
        if (error != VARVE_ERROR_NO_MEMORY || worker->live[slot].addr != 0) {
            note(worker, "the allocation failed", bytes);
        }
        return;
    }
    worker->served++;
    worker->live[slot].bytes = bytes;
    worker->live[slot].pattern = (uint64_t)(worker->number + 1) << 56 | worker->served << 24;
    fill(worker, slot);
}

/* The rare calls, all while the others go on. */
static void look_around(struct worker *worker)
{
    struct varve_alloc_snapshot snapshot;
    struct varve_alloc_stats stats;
    struct varve_message message = {""};
    switch (random_below(&worker->random, 5)) {
    case 0:
        varve_alloc_empty_cache(worker->alloc);
        break;
    case 1:
        if (varve_alloc_check(worker->alloc, &message) != VARVE_OK) {
            note(worker, message.text, 0);
        }
        break;
    case 2:
        if (varve_alloc_snapshot(worker->alloc, &snapshot) == VARVE_OK) {
            varve_alloc_snapshot_free(&snapshot);
        }
        break;
    case 3:
        varve_alloc_get_device_stats(worker->alloc, &stats);
        varve_alloc_reset_peak_stats(worker->alloc);
        break;
    default:
        varve_alloc_free_mutex_lock(worker->alloc);
        if (varve_alloc_memory_allocated(worker->alloc) > varve_alloc_memory_reserved(worker->alloc)) {
            note(worker, "more allocated than reserved", 0);
        }
        varve_alloc_free_mutex_unlock(worker->alloc);
    }
}

static void *work(void *context)
{
    struct worker *worker = context;
    for (unsigned step = 0; step < STEPS && worker->trouble[0] == '\0'; step++) {
        unsigned slot = (unsigned)random_below(&worker->random, LIVE);
        drop(worker, slot);
        take(worker, slot);
        if (random_below(&worker->random, 200) == 0) {
            look_around(worker);
        }
    }
    for (unsigned slot = 0; slot < LIVE; slot++) {
        drop(worker, slot);
    }
    return NULL;
}

struct holder {
    pthread_t thread;
    struct varve_device *device;
    bool is_over;
    unsigned held;
};

/* Holds one stream back after the other. */
static void *hold_streams(void *context)
{
    const struct timespec while_ns = {0, 300000};
    struct holder *holder = context;
    while (!__atomic_load_n(&holder->is_over, __ATOMIC_SEQ_CST)) {
        uint64_t stream = 1 + holder->held % STREAMS;
        holder->held += varve_host_stream_block(holder->device, stream) == VARVE_OK;
        nanosleep(&while_ns, NULL);
        varve_host_stream_release(holder->device, stream);
    }
    return NULL;
}

static void run_threads(const char *config)
{
    static struct worker workers[THREADS];
    struct holder holder = {.held = 0};
    struct varve_message message = {""};
    uint64_t served = 0;
    memset(workers, 0, sizeof(workers));
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_host_open(&(struct varve_host_options){.limit_bytes = 600 * MIB}, &holder.device, &message),
                     VARVE_OK);
    options.device = holder.device;
    assert_int_equal(varve_alloc_config_parse(config, &options.config, &message), VARVE_OK);
    struct varve_alloc *alloc;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_OK);
    holder.is_over = false;
    assert_int_equal(pthread_create(&holder.thread, NULL, hold_streams, &holder), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].alloc = alloc;
        workers[i].number = i;
        workers[i].random = i * UINT64_C(77777);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        served += workers[i].served;
    }
    __atomic_store_n(&holder.is_over, true, __ATOMIC_SEQ_CST);
    pthread_join(holder.thread, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_string_equal(workers[i].trouble, "");
        assert_true(workers[i].failed < STEPS / 2);
    }
    assert_true(served > THREADS * STEPS / 2);
    assert_true(holder.held > 0);
    assert_int_equal(varve_alloc_memory_allocated(alloc), 0);
    if (varve_alloc_check(alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(alloc), 0);
    varve_alloc_close(alloc);
    assert_int_equal(varve_host_check(holder.device, &message), VARVE_OK);
    holder.device->ops->close(holder.device);
}

/* Expandable segments: memory comes and goes below the blocks of others. With the lock released others allocate while
 * one waits for the device, and use up what it had reserved. */
TEST(test_threads)
{
    run_threads("");
    run_threads("expandable_segments:True");
    run_threads("release_lock_on_cudamalloc:True,garbage_collection_threshold:0.3");
}

/* ---- observers and callbacks come while others fail ---- */

static uint64_t callback_none(void *context, const struct varve_alloc_miss *miss)
{
    (void)miss;
    __atomic_fetch_add((unsigned *)context, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void observer_count(void *context, const struct varve_alloc_oom *oom)
{
    __atomic_fetch_add((unsigned *)context, oom->requested == 64 * MIB, __ATOMIC_SEQ_CST);
}

static void *fail_often(void *context)
{
    struct varve_alloc *alloc = context;
    uint64_t addr, failed = 0;
    for (int i = 0; i < 200; i++) {
        failed += varve_alloc_raw_alloc(alloc, 64 * MIB, &addr, NULL) == VARVE_ERROR_NO_MEMORY;
    }
    return (void *)(uintptr_t)(failed != 200 || varve_alloc_policies()[0] == NULL);
}

TEST(test_observers_come_late)
{
    unsigned calls = 0;
    unsigned ooms = 0;
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    struct varve_device *device;
    assert_int_equal(varve_host_open(&(struct varve_host_options){.limit_bytes = 32 * MIB}, &device, NULL), VARVE_OK);
    options.device = device;
    struct varve_alloc *alloc;
    assert_int_equal(varve_alloc_open(&options, &alloc, NULL), VARVE_OK);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, alloc), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(varve_alloc_add_miss_callback(alloc, callback_none, &calls), VARVE_OK);
        assert_int_equal(varve_alloc_add_oom_observer(alloc, observer_count, &ooms), VARVE_OK);
    }
    void *result;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    assert_int_equal(fail_often(alloc), NULL);
    assert_true(__atomic_load_n(&calls, __ATOMIC_SEQ_CST) >= 800 && __atomic_load_n(&ooms, __ATOMIC_SEQ_CST) >= 800);
    varve_alloc_close(alloc);
    device->ops->close(device);
}
