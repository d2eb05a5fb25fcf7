/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a call of the CUDA driver becomes a record, the same for both recorders, so that what they record of one
 * call is equal but for its time, duration, stack and VARVE_FLAG_DUPLICATE.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_RECORD_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_RECORD_H

#include "trace/emit.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

/* A call that has returned. */
struct cuda_call {
    enum varve_kind kind; /* of success */
    enum varve_cause cause;
    enum varve_memory_kind memory;
    unsigned device;  /* ordinal in this process */
    unsigned stream;  /* varve_stream_number */
    unsigned context; /* number of the context, or of the driver's pool; 12 bits */
    int result;       /* CUresult */
    bool is_alloc;    /* addr is an out-parameter; CUDA_ERROR_OUT_OF_MEMORY (2) becomes DEV_OOM */
    uint64_t addr, bytes, arg;
    uint64_t took_ns;
    uint32_t callsite;
    uint32_t flags; /* VARVE_FLAG_DUPLICATE or 0 */
};

#define CUDA_RESULT_OUT_OF_MEMORY 2

static inline void cuda_call_emit(const struct cuda_call *call)
{
    bool is_oom = call->is_alloc && call->result == CUDA_RESULT_OUT_OF_MEMORY;
    struct varve_record record = {
        .addr = call->result == 0 || !call->is_alloc ? call->addr : 0, /* of a failed free: which block stays */
        .size = call->bytes,
        .requested = call->took_ns,
        .arg = call->result == 0 ? call->arg : (uint64_t)call->result,
        .id_stream = (uint64_t)call->stream << 48,
        .callsite = call->callsite,
        .pool = (uint16_t)((unsigned)call->memory << VARVE_MEMORY_KIND_SHIFT | (call->context & 0xfffU)),
        .device = (uint8_t)call->device,
        .cause = (uint8_t)call->cause,
    };

    record.dev_seq_kind_flags = varve_record_tag(0, is_oom ? VARVE_KIND_DEV_OOM : call->kind,
                                                 call->flags | (call->result != 0 ? VARVE_FLAG_FAILED : 0));
    varve_emit(&record);
}

/* A free that has returned, and was emitted when it began: how long it took, and if it failed, that what it named is
 * still there. */
static inline void cuda_free_ended_emit(const struct cuda_call *call)
{
    struct cuda_call waited = *call;

    if (call->result != 0) {
        cuda_call_emit(call);
    }
    waited.kind = VARVE_KIND_DEV_SYNC;
    waited.addr = 0;
    waited.bytes = 0;
    waited.arg = 0;
    cuda_call_emit(&waited);
}

#endif
