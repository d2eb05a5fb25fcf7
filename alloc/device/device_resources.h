/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resource table of a device: which address ranges are allocated, what is mapped in them, which handles and
 * events live, how much physical memory is used. All rules of the driver API that a caller can break are here,
 * once: sim adds scripts and a clock, host adds memory, cuda the driver. A caller locks for itself.
 *
 * Where memory of the machine is changed between a check and its entry in the table, the check comes as a
 * function of its own and the entry cannot fail.
 */
#ifndef VARVE_ALLOC_DEVICE_DEVICE_RESOURCES_H
#define VARVE_ALLOC_DEVICE_DEVICE_RESOURCES_H

#include "alloc/device.h"
#include "alloc/device/device_ranges.h"
#include "alloc/device/device_slots.h"

#define DEVICE_INDEX_MAX 255 /* of a device and its peers */

struct device_stream {
    uint64_t stream;
    uint64_t completed; /* events of this stream with a number up to here are complete */
    bool is_blocked;    /* host only */
};

/* Handles of streams that devices without a driver create count up from here; no pointer and no program's small number
 * is as large, and the sim's join stream is larger. */
#define DEVICE_STREAM_FIRST ((uint64_t)1 << 62)

/* used = sum of footprints of segments + of handles that are not gone + pooled; a footprint is a size rounded
 * up to `grain`. slot->maps = number of mappings whose value is that handle. A mapping lies in one
 * reservation. */
struct device_resources {
    struct device_ranges space;    /* segments, reservations, imports, pooled memory */
    struct device_ranges mappings; /* by address; inside reservations */
    struct device_ranges pinned;   /* host memory for transfers; counts for nothing */
    struct device_slots handles, events;
    struct device_stream *streams; /* by stream; those of which there is something to say */
    size_t stream_count, stream_capacity;
    uint64_t *created; /* streams of stream_create, in no order */
    size_t created_count, created_capacity;
    uint64_t streams_made; /* handles from DEVICE_STREAM_FIRST on so far */
    uint64_t records;      /* events recorded and waits begun so far: their numbers */
    uint64_t capacity, used;
    uint64_t used_peak; /* the most that `used` ever was */
    uint64_t pooled;    /* of stream-ordered memory: a sim's pool in whole, of others what is handed out */
    uint64_t grain;
    void (*handle_gone)(void *context, const struct device_slot *handle); /* may be NULL */
    void *handle_gone_context;
    struct varve_message reason; /* of the last refusal */
};

/* The error, with its reason noted; a macro, so that a compiler sees that the result is that error. */
#define DEVICE_REFUSE(resources, error, ...) (varve_message_set(&(resources)->reason, (error), __VA_ARGS__), (error))

void resources_init(struct device_resources *resources, uint64_t capacity, uint64_t grain, uint64_t floor,
                    uint64_t alignment);
void resources_close(struct device_resources *resources);
/// Is there physical memory? Errors: VARVE_ERROR_INVALID (0 bytes), NO_MEMORY.
int resources_room(struct device_resources *resources, uint64_t bytes);
/// More or less of stream-ordered memory, to the byte. The former after resources_pool_room.
int resources_pool_room(struct device_resources *resources, uint64_t bytes);
void resources_pool_grow(struct device_resources *resources, uint64_t bytes);
void resources_pool_shrink(struct device_resources *resources, uint64_t bytes);
/// A new range, not entered; the caller's, to be freed or entered. Errors: VARVE_ERROR_INVALID (of a size that
/// such a range can't have), NO_MEMORY.
int resources_range_new(struct device_resources *resources, enum device_range_kind kind, uint64_t bytes,
                        struct device_range **range_out);
/// Enter it at its address. VARVE_ERROR_INVALID: overlap, address 0, wraps.
int resources_range_enter(struct device_resources *resources, struct device_range *range);
/// The end of one that was entered and is out of `space`: its memory counts no more, and the entry goes.
void resources_range_end(struct device_resources *resources, struct device_range *range);
/// The range that begins at `addr`. Errors: VARVE_ERROR_NOT_FOUND, INVALID if its size is not `bytes`, or,
/// for reservations, if something is mapped in it. bytes 0: any size.
int resources_range_find(struct device_resources *resources, enum device_range_kind kind, uint64_t addr, uint64_t bytes,
                         struct device_range **range_out);
/// The same of one that is to go, of which 0 bytes are none: VARVE_ERROR_INVALID. Imports go without a size.
int resources_range_to_free(struct device_resources *resources, enum device_range_kind kind, uint64_t addr,
                            uint64_t bytes, struct device_range **range_out);

/// A handle, whose memory counts already; `value` is for the caller. Errors: VARVE_ERROR_INVALID, NO_MEMORY.
int resources_handle_create(struct device_resources *resources, uint64_t bytes, uint64_t *handle_out);
/// There is no memory for the handle after all.
void resources_handle_cancel(struct device_resources *resources, uint64_t handle);
/// The handle, if it lives, was not released and has that size. Errors: VARVE_ERROR_NOT_FOUND, INVALID.
int resources_handle_find(struct device_resources *resources, uint64_t handle, uint64_t bytes,
                          struct device_slot **slot_out);
/// After resources_handle_find.
void resources_handle_release(struct device_resources *resources, uint64_t handle);
/// May `handle` be mapped there? The mapping, for resources_map_enter, or to be freed.
int resources_map_check(struct device_resources *resources, uint64_t addr, uint64_t bytes, uint64_t handle,
                        struct device_range **mapping_out);
void resources_map_enter(struct device_resources *resources, struct device_range *mapping);
/// Does the range consist of whole mappings? VARVE_ERROR_INVALID if not.
int resources_mapped_check(struct device_resources *resources, uint64_t addr, uint64_t bytes);
/// One mapping goes.
void resources_unmap_enter(struct device_resources *resources, struct device_range *mapping);
/// The device itself has access to a range of whole mappings.
void resources_access_enter(struct device_resources *resources, uint64_t addr, uint64_t bytes);
/// Does the address lie in a segment, import, reservation or allocation of the pool?
bool resources_memory_begins(const struct device_resources *resources, uint64_t addr);
/// Is all of [addr, addr + bytes), which is not empty, memory that the device can read and write, in one piece? Errors:
/// VARVE_ERROR_NOT_FOUND (none begins there), INVALID (not to its end, or not mapped, or without access).
int resources_memory_check(struct device_resources *resources, uint64_t addr, uint64_t bytes);
/// What a size counts for.
uint64_t resources_footprint(const struct device_resources *resources, uint64_t bytes);

/* events */

int resources_event_create(struct device_resources *resources, uint64_t *event_out);
int resources_event_destroy(struct device_resources *resources, uint64_t event);
int resources_event_record(struct device_resources *resources, uint64_t event, uint64_t stream, bool is_incomplete);
/// 1: complete, or never recorded; 0: not yet; or an error.
int resources_event_query(struct device_resources *resources, uint64_t event);
/// VARVE_ERROR_NOT_FOUND if it is not pending.
int resources_event_complete(struct device_resources *resources, uint64_t event);
/// What is known of a stream, NULL: nothing; made if it is new, NULL: no memory. It moves with the next one.
struct device_stream *resources_stream_find(const struct device_resources *resources, uint64_t stream);
struct device_stream *resources_stream_acquire(struct device_resources *resources, uint64_t stream);

/* streams of stream_create */

/// Room for one more, so that entering it can't fail. Errors: VARVE_ERROR_NO_MEMORY.
int resources_created_reserve(struct device_resources *resources);
void resources_created_enter(struct device_resources *resources, uint64_t stream);
/// Errors: VARVE_ERROR_NOT_FOUND.
int resources_created_find(struct device_resources *resources, uint64_t stream);
/// After resources_created_find.
void resources_created_remove(struct device_resources *resources, uint64_t stream);
/// May work be given to that stream? VARVE_ERROR_NOT_FOUND for a handle from DEVICE_STREAM_FIRST on that is not out.
int resources_stream_check(struct device_resources *resources, uint64_t stream);

/// Compares every sum and every list with the others. For tests and varve_sim_check; takes O(n log n).
int resources_check(const struct device_resources *resources, struct varve_message *message);

#endif
