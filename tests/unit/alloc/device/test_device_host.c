/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the host device does: memory that is really there, within its limit and gone when it is freed;
 * access that comes with set_access alone; streams held back and waited for by another thread; segments
 * shared with other processes, with handles that are stale or forged; and many threads on one device, made
 * for the thread sanitizer.
 * Costs: 1 s
 */
#include "support/cuda/device.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4U
#define ROUNDS 300U

/* Can this process read there? The kernel looks for us, so that a "no" kills nobody. */
static bool is_readable(uint64_t addr)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool result = write(ends[1], at(addr), 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return result;
}

TEST(test_host_segment_memory)
{
    struct varve_device *device = host_open(8 * MIB);
    const struct varve_device_ops *ops = device->ops;
    uint64_t first = 0, second = 0, third = 0, free_bytes = 0, total = 0;
    assert_int_equal(ops->segment_alloc(device, 4 * MIB, 0, &first), 0);
    assert_int_equal(ops->segment_alloc(device, 4 * MIB, 0, &second), 0);
    assert_int_equal(ops->segment_alloc(device, 1, 0, &third), VARVE_ERROR_NO_MEMORY);
    memset(at(first), 0x11, 4 * MIB);
    memset(at(second), 0x22, 4 * MIB);
    for (size_t i = 0; i < 4 * MIB; i += 4096) {
        assert_true(at(first)[i] == 0x11 && at(second)[i + 4095] == 0x22);
    }
    assert_int_equal(ops->segment_free(device, first, 4 * MIB), 0);
    assert_int_equal(ops->segment_alloc(device, 100, 0, &third), 0);
    assert_int_equal(at(third)[0], 0); /* the old contents are gone */
    assert_int_equal(ops->memory_info(device, &free_bytes, &total), 0);
    assert_int_equal(total, 8 * MIB);
    assert_int_equal(free_bytes, 4 * MIB - (uint64_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(at(second)[5], 0x22);
    host_close(device); /* with segments out */
    assert_false(is_readable(second));
}

TEST(test_host_default_limit)
{
    struct varve_device *device = host_open(0);
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(device->ops->memory_info(device, &free_bytes, &total), 0);
    assert_true(total > 0 && total <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4);
    assert_int_equal(free_bytes, total);
    host_close(device);
}

TEST(test_host_vmm_memory)
{
    struct varve_device *device = host_open(8 * UNIT);
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handles[2];
    assert_int_equal(ops->vmm_reserve(device, 100 * UNIT, NULL, &base), 0);
    assert_false(is_readable(base));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_create(device, UNIT, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * UNIT, UNIT, handles[i]), 0);
    }
    assert_false(is_readable(base));
    assert_int_equal(ops->vmm_set_access(device, base, 2 * UNIT, 1), 0);
    assert_false(is_readable(base)); /* another device's access is not ours */
    assert_int_equal(ops->vmm_set_access(device, base, 2 * UNIT, 0), 0);
    memset(at(base), 0x33, 2 * UNIT);
    assert_int_equal(ops->vmm_map(device, base + 50 * UNIT, UNIT, handles[1]), 0);
    assert_int_equal(ops->vmm_set_access(device, base + 50 * UNIT, UNIT, 0), 0);
    assert_int_equal(at(base)[50 * UNIT + 17], 0x33);
    at(base)[50 * UNIT + 17] = 0x44; /* one memory at two addresses */
    assert_int_equal(at(base)[UNIT + 17], 0x44);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * UNIT), 0);
    assert_false(is_readable(base));
    assert_false(is_readable(base + UNIT));
    assert_int_equal(at(base)[50 * UNIT + 17], 0x44);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handles[0]), 0);
    assert_false(is_readable(base)); /* a new mapping has no access again */
    assert_int_equal(ops->vmm_release(device, handles[0], UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handles[1], UNIT), 0);
    assert_int_equal(at(base)[50 * UNIT + 17], 0x44); /* the memory stays while it is mapped */
    host_close(device);
}

TEST(test_host_sizes)
{
    struct varve_device *device = host_open(8 * UNIT);
    const struct varve_device_ops *ops = device->ops;
    struct varve_message message;
    uint64_t out = 0, base = 0, handle = 0;
    device->ops->reason(device, &message);
    assert_string_equal(message.text, "");
    assert_int_equal(ops->vmm_reserve(device, 100, NULL, &out), VARVE_ERROR_INVALID);
    device->ops->reason(device, &message);
    assert_non_null(strstr(message.text, "100"));
    assert_int_equal(ops->vmm_create(device, 100, &out), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_reserve(device, (uint64_t)1 << 56, NULL, &out), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->vmm_reserve(device, UINT64_MAX - 4095, NULL, &out), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->vmm_reserve(device, 4 * UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base + 100, UNIT, handle), VARVE_ERROR_INVALID);
    host_close(device);
}

/* More segments and handles than a process may have files open. */
TEST(test_host_many)
{
    struct varve_device *device = host_open(UINT64_MAX / 2);
    const struct varve_device_ops *ops = device->ops;
    static uint64_t segments[3000], handles[3000];
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &segments[i]), 0);
        assert_int_equal(ops->vmm_create(device, UNIT, &handles[i]), 0);
        at(segments[i])[i] = 1;
    }
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(at(segments[i])[i], 1);
        assert_int_equal(ops->segment_free(device, segments[i], UNIT), 0);
        assert_int_equal(ops->vmm_release(device, handles[i], UNIT), 0);
    }
    host_close(device);
}

struct waiter {
    struct varve_device *device;
    uint64_t event, stream;
    int results[2];
    uint32_t done; /* atomic */
};

static void *wait_for_both(void *context)
{
    struct waiter *waiter = context;
    waiter->results[0] = waiter->device->ops->event_synchronize(waiter->device, waiter->event);
    waiter->results[1] = waiter->device->ops->stream_synchronize(waiter->device, waiter->stream);
    __atomic_store_n(&waiter->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

TEST(test_host_streams)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    struct waiter waiter = {.device = device, .stream = 8, .results = {1, 1}};
    uint64_t before = 0, other = 0;
    assert_int_equal(ops->event_create(device, &waiter.event), 0);
    assert_int_equal(ops->event_create(device, &before), 0);
    assert_int_equal(ops->event_create(device, &other), 0);
    assert_int_equal(varve_host_stream_release(device, 8), VARVE_ERROR_INVALID);
    assert_int_equal(ops->event_record(device, before, 8), 0);
    assert_int_equal(varve_host_stream_block(device, 8), 0);
    assert_int_equal(varve_host_stream_block(device, 8), VARVE_ERROR_INVALID);
    assert_int_equal(ops->event_record(device, waiter.event, 8), 0);
    assert_int_equal(ops->event_record(device, other, 9), 0);
    assert_int_equal(ops->event_query(device, waiter.event), 0);
    assert_int_equal(ops->event_query(device, before), 1);
    assert_int_equal(ops->event_query(device, other), 1);
    assert_int_equal(ops->stream_synchronize(device, 9), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_both, &waiter), 0);
    for (int i = 0; i < 20; i++) { /* meanwhile the device serves others */
        assert_int_equal(ops->event_query(device, waiter.event), 0);
        assert_int_equal(__atomic_load_n(&waiter.done, __ATOMIC_ACQUIRE), 0);
        usleep(1000);
    }
    assert_int_equal(varve_host_stream_release(device, 8), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(waiter.results[0] == 0 && waiter.results[1] == 0);
    assert_int_equal(ops->event_query(device, waiter.event), 1);
    assert_int_equal(varve_host_stream_block(device, 8), 0);
    assert_int_equal(ops->event_query(device, waiter.event), 1); /* recorded before it was blocked again */
    host_close(device);
}

struct worker {
    pthread_t thread;
    struct varve_device *device;
    unsigned number;
    unsigned failures, refused;
};

static bool fill_and_look(uint64_t addr, unsigned char value)
{
    bool is_right = true;
    for (uint64_t page = 0; page < UNIT; page += 64 * 4096) {
        memset(at(addr + page), value, 4096);
    }
    for (uint64_t page = 0; page < UNIT; page += 64 * 4096) {
        is_right = is_right && at(addr + page)[0] == value && at(addr + page)[4095] == value;
    }
    return is_right;
}

/* A segment, then a mapped handle, each written and read; running out of memory is no failure. */
static unsigned work_once(struct worker *worker, unsigned char value)
{
    struct varve_device *device = worker->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr, base, handle, event;
    unsigned failures = 0;
    int error = ops->segment_alloc(device, UNIT, worker->number, &addr);
    if (error == 0) {
        failures += !fill_and_look(addr, value);
        failures += ops->segment_free(device, addr, UNIT) != 0;
    }
    worker->refused += error == VARVE_ERROR_NO_MEMORY;
    failures += error != 0 && error != VARVE_ERROR_NO_MEMORY;
    error = ops->vmm_create(device, UNIT, &handle);
    if (error == 0) {
        failures += ops->vmm_reserve(device, 2 * UNIT, NULL, &base) != 0;
        failures += ops->vmm_map(device, base, UNIT, handle) != 0;
        failures += ops->vmm_set_access(device, base, UNIT, 0) != 0;
        failures += ops->vmm_release(device, handle, UNIT) != 0;
        failures += !fill_and_look(base, value);
        failures += ops->vmm_unmap(device, base, UNIT) != 0;
        failures += ops->vmm_address_free(device, base, 2 * UNIT) != 0;
    }
    worker->refused += error == VARVE_ERROR_NO_MEMORY;
    failures += error != 0 && error != VARVE_ERROR_NO_MEMORY;
    failures += ops->event_create(device, &event) != 0 || ops->event_record(device, event, 1) != 0 ||
                ops->event_synchronize(device, event) != 0 || ops->event_destroy(device, event) != 0;
    return failures;
}

static void *work(void *context)
{
    struct worker *worker = context;
    for (unsigned i = 0; i < ROUNDS; i++) {
        worker->failures += work_once(worker, (unsigned char)(worker->number * 64 + i % 64));
    }
    return NULL;
}

TEST(test_host_threads)
{
    struct varve_device *device = host_open(3 * UNIT); /* one less than threads, so that some are refused */
    struct worker workers[THREADS];
    unsigned failures = 0, refused = 0;
    uint64_t free_bytes = 0, total = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.device = device, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) { /* streams that stop and go on meanwhile */
        assert_int_equal(varve_host_stream_block(device, 1), 0);
        sched_yield();
        assert_int_equal(varve_host_stream_release(device, 1), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        failures += workers[i].failures;
        refused += workers[i].refused;
    }
    assert_int_equal(failures, 0);
    assert_true(refused < THREADS * ROUNDS);
    assert_int_equal(device->ops->memory_info(device, &free_bytes, &total), 0);
    assert_int_equal(free_bytes, total);
    host_close(device);
}
