/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the totals of all call sites, which keeps the best of each order in a sorted list: a call site that is
 * not among them costs a comparison for each. The collector calls it while somebody watches.
 */
#include "trace/model/group_leaders.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/model_state.h"

#include <stdlib.h>
#include <string.h>

enum order { ORDER_LIVE, ORDER_BYTES, ORDER_RATE, ORDERS };

static uint64_t group_leaders_key_of(const struct leader *leader, enum order order)
{
    switch (order) {
    case ORDER_LIVE:
        return leader->total.sum.live_bytes;
    case ORDER_BYTES:
        return leader->total.sum.bytes;
    default:
        return leader->total.sum.bytes - leader->bytes_before;
    }
}

/* The best of one order, the largest first. */
struct best {
    struct leader *rows;
    size_t count, most;
};

static void best_add(struct best *best, const struct leader *leader, enum order order)
{
    const uint64_t key = group_leaders_key_of(leader, order);
    size_t at = best->count;
    if (key == 0 || (best->count == best->most && key <= group_leaders_key_of(&best->rows[best->count - 1], order))) {
        return;
    }
    while (at > 0 && group_leaders_key_of(&best->rows[at - 1], order) < key) {
        at--;
    }
    best->count += best->count < best->most;
    memmove(&best->rows[at + 1], &best->rows[at], (best->count - at - 1) * sizeof(*best->rows));
    best->rows[at] = *leader;
}

static int group_leaders_compare_rows(const void *left, const void *right)
{
    const struct leader *a = left, *b = right;
    if (a->domain != b->domain) {
        return a->domain < b->domain ? -1 : 1;
    }
    return a->callsite < b->callsite ? -1 : a->callsite > b->callsite;
}

static bool domain_look(struct leaders *leaders, const struct derive *derive, enum domain domain, size_t most)
{
    const struct domain_slots slots = domain_slots(derive, domain);
    if (slots.callsite_limit == 0) {
        return true;
    }
    if (!ARRAY_COVER(leaders->domains[domain].seen, leaders->domains[domain].capacity, slots.callsite_limit) ||
        !ARRAY_GROW(leaders->rows, leaders->capacity, leaders->count + ORDERS * most)) {
        return false;
    }
    struct best best[ORDERS];
    for (unsigned i = 0; i < ORDERS; i++) {
        best[i] = (struct best){.rows = &leaders->best[i * most], .most = most};
    }
    for (size_t i = 0; i < slots.callsite_limit; i++) {
        struct leaders_seen *seen = &leaders->domains[domain].seen[i];
        struct leader leader = {.allocations_before = seen->allocations,
                                .bytes_before = seen->bytes,
                                .callsite = (uint32_t)i,
                                .domain = domain};
        for (unsigned k = 0; k < slots.count; k++) {
            totals_callsite_add(slots.totals[k], (uint32_t)i, &leader.total);
        }
        *seen = (struct leaders_seen){leader.total.sum.allocations, leader.total.sum.bytes};
        for (unsigned k = 0; k < ORDERS; k++) {
            best_add(&best[k], &leader, (enum order)k);
        }
    }
    for (unsigned i = 0; i < ORDERS; i++) {
        memcpy(&leaders->rows[leaders->count], best[i].rows, best[i].count * sizeof(*best[i].rows));
        leaders->count += best[i].count;
    }
    return true;
}

/* Who leads in several orders is there once. */
static void group_leaders_unite(struct leaders *leaders)
{
    if (leaders->count > 0) {
        qsort(leaders->rows, leaders->count, sizeof(*leaders->rows), group_leaders_compare_rows);
    }
    size_t kept = 0;
    for (size_t i = 0; i < leaders->count; i++) {
        if (kept == 0 || group_leaders_compare_rows(&leaders->rows[kept - 1], &leaders->rows[i]) != 0) {
            leaders->rows[kept++] = leaders->rows[i];
        }
    }
    leaders->count = kept;
}

int leaders_look(struct leaders *leaders, const struct derive *derive, size_t most)
{
    leaders->count = 0;
    if (!ARRAY_GROW(leaders->best, leaders->best_capacity, ORDERS * most)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (unsigned domain = DOMAIN_HEAP; domain < DOMAIN_LIMIT; domain++) {
        if (!domain_look(leaders, derive, (enum domain)domain, most)) {
            leaders->count = 0;
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    group_leaders_unite(leaders);
    return VARVE_OK;
}

void leaders_free(struct leaders *leaders)
{
    for (unsigned i = 0; i < DOMAIN_LIMIT; i++) {
        free(leaders->domains[i].seen);
    }
    free(leaders->rows);
    free(leaders->best);
    *leaders = (struct leaders){0};
}
