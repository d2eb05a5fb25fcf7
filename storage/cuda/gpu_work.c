/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program is loaded and a kernel is looked up when it is first launched: most processes use few of them, and loading
 * takes memory of the GPU. Threads that come at the same time find the same handle, so only the loading
 * itself is locked.
 */
#include "storage/cuda/gpu_work.h"

#include <pthread.h>
#include <stdlib.h>

struct program {
    uint64_t handle;                     /* 0: not loaded yet. Guarded by the mutex */
    uint64_t functions[GPU_KERNELS_MAX]; /* 0: not looked up yet. Atomic */
};

struct gpu {
    struct varve_device *device;
    pthread_mutex_t mutex;
    void *library; /* guarded by the mutex, as the two behind it */
    void (*library_close)(void *library);
    bool is_library_known;
    struct program programs[GPU_PROGRAM_LIMIT];
};

static const unsigned char *const images[GPU_PROGRAM_LIMIT] = {
#define GPU_PROGRAM_ROW(NAME, name) [GPU_PROGRAM_##NAME] = gpu_##name##_image,
    GPU_PROGRAM_LIST(GPU_PROGRAM_ROW)
#undef GPU_PROGRAM_ROW
};

int gpu_device_error(const struct varve_device *device, int error, const char *what, struct varve_message *message)
{
    struct varve_message reason = {""};
    device->ops->reason(device, &reason);
    return varve_message_set(message, error, "%s: %s", what,
                             reason.text[0] != '\0' ? reason.text : varve_strerror(error));
}

/* ---- programs ---- */

/* With the mutex, but for gpu_open. */
static int gpu_work_program_load(struct gpu *gpu, enum gpu_program number)
{
    uint64_t *handle = &gpu->programs[number].handle;
    return *handle != 0 ? VARVE_OK : gpu->device->ops->program_load(gpu->device, images[number], handle);
}

/* With the mutex. */
static int function_load(struct gpu *gpu, enum gpu_program number, const char *name, uint64_t *function_out)
{
    int error = gpu_work_program_load(gpu, number);
    return error == VARVE_OK
               ? gpu->device->ops->program_find(gpu->device, gpu->programs[number].handle, name, function_out)
               : error;
}

/* ---- opening and closing ---- */

void gpu_close(struct gpu *gpu)
{
    if (gpu != NULL) {
        for (unsigned i = 0; i < GPU_PROGRAM_LIMIT; i++) {
            if (gpu->programs[i].handle != 0) {
                gpu->device->ops->program_unload(gpu->device, gpu->programs[i].handle);
            }
        }
        if (gpu->library != NULL) {
            gpu->library_close(gpu->library);
        }
        pthread_mutex_destroy(&gpu->mutex);
        free(gpu);
    }
}

int gpu_open(struct varve_device *device, struct gpu **gpu_out, struct varve_message *message)
{
    if (device->ops->program_load == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "device '%s' runs no programs", device->ops->name);
    }
    if (images[0][0] == '\0') {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "this build has no kernels for GPUs: nvcc was missing");
    }
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a device's kernels");
    }
    gpu->device = device;
    pthread_mutex_init(&gpu->mutex, NULL);
    int error = gpu_work_program_load(gpu, GPU_PROGRAM_COPY); /* does any of it run on this GPU? */
    if (error != VARVE_OK) {
        gpu_device_error(gpu->device, error, "kernels", message);
        gpu_close(gpu);
        return error;
    }
    *gpu_out = gpu;
    return VARVE_OK;
}

void *gpu_library(struct gpu *gpu, void *(*open)(struct varve_device *device), void (*close)(void *library))
{
    pthread_mutex_lock(&gpu->mutex);
    if (!gpu->is_library_known) {
        gpu->library = open(gpu->device);
        gpu->library_close = close;
        gpu->is_library_known = true;
    }
    void *library = gpu->library;
    pthread_mutex_unlock(&gpu->mutex);
    return library;
}

/* ---- launches ---- */

static int gpu_work_function_find(struct gpu *gpu, enum gpu_program number, const char *name, unsigned kernel,
                                  uint64_t *function_out, struct varve_message *message)
{
    uint64_t *slot = &gpu->programs[number].functions[kernel];
    uint64_t function = __atomic_load_n(slot, __ATOMIC_RELAXED);
    int error = VARVE_OK;
    if (function == 0) {
        pthread_mutex_lock(&gpu->mutex);
        error = function_load(gpu, number, name, &function);
        pthread_mutex_unlock(&gpu->mutex);
        __atomic_store_n(slot, function, __ATOMIC_RELAXED);
    }
    *function_out = function;
    return error == VARVE_OK ? VARVE_OK : gpu_device_error(gpu->device, error, name, message);
}

int gpu_launch(struct gpu *gpu, enum gpu_program program, const char *const *names, unsigned kernel,
               const struct varve_launch *launch, uint64_t stream, struct varve_message *message)
{
    uint64_t function;
    VARVE_TRY(gpu_work_function_find(gpu, program, names[kernel], kernel, &function, message));
    int error = gpu->device->ops->launch(gpu->device, function, launch, stream);
    return error == VARVE_OK ? VARVE_OK : gpu_device_error(gpu->device, error, names[kernel], message);
}

int gpu_launch_blocks(struct gpu *gpu, enum gpu_program program, const char *const *names, unsigned kernel,
                      uint64_t blocks, void *argument, uint64_t stream, struct varve_message *message)
{
    const struct varve_launch launch = {
        .blocks = {(unsigned)blocks, 1, 1},
        .threads = {GPU_BLOCK, 1, 1},
        .arguments = &argument,
    };
    return gpu_launch(gpu, program, names, kernel, &launch, stream, message);
}
