/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event as it is stored: decoded, in global order. What the merge makes of a record, the derivation completes, and
 * the store writes.
 */
#ifndef VARVE_TRACE_MODEL_MODEL_EVENT_H
#define VARVE_TRACE_MODEL_MODEL_EVENT_H

#include "trace/model/layout_state.h"

#include <stdbool.h>
#include <stdint.h>

/* An event as it is stored: decoded, in global order. 0 in id and callsite means none. */
struct event {
    uint64_t seq;  /* 1, 2, … in global order */
    int64_t ts_ns; /* since the trace began */
    uint32_t process_id;
    uint32_t thread_id; /* row of `thread`: number of the ring in the session */
    int32_t pid;
    int32_t tid;
    uint8_t kind;
    uint8_t cause;
    uint8_t device;
    uint8_t flags;
    bool is_stored; /* read back from a database: `device` is the collector's number already */
    uint16_t pool;
    uint16_t stream;
    uint32_t callsite; /* row of `callsite`, the same number for equal stacks of all processes */
    uint64_t ring_seq; /* of its ring: 1, 2, …, numbers of lost records included; 0: none */
    uint64_t dev_seq;
    uint64_t id; /* heap, mmap, device: given by derive_event */
    uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint64_t arg;
    struct ladder ladder_change; /* of an allocator's event: given by derive_event; differences, modulo 2^64 */
};

#endif
