/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to derive*.c, layout*.c and sqlite_derive*.c */
/*
 * The state behind derive_event. One thread, the collector's, owns all of it.
 *
 *   event ─► process ─► live_index or ranges (what is at this address?) ─► scratch row (what happened to it)
 *                  ├──► allocator of a device: layout (segments, blocks) ─► block row, segments, keyframes
 *                  ├──► CUDA API (model/device/device.h): addresses, handles, mappings ─► block row
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
#ifndef VARVE_TRACE_MODEL_DERIVE_H
#define VARVE_TRACE_MODEL_DERIVE_H

#include "trace/collect_internal.h"
#include "trace/model/index.h"

#include <assert.h>

/* ---- totals.c: sums, peaks; samples.c: the course over time ---- */

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

/* Totals are kept by slot: a domain, or a device of it; in this order. */
#define DEVICE_LIMIT 256U
#define SLOT_LIMIT (4U + 4U * DEVICE_LIMIT)

static const uint16_t slot_first[DOMAIN_LIMIT + 1] = {
    [DOMAIN_HEAP] = 1,
    [DOMAIN_MMAP] = 2,
    [DOMAIN_DEVICE] = 3,
    [DOMAIN_BLOCK] = 3 + DEVICE_LIMIT,
    [DOMAIN_PINNED] = 3 + 2 * DEVICE_LIMIT,
    [DOMAIN_MANAGED] = 4 + 2 * DEVICE_LIMIT,
    [DOMAIN_CUPTI] = 4 + 3 * DEVICE_LIMIT,
    [DOMAIN_LIMIT] = SLOT_LIMIT,
};

static inline unsigned domain_devices(unsigned domain)
{
    return (unsigned)slot_first[domain + 1] - slot_first[domain];
}

/* Device 0 stands for all devices where a domain does not tell them apart. */
static inline unsigned slot_of(unsigned domain, unsigned device)
{
    return slot_first[domain] + (domain_devices(domain) > 1 ? device : 0);
}

static inline unsigned slot_domain(unsigned slot)
{
    unsigned domain = 0;
    while (domain + 1 < DOMAIN_LIMIT && slot >= slot_first[domain + 1]) {
        domain++;
    }
    return domain;
}

static inline unsigned slot_device(unsigned slot)
{
    return slot - slot_first[slot_domain(slot)];
}

struct varve_layout;

/* The caching allocator of one device in one process. */
struct derive_device {
    struct varve_layout *layout;
    uint64_t dev_seq;        /* of the last event */
    uint8_t stage;           /* the last one since a request was served; 0: none */
    bool is_dirty;           /* changed since the last keyframe: it is in derive_keyframes.dirty */
    uint64_t keyframe_bytes; /* of the last one */
};

struct derive_api;

struct derive_process {
    bool is_forked;
    bool has_ended;
    struct live_index live;
    struct ranges ranges;
    struct total **totals[DOMAIN_LIMIT]; /* by domain, then by device; NULL until the domain is used */
    struct derive_device **devices;      /* DEVICE_LIMIT of them; NULL until an allocator is */
    struct derive_api *api;              /* NULL until the CUDA API is */
    uint8_t *device_numbers;             /* of the trace, by ordinal; NULL: they are equal */
};

/* Where the total of a slot is; NULL if the process has none in its domain. */
static inline struct total **process_total(const struct derive_process *process, unsigned slot)
{
    struct total **list = process->totals[slot_domain(slot)];
    return list != NULL ? &list[slot_device(slot)] : NULL;
}

/* What changes the totals: a row that opens or closes, in the step of one event. */
struct totals_step {
    struct domain_totals *domain;
    struct total *process;
    uint64_t seq;
    int64_t ts_ns;
};

/// Everything that one event may need in memory: afterwards the functions below cannot fail.
int totals_reserve(struct domain_totals *domain, struct derive_process *process, unsigned slot,
                   uint32_t callsite);
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
    struct derive_api_thread *api; /* NULL until it calls the CUDA API */
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

struct derive_dirty {
    uint32_t process_id;
    uint32_t device;
};

struct derive_keyframes {
    int fd; /* -1: none yet */
    uint64_t used;
    uint64_t count;
    struct derive_dirty *dirty; /* allocators that changed since the last one */
    size_t dirty_count, dirty_capacity;
    uint64_t last_seq; /* of the last one */
    uint64_t next_seq; /* look again then; UINT64_MAX: no allocator was seen yet */
};

struct derive {
    struct scratch scratch;
    struct scratch blocks;           /* struct scratch_block; fd -1 until one is needed */
    char *path;                      /* of the scratch file: others are named after it */
    struct derive_segment *segments; /* row of id is segments[id - 1] */
    size_t segment_count, segment_capacity;
    struct derive_oom *ooms;
    size_t oom_count, oom_capacity;
    struct derive_keyframes keyframes;
    struct derive_names *names; /* model/device/device.h */
    struct derive_calls *calls;
    struct derive_streams *streams;
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

/// Space for `count` elements and one more, or VARVE_ERROR_NO_MEMORY.
int derive_array_reserve(void **array, size_t *capacity, size_t count, size_t bytes);
/// The file of block rows, opened if it is not, and space for one more.
int derive_blocks_reserve(struct derive *derive, struct varve_message *message);

static inline struct scratch_block *derive_block_row(const struct derive *derive, uint64_t number)
{
    return scratch_block(scratch_touch((struct scratch *)&derive->blocks, number));
}

/// Write a new row and count it. `like` is the row it is a remainder of, NULL for an allocation by the event.
uint64_t derive_row_open(const struct derive_step *step, uint64_t addr, uint64_t size, unsigned source,
                         const struct scratch_row *like);
/// The allocation ends at this event; returns its row.
struct scratch_row *derive_row_close(const struct derive_step *step, uint64_t id);

/// The slot of the event's device in this domain becomes the step's, with space for one event.
int derive_step_enter(struct derive_step *step, enum domain domain, struct varve_message *message);
/// The event's size, about to be live, becomes 0 if it cannot be true: a damaged record must not make the
/// sums wrap.
void derive_size_check(const struct derive_step *step);

/* ---- heap.c: malloc and its kin ---- */

int derive_heap_alloc(struct derive_step *step, struct varve_message *message);
int derive_heap_free(struct derive_step *step, struct varve_message *message);
int derive_heap_realloc(struct derive_step *step, struct varve_message *message);

/* ---- mapping.c: mmap, munmap and mremap ---- */

int derive_mmap(struct derive_step *step, struct varve_message *message);
int derive_munmap(struct derive_step *step, struct varve_message *message);

/* ---- blocks.c: the events of caching allocators ---- */

/// The allocator of the event, made if it is new, and space for what one event needs; before anything else.
int derive_device_prepare(struct derive *derive, struct derive_process *process, const struct event *event,
                          struct varve_message *message);
int derive_block(struct derive_step *step, struct varve_message *message);
bool derive_block_is_premature(const struct derive *derive, const struct derive_process *process,
                               const struct event *event);
/// The process has ended: what its allocators were like goes into a keyframe and from memory.
void derive_devices_end(struct derive *derive, struct derive_process *process);
void derive_devices_free(struct derive_process *process);
int derive_device_check(const struct derive *derive, const struct derive_process *process, unsigned number,
                        struct varve_message *message);

/* Kinds that the allocators emit, numbered by dev_seq. */
static inline bool kind_is_allocator(unsigned kind)
{
    return (kind >= VARVE_KIND_ALLOC && kind <= VARVE_KIND_MARK_END) || kind == VARVE_KIND_POOL;
}

/* What the recorders of the CUDA API emit: the group `device`. */
static inline bool kind_is_api(unsigned kind)
{
    return (kind >= VARVE_KIND_DEV_ALLOC && kind <= VARVE_KIND_DEV_POOL) ||
           (kind >= VARVE_KIND_VMM_SET_ACCESS && kind < VARVE_KIND_LIMIT && kind != VARVE_KIND_POOL);
}

/* The domains of the CUDA API, whose events have durations where those of others have sizes. */
static inline bool domain_is_api(unsigned domain)
{
    return domain == DOMAIN_DEVICE || domain >= DOMAIN_PINNED;
}

/* ---- keyframe.c: layouts written down now and then ---- */

/// After an event: encode every allocator that changed, if enough events have passed since the last time.
void keyframes_step(struct derive *derive, uint64_t seq);
/// Now, whatever has passed.
void keyframes_write(struct derive *derive, uint64_t seq);
/// Calls `take` for each in order; `bytes` is NULL if process_id is 0. Returns its first value other than 0.
int keyframes_each(const struct derive *derive,
                   int (*take)(void *context, const struct derive_keyframe *keyframe, const void *bytes),
                   void *context, struct varve_message *message);

#endif
