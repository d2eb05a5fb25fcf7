/* SPDX-License-Identifier: Apache-2.0 */
/* `varve report --html`: one page of HTML that needs no other file and no network. */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_H
#define VARVE_ANALYSIS_PAGE_PAGE_H

#include <stdbool.h>
#include <stdio.h>

struct database;
struct growth;
struct progress;
struct varve_message;

/* What a page says of a recording before: comparisons, whose second database is that of the page. */
struct page_before {
    const struct growth *lines, *stacks;
};

/// VARVE_ERROR_UNSUPPORTED, with what to install: varve was built without the library that draws.
int page_check(struct varve_message *message);
/// Errors of the database, and those of page_check. `has_source`: with source code around lines, as far as it can be
/// read here. `before`: NULL if there is none; errors of its databases are the caller's to ask for. `progress` shows
/// what is worked on.
int page_write(FILE *out, struct database *database, const struct page_before *before, bool has_source,
               struct progress *progress, struct varve_message *message);

#endif
