/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from the events in their order: which allocation a free gives up, what is live, what the peak was. The
 * collector calls derive_event for every event just before it stores it; store/derived_tables.h writes the result.
 */
#ifndef VARVE_TRACE_MODEL_DERIVE_H
#define VARVE_TRACE_MODEL_DERIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;
struct varve_message;

struct derive;

/// `scratch_path`: a file of the recording directory that holds one fixed-size row per allocation until the
/// end; created or emptied. Owner of the result: the caller, until derive_close.
int derive_open(const char *scratch_path, struct derive **derive_out, struct varve_message *message);

/// Take one event in order of seq; completes it: ids and sizes of frees, requested, causes `inherited` and
/// `unknown_address`, size and callsite of what a free refers to; of an allocator's event the row of its
/// allocation or segment as id; the number of the device in its process becomes the one of the trace
/// (DEVICE and STREAM events keep the former as id). After an error (VARVE_ERROR_FULL, NO_MEMORY) nothing has
/// changed: the same event may be tried again.
int derive_event(struct derive *derive, struct event *event, struct varve_message *message);

/// Could the row of its allocation hold all of this event, which was taken last? Its thread and process are those that
/// `derive` has of the thread.
bool derive_can_hold(const struct derive *derive, const struct event *event);
/// It does from here on: view event has it from the row.
void derive_hold(struct derive *derive, const struct event *event);
/// Is it a free that is taken back if the realloc fails that made it? Then its row holds it no longer.
bool derive_may_return(const struct event *event);
/// Does the row of its allocation hold this event, a free?
bool derive_holds_free(const struct derive *derive, const struct event *event);

/// True if `event` allocates an address that is still live in its process, or frees one that is not: then the
/// free, or the allocation, that must have come before it is still to be read from another ring (the clocks
/// of two CPUs were read within ns of each other), and the merge should let other rings go first for a
/// moment. The same of physical memory of a device, which a handle names. Events of a caching allocator are
/// numbered (dev_seq): true if numbers before this one are missing.
bool derive_is_out_of_order(const struct derive *derive, const struct event *event);

/// A process image ended or was replaced: its live allocations stay recorded as leaks, its index entries go.
/// `forked_from`: a child inherits what its parent had; frees of that are marked `inherited`.
void derive_process_start(struct derive *derive, uint32_t process_id, uint32_t forked_from);
void derive_process_end(struct derive *derive, uint32_t process_id);

/// From here on nothing is kept of host memory that was freed but what it adds to the totals, no layouts, and no list
/// of events: memory and scratch file grow with what is live only. Ids are given anew.
void derive_forget(struct derive *derive);

/// From here on the same of what the heap or Python frees within VARVE_SHORT_EVENTS events.
void derive_forget_short(struct derive *derive);

/// Allocations seen so far.
uint64_t derive_allocations(const struct derive *derive);
/// Sizes of damaged records, larger than any block can be: these count as 0 bytes.
uint64_t derive_sizes_refused(const struct derive *derive);
/// Frees and resizes of addresses that no allocation was recorded of, but for those that a fork child has inherited.
uint64_t derive_frees_unknown(const struct derive *derive);
/// Events before the next one are missing: a fork child may free what it had allocated then, so that from here on frees
/// of unknown addresses in it count, and no longer as inherited; unmapped memory too.
void derive_past_is_lost(struct derive *derive);

void derive_close(struct derive *derive);

/// Walk everything and compare the sums; 0 or VARVE_ERROR_CORRUPT with the reason.
int derive_check(const struct derive *derive, struct varve_message *message);

/* mmap, munmap and mremap. */

struct derive_step;

int derive_mmap(struct derive_step *step, struct varve_message *message);
int derive_munmap(struct derive_step *step, struct varve_message *message);

/* Named phases of the program (varve_mark_begin, varve_mark_end). */

/// Take a MARK_BEGIN or MARK_END: a row of `mark` begins, or the innermost one of this name in the process ends.
int derive_mark(const struct derive_step *step, struct varve_message *message);

/* The malloc family. */

int derive_heap_alloc(struct derive_step *step, struct varve_message *message);
int derive_heap_free(struct derive_step *step, struct varve_message *message);
int derive_heap_realloc(struct derive_step *step, struct varve_message *message);

/* What follows from the events of the storage layer: a row for each storage and view. */

struct derive_process;

/// Take an event of that group, whose device is the trace's number already; the event stays as it is.
int derive_storage(const struct derive_step *step, struct varve_message *message);
/// It destroys what was not created yet, or is a view of that.
bool derive_storage_is_out_of_order(const struct derive_process *process, const struct event *event);
int derive_storages_check(const struct derive *derive, unsigned process_id, struct varve_message *message);

/* The events of caching allocators. */

struct derive_device;

/// The allocator of the event, made if it is new, and space for what one event needs; before anything else.
int derive_device_prepare(struct derive *derive, struct derive_process *process, const struct event *event,
                          struct varve_message *message);
int derive_block(struct derive_step *step, struct varve_message *message);
bool derive_block_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                  const struct event *event);
/// After the last event: segments that have memory, and bytes of those without any block in use or pending (the
/// rung of the ladder).
void derive_device_now(const struct derive_device *device, uint32_t *segments_out, uint64_t *cached_out);
/// The process has ended: what its allocators were like goes into a keyframe and from memory.
void derive_devices_end(struct derive *derive, struct derive_process *process);
void derive_devices_free(struct derive_process *process);
int derive_device_check(const struct derive *derive, const struct derive_process *process, unsigned number,
                        struct varve_message *message);

/*
 * Call sites put together once the last event was taken: those that are one row of the database, and those that hardly
 * matter: which they are, and their figures added up.
 */

/* One part in so many of a domain's bytes, allocations, bytes at its peak, or bytes live at the end is not small. */
#define JOIN_SHARE 10000U

enum join_size {
    JOIN_UNUSED, /* nothing was allocated there */
    JOIN_SMALL,  /* in every domain, by each of the measures */
    JOIN_LARGE,  /* in one of them; or of a storage that is alive */
};

/// `sizes[n]`: enum join_size of call site n, below `limit`; what is larger already stays so. `rows[n]`: which of these
/// call site n of events is by now, below `row_limit`.
void join_sizes(const struct derive *derive, const uint32_t *rows, size_t row_limit, uint8_t *sizes, size_t limit);
/// From here on the figures of call site n, below `limit`, are those of `joined[n]`, which is no larger than n; no
/// event may follow. `is_same`: they are one call site, and grow as one. Errors: VARVE_ERROR_NO_MEMORY.
int join_callsites(struct derive *derive, const uint32_t *joined, size_t limit, bool is_same);

/* Layouts written down now and then, so that any moment is a few thousand events away. */

struct derive_keyframe;

/// After an event: encode every allocator that changed, if enough events have passed since the last time.
void keyframes_step(struct derive *derive, uint64_t seq);
/// Now, whatever has passed.
void keyframes_write(struct derive *derive, uint64_t seq);
/// Calls `take` for each in order; `bytes` is NULL if process_id is 0. Returns its first value other than 0.
int keyframes_each(const struct derive *derive,
                   int (*take)(void *context, const struct derive_keyframe *keyframe, const void *bytes), void *context,
                   struct varve_message *message);

#endif
