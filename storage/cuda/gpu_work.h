/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on a device that runs programs: loaded at their first use, then launched by number. A program is what nvcc
 * makes of one source file in this folder; its kernels are listed beside its callers.
 */
#ifndef VARVE_STORAGE_CUDA_GPU_WORK_H
#define VARVE_STORAGE_CUDA_GPU_WORK_H

#include "alloc/alloc.h"
#include "storage/cuda/gpu_walk.h"

#define GPU_KERNELS_MAX 256 /* of one program */

/* X(NAME, name): the source gpu_name.cu, and the image gpu_name_image. */
#define GPU_PROGRAM_LIST(X) \
    X(COPY, copy)           \
    X(INDEX, index)         \
    X(OPERATORS, operators)

enum gpu_program {
#define GPU_PROGRAM_ENUM(NAME, name) GPU_PROGRAM_##NAME,
    GPU_PROGRAM_LIST(GPU_PROGRAM_ENUM)
#undef GPU_PROGRAM_ENUM
        GPU_PROGRAM_LIMIT,
};

/* Made by the build: a fat binary, or a NUL where the build had no nvcc. */
#define GPU_PROGRAM_IMAGE(NAME, name) extern const unsigned char gpu_##name##_image[];
GPU_PROGRAM_LIST(GPU_PROGRAM_IMAGE)
#undef GPU_PROGRAM_IMAGE

/// `what` went wrong on any device, with its reason or what the error stands for; returns the error.
int gpu_device_error(const struct varve_device *device, int error, const char *what, struct varve_message *message);

struct gpu;

/* As many parts, or blocks, of `by` as hold `count`. */
static inline uint64_t divide_up(uint64_t count, uint64_t by)
{
    return (count + by - 1) / by;
}

/// What launches kernels on `device`, which must outlive it. Owner: the caller, by gpu_close. Errors:
/// VARVE_ERROR_UNSUPPORTED (the device runs no programs, or the build had no nvcc), NO_MEMORY.
int gpu_open(struct varve_device *device, struct gpu **gpu_out, struct varve_message *message);
/// Without effect on NULL. The programs stay loaded until the device closes.
void gpu_close(struct gpu *gpu);
/// What a library made for the device: by `open` at the first call, to be closed with the gpu. One for each gpu. NULL:
/// there is none, which is not tried again. Threads: any.
void *gpu_library(struct gpu *gpu, void *(*open)(struct varve_device *device), void (*close)(void *library));
/// Enqueue the kernel of that number in `names`, always the same list for one program. One argument: a structure, read
/// before the call returns. Threads: any. Errors: the device's.
int gpu_launch(struct gpu *gpu, enum gpu_program program, const char *const *names, unsigned kernel,
               const struct varve_launch *launch, uint64_t stream, struct varve_message *message);
/// The same in `blocks` blocks of GPU_BLOCK threads; fewer than 2^31 blocks.
int gpu_launch_blocks(struct gpu *gpu, enum gpu_program program, const char *const *names, unsigned kernel,
                      uint64_t blocks, void *argument, uint64_t stream, struct varve_message *message);

#endif
