/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rows of the view `allocation` in one pass: what the parts of the page are made of that need each allocation. The
 * user's line of each call site is read before: a join would be made five million times.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_ALLOCATIONS_H
#define VARVE_ANALYSIS_PAGE_PAGE_ALLOCATIONS_H

#include <stdint.h>

struct database;

#define PAGE_NEVER INT64_MAX

struct page_allocation {
    int64_t domain, process_id, device, stream;
    uint64_t addr, size;
    int64_t alloc_seq, alloc_ns;
    int64_t free_seq, free_ns; /* when its free was requested; PAGE_NEVER */
    int64_t line;              /* of the user: symbol.id, 0: unknown */
};

struct page_lines {
    int64_t *of_callsite; /* symbol.id */
    int64_t limit;
};

typedef void page_allocation_visitor(void *context, const struct page_allocation *allocation);

/// Owner: the caller, until page_lines_free.
void page_lines_load(struct page_lines *lines, struct database *database);
void page_lines_free(struct page_lines *lines);
/// In no order. Without what CUPTI reports once more.
void page_allocations_visit(struct database *database, const struct page_lines *lines, page_allocation_visitor *visit,
                            void *context);

#endif
