/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranked lists of call sites: what report, leaks and peak show. A list is loaded by one of the figures of the view
 * callsite_total and printed as text, JSON or CSV. Loading ends early on a database error: see database_error.
 */
#ifndef VARVE_ANALYSIS_QUERY_CALLSITES_H
#define VARVE_ANALYSIS_QUERY_CALLSITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;
struct database;

enum callsite_rank {
    CALLSITE_BY_PEAK,      /* bytes live at the peak of the domain */
    CALLSITE_BY_BYTES,     /* bytes allocated in all */
    CALLSITE_BY_COUNT,     /* allocations */
    CALLSITE_BY_LIFETIME,  /* mean lifetime, of those with at least 1 % of the bytes */
    CALLSITE_BY_TEMPORARY, /* temporary allocations */
    CALLSITE_BY_LIVE,      /* bytes never freed */
    CALLSITE_RANK_COUNT,
};

/* A row of callsite_total; texts are owned by the list, NULL if unknown. */
struct callsite_row {
    int64_t id;
    int64_t allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary;
    int64_t mean_lifetime_ns; /* -1: none was freed */
    char *function, *file, *module;
    int64_t line;
    bool is_python;
};

struct callsite_list {
    struct callsite_row *rows;
    size_t count;
    int64_t count_all;                  /* rows that a list without limit would have */
    int64_t sum_bytes, sum_allocations; /* over all of them, of the figures that the ranking is about */
};

struct callsite_rank_info {
    const char *key;   /* in JSON */
    const char *title; /* in the report */
};

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank);
/// The two figures that a ranking is about.
int64_t callsite_rank_bytes(const struct callsite_row *row, enum callsite_rank rank);
int64_t callsite_rank_allocations(const struct callsite_row *row, enum callsite_rank rank);

void callsite_list_load(struct callsite_list *list, struct database *database, enum callsite_rank rank,
                        const char *domain, int64_t top);
/// Blocks of one process that were live at `seq` (never freed: seq < 0), by call site; bytes and allocations
/// are in the figures of `rank` (CALLSITE_BY_PEAK or CALLSITE_BY_LIVE). Reads the allocations themselves:
/// takes its time.
void callsite_list_load_process(struct callsite_list *list, struct database *database,
                                enum callsite_rank rank, const char *domain, int64_t process_id, int64_t seq,
                                int64_t top);
void callsite_list_free(struct callsite_list *list);

/// Where the call site row->id is; nothing if it is not known.
void callsite_location_load(struct callsite_row *row, struct database *database);
void callsite_location_free(struct callsite_row *row);

struct callsite_options {
    int64_t frames; /* per stack; < 0: as suits the format */
    int64_t stacks; /* how many entries of a list get their stack as text; < 0: all */
};

/* Call sites whose stack was printed: later lists refer back instead of repeating it. */
struct callsite_shown {
    int64_t *ids;
    size_t count, capacity;
};

void callsite_shown_free(struct callsite_shown *shown);
/// The first `frames` frames of its stack; of 0 the call site itself.
void callsite_stack_print(FILE *out, struct database *database, const struct callsite_row *row,
                          int64_t frames);
void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options,
                         struct callsite_shown *shown);
/// An array; each entry has bytes and allocations of the ranking, or, with_totals, every figure of the call
/// site.
struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list,
                                 enum callsite_rank rank, const struct callsite_options *options,
                                 bool with_totals);
/// function,file,line,module: fields of a line of CSV.
void callsite_location_csv(FILE *out, const struct callsite_row *row);
void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank,
                       const char *domain);

#ifdef __cplusplus
}
#endif

#endif
