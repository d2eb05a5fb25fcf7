/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums per process, over all processes, per size and per call site, and their peaks, in constant time per event.
 *
 * What each call site had live at the peak is wanted too, but a peak is known to be one only afterwards, and it may move
 * with every event, which rules out copying all call sites then. So a call site copies its own live value when it is about to
 * change for the first time after the peak that holds so far:
 *
 *   touched_seq <= peak_seq: not changed since the peak, the live value is the value at the peak
 *   touched_seq >  peak_seq: changed since, peak_* has the value of the peak
 *
 * A peak is looked for once per event, when all that the event opens and closes is counted. derive.c and
 * mapping.c call it.
 */
#include "trace/model/totals.h"

#include "trace/error.h"
#include "trace/model/domain.h"
#include "trace/model/scratch.h"
#include "trace/model/series.h"
#include "trace/model/state.h"

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

static bool total_reserve(struct total *total, uint32_t series_limit, bool has_extras)
{
    if (total->series.limit == 0) {
        total->series = (struct series){.limit = series_limit, .stride = 1, .has_extras = has_extras};
    }
    return series_reserve(&total->series);
}

/* Where the total of a slot is, made if it is not there yet; NULL without memory. */
static struct total *process_total_make(struct derive_process *process, unsigned slot)
{
    unsigned domain = slot_domain(slot);
    if (process->totals[domain] == NULL) {
        process->totals[domain] = calloc(domain_devices(domain), sizeof(struct total *));
    }
    struct total **found = process_total(process, slot);
    if (found != NULL && *found == NULL) {
        *found = calloc(1, sizeof(**found));
    }
    return found != NULL ? *found : NULL;
}

int totals_reserve(struct domain_totals *domain, struct derive_process *process, unsigned slot,
                   uint32_t callsite)
{
    bool has_extras = slot_domain(slot) == DOMAIN_BLOCK;
    struct total *total = process_total_make(process, slot);
    return total != NULL && array_reserve(domain, callsite) &&
                   total_reserve(&domain->all, SERIES_POINTS_ALL, has_extras) &&
                   total_reserve(total, SERIES_POINTS_PROCESS, has_extras)
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

/* The call site of a row that is about to change, its value at the peak saved. */
static struct callsite_total *callsite_touch(const struct totals_step *step, const struct scratch_row *row)
{
    assert(row->callsite < step->domain->callsite_limit);
    struct callsite_total *callsite = &step->domain->callsites[row->callsite];
    if (callsite->touched_seq <= step->domain->all.peak_seq) {
        callsite->peak_allocations = callsite->live_allocations;
        callsite->peak_bytes = callsite->live_bytes;
    }
    callsite->touched_seq = step->seq;
    return callsite;
}

static struct size_total *size_total(struct total *total, uint64_t size)
{
    unsigned class = size <= 1 ? 0 : 64U - (unsigned)__builtin_clzll(size - 1);
    return &total->sizes[class < SIZE_CLASSES ? class : SIZE_CLASSES - 1];
}

void totals_open(const struct totals_step *step, const struct scratch_row *row)
{
    struct callsite_total *callsite = callsite_touch(step, row);
    callsite->allocations++;
    callsite->bytes += row->size;
    callsite->live_allocations++;
    callsite->live_bytes += row->size;
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        struct size_total *size = size_total(both[i], row->size);
        both[i]->allocations++;
        both[i]->bytes += row->size;
        both[i]->live_allocations++;
        both[i]->live_bytes += row->size;
        size->allocations++;
        size->bytes += row->size;
        size->live_allocations++;
        size->live_bytes += row->size;
    }
}

void totals_close(const struct totals_step *step, const struct scratch_row *row)
{
    struct callsite_total *callsite = callsite_touch(step, row);
    assert(callsite->live_allocations > 0 && callsite->live_bytes >= row->size);
    callsite->frees++;
    callsite->live_allocations--;
    callsite->live_bytes -= row->size;
    callsite->temporary += row->temporary;
    callsite->lifetime_ns += row->free_ns - row->alloc_ns;
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        assert(both[i]->live_allocations > 0 && both[i]->live_bytes >= row->size);
        both[i]->frees++;
        both[i]->live_allocations--;
        both[i]->live_bytes -= row->size;
        both[i]->temporary += row->temporary;
        struct size_total *size = size_total(both[i], row->size);
        assert(size->live_allocations > 0 && size->live_bytes >= row->size);
        size->frees++;
        size->live_allocations--;
        size->live_bytes -= row->size;
        size->temporary += row->temporary;
        size->lifetime_ns += row->free_ns - row->alloc_ns;
    }
}

void totals_reopen(const struct totals_step *step, const struct scratch_row *row)
{
    struct callsite_total *callsite = callsite_touch(step, row);
    callsite->frees--;
    callsite->live_allocations++;
    callsite->live_bytes += row->size;
    callsite->temporary -= row->temporary;
    callsite->lifetime_ns -= row->free_ns - row->alloc_ns;
    struct total *both[] = {&step->domain->all, step->process};
    for (int i = 0; i < 2; i++) {
        struct size_total *size = size_total(both[i], row->size);
        both[i]->frees--;
        both[i]->live_allocations++;
        both[i]->live_bytes += row->size;
        both[i]->temporary -= row->temporary;
        size->frees--;
        size->live_allocations++;
        size->live_bytes += row->size;
        size->temporary -= row->temporary;
        size->lifetime_ns -= row->free_ns - row->alloc_ns;
    }
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
        if (total->live_bytes > total->peak_bytes) {
            total->peak_bytes = total->live_bytes;
            total->peak_allocations = total->live_allocations;
            total->peak_seq = step->seq;
            total->peak_ns = step->ts_ns;
        }
        total->series.pending_extra = total->extra;
        series_add(&total->series, step->seq, step->ts_ns, total->live_bytes, total->live_allocations);
    }
}

void totals_callsite_peak(const struct domain_totals *domain, uint32_t callsite, uint64_t *allocations_out,
                          uint64_t *bytes_out)
{
    const struct callsite_total *total = &domain->callsites[callsite];
    if (total->touched_seq <= domain->all.peak_seq) {
        *allocations_out = total->live_allocations;
        *bytes_out = total->live_bytes;
    } else {
        *allocations_out = total->peak_allocations;
        *bytes_out = total->peak_bytes;
    }
}

void totals_callsite_add(const struct domain_totals *domain, uint32_t callsite, struct callsite_total *sum)
{
    uint64_t peak_allocations;
    uint64_t peak_bytes;
    if (callsite >= domain->callsite_limit) {
        return;
    }
    const struct callsite_total *total = &domain->callsites[callsite];
    totals_callsite_peak(domain, callsite, &peak_allocations, &peak_bytes);
    sum->allocations += total->allocations;
    sum->frees += total->frees;
    sum->bytes += total->bytes;
    sum->live_allocations += total->live_allocations;
    sum->live_bytes += total->live_bytes;
    sum->peak_allocations += peak_allocations;
    sum->peak_bytes += peak_bytes;
    sum->temporary += total->temporary;
    sum->lifetime_ns += total->lifetime_ns;
}

void totals_join(struct domain_totals *domain, uint32_t from, uint32_t into)
{
    struct callsite_total sum = {.touched_seq = domain->all.peak_seq + 1}; /* peak_* has it from here on */
    assert(from < domain->callsite_limit && into < domain->callsite_limit);
    totals_callsite_add(domain, into, &sum);
    totals_callsite_add(domain, from, &sum);
    domain->callsites[into] = sum;
    domain->callsites[from] = (struct callsite_total){0};
}

void totals_close_domain(struct domain_totals *domain)
{
    if (domain->callsites != NULL) {
        munmap(domain->callsites, domain->callsite_capacity * sizeof(*domain->callsites));
    }
    series_free(&domain->all.series);
    *domain = (struct domain_totals){0};
}

static void total_accumulate(struct total *sum, const struct total *total)
{
    sum->allocations += total->allocations;
    sum->frees += total->frees;
    sum->bytes += total->bytes;
    sum->live_allocations += total->live_allocations;
    sum->live_bytes += total->live_bytes;
    sum->temporary += total->temporary;
    sum->failed += total->failed;
    sum->extra.active += total->extra.active;
    sum->extra.reserved += total->extra.reserved;
    sum->extra.requested += total->extra.requested;
}

/* Equal in all sums; the peaks are compared where they have the same meaning. */
static bool totals_equal(const struct total *a, const struct total *b)
{
    return a->allocations == b->allocations && a->frees == b->frees && a->bytes == b->bytes &&
           a->live_allocations == b->live_allocations && a->live_bytes == b->live_bytes &&
           a->temporary == b->temporary && a->failed == b->failed;
}

static bool total_is_sound(const struct total *total)
{
    struct size_total sum = {0};
    for (unsigned i = 0; i < SIZE_CLASSES; i++) {
        sum.allocations += total->sizes[i].allocations;
        sum.frees += total->sizes[i].frees;
        sum.bytes += total->sizes[i].bytes;
        sum.live_bytes += total->sizes[i].live_bytes;
        sum.temporary += total->sizes[i].temporary;
    }
    return total->allocations - total->frees == total->live_allocations &&
           sum.allocations == total->allocations && sum.frees == total->frees && sum.bytes == total->bytes &&
           sum.live_bytes == total->live_bytes && sum.temporary == total->temporary &&
           total->live_bytes <= total->peak_bytes && total->peak_bytes <= total->bytes &&
           series_check(&total->series) == VARVE_OK;
}

int totals_check(const struct domain_totals *domain, struct derive_process *const *processes,
                 size_t process_limit, unsigned slot, struct varve_message *message)
{
    struct total by_process = {0};
    if (domain->all.series.limit == 0) {
        return VARVE_OK; /* never used: no process has one */
    }
    for (size_t i = 0; i < process_limit; i++) {
        struct total *const *found = processes[i] != NULL ? process_total(processes[i], slot) : NULL;
        if (found == NULL || *found == NULL) {
            continue;
        }
        const struct total *total = *found;
        if (!total_is_sound(total)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "totals of process %zu, slot %u", i, slot);
        }
        total_accumulate(&by_process, total);
    }
    struct total by_callsite = {.failed = domain->all.failed};
    for (size_t i = 0; i < domain->callsite_limit; i++) {
        const struct callsite_total *callsite = &domain->callsites[i];
        uint64_t allocations;
        uint64_t bytes;
        totals_callsite_peak(domain, (uint32_t)i, &allocations, &bytes);
        const struct total one = {.allocations = callsite->allocations,
                                  .frees = callsite->frees,
                                  .bytes = callsite->bytes,
                                  .live_allocations = callsite->live_allocations,
                                  .live_bytes = callsite->live_bytes,
                                  .temporary = callsite->temporary};
        total_accumulate(&by_callsite, &one);
        by_callsite.peak_allocations += allocations;
        by_callsite.peak_bytes += bytes;
    }
    const struct total *all = &domain->all;
    if (!total_is_sound(all)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "totals of all processes, slot %u", slot);
    }
    if (!totals_equal(all, &by_process) || !totals_equal(all, &by_callsite) ||
        by_process.extra.active != all->extra.active || by_process.extra.reserved != all->extra.reserved ||
        by_process.extra.requested != all->extra.requested || by_callsite.peak_bytes != all->peak_bytes ||
        by_callsite.peak_allocations != all->peak_allocations) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "slot %u: the sums over processes, call sites and everything differ", slot);
    }
    return VARVE_OK;
}
