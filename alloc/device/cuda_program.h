/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that run on the GPU: what cuda_device.c puts into its tables. */
#ifndef VARVE_ALLOC_DEVICE_CUDA_PROGRAM_H
#define VARVE_ALLOC_DEVICE_CUDA_PROGRAM_H

#include "alloc/device/cuda_device.h"

/// Has the driver all that is called here?
bool cuda_has_programs(const struct cuda_driver *driver);
/// All programs go, for a close. With the table locked.
void cuda_programs_close(struct cuda_device *cuda);

/* Of struct varve_device_ops. */
int cuda_program_load(struct varve_device *device, const void *image, uint64_t *program_out);
int cuda_program_unload(struct varve_device *device, uint64_t program);
int cuda_program_find(struct varve_device *device, uint64_t program, const char *name, uint64_t *function_out);
int cuda_launch(struct varve_device *device, uint64_t function, const struct varve_launch *launch, uint64_t stream);

#endif
