/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages and views that come and go, in ns of processor time: run by bench_storage.py with the number of pairs.
 * Prints one JSON object, the least of several rounds for each kind.
 */
#include "storage/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 5

static const int64_t shape[] = {4, 4};

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void check(int error, const struct varve_message *message)
{
    if (error != VARVE_OK) {
        fprintf(stderr, "bench_storage: %s\n", message->text);
        exit(1);
    }
}

static double measure_storages(struct varve_memory *memory, long pairs)
{
    const struct varve_storage_options options = {.memory = memory};
    struct varve_message message = {""};
    double best = 1e18;

    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns(), ns;

        for (long i = 0; i < pairs; i++) {
            struct varve_storage *storage;

            check(varve_storage_empty(&options, VARVE_DTYPE_F32, 2, shape, &storage, &message), &message);
            check(varve_storage_release(storage, &message), &message);
        }
        ns = (now_ns() - begin) / (double)pairs;
        best = ns < best ? ns : best;
    }
    return best;
}

static double measure_views(bool is_slice, long pairs)
{
    struct varve_message message = {""};
    struct varve_storage *storage;
    double best = 1e18;

    check(varve_storage_empty(NULL, VARVE_DTYPE_F32, 2, shape, &storage, &message), &message);
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns(), ns;

        for (long i = 0; i < pairs; i++) {
            struct varve_storage *view;

            check(is_slice ? varve_storage_slice(storage, 0, 1, 3, 1, &view, &message)
                           : varve_storage_transpose(storage, 0, 1, &view, &message),
                  &message);
            check(varve_storage_release(view, &message), &message);
        }
        ns = (now_ns() - begin) / (double)pairs;
        best = ns < best ? ns : best;
    }
    check(varve_storage_release(storage, &message), &message);
    return best;
}

int main(int argc, char **argv)
{
    long pairs = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    struct varve_message message = {""};
    struct varve_alloc_options options;
    struct varve_memory *pool;
    struct varve_alloc *alloc;

    if (argc < 2) {
        fprintf(stderr, "%s: is run by bench_storage.py\n", argv[0]);
        return EXIT_SUCCESS;
    }
    if (pairs <= 0) {
        fprintf(stderr, "usage: %s PAIRS\n", argv[0]);
        return 2;
    }
    varve_alloc_options_init(&options);
    check(varve_host_open(&(struct varve_host_options){.limit_bytes = 64 << 20}, &options.device, &message), &message);
    check(varve_alloc_open(&options, &alloc, &message), &message);
    check(varve_memory_open(alloc, &pool, &message), &message);
    printf("{\"malloc\": %.2f, \"pool\": %.2f, \"transpose\": %.2f, \"slice\": %.2f, ",
           measure_storages(varve_memory_host(), pairs), measure_storages(pool, pairs), measure_views(false, pairs),
           measure_views(true, pairs));
    varve_tracker_enable(true);
    printf("\"tracked\": %.2f}\n", measure_storages(pool, pairs));
    check(varve_memory_close(pool, &message), &message);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
    return EXIT_SUCCESS;
}
