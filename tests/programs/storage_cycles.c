/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage_cycles N: storages of a pool are created, viewed and released, N times, in two threads. The allocator's
 * bytes at the end are the exit status' business: 0 if there are none.
 */
#include "storage/storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct varve_memory *memory;
static long cycles;

static void *run(void *unused)
{
    const struct varve_storage_options options = {.memory = memory};
    const int64_t shape[] = {8, 16};
    (void)unused;
    for (long i = 0; i < cycles; i++) {
        struct varve_storage *storage, *view;
        if (varve_storage_empty(&options, VARVE_DTYPE_F32, 2, shape, &storage, NULL) != VARVE_OK ||
            varve_storage_transpose(storage, 0, 1, &view, NULL) != VARVE_OK) {
            abort();
        }
        /* in turns, the one or the other goes last */
        varve_storage_release(i % 2 == 0 ? storage : view, NULL);
        varve_storage_release(i % 2 == 0 ? view : storage, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct varve_message message = {""};
    cycles = argc > 1 ? strtol(argv[1], NULL, 10) / 2 : 500000;
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    struct varve_device *device;
    if (varve_host_open(&(struct varve_host_options){0}, &device, &message) != VARVE_OK) {
        fprintf(stderr, "storage_cycles: %s\n", message.text);
        return 1;
    }
    options.device = device;
    options.recorder = &varve_alloc_recorder_ring;
    struct varve_alloc *alloc;
    pthread_t thread;
    if (varve_alloc_open(&options, &alloc, &message) != VARVE_OK ||
        varve_memory_open(alloc, &memory, &message) != VARVE_OK || pthread_create(&thread, NULL, run, NULL) != 0) {
        fprintf(stderr, "storage_cycles: %s\n", message.text);
        return 1;
    }
    run(NULL);
    pthread_join(thread, NULL);
    bool is_empty = varve_alloc_memory_allocated(alloc) == 0 && varve_storage_live() == 0;
    varve_memory_close(memory, NULL);
    varve_alloc_close(alloc);
    device->ops->close(device);
    return is_empty ? 0 : 1;
}
