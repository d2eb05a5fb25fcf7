/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for tests of storages, of every kind: the C library's, and pools on the host device, on one that the
 * processor must leave to the device, on the GPU. Tests that get theirs from here, and look at elements by way of
 * varve_storage_to only, hold for all.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_POOL_H
#define VARVE_TESTS_SUPPORT_STORAGE_POOL_H

#include "storage/storage.h"

#include <stdbool.h>

#define POOL_LIMIT (UINT64_C(64) << 20) /* bytes that a pool's device gives */

struct pool_kind {
    const char *name;
    /* NULL: the C library's memory, without device and allocator */
    int (*open)(struct varve_device **device_out, struct varve_message *message);
    int (*check)(const struct varve_device *device, struct varve_message *message);
    const char *policy; /* NULL: the default one */
    bool is_expandable;
};

extern const struct pool_kind pool_libc;
extern const struct pool_kind pool_host;
/* Memory of the host device under another name: storages let the device do everything, as with a GPU's, and it keeps
 * bytes. */
extern const struct pool_kind pool_apart;
extern const struct pool_kind pool_sim;                                         /* addresses without bytes */
extern const struct pool_kind pool_cuda, pool_cuda_expandable, pool_cuda_async; /* of CUDA device 0 */

struct pool {
    const struct pool_kind *kind;
    struct varve_device *device; /* NULL: of the C library */
    struct varve_alloc *alloc;
    struct varve_memory *memory;
};

/// NULL if there is none of that name.
const struct pool_kind *pool_kind_find(const char *name);
/// Owner of what it opens: the caller, by pool_close. Errors: those of the device, the allocator and the memory.
int pool_open(struct pool *pool, const struct pool_kind *kind, struct varve_message *message);
/// Errors: whatever is left or wrong: storages, bytes of the allocator (VARVE_ERROR_BUSY), resources of the device.
int pool_close(struct pool *pool, struct varve_message *message);

/* Setup and teardown of a case of cmocka: its initial state is a kind, and *state in it a pool, of which nothing may
 * be left at its end, neither any storage of the process. */
int pool_setup(void **state);
int pool_teardown(void **state);

#define POOL_CASE(function, of_kind)                                                        \
    {                                                                                       \
        .name = #function ", " #of_kind, .test_func = (function), .setup_func = pool_setup, \
        .teardown_func = pool_teardown, .initial_state = (void *)(uintptr_t) & (of_kind)    \
    }

#endif
