/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests, for torch_entry.cc, which speaks its C++. Nothing here throws. Streams and addresses are
 * integers as in alloc.h.
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H
#define VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H

#include "base/error.h"

#include <stdint.h>
#include <stddef.h>

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

#ifdef __cplusplus
}
#endif

#endif
