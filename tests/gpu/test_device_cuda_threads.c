/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads at one allocator on the cuda device, each with a stream of its own, and together short of
 * memory: what one frees another one gets, with the driver busy in between. All that they write is looked at.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/random.h"

#include <pthread.h>

#define THREADS 4U
#define STEPS 400U

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
    for (unsigned i = 0; i < STEPS; i++) {
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
            assert_true(workers[k].refused < STEPS);
        }
        assert_int_equal(failures, 0);
        close_both(alloc, device);
        for (unsigned k = 0; k < THREADS; k++) {
            GPU_OK(gpu.stream_destroy(gpu_stream_of(workers[k].stream)));
        }
    }
}

TEST_FILE(gpu_start, NULL)
