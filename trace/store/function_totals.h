/* SPDX-License-Identifier: Apache-2.0 */
/* Table function_stat: what each function has anywhere in the stacks. */
#ifndef VARVE_TRACE_STORE_FUNCTION_TOTALS_H
#define VARVE_TRACE_STORE_FUNCTION_TOTALS_H

#include "trace/store/hash_numbers.h"

#include <stddef.h>
#include <stdint.h>

#define FUNCTION_FIGURES 8 /* columns of function_stat after `callsites` */

struct store;
struct store_symbol;

/* By id of a row; what is not there is 0. */
struct id_array {
    uint32_t *values;
    size_t limit;
};

/* What a row of callsite_stat has. */
struct callsite_figures {
    uint32_t callsite, domain;
    int64_t figures[FUNCTION_FIGURES];
};

/* The rows written so far, as far as functions follow from them: 8 bytes a stack node. All zero: none. */
struct function_totals {
    struct hash_numbers names; /* distinct functions */
    struct id_array firsts;    /* of them: the first symbol, which stands for the function */
    struct id_array symbols;   /* their function's first symbol */
    struct id_array frames;    /* their symbol */
    struct id_array nodes;     /* their frame */
    struct id_array callers;   /* of nodes: the caller's node */
    struct id_array callsites; /* their node */
    struct callsite_figures *rows;
    size_t row_count, row_capacity;
};

/* Rows as they are written; false without memory. Equal symbols are given once, their ids grow. */
bool functions_symbol(struct function_totals *totals, uint32_t id, const struct store_symbol *symbol);
bool functions_frame(struct function_totals *totals, uint32_t id, uint32_t symbol_id);
bool functions_node(struct function_totals *totals, uint32_t id, uint32_t parent_id, uint32_t frame_id);
bool functions_callsite(struct function_totals *totals, uint32_t id, uint32_t node_id);
bool functions_figures(struct function_totals *totals, const struct callsite_figures *row);

/* These rows are gone. */
void functions_drop_symbols(struct function_totals *totals);
void functions_drop_stacks(struct function_totals *totals);
void functions_drop_figures(struct function_totals *totals);
void functions_free(struct function_totals *totals);

/// Add up, and write the table, after all those rows. Errors: VARVE_ERROR_NO_MEMORY, those of store_commit.
int functions_write(struct store *store);

#endif
