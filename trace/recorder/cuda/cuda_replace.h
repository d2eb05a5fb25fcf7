/* SPDX-License-Identifier: Apache-2.0 */
/* cudaMalloc and cudaFree served by an allocator of ours. */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_REPLACE_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_REPLACE_H

#include "trace/recorder/cuda/cuda_call.h"

#include <stdbool.h>
#include <stdint.h>

/// Is it to be, on this thread?
bool cuda_replace_is_on(void);
/// True: served, or refused for good: *result_out says. False: the driver is to be called.
bool cuda_replace_alloc(const struct cuda_entry *entry, uint64_t bytes, uint64_t *addr_out, int *result_out);
bool cuda_replace_free(const struct cuda_entry *entry, uint64_t addr, int *result_out);
bool cuda_replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
void cuda_replace_forget(int device);

#endif
