/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding an open device is a load; opening one takes the mutex. Nothing is ever closed: programs free in
 * destructors, after every exit handler.
 *
 * A fork child finds the table of its parent, whose memory it can't use and whose locks another thread may
 * have held. So it opens nothing, frees nothing and takes no lock; only if the parent had no device yet may
 * it begin.
 */
#include "alloc/frontend/registry.h"
#include "base/error.h"
#include "base/fork_count.h"
#include "trace/emit.h"

#include <pthread.h>
#include <stdlib.h>

static const struct frontend frontend_pytorch = {.prefix = "VARVE_TORCH", .records = VARVE_RECORDS_TORCH};

typedef void (*oom_observer)(const struct frontend_device *device, const struct varve_alloc_oom *oom);

static struct {
    pthread_mutex_t mutex;
    /* Guarded by the mutex: */
    const struct frontend *frontend;
    bool has_config;
    int config_error;
    struct varve_message config_message;
    struct frontend_config config;
    uint64_t history_limit;
    uint32_t forks;                    /* when the first device was opened */
    struct frontend_device *forgotten; /* not freed */
    /* Read without it: */
    oom_observer observer;                             /* atomic */
    uint32_t open_count;                               /* atomic */
    struct frontend_device *devices[REGISTRY_DEVICES]; /* atomic */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER, .frontend = &frontend_pytorch};

/* ---- forks ---- */

bool registry_is_inherited(void)
{
    return __atomic_load_n(&registry.open_count, __ATOMIC_ACQUIRE) > 0 && fork_count() != registry.forks;
}

static int refuse_child(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "this process is a fork child of one that used CUDA; it has no device until it "
                             "executes a program (multiprocessing: start method 'spawn')");
}

/* ---- messages ---- */

static pthread_once_t message_once = PTHREAD_ONCE_INIT;
static pthread_key_t message_key;
static bool has_message_key;

static void message_key_make(void)
{
    has_message_key = pthread_key_create(&message_key, free) == 0;
}

/* Not in the thread's own memory: what a library that is loaded late may take of that is little. */
struct varve_message *registry_message(void)
{
    static struct varve_message shared; /* of threads for which there is no memory */
    pthread_once(&message_once, message_key_make);
    struct varve_message *message = has_message_key ? pthread_getspecific(message_key) : NULL;
    if (message == NULL && has_message_key) {
        message = calloc(1, sizeof(*message));
        if (message != NULL && pthread_setspecific(message_key, message) != 0) {
            free(message);
            message = NULL;
        }
    }
    return message != NULL ? message : &shared;
}

/* ---- configuration ---- */

void registry_begin(const struct frontend *frontend)
{
    pthread_mutex_lock(&registry.mutex);
    registry.frontend = frontend;
    pthread_mutex_unlock(&registry.mutex);
}

/* With the mutex. */
static int config_load(struct varve_message *message)
{
    if (!registry.has_config) {
        registry.config_error = frontend_config_read(registry.frontend->prefix, registry.frontend->alloc_variable,
                                                     &registry.config, &registry.config_message);
        registry.has_config = true;
    }
    return registry.config_error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, registry.config_error, "%s", registry.config_message.text);
}

int registry_get_config(struct frontend_config *config_out, struct varve_message *message)
{
    if (registry_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&registry.mutex);
    int error = config_load(message);
    *config_out = registry.config;
    pthread_mutex_unlock(&registry.mutex);
    return error;
}

int registry_set_config(const struct varve_alloc_config *config, struct varve_message *message)
{
    if (registry_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&registry.mutex);
    int error = config_load(message);
    for (int i = 0; error == VARVE_OK && i < REGISTRY_DEVICES; i++) {
        if (registry.devices[i] != NULL) {
            error = varve_alloc_accepts_config(registry.devices[i]->alloc, config, message);
        }
    }
    for (int i = 0; error == VARVE_OK && i < REGISTRY_DEVICES; i++) {
        if (registry.devices[i] != NULL) {
            error = varve_alloc_set_config(registry.devices[i]->alloc, config, message);
        }
    }
    if (error == VARVE_OK) {
        registry.config.alloc = *config;
    }
    pthread_mutex_unlock(&registry.mutex);
    return error;
}

void registry_set_history(uint64_t limit, bool clear)
{
    if (registry_is_inherited()) {
        return;
    }
    pthread_mutex_lock(&registry.mutex);
    clear = clear || registry.history_limit != limit;
    registry.history_limit = limit;
    for (int i = 0; clear && i < REGISTRY_DEVICES; i++) {
        struct frontend_device *device = registry.devices[i];
        if (device != NULL) {
            varve_alloc_free_mutex_lock(device->alloc);
            history_begin(&device->history, limit);
            frontend_recorder_route(device);
            varve_alloc_free_mutex_unlock(device->alloc);
        }
    }
    pthread_mutex_unlock(&registry.mutex);
}

uint64_t registry_history_limit(void)
{
    if (registry_is_inherited()) {
        return 0;
    }
    pthread_mutex_lock(&registry.mutex);
    uint64_t limit = registry.history_limit;
    pthread_mutex_unlock(&registry.mutex);
    return limit;
}

/* ---- devices ---- */

struct frontend_device *registry_find(int ordinal)
{
    if (ordinal < 0 || ordinal >= REGISTRY_DEVICES) {
        return NULL;
    }
    struct frontend_device *device = __atomic_load_n(&registry.devices[ordinal], __ATOMIC_ACQUIRE);
    return device != NULL && device->forks == fork_count() ? device : NULL;
}

struct frontend_device *registry_next(int ordinal)
{
    for (int i = ordinal + 1; i < REGISTRY_DEVICES; i++) {
        struct frontend_device *device = registry_find(i);
        if (device != NULL) {
            return device;
        }
    }
    return NULL;
}

static void registry_report_oom(void *context, const struct varve_alloc_oom *oom)
{
    oom_observer observer = __atomic_load_n(&registry.observer, __ATOMIC_ACQUIRE);
    if (observer != NULL) {
        observer(context, oom);
    }
}

void registry_set_oom_observer(oom_observer observer)
{
    __atomic_store_n(&registry.observer, observer, __ATOMIC_RELEASE);
}

/* The allocator of a device whose other fields are set. */
static int registry_open_allocator(struct frontend_device *device, struct varve_message *message)
{
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.device = device->device;
    options.policy = registry.config.policy;
    options.config = registry.config.alloc;
    options.recorder = device->is_recorded ? &device->recorder : NULL;
    int error = varve_alloc_open(&options, &device->alloc, message);
    if (error != VARVE_OK) {
        return error;
    }
    history_begin(&device->history, registry.history_limit);
    frontend_recorder_route(device);
    return varve_alloc_add_oom_observer(device->alloc, registry_report_oom, device);
}

/* With the mutex. */
static int registry_open_device(int ordinal, struct frontend_device **device_out, struct varve_message *message)
{
    struct frontend_device *device = calloc(1, sizeof(*device));
    int error = device != NULL ? fork_count_begin() : VARVE_ERROR_NO_MEMORY;
    if (error != VARVE_OK) {
        free(device);
        return varve_message_set(message, error, "no memory for the entry of device %d", ordinal);
    }
    error = frontend_device_open(&registry.config, ordinal, &device->device, message);
    if (error != VARVE_OK) {
        free(device);
        return error;
    }
    device->ordinal = ordinal;
    device->forks = fork_count();
    device->is_recorded = varve_records_wanted(registry.frontend->records);
    device->recorder = frontend_recorder_of(device);
    if (device->is_recorded) {
        frontend_device_describe(registry.config.kind, device->device);
    }
    error = registry_open_allocator(device, message);
    if (error != VARVE_OK) {
        device->device->ops->close(device->device);
        free(device);
        return error;
    }
    *device_out = device;
    return VARVE_OK;
}

int registry_get(int ordinal, struct frontend_device **device_out, struct varve_message *message)
{
    *device_out = registry_find(ordinal);
    if (*device_out != NULL) {
        return VARVE_OK;
    }
    if (ordinal < 0 || ordinal >= REGISTRY_DEVICES) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "device %d; varve serves 0 to %d", ordinal,
                                 REGISTRY_DEVICES - 1);
    }
    if (registry_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&registry.mutex);
    struct frontend_device *opened = registry.devices[ordinal];
    int error = opened == NULL ? config_load(message) : VARVE_OK;
    if (error == VARVE_OK && opened == NULL) {
        error = registry_open_device(ordinal, &opened, message);
        if (opened != NULL) {
            registry.forks = opened->forks;
            __atomic_add_fetch(&registry.open_count, 1, __ATOMIC_RELEASE);
            __atomic_store_n(&registry.devices[ordinal], opened, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&registry.mutex);
    *device_out = opened;
    return error;
}

void registry_forget(int ordinal)
{
    struct frontend_device *device = registry_find(ordinal);
    if (device == NULL) {
        return;
    }
    pthread_mutex_lock(&registry.mutex);
    if (registry.devices[ordinal] == device) { /* another thread may have been faster */
        __atomic_store_n(&registry.devices[ordinal], NULL, __ATOMIC_RELEASE);
        device->next_forgotten = registry.forgotten;
        registry.forgotten = device;
    }
    pthread_mutex_unlock(&registry.mutex);
}
