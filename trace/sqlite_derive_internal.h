/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to sqlite_derive*.c */
/*
 * What the files share that write derived tables: sqlite_derive.c those that every domain has,
 * sqlite_derive_block.c those of caching allocators, sqlite_derive_api.c those of the CUDA API.
 */
#ifndef VARVE_SQLITE_DERIVE_INTERNAL_H
#define VARVE_SQLITE_DERIVE_INTERNAL_H

#include "trace/derive_internal.h"
#include "trace/sqlite_internal.h"

int derive_write_row(struct store *store, enum store_statement statement, const struct store_value *values,
                     unsigned count, struct varve_message *message);
/// segment, oom and keyframe.
int derive_write_blocks(const struct derive *derive, struct store *store, struct varve_message *message);
/// device, process_device, stream, pool, device_call_stat, stream_stat, device_memory and device_event.
int derive_write_api(const struct derive *derive, struct store *store, struct varve_message *message);

#endif
