/* SPDX-License-Identifier: Apache-2.0 */
/* What the numbers of devices, streams and pools mean. */
#ifndef VARVE_TRACE_MODEL_DEVICE_LABELS_H
#define VARVE_TRACE_MODEL_DEVICE_LABELS_H

#include "base/hash_index.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/domain.h"
#include "trace/model/model_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct derive;
struct event;

struct derive_name {
    uint64_t uuid[2]; /* as its bytes lie in memory */
    uint64_t total_bytes;
    char name[33];
    bool is_used;
};

/* A row of `stream` or, with ids, of `pool`. */
struct derive_meaning {
    uint32_t process_id;
    uint16_t number;
    uint8_t device; /* of a stream: as its process calls it */
    bool is_pool, is_small;
    uint64_t ids[2]; /* of a stream: its handle */
};

struct derive_ordinal {
    uint32_t process_id;
    uint8_t ordinal, device;
};

struct derive_names {
    struct derive_name devices[DEVICE_LIMIT];
    struct derive_ordinal *ordinals; /* rows of `process_device` */
    size_t ordinal_count, ordinal_capacity;
    struct derive_meaning *meanings;
    size_t meaning_count, meaning_capacity;
};

/// The number that the device of `event` has in the trace.
uint8_t names_device(const struct derive *derive, const struct event *event);
/// Space for what names_apply may need; false without memory.
bool names_reserve(struct derive *derive, const struct event *event);
/// The event's device becomes the one of the trace; what the event says of numbers is remembered.
void names_apply(struct derive *derive, struct event *event);
/// The device of a stream or pool, as the trace calls it by now.
unsigned names_device_of(const struct derive *derive, const struct derive_meaning *meaning);
void names_close(struct derive_names *names); /* NULL is allowed */

/* Memory by stream. */

/* A row of `stream_stat`. */
struct derive_stream {
    uint32_t process_id;
    uint16_t stream;
    uint8_t domain, device;
    struct figures sum;
    uint64_t peak_bytes;
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
