/* SPDX-License-Identifier: Apache-2.0 */
/* What the derivation gathered becomes tables of the database. */
#ifndef VARVE_TRACE_STORE_DERIVED_TABLES_H
#define VARVE_TRACE_STORE_DERIVED_TABLES_H

#include "trace/store/store.h"

struct varve_message;

struct derive;

/// After the last event: write allocation, storage, callsite_stat, total_stat, sample, segment, oom, mark, keyframe
/// into the store, and of the device API device, process_device, stream, pool, device_call_stat, stream_stat,
/// device_memory, device_event. `progress` may be NULL.
int derive_finish(struct derive *derive, struct store *store, store_progress progress, void *context,
                  struct varve_message *message);

#endif
