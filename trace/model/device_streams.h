/* SPDX-License-Identifier: Apache-2.0 */
/* Memory by stream. */
#ifndef VARVE_TRACE_MODEL_DEVICE_STREAMS_H
#define VARVE_TRACE_MODEL_DEVICE_STREAMS_H

#include "base/hash_index.h"
#include "trace/model/allocation_scratch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct derive;

/* A row of `stream_stat`. */
struct derive_stream {
    uint32_t process_id;
    uint16_t stream;
    uint8_t domain, device;
    uint64_t allocations, frees, bytes, live_bytes, peak_bytes;
    uint64_t left_bytes; /* as in model_totals.h */
};

struct derive_streams {
    struct index index; /* process, domain, device and stream → 1 + position in `streams` */
    struct derive_stream *streams;
    size_t count, capacity;
};

enum stream_change {
    STREAM_OPENS,
    STREAM_CLOSES,
    STREAM_REOPENS,
};

bool streams_reserve(struct derive *derive); /* for one row that opens; false without memory */
/// What happened to the row of this block row, which has one.
void streams_count(struct derive *derive, const struct scratch_block *block, enum stream_change change);
void streams_close(struct derive_streams *streams); /* NULL is allowed */

#endif
