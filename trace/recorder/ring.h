/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's ring, and what else the recorder keeps of a thread. Rings are made, grown and retired here;
 * records are committed to the ring, or to the staging slots of its spill. Threads: each its own, with
 * signals blocked.
 */
#ifndef VARVE_TRACE_RECORDER_RING_H
#define VARVE_TRACE_RECORDER_RING_H

#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/guest_signals.h"
#include "trace/producer.h"
#include "trace/record.h"
#include "trace/recorder/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OVERFLOW_PACKED_BYTES (RECORD_BLOCK_ALIGNMENT + RING_STAGING_RECORDS * RECORD_PACKED_MAX)

/* One mapping per thread: the producer end first (varve_producer_current points to it), then what is cold. */
struct recorder_thread {
    struct varve_producer producer;
    struct ring_header *ring;
    uint64_t ring_bytes;
    uint32_t capacity;  /* of the ring, records */
    uint64_t populated; /* ring slots that have memory behind them, grows during the first lap */
    uint64_t lost_open; /* lost since the last `lost` event */
    uint64_t lost_open_bytes;
    uint32_t nested_lost_kinds[VARVE_KIND_LIMIT]; /* nested events for which no slot was free; atomic */
    uint8_t *packed;                              /* OVERFLOW_PACKED_BYTES, made by the first spill */
    uint64_t packed_position;                     /* of its first record in the spill, plus 1; 0: empty */
    const struct recorder_signals *outer_signals; /* the program's mask while naps may open it, else NULL */
    struct varve_record *staging;                 /* NULL: it has no memory yet */
    bool is_spilling;
    bool piece_is_on_disk;                   /* the newest piece of the spill */
    struct recorder_retry ring_retry;        /* of slots of the ring that have no memory yet */
    struct recorder_retry staging_retry;     /* and of the staging slots */
    bool is_on_disk;                         /* the ring is in the recording directory itself */
    bool is_cut_off;                         /* files can't be made or opened any more: the collector has to help */
    bool is_known_to_sink;                   /* the second sink knows this thread: it allocates no more */
    char path[4096];                         /* of the file that is being opened */
    struct recorder_thread *next, *previous; /* in recorder_process.threads */
    bool is_released; /* its recording is over; the page is the thread's still, and good for the next one */
};

int recorder_ring_create(struct recorder_thread *thread, const struct recorder_process *process, uint32_t index);
void recorder_ring_retire(struct recorder_thread *thread);
/// Let the ring use more of its file (first lap), or make do with what it has. False: it has all of it, or there is no
/// memory for it now.
bool recorder_ring_grow(struct recorder_thread *thread);
/// All of it at once, for a thread that may not ask later; waits up to a second where the collector has to help.
void recorder_ring_grow_whole(struct recorder_thread *thread);
/// The ring is full for want of memory: it is not the collector that will make room.
bool recorder_ring_is_short(const struct recorder_thread *thread);
bool recorder_ring_staging_is_apart(const struct recorder_thread *thread);

/// Commit a record where the thread produces to; there is space.
void recorder_commit(struct recorder_thread *thread, const struct varve_record *record);
/// Where the fast path puts what follows: the slots of the ring, or the staging slots of the spill. These get
/// memory by the first spill; false: there is none.
void recorder_produce_to_ring(struct recorder_thread *thread);
bool recorder_produce_to_spill(struct recorder_thread *thread);
/// Slots the producer may fill before it has to look again; 0 = full.
uint64_t recorder_ring_space(struct recorder_thread *thread);

/* Full rings: spill, wait or drop, as the session says. Threads: each its own, with signals blocked. */

/// Put a record where the overflow policy says; `emitted` was counted already.
void overflow_put(struct recorder_thread *thread, const struct varve_record *record);

/*
 * What a full ring grows by: pieces with packed records, in memory and then on the disk. Threads: each its own, with
 * signals blocked.
 */

/// All staging slots, which are full, into the newest piece. False: there is no room for them.
bool spill_flush(struct recorder_thread *thread);
/// The thread returns to its ring, which is empty. What it spills later is younger than what it will put there.
void spill_end(struct recorder_thread *thread);

/*
 * Shared memory for a process that can't make files any more: it has changed its user or root, has no descriptor left,
 * or may write no file. The collector has it ready in slots (format/session_format.h). Threads: any, with signals
 * blocked.
 */

/// A slot for ring `ring` of `process`, or for the page of the process and its call sites: its first `bytes`, zeroed,
/// not mapped in fork children; the caller's, by recorder_unmap, and the slot is the collector's once what is in it has
/// ended. Waits a moment where the collector is about to make some ready. NULL: there is none.
void *recorder_reserve_take(enum reserve_state kind, uint32_t process, uint32_t ring, size_t bytes);

#endif
