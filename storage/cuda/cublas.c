/* SPDX-License-Identifier: Apache-2.0 */
/* One handle for each GPU, made at its first use and used by one thread at a time. */
#include "storage/cuda/cublas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
#define CUBLAS_FIELD(field, symbol, result, arguments) result(*field) arguments;
    CUBLAS_LIST(CUBLAS_FIELD)
#undef CUBLAS_FIELD
} functions; /* all or none; written once */
static bool is_found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct handle {
    struct varve_device *device;
    pthread_mutex_t mutex;
    cublas_handle cublas;
};

static void *cublas_library_open(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"};
    const char *wanted = getenv("VARVE_CUBLAS");
    if (wanted != NULL && wanted[0] != '\0') {
        return strcmp(wanted, "none") == 0 ? NULL : dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    }
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void cublas_library_find(void)
{
    void *library = cublas_library_open();
    if (library == NULL) {
        return;
    }
    is_found = true;
#define CUBLAS_FIND(field, symbol, result, arguments)     \
    *(void **)&functions.field = dlsym(library, #symbol); \
    is_found = is_found && functions.field != NULL;
    CUBLAS_LIST(CUBLAS_FIND)
#undef CUBLAS_FIND
}

/* ---- handles ---- */

static void handle_close(void *object)
{
    struct handle *handle = object;
    if (varve_cuda_push(handle->device) == 0) {
        functions.destroy(handle->cublas);
        varve_cuda_pop(handle->device);
    }
    pthread_mutex_destroy(&handle->mutex);
    free(handle);
}

static bool handle_create(struct handle *handle)
{
    if (varve_cuda_push(handle->device) != 0) {
        return false;
    }
    bool is_made = functions.create(&handle->cublas) == CUBLAS_SUCCESS;
    if (is_made && functions.set_math(handle->cublas, CUBLAS_NO_SHORT_SUMS) != CUBLAS_SUCCESS) {
        functions.destroy(handle->cublas);
        is_made = false;
    }
    varve_cuda_pop(handle->device);
    return is_made;
}

static void *handle_open(struct varve_device *device)
{
    pthread_once(&once, cublas_library_find);
    if (!is_found || strcmp(device->ops->name, "cuda") != 0) {
        return NULL;
    }
    struct handle *handle = calloc(1, sizeof(*handle));
    if (handle == NULL) {
        return NULL;
    }
    handle->device = device;
    if (!handle_create(handle)) {
        free(handle);
        return NULL;
    }
    pthread_mutex_init(&handle->mutex, NULL);
    return handle;
}

static struct handle *handle_of(struct gpu *gpu)
{
    return gpu_library(gpu, handle_open, handle_close);
}

bool cublas_is_there(struct gpu *gpu)
{
    return handle_of(gpu) != NULL;
}

/* ---- products ---- */

/* With the mutex, and with the device's context. */
static cublas_status gemm_enqueue(cublas_handle cublas, const struct cublas_gemm *gemm, uint64_t stream)
{
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    bool is_wide = gemm->type == CUBLAS_F64;
    cublas_compute compute = is_wide ? CUBLAS_IN_F64 : gemm->type == CUBLAS_F32 ? CUBLAS_IN_F32_EXACT : CUBLAS_IN_F32;
    cublas_turn turns[2];
    cublas_status status = functions.set_stream(cublas, (cublas_stream)(uintptr_t)stream);
    for (int i = 0; i < 2; i++) {
        turns[i] = gemm->is_turned[i] ? CUBLAS_TURNED : CUBLAS_AS_IT_IS;
    }
    if (status != CUBLAS_SUCCESS) {
        return status;
    }
    return functions.gemm(cublas, turns[0], turns[1], (int)gemm->rows, (int)gemm->columns, (int)gemm->depth,
                          is_wide ? (const void *)&one : &one_f32, (const void *)(uintptr_t)gemm->addrs[0], gemm->type,
                          (int)gemm->lead[0], gemm->strides[0], (const void *)(uintptr_t)gemm->addrs[1], gemm->type,
                          (int)gemm->lead[1], gemm->strides[1], is_wide ? (const void *)&zero : &zero_f32,
                          (void *)(uintptr_t)gemm->out_addr, gemm->type, (int)gemm->out_lead, gemm->out_stride,
                          (int)gemm->batches, compute, CUBLAS_ANY_ALGORITHM);
}

int cublas_run(struct gpu *gpu, const struct cublas_gemm *gemm, uint64_t stream, struct varve_message *message)
{
    struct handle *handle = handle_of(gpu);
    int result = varve_cuda_push(handle->device);
    if (result != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "matmul: CUDA's error %d", result);
    }
    pthread_mutex_lock(&handle->mutex);
    cublas_status status = gemm_enqueue(handle->cublas, gemm, stream);
    pthread_mutex_unlock(&handle->mutex);
    varve_cuda_pop(handle->device);
    if (status == CUBLAS_SUCCESS) {
        return VARVE_OK;
    }
    return varve_message_set(message, status == CUBLAS_NO_MEMORY ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO,
                             "matmul: cuBLAS' status %d", (int)status);
}
