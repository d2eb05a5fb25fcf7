/* SPDX-License-Identifier: Apache-2.0 */
/* One row of 64 bytes per allocation, in a file until the end of the recording. */
#ifndef VARVE_TRACE_MODEL_ALLOCATION_SCRATCH_H
#define VARVE_TRACE_MODEL_ALLOCATION_SCRATCH_H

#include "trace/collect.h"
#include "trace/model/domain.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct varve_message;

struct scratch_row {
    uint64_t addr;
    uint64_t size;
    union {
        uint64_t requested; /* read it with scratch_requested */
        struct {
            int32_t alloc_lag, free_lag; /* seq - ring_seq of its events, where it holds them */
        };
    };
    uint64_t alloc_seq : 48;
    uint64_t source : 8;
    uint64_t domain : 6;
    uint64_t temporary : 1;
    uint64_t is_waiting : 1;   /* closed by a realloc that is not over: it comes back if that fails */
    uint64_t free_seq : 48;    /* 0: live */
    uint64_t free_thread : 12; /* who freed it, where it holds that event */
    uint64_t is_in_place : 1;  /* the event that allocated it, which it holds, is of a realloc that left it there */
    uint64_t is_given_up : 1;  /* the event that freed it, which it holds, is of a realloc */
    uint64_t holds_alloc : 1;  /* all of the event that allocated it follows from this row; of heap and Python */
    uint64_t holds_free : 1;   /* the same of the one that freed it */
    int64_t alloc_ns;
    int64_t free_ns;
    uint32_t callsite;
    uint32_t thread_id; /* who allocated; stands for pid, tid and process */
};

static_assert(sizeof(struct scratch_row) == 64, "a row is one cache line");

/* Events of threads with larger numbers have rows of their own. */
#define SCRATCH_FREE_THREADS (1U << 12)

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

enum storage_kind {
    STORAGE_OWN = 1, /* memory of its own, or foreign memory that was wrapped */
    STORAGE_VIEW = 2,
    STORAGE_SHARED = 3,
    STORAGE_MAPPED = 4,
};

/* A storage or view of the storage layer: two rows of a file of their own. */
struct scratch_storage {
    uint64_t number : 48; /* its id in its process */
    uint64_t dtype : 8;
    uint64_t kind : 8;
    uint64_t addr; /* of a row that was released: the one released before it */
    uint64_t size;
    uint64_t elements;
    uint64_t create_seq;
    uint64_t destroy_seq; /* 0: alive */
    int64_t create_ns;
    int64_t destroy_ns;
    uint64_t base;          /* row of the storage that it is a view of; 0: none, or unknown */
    uint64_t allocation_id; /* 0: none, or unknown */
    uint64_t leak_seq;      /* the tracker accused it, and no use was seen since; 0: no */
    uint64_t leak_references;
    int64_t last_use_ns;
    uint32_t writes, reads; /* copies into and out of it and its views */
    uint32_t callsite;
    uint32_t thread_id; /* who created it; stands for pid, tid and process */
    uint32_t views;     /* alive */
    uint8_t device;
    uint8_t leak_cause;
    bool is_of_device; /* it lies in a block of an allocator of the device */
} __attribute__((may_alias));

static_assert(sizeof(struct scratch_storage) == 2 * sizeof(struct scratch_row), "two rows of the file");

struct scratch {
    int fd;
    struct scratch_row *rows; /* row of id is rows[id - 1] */
    uint64_t count;           /* rows written: the largest id given */
    uint64_t released;        /* an id to be given again, which `addr` of its row links to the next one; 0: none */
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
/// Nobody will ask for this row again; its id is given anew.
void scratch_release(struct scratch *scratch, uint64_t id);

/* The id that scratch_add will return. */
static inline uint64_t scratch_next(const struct scratch *scratch)
{
    return scratch->released != 0 ? scratch->released : scratch->count + 1;
}
/// A row that may lie in the cold part of the file.
struct scratch_row *scratch_touch(struct scratch *scratch, uint64_t id);
/// Rows before `id` will not be needed soon: give their memory back.
void scratch_cool(struct scratch *scratch, uint64_t id);

static inline struct scratch_block *scratch_block(struct scratch_row *row)
{
    return (struct scratch_block *)row;
}

/* What was asked for. */
static inline uint64_t scratch_requested(const struct scratch_row *row)
{
    return domain_holds_events(row->domain) ? row->size : row->requested;
}

/* Of the heap or Python, and freed soon. */
static inline bool scratch_row_is_short(const struct scratch_row *row)
{
    return domain_holds_events(row->domain) && row->free_seq != 0 && !row->is_waiting &&
           row->free_seq - row->alloc_seq <= VARVE_SHORT_EVENTS;
}

static inline const struct scratch_row *scratch_peek(const struct scratch *scratch, uint64_t id)
{
    assert(id >= 1 && id <= scratch->count);
    return &scratch->rows[id - 1];
}

#endif
