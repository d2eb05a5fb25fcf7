/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/core/storage_object.h"
#include "trace/emit.h"
#include "trace/record.h"

#define DTYPE_BITS 8

static bool storage_emit_is_wanted(void)
{
    return varve_records_wanted(UINT32_MAX);
}

static void storage_emit_emit(enum varve_kind kind, enum varve_cause cause, const struct varve_storage *storage,
                              uint64_t requested, uint64_t arg, uint32_t callsite)
{
    const struct varve_device *device = storage->memory->device;
    const struct varve_record record = {
        .addr = (uint64_t)(uintptr_t)object_data(storage),
        .size = varve_storage_bytes(storage),
        .requested = requested,
        .arg = arg,
        .id_stream = storage->id,
        .dev_seq_kind_flags = varve_record_tag(0, kind, 0),
        .callsite = callsite,
        .device = device != NULL ? (uint8_t)device->index : 0,
        .cause = (uint8_t)cause,
    };
    varve_emit(&record);
}

void emit_storage(enum varve_kind kind, struct varve_storage *storage, uint64_t arg)
{
    if (!storage_emit_is_wanted()) {
        return;
    }
    uint32_t callsite = varve_callsite_here();
    if (kind == VARVE_KIND_STORAGE_CREATE) {
        arg = storage->piece.allocation.id << DTYPE_BITS | (uint64_t)storage->array.dtype;
    } else if (kind == VARVE_KIND_VIEW) {
        arg = storage->base->id;
    }
    if (kind == VARVE_KIND_STORAGE_CREATE || kind == VARVE_KIND_VIEW) {
        __atomic_store_n(&storage->callsite, callsite, __ATOMIC_RELAXED);
    }
    storage_emit_emit(kind, VARVE_CAUSE_NONE, storage,
                      kind == VARVE_KIND_STORAGE_CREATE ? (uint64_t)varve_storage_count(storage) : 0, arg, callsite);
}

void emit_leak(struct varve_storage *storage, enum varve_cause cause, uint64_t now_ns)
{
    uint64_t created_ns = storage->created_ns;
    if (storage_emit_is_wanted()) {
        storage_emit_emit(VARVE_KIND_LEAK, cause, storage, varve_storage_use_count(storage) - 1,
                          created_ns != 0 && now_ns > created_ns ? now_ns - created_ns : 0,
                          __atomic_load_n(&storage->callsite, __ATOMIC_RELAXED));
    }
}

void emit_copy(const struct varve_storage *target, struct varve_memory *source_memory, const struct varve_array *source,
               uint64_t source_id)
{
    enum varve_kind kind = target->memory != source_memory        ? VARVE_KIND_TRANSFER
                           : target->array.dtype != source->dtype ? VARVE_KIND_CAST
                                                                  : VARVE_KIND_COPY;
    if (storage_emit_is_wanted()) {
        storage_emit_emit(kind, VARVE_CAUSE_NONE, target, source_id, array_addr(source), varve_callsite_here());
    }
}
