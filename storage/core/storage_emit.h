/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to storages becomes records of the process' trace: the only module where they get their fields. Without
 * a recording session it costs a call, a load and a branch.
 */
#ifndef VARVE_STORAGE_CORE_STORAGE_EMIT_H
#define VARVE_STORAGE_CORE_STORAGE_EMIT_H

#include "storage/core/storage_object.h"

/// The storage was created, is about to go, is a new view, shared or mapped: `arg` as the list of events says, of the
/// kinds that leave it to the caller.
void emit_storage(enum varve_kind kind, struct varve_storage *storage, uint64_t arg);
/// It looks like a leak, to the tracker, which has a reference of its own; the cause says why, as far as that
/// lies in the object.
void emit_leak(struct varve_storage *storage, enum varve_cause cause, uint64_t now_ns);
/// Elements of `source`, at an address, came to the target: copied, converted or brought from another memory. Its
/// storage's id, or 0.
void emit_copy(const struct varve_storage *target, struct varve_memory *source_memory, const struct varve_array *source,
               uint64_t source_id);

#endif
