/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What entry.cc, which speaks PyTorch's C++, calls in C. Nothing here throws. Streams and addresses are
 * integers as in alloc.h.
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_ENTRY_H
#define VARVE_ALLOC_FRONTEND_TORCH_ENTRY_H

#include "alloc/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- requests.c ---- */

/// Address 0 for 0 bytes. Errors: those of torch_device_get and varve_alloc_raw_alloc_with_stream.
int torch_allocate(uint64_t bytes, int device, uint64_t stream, uint64_t *addr_out,
                   struct varve_message *message);
/// VARVE_OK for what is not ours.
int torch_record_stream(uint64_t addr, uint64_t stream, struct varve_message *message);
/// What a failed torch_allocate is called where users read it.
void torch_failure_text(int error, uint64_t bytes, int device, const struct varve_message *message,
                        char *text, size_t size);

/* ---- pools.c ---- */

int torch_pool_begin(int device, struct varve_pool_id pool, bool (*filter)(void *context, uint64_t stream),
                     void *context, struct varve_message *message);
/// Afterwards the filter is not called any more. VARVE_OK in a fork child.
int torch_pool_end(int device, struct varve_pool_id pool, struct varve_message *message);
void torch_pool_release(int device, struct varve_pool_id pool);

#ifdef __cplusplus
}
#endif

#endif
