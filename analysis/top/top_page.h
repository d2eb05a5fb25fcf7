/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve top` shows of one moment, as text and as JSON: made from the tables of top_figures.c by SQL each time,
 * sorted there too. A page has a head, which always fits, and a list, which may be longer
 * than the screen.
 */
#ifndef VARVE_ANALYSIS_TOP_TOP_PAGE_H
#define VARVE_ANALYSIS_TOP_TOP_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

enum page_order {
    PAGE_BY_LIVE,      /* live bytes */
    PAGE_BY_ALLOCATED, /* bytes so far */
    PAGE_BY_RATE,      /* bytes per second */
    PAGE_ORDERS,
};

enum page_list {
    PAGE_LINES,
    PAGE_PROCESSES,
    PAGE_LISTS,
};

extern const char *const page_order_names[]; /* of an OPTION_CHOICE: ends with NULL */

struct page {
    size_t columns;     /* of a line: what does not fit is cut, or left out */
    size_t allocators;  /* lines for caching allocators, at most */
    const char *state;  /* of the recording, in words */
    const char *domain; /* of lines and call sites; NULL: all */
    enum page_order order;
    enum page_list list;
    int64_t top; /* rows of a list, at most */
};

/// Errors of the database end it early: ask database_error before it is shown.
void page_head(FILE *out, struct database *database, const struct page *page);
/// The first line has the titles, and says what is sorted by.
void page_list(FILE *out, struct database *database, const struct page *page);
/// All of it in one object. Owner: the caller, by json_print.
struct cJSON *page_json(struct database *database, const struct page *page);
/// The domain after `domain` (NULL: all) of those that have call sites, NULL after the last. Owner: the
/// caller, by free.
char *page_next_domain(struct database *database, const char *domain);

#endif
