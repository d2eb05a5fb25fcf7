/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of call sites as text, JSON and CSV: what report, leaks and peak show. callsite_groups.h makes them. As text an
 * entry is a line, which begins with the user's line, and its stack in a line more; with frames asked for it has these
 * instead.
 */
#ifndef VARVE_ANALYSIS_QUERY_CALLSITE_QUERY_H
#define VARVE_ANALYSIS_QUERY_CALLSITE_QUERY_H

#include "analysis/query/callsite_groups.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

struct callsite_rank_info {
    const char *key;   /* in JSON */
    const char *title; /* in the report with --all */
};

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank);

struct callsite_options {
    int64_t frames; /* per stack; < 0: as text the stack in a line, as JSON all; 0: none */
    int64_t stacks; /* how many entries of a list get their stack as text; < 0: all */
    bool is_all;    /* exact figures, numbers of the call sites, whole stacks */
};

/* Call sites whose stack was printed: later lists do not repeat it. */
struct callsite_shown {
    int64_t *ids;
    size_t count, capacity;
};

void callsite_shown_free(struct callsite_shown *shown);
/// The first `frames` frames of its stack; of 0 the call site itself.
void callsite_stack_print(FILE *out, struct database *database, const struct callsite_row *row, int64_t frames);
/// Shares are of the sums of the list. shown: NULL where no other list follows.
void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options, struct callsite_shown *shown);
/// "5 of 12 lines", or "12 lines"; and how many call sites are in these where they are not the same.
void callsite_list_extent(FILE *out, const struct callsite_list *list);
/// An array; each entry has bytes and allocations of the ranking, or, with_totals, every figure of the call
/// site.
struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list, enum callsite_rank rank,
                                 const struct callsite_options *options, bool with_totals);
/// Members of an entry: where the user's line is, and the innermost frame.
void callsite_location_json(struct cJSON *object, const struct callsite_row *row);
/// function,file,line,module: fields of a line of CSV.
void callsite_location_csv(FILE *out, const struct group_location *location);
void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank, const char *domain);
/// What an entry of a list by `by` is about, at most `columns` wide: the user's line, a module, a process. Owner: the
/// caller, by free.
char *callsite_entry_name(const struct callsite_row *row, enum group_by by, size_t columns);

#endif
