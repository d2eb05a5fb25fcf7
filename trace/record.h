/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 64-byte record: one cache line, written once by the thread that emits it, never formatted in the
 * workload. What the ring implies (process, thread, position) is not repeated here.
 *
 * offset  bytes  field
 *      0      8  ticks         clock ticks (TSC, or ns of CLOCK_MONOTONIC): see varve_clock_kind
 *      8      8  addr
 *     16      8  size          bytes
 *     24      8  requested     bytes
 *     32      8  arg
 *     40      8  id (48 bits), stream (16 bits)
 *     48      8  dev_seq (48 bits), kind (8 bits), flags (8 bits)
 *     56      4  callsite      number in the process' call-site file, 0 = none
 *     60      2  pool
 *     62      1  device
 *     63      1  cause
 *
 * Any change of this layout, of format/ring_format.h or of format/session_format.h bumps VARVE_TRANSPORT_VERSION:
 * a collector refuses to attach to another version.
 */
#ifndef VARVE_TRACE_RECORD_H
#define VARVE_TRACE_RECORD_H

#include "trace/event_list.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_TRANSPORT_VERSION 12U

enum varve_kind {
    VARVE_KIND_NONE = 0,
#define VARVE_KIND_ENUM(code, NAME, name, group, addr, size, requested, arg, meaning) VARVE_KIND_##NAME = (code),
    VARVE_EVENT_LIST(VARVE_KIND_ENUM)
#undef VARVE_KIND_ENUM
};

enum varve_cause {
#define VARVE_CAUSE_ENUM(code, NAME, text) VARVE_CAUSE_##NAME = (code),
    VARVE_CAUSE_LIST(VARVE_CAUSE_ENUM)
#undef VARVE_CAUSE_ENUM
};

enum varve_flag {
    VARVE_FLAG_FAILED = 1,        /* the call failed; the record says what was asked for */
    VARVE_FLAG_NESTED = 2,        /* emitted by a signal handler in the middle of another record */
    VARVE_FLAG_LATE = 4,          /* emitted after the thread's ring was retired */
    VARVE_FLAG_DUPLICATE = 8,     /* CUPTI's record of a call that the CUDA recorder has recorded too */
    VARVE_FLAGS_STORED = 63,      /* those above are the transport's own */
    VARVE_FLAG_GAP = 64,          /* of LOST: stands for `arg` records that are missing, has no number itself */
    VARVE_FLAG_FOLDED = 64,       /* of ALLOC and FREE_*: several events of one call, record_fold.h */
    VARVE_FLAG_SECOND_SINK = 128, /* the workload has emitted it to the second sink */
};

/* What kind of memory a record of the device API is about: bits 12 to 15 of its `pool`. CUPTI's numbers. */
enum varve_memory_kind {
    VARVE_MEMORY_UNKNOWN = 0,
    VARVE_MEMORY_PAGEABLE = 1,
    VARVE_MEMORY_PINNED = 2,
    VARVE_MEMORY_DEVICE = 3,
    VARVE_MEMORY_ARRAY = 4,
    VARVE_MEMORY_MANAGED = 5,
    VARVE_MEMORY_DEVICE_STATIC = 6,
    VARVE_MEMORY_MANAGED_STATIC = 7,
};

#define VARVE_MEMORY_KIND_SHIFT 12

enum varve_clock_kind {
    VARVE_CLOCK_MONOTONIC = 0, /* ticks are ns of CLOCK_MONOTONIC */
    VARVE_CLOCK_TSC = 1,       /* ticks are the invariant TSC; anchors convert them */
};

struct varve_record {
    uint64_t ticks;
    uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint64_t arg;
    uint64_t id_stream;
    uint64_t dev_seq_kind_flags;
    uint32_t callsite;
    uint16_t pool;
    uint8_t device;
    uint8_t cause;
};

#ifdef __cplusplus
static_assert(sizeof(struct varve_record) == 64, "a record is one cache line");
#else
_Static_assert(sizeof(struct varve_record) == 64, "a record is one cache line");
#endif

static inline uint64_t varve_record_tag(uint64_t dev_seq, enum varve_kind kind, unsigned flags)
{
    return (dev_seq << 16) | ((uint64_t)kind << 8) | (uint64_t)flags;
}

static inline unsigned varve_record_kind(const struct varve_record *record)
{
    return (unsigned)(record->dev_seq_kind_flags >> 8) & 0xffU;
}

static inline unsigned varve_record_flags(const struct varve_record *record)
{
    return (unsigned)record->dev_seq_kind_flags & 0xffU;
}

static inline uint64_t varve_record_dev_seq(const struct varve_record *record)
{
    return record->dev_seq_kind_flags >> 16;
}

static inline uint64_t varve_record_id(const struct varve_record *record)
{
    return record->id_stream & UINT64_C(0xffffffffffff);
}

static inline unsigned varve_record_stream(const struct varve_record *record)
{
    return (unsigned)(record->id_stream >> 48);
}

/* The last eight bytes of a record. */
static inline uint64_t varve_record_last(uint32_t callsite, unsigned pool, unsigned device, unsigned cause)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return callsite | (uint64_t)pool << 32 | (uint64_t)device << 48 | (uint64_t)cause << 56;
#else
#error "the order of the last fields"
#endif
}

#ifdef __cplusplus
}
#endif

#endif
