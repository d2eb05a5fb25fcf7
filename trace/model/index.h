/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to derive*.c, layout*.c and sqlite_derive*.c */
/*
 * What derive keeps its allocations in: rows in a file, and the two indexes that find them, by first address
 * and by any address of a range. Part of derive.h.
 */
#ifndef VARVE_TRACE_MODEL_INDEX_H
#define VARVE_TRACE_MODEL_INDEX_H

#include "trace/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- scratch.c: one row per allocation, in a file ---- */

struct scratch_row {
    uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint64_t alloc_seq : 48;
    uint64_t source : 8;
    uint64_t domain : 7;
    uint64_t temporary : 1;
    uint64_t free_seq; /* 0: live */
    int64_t alloc_ns;
    int64_t free_ns;
    uint32_t callsite;
    uint32_t thread_id; /* who allocated; stands for pid, tid and process */
};

static_assert(sizeof(struct scratch_row) == 64, "a row is one cache line");

/* What more there is to know of a block of a caching allocator and of memory of the CUDA API; these rows have
 * a file of their own. */
struct scratch_block {
    uint64_t id;            /* of its scratch_row; 0: there is none, the CUDA API has it from elsewhere */
    uint64_t completed_seq; /* of a block; 0: live or pending */
    uint64_t segment_id;    /* row of `segment`; 0: unknown */
    uint16_t pool;          /* as in the record */
    uint16_t stream;
    uint8_t device;
    bool is_async;   /* stream-ordered: `pool` has the driver's pool, not the context */
    uint32_t refs;   /* of physical memory: times that somebody has its handle */
    uint64_t handle; /* of physical memory; 0: other memory */
    uint32_t maps;   /* of physical memory: times that it is mapped */
    uint64_t unused;
} __attribute__((may_alias));

static_assert(sizeof(struct scratch_block) == sizeof(struct scratch_row), "one file format for both");

struct scratch {
    int fd;
    struct scratch_row *rows; /* row of id is rows[id - 1] */
    uint64_t count;           /* rows written: the last id given */
    uint64_t capacity;        /* rows the file has space for */
    uint64_t mapped;          /* rows the mapping covers, >= capacity */
    uint64_t cold;            /* rows before this one were dropped from memory (not from the file) */
    uint64_t cold_touches;    /* since then */
};

int scratch_open(struct scratch *scratch, const char *path, struct varve_message *message);
void scratch_close(struct scratch *scratch);
/// Space for `count` more rows, or VARVE_ERROR_FULL: afterwards as many scratch_add cannot fail.
int scratch_reserve(struct scratch *scratch, uint64_t count, struct varve_message *message);
/// The next row, all zero but for what a former trace left: the caller fills every field. Returns its id.
uint64_t scratch_add(struct scratch *scratch, struct scratch_row **row_out);
/// A row that may lie in the cold part of the file.
struct scratch_row *scratch_touch(struct scratch *scratch, uint64_t id);
/// Rows before `id` will not be needed soon: give their memory back.
void scratch_cool(struct scratch *scratch, uint64_t id);

static inline struct scratch_block *scratch_block(struct scratch_row *row)
{
    return (struct scratch_block *)row;
}

static inline const struct scratch_row *scratch_peek(const struct scratch *scratch, uint64_t id)
{
    assert(id >= 1 && id <= scratch->count);
    return &scratch->rows[id - 1];
}

/* ---- live.c: address → id of the live heap block, per process ---- */

struct live_slot {
    uint64_t addr; /* 0: empty */
    uint64_t id;
};

/* Linear probing, deletion by shifting back: no tombstones. At most 3/4 full, and doubled when full, which
 * makes 21 to 43 bytes per block, 64 while it is being doubled. */
struct live_index {
    struct live_slot *slots; /* NULL until the first block */
    uint64_t count;
    unsigned bits; /* log2 of the number of slots */
};

int live_reserve(struct live_index *index); /* space for one more; VARVE_ERROR_NO_MEMORY */
uint64_t live_find(const struct live_index *index, uint64_t addr); /* 0: none */
/// Remember addr → id and return the id it had before, 0 if none. After live_reserve it cannot fail.
uint64_t live_put(struct live_index *index, uint64_t addr, uint64_t id);
uint64_t live_take(struct live_index *index, uint64_t addr); /* forget; returns the id, 0 if none */
void live_clear(struct live_index *index);
int live_check(const struct live_index *index); /* VARVE_ERROR_CORRUPT if an entry cannot be found */

/* ---- ranges.c: mapped ranges of a process, disjoint and sorted ---- */

struct range {
    uint64_t start;
    uint64_t end; /* exclusive */
    uint64_t id;
};

#define RANGE_LEAF_MAX 64U

struct range_leaf {
    struct range_leaf *next; /* among the spare ones */
    uint32_t count;
    struct range ranges[RANGE_LEAF_MAX];
};

/* A sorted sequence cut into leaves, so that an insertion moves one leaf and not all of a million ranges. No
 * leaf is empty, two neighbours together hold more than half a leaf. */
struct ranges {
    struct range_leaf **leaves;
    size_t leaf_count;
    size_t leaf_capacity;
    uint64_t count;
    struct range_leaf *spare; /* what ranges_reserve put aside */
    uint32_t spare_count;
};

/// Space for `count` more insertions; VARVE_ERROR_NO_MEMORY.
int ranges_reserve(struct ranges *ranges, uint32_t count);
/// The lowest range that has an address in [start, end); false if there is none.
bool ranges_first(const struct ranges *ranges, uint64_t start, uint64_t end, struct range *range_out);
/// The range that holds `addr`, NULL if none does; until the next change. Its end may be moved as long as it
/// stays behind its start and touches no other range.
struct range *ranges_at(const struct ranges *ranges, uint64_t addr);
/// Insert a range disjoint from all others; after ranges_reserve it cannot fail.
void ranges_insert(struct ranges *ranges, const struct range *range);
void ranges_remove(struct ranges *ranges, uint64_t start); /* the range that begins there exists */
/// The neighbours, touching or not, of the range that begins at `start`; id 0: there is none.
void ranges_around(const struct ranges *ranges, uint64_t start, struct range *before_out,
                   struct range *after_out);
/// The range that begins at `start` takes in the one that begins at its end, whose id is gone.
void ranges_absorb(struct ranges *ranges, uint64_t start);
void ranges_clear(struct ranges *ranges);
/// Every range in order; stops at the first call that returns other than 0 and returns that.
int ranges_each(const struct ranges *ranges, int (*take)(void *context, const struct range *range),
                void *context);
int ranges_check(const struct ranges *ranges);

#endif
