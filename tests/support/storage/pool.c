/* SPDX-License-Identifier: Apache-2.0 */
#include "support/storage/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices ---- */

static int open_host(struct varve_device **device_out, struct varve_message *message)
{
    return varve_host_open(&(struct varve_host_options){.limit_bytes = POOL_LIMIT}, device_out, message);
}

/* The same functions; whether the processor may read its memory, storages see by its name. */
static int open_apart(struct varve_device **device_out, struct varve_message *message)
{
    static struct varve_device_ops apart;
    int error = open_host(device_out, message);
    if (error == VARVE_OK) {
        apart = *(*device_out)->ops;
        apart.name = "apart";
        (*device_out)->ops = &apart;
    }
    return error;
}

static int open_sim(struct varve_device **device_out, struct varve_message *message)
{
    return varve_sim_open(&(struct varve_sim_options){.capacity_bytes = POOL_LIMIT}, device_out, message);
}

static int open_cuda(struct varve_device **device_out, struct varve_message *message)
{
    return varve_cuda_open(&(struct varve_cuda_options){.limit_bytes = POOL_LIMIT}, device_out, message);
}

/* ---- kinds ---- */

const struct pool_kind pool_libc = {.name = "libc"};
const struct pool_kind pool_host = {.name = "host", .open = open_host, .check = varve_host_check};
const struct pool_kind pool_apart = {.name = "apart", .open = open_apart, .check = varve_host_check};
const struct pool_kind pool_sim = {.name = "sim", .open = open_sim, .check = varve_sim_check};
const struct pool_kind pool_cuda = {.name = "cuda", .open = open_cuda, .check = varve_cuda_check};
const struct pool_kind pool_cuda_expandable = {
    .name = "cuda, expandable", .open = open_cuda, .check = varve_cuda_check, .is_expandable = true};
const struct pool_kind pool_cuda_async = {
    .name = "cuda, async", .open = open_cuda, .check = varve_cuda_check, .policy = "cuda-async"};

const struct pool_kind *pool_kind_find(const char *name)
{
    static const struct pool_kind *const all[] = {
        &pool_libc, &pool_host, &pool_apart, &pool_sim, &pool_cuda, &pool_cuda_expandable, &pool_cuda_async};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}

/* ---- pools ---- */

int pool_open(struct pool *pool, const struct pool_kind *kind, struct varve_message *message)
{
    *pool = (struct pool){.kind = kind, .memory = varve_memory_host()};
    if (kind->open == NULL) {
        return VARVE_OK;
    }
    int error = kind->open(&pool->device, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.device = pool->device;
    options.policy = kind->policy;
    options.config.expandable_segments = kind->is_expandable;
    error = varve_alloc_open(&options, &pool->alloc, message);
    if (error == VARVE_OK) {
        error = varve_memory_open(pool->alloc, &pool->memory, message);
        if (error == VARVE_OK) {
            return VARVE_OK;
        }
        varve_alloc_close(pool->alloc);
    }
    pool->device->ops->close(pool->device);
    return error;
}

int pool_close(struct pool *pool, struct varve_message *message)
{
    if (pool->device == NULL) {
        return VARVE_OK;
    }
    int error = varve_memory_close(pool->memory, message);
    if (error != VARVE_OK) {
        return error; /* storages would be left without their memory */
    }
    if (varve_alloc_memory_allocated(pool->alloc) != 0) {
        error = varve_message_set(message, VARVE_ERROR_BUSY, "%lld bytes are still allocated",
                                  (long long)varve_alloc_memory_allocated(pool->alloc));
    }
    if (error == VARVE_OK) {
        error = varve_alloc_check(pool->alloc, message);
    }
    varve_alloc_close(pool->alloc);
    if (error == VARVE_OK) {
        error = pool->kind->check(pool->device, message);
    }
    pool->device->ops->close(pool->device);
    return error;
}

/* ---- cases ---- */

int pool_setup(void **state)
{
    struct pool *pool = malloc(sizeof(*pool));
    struct varve_message message = {""};
    if (pool == NULL) {
        return -1;
    }
    if (pool_open(pool, *state, &message) != VARVE_OK) {
        printf("no pool: %s\n", message.text);
        free(pool);
        return -1;
    }
    *state = pool;
    return 0;
}

int pool_teardown(void **state)
{
    struct pool *pool = *state;
    struct varve_message message = {""};
    int error = pool_close(pool, &message);
    if (error != VARVE_OK) {
        printf("a pool is left with something: %s\n", message.text);
    } else if (varve_storage_live() != 0) {
        printf("%llu storages are left\n", (unsigned long long)varve_storage_live());
        error = -1;
    }
    free(pool);
    return error;
}
