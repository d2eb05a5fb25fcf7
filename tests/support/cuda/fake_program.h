/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The part of the fake driver (driver_fake.h) that is about programs. Its images are texts: the name of the one
 * function that is in them. A launch is written down as a transfer with the function as its target.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_PROGRAM_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_PROGRAM_H

#include "support/cuda/fake_state.h"
#include "support/cuda/fake_transfer.h"

#include <string.h>

static inline cuda_result fake_module_load(cuda_module *module_out, const void *image)
{
    FAKE_CALL("cuModuleLoadData", FAKE_INSIDE | FAKE_LASTS);
    if (*(const char *)image == '\0') {
        return CUDA_RESULT_NO_BINARY_FOR_GPU;
    }
    *module_out = (cuda_module)(uintptr_t)fake_add(FAKE_MODULE, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_module_unload(cuda_module module)
{
    FAKE_CALL("cuModuleUnload", FAKE_INSIDE); /* at the close, with the table; else without */
    return fake_drop(FAKE_MODULE, (uint64_t)(uintptr_t)module, 0);
}

static inline cuda_result fake_module_function(cuda_function *function_out, cuda_module module, const char *name)
{
    FAKE_CALL("cuModuleGetFunction", FAKE_INSIDE);
    if (strcmp(name, "there") != 0) {
        return CUDA_RESULT_NOT_FOUND;
    }
    *function_out = (cuda_function)((uintptr_t)module + 1);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_launch(cuda_function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                                      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                                      cuda_stream stream, void **arguments, void **packed_arguments)
{
    if (packed_arguments || !arguments || shared_bytes != 0) {
        fake_wrong("cuLaunchKernel", shared_bytes);
    }
    return fake_transfer("cuLaunchKernel", (struct fake_transfer){.target = (uint64_t)(uintptr_t)function,
                                                                  .source = (uint64_t)(uintptr_t)*arguments,
                                                                  .width = (uint64_t)blocks_x * blocks_y * blocks_z,
                                                                  .rows = (uint64_t)threads_x * threads_y * threads_z,
                                                                  .stream = (uint64_t)(uintptr_t)stream});
}

#endif
