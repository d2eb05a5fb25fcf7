/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * The books that the sim and the host device keep: which address ranges are out, what is mapped in them,
 * which handles and events live, how much physical memory is used. All rules of the driver API that a caller
 * can break are here, once; sim adds scripts and a clock, host adds memory. A caller locks for itself.
 *
 *   ranges.c   ranges of addresses, ordered, O(log n), with a search for the first gap that fits
 *   slots.c    ids of handles and events; an id that was given back is not known again
 *   ledger.c   segments, reservations, handles, mappings
 *   events.c   events and how far their streams have come
 *   check.c    the walker over all of it
 *
 * Where memory of the machine is changed between a check and its entry in the books, the check comes as a
 * function of its own and the entry cannot fail.
 */
#ifndef VARVE_ALLOC_DEVICE_SHARED_H
#define VARVE_ALLOC_DEVICE_SHARED_H

#include "alloc/device.h"

#include <assert.h>

#define DEVICE_INDEX_MAX 255 /* of a device and its peers */

/* ---- ranges.c ---- */

enum device_range_kind {
    DEVICE_RANGE_SEGMENT,
    DEVICE_RANGE_RESERVATION,
    DEVICE_RANGE_IMPORT,  /* another process's segment */
    DEVICE_RANGE_POOLED,  /* in the pool of stream-ordered memory, of a sim */
    DEVICE_RANGE_MAPPING, /* of a handle, in a reservation */
    DEVICE_RANGE_EXTENT,  /* of a file */
};

/* A node of a treap over `addr`; its `gap` is what lies free in front of it, from an aligned address on. */
struct device_range {
    struct device_range *left, *right;
    uint64_t addr, bytes;
    uint64_t gap, gap_max; /* gap_max: of the subtree */
    uint64_t value;        /* mappings: the handle; segments of the host: place in its file */
    uint64_t export_id;    /* segments of the host: entry of its table of exports, 0: none */
    uint32_t priority;
    enum device_range_kind kind;
};

struct device_ranges {
    struct device_range *root;
    uint64_t count;
    uint64_t floor;     /* gaps begin here */
    uint64_t alignment; /* of the first address of a gap; a power of two */
    uint64_t random;
};

void device_ranges_init(struct device_ranges *ranges, uint64_t floor, uint64_t alignment);
/// `range` overlaps no other one, is not empty and does not wrap.
void device_ranges_insert(struct device_ranges *ranges, struct device_range *range);
void device_ranges_remove(struct device_ranges *ranges, struct device_range *range);
/// Last range that begins at or before `addr`; first one that begins at or after it; NULL if there is none.
struct device_range *device_ranges_at_or_before(const struct device_ranges *ranges, uint64_t addr);
struct device_range *device_ranges_at_or_after(const struct device_ranges *ranges, uint64_t addr);
/// A range that shares an address with [addr, addr + bytes), the lowest; NULL if there is none.
struct device_range *device_ranges_overlap(const struct device_ranges *ranges, uint64_t addr, uint64_t bytes);
/// Lowest aligned address from `floor` on with `bytes` free behind it; false if that is beyond 2^63.
bool device_ranges_first_fit(const struct device_ranges *ranges, uint64_t bytes, uint64_t *addr_out);
/// Frees all ranges.
void device_ranges_close(struct device_ranges *ranges);
int device_ranges_check(const struct device_ranges *ranges, const char *name, struct varve_message *message);

/* ---- slots.c ---- */

/* A handle of physical memory, an event, or an entry of the table of exports. */
struct device_slot {
    uint64_t bytes;      /* handles */
    uint64_t value;      /* handles of the host: place in its file; events: number of their last record */
    uint64_t stream;     /* events: of the last record */
    uint32_t maps;       /* handles: mappings of it */
    uint32_t generation; /* times that the slot was given back */
    uint32_t next;       /* spare slots: index + 1 of the next one */
    bool is_live;
    bool is_released; /* handles: gone with their last mapping */
    bool is_pending;  /* events: were recorded as incomplete, and not completed by name since */
};

struct device_slots {
    struct device_slot *slots;
    uint32_t count, capacity;
    uint32_t spare; /* index + 1 */
    uint32_t live;
};

/// A slot and its id, not 0; NULL if there is no memory. The slot moves with the next take.
struct device_slot *slots_acquire(struct device_slots *slots, uint64_t *id_out);
void slots_release(struct device_slots *slots, uint64_t id);
/// NULL for an id that is not out.
struct device_slot *slots_find(const struct device_slots *slots, uint64_t id);
/// Position of an id in `slots->slots`.
uint32_t slots_index(uint64_t id);
void slots_close(struct device_slots *slots);
int slots_check(const struct device_slots *slots, const char *name, struct varve_message *message);

/* ---- ledger.c ---- */

struct device_stream {
    uint64_t stream;
    uint64_t completed; /* events of this stream with a number up to here are complete */
    bool is_blocked;    /* host only */
};

/* used = sum of footprints of segments + of handles that are not gone + pooled; a footprint is a size rounded
 * up to `grain`. slot->maps = number of mappings whose value is that handle. A mapping lies in one
 * reservation. */
struct device_ledger {
    struct device_ranges space;    /* segments, reservations, imports, pooled memory */
    struct device_ranges mappings; /* by address; inside reservations */
    struct device_slots handles, events;
    struct device_stream *streams; /* by stream; those of which there is something to say */
    size_t stream_count, stream_capacity;
    uint64_t records; /* events recorded and waits begun so far: their numbers */
    uint64_t capacity, used;
    uint64_t pooled; /* of stream-ordered memory: a sim's pool in whole, of others what is handed out */
    uint64_t grain;
    void (*handle_gone)(void *context, const struct device_slot *handle); /* NULL: nobody wants to know */
    void *handle_gone_context;
    struct varve_message reason; /* of the last refusal */
};

/* The error, with its reason noted; a macro, so that a compiler sees that the result is that error. */
#define DEVICE_REFUSE(ledger, error, ...) \
    (varve_message_set(&(ledger)->reason, (error), __VA_ARGS__), (error))

void ledger_init(struct device_ledger *ledger, uint64_t capacity, uint64_t grain, uint64_t floor,
                 uint64_t alignment);
void ledger_close(struct device_ledger *ledger);
/// Is there physical memory? Errors: VARVE_ERROR_INVALID (0 bytes), NO_MEMORY.
int ledger_room(struct device_ledger *ledger, uint64_t bytes);
/// More or less of stream-ordered memory, to the byte. The former after ledger_pool_room.
int ledger_pool_room(struct device_ledger *ledger, uint64_t bytes);
void ledger_pool_grow(struct device_ledger *ledger, uint64_t bytes);
void ledger_pool_shrink(struct device_ledger *ledger, uint64_t bytes);
/// A new range, not entered; NULL if there is no memory.
struct device_range *ledger_range_new(struct device_ledger *ledger, enum device_range_kind kind,
                                      uint64_t bytes);
/// Enter it at `addr`; takes the range over, frees it after an error (VARVE_ERROR_INVALID: overlap, address
/// 0, wraps).
int ledger_range_enter(struct device_ledger *ledger, struct device_range *range, uint64_t addr);
/// The range that begins at `addr`. Errors: VARVE_ERROR_NOT_FOUND, INVALID if its size is not `bytes`, or,
/// for reservations, if something is mapped in it. bytes 0: any size.
int ledger_range_find(struct device_ledger *ledger, enum device_range_kind kind, uint64_t addr,
                      uint64_t bytes, struct device_range **range_out);
/// The same of one that is to go, of which 0 bytes are none: VARVE_ERROR_INVALID.
int ledger_range_to_free(struct device_ledger *ledger, enum device_range_kind kind, uint64_t addr,
                         uint64_t bytes, struct device_range **range_out);
void ledger_range_drop(struct device_ledger *ledger, struct device_range *range);

/// After ledger_room.
int ledger_handle_create(struct device_ledger *ledger, uint64_t bytes, uint64_t value, uint64_t *handle_out);
int ledger_handle_release(struct device_ledger *ledger, uint64_t handle, uint64_t bytes);
/// May `handle` be mapped there? The mapping, for ledger_map_enter, or to be freed.
int ledger_map_check(struct device_ledger *ledger, uint64_t addr, uint64_t bytes, uint64_t handle,
                     struct device_range **mapping_out);
void ledger_map_enter(struct device_ledger *ledger, struct device_range *mapping);
/// Does the range consist of whole mappings? VARVE_ERROR_INVALID if not.
int ledger_mapped_check(struct device_ledger *ledger, uint64_t addr, uint64_t bytes);
/// After ledger_mapped_check.
void ledger_unmap_enter(struct device_ledger *ledger, uint64_t addr, uint64_t bytes);
/// What a size counts for.
uint64_t ledger_footprint(const struct device_ledger *ledger, uint64_t bytes);

/* ---- events.c ---- */

int ledger_event_create(struct device_ledger *ledger, uint64_t *event_out);
int ledger_event_destroy(struct device_ledger *ledger, uint64_t event);
int ledger_event_record(struct device_ledger *ledger, uint64_t event, uint64_t stream, bool is_incomplete);
/// 1: complete, or never recorded; 0: not yet; or an error.
int ledger_event_query(struct device_ledger *ledger, uint64_t event);
/// VARVE_ERROR_NOT_FOUND if it is not pending.
int ledger_event_complete(struct device_ledger *ledger, uint64_t event);
/// What is known of a stream, NULL: nothing; made if it is new, NULL: no memory. It moves with the next one.
struct device_stream *ledger_stream_find(const struct device_ledger *ledger, uint64_t stream);
struct device_stream *ledger_stream_acquire(struct device_ledger *ledger, uint64_t stream);

/* ---- check.c ---- */

int ledger_check(const struct device_ledger *ledger, struct varve_message *message);

#endif
