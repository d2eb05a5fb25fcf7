/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch asks, for torch_entry.cc and torch_methods.cc, which speak its C++. Nothing here throws. Streams and
 * addresses are integers as in alloc.h.
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H
#define VARVE_ALLOC_FRONTEND_TORCH_REQUESTS_H

#include "alloc/alloc.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct frontend_device;

#ifdef __cplusplus
extern "C" {
#endif

/// Address 0 for 0 bytes. Errors: those of registry_get and varve_alloc_raw_alloc_with_stream.
int torch_allocate(uint64_t bytes, int device, uint64_t stream, uint64_t *addr_out, struct varve_message *message);
/// VARVE_OK for an address that is not of this library's memory.
int torch_record_stream(uint64_t addr, uint64_t stream, struct varve_message *message);
/// Frees what varve_torch_alloc gave, wherever it is.
void torch_free(uint64_t addr);
/// The text for users of a failed torch_allocate.
void torch_failure_text(int error, uint64_t bytes, int device, const struct varve_message *message, char *text,
                        size_t size);

/// Statistics; zeros for a device that was not used yet.
int torch_stats_of(int device, struct varve_alloc_stats *stats_out);
/// Expandable segments of `device` become accessible to `peer`, now and when they grow.
int torch_enable_peer(int device, int peer, struct varve_message *message);

/* Private pools: what PyTorch's hooks for graph captures ask. */

int torch_pool_begin(int device, struct varve_pool_id pool, bool (*filter)(void *context, uint64_t stream),
                     void *context, struct varve_message *message);
/// Afterwards the filter is not called any more. VARVE_OK in a fork child.
int torch_pool_end(int device, struct varve_pool_id pool, struct varve_message *message);
void torch_pool_release(int device, struct varve_pool_id pool);

/* States of a pool. */

/// What the device has now, of all pools. Owner: the caller, by varve_alloc_snapshot_free. Errors: those of
/// registry_get, VARVE_ERROR_NO_MEMORY.
int torch_pool_look(int device, struct varve_alloc_snapshot *snapshot_out, struct varve_message *message);
/// varve_alloc_restore_pool.
int torch_pool_restore(int device, struct varve_pool_id pool, const struct varve_alloc_snapshot *snapshot,
                       struct varve_pool_change *change_out, struct varve_message *message);
/// Are the blocks in use of the pool the `count` ones that are expected?
bool torch_pool_holds(const struct varve_alloc_snapshot *snapshot, struct varve_pool_id pool, size_t count,
                      bool (*is_expected)(const void *context, uint64_t addr), const void *context);

/* Sharing with processes. */

struct torch_shared {
    char *text; /* for another process; the caller's, by free */
    size_t size;
    uint64_t offset; /* of the block in what that maps */
};

/// Errors: VARVE_ERROR_NOT_FOUND (not a block's first address), UNSUPPORTED (memory that can't be shared), the
/// device's.
int torch_share_export(uint64_t addr, struct torch_shared *shared_out, struct varve_message *message);
/// Where the memory of such a text is here, for torch_share_close. Errors: VARVE_ERROR_INVALID (not such a text),
/// PERMISSION, the device's.
int torch_share_open(int device, const char *text, size_t size, uint64_t *addr_out, struct varve_message *message);
void torch_share_close(int device, uint64_t addr);

/* What a program's torch.profiler sees with profile_memory=True: the calling thread's profiler, if it has one. */

bool torch_profiler_wants(void);
/// `bytes` were allocated at `addr`, or freed if negative.
void torch_profiler_report(const struct frontend_device *device, uint64_t addr, int64_t bytes);
void torch_profiler_report_oom(const struct frontend_device *device, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
