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
    for (unsigned i = 0; i < count; i++) {
        figures_open(&callsites[i]->sum, row, step->main_end_ns);
    }
    if (row->alloc_ns <= step->main_end_ns && callsites[0]->sum.allocations % CURVE_EVERY_MIN == 0) {
        curve_add(&callsites[0]->curve, callsites[0]->sum.allocations,
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

static int take_shares(const struct domain_totals *domain, uint32_t process_id, const struct callsite_shares *shares,
                       struct callsite_total *rest, const struct totals_share_reading *reading)
{
    int error = VARVE_OK;
    for (size_t i = 0; shares != NULL && i < shares->count && error == VARVE_OK; i++) {
        uint32_t callsite = shares->rows[i].callsite;
        struct callsite_total share = {0};
        model_totals_accumulate(domain, &shares->rows[i].total, &share);
        if (share.sum.allocations == 0 || !reading->wanted(reading->context, callsite)) {
            continue;
        }
        figures_add(&rest[callsite].sum, &share.sum, -1);
        rest[callsite].peak_allocations -= share.peak_allocations;
        rest[callsite].peak_bytes -= share.peak_bytes;
        rest[callsite].peak_shared -= share.peak_shared;
        error = reading->take(reading->context, process_id, callsite, &share);
    }
    return error;
}

int totals_shares_each(const struct domain_totals *domain, struct derive_process *const *processes,
                       size_t process_limit, unsigned slot, const struct totals_share_reading *reading)
{
    struct callsite_total *rest = calloc(domain->callsite_limit + 1, sizeof(*rest));
    if (rest == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (size_t i = 0; i < domain->callsite_limit; i++) {
        totals_callsite_add(domain, (uint32_t)i, &rest[i]);
    }
    int error = take_shares(domain, 0, &domain->retired, rest, reading);
    for (size_t i = 0; i < process_limit && error == VARVE_OK; i++) {
        uint32_t id;
        const struct callsite_shares *shares = shares_of_process(processes, i, slot, &id);
        error = take_shares(domain, id, shares, rest, reading);
    }
    for (size_t i = 0; i < domain->callsite_limit && error == VARVE_OK; i++) {
        uint32_t owner = domain->callsites[i].owner;
        if (rest[i].sum.allocations > 0 && owner != CALLSITE_SHARED && reading->wanted(reading->context, (uint32_t)i)) {
            error = reading->take(reading->context, owner, (uint32_t)i, &rest[i]);
        }
    }
    free(rest);
    return error;
}

/* What totals_join_shares makes of all shares of a slot. */
struct joining {
    struct callsite_shares *by_process; /* by process, those of retired ones at 0 */
    const uint32_t *joined;
    size_t limit;
    uint64_t seq;
    const struct domain_totals *domain;
};

static bool is_any(void *context, uint32_t callsite)
{
    (void)context;
    (void)callsite;
    return true;
}

static int join_share(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share)
{
    const struct joining *joining = context;
    struct callsite_shares *shares = &joining->by_process[process_id];
    uint32_t into = callsite < joining->limit ? joining->joined[callsite] : callsite;
    struct callsite_total total = *share;
    if (!ARRAY_GROW(shares->rows, shares->capacity, shares->count + 1) || !index_reserve(&shares->index)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    total.touched_seq = joining->seq; /* peak_* has it from here on */
    share_merge(joining->domain, model_totals_share_of(shares, into), &total, joining->seq);
    return VARVE_OK;
}

int totals_join_shares(struct domain_totals *domain, struct derive_process *const *processes, size_t process_limit,
                       unsigned slot, const uint32_t *joined, size_t limit)
{
    struct joining joining = {.joined = joined, .limit = limit, .seq = domain->all.peak_seq + 1, .domain = domain};
    const struct totals_share_reading reading = {.wanted = is_any, .take = join_share, .context = &joining};
    if (domain->processes < 2) {
        return VARVE_OK;
    }
    joining.by_process = calloc(process_limit + 1, sizeof(*joining.by_process));
    int error = joining.by_process != NULL ? totals_shares_each(domain, processes, process_limit, slot, &reading)
                                           : VARVE_ERROR_NO_MEMORY;
    for (size_t i = 0; i < process_limit && joining.by_process != NULL; i++) {
        struct total *total = process_total(processes[i], slot);
        struct callsite_shares *shares = i == 0 ? &domain->retired : total != NULL ? &total->shares : NULL;
        struct callsite_shares made = joining.by_process[i];
        if (error == VARVE_OK && shares != NULL) {
            joining.by_process[i] = *shares;
            *shares = made;
        }
        totals_shares_free(&joining.by_process[i]);
    }
    for (size_t i = 0; i < domain->callsite_limit && error == VARVE_OK; i++) {
        domain->callsites[i].owner = CALLSITE_SHARED;
        domain->callsites[i].is_shared = true;
    }
    free(joining.by_process);
    return error;
}

void totals_join(struct domain_totals *domain, uint32_t from, uint32_t into)
{
    assert(from < domain->callsite_limit && into < domain->callsite_limit);
    /* of one process that has used either, or of all */
    const struct callsite_total *used = &domain->callsites[domain->callsites[from].owner != 0 ? from : into];
    struct callsite_total sum = {.touched_seq = domain->all.peak_seq + 1, /* peak_* has it from here on */
                                 .owner = used->owner,
                                 .is_shared = used->is_shared};
    totals_callsite_add(domain, into, &sum);
    totals_callsite_add(domain, from, &sum);
    free(domain->callsites[into].curve); /* of parts, each by its own allocations, there is no sum */
    free(domain->callsites[from].curve);
    domain->callsites[into] = sum;
    domain->callsites[from] = (struct callsite_total){0};
}

void totals_close_domain(struct domain_totals *domain)
{
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
