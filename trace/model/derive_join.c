/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over call sites stay what they are: of a domain's peak each call site has its part, and parts are added up like
 * all else. collector/keep_policy.c calls it, before store/derived_tables.c writes the totals.
 */
#include "trace/model/derive.h"

#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"

#include <stdbool.h>

static bool derive_join_is_large(uint64_t value, uint64_t total)
{
    return value > 0 && value >= total / JOIN_SHARE + (total % JOIN_SHARE != 0);
}

/* What is compared, of a domain. */
static void derive_join_add_domain(const struct domain_totals *totals, struct callsite_total *all, size_t *callsites)
{
    figures_add(&all->sum, &totals->all.sum, 1);
    all->peak_bytes += totals->all.peak_bytes;
    *callsites = totals->callsite_limit > *callsites ? totals->callsite_limit : *callsites;
}

static uint8_t derive_join_size_of(const struct callsite_total *callsite, const struct callsite_total *domain)
{
    if (callsite->sum.allocations == 0) {
        return JOIN_UNUSED;
    }
    return derive_join_is_large(callsite->sum.allocations, domain->sum.allocations) ||
                   derive_join_is_large(callsite->sum.bytes, domain->sum.bytes) ||
                   derive_join_is_large(callsite->peak_bytes, domain->peak_bytes) ||
                   derive_join_is_large(callsite->sum.left_bytes, domain->sum.left_bytes)
               ? JOIN_LARGE
               : JOIN_SMALL;
}

/* Of all devices of a domain together. */
static void domain_sizes(const struct derive *derive, enum domain domain, uint8_t *sizes, size_t limit)
{
    struct callsite_total all = {0};
    size_t callsites = 0;
    for (unsigned device = 0; device < domain_devices(domain); device++) {
        derive_join_add_domain(&derive->domains[slot_of(domain, device)], &all, &callsites);
    }
    for (size_t i = 0; i < limit && i < callsites; i++) {
        struct callsite_total one = {0};
        for (unsigned device = 0; device < domain_devices(domain); device++) {
            totals_callsite_add(&derive->domains[slot_of(domain, device)], (uint32_t)i, &one);
        }
        uint8_t size = derive_join_size_of(&one, &all);
        sizes[i] = size > sizes[i] ? size : sizes[i];
    }
}

/* Who made a storage that is alive is what people want to know of it. */
static void storage_sizes(const struct derive *derive, const uint32_t *rows, size_t row_limit, uint8_t *sizes,
                          size_t limit)
{
    for (uint64_t id = 1; id <= derive->storages.count; id++) {
        const struct scratch_storage *row = derive_storage_row(derive, id);
        if (row->destroy_seq == 0 && row->callsite < row_limit && rows[row->callsite] < limit) {
            sizes[rows[row->callsite]] = JOIN_LARGE;
        }
    }
}

void join_sizes(const struct derive *derive, const uint32_t *rows, size_t row_limit, uint8_t *sizes, size_t limit)
{
    for (unsigned domain = DOMAIN_HEAP; domain < DOMAIN_LIMIT; domain++) {
        domain_sizes(derive, domain, sizes, limit);
    }
    storage_sizes(derive, rows, row_limit, sizes, limit);
}

int join_callsites(struct derive *derive, const uint32_t *joined, size_t limit, bool is_same)
{
    int error = VARVE_OK;
    for (unsigned slot = 1; slot < SLOT_LIMIT && error == VARVE_OK; slot++) {
        if (derive->domains[slot].callsite_limit > 0) {
            error = totals_join(&derive->domains[slot], derive->processes, derive->process_limit, slot, joined, limit,
                                is_same);
        }
    }
    return error;
}
