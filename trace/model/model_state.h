/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state behind derive_event, and one event on its way through it. One thread, the collector's, owns all of it.
 *
 *   event ─► process ─► index or ranges (what is at this address?) ─► scratch row (what happened to it)
 *                  ├──► allocator of a device: layout (segments, blocks) ─► block row, segments, keyframes
 *                  ├──► CUDA API (model/device_api.h): addresses, handles, mappings ─► block row
 *                  └──► totals: process, all processes, call site; peaks; samples
 *
 * A block that was given back but may still be in use (pending) counts as freed: its row has free_seq, its block row no
 * completed_seq yet.
 *
 * Invariants (derive_check), for every process that has not ended and each domain:
 *   entries of index / ranges = rows of that process with free_seq 0 = total.live_allocations
 *   total.allocations - total.frees = total.live_allocations
 * and for every domain:
 *   sum over processes = total of all processes = sum over call sites, at the end and at the peak
 */
#ifndef VARVE_TRACE_MODEL_MODEL_STATE_H
#define VARVE_TRACE_MODEL_MODEL_STATE_H

#include "base/downsample.h"
#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/domain.h"
#include "trace/model/layout_state.h"
#include "trace/model/process_work.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Sums and peaks per process, over all processes, per size, per call site, and per call site and process, in
 * constant time per event.
 */

struct curve;
struct scratch_row;
struct varve_message;

/* What allocations add up to: of a process, a size, a call site, a stream. `left_*`, everywhere: live when main of
 * their process ended, or, where no such moment is known, still. */
struct figures {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t left_allocations, left_bytes;
    uint64_t temporary, lifetime_ns;
    uint64_t shared_bytes, live_shared, left_shared; /* bytes of Python's that are in the heap as well */
};

/* Of sizes above the power of two before, up to the class' own: class 0 is 0 and 1, class 10 is 513 to 1024. */
#define SIZE_CLASSES 63U /* what a database can hold is below 2^63; the last one has all above 2^61 */

/* `peak_*` is what was live at the domain's peak only while touched_seq > peak_seq; else it is the live
 * value. */
struct callsite_total {
    uint64_t touched_seq;
    uint64_t first_seq; /* of its first allocation; 0: it has none */
    uint32_t owner;     /* of all processes together: the process that used it first */
    bool is_shared;     /* others have shares; what is left is the owner's */
    uint64_t peak_allocations, peak_bytes;
    struct figures sum;
    uint64_t peak_shared;
    struct curve *curve; /* of `left_*`; NULL: few allocations, or of one process only. Owner: the domain */
};

/* What processes have of call sites that others used first, in no order; most programs have none. */
struct callsite_share {
    uint32_t callsite;
    struct callsite_total total;
};

struct callsite_shares {
    struct index index; /* of number n: rows[n - 1] */
    struct callsite_share *rows;
    size_t count, capacity;
};

/* Of the blocks of an allocator only. */
struct total_extra {
    uint64_t active, reserved, requested;
};

#define SAMPLES_ALL 8192U     /* of all processes together */
#define SAMPLES_PROCESS 1024U /* of one process */

/* A row of total.samples. Those of an allocator's blocks have four curves, others one. */
enum sample_value {
    SAMPLE_NS,
    SAMPLE_ALLOCATED,
    SAMPLE_ACTIVE,
    SAMPLE_RESERVED,
    SAMPLE_REQUESTED,
    SAMPLE_SEQ,
    SAMPLE_LIVE,
    SAMPLE_ALLOCATED_MAX,
    SAMPLE_VALUES,
};

struct total {
    uint32_t process_id; /* beside what every event changes */
    struct figures sum;
    uint64_t peak_allocations, peak_bytes;
    uint64_t peak_seq; /* 0: never more than 0 bytes */
    int64_t peak_ns;
    uint64_t failed;
    struct total_extra extra; /* now */
    struct downsample samples;
    struct callsite_shares shares;
    struct figures sizes[SIZE_CLASSES];
};

struct domain_totals {
    struct total all;
    struct callsite_total *callsites; /* by call site; anonymous mapping, so that unused numbers cost nothing */
    size_t callsite_capacity;
    size_t callsite_limit;          /* one more than the largest call site seen */
    uint32_t processes;             /* that have used the domain */
    struct callsite_shares retired; /* of processes that ended, together, once there were too many of them */
};

struct derive_process;

/* What changes the totals: a row that opens or closes, in the step of one event. */
struct totals_step {
    struct domain_totals *domain;
    struct total *process;
    uint64_t seq;
    int64_t ts_ns;
    int64_t main_end_ns; /* of the process; INT64_MAX: not yet */
};

/// Everything that one event may need in memory: afterwards the functions below cannot fail.
int totals_reserve(struct domain_totals *domain, struct derive_process *process, uint32_t process_id, unsigned slot,
                   uint32_t callsite);
/// Space for the share of a call site that another process has used first. False without memory.
bool totals_share_reserve(struct total *total);
void totals_open(const struct totals_step *step, const struct scratch_row *row);
void totals_close(const struct totals_step *step, const struct scratch_row *row);
/// Undo totals_close: `row` still says when it was freed.
void totals_reopen(const struct totals_step *step, const struct scratch_row *row);
void totals_fail(const struct totals_step *step);
/// The event is over: look for a new peak, sample.
void totals_update_peak(const struct totals_step *step);
/// Add what a call site has, if the domain knows it, to `sum`, with what it had live at the peak of its domain.
void totals_callsite_add(const struct domain_totals *domain, uint32_t callsite, struct callsite_total *sum);
/// A process has ended: its shares are kept, or added to those of others if `keep` is false.
void totals_process_end(struct domain_totals *domain, struct total *total, bool keep, uint64_t last_seq);
/// After the last event: what call site n has, below `limit`, counts as that of joined[n], which is no larger, with the
/// shares of processes. `is_same`: they are one call site, and have a curve together; else those that are joined have
/// none. Errors: NO_MEMORY.
int totals_join(struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                unsigned slot, const uint32_t *joined, size_t limit, bool is_same);
/// `take` gets what each process has of each call site that `wanted` says yes to; process 0: those that
/// ended, together.
struct totals_share_reading {
    bool (*wanted)(void *context, uint32_t callsite);
    int (*take)(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share);
    void *context;
};
int totals_shares_each(const struct domain_totals *domain, struct derive_process *const *processes,
                       size_t process_limit, unsigned slot, const struct totals_share_reading *reading);
void totals_shares_free(struct callsite_shares *shares);
void totals_close_domain(struct domain_totals *domain);
int totals_check(const struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                 unsigned slot, struct varve_message *message);

struct derive_api_thread;
struct derive_calls;
struct derive_names;
struct derive_remat;
struct derive_remat_process;
struct derive_streams;
struct event;

struct islands;
struct varve_layout;

/* The caching allocator of one device in one process. */
struct derive_device {
    struct varve_layout *layout;
    struct islands *islands; /* of the layout */
    struct ladder_peak ladder_peak;
    uint64_t dev_seq;        /* of the last event */
    uint8_t stage;           /* the last one since a request was served; 0: none */
    bool is_dirty;           /* changed since the last keyframe: it is in derive_keyframes.dirty */
    uint64_t keyframe_bytes; /* of the last one */
};

struct derive_api;

struct derive_process {
    bool is_forked;
    bool has_ended;
    uint64_t main_end_seq; /* the first main_end; 0: there was none */
    int64_t main_end_ns;
    struct work work;
    struct index live;
    struct index python;   /* the same of DOMAIN_PYTHON */
    struct index storages; /* rows of those that are alive, by their number in the process */
    struct index marks;    /* the last phase under way of each name, by its hash */
    struct ranges ranges;
    struct total **totals[DOMAIN_LIMIT]; /* by domain, then by device; NULL until the domain is used */
    struct derive_device **devices;      /* DEVICE_LIMIT of them; NULL until an allocator is */
    struct derive_api *api;              /* NULL until the CUDA API is */
    struct derive_remat_process *remat;  /* NULL until a planner is */
    uint8_t *device_numbers;             /* of the trace, by ordinal; NULL: they are equal */
};

/* NULL if the process, which may be NULL, has none. */
static inline struct total *process_total(const struct derive_process *process, unsigned slot)
{
    struct total **list = process != NULL ? process->totals[slot_domain(slot)] : NULL;
    return list != NULL ? list[slot_device(slot)] : NULL;
}

/* A block between heap_free (cause realloc) and heap_realloc of one thread. */
struct derive_realloc {
    uint64_t addr;
    uint64_t id;
};

/* INT64_MAX: main has not ended, as far as is known. */
static inline int64_t process_main_end_ns(const struct derive_process *process)
{
    return process->main_end_seq != 0 ? process->main_end_ns : INT64_MAX;
}

/* Of a row that was closed: that was before main ended, so that it is left no longer. */
static inline bool row_closed_in_main(const struct scratch_row *row, int64_t main_end_ns)
{
    return row->alloc_ns <= main_end_ns && row->free_ns <= main_end_ns;
}

/* Bytes of a row that another domain has as well. */
static inline uint64_t row_shared(const struct scratch_row *row)
{
    return row->domain == DOMAIN_PYTHON && row->size > PYTHON_OWN_MAX ? row->size : 0;
}

/* The row counts in `figures` from now on. */
static inline void figures_open(struct figures *figures, const struct scratch_row *row, int64_t main_end_ns)
{
    const uint64_t is_left = row->alloc_ns <= main_end_ns, shared = row_shared(row);
    figures->allocations++;
    figures->bytes += row->size;
    figures->live_allocations++;
    figures->live_bytes += row->size;
    figures->left_allocations += is_left;
    figures->left_bytes += is_left * row->size;
    if (shared != 0) {
        figures->shared_bytes += shared;
        figures->live_shared += shared;
        figures->left_shared += is_left * shared;
    }
}

/* Once, when the row closes; -1 times, when that is undone. */
static inline void figures_close(struct figures *figures, const struct scratch_row *row, int64_t main_end_ns,
                                 int64_t times)
{
    const uint64_t one = (uint64_t)times, in_main = row_closed_in_main(row, main_end_ns) ? one : 0;
    const uint64_t shared = row_shared(row);
    figures->frees += one;
    figures->live_allocations -= one;
    figures->live_bytes -= one * row->size;
    figures->left_allocations -= in_main;
    figures->left_bytes -= in_main * row->size;
    figures->temporary += one * row->temporary;
    figures->lifetime_ns += one * (uint64_t)(row->free_ns - row->alloc_ns);
    if (shared != 0) {
        figures->live_shared -= one * shared;
        figures->left_shared -= in_main * shared;
    }
    assert(figures->live_allocations <= INT64_MAX && figures->live_bytes <= INT64_MAX);
}

/// All of `more` counts in `sum` so many times: 1, or -1 if it counts no longer.
void figures_add(struct figures *sum, const struct figures *more, int64_t times);

struct derive_thread {
    uint32_t process_id; /* 0: not seen yet */
    int32_t pid;
    int32_t tid;
    size_t realloc_count, realloc_capacity;
    uint64_t last_alloc_id; /* opened by the thread's last heap event; 0: that was no allocation */
    uint64_t last_python_id;
    uint8_t unmapped_cause;  /* of the thread's last munmap, until its next mmap; 0: there was none */
    uint8_t unmapped_domain; /* of what that ended */
    uint64_t last_block_id;  /* by its last alloc or free of a caching allocator */
    struct derive_realloc *reallocs;
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

/* Rows of `storage`: number n is lines 2n - 1 and 2n of the file. */
struct derive_storages {
    struct scratch lines;  /* fd -1 until one is needed */
    uint64_t count;        /* the largest id given */
    uint64_t released;     /* an id to be given again, which `addr` of its row links to the next one; 0: none */
    uint64_t forgets_from; /* this one and larger ones are given again when the storage is gone; 0: none is */
};

#define MARK_NAME_BYTES 24U

/* A row of `mark`. */
struct derive_mark {
    uint64_t begin_seq, end_seq; /* end 0: under way */
    int64_t begin_ns, end_ns;
    uint64_t outer; /* number of the phase of the same name that it lies in; 0: none */
    uint32_t process_id, thread_id;
    char name[MARK_NAME_BYTES + 1];
};

/* In the scratch file of keyframes, before the bytes; process_id 0: nothing has changed up to here. */
struct derive_keyframe {
    struct ladder ladder;
    uint64_t seq;
    uint32_t process_id;
    uint32_t device;
    uint64_t bytes;
};

/* The most of heap and mappings together, for the first time. */
struct derive_host_peak {
    uint64_t bytes, heap_bytes, mmap_bytes, seq; /* seq 0: never more than 0 bytes */
    int64_t ts_ns;
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
    struct derive_storages storages;
    struct derive_mark *marks; /* row of id is marks[id - 1] */
    size_t mark_count, mark_capacity;
    struct derive_keyframes keyframes;
    struct derive_names *names; /* model/device_labels.h */
    struct derive_calls *calls;
    struct derive_streams *streams;
    struct derive_remat *remat; /* model/derive_remat.h */
    uint64_t last_seq;
    uint64_t opened;       /* allocations */
    uint64_t forgets_from; /* host memory with this id or a larger one is forgotten when it was freed; 0: nothing is */
    bool forgets_short;    /* so is what was short-lived, whatever its id */
    uint64_t *forgotten;   /* by the present event, which may still look at them */
    size_t forgotten_count, forgotten_capacity;
    struct derive_thread *threads; /* by thread_id */
    size_t thread_limit;
    struct derive_process **processes; /* by process_id; NULL: not seen */
    size_t process_limit;
    struct domain_totals domains[SLOT_LIMIT]; /* by slot */
    struct derive_host_peak host_peak;
    uint64_t ended_points; /* sample points kept of processes that ended */
    uint64_t ended_shares; /* shares in call sites kept of these */
    uint64_t sizes_refused;
    uint64_t frees_unknown; /* of addresses that nothing was recorded of, resizes included */
    bool has_lost_past;     /* what was allocated before some moment is not known: nobody inherits it */
};

/* Those slots of a domain that have call sites; of DOMAIN_CUPTI none, whose call sites are those of DOMAIN_DEVICE. */
struct domain_slots {
    const struct domain_totals *totals[DEVICE_LIMIT];
    unsigned count;
    size_t callsite_limit; /* the largest */
};

struct domain_slots domain_slots(const struct derive *derive, enum domain domain);

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

/// The file of block rows, opened if it is not, and space for one more.
int derive_blocks_reserve(struct derive *derive, struct varve_message *message);
/// The same of storages.
int derive_storages_reserve(struct derive *derive, struct varve_message *message);

/// Of an id that was given.
static inline struct scratch_storage *derive_storage_row(const struct derive *derive, uint64_t id)
{
    struct scratch *lines = (struct scratch *)&derive->storages.lines;
    scratch_touch(lines, 2 * id);
    return (struct scratch_storage *)scratch_touch(lines, 2 * id - 1);
}

static inline struct scratch_block *derive_block_row(const struct derive *derive, uint64_t number)
{
    return scratch_block(scratch_touch((struct scratch *)&derive->blocks, number));
}

/// Write a new row and count it. `like` is the row it is a remainder of, NULL for an allocation by the event.
uint64_t derive_row_open(const struct derive_step *step, uint64_t addr, uint64_t size, unsigned source,
                         const struct scratch_row *like);
/// The allocation ends at this event; returns its row.
struct scratch_row *derive_row_close(const struct derive_step *step, uint64_t id);

/// Does it count in `left_*` of the totals? Never of a row whose id was released.
bool derive_row_is_left(const struct derive *derive, const struct scratch_row *row);

/// If rows are not kept, the id may be given anew after this event, unless the row is live, waits or is left then.
void derive_row_forget(struct derive *derive, uint64_t id);

/// The slot of the event's device in this domain becomes the step's, with space for one event.
int derive_step_enter(struct derive_step *step, enum domain domain, struct varve_message *message);
/// The event's size, about to be live, becomes 0 if it cannot be true: a damaged record must not make the
/// sums wrap.
void derive_size_check(const struct derive_step *step);

#endif
