/* SPDX-License-Identifier: Apache-2.0 */
/* Private pools, for torch_entry.cc: what PyTorch's hooks for graph captures ask. Nothing here throws. */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_POOLS_H
#define VARVE_ALLOC_FRONTEND_TORCH_POOLS_H

#include "alloc/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

int torch_pool_begin(int device, struct varve_pool_id pool, bool (*filter)(void *context, uint64_t stream),
                     void *context, struct varve_message *message);
/// Afterwards the filter is not called any more. VARVE_OK in a fork child.
int torch_pool_end(int device, struct varve_pool_id pool, struct varve_message *message);
void torch_pool_release(int device, struct varve_pool_id pool);

#ifdef __cplusplus
}
#endif

#endif
