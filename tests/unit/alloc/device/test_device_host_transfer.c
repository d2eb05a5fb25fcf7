/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the host device: random work on four of them is compared with a list of the work, done as it stands there
 * on arrays of bytes; and a block under an allocator that is still to be read.
 * Costs: 1 s
 */
#include "support/cuda/device.h"
#include "support/random.h"

#include <stdio.h>
#include <string.h>

#define BLOCKED 8
#define FREE 9

static int copy(struct varve_device *device, uint64_t target, uint64_t source, uint64_t bytes, uint64_t stream)
{
    return device->ops->copy(device, target, source, bytes, VARVE_COPY_WITHIN, stream);
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
