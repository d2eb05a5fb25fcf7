/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of devices and the settings that they are opened with. Finding an open device is a load; opening
 * one takes the mutex. Nothing is ever closed: programs free in destructors, after every exit handler.
 *
 * A fork child finds the table of its parent, whose memory it can't use and whose locks another thread may
 * have held. So it opens nothing, frees nothing and takes no lock; only if the parent had no device yet may
 * it begin.
 */
#include "alloc/device/cuda/driver.h"
#include "alloc/frontend/torch/state.h"

#include <pthread.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t mutex;
    /* Guarded by the mutex: */
    const struct torch_plan *plan;
    bool has_setup;
    int setup_error;
    struct varve_message setup_message;
    struct torch_setup setup;
    uint64_t history_limit;
    uint32_t forks;            /* when the first device was opened */
    struct torch_device *gone; /* forgotten, not freed */
    /* Read without it: */
    uint32_t open_count;                               /* atomic */
    struct torch_device *devices[VARVE_TORCH_DEVICES]; /* atomic */
} torch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .plan = &torch_plan_pytorch};

/* ---- messages ---- */

static pthread_once_t message_once = PTHREAD_ONCE_INIT;
static pthread_key_t message_key;
static bool has_message_key;

static void message_key_make(void)
{
    has_message_key = pthread_key_create(&message_key, free) == 0;
}

/* Not in the thread's own memory: what a library that is loaded late may take of that is little. */
struct varve_message *torch_message(void)
{
    static struct varve_message shared; /* of threads for which there is no memory */
    struct varve_message *message;

    pthread_once(&message_once, message_key_make);
    message = has_message_key ? pthread_getspecific(message_key) : NULL;
    if (message == NULL && has_message_key) {
        message = calloc(1, sizeof(*message));
        if (message != NULL && pthread_setspecific(message_key, message) != 0) {
            free(message);
            message = NULL;
        }
    }
    return message != NULL ? message : &shared;
}

void torch_begin(const struct torch_plan *plan)
{
    pthread_mutex_lock(&torch.mutex);
    torch.plan = plan;
    pthread_mutex_unlock(&torch.mutex);
}

bool torch_is_inherited(void)
{
    return __atomic_load_n(&torch.open_count, __ATOMIC_ACQUIRE) > 0 && cuda_forks() != torch.forks;
}

static int refuse_child(struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "this process is a fork child of one that used CUDA; it has no device until it "
                             "executes a program (multiprocessing: start method 'spawn')");
}

/* ---- settings ---- */

/* With the mutex. */
static int setup_load(struct varve_message *message)
{
    if (!torch.has_setup) {
        torch.setup_error = torch_setup_read(torch.plan, &torch.setup, &torch.setup_message);
        torch.has_setup = true;
    }
    return torch.setup_error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, torch.setup_error, "%s", torch.setup_message.text);
}

int torch_setup_get(struct torch_setup *setup_out, struct varve_message *message)
{
    int error;

    if (torch_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&torch.mutex);
    error = setup_load(message);
    *setup_out = torch.setup;
    pthread_mutex_unlock(&torch.mutex);
    return error;
}

/* What is current changes without a move: it is as if it had been so at the last reset (inspect/stats.h). */
static void stat_become(struct varve_alloc_stat *stat, int64_t current)
{
    stat->freed += current - stat->current;
    stat->current = current;
    stat->peak = stat->peak > current ? stat->peak : current;
}

/* What counts as oversize has changed, and with it how many blocks and segments are. */
static int count_oversize(struct varve_alloc *alloc, uint64_t size)
{
    struct varve_alloc_snapshot now;
    int64_t blocks = 0, segments = 0;
    int error = varve_alloc_snapshot(alloc, &now);

    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; i < now.block_count; i++) {
        blocks += now.blocks[i].state == VARVE_BLOCK_ACTIVE_ALLOCATED && now.blocks[i].bytes >= size;
    }
    for (size_t i = 0; i < now.segment_count; i++) {
        segments += !now.segments[i].is_expandable && now.segments[i].bytes >= size;
    }
    stat_become(&alloc->stats.oversize_allocations, blocks);
    stat_become(&alloc->stats.oversize_segments, segments);
    varve_alloc_snapshot_free(&now);
    return VARVE_OK;
}

/* With the mutex. */
static int change_device(struct torch_device *device, const struct varve_alloc_config *config)
{
    struct varve_alloc *alloc = device->alloc;
    int error = VARVE_OK;

    alloc_lock(alloc);
    if (config->max_split_size != alloc->config.max_split_size) {
        error = count_oversize(alloc, config->max_split_size);
    }
    if (error != VARVE_OK) {
        alloc_unlock(alloc);
        return error;
    }
    alloc->config = *config;
    alloc->can_expand = config->expandable_segments;
    alloc->stats.max_split_size =
        config->max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)config->max_split_size;
    settings_emit(alloc);
    alloc_unlock(alloc);
    return VARVE_OK;
}

int torch_setup_change(const struct varve_alloc_config *config, struct varve_message *message)
{
    int error;

    if (torch_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&torch.mutex);
    error = setup_load(message);
    for (int i = 0; error == VARVE_OK && i < VARVE_TORCH_DEVICES; i++) {
        if (torch.devices[i] != NULL) {
            error = torch_setup_check(config, torch.devices[i]->device, message);
        }
    }
    for (int i = 0; error == VARVE_OK && i < VARVE_TORCH_DEVICES; i++) {
        if (torch.devices[i] != NULL && change_device(torch.devices[i], config) != VARVE_OK) {
            error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to change settings");
        }
    }
    if (error == VARVE_OK) {
        torch.setup.config = *config;
    }
    pthread_mutex_unlock(&torch.mutex);
    return error;
}

void torch_history_change(uint64_t limit, bool clear)
{
    if (torch_is_inherited()) {
        return;
    }
    pthread_mutex_lock(&torch.mutex);
    clear = clear || torch.history_limit != limit;
    torch.history_limit = limit;
    for (int i = 0; clear && i < VARVE_TORCH_DEVICES; i++) {
        struct torch_device *device = torch.devices[i];

        if (device != NULL) {
            alloc_lock(device->alloc);
            torch_history_begin(&device->history, limit);
            torch_record_route(device);
            alloc_unlock(device->alloc);
        }
    }
    pthread_mutex_unlock(&torch.mutex);
}

uint64_t torch_history_limit(void)
{
    uint64_t limit;

    if (torch_is_inherited()) {
        return 0;
    }
    pthread_mutex_lock(&torch.mutex);
    limit = torch.history_limit;
    pthread_mutex_unlock(&torch.mutex);
    return limit;
}

/* ---- devices ---- */

struct torch_device *torch_device_find(int ordinal)
{
    struct torch_device *device;

    if (ordinal < 0 || ordinal >= VARVE_TORCH_DEVICES) {
        return NULL;
    }
    device = __atomic_load_n(&torch.devices[ordinal], __ATOMIC_ACQUIRE);
    return device != NULL && device->forks == cuda_forks() ? device : NULL;
}

struct torch_device *torch_device_after(int ordinal)
{
    for (int i = ordinal + 1; i < VARVE_TORCH_DEVICES; i++) {
        struct torch_device *device = torch_device_find(i);

        if (device != NULL) {
            return device;
        }
    }
    return NULL;
}

/* The allocator of a device whose other fields are set. */
static int open_allocator(struct torch_device *device, struct varve_message *message)
{
    struct varve_alloc_options options;
    int error;

    varve_alloc_options_init(&options);
    options.device = device->device;
    options.policy = torch.setup.policy;
    options.config = torch.setup.config;
    options.recorder = device->is_recorded ? &device->recorder : NULL;
    error = varve_alloc_open(&options, &device->alloc, message);
    if (error != VARVE_OK) {
        return error;
    }
    torch_history_begin(&device->history, torch.history_limit);
    torch_record_route(device);
    if (torch.plan->oom != NULL) {
        varve_alloc_add_oom_observer(device->alloc, torch.plan->oom, device);
    }
    return VARVE_OK;
}

/* With the mutex. */
static int open_device(int ordinal, struct torch_device **device_out, struct varve_message *message)
{
    struct torch_device *device = calloc(1, sizeof(*device));
    int error = device != NULL ? cuda_forks_watch() : VARVE_ERROR_NO_MEMORY;

    if (error != VARVE_OK) {
        free(device);
        return varve_message_set(message, error, "no memory for the books of device %d", ordinal);
    }
    error = torch_device_make(&torch.setup, ordinal, &device->device, message);
    if (error != VARVE_OK) {
        free(device);
        return error;
    }
    device->ordinal = ordinal;
    device->forks = cuda_forks();
    device->is_recorded = varve_records_wanted(torch.plan->records);
    device->recorder = (struct varve_alloc_recorder){
        .record = torch_record,
        .context = device,
        .tells_names = device->is_recorded,
    };
    if (device->is_recorded) {
        torch_device_describe(torch.setup.kind, device->device);
    }
    error = open_allocator(device, message);
    if (error != VARVE_OK) {
        device->device->ops->close(device->device);
        free(device);
        return error;
    }
    *device_out = device;
    return VARVE_OK;
}

int torch_device_get(int ordinal, struct torch_device **device_out, struct varve_message *message)
{
    struct torch_device *opened;
    int error;

    *device_out = torch_device_find(ordinal);
    if (*device_out != NULL) {
        return VARVE_OK;
    }
    if (ordinal < 0 || ordinal >= VARVE_TORCH_DEVICES) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "device %d; varve serves 0 to %d", ordinal,
                                 VARVE_TORCH_DEVICES - 1);
    }
    if (torch_is_inherited()) {
        return refuse_child(message);
    }
    pthread_mutex_lock(&torch.mutex);
    opened = torch.devices[ordinal];
    error = opened == NULL ? setup_load(message) : VARVE_OK;
    if (error == VARVE_OK && opened == NULL) {
        error = open_device(ordinal, &opened, message);
        if (opened != NULL) {
            torch.forks = opened->forks;
            __atomic_add_fetch(&torch.open_count, 1, __ATOMIC_RELEASE);
            __atomic_store_n(&torch.devices[ordinal], opened, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&torch.mutex);
    *device_out = opened;
    return error;
}

void torch_device_forget(int ordinal)
{
    struct torch_device *device = torch_device_find(ordinal);

    if (device == NULL) {
        return;
    }
    pthread_mutex_lock(&torch.mutex);
    if (torch.devices[ordinal] != device) {
        pthread_mutex_unlock(&torch.mutex); /* another thread was faster */
        return;
    }
    __atomic_store_n(&torch.devices[ordinal], NULL, __ATOMIC_RELEASE);
    device->next_gone = torch.gone;
    torch.gone = device;
    pthread_mutex_unlock(&torch.mutex);
}
