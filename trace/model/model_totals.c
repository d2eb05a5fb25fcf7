/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums per process, over all processes, per size and per call site, and their peaks, in constant time per event.
 *
 * What each call site had live at the peak is wanted too, but a peak is known to be one only afterwards, and it may
 * move with every event, which rules out copying all call sites then. So a call site copies its own live value when it
 * is about to change for the first time after the peak that holds so far:
 *
 *   touched_seq <= peak_seq: not changed since the peak, the live value is the value at the peak
 *   touched_seq >  peak_seq: changed since, peak_* has the value of the peak
 *
 * Call sites are kept for all processes together. A process that used one first owns it, and has what is left of it;
 * only others that use it too have rows of their own (shares). A program of one process has none of them.
 *
 * A peak is looked for once per event, when all that the event opens and closes is counted. derive.c and
 * mapping.c call it.
 */
#include "trace/model/model_state.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/curve.h"
#include "trace/model/domain.h"
#include "trace/model/allocation_scratch.h"
#include "base/downsample.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CALLSITE_FILE_MIN 1024U

static bool array_reserve(struct domain_totals *domain, uint32_t callsite)
{
    if (callsite < domain->callsite_limit) {
        return true;
    }
    if (callsite >= domain->callsite_capacity) {
        size_t capacity = domain->callsite_capacity > 0 ? domain->callsite_capacity : CALLSITE_FILE_MIN;
        while (capacity <= callsite) {
            capacity *= 2;
        }
        void *memory;
        if (domain->callsites == NULL) {
            memory = mmap(NULL, capacity * sizeof(*domain->callsites), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        } else {
            memory = mremap(domain->callsites, domain->callsite_capacity * sizeof(*domain->callsites),
                            capacity * sizeof(*domain->callsites), MREMAP_MAYMOVE);
        }
        if (memory == MAP_FAILED) {
            return false;
        }
        domain->callsites = memory;
        domain->callsite_capacity = capacity;
    }
    domain->callsite_limit = (size_t)callsite + 1;
    return true;
}

/* The pages of those that are no longer there go back. */
static void array_shrink(struct domain_totals *domain, size_t limit)
{
    const size_t capacity = limit > CALLSITE_FILE_MIN ? limit : CALLSITE_FILE_MIN;
    void *memory = domain->callsites;
    if (capacity < domain->callsite_capacity) {
        memory = mremap(domain->callsites, domain->callsite_capacity * sizeof(*domain->callsites),
                        capacity * sizeof(*domain->callsites), 0);
    }
    if (memory != MAP_FAILED && memory != NULL) {
        domain->callsite_capacity = capacity < domain->callsite_capacity ? capacity : domain->callsite_capacity;
        domain->callsite_limit = limit;
    }
}

static bool total_reserve(struct total *total, uint32_t limit, bool has_extras)
{
    if (total->samples.limit == 0) {
        total->samples = downsample_make(limit, SAMPLE_VALUES, has_extras ? 4 : 1, SAMPLE_ALLOCATED_MAX);
    }
    return downsample_reserve(&total->samples);
}

/* The total of a slot, made if it is not there yet; NULL without memory. */
static struct total *process_total_make(struct domain_totals *all, struct derive_process *process, uint32_t process_id,
                                        unsigned slot)
{
    unsigned domain = slot_domain(slot);
    if (process->totals[domain] == NULL) {
        process->totals[domain] = calloc(domain_devices(domain), sizeof(struct total *));
    }
    struct total *total = process_total(process, slot);
    if (total == NULL && process->totals[domain] != NULL && (total = calloc(1, sizeof(*total))) != NULL) {
        total->process_id = process_id;
        process->totals[domain][slot_device(slot)] = total;
        all->processes++;
    }
    return total;
}

bool totals_share_reserve(struct total *total)
{
    struct callsite_shares *shares = &total->shares;
    return ARRAY_GROW(shares->rows, shares->capacity, shares->count + 1) && index_reserve(&shares->index);
}

int totals_reserve(struct domain_totals *domain, struct derive_process *process, uint32_t process_id, unsigned slot,
                   uint32_t callsite)
{
    bool has_extras = slot_domain(slot) == DOMAIN_BLOCK;
    struct total *total = process_total_make(domain, process, process_id, slot);
    return total != NULL && array_reserve(domain, callsite) && total_reserve(&domain->all, SAMPLES_ALL, has_extras) &&
                   total_reserve(total, SAMPLES_PROCESS, has_extras)
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

/* The row of a call site in `shares`, made if it is new: totals_share_reserve came before. */
static struct callsite_total *model_totals_share_of(struct callsite_shares *shares, uint32_t callsite)
{
    uint64_t number = index_find(&shares->index, callsite);
    if (number == 0) {
        assert(shares->count < shares->capacity);
        number = ++shares->count;
        index_insert(&shares->index, callsite, number);
        shares->rows[number - 1] = (struct callsite_share){.callsite = callsite};
    }
    return &shares->rows[number - 1].total;
}

/* Its value at the peak is saved before it changes. */
static void callsite_touch(const struct totals_step *step, struct callsite_total *callsite)
{
    if (callsite->touched_seq <= step->domain->all.peak_seq) {
        callsite->peak_allocations = callsite->sum.live_allocations;
        callsite->peak_bytes = callsite->sum.live_bytes;
        callsite->peak_shared = callsite->sum.live_shared;
    }
    callsite->touched_seq = step->seq;
}

/* The call site of a row that is about to change, and the share of its process, unless that owns the call site: returns
 * how many these are. */
static inline unsigned callsites_touch(const struct totals_step *step, const struct scratch_row *row,
                                       struct callsite_total *both[2])
{
    assert(row->callsite < step->domain->callsite_limit);
    both[0] = &step->domain->callsites[row->callsite];
    callsite_touch(step, both[0]);
    if (both[0]->owner == 0) {
        both[0]->owner = step->process->process_id;
    }
    if (both[0]->owner == step->process->process_id) {
        return 1;
    }
    both[0]->is_shared = true;
    both[1] = model_totals_share_of(&step->process->shares, row->callsite);
    callsite_touch(step, both[1]);
    return 2;
}

void figures_add(struct figures *sum, const struct figures *more, int64_t times)
{
    const uint64_t one = (uint64_t)times;
    sum->allocations += one * more->allocations;
    sum->frees += one * more->frees;
    sum->bytes += one * more->bytes;
    sum->live_allocations += one * more->live_allocations;
    sum->live_bytes += one * more->live_bytes;
    sum->left_allocations += one * more->left_allocations;
    sum->left_bytes += one * more->left_bytes;
    sum->temporary += one * more->temporary;
    sum->lifetime_ns += one * more->lifetime_ns;
    sum->shared_bytes += one * more->shared_bytes;
    sum->live_shared += one * more->live_shared;
    sum->left_shared += one * more->left_shared;
}

static struct figures *size_figures(struct total *total, uint64_t size)
{
    unsigned class = size <= 1 ? 0 : 64U - (unsigned)__builtin_clzll(size - 1);
    return &total->sizes[class < SIZE_CLASSES ? class : SIZE_CLASSES - 1];
}

void totals_open(const struct totals_step *step, const struct scratch_row *row)
{
    struct callsite_total *callsites[2];
    unsigned count = callsites_touch(step, row, callsites);
    callsites[0]->first_seq = callsites[0]->first_seq != 0 ? callsites[0]->first_seq : step->seq;
    for (unsigned i = 0; i < count; i++) {
        figures_open(&callsites[i]->sum, row, step->main_end_ns);
    }
    if (row->alloc_ns <= step->main_end_ns && callsites[0]->sum.allocations % CURVE_EVERY_MIN == 0) {
        curve_add(&callsites[0]->curve, callsites[0]->sum.allocations, step->seq,
                  (struct curve_point){callsites[0]->sum.left_allocations, callsites[0]->sum.left_bytes});
    }
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        figures_open(&both[i]->sum, row, step->main_end_ns);
        figures_open(size_figures(both[i], row->size), row, step->main_end_ns);
    }
}

static inline void totals_close_times(const struct totals_step *step, const struct scratch_row *row, int64_t times)
{
    struct callsite_total *callsites[2];
    unsigned count = callsites_touch(step, row, callsites);
    for (unsigned i = 0; i < count; i++) {
        figures_close(&callsites[i]->sum, row, step->main_end_ns, times);
    }
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        figures_close(&both[i]->sum, row, step->main_end_ns, times);
        figures_close(size_figures(both[i], row->size), row, step->main_end_ns, times);
    }
}

void totals_close(const struct totals_step *step, const struct scratch_row *row)
{
    totals_close_times(step, row, 1);
}

void totals_reopen(const struct totals_step *step, const struct scratch_row *row)
{
    totals_close_times(step, row, -1);
}

void totals_fail(const struct totals_step *step)
{
    step->domain->all.failed++;
    step->process->failed++;
}

void totals_update_peak(const struct totals_step *step)
{
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        struct total *total = both[i];
        if (total->sum.live_bytes > total->peak_bytes) {
            total->peak_bytes = total->sum.live_bytes;
            total->peak_allocations = total->sum.live_allocations;
            total->peak_seq = step->seq;
            total->peak_ns = step->ts_ns;
        }
        const int64_t live = (int64_t)total->sum.live_bytes;
        int64_t *last = downsample_replaced(&total->samples, step->ts_ns, live);
        if (last != NULL) { /* mostly; what else a row has is 0 where there is one curve */
            last[SAMPLE_NS] = step->ts_ns;
            last[SAMPLE_ALLOCATED] = live;
            last[SAMPLE_ALLOCATED_MAX] = last[SAMPLE_ALLOCATED_MAX] > live ? last[SAMPLE_ALLOCATED_MAX] : live;
            last[SAMPLE_SEQ] = (int64_t)step->seq;
            last[SAMPLE_LIVE] = (int64_t)total->sum.live_allocations;
            continue;
        }
        const int64_t row[SAMPLE_VALUES] = {
            [SAMPLE_NS] = step->ts_ns,
            [SAMPLE_ALLOCATED] = (int64_t)total->sum.live_bytes,
            [SAMPLE_ACTIVE] = (int64_t)total->extra.active,
            [SAMPLE_RESERVED] = (int64_t)total->extra.reserved,
            [SAMPLE_REQUESTED] = (int64_t)total->extra.requested,
            [SAMPLE_SEQ] = (int64_t)step->seq,
            [SAMPLE_LIVE] = (int64_t)total->sum.live_allocations,
        };
        downsample_add(&total->samples, row);
    }
}

static void model_totals_accumulate(const struct domain_totals *domain, const struct callsite_total *total,
                                    struct callsite_total *sum)
{
    bool is_as_at_peak = total->touched_seq <= domain->all.peak_seq;
    figures_add(&sum->sum, &total->sum, 1);
    sum->peak_allocations += is_as_at_peak ? total->sum.live_allocations : total->peak_allocations;
    sum->peak_bytes += is_as_at_peak ? total->sum.live_bytes : total->peak_bytes;
    sum->peak_shared += is_as_at_peak ? total->sum.live_shared : total->peak_shared;
}

void totals_callsite_add(const struct domain_totals *domain, uint32_t callsite, struct callsite_total *sum)
{
    if (callsite < domain->callsite_limit) {
        model_totals_accumulate(domain, &domain->callsites[callsite], sum);
    }
}

/* ---- shares ---- */

void totals_shares_free(struct callsite_shares *shares)
{
    index_free(&shares->index);
    free(shares->rows);
    *shares = (struct callsite_shares){0};
}

/* `total` counts in `sum` too, from event `seq` on, up to which nothing is to come that was before. */
static void share_merge(const struct domain_totals *domain, struct callsite_total *sum,
                        const struct callsite_total *total, uint64_t seq)
{
    struct callsite_total both = {.touched_seq = seq};
    model_totals_accumulate(domain, sum, &both);
    model_totals_accumulate(domain, total, &both);
    *sum = both;
}

void totals_process_end(struct domain_totals *domain, struct total *total, bool keep, uint64_t last_seq)
{
    struct callsite_shares *retired = &domain->retired;
    for (size_t i = 0; i < total->shares.count && !keep; i++) {
        const struct callsite_share *share = &total->shares.rows[i];
        if (!ARRAY_GROW(retired->rows, retired->capacity, retired->count + 1) || !index_reserve(&retired->index)) {
            return; /* they stay where they are: those that are added already must not be added again */
        }
        share_merge(domain, model_totals_share_of(retired, share->callsite), &share->total, last_seq);
        total->shares.rows[i].total = (struct callsite_total){0};
    }
    if (!keep) {
        totals_shares_free(&total->shares);
    }
}

static const struct callsite_shares *shares_of_process(struct derive_process *const *processes, size_t i, unsigned slot,
                                                       uint32_t *id_out)
{
    struct total *total = process_total(processes[i], slot);
    *id_out = (uint32_t)i;
    return total != NULL ? &total->shares : NULL;
}

/* What of shared call sites is their owners'. */
struct rests {
    uint32_t *places;            /* of call site n: in rows[]; 0: nobody shares it */
    struct callsite_total *rows; /* from 1 on */
};

static bool rests_open(struct rests *rests, const struct domain_totals *domain)
{
    uint32_t count = 0;
    *rests = (struct rests){.places = calloc(domain->callsite_limit + 1, sizeof(*rests->places))};
    for (size_t i = 0; i < domain->callsite_limit && rests->places != NULL; i++) {
        rests->places[i] = domain->callsites[i].is_shared ? ++count : 0;
    }
    rests->rows = calloc((size_t)count + 1, sizeof(*rests->rows));
    if (rests->places == NULL || rests->rows == NULL) {
        free(rests->places);
        free(rests->rows);
        return false;
    }
    for (uint32_t i = 0; i < domain->callsite_limit && count > 0; i++) {
        if (rests->places[i] != 0) {
            totals_callsite_add(domain, i, &rests->rows[rests->places[i]]);
        }
    }
    return true;
}

static int take_shares(const struct domain_totals *domain, uint32_t process_id, const struct callsite_shares *shares,
                       const struct rests *rests, const struct totals_share_reading *reading)
{
    int error = VARVE_OK;
    for (size_t i = 0; shares != NULL && i < shares->count && error == VARVE_OK; i++) {
        uint32_t callsite = shares->rows[i].callsite;
        struct callsite_total share = {0};
        model_totals_accumulate(domain, &shares->rows[i].total, &share);
        if (share.sum.allocations == 0 || !reading->wanted(reading->context, callsite)) {
            continue;
        }
        struct callsite_total *rest = &rests->rows[rests->places[callsite]];
        figures_add(&rest->sum, &share.sum, -1);
        rest->peak_allocations -= share.peak_allocations;
        rest->peak_bytes -= share.peak_bytes;
        rest->peak_shared -= share.peak_shared;
        error = reading->take(reading->context, process_id, callsite, &share);
    }
    return error;
}

static int take_rests(const struct domain_totals *domain, const struct rests *rests,
                      const struct totals_share_reading *reading)
{
    int error = VARVE_OK;
    for (uint32_t i = 0; i < domain->callsite_limit && error == VARVE_OK; i++) {
        struct callsite_total rest = rests->rows[rests->places[i]];
        if (rests->places[i] == 0) {
            rest = (struct callsite_total){0};
            totals_callsite_add(domain, i, &rest);
        }
        if (rest.sum.allocations > 0 && reading->wanted(reading->context, i)) {
            error = reading->take(reading->context, domain->callsites[i].owner, i, &rest);
        }
    }
    return error;
}

int totals_shares_each(const struct domain_totals *domain, struct derive_process *const *processes,
                       size_t process_limit, unsigned slot, const struct totals_share_reading *reading)
{
    struct rests rests;
    if (!rests_open(&rests, domain)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = take_shares(domain, 0, &domain->retired, &rests, reading);
    for (size_t i = 0; i < process_limit && error == VARVE_OK; i++) {
        uint32_t id;
        const struct callsite_shares *shares = shares_of_process(processes, i, slot, &id);
        error = take_shares(domain, id, shares, &rests, reading);
    }
    if (error == VARVE_OK) {
        error = take_rests(domain, &rests, reading);
    }
    free(rests.places);
    free(rests.rows);
    return error;
}

/* ---- call sites put together ---- */

struct joining {
    struct domain_totals *domain;
    const uint32_t *joined;
    size_t limit;
    uint32_t *owners; /* of each that is left */
    bool *is_shared;
    struct callsite_shares *by_process; /* by process, those of retired ones at 0 */
    uint64_t seq;
    /* the curves */
    uint32_t *next;        /* of call site n: the next one that is joined with it, 0: none */
    struct curve **curves; /* of each that is left */
    struct curve_part *parts;
    size_t part_capacity;
};

static uint32_t joined_of(const struct joining *joining, uint32_t callsite)
{
    return callsite < joining->limit ? joining->joined[callsite] : callsite;
}

static bool is_any(void *context, uint32_t callsite)
{
    (void)context;
    (void)callsite;
    return true;
}

/* Who owns what is left has the rest of it there too. */
static int join_share(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share)
{
    const struct joining *joining = context;
    struct callsite_shares *shares = &joining->by_process[process_id];
    const uint32_t into = joined_of(joining, callsite);
    struct callsite_total total = *share;
    if (process_id == joining->owners[into]) {
        return VARVE_OK;
    }
    if (!ARRAY_GROW(shares->rows, shares->capacity, shares->count + 1) || !index_reserve(&shares->index)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    joining->is_shared[into] = true;
    total.touched_seq = joining->seq; /* peak_* has it from here on */
    share_merge(joining->domain, model_totals_share_of(shares, into), &total, joining->seq);
    return VARVE_OK;
}

static int shares_join(struct joining *joining, struct derive_process *const *processes, size_t process_limit,
                       unsigned slot)
{
    const struct totals_share_reading reading = {.wanted = is_any, .take = join_share, .context = joining};
    joining->by_process = calloc(process_limit + 1, sizeof(*joining->by_process));
    int error = joining->by_process != NULL
                    ? totals_shares_each(joining->domain, processes, process_limit, slot, &reading)
                    : VARVE_ERROR_NO_MEMORY;
    for (size_t i = 0; i < process_limit && joining->by_process != NULL; i++) {
        struct total *total = process_total(processes[i], slot);
        struct callsite_shares *shares = i == 0 ? &joining->domain->retired : total != NULL ? &total->shares : NULL;
        struct callsite_shares made = joining->by_process[i];
        if (error == VARVE_OK && shares != NULL) {
            joining->by_process[i] = *shares;
            *shares = made;
        }
        totals_shares_free(&joining->by_process[i]);
    }
    free(joining->by_process);
    return error;
}

/* The curve of those that are joined with `first`, if one is wanted: as store/derived_tables.c writes them. */
static int curve_make(struct joining *joining, uint32_t first)
{
    struct figures sum = {0};
    size_t count = 0;
    for (uint32_t i = first; i != 0; i = joining->next[i]) {
        const struct callsite_total *total = &joining->domain->callsites[i];
        if (!ARRAY_GROW(joining->parts, joining->part_capacity, count + 1)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        figures_add(&sum, &total->sum, 1);
        joining->parts[count++] = (struct curve_part){total->curve,
                                                      total->first_seq,
                                                      total->touched_seq,
                                                      total->sum.allocations,
                                                      {total->sum.left_allocations, total->sum.left_bytes}};
    }
    if (sum.allocations < CURVE_EVERY_MIN || sum.left_allocations == 0 || sum.frees == 0) {
        return VARVE_OK;
    }
    struct curve **curve = &joining->curves[joined_of(joining, first)];
    *curve = curve_join(joining->parts, count);
    return *curve != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

/* All curves are taken from their call sites; those that are left are in `curves`. */
static int curves_join(struct joining *joining, bool is_same)
{
    struct domain_totals *domain = joining->domain;
    uint32_t *last = calloc(domain->callsite_limit + 1, sizeof(*last)); /* of each that is left */
    bool *has_more = calloc(domain->callsite_limit + 1, sizeof(*has_more));
    int error = last != NULL && has_more != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    for (uint32_t i = 1; i < domain->callsite_limit && error == VARVE_OK; i++) {
        const uint32_t into = joined_of(joining, i);
        if (domain->callsites[i].sum.allocations > 0) {
            joining->next[last[into]] = last[into] != 0 ? i : 0;
            has_more[i] = last[into] != 0;
            last[into] = i;
        }
    }
    for (uint32_t i = 0; i < domain->callsite_limit && error == VARVE_OK; i++) {
        struct callsite_total *total = &domain->callsites[i];
        if (!has_more[i] && joining->next[i] == 0 && total->curve != NULL) {
            joining->curves[joined_of(joining, i)] = total->curve;
            total->curve = NULL;
        } else if (!has_more[i] && joining->next[i] != 0 && is_same) {
            error = curve_make(joining, i);
        }
    }
    for (size_t i = 0; i < domain->callsite_limit; i++) {
        if (domain->callsites[i].curve != NULL) {
            free(domain->callsites[i].curve);
            domain->callsites[i].curve = NULL;
        }
    }
    free(last);
    free(has_more);
    return error;
}

static void callsite_join(struct domain_totals *domain, uint32_t from, uint32_t into)
{
    const struct callsite_total *before = &domain->callsites[into], *more = &domain->callsites[from];
    struct callsite_total sum = {.touched_seq = domain->all.peak_seq + 1, /* peak_* has it from here on */
                                 .first_seq = before->first_seq != 0 ? before->first_seq : more->first_seq,
                                 .owner = before->owner != 0 ? before->owner : more->owner,
                                 .is_shared = before->is_shared || more->is_shared};
    totals_callsite_add(domain, into, &sum);
    totals_callsite_add(domain, from, &sum);
    domain->callsites[into] = sum;
    domain->callsites[from] = (struct callsite_total){0};
}

/* Sums, in turn: what was where one goes that is no smaller has gone before. Memory of those that the domain has not
 * used is not touched: another domain has used most numbers. */
static void callsites_join_sums(const struct joining *joining)
{
    struct domain_totals *domain = joining->domain;
    size_t limit = 0;
    for (uint32_t i = 0; i < domain->callsite_limit; i++) {
        const uint32_t into = joined_of(joining, i);
        assert(into <= i);
        if (domain->callsites[i].touched_seq == 0) {
            continue;
        }
        if (into != i) {
            callsite_join(domain, i, into);
        }
        limit = into >= limit ? (size_t)into + 1 : limit;
    }
    for (size_t i = 0; i < limit; i++) {
        struct callsite_total *total = &domain->callsites[i];
        if (total->touched_seq != 0) {
            total->curve = joining->curves[i];
            total->is_shared = joining->is_shared[i];
        }
    }
    array_shrink(domain, limit);
}

int totals_join(struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                unsigned slot, const uint32_t *joined, size_t limit, bool is_same)
{
    const size_t count = domain->callsite_limit + 1;
    struct joining joining = {.domain = domain,
                              .joined = joined,
                              .limit = limit,
                              .owners = calloc(count, sizeof(*joining.owners)),
                              .is_shared = calloc(count, sizeof(*joining.is_shared)),
                              .seq = domain->all.peak_seq + 1,
                              .next = calloc(count, sizeof(*joining.next)),
                              .curves = calloc(count, sizeof(*joining.curves))};
    int error = joining.owners != NULL && joining.is_shared != NULL && joining.next != NULL && joining.curves != NULL
                    ? VARVE_OK
                    : VARVE_ERROR_NO_MEMORY;
    for (uint32_t i = 0; i < domain->callsite_limit && error == VARVE_OK; i++) {
        uint32_t *owner = &joining.owners[joined_of(&joining, i)];
        *owner = *owner != 0 ? *owner : domain->callsites[i].owner;
    }
    if (error == VARVE_OK && domain->processes > 1) {
        error = shares_join(&joining, processes, process_limit, slot);
    }
    VARVE_THEN(error, curves_join(&joining, is_same));
    if (error == VARVE_OK) {
        callsites_join_sums(&joining);
    }
    free(joining.owners);
    free(joining.is_shared);
    free(joining.next);
    free(joining.curves);
    free(joining.parts);
    return error;
}

/* Most are of devices that nobody used: to write to them would take memory for them. */
void totals_close_domain(struct domain_totals *domain)
{
    if (domain->processes == 0 && domain->callsites == NULL) {
        return;
    }
    for (size_t i = 0; i < domain->callsite_limit; i++) {
        free(domain->callsites[i].curve);
    }
    if (domain->callsites != NULL) {
        munmap(domain->callsites, domain->callsite_capacity * sizeof(*domain->callsites));
    }
    downsample_free(&domain->all.samples);
    totals_shares_free(&domain->retired);
    *domain = (struct domain_totals){0};
}

static void total_accumulate(struct total *sum, const struct total *total)
{
    figures_add(&sum->sum, &total->sum, 1);
    sum->failed += total->failed;
    sum->extra.active += total->extra.active;
    sum->extra.reserved += total->extra.reserved;
    sum->extra.requested += total->extra.requested;
}

static bool figures_equal(const struct figures *a, const struct figures *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool total_is_sound(const struct total *total)
{
    struct figures sizes = {0};
    for (unsigned i = 0; i < SIZE_CLASSES; i++) {
        figures_add(&sizes, &total->sizes[i], 1);
    }
    return total->sum.allocations - total->sum.frees == total->sum.live_allocations &&
           figures_equal(&sizes, &total->sum) && total->sum.live_bytes <= total->peak_bytes &&
           total->peak_bytes <= total->sum.bytes && downsample_check(&total->samples);
}

/* What the shares of each process add up to. */
struct share_sums {
    struct figures *by_process;
    bool is_wrapped; /* an owner has less than nothing */
};

static int sum_share(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share)
{
    struct share_sums *sums = context;
    (void)callsite;
    figures_add(&sums->by_process[process_id], &share->sum, 1);
    sums->is_wrapped =
        sums->is_wrapped || share->peak_bytes > share->sum.bytes || share->sum.frees > share->sum.allocations;
    return VARVE_OK;
}

/* Over its call sites each process has what it has, as long as none was retired or joined. */
static int shares_check(const struct domain_totals *domain, struct derive_process *const *processes,
                        size_t process_limit, unsigned slot, struct varve_message *message)
{
    struct share_sums sums = {.by_process = calloc(process_limit + 1, sizeof(*sums.by_process))};
    const struct totals_share_reading reading = {.wanted = is_any, .take = sum_share, .context = &sums};
    if (sums.by_process == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = totals_shares_each(domain, processes, process_limit, slot, &reading);
    bool is_sound = true;
    for (size_t i = 1; i < process_limit && error == VARVE_OK && domain->retired.count == 0; i++) {
        const struct total *total = process_total(processes[i], slot);
        const struct figures sum = total != NULL ? total->sum : (struct figures){0};
        is_sound = is_sound && figures_equal(&sum, &sums.by_process[i]);
    }
    free(sums.by_process);
    return error != VARVE_OK ? error
           : is_sound && !sums.is_wrapped
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_CORRUPT,
                                   "slot %u: the shares of processes in call sites do not add up", slot);
}

int totals_check(const struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                 unsigned slot, struct varve_message *message)
{
    if (domain->all.samples.limit == 0) {
        return VARVE_OK; /* never used: no process has one */
    }
    struct total by_process = {0};
    for (size_t i = 0; i < process_limit; i++) {
        const struct total *total = process_total(processes[i], slot);
        if (total == NULL) {
            continue;
        }
        if (!total_is_sound(total)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "totals of process %zu, slot %u", i, slot);
        }
        total_accumulate(&by_process, total);
    }
    struct callsite_total by_callsite = {0};
    for (size_t i = 0; i < domain->callsite_limit; i++) {
        totals_callsite_add(domain, (uint32_t)i, &by_callsite);
    }
    const struct total *all = &domain->all;
    if (!total_is_sound(all)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "totals of all processes, slot %u", slot);
    }
    if (!figures_equal(&all->sum, &by_process.sum) || !figures_equal(&all->sum, &by_callsite.sum) ||
        by_process.failed != all->failed || by_process.extra.active != all->extra.active ||
        by_process.extra.reserved != all->extra.reserved || by_process.extra.requested != all->extra.requested ||
        by_callsite.peak_bytes != all->peak_bytes || by_callsite.peak_allocations != all->peak_allocations) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "slot %u: the sums over processes, call sites and everything differ", slot);
    }
    return shares_check(domain, processes, process_limit, slot, message);
}
