/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Calls of the CUDA runtime library (the fake one, in tests) by whoever links it.
 */
#ifndef VARVE_TESTS_PROGRAMS_CUDA_DRIVER_RUNTIME_CALLS_H
#define VARVE_TESTS_PROGRAMS_CUDA_DRIVER_RUNTIME_CALLS_H

#include "trace/recorder/cuda/cuda_hooks.h"

#define X(name, ...) cuda_type_##name name;
CUDA_RUNTIME_LIST(X)
#undef X

/* How many were not answered as they should be. */
static inline int runtime_calls(void)
{
    void *memory[4] = {NULL, NULL, NULL, NULL};
    void *refused = NULL;
    int failed = 0;
    failed += cudaMalloc(&memory[0], 20000) != 0;
    failed += cudaMallocHost(&memory[1], 20100) != 0;
    failed += cudaMallocAsync(&memory[2], 20200, NULL) != 0;
    failed += cudaMallocManaged(&memory[3], 20300, 1) != 0;
    failed += cudaMalloc(&refused, (size_t)1 << 50) != 2;
    failed += cudaDeviceSynchronize() != 0;
    failed += cudaFree(memory[0]) != 0;
    failed += cudaFreeHost(memory[1]) != 0;
    failed += cudaFreeAsync(memory[2], NULL) != 0;
    failed += cudaFree(memory[3]) != 0;
    failed += cudaMalloc(&memory[0], 20400) != 0;
    failed += cudaDeviceReset() != 0;
    failed += cudaMalloc(&memory[0], 20500) != 0;
    return failed;
}

#endif
