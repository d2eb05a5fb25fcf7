/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and peaks per process, over all processes, per size, per call site, and per call site and process, in
 * constant time per event.
 */
#ifndef VARVE_TRACE_MODEL_MODEL_TOTALS_H
#define VARVE_TRACE_MODEL_MODEL_TOTALS_H

#include "base/downsample.h"
#include "base/hash_index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct curve;
struct scratch_row;
struct varve_message;

/* `left_*`, everywhere: live when main of their process ended, or, where no such moment is known, still. */

/* Of sizes above the power of two before, up to the class' own: class 0 is 0 and 1, class 10 is 513 to 1024. */
struct size_total {
    uint64_t allocations, frees, bytes;
    uint64_t left_allocations, left_bytes; /* derived */
    uint64_t temporary;
    int64_t lifetime_ns;
};

#define SIZE_CLASSES 63U /* what a database can hold is below 2^63; the last one has all above 2^61 */

/* `peak_*` is what was live at the domain's peak only while touched_seq > peak_seq; else it is the live
 * value. */
struct callsite_total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t left_allocations, left_bytes;
    uint64_t peak_allocations, peak_bytes;
    uint64_t touched_seq;
    uint64_t temporary;
    int64_t lifetime_ns;
    uint64_t shared_bytes, live_shared, left_shared, peak_shared; /* bytes of Python's that are in the heap as well */
    uint32_t owner; /* of all processes together: the process that used it first; CALLSITE_SHARED: all have shares */
    bool is_shared; /* others have shares; what is left is the owner's */
    struct curve *curve; /* of `left_*`; NULL: few allocations, or of one process only. Owner: the domain */
};

#define CALLSITE_SHARED UINT32_MAX

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
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t left_allocations, left_bytes;
    uint64_t peak_allocations, peak_bytes;
    uint64_t peak_seq; /* 0: never more than 0 bytes */
    int64_t peak_ns;
    uint64_t temporary, failed;
    struct total_extra extra; /* now */
    struct downsample samples;
    struct callsite_shares shares;
    struct size_total sizes[SIZE_CLASSES];
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
/// What a call site had live at the peak of its domain.
void totals_callsite_peak(const struct domain_totals *domain, uint32_t callsite, uint64_t *allocations_out,
                          uint64_t *bytes_out);
/// Add what a call site has, if the domain knows it, to `sum`, with what it had live at the peak of its domain.
void totals_callsite_add(const struct domain_totals *domain, uint32_t callsite, struct callsite_total *sum);
/// After the last event: what call site `from` has counts as that of `into`, which is below the domain's limit if
/// `from` is larger.
void totals_join(struct domain_totals *domain, uint32_t from, uint32_t into);
/// A process has ended: its shares are kept, or added to those of others if `keep` is false.
void totals_process_end(struct domain_totals *domain, struct total *total, bool keep, uint64_t last_seq);
/// Before call sites are joined: the owners' shares become rows as well. Then the shares follow `joined`.
/// Errors: NO_MEMORY.
int totals_join_shares(struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                       unsigned slot, const uint32_t *joined, size_t limit);
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

#endif
