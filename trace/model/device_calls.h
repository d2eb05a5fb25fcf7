/* SPDX-License-Identifier: Apache-2.0 */
/* What calls of the CUDA API cost, and where their events are. */
#ifndef VARVE_TRACE_MODEL_DEVICE_CALLS_H
#define VARVE_TRACE_MODEL_DEVICE_CALLS_H

#include "base/hash_index.h"
#include "trace/model/event_groups.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct derive;
struct event;
struct varve_message;

enum call_class {
    CALL_NONE = 0, /* no call, or one without a duration */
    CALL_ALLOC = 1,
    CALL_FREE = 2,
    CALL_WAIT = 3,
    CALL_OTHER = 4,
};

/* A row of `device_call_stat`. */
struct derive_call {
    uint32_t process_id;
    uint16_t stream;
    uint8_t device, cause, class;
    uint64_t calls, failed, ns, max_ns, bytes;
};

/* A row of `device_memory`. */
struct derive_memory {
    uint64_t seq, total_bytes, free_bytes, live_bytes;
    int64_t ts_ns;
    uint32_t process_id;
    uint8_t device;
};

struct derive_calls {
    struct index index; /* process, device, stream and cause → 1 + position in `calls` */
    struct derive_call *calls;
    size_t call_count, call_capacity;
    struct derive_memory *memories;
    size_t memory_count, memory_capacity;
    struct seqs events; /* rows of `device_event`; tag: kind */
};

/// Does this function give memory back, or end a context? Of such a call, a dev_sync of the same cause may
/// have the time.
bool call_frees(unsigned cause);
bool call_resets(unsigned cause);
/// The class of the calls that such an event is about.
enum call_class call_class_of(unsigned kind, unsigned cause);
/// Space for what calls_count may need. VARVE_ERROR_NO_MEMORY, FULL, IO.
int calls_reserve(struct derive *derive, const struct event *event, struct varve_message *message);
/// An event of the group `device`, completed.
void calls_count(struct derive *derive, const struct event *event);
struct derive_calls *calls_open(void);        /* NULL: no memory */
void calls_close(struct derive_calls *calls); /* NULL is allowed */

#endif
