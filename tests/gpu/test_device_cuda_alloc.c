/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caching allocator on the cuda device, with real work in its memory: out of memory and back, expandable
 * segments, blocks that other streams still read when they are freed, pools of captured graphs, peers. What
 * is written is looked at, since memory handed out too early shows nowhere else. Most of it goes through
 * segments, expandable segments and the driver's own pool (cuda-async). And many threads: what one frees another one
 * gets, with the driver busy in between.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/random.h"

#include <pthread.h>

#define BLOCKS 64U

/* ---- out of memory ---- */

/* Until nothing is left, with a mark in each; then one that needs what all of them had. */
static void run_out(struct varve_alloc *alloc, uint64_t bytes)
{
    uint64_t addrs[BLOCKS] = {0};
    size_t count = 0;
    struct varve_message message = {""};
    int error = VARVE_OK;
    while (count < BLOCKS && error == VARVE_OK) {
        error = varve_alloc_raw_alloc(alloc, bytes, &addrs[count], &message);
        if (error == VARVE_OK) {
            gpu_fill(addrs[count] + bytes - 4096, 4096, (unsigned char)(count + 1), 0);
            count++;
        }
    }
    assert_int_equal(error, VARVE_ERROR_NO_MEMORY);
    assert_true(strlen(message.text) > 50);
    assert_true(count >= 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(gpu_first_other(addrs[i] + bytes - 4096, 4096, (unsigned char)(i + 1)), 4096);
        give(alloc, addrs[i]);
    }
    addrs[0] = block(alloc, 3 * bytes, 0);
    gpu_fill(addrs[0], 3 * bytes, 0x7e, 0);
    assert_int_equal(gpu_first_other(addrs[0] + 3 * bytes - 4096, 4096, 0x7e), 4096);
    give(alloc, addrs[0]);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(alloc), 0);
}

TEST(test_out_of_memory)
{
    for (int i = 0; i < 2 * WAYS; i++) {
        uint64_t limit = i < WAYS ? 300 * MIB : 0, free_bytes = 0, total = 0;
        struct varve_device *device = cuda_open(limit);
        struct varve_alloc *alloc = must_open_as(device, (enum way)(i % WAYS));
        assert_int_equal(device->ops->memory_info(device, &free_bytes, &total), 0);
        run_out(alloc, limit ? 40 * MIB : free_bytes / 12 / UNIT * UNIT); /* all that the GPU has */
        close_both(alloc, device);
    }
}

static void *open_later(void *context)
{
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    gpu_gate_open(context);
    return NULL;
}

/* All memory is in a block that is free, but that another stream may still read: the request waits for it. */
TEST(test_waits_for_streams)
{
    for (int i = 0; i < 2; i++) {
        struct varve_device *device = cuda_open(100 * MIB);
        struct varve_alloc *alloc = must_open(device, i == 1);
        uint64_t reader = gpu_stream(), addr = block(alloc, 80 * MIB, 0);
        struct gpu_gate gate;
        gpu_gate_shut(&gate, reader);
        assert_int_equal(varve_alloc_record_stream(alloc, addr, reader, NULL), VARVE_OK);
        give(alloc, addr);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
        addr = block(alloc, 90 * MIB, 0);
        assert_int_equal(__atomic_load_n(&gate.is_open, __ATOMIC_ACQUIRE), 1);
        assert_int_equal(pthread_join(thread, NULL), 0);
        give(alloc, addr);
        GPU_OK(gpu.stream_destroy(gpu_stream_of(reader)));
        close_both(alloc, device);
    }
}

/* ---- expandable segments ---- */

TEST(test_expandable)
{
    struct varve_device *device = cuda_open(0);
    struct varve_alloc *alloc = must_open(device, true);
    uint64_t addrs[BLOCKS], bytes[BLOCKS], before = 0, after = 0, total;
    assert_int_equal(device->ops->memory_info(device, &before, &total), 0);
    for (unsigned i = 0; i < BLOCKS; i++) { /* small ones and large ones: two segments that grow */
        bytes[i] = i % 3 ? (i + 1) * 700000 : (i + 1) * 3000;
        addrs[i] = block(alloc, bytes[i], 0);
        gpu_fill(addrs[i], bytes[i], (unsigned char)(i + 1), 0);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_int_equal(gpu_first_other(addrs[i], bytes[i], (unsigned char)(i + 1)), bytes[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        give(alloc, addrs[i]);
    }
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK); /* holes amid what is in use */
    uint64_t large = block(alloc, 500 * MIB, 0);
    gpu_fill(large, 500 * MIB, 0x99, 0);
    for (unsigned i = 1; i < BLOCKS; i += 2) {
        assert_int_equal(gpu_first_other(addrs[i], bytes[i], (unsigned char)(i + 1)), bytes[i]);
        give(alloc, addrs[i]);
    }
    assert_int_equal(gpu_first_other(large, 64 * MIB, 0x99), 64 * MIB);
    assert_int_equal(gpu_first_other(large + 436 * MIB, 64 * MIB, 0x99), 64 * MIB);
    give(alloc, large);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(alloc), 0);
    assert_int_equal(device->ops->memory_info(device, &after, &total), 0);
    assert_true(after + 64 * MIB > before); /* the driver keeps some for its tables */
    close_both(alloc, device);
}

/* ---- streams ---- */

/* The second stream copies what the first one wrote, but only when the gate opens; the block is freed at once
 * and the first stream goes on allocating and writing. That one is waited for before the gate opens, so no
 * free may let it wait for the second one. Returns how many copies are not what they must be. */
static unsigned read_late(struct varve_alloc *alloc, bool is_recorded)
{
    uint64_t writer = gpu_stream(), reader = gpu_stream(), copies[BLOCKS];
    struct gpu_gate gate;
    unsigned wrong = 0;
    gpu_gate_shut(&gate, reader);
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t addr = block(alloc, MIB, writer);
        cuda_event written = NULL;
        copies[i] = block(alloc, MIB, reader);
        gpu_fill(addr, MIB, (unsigned char)(i + 1), writer);
        GPU_OK(gpu.event_create(&written, CUDA_EVENT_NO_TIMING));
        GPU_OK(gpu.event_record(written, gpu_stream_of(writer)));
        GPU_OK(gpu.stream_wait_event(gpu_stream_of(reader), written, 0));
        GPU_OK(gpu.event_destroy(written));
        GPU_OK(gpu.copy(copies[i], addr, MIB, gpu_stream_of(reader)));
        if (is_recorded) {
            assert_int_equal(varve_alloc_record_stream(alloc, addr, reader, NULL), VARVE_OK);
        }
        give(alloc, addr);
    }
    GPU_OK(gpu.stream_synchronize(gpu_stream_of(writer)));
    gpu_gate_open(&gate);
    GPU_OK(gpu.stream_synchronize(gpu_stream_of(reader)));
    for (unsigned i = 0; i < BLOCKS; i++) {
        wrong += gpu_first_other(copies[i], MIB, (unsigned char)(i + 1)) != MIB;
        give(alloc, copies[i]);
    }
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK); /* no memory of a stream that is no more */
    GPU_OK(gpu.stream_destroy(gpu_stream_of(writer)));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(reader)));
    return wrong;
}

TEST_CUDA_WAYS(test_streams, WAYS, 0)
{
    for (int round = 0; round < 5; round++) {
        assert_int_equal(read_late(alloc, true), 0);
    }
    assert_true(read_late(alloc, false) > 0); /* what this test would see */
}

#define STEPS 400U
#define STREAMS 3U
#define PROOF 4096U /* bytes of a block that are kept: its last ones */

/* Work on three streams without ever waiting for one: each block is written on its stream, often read on
 * another one, and freed before any of that has happened. Its end is copied away; who had the memory
 * meanwhile must not show in it. */
static void reuse(struct varve_alloc *alloc)
{
    uint64_t streams[STREAMS], proofs = block(alloc, STEPS * PROOF, 0), seed = 5, random;
    cuda_event written = NULL;
    GPU_OK(gpu.context_synchronize());
    GPU_OK(gpu.event_create(&written, CUDA_EVENT_NO_TIMING));
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = gpu_stream();
    }
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t writer = streams[i % STREAMS];
        random = random_next(&seed);
        uint64_t reader = streams[random >> 60 & 1 ? i % STREAMS : (i + 1) % STREAMS];
        uint64_t bytes = PROOF + (random >> 20) % (random >> 63 ? 12 * MIB : MIB) / 512 * 512;
        uint64_t addr = block(alloc, bytes, writer);
        gpu_fill(addr, bytes, (unsigned char)(i % 251 + 1), writer);
        if (reader != writer) {
            GPU_OK(gpu.event_record(written, gpu_stream_of(writer)));
            GPU_OK(gpu.stream_wait_event(gpu_stream_of(reader), written, 0));
            assert_int_equal(varve_alloc_record_stream(alloc, addr, reader, NULL), VARVE_OK);
        }
        GPU_OK(gpu.copy(proofs + i * PROOF, addr + bytes - PROOF, PROOF, gpu_stream_of(reader)));
        give(alloc, addr);
    }
    GPU_OK(gpu.context_synchronize());
    for (unsigned i = 0; i < STEPS; i++) {
        assert_int_equal(gpu_first_other(proofs + i * PROOF, PROOF, (unsigned char)(i % 251 + 1)), PROOF);
    }
    give(alloc, proofs);
    assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(alloc), 0);
    for (unsigned i = 0; i < STREAMS; i++) {
        GPU_OK(gpu.stream_destroy(gpu_stream_of(streams[i])));
    }
    GPU_OK(gpu.event_destroy(written));
}

TEST_CUDA_WAYS(test_reuse, WAYS, 0)
{
    for (int round = 0; round < 3; round++) {
        reuse(alloc);
    }
}

/* What the pool gave back is the GPU's again, and what it keeps is not mapped anew. */
TEST_CUDA(test_pool, 0)
{
    uint64_t stream = gpu_stream(), addr = 0, before = 0, held = 0, after = 0, total, captured = 0;
    gpu_graph graph = NULL;
    assert_int_equal(ops->memory_info(device, &before, &total), 0);
    assert_int_equal(ops->alloc_async(device, 512 * MIB, stream, &addr), 0);
    gpu_fill(addr, 512 * MIB, 0x41, stream);
    assert_int_equal(ops->free_async(device, addr, 512 * MIB, stream), 0);
    assert_int_equal(ops->stream_synchronize(device, stream), 0);
    assert_int_equal(ops->memory_info(device, &held, &total), 0);
    assert_true(held + 256 * MIB < before); /* it waits, and keeps its memory */
    assert_int_equal(ops->pool_trim(device, 0), 0);
    assert_int_equal(ops->memory_info(device, &after, &total), 0);
    assert_true(after > held + 256 * MIB);
    assert_int_equal(ops->alloc_async(device, MIB, stream, &addr), 0);
    GPU_OK(gpu.capture_begin(gpu_stream_of(stream), CUDA_CAPTURE_MODE_GLOBAL));
    assert_int_equal(ops->alloc_async(device, MIB, stream, &captured), VARVE_ERROR_BUSY);
    assert_int_equal(ops->free_async(device, addr, MIB, stream), VARVE_ERROR_BUSY);
    printf("in a capture: %s\n", cuda_reason(device));
    GPU_OK(gpu.capture_end(gpu_stream_of(stream), &graph)); /* it was not harmed */
    GPU_OK(gpu.graph_destroy(graph));
    assert_int_equal(ops->free_async(device, addr, MIB, stream), 0);
    assert_int_equal(ops->stream_synchronize(device, stream), 0);
    GPU_OK(gpu.stream_destroy(gpu_stream_of(stream)));
}

/* ---- graphs ---- */

static bool is_stream(void *context, uint64_t stream)
{
    return stream == *(uint64_t *)context;
}

/* A captured chain in blocks of a private pool, freed and taken again within the capture; then launches,
 * while the default pool hands out and overwrites all that it has. */
static void graph_run(struct varve_alloc *alloc, struct varve_device *device)
{
    const struct varve_pool_id pool = {0, 1};
    uint64_t stream = gpu_stream();
    gpu_graph graph = NULL;
    gpu_graph_exec exec = NULL;
    uint64_t other = block(alloc, 30 * MIB, 0);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(alloc, pool, is_stream, &stream), VARVE_OK);
    GPU_OK(gpu.capture_begin(gpu_stream_of(stream), CUDA_CAPTURE_MODE_GLOBAL));
    uint64_t result = block(alloc, 3 * MIB, stream);
    uint64_t first = block(alloc, 2 * MIB, stream);
    gpu_fill(first, 2 * MIB, 0x31, stream);
    GPU_OK(gpu.copy(result, first, MIB, gpu_stream_of(stream)));
    give(alloc, first);
    uint64_t second = block(alloc, 2 * MIB, stream);
    gpu_fill(second, 2 * MIB, 0x32, stream);
    GPU_OK(gpu.copy(result + MIB, second + MIB, MIB, gpu_stream_of(stream)));
    give(alloc, second);
    uint64_t third = block(alloc, 25 * MIB, stream); /* a new segment, in the middle of the capture */
    gpu_fill(third, 25 * MIB, 0x33, stream);
    GPU_OK(gpu.copy(result + 2 * MIB, third + 24 * MIB, MIB, gpu_stream_of(stream)));
    give(alloc, third);
    give(alloc, other); /* the default pool goes on meanwhile */
    other = block(alloc, 30 * MIB, 0);
    GPU_OK(gpu.capture_end(gpu_stream_of(stream), &graph));
    assert_int_equal(varve_alloc_end_allocate_to_pool(alloc, pool), VARVE_OK);
    assert_non_null(graph);
    assert_int_equal(first, second); /* the same stream's: nothing to wait for */
    GPU_OK(gpu.graph_make(&exec, graph, 0));
    for (unsigned char launch = 0; launch < 5; launch++) {
        uint64_t more = block(alloc, 2 * MIB, stream); /* of the default pool, not of the graph's */
        gpu_fill(more, 2 * MIB, 0xe0, stream);
        gpu_fill(other, 30 * MIB, launch, stream);
        gpu_fill(result, 3 * MIB, launch, stream);
        GPU_OK(gpu.graph_launch(exec, gpu_stream_of(stream)));
        assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
        GPU_OK(gpu.stream_synchronize(gpu_stream_of(stream)));
        for (unsigned char part = 0; part < 3; part++) {
            assert_int_equal(gpu_first_other(result + part * MIB, MIB, 0x31 + part), MIB);
        }
        assert_int_equal(gpu_first_other(other, 30 * MIB, launch), 30 * MIB);
        assert_int_equal(gpu_first_other(more, 2 * MIB, 0xe0), 2 * MIB);
        give(alloc, more);
    }
    GPU_OK(gpu.graph_exec_destroy(exec));
    GPU_OK(gpu.graph_destroy(graph));
    give(alloc, result);
    give(alloc, other);
    assert_int_equal(varve_alloc_release_pool(alloc, pool), VARVE_OK);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(alloc), 0);
    assert_int_equal(varve_cuda_check(device, NULL), VARVE_OK);
    GPU_OK(gpu.stream_destroy(gpu_stream_of(stream)));
}

TEST_CUDA_WAYS(test_graphs, WAYS, 0)
{
    graph_run(alloc, device);
    graph_run(alloc, device);
}

/* ---- peers ---- */

/* The second GPU writes into memory of the first one. */
TEST(test_peers)
{
    cuda_context peer_context = NULL;
    if (gpu.count < 2) {
        skip("peers need two GPUs");
    }
    GPU_OK(gpu.primary_retain(&peer_context, 1));
    for (int way = 0; way < WAYS; way++) {
        struct varve_device *device = cuda_open(0);
        struct varve_alloc *alloc = must_open_as(device, (enum way)way);
        uint64_t early = block(alloc, 4 * MIB, 0);
        int error = varve_alloc_enable_peer(alloc, 1);
        if (error == VARVE_ERROR_UNSUPPORTED) {
            printf("skipped: %s\n", cuda_reason(device));
            close_both(alloc, device);
            continue;
        }
        assert_int_equal(error, VARVE_OK);
        assert_int_equal(varve_alloc_enable_peer(alloc, 1), VARVE_OK);
        uint64_t late = block(alloc, 40 * MIB, 0);
        GPU_OK(gpu.context_synchronize()); /* from here on it is good for all streams */
        GPU_OK(gpu.context_set(peer_context));
        gpu_fill(early, 4 * MIB, 0x21, 0);
        gpu_fill(late, 40 * MIB, 0x22, 0);
        GPU_OK(gpu.context_synchronize());
        GPU_OK(gpu.context_set(gpu.context));
        assert_int_equal(gpu_first_other(early, 4 * MIB, 0x21), 4 * MIB);
        assert_int_equal(gpu_first_other(late, 40 * MIB, 0x22), 40 * MIB);
        close_both(alloc, device);
    }
    GPU_OK(gpu.primary_release(1));
}

/* ---- speed: not asserted ---- */

/* ---- many threads, each with a stream of its own, and together short of memory ---- */

#define THREADS 4U
#define THREAD_STEPS 400U

struct worker {
    pthread_t thread;
    struct varve_alloc *alloc;
    uint64_t stream, refused;
    unsigned number, failures;
};

static void work_once(struct worker *worker, uint64_t bytes, unsigned char value)
{
    uint64_t addr = 0;
    int error = varve_alloc_raw_alloc_with_stream(worker->alloc, bytes, worker->stream, &addr, NULL);
    if (error != VARVE_OK) {
        worker->refused += error == VARVE_ERROR_NO_MEMORY;
        worker->failures += error != VARVE_ERROR_NO_MEMORY;
        return;
    }
    worker->failures += gpu.fill(addr, value, bytes, gpu_stream_of(worker->stream)) != 0;
    worker->failures += gpu.stream_synchronize(gpu_stream_of(worker->stream)) != 0;
    worker->failures += gpu_first_other(addr, 512, value) != 512;
    worker->failures += gpu_first_other(addr + bytes - 512, 512, value) != 512;
    worker->failures += varve_alloc_raw_delete(worker->alloc, addr, NULL) != VARVE_OK;
}

static void *work(void *context)
{
    struct worker *worker = context;
    uint64_t seed = worker->number, random;
    worker->failures += gpu.context_set(gpu.context) != 0;
    for (unsigned i = 0; i < THREAD_STEPS; i++) {
        random = random_next(&seed);
        work_once(worker, 512 + (random >> 40) % (random >> 63 ? 2 * MIB : 40 * MIB),
                  (unsigned char)(worker->number * 64 + i % 64));
        if (random >> 33 == 0 || i % 100 == 50) {
            worker->failures += varve_alloc_empty_cache(worker->alloc) != VARVE_OK;
        }
    }
    return NULL;
}

TEST(test_threads)
{
    for (int i = 0; i < 3; i++) {
        struct varve_device *device = cuda_open(120 * MIB);
        struct varve_alloc_config config;
        unsigned failures = 0;
        varve_alloc_config_init(&config);
        config.expandable_segments = i == 1;
        config.release_lock_on_cudamalloc = i == 2;
        struct varve_alloc *alloc = alloc_open(device, &config);
        assert_non_null(alloc);
        struct worker workers[THREADS];
        for (unsigned k = 0; k < THREADS; k++) {
            workers[k] = (struct worker){.alloc = alloc, .stream = gpu_stream(), .number = k};
            assert_int_equal(pthread_create(&workers[k].thread, NULL, work, &workers[k]), 0);
        }
        for (unsigned k = 0; k < THREADS; k++) {
            assert_int_equal(pthread_join(workers[k].thread, NULL), 0);
            failures += workers[k].failures;
            assert_true(workers[k].refused < THREAD_STEPS);
        }
        assert_int_equal(failures, 0);
        close_both(alloc, device);
        for (unsigned k = 0; k < THREADS; k++) {
            GPU_OK(gpu.stream_destroy(gpu_stream_of(workers[k].stream)));
        }
    }
}

/* Streams in one queue of the GPU, of which there are 8 else, hold each other back. */
static int start(void **state)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return gpu_start(state);
}

TEST_FILE(start, NULL)
