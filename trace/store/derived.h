/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to sqlite_derive*.c */
/*
 * What the files share that write derived tables: derived.c those that every domain has,
 * derived_blocks.c those of caching allocators, derived_device.c those of the CUDA API.
 */
#ifndef VARVE_TRACE_STORE_DERIVED_H
#define VARVE_TRACE_STORE_DERIVED_H

#include "trace/model/derive.h"
#include "trace/store/store.h"

int derive_write_row(struct store *store, enum store_statement statement, const struct store_value *values,
                     unsigned count, struct varve_message *message);
/// segment, oom and keyframe.
int derive_write_blocks(const struct derive *derive, struct store *store, struct varve_message *message);
/// device, process_device, stream, pool, device_call_stat, stream_stat, device_memory and device_event.
int derive_write_api(const struct derive *derive, struct store *store, struct varve_message *message);

#endif
