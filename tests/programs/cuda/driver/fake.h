/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/* What the driver that lib_cuda_fake.c pretends to be has and answers, for it and for the programs that use it. */
#ifndef VARVE_TESTS_PROGRAMS_CUDA_DRIVER_FAKE_H
#define VARVE_TESTS_PROGRAMS_CUDA_DRIVER_FAKE_H

#include "trace/recorder/cuda/cuda_hooks.h"

#include <stdbool.h>

#define FAKE_DEVICES 2
#define FAKE_INVALID 1
#define FAKE_OUT_OF_MEMORY 2
#define FAKE_NO_CONTEXT 201
#define FAKE_BYTES_INVALID 2989 /* a size that is refused */

/* Functions that programs need, and that are not recorded. */
#define CUDA_PLAIN_LIST(X)                                              \
    X(cuInit, (unsigned flags))                                         \
    X(cuDevicePrimaryCtxRetain, (void **context_out, int device))       \
    X(cuDeviceSetMemPool, (int device, void *pool))                     \
    X(cuCtxCreate_v2, (void **context_out, unsigned flags, int device)) \
    X(cuCtxSetCurrent, (void *context))                                 \
    X(cuStreamCreate, (void **stream_out, unsigned flags))              \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                \
    X(cuStreamEndCapture, (void *stream, void **graph_out))

#define X(exported, ...) cuda_type_##exported exported;
CUDA_HOOK_LIST(X)
#undef X
#define X(name, parameters) int name parameters;
CUDA_PLAIN_LIST(X)
#undef X

#endif
