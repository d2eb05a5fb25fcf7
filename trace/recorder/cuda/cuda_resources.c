/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device, context, pool and stream of a call, as the numbers that records hold, and the tables of contexts
 * and pools. Most of it the driver is asked for, which costs little (it looks at what is current) and is
 * done only after a call of the program has worked in this process image: a fork child's CUDA is dead. So
 * the tables lie in pages that read as zeros in a fork child. Called by cuda_call.c and the entry points.
 */
#include "trace/recorder/cuda/cuda_attach.h"
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Numbers of contexts and pools begin with 1 and are assigned once; 4095 stands for all that come later. A
 * handle that is destroyed is forgotten: the driver may reuse it.
 */

#define NUMBER_LAST 4095U
#define CONTEXTS 64U
#define POOLS 256U
#define DEVICES 64U
#define MEMORY_EVERY_NS UINT64_C(100000000)

/* A context or a pool. */
struct named {
    uint64_t handle; /* 0: free */
    uint16_t number;
    uint8_t device;
    uint8_t memory; /* enum varve_memory_kind: what a pool holds */
};

/* Guarded by `lock`, but for what is atomic. Readers of the tables take no lock: an entry is filled in before
 * its handle is. */
struct resources {
    uint32_t lock;
    uint32_t works;        /* atomic: the driver may be asked */
    uint32_t watches_exit; /* atomic */
    uint32_t context_count;
    uint32_t pool_count;
    struct named contexts[CONTEXTS];
    struct named pools[POOLS];
    uint64_t default_pools[DEVICES];     /* atomic; handles, 0: not known yet */
    uint64_t memory_emitted_ns[DEVICES]; /* atomic */
};

static struct resources *resources;

bool cuda_resources_prepare(void)
{
    if (resources == NULL) {
        resources = recorder_map_wiped(sizeof(*resources));
    }
    return resources != NULL;
}

void cuda_resources_release(void)
{
    if (resources != NULL) {
        const uint32_t watches_exit = resources->watches_exit; /* handlers of the exit are for good */
        memset(resources, 0, sizeof(*resources));
        resources->watches_exit = watches_exit;
    }
}

/* ---- may we ask ---- */

/* Before the driver's own exit handler, which was registered earlier. */
static void at_exit(void)
{
    if (!cuda_is_off() && cuda_driver_asked() != NULL) {
        cuda_memory_emit(true);
    }
}

static void watch_exit(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    atexit(at_exit); /* without it the last figure is missing */
    recorder_reentrant_end(&saved);
}

void cuda_driver_works(void)
{
    if (__atomic_load_n(&resources->works, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&resources->works, 1, __ATOMIC_RELEASE);
        if (__atomic_exchange_n(&resources->watches_exit, 1, __ATOMIC_ACQ_REL) == 0) {
            watch_exit();
        }
    }
}

const struct cuda_queries *cuda_driver_asked(void)
{
    return resources != NULL && __atomic_load_n(&resources->works, __ATOMIC_ACQUIRE) != 0 ? cuda_queries() : NULL;
}

/* ---- numbers ---- */

static struct named *cuda_resources_find(struct named *table, uint32_t slots, uint64_t handle)
{
    for (uint32_t i = 0; i < slots; i++) {
        if (__atomic_load_n(&table[i].handle, __ATOMIC_ACQUIRE) == handle) {
            return &table[i];
        }
    }
    return NULL;
}

/* A table that is full forgets one: its number is not found again, which matters only to a reset. */
static struct named cuda_resources_add(struct named *table, uint32_t slots, uint32_t *count, struct named entry)
{
    struct recorder_signals saved;
    if (!recorder_lock_soon_blocked(&resources->lock, &saved)) {
        entry.number = NUMBER_LAST;
        return entry;
    }
    struct named *slot = cuda_resources_find(table, slots, entry.handle);
    if (slot == NULL) {
        entry.number = (uint16_t)(*count < NUMBER_LAST ? ++*count : NUMBER_LAST);
        slot = cuda_resources_find(table, slots, 0);
        slot = slot != NULL ? slot : &table[*count % slots];
        __atomic_store_n(&slot->handle, 0, __ATOMIC_RELEASE);
        slot->number = entry.number;
        slot->device = entry.device;
        slot->memory = entry.memory;
        __atomic_store_n(&slot->handle, entry.handle, __ATOMIC_RELEASE);
    }
    entry = *slot;
    recorder_unlock_blocked(&resources->lock, &saved);
    return entry;
}

static void cuda_resources_forget(struct named *table, uint32_t slots, uint64_t handle)
{
    struct recorder_signals saved;
    if (!recorder_lock_soon_blocked(&resources->lock, &saved)) {
        return;
    }
    struct named *slot = handle != 0 ? cuda_resources_find(table, slots, handle) : NULL;
    if (slot != NULL) {
        __atomic_store_n(&slot->handle, 0, __ATOMIC_RELEASE);
    }
    recorder_unlock_blocked(&resources->lock, &saved);
}

static void forget_of(struct named *table, uint32_t slots, unsigned device)
{
    struct recorder_signals saved;
    if (!recorder_lock_soon_blocked(&resources->lock, &saved)) {
        return;
    }
    for (uint32_t i = 0; i < slots; i++) {
        if (table[i].device == device) {
            __atomic_store_n(&table[i].handle, 0, __ATOMIC_RELEASE);
        }
    }
    recorder_unlock_blocked(&resources->lock, &saved);
}

void cuda_context_gone(void *context)
{
    cuda_resources_forget(resources->contexts, CONTEXTS, (uintptr_t)context);
}

void cuda_pool_gone(void *pool)
{
    cuda_resources_forget(resources->pools, POOLS, (uintptr_t)pool);
}

void cuda_device_gone(unsigned device)
{
    forget_of(resources->contexts, CONTEXTS, device);
    forget_of(resources->pools, POOLS, device);
    if (device < DEVICES) {
        __atomic_store_n(&resources->default_pools[device], 0, __ATOMIC_RELEASE);
    }
}

/* ---- devices ---- */

static void cuda_resources_describe(const struct cuda_queries *driver, unsigned device)
{
    if (varve_device_is_described(device) || driver->device_uuid == NULL || driver->device_total == NULL ||
        driver->device_name == NULL) {
        return;
    }
    unsigned char uuid[16] = {0};
    char name[256] = "";
    size_t bytes = 0;
    if (driver->device_uuid(uuid, (int)device) == 0 && driver->device_total(&bytes, (int)device) == 0 &&
        driver->device_name(name, sizeof(name) - 1, (int)device) == 0) {
        varve_device_describe(device, uuid, bytes, name);
    }
}

/* The current context of this thread; false: it has none. */
static bool cuda_resources_current(const struct cuda_queries *driver, struct named *context_out)
{
    void *context = NULL;
    if (driver->context_current(&context) != 0 || context == NULL) {
        return false;
    }
    struct named entry = {0};
    entry.handle = (uintptr_t)context;
    const struct named *slot = cuda_resources_find(resources->contexts, CONTEXTS, entry.handle);
    if (slot != NULL) {
        *context_out = *slot;
        return true;
    }
    int device = 0;
    if (driver->context_device == NULL || driver->context_device(&device) != 0) {
        return false;
    }
    entry.device = (uint8_t)device;
    *context_out = cuda_resources_add(resources->contexts, CONTEXTS, &resources->context_count, entry);
    return true;
}

int cuda_device_current(void)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    struct named context = {0};
    return driver != NULL && cuda_resources_current(driver, &context) ? context.device : -1;
}

void cuda_resolve(struct cuda_scope *scope)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    if (!scope->is_recorded) {
        return;
    }
    if (driver == NULL) {
        scope->call.stream = varve_stream_number(scope->call.device, scope->stream);
        return;
    }
    struct named context = {0};
    if ((!scope->has_device || !scope->has_context) && cuda_resources_current(driver, &context)) {
        scope->call.device = scope->has_device ? scope->call.device : context.device;
        scope->call.context = scope->has_context ? scope->call.context : context.number;
    }
    scope->has_device = true;
    scope->has_context = true;
    scope->call.stream = varve_stream_number(scope->call.device, scope->stream);
    cuda_resources_describe(driver, scope->call.device);
}

void cuda_resolve_handle(struct cuda_scope *scope, uint64_t handle)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    struct cuda_memory_kind properties = {0};
    if (driver == NULL || driver->handle_properties == NULL || driver->handle_properties(&properties, handle) != 0) {
        return;
    }
    if (properties.location.type == CUDA_LOCATION_DEVICE) {
        scope->call.device = (unsigned)properties.location.id;
        scope->has_device = true;
    } else {
        scope->call.memory = VARVE_MEMORY_PINNED;
    }
}

void cuda_resolve_context(struct cuda_scope *scope, void *context)
{
    struct named entry = {.handle = (uintptr_t)context};
    if (!scope->is_recorded || context == NULL || resources == NULL) {
        return;
    }
    entry = cuda_resources_add(resources->contexts, CONTEXTS, &resources->context_count, entry);
    scope->call.context = entry.number;
    scope->call.device = entry.device;
    scope->has_context = true;
    scope->has_device = true;
}

/* ---- streams ---- */

void cuda_resolve_stream(struct cuda_scope *scope, void *stream, bool is_own)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    bool is_valid = scope->call.result == 0 || scope->call.result == CUDA_RESULT_OUT_OF_MEMORY;
    if (!scope->is_recorded) {
        return;
    }
    scope->stream = cuda_stream_handle((uintptr_t)stream, is_own);
    int device = 0;
    if (is_valid && !scope->is_captured && scope->stream > CUDA_STREAM_PER_THREAD && driver != NULL &&
        driver->stream_device != NULL && driver->stream_device(stream, &device) == 0) {
        scope->call.device = (unsigned)device;
        scope->has_device = true;
    }
}

bool cuda_is_captured(void *stream, bool is_own)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    int (*ask)(void *, int *);
    int status = 0;
    if (driver == NULL) {
        return false;
    }
    ask = is_own ? driver->stream_captures_own : driver->stream_captures;
    return ask != NULL && ask(stream, &status) == 0 && status == CUDA_CAPTURE_ACTIVE;
}

/* ---- pools ---- */

static uint64_t default_pool(const struct cuda_queries *driver, unsigned device)
{
    uint64_t handle = device < DEVICES ? __atomic_load_n(&resources->default_pools[device], __ATOMIC_ACQUIRE) : 0;
    void *pool = NULL;
    if (handle == 0 && driver->pool_default != NULL && driver->pool_default(&pool, (int)device) == 0) {
        handle = (uintptr_t)pool;
        if (device < DEVICES) {
            __atomic_store_n(&resources->default_pools[device], handle, __ATOMIC_RELEASE);
        }
    }
    return handle;
}

/* Is it the default pool of some device that was used? That device is the pool's then. */
static bool cuda_resources_is_default(struct cuda_scope *scope, uint64_t handle)
{
    for (unsigned device = 0; device < DEVICES; device++) {
        if (__atomic_load_n(&resources->default_pools[device], __ATOMIC_ACQUIRE) == handle) {
            scope->call.device = device;
            return true;
        }
    }
    return false;
}

void cuda_resolve_pool(struct cuda_scope *scope, void *pool)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    struct named entry = {.handle = (uintptr_t)pool};
    if (driver == NULL || !scope->is_recorded) {
        return;
    }
    struct named context = {0};
    if (!scope->has_device && cuda_resources_current(driver, &context)) {
        scope->call.device = context.device;
        scope->has_device = true;
    }
    scope->call.context = 0;
    scope->has_context = true;
    default_pool(driver, scope->call.device);
    if (pool == NULL && driver->pool_current != NULL && driver->pool_current(&pool, (int)scope->call.device) == 0) {
        entry.handle = (uintptr_t)pool;
    }
    if (entry.handle == 0 || cuda_resources_is_default(scope, entry.handle)) {
        return;
    }
    const struct named *slot = cuda_resources_find(resources->pools, POOLS, entry.handle);
    if (slot != NULL) {
        entry = *slot;
    } else {
        entry.device = (uint8_t)scope->call.device;
        entry.memory = VARVE_MEMORY_DEVICE;
        entry = cuda_resources_add(resources->pools, POOLS, &resources->pool_count, entry);
    }
    scope->call.context = entry.number;
    scope->call.device = entry.device;
    scope->call.memory = (enum varve_memory_kind)entry.memory;
}

void cuda_pool_made(void *pool, const struct cuda_scope *scope)
{
    struct named entry = {
        .handle = (uintptr_t)pool, .device = (uint8_t)scope->call.device, .memory = (uint8_t)scope->call.memory};
    if (scope->is_recorded && pool != NULL && resources != NULL) {
        cuda_resources_add(resources->pools, POOLS, &resources->pool_count, entry);
    }
}

/* ---- memory of the device ---- */

/* One thread at a time finds that it is due. */
static bool cuda_resources_is_due(unsigned device, bool is_urgent)
{
    uint64_t now = varve_clock_monotonic_ns();
    if (device >= DEVICES) {
        return false;
    }
    uint64_t last = __atomic_load_n(&resources->memory_emitted_ns[device], __ATOMIC_RELAXED);
    if (!is_urgent && last != 0 && now - last < MEMORY_EVERY_NS) {
        return false;
    }
    return __atomic_compare_exchange_n(&resources->memory_emitted_ns[device], &last, now, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* In relaxed mode, or a graph that some thread is recording would be spoilt. */
void cuda_memory_emit(bool is_urgent)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    struct named context;
    int mode = CUDA_CAPTURE_RELAXED;
    if (driver == NULL || driver->memory_info == NULL || driver->capture_mode == NULL ||
        !cuda_resources_current(driver, &context) || !cuda_resources_is_due(context.device, is_urgent) ||
        driver->capture_mode(&mode) != 0) {
        return;
    }
    size_t free_bytes = 0;
    size_t total = 0;
    int result = driver->memory_info(&free_bytes, &total);
    driver->capture_mode(&mode);
    struct varve_record record = {0};
    if (result == 0) {
        record.size = total;
        record.requested = free_bytes;
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_DEV_MEMORY, 0);
        record.pool = context.number;
        record.device = context.device;
        record.cause = VARVE_CAUSE_CU_MEM_GET_INFO;
        varve_emit(&record);
    }
}
