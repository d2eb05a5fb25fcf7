/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by the files salvage*.c and their test */
/*
 * How the copies of the records lie in memory and in the file. One thread calls all of it.
 *
 * A record first waits in the buffer of its ring. A full buffer becomes a block: packed into `packed`, behind
 * the blocks of other rings; what has gathered there goes to the end of the file. A block names the block of
 * the same ring before it, so that memory holds one offset per ring and nothing per block.
 *
 *   file, then packed:   header | packed records | header | packed records | …
 *
 * Invariants:
 *   the file has `written` bytes, a multiple of SALVAGE_WRITE_ALIGNMENT unless a write failed; packed[0] is
 *   the byte at offset `written`
 *   a ring's waiting records have the numbers next - count … next - 1; all of its blocks have lower ones
 *   staged = sum of capacity over the rings of the circle = over all rings; capacity > 0 ⇔ in the circle
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_SALVAGE_PARTS_H
#define VARVE_TRACE_COLLECTOR_LTTNG_SALVAGE_PARTS_H

#include "trace/collector/lttng/salvage.h"
#include "trace/format/ring.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SALVAGE_BLOCK_RECORDS 256U /* 16 KiB: the buffers at work should stay in the cache */
#define SALVAGE_BUFFER_RECORDS_MIN 8U
/* Records that all buffers together may have room for, 16 MiB: a thousand threads can be at work at once. */
#define SALVAGE_STAGED_MAX (256U << 10)
#define SALVAGE_WRITE_ALIGNMENT 4096U
#define SALVAGE_NO_BLOCK UINT64_MAX
#define SALVAGE_NO_RING UINT32_MAX
#define SALVAGE_NUMBER_LIMIT (UINT64_C(1) << 62) /* no ring gets there: room for arithmetic */
#define SALVAGE_PAGE_NUMBERS 4096U

/* In front of the packed records of a block; not aligned in the file. */
struct salvage_block {
    struct varve_mirror_origin origin;
    uint64_t first;    /* number; the others follow without a jump */
    uint64_t previous; /* offset of the ring's block before, SALVAGE_NO_BLOCK: none */
    uint32_t count;
    uint32_t bytes; /* packed, that follow */
};

#define SALVAGE_BLOCK_BYTES_MAX \
    (sizeof(struct salvage_block) + (size_t)SALVAGE_BLOCK_RECORDS * RECORD_PACKED_MAX + 8)
#define SALVAGE_PACKED_BYTES ((size_t)128 << 10)

struct salvage_ring {
    struct varve_mirror_origin origin; /* of the waiting records: in ring 0 the thread may change */
    uint64_t next;                     /* above all numbers that were kept; 0: none was */
    struct varve_record *records;      /* the buffer */
    uint32_t count, capacity;          /* records; capacity 0: no buffer */
    uint64_t block;                    /* offset of the newest block */
    uint64_t block_count;
    uint64_t *marks; /* the page marked last and its number, NULL: none */
    uint64_t marks_page;
    uint32_t staged_before, staged_after; /* the circle of rings with a buffer */
    bool is_used;                         /* since the hand last came by */
};

/* Marks of the numbers page * SALVAGE_PAGE_NUMBERS … of a ring. A page is there from its first mark on: a
 * jump of the numbers, however far, costs nothing. */
struct salvage_page {
    uint64_t *bits; /* NULL: the slot is free */
    uint64_t page;
    uint32_t ring; /* index in `rings` */
};

struct salvage {
    int fd;
    char *path;
    int failure;        /* VARVE_OK, or the first error: nothing is kept any more */
    int failure_reason; /* errno of it */
    uint64_t refused;   /* records that were not kept */

    struct salvage_ring *rings; /* in the order of their first record */
    uint32_t ring_count, ring_room;
    uint32_t *slots; /* hash table: index in `rings` + 1; 0: free */
    unsigned slot_bits;

    uint32_t hand;   /* in the circle: whose buffer to take next; SALVAGE_NO_RING: there is none */
    uint64_t staged; /* records that all buffers have room for */

    uint8_t *packed; /* SALVAGE_PACKED_BYTES */
    size_t packed_bytes;
    uint64_t written;

    struct salvage_page *pages; /* hash table; NULL before the first mark */
    size_t page_count;
    unsigned page_bits;
};

static inline size_t salvage_hash(uint64_t left, uint64_t right, unsigned bits)
{
    return (size_t)((left + right * UINT64_C(0xd6e8feb86659fd93)) * UINT64_C(0x9e3779b97f4a7c15) >>
                    (64 - bits));
}

/* ---- salvage.c ---- */

/// Index of a ring, SALVAGE_NO_RING if none of its records were kept.
uint32_t salvage_ring_find(const struct salvage *salvage, uint32_t process, int32_t pid, uint32_t ring);

/* ---- salvage_marks.c ---- */

/// The first number from `number` on, below `end`, that is not marked; `end` if there is none.
uint64_t salvage_unmarked(const struct salvage *salvage, uint32_t ring, uint64_t number, uint64_t end);
void salvage_marks_free(struct salvage *salvage);

#endif
