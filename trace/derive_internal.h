/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to derive*.c, layout*.c and sqlite_derive*.c */
/*
 * The state behind derive_event. One thread, the collector's, owns all of it.
 *
 *   event ─► process ─► live_index or ranges (what is at this address?) ─► scratch row (what happened to it)
 *                  ├──► allocator of a device: layout (segments, blocks) ─► block row, segments, keyframes
 *                  └──► totals: process, all processes, call site; peaks; samples
 *
 * A block that was given back but may still be in use (pending) counts as freed: its row has free_seq, its
 * block row no completed_seq yet.
 *
 * Invariants (derive_check), for every process that has not ended and each domain:
 *   entries of live_index / ranges = rows of that process with free_seq 0 = total.live_allocations
 *   total.allocations - total.frees = total.live_allocations
 * and for every domain:
 *   sum over processes = total of all processes = sum over call sites, at the end and at the peak
 */
#ifndef VARVE_DERIVE_INTERNAL_H
#define VARVE_DERIVE_INTERNAL_H

#include "trace/collect_internal.h"

#include <assert.h>

/* ---- derive_scratch.c: one row per allocation, in a file ---- */

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

/* What more there is to know of a block of a caching allocator; these rows have a file of their own. */
struct scratch_block {
    uint64_t id;            /* of its scratch_row */
    uint64_t completed_seq; /* 0: live or pending */
    uint64_t segment_id;    /* row of `segment`; 0: unknown */
    uint16_t pool;
    uint16_t stream;
    uint8_t device;
    uint64_t unused[4];
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

/* ---- derive_live.c: address → id of the live heap block, per process ---- */

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

/* ---- derive_ranges.c: mapped ranges of a process, disjoint and sorted ---- */

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

/* ---- derive_totals.c: sums, peaks; derive_samples.c: the course over time ---- */

#define SERIES_POINTS_ALL 8192U     /* all processes together */
#define SERIES_POINTS_PROCESS 1024U /* one process */

struct series_point {
    uint64_t seq;
    int64_t ts_ns;
    uint64_t allocated;
    uint64_t allocated_max; /* since the point before */
    uint64_t live;
};

/* Of the blocks of an allocator only. */
struct series_extra {
    uint64_t active, reserved, requested;
};

/* Point k (from 0) is event (k + 1) * stride of the series; `pending` gathers the events after the last one.
 */
struct series {
    struct series_point *points;
    struct series_extra *extras; /* beside the points; NULL unless has_extras */
    bool has_extras;
    uint32_t count;
    uint32_t capacity;
    uint32_t limit;
    uint64_t stride;
    uint64_t pending_events;
    struct series_point pending;
    struct series_extra pending_extra; /* set before series_add */
};

int series_reserve(struct series *series); /* space for one more point; VARVE_ERROR_NO_MEMORY */
void series_add(struct series *series, uint64_t seq, int64_t ts_ns, uint64_t allocated, uint64_t live);
/// No more events follow: the last one becomes a point, and at most `limit` points are kept.
void series_end(struct series *series, uint32_t limit);
int series_check(const struct series *series);
void series_free(struct series *series);

struct total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t peak_allocations, peak_bytes;
    uint64_t peak_seq; /* 0: never more than 0 bytes */
    int64_t peak_ns;
    uint64_t temporary, failed;
    struct series_extra extra; /* now */
    struct series series;
};

/* `peak_*` is what was live at the domain's peak only while touched_seq > peak_seq; else it is the live
 * value. */
struct site_total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t peak_allocations, peak_bytes;
    uint64_t touched_seq;
    uint64_t temporary;
    int64_t lifetime_ns;
};

struct domain_totals {
    struct total all;
    struct site_total *sites; /* by call site; anonymous mapping, so that unused numbers cost nothing */
    size_t site_capacity;
    size_t site_limit; /* one more than the largest call site seen */
};

/* Totals are kept by slot: a domain, or for blocks a device of it. */
#define DEVICE_LIMIT 256U
#define SLOT_LIMIT ((unsigned)DOMAIN_BLOCK + DEVICE_LIMIT)

static_assert(DOMAIN_BLOCK + 1 == DOMAIN_LIMIT, "the slots of devices come after all domains");

static inline unsigned slot_domain(unsigned slot)
{
    return slot < DOMAIN_BLOCK ? slot : DOMAIN_BLOCK;
}

static inline unsigned slot_device(unsigned slot)
{
    return slot < DOMAIN_BLOCK ? 0 : slot - DOMAIN_BLOCK;
}

struct varve_layout;

/* The caching allocator of one device in one process. */
struct derive_device {
    struct varve_layout *layout;
    struct total *total;     /* of its slot */
    uint64_t dev_seq;        /* of the last event */
    uint8_t stage;           /* the last one since a request was served; 0: none */
    bool is_dirty;           /* changed since the last keyframe */
    uint64_t keyframe_bytes; /* of the last one */
};

struct derive_process {
    bool is_forked;
    bool has_ended;
    struct live_index live;
    struct ranges ranges;
    struct total *totals[DOMAIN_BLOCK]; /* by slot; NULL until the domain is used */
    struct derive_device **devices;     /* DEVICE_LIMIT of them; NULL until an allocator is */
};

/* Where the total of a slot is; NULL if the process has no such device. */
static inline struct total **process_total(const struct derive_process *process, unsigned slot)
{
    if (slot < DOMAIN_BLOCK) {
        return (struct total **)&process->totals[slot];
    }
    struct derive_device *device = process->devices != NULL ? process->devices[slot_device(slot)] : NULL;
    return device != NULL ? &device->total : NULL;
}

/* What changes the totals: a row that opens or closes, in the step of one event. */
struct totals_step {
    struct domain_totals *domain;
    struct total *process;
    uint64_t seq;
    int64_t ts_ns;
};

/// Everything that one event may need in memory: afterwards the functions below cannot fail.
int totals_reserve(struct domain_totals *domain, struct total **process, unsigned slot, uint32_t callsite);
void totals_open(const struct totals_step *step, const struct scratch_row *row);
void totals_close(const struct totals_step *step, const struct scratch_row *row);
/// Undo totals_close: `row` still says when it was freed.
void totals_reopen(const struct totals_step *step, const struct scratch_row *row);
void totals_fail(const struct totals_step *step);
/// The event is over: look for a new peak, sample.
void totals_settle(const struct totals_step *step);
/// What a call site had live at the peak of its domain.
void totals_site_peak(const struct domain_totals *domain, uint32_t callsite, uint64_t *allocations_out,
                      uint64_t *bytes_out);
void totals_close_domain(struct domain_totals *domain);
int totals_check(const struct domain_totals *domain, struct derive_process *const *processes,
                 size_t process_limit, unsigned slot, struct varve_message *message);

/* ---- derive.c ---- */

/* A block between heap_free (cause realloc) and heap_realloc of one thread. */
struct derive_limbo {
    uint64_t addr;
    uint64_t id;
};

struct derive_thread {
    uint32_t process_id; /* 0: not seen yet */
    int32_t pid;
    int32_t tid;
    uint32_t limbo_count;
    uint32_t limbo_capacity;
    uint64_t last_alloc_id; /* opened by the thread's last heap event; 0: that was no allocation */
    uint64_t last_block_id; /* by its last alloc or free of a caching allocator */
    struct derive_limbo *limbo;
};

/* A row of `segment`; as many as requests to the device, which cost it far more. */
struct derive_segment {
    uint64_t addr, size;          /* of an expandable one: the lowest address, the most that was mapped */
    uint64_t alloc_seq, free_seq; /* 0: not freed */
    int64_t alloc_ns, free_ns;
    uint32_t process_id, number;
    uint16_t pool, stream;
    uint8_t device, cause;
    bool is_expandable;
};

/* A row of `oom`. */
struct derive_oom {
    uint64_t seq, requested, allocated, reserved, largest_free;
    int64_t ts_ns;
    uint32_t process_id;
    uint8_t device, stage;
};

/* In the scratch file of keyframes, before the bytes; process_id 0: nothing has changed up to here. */
struct derive_keyframe {
    uint64_t seq;
    uint32_t process_id;
    uint32_t device;
    uint64_t bytes;
};

struct derive_keyframes {
    int fd; /* -1: none yet */
    uint64_t used;
    uint64_t count;
    uint64_t last_seq; /* of the last one */
    uint64_t next_seq; /* look again then; UINT64_MAX: no allocator was seen yet */
};

struct derive {
    struct scratch scratch;
    struct scratch blocks;           /* struct scratch_block; fd -1 until an allocator is seen */
    char *path;                      /* of the scratch file: others are named after it */
    struct derive_segment *segments; /* row of id is segments[id - 1] */
    size_t segment_count, segment_capacity;
    struct derive_oom *ooms;
    size_t oom_count, oom_capacity;
    struct derive_keyframes keyframes;
    uint64_t last_seq;
    struct derive_thread *threads; /* by thread_id */
    size_t thread_limit;
    struct derive_process **processes; /* by process_id; NULL: not seen */
    size_t process_limit;
    struct domain_totals domains[SLOT_LIMIT]; /* by slot */
    uint64_t ended_points;                    /* sample points kept of processes that ended */
    uint64_t sizes_refused;
};

/* One event on its way through derive*.c. */
struct derive_step {
    struct derive *derive;
    struct event *event;
    struct derive_thread *thread;
    struct derive_process *process;
    struct derive_device *device; /* NULL: not about blocks */
    enum domain domain;
    uint64_t *last_id; /* of the thread, in this domain */
    struct totals_step totals;
};

/// Write a new row and count it. `like` is the row it is a remainder of, NULL for an allocation by the event.
uint64_t derive_row_open(const struct derive_step *step, uint64_t addr, uint64_t size, unsigned source,
                         const struct scratch_row *like);
/// The allocation ends at this event; returns its row.
struct scratch_row *derive_row_close(const struct derive_step *step, uint64_t id);

/// The event's size, about to be live, becomes 0 if it cannot be true: a damaged record must not make the
/// sums wrap.
void derive_size_check(const struct derive_step *step);

/* ---- derive_mapping.c: mmap, munmap and mremap ---- */

int derive_mmap(struct derive_step *step, struct varve_message *message);
int derive_munmap(struct derive_step *step, struct varve_message *message);

/* ---- derive_block.c: the events of caching allocators ---- */

/// The allocator of the event, made if it is new, and space for what one event needs; before anything else.
int derive_device_prepare(struct derive *derive, struct derive_process *process, const struct event *event,
                          struct varve_message *message);
int derive_block(struct derive_step *step, struct varve_message *message);
bool derive_block_is_premature(const struct derive_process *process, const struct event *event);
/// The process has ended: what its allocators were like goes into a keyframe and from memory.
void derive_devices_end(struct derive *derive, struct derive_process *process);
void derive_devices_free(struct derive_process *process);
int derive_device_check(const struct derive *derive, const struct derive_process *process, unsigned number,
                        struct varve_message *message);

/* Kinds that the allocators emit, numbered by dev_seq. */
static inline bool kind_is_allocator(unsigned kind)
{
    return kind >= VARVE_KIND_ALLOC && kind <= VARVE_KIND_MARK_END;
}

/* ---- derive_keyframe.c: layouts written down now and then ---- */

/// After an event: encode every allocator that changed, if enough events have passed since the last time.
void keyframes_step(struct derive *derive, uint64_t seq);
/// Now, whatever has passed.
void keyframes_write(struct derive *derive, uint64_t seq);
/// Calls `take` for each in order; `bytes` is NULL if process_id is 0. Returns its first value other than 0.
int keyframes_each(const struct derive *derive,
                   int (*take)(void *context, const struct derive_keyframe *keyframe, const void *bytes),
                   void *context, struct varve_message *message);

#endif
