/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests, for torch_entry.cc, which speaks its C++. Nothing here throws. Streams and addresses are
 * integers as in alloc.h.
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H
#define VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H

#include "alloc/alloc.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Address 0 for 0 bytes. Errors: those of registry_get and varve_alloc_raw_alloc_with_stream.
int torch_allocate(uint64_t bytes, int device, uint64_t stream, uint64_t *addr_out, struct varve_message *message);
/// VARVE_OK for an address that is not of this library's memory.
int torch_record_stream(uint64_t addr, uint64_t stream, struct varve_message *message);
/// The text for users of a failed torch_allocate.
void torch_failure_text(int error, uint64_t bytes, int device, const struct varve_message *message, char *text,
                        size_t size);

/* Private pools, for torch_entry.cc: what PyTorch's hooks for graph captures ask. Nothing here throws. */

int torch_pool_begin(int device, struct varve_pool_id pool, bool (*filter)(void *context, uint64_t stream),
                     void *context, struct varve_message *message);
/// Afterwards the filter is not called any more. VARVE_OK in a fork child.
int torch_pool_end(int device, struct varve_pool_id pool, struct varve_message *message);
void torch_pool_release(int device, struct varve_pool_id pool);

#ifdef __cplusplus
}
#endif

#endif
