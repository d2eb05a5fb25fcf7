/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the host device on streams that are held back: they wait, in order, and what waits for them
 * waits as well, freeing the memory that they use included. Random work on four streams is compared with a list of
 * the work, done as it stands there on arrays of bytes. And threads that copy side by side, made for the thread
 * sanitizer.
 * Costs: 1 s
 */
#include "support/cuda/device.h"
#include "support/random.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKED 8
#define FREE 9

static int copy(struct varve_device *device, uint64_t target, uint64_t source, uint64_t bytes, uint64_t stream)
{
    return device->ops->copy(device, target, source, bytes, VARVE_COPY_WITHIN, stream);
}

TEST(test_queue)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096), host = 0, event = 0;
    assert_int_equal(ops->host_alloc(device, 4096, &host), 0);
    assert_int_equal(ops->event_create(device, &event), 0);
    memset(at(host), 0x11, 4096);
    assert_int_equal(varve_host_stream_block(device, BLOCKED), 0);
    assert_int_equal(ops->copy(device, addr, host, 1000, VARVE_COPY_HOST_TO_DEVICE, BLOCKED), 0);
    assert_int_equal(ops->fill(device, addr + 500, 0x2233, 2, 100, BLOCKED), 0);
    assert_int_equal(copy(device, addr + 2000, addr + 400, 400, BLOCKED), 0);
    assert_int_equal(ops->event_record(device, event, BLOCKED), 0);
    assert_int_equal(ops->fill(device, addr + 1999, 0x44, 1, 1, FREE), 0);
    assert_int_equal(ops->event_query(device, event), 0);
    assert_int_equal(at(addr)[0], 0);
    assert_int_equal(at(addr)[1999], 0x44); /* of a stream that is not held back */
    assert_int_equal(at(addr)[2000], 0);
    at(host)[0] = 0x55; /* which is what asynchronous copies see */
    assert_int_equal(varve_host_stream_release(device, BLOCKED), 0);
    assert_int_equal(ops->event_query(device, event), 1);
    assert_int_equal(at(addr)[0], 0x55);
    assert_int_equal(at(addr)[499], 0x11);
    assert_int_equal(at(addr)[500], 0x33);
    assert_int_equal(at(addr)[501], 0x22);
    assert_int_equal(at(addr)[2099], 0x11);
    assert_int_equal(at(addr)[2100], 0x33);
    assert_int_equal(at(addr)[2399], 0x11);
    assert_int_equal(at(addr)[2400], 0);
    assert_int_equal(ops->fill(device, addr, 0x66, 1, 1, BLOCKED), 0);
    assert_int_equal(at(addr)[0], 0x66); /* at once again */
    host_close(device);
}

/* A chain: 3 waits for 2, which waits for 1, which is blocked; whichever is asked for, all of it comes in order. */
TEST(test_wait_event)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096), events[3];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->event_create(device, &events[i]), 0);
    }
    assert_int_equal(varve_host_stream_block(device, 1), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(i == 0 ? 0 : ops->stream_wait_event(device, i + 1, events[i - 1]), 0);
        assert_int_equal(ops->fill(device, addr + i, 0x10 + i, 1, 100, i + 1), 0);
        assert_int_equal(ops->event_record(device, events[i], i + 1), 0);
        assert_int_equal(ops->event_query(device, events[i]), 0);
    }
    assert_int_equal(ops->stream_wait_event(device, 1, events[0]), 0); /* itself: in order anyhow */
    assert_int_equal(varve_host_stream_block(device, 2), 0);
    assert_int_equal(ops->event_destroy(device, events[1]), 0); /* its record is waited for all the same */
    assert_int_equal(ops->fill(device, addr + 500, 0x77, 1, 1, 4), 0);
    assert_int_equal(ops->stream_wait_event(device, 4, events[0]), 0);
    assert_int_equal(at(addr)[500], 0x77);
    assert_int_equal(varve_host_check(device, NULL), 0);
    assert_int_equal(at(addr)[0] + at(addr)[1] + at(addr)[2], 0);
    assert_int_equal(varve_host_stream_release(device, 1), 0);
    assert_int_equal(at(addr)[0], 0x10);
    assert_int_equal(at(addr)[2], 0x10); /* 2 is blocked by itself now, and 3 waits for it */
    assert_int_equal(ops->event_query(device, events[0]), 1);
    assert_int_equal(ops->event_query(device, events[2]), 0);
    assert_int_equal(ops->fill(device, addr + 3000, 0x99, 1, 1, 4), 0);
    assert_int_equal(at(addr)[3000], 0x99); /* what it waited for is complete */
    assert_int_equal(varve_host_check(device, NULL), 0);
    assert_int_equal(varve_host_stream_release(device, 2), 0);
    assert_int_equal(at(addr)[1], 0x11);
    assert_int_equal(at(addr)[2], 0x12);
    assert_int_equal(at(addr)[101], 0x12);
    assert_int_equal(ops->event_query(device, events[2]), 1);
    host_close(device);
}

/* Two records of one stream with a wait between them: who waits for the second is not let go by the first. */
TEST(test_wait_between_records)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096), blocked = 0, first = 0, second = 0;
    assert_int_equal(ops->event_create(device, &blocked), 0);
    assert_int_equal(ops->event_create(device, &first), 0);
    assert_int_equal(ops->event_create(device, &second), 0);
    assert_int_equal(varve_host_stream_block(device, 1), 0);
    assert_int_equal(varve_host_stream_block(device, 2), 0);
    assert_int_equal(ops->event_record(device, blocked, 1), 0);
    assert_int_equal(ops->event_record(device, first, 2), 0);
    assert_int_equal(ops->stream_wait_event(device, 2, blocked), 0);
    assert_int_equal(ops->event_record(device, second, 2), 0);
    assert_int_equal(ops->stream_wait_event(device, 3, second), 0);
    assert_int_equal(ops->fill(device, addr, 1, 1, 1, 3), 0);
    assert_int_equal(varve_host_stream_release(device, 2), 0);
    assert_int_equal(ops->event_query(device, first), 1);
    assert_int_equal(ops->event_query(device, second), 0);
    assert_int_equal(at(addr)[0], 0);
    assert_int_equal(varve_host_stream_release(device, 1), 0);
    assert_int_equal(ops->event_query(device, second), 1);
    assert_int_equal(at(addr)[0], 1);
    host_close(device);
}

/* A thread that frees memory, and says when it is done. */
struct freer {
    pthread_t thread;
    struct varve_device *device;
    uint64_t addr;
    bool is_host;
    int result;
    uint32_t done; /* atomic */
};

static void *free_it(void *context)
{
    struct freer *freer = context;
    const struct varve_device_ops *ops = freer->device->ops;
    freer->result = freer->is_host ? ops->host_free(freer->device, freer->addr)
                                   : ops->segment_free(freer->device, freer->addr, 4096);
    __atomic_store_n(&freer->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Both ends of a queued copy are freed: that waits for the copy. Unmapping is refused until then. */
TEST(test_freeing_waits)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    struct freer freers[2] = {{.device = device, .addr = segment(device, 4096)}, {.device = device, .is_host = true}};
    uint64_t other = segment(device, 4096), base = 0, handle = 0;
    assert_int_equal(ops->host_alloc(device, 4096, &freers[1].addr), 0);
    assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handle), 0);
    assert_int_equal(ops->vmm_set_access(device, base, UNIT, 0), 0);
    memset(at(freers[1].addr), 0x61, 4096);
    assert_int_equal(varve_host_stream_block(device, BLOCKED), 0);
    assert_int_equal(ops->copy(device, freers[0].addr, freers[1].addr, 4096, VARVE_COPY_HOST_TO_DEVICE, BLOCKED), 0);
    assert_int_equal(copy(device, base + 5, freers[0].addr, 4096, BLOCKED), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&freers[i].thread, NULL, free_it, &freers[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ops->vmm_unmap(device, base, UNIT), VARVE_ERROR_BUSY);
        assert_int_equal(__atomic_load_n(&freers[i % 2].done, __ATOMIC_ACQUIRE), 0);
        usleep(1000);
    }
    assert_int_equal(ops->segment_free(device, other, 4096), 0); /* which nobody uses */
    assert_int_equal(varve_host_stream_release(device, BLOCKED), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(freers[i].thread, NULL), 0);
        assert_int_equal(freers[i].result, 0);
    }
    assert_int_equal(at(base)[5], 0x61);
    assert_int_equal(at(base)[4100], 0x61);
    assert_int_equal(ops->vmm_unmap(device, base, UNIT), 0);
    host_close(device);
}

TEST(test_queue_is_dropped)
{
    struct varve_device *device = host_open(0);
    unsigned char host[10] = {0};
    uint64_t addr = segment(device, 4096);
    assert_int_equal(device->ops->fill(device, addr, 1, 1, 10, BLOCKED), 0);
    assert_int_equal(varve_host_stream_block(device, BLOCKED), 0);
    assert_int_equal(device->ops->copy(device, (uint64_t)(uintptr_t)host, addr, 10, VARVE_COPY_DEVICE_TO_HOST, BLOCKED),
                     0);
    host_close(device);
    assert_int_equal(host[0], 0);
}

TEST(test_created_streams)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096), stream = 0, other = 0, event = 0;
    assert_int_equal(ops->event_create(device, &event), 0);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    assert_int_equal(varve_host_stream_block(device, stream), 0);
    assert_int_equal(ops->fill(device, addr, 7, 1, 1, stream), 0);
    assert_int_equal(ops->stream_destroy(device, stream), 0);
    assert_int_equal(ops->fill(device, addr, 8, 1, 1, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(copy(device, addr, addr + 10, 10, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_record(device, event, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_wait_event(device, stream, event), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_synchronize(device, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->stream_create(device, &other), 0);
    assert_true(other != stream);
    assert_int_equal(varve_host_stream_release(device, stream), 0); /* what it has is still done */
    assert_int_equal(at(addr)[0], 7);
    host_close(device);
}

TEST(test_fork)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096);
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint64_t out = 0;
        _exit(ops->fill(device, addr, 1, 1, 1, 0) == VARVE_ERROR_UNSUPPORTED &&
                      copy(device, addr, addr + 10, 1, 0) == VARVE_ERROR_UNSUPPORTED &&
                      ops->stream_create(device, &out) == VARVE_ERROR_UNSUPPORTED &&
                      ops->host_alloc(device, 1, &out) == VARVE_ERROR_UNSUPPORTED
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    host_close(device);
}

/* ---- under an allocator ---- */

static uint64_t block_on(struct varve_alloc *alloc, uint64_t stream)
{
    uint64_t addr = 0;
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 4 * MIB, stream, &addr, NULL), 0);
    return addr;
}

/* A block is freed while a copy on another stream has still to read it: not before that is done does its memory serve
 * another request. */
TEST(test_block_is_still_read)
{
    struct varve_device *device = host_open(0);
    const struct varve_device_ops *ops = device->ops;
    struct varve_alloc_options options;
    struct varve_alloc *alloc = NULL;
    varve_alloc_options_init(&options);
    options.device = device;
    assert_int_equal(varve_alloc_open(&options, &alloc, NULL), 0);
    uint64_t source = block_on(alloc, FREE);
    uint64_t target = block_on(alloc, FREE);
    assert_int_equal(ops->fill(device, source, 0x11, 1, 4 * MIB, FREE), 0);
    assert_int_equal(varve_host_stream_block(device, BLOCKED), 0);
    assert_int_equal(copy(device, target, source, 4 * MIB, BLOCKED), 0);
    assert_int_equal(varve_alloc_record_stream(alloc, source, BLOCKED, NULL), 0);
    assert_int_equal(varve_alloc_raw_delete(alloc, source, NULL), 0);
    uint64_t other = block_on(alloc, FREE);
    assert_true(other != source);
    assert_int_equal(ops->fill(device, other, 0x22, 1, 4 * MIB, FREE), 0);
    assert_int_equal(varve_host_stream_release(device, BLOCKED), 0);
    for (uint64_t i = 0; i < 4 * MIB; i++) {
        assert_int_equal(at(target)[i], 0x11);
    }
    assert_int_equal(block_on(alloc, FREE), source);
    assert_int_equal(varve_alloc_check(alloc, NULL), 0);
    varve_alloc_close(alloc);
    host_close(device);
}

/* ---- random work ---- */

#define STREAMS 4U
#define EVENTS 6U
#define MEMORY 256U
#define WORKS 300U

struct model_work {
    enum { MODEL_COPY, MODEL_FILL, MODEL_RECORD, MODEL_WAIT } kind;
    unsigned stream;
    uint64_t target, source, bytes; /* offsets */
    unsigned char value;
    size_t other; /* MODEL_WAIT: the record */
    bool is_done;
};

struct model {
    unsigned char memory[MEMORY];
    struct model_work works[WORKS];
    size_t count;
    bool is_blocked[STREAMS];
    size_t records[EVENTS]; /* work + 1; 0: none */
};

static void model_do(struct model *model, struct model_work *work)
{
    if (work->kind == MODEL_COPY) {
        memmove(model->memory + work->target, model->memory + work->source, work->bytes);
    } else if (work->kind == MODEL_FILL) {
        memset(model->memory + work->target, work->value, work->bytes);
    }
    work->is_done = true;
}

/* From the beginning again after each piece of work, until nothing can go on. */
static void model_run(struct model *model)
{
    size_t i = 0;
    while (i < model->count) {
        struct model_work *work = &model->works[i];
        bool can = !work->is_done && !model->is_blocked[work->stream] &&
                   (work->kind != MODEL_WAIT || model->works[work->other].is_done);
        for (size_t k = 0; k < i && can; k++) {
            can = model->works[k].is_done || model->works[k].stream != work->stream;
        }
        if (can) {
            model_do(model, work);
            i = 0;
        } else {
            i++;
        }
    }
}

static void model_add(struct model *model, struct model_work work)
{
    assert_true(model->count < WORKS);
    model->works[model->count++] = work;
    model_run(model);
}

static void random_copy(struct varve_device *device, struct model *model, uint64_t addr, uint64_t *seed)
{
    uint64_t bytes = 1 + random_below(seed, 60), target = random_below(seed, MEMORY - bytes);
    uint64_t source = random_below(seed, MEMORY - bytes);
    unsigned stream = (unsigned)random_below(seed, STREAMS);
    bool overlaps = target < source + bytes && source < target + bytes;
    assert_int_equal(copy(device, addr + target, addr + source, bytes, stream), overlaps ? VARVE_ERROR_INVALID : 0);
    if (!overlaps) {
        model_add(model, (struct model_work){
                             .kind = MODEL_COPY, .stream = stream, .target = target, .source = source, .bytes = bytes});
    }
}

static void random_fill(struct varve_device *device, struct model *model, uint64_t addr, uint64_t *seed)
{
    uint64_t bytes = 1 + random_below(seed, 60), target = random_below(seed, MEMORY - bytes);
    unsigned stream = (unsigned)random_below(seed, STREAMS);
    unsigned char value = (unsigned char)random_next(seed);
    assert_int_equal(device->ops->fill(device, addr + target, value, 1, bytes, stream), 0);
    model_add(model, (struct model_work){
                         .kind = MODEL_FILL, .stream = stream, .target = target, .bytes = bytes, .value = value});
}

static void random_event(struct varve_device *device, struct model *model, const uint64_t *events, uint64_t *seed)
{
    size_t event = random_below(seed, EVENTS);
    unsigned stream = (unsigned)random_below(seed, STREAMS);
    if (random_below(seed, 2) == 0) {
        assert_int_equal(device->ops->event_record(device, events[event], stream), 0);
        model_add(model, (struct model_work){.kind = MODEL_RECORD, .stream = stream});
        model->records[event] = model->count;
    } else {
        assert_int_equal(device->ops->stream_wait_event(device, stream, events[event]), 0);
        if (model->records[event] != 0) {
            model_add(model,
                      (struct model_work){.kind = MODEL_WAIT, .stream = stream, .other = model->records[event] - 1});
        }
    }
}

static void random_gate(struct varve_device *device, struct model *model, uint64_t *seed)
{
    unsigned stream = (unsigned)random_below(seed, STREAMS);
    if (model->is_blocked[stream]) {
        model->is_blocked[stream] = false;
        assert_int_equal(varve_host_stream_release(device, stream), 0);
        model_run(model);
    } else {
        assert_int_equal(varve_host_stream_block(device, stream), 0);
        model->is_blocked[stream] = true;
    }
}

static size_t compare(struct varve_device *device, const struct model *model, uint64_t addr, const uint64_t *events)
{
    size_t waiting = 0;
    assert_memory_equal(at(addr), model->memory, MEMORY);
    for (size_t i = 0; i < EVENTS; i++) {
        bool is_done = model->records[i] == 0 || model->works[model->records[i] - 1].is_done;
        assert_int_equal(device->ops->event_query(device, events[i]), is_done);
    }
    for (size_t i = 0; i < model->count; i++) {
        waiting += !model->works[i].is_done;
    }
    assert_int_equal(varve_host_check(device, NULL), 0);
    return waiting;
}

TEST(test_random)
{
    static struct model model;
    uint64_t seed = test_first_seed(1), waited = 0;
    for (unsigned round = 0; round < 30; round++) {
        struct varve_device *device = host_open(0);
        uint64_t addr = segment(device, MEMORY), events[EVENTS], random = seed + round;
        model = (struct model){.count = 0};
        for (size_t i = 0; i < EVENTS; i++) {
            assert_int_equal(device->ops->event_create(device, &events[i]), 0);
        }
        for (unsigned step = 0; step < 300; step++) {
            uint64_t choice = random_below(&random, 10);
            if (choice < 3) {
                random_copy(device, &model, addr, &random);
            } else if (choice < 6) {
                random_fill(device, &model, addr, &random);
            } else if (choice < 9) {
                random_event(device, &model, events, &random);
            } else {
                random_gate(device, &model, &random);
            }
            waited += compare(device, &model, addr, events);
        }
        host_close(device);
    }
    printf("on average %.1f pieces of work were waiting\n", (double)waited / 9000);
    assert_true(waited > 9000);
}

/* ---- threads ---- */

#define THREADS 4U
#define ROUNDS 200U
#define PART ((uint64_t)64 << 10)

struct worker {
    pthread_t thread;
    struct varve_device *device;
    uint64_t addr, stream;
    unsigned failures;
};

/* There and back again on a stream of its own, which another thread holds back now and then. */
static void *work(void *context)
{
    struct worker *worker = context;
    struct varve_device *device = worker->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t host = 0;
    worker->failures += ops->host_alloc(device, 2 * PART, &host) != 0;
    for (unsigned i = 0; i < ROUNDS && worker->failures == 0; i++) {
        memset(at(host), (int)i, PART);
        worker->failures += ops->copy(device, worker->addr, host, PART, VARVE_COPY_HOST_TO_DEVICE, worker->stream) != 0;
        worker->failures += copy(device, worker->addr + PART, worker->addr, PART, worker->stream) != 0;
        worker->failures += ops->fill(device, worker->addr + PART, ~i, 4, 1, worker->stream) != 0;
        worker->failures +=
            ops->copy(device, host + PART, worker->addr + PART, PART, VARVE_COPY_DEVICE_TO_HOST, worker->stream) != 0;
        worker->failures += ops->stream_synchronize(device, worker->stream) != 0;
        worker->failures += *(uint32_t *)(uintptr_t)(host + PART) != ~i;
        worker->failures += memcmp(at(host) + 4, at(host + PART) + 4, PART - 4) != 0;
    }
    worker->failures += ops->host_free(device, host) != 0;
    return NULL;
}

TEST(test_threads)
{
    struct varve_device *device = host_open(0);
    struct worker workers[THREADS];
    unsigned failures = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.device = device, .addr = segment(device, 2 * PART)};
        assert_int_equal(device->ops->stream_create(device, &workers[i].stream), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(varve_host_stream_block(device, workers[i % 2].stream), 0);
        sched_yield();
        assert_int_equal(varve_host_stream_release(device, workers[i % 2].stream), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        failures += workers[i].failures;
    }
    assert_int_equal(failures, 0);
    host_close(device);
}
