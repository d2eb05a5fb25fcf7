/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call site is walked outwards once, and adds what it has to each function on its way, to one that is there
 * several times once. SQL can't mark what a walk has passed: it would sort all frames of all call sites, which are 70
 * million of a program that imports PyTorch. Reading the rows back would take longer than the walks, so they are noted
 * when they are written. small_tables.c and derived_tables.c note them.
 */
#include "trace/store/function_totals.h"

#include "base/error.h"
#include "base/grown_array.h"
#include "trace/model/domain.h"
#include "trace/store/store.h"
#include "trace/store/store_transaction.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

struct function_sums {
    int64_t callsites;
    int64_t figures[FUNCTION_FIGURES];
};

struct function_node {
    uint32_t function, caller;
};

/* A step costs a cache miss or two: what it looks at is close together. */
struct function_walks {
    const struct function_totals *totals;
    struct function_node *nodes;
    uint32_t *passed;           /* by function: the last walk that came by */
    struct function_sums *sums; /* by domain and function */
    uint32_t count;
};

static uint32_t id_array_get(const struct id_array *array, uint64_t id)
{
    return id < array->limit ? array->values[id] : 0;
}

static bool id_array_set(struct id_array *array, uint32_t id, uint32_t value)
{
    if (id >= array->limit && !ARRAY_COVER(array->values, array->limit, id)) {
        return false;
    }
    array->values[id] = value;
    return true;
}

static void id_array_free(struct id_array *array)
{
    free(array->values);
    *array = (struct id_array){0};
}

/* ---- rows ---- */

bool functions_symbol(struct function_totals *totals, uint32_t id, const struct store_symbol *symbol)
{
    const struct store_symbol function = {
        .function = symbol->function, .file = symbol->file, .module = symbol->module, .is_python = symbol->is_python};
    const struct wide_hash hash = symbol_hash(&function);
    struct index_slot *slot = hash_numbers_find(&totals->names, &hash);
    if (slot == NULL) {
        return false;
    }
    uint32_t number = (uint32_t)slot->number;
    if (number == 0) {
        number = (uint32_t)hash_numbers_add(&totals->names, slot, &hash);
        if (!id_array_set(&totals->firsts, number, id)) {
            return false;
        }
    }
    return id_array_set(&totals->symbols, id, id_array_get(&totals->firsts, number));
}

bool functions_frame(struct function_totals *totals, uint32_t id, uint32_t symbol_id)
{
    return id_array_set(&totals->frames, id, symbol_id);
}

bool functions_node(struct function_totals *totals, uint32_t id, uint32_t parent_id, uint32_t frame_id)
{
    return id_array_set(&totals->nodes, id, frame_id) && id_array_set(&totals->callers, id, parent_id);
}

bool functions_callsite(struct function_totals *totals, uint32_t id, uint32_t node_id)
{
    return id_array_set(&totals->callsites, id, node_id);
}

bool functions_figures(struct function_totals *totals, const struct callsite_figures *row)
{
    if (!ARRAY_GROW(totals->rows, totals->row_capacity, totals->row_count + 1)) {
        return false;
    }
    totals->rows[totals->row_count++] = *row;
    return true;
}

void functions_drop_symbols(struct function_totals *totals)
{
    hash_numbers_free(&totals->names);
    id_array_free(&totals->firsts);
    id_array_free(&totals->symbols);
    id_array_free(&totals->frames);
}

void functions_drop_stacks(struct function_totals *totals)
{
    id_array_free(&totals->nodes);
    id_array_free(&totals->callers);
    id_array_free(&totals->callsites);
}

void functions_drop_figures(struct function_totals *totals)
{
    free(totals->rows);
    totals->rows = NULL;
    totals->row_count = totals->row_capacity = 0;
}

void functions_free(struct function_totals *totals)
{
    functions_drop_symbols(totals);
    functions_drop_stacks(totals);
    functions_drop_figures(totals);
}

/* ---- sums ---- */

static bool walks_begin(struct function_walks *walks)
{
    const struct function_totals *totals = walks->totals;
    const size_t limit = totals->nodes.limit;
    walks->nodes = calloc(limit + 1, sizeof(*walks->nodes));
    walks->passed = calloc(totals->symbols.limit + 1, sizeof(*walks->passed));
    walks->sums = calloc((totals->symbols.limit + 1) * DOMAIN_LIMIT, sizeof(*walks->sums));
    for (size_t id = 0; walks->nodes != NULL && id < limit; id++) {
        const uint32_t caller = id_array_get(&totals->callers, id);
        walks->nodes[id] = (struct function_node){
            id_array_get(&totals->symbols, id_array_get(&totals->frames, totals->nodes.values[id])),
            caller < id ? caller : 0}; /* every walk ends */
    }
    return walks->nodes != NULL && walks->passed != NULL && walks->sums != NULL;
}

static struct function_sums *function_sums_of(const struct function_walks *walks, unsigned domain)
{
    assert(domain < DOMAIN_LIMIT);
    return walks->sums + domain * (walks->totals->symbols.limit + 1);
}

static void callsite_walk(struct function_walks *walks, const struct callsite_figures *row)
{
    const struct function_totals *totals = walks->totals;
    struct function_sums *of_domain = function_sums_of(walks, row->domain);
    walks->count++;
    uint32_t node = id_array_get(&totals->callsites, row->callsite);
    for (node = node < totals->nodes.limit ? node : 0; node != 0; node = walks->nodes[node].caller) {
        const uint32_t function = walks->nodes[node].function;
        if (walks->passed[function] != walks->count) {
            struct function_sums *sums = &of_domain[function];
            walks->passed[function] = walks->count;
            sums->callsites++;
            for (int i = 0; i < FUNCTION_FIGURES; i++) {
                sums->figures[i] = (int64_t)((uint64_t)sums->figures[i] + (uint64_t)row->figures[i]);
            }
        }
    }
}

static int write_function(struct store *store, uint64_t function, unsigned domain, const struct function_sums *sums)
{
    struct store_value values[3 + FUNCTION_FIGURES] = {VALUE(function), VALUE(domain), VALUE(sums->callsites)};
    for (int i = 0; i < FUNCTION_FIGURES; i++) {
        values[3 + i] = VALUE(sums->figures[i]);
    }
    return rows_write(store, STATEMENT_FUNCTION_STAT, values, 3 + FUNCTION_FIGURES);
}

/* In the order of the key. Function 0 is that of frames that have none. */
static int write_all(struct store *store, const struct function_walks *walks)
{
    int error = VARVE_OK;
    for (uint64_t function = 1; function < walks->totals->symbols.limit && error == VARVE_OK; function++) {
        for (unsigned domain = 0; domain < DOMAIN_LIMIT && error == VARVE_OK; domain++) {
            const struct function_sums *sums = &function_sums_of(walks, domain)[function];
            error = sums->callsites > 0 ? write_function(store, function, domain, sums) : VARVE_OK;
        }
    }
    return error;
}

int functions_write(struct store *store)
{
    const struct function_totals *totals = &store->functions;
    struct function_walks walks = {.totals = totals};
    bool has_memory = walks_begin(&walks);
    for (size_t i = 0; i < totals->row_count && has_memory; i++) {
        callsite_walk(&walks, &totals->rows[i]);
    }
    int error = has_memory ? write_all(store, &walks) : VARVE_ERROR_NO_MEMORY;
    free(walks.sums);
    free(walks.nodes);
    free(walks.passed);
    return error;
}
