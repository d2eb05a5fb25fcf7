/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: one producer thread in the workload, one consumer (the collector) in another process, in a file
 * that both map. It holds everything that must survive SIGKILL of either side.
 */
#ifndef VARVE_TRACE_FORMAT_RING_FORMAT_H
#define VARVE_TRACE_FORMAT_RING_FORMAT_H

#include "trace/format/session_format.h"
#include "trace/record.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 *   file:    struct ring_header | staging records | ring records
 *   pieces:  blocks of packed records, each piece a file of its own: what a full ring grows by
 *
 * A record is an event, or several of one call (record_fold.h): all positions and counts are of records, but for
 * lost_by_kind.
 *
 * Order of one ring's events:  ring … then spill (pieces, then staging) … then ring again. A producer that
 * spills returns to the ring when that is empty, and says up to where it has spilled by then (spill_resume), so:
 *   spilled records before spill_resume are older than every record in the ring, the others younger.
 * The consumer therefore reads spill_head BEFORE head BEFORE spill_resume, and drains the spill to spill_resume, the
 * ring to head, then the rest of the spill. Where spill_head was read too early to reach spill_resume, the ring's new
 * records are younger than some that it has not seen: then it takes spill_resume for spill_head, which is published.
 *
 * Pieces are numbered from 1 on. A new one is begun when the one before is SPILL_PIECE_BYTES long, when the producer
 * has been back in the ring, and when memory has no room for more of it: it lies in memory while that has room
 * (session_control.growth_bytes_max, a part of memory_bytes_max), else in the recording directory. Records are numbered
 * through all pieces, and each block says with which it begins. Nothing is appended to a piece before the newest, nor
 * to one up to pieces_ended; the consumer removes what it has stored whole, lowest first: memory goes back while
 * the thread runs.
 *
 * Invariants (ring_check):
 *   tail <= head <= tail + capacity          spill_tail <= spill_flushed <= spill_head (spill_tail may pass
 *                                            spill_flushed: staging records can be consumed too)
 *   spill_head - spill_flushed <= staging_capacity
 *   spill_resume <= spill_head
 *   pieces_released <= piece                 pieces_ended <= piece; these hold records before spill_resume only
 *   records [spill_tail, spill_flushed) are in the pieces (pieces_released, piece], in order, blocks without a gap
 *   completed = head + spill_head + lost     sum(lost_by_kind) = lost + lost_folded
 *   emitted - completed = records being written: 0 or 1, and one more for each signal handler that
 *                                            interrupted another before its append
 *
 * Who writes what:
 *   producer  the producer line, lost_by_kind, nested slots; records in [tail, head) are immutable
 *   consumer  the consumer line
 * Visibility: a record is published by the store-release of head (or spill_head); slots are handed back by
 * the store-release of tail (or spill_tail), and only after the records were committed to the database.
 */

#define RING_MAGIC UINT64_C(0x676e697245565256) /* "VRVEring" */
#define RING_HEADER_BYTES 32768U
#define RING_STAGING_RECORDS 4096U /* 256 KiB: one write(2) per so many spilled records */
#define RING_STAGING_BYTES (RING_STAGING_RECORDS * (uint64_t)sizeof(struct varve_record))
#define RING_NESTED_SLOTS 448U  /* events of signal handlers that interrupt one and the same append */
#define RING_FIRST_RECORDS 512U /* have memory behind them from the start, 32 KiB: most threads record little */
#define RING_CAPACITY_MIN 64U   /* records; capacities are powers of two */
#define RING_CAPACITY_DEFAULT 65536U
#define RING_CAPACITY_MAX (1U << 24)   /* that a recording may be told to use */
#define RING_CAPACITY_LIMIT (1U << 31) /* of a file: one that is made of a trace never spills */

enum ring_state {
    RING_STATE_OPEN = 1,
    RING_STATE_RETIRED = 2, /* its thread ended: no record follows */
};

struct ring_header {
    /* constant after creation */
    uint64_t magic;
    uint32_t version;
    uint32_t process_id; /* number of the process in the session, not the pid */
    uint32_t ring_index; /* within the process; 0 is the shared ring of late events */
    uint32_t tid;
    /* records, a power of two; atomic. A producer that gets no more memory lowers it once, to the slots that have some,
     * before any position has passed these. */
    uint32_t capacity;
    uint32_t staging_capacity;
    uint64_t created_ticks;
    char thread_name[16];

    /* producer line */
    _Alignas(64) uint64_t emitted; /* records begun; counted before the test for space */
    uint64_t head;                 /* ring records committed */
    uint64_t spill_head;           /* spilled records committed */
    uint64_t spill_flushed;        /* of these, in the pieces; the rest is in the staging slots */
    uint64_t piece_bytes;          /* of whole blocks in the newest piece; the producer's own */
    uint64_t lost;                 /* records dropped */
    uint64_t lost_bytes;           /* size fields of the dropped events, added up */
    uint32_t state;                /* enum ring_state */
    uint32_t nested_count;         /* records waiting in `nested` */
    uint32_t nested_filed;         /* of these, filed in the ring or spill already */
    uint64_t memory_bytes;         /* that its file has in /dev/shm; the producer's own */
    uint32_t staging_is_apart;     /* the staging slots are in a file of their own; set once, atomic */
    uint32_t piece;                /* number of the newest piece, 0: none yet; atomic, before spill_flushed */
    uint32_t pieces_ended;         /* nothing is appended to pieces up to this one; atomic, after spill_resume */
    uint64_t spill_resume;         /* spill_head when the producer went back to the ring; atomic */
    uint64_t lost_folded;          /* events of the dropped records beyond one each (record_fold.h) */

    /* consumer line */
    _Alignas(64) uint64_t tail;
    uint64_t spill_tail;
    uint32_t pieces_released; /* removed, or about to be; atomic */

    struct session_growth slots; /* of the ring, that have memory behind them */

    /* producer, cold */
    _Alignas(64) uint64_t lost_by_kind[VARVE_KIND_LIMIT];
    struct varve_record nested[RING_NESTED_SLOTS];
};

static_assert(sizeof(struct ring_header) <= RING_HEADER_BYTES, "the header fits its pages");

static inline uint64_t ring_file_bytes(uint32_t capacity)
{
    return RING_HEADER_BYTES + ((uint64_t)RING_STAGING_RECORDS + capacity) * sizeof(struct varve_record);
}

static inline struct varve_record *ring_staging(struct ring_header *ring)
{
    return (struct varve_record *)((char *)ring + RING_HEADER_BYTES);
}

static inline struct varve_record *ring_records(struct ring_header *ring)
{
    return ring_staging(ring) + RING_STAGING_RECORDS;
}

static_assert(RESERVE_SLOT_BYTES >=
                  RING_HEADER_BYTES + RING_STAGING_BYTES + RING_CAPACITY_DEFAULT * sizeof(struct varve_record),
              "a slot of the reserve holds a ring");

/* record_pack.c: spilled records, a tenth of their size */

/* A piece is a sequence of such blocks, each of RING_STAGING_RECORDS records. Blocks begin at whole
 * pages: appending to a page that is partly written costs more than twice a fresh one. */
struct record_block {
    uint32_t records;
    uint32_t bytes;    /* that follow; then padding */
    uint64_t position; /* in the spill, of its first record */
};

#define RECORD_BLOCK_ALIGNMENT 4096U
#define SPILL_PIECE_BYTES (UINT64_C(4) << 20) /* some 700,000 records; a piece is complete at or beyond that */

static inline uint64_t record_block_stride(const struct record_block *block)
{
    return (sizeof(*block) + block->bytes + RECORD_BLOCK_ALIGNMENT - 1) & ~(uint64_t)(RECORD_BLOCK_ALIGNMENT - 1);
}

#define RECORD_PACKED_MAX 72U /* bytes of one record at worst; the packer may write 8 more */

/// Pack `count` records; `packed` has room for count * RECORD_PACKED_MAX + 8 bytes. Returns the bytes used.
size_t record_pack(const struct varve_record *records, size_t count, uint8_t *packed);
/// The reverse. False if `bytes` are not exactly `count` packed records.
bool record_unpack(const uint8_t *packed, size_t bytes, struct varve_record *records, size_t count);

#endif
