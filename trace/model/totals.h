/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * Sums and peaks per process, over all processes, per size and per call site, in constant time per event.
 */
#ifndef VARVE_TRACE_MODEL_TOTALS_H
#define VARVE_TRACE_MODEL_TOTALS_H

#include "trace/model/series.h"

#include <stddef.h>
#include <stdint.h>

struct scratch_row;
struct varve_message;

/* Of sizes above the power of two before, up to the class' own: class 0 is 0 and 1, class 10 is 513 to 1024. */
struct size_total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t temporary;
    int64_t lifetime_ns;
};

#define SIZE_CLASSES 63U /* what a database can hold is below 2^63; the last one has all above 2^61 */

struct total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t peak_allocations, peak_bytes;
    uint64_t peak_seq; /* 0: never more than 0 bytes */
    int64_t peak_ns;
    uint64_t temporary, failed;
    struct series_extra extra; /* now */
    struct series series;
    struct size_total sizes[SIZE_CLASSES];
};

/* `peak_*` is what was live at the domain's peak only while touched_seq > peak_seq; else it is the live
 * value. */
struct callsite_total {
    uint64_t allocations, frees, bytes;
    uint64_t live_allocations, live_bytes; /* derived */
    uint64_t peak_allocations, peak_bytes;
    uint64_t touched_seq;
    uint64_t temporary;
    int64_t lifetime_ns;
};

struct domain_totals {
    struct total all;
    struct callsite_total
        *callsites; /* by call site; anonymous mapping, so that unused numbers cost nothing */
    size_t callsite_capacity;
    size_t callsite_limit; /* one more than the largest call site seen */
};

struct derive_process;

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
void totals_update_peak(const struct totals_step *step);
/// What a call site had live at the peak of its domain.
void totals_callsite_peak(const struct domain_totals *domain, uint32_t callsite, uint64_t *allocations_out,
                          uint64_t *bytes_out);
/// Add what a call site has, if the domain knows it, to `sum`, with what it had live at the peak of its domain.
void totals_callsite_add(const struct domain_totals *domain, uint32_t callsite, struct callsite_total *sum);
/// After the last event: what call site `from` has counts as that of `into`, which is below the domain's limit if `from` is larger.
void totals_join(struct domain_totals *domain, uint32_t from, uint32_t into);
void totals_close_domain(struct domain_totals *domain);
int totals_check(const struct domain_totals *domain, struct derive_process *const *processes,
                 size_t process_limit, unsigned slot, struct varve_message *message);

#endif
