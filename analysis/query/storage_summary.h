/* SPDX-License-Identifier: Apache-2.0 */
/* Storages of the storage layer in a few lines, for `varve report` and `varve info`. */
#ifndef VARVE_ANALYSIS_QUERY_STORAGE_SUMMARY_H
#define VARVE_ANALYSIS_QUERY_STORAGE_SUMMARY_H

#include "analysis/query/callsite_query.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

/// Is there any in this database?
bool storage_is_there(struct database *database);
/// Rows of the view storage_total, largest first.
extern const struct query storage_totals;
struct cJSON *storage_totals_json(struct database *database);

/* Storages that look leaked, by call site and kind: rows of the view storage_leak_callsite, the worst first. */

struct varve_message;

struct storage_leak {
    struct callsite_row callsite; /* its id and location; no figures */
    int64_t pid, storages, bytes;
    double score;
    char *kind, *evidence; /* evidence: of the largest one */
};

struct storage_leaks {
    struct storage_leak *rows;
    size_t count;
    int64_t count_all;                 /* rows that a list without limit would have */
    int64_t storages, bytes;           /* of all of them */
    int64_t kept_storages, kept_bytes; /* alive at the end of the trace, and accused of nothing */
    int64_t recorded;                  /* storages, views not counted */
};

/// Of one process, or of all (pid 0). Errors: VARVE_ERROR_NOT_FOUND (no such
/// process). Owner: the caller, by storage_leaks_free, after an error too.
int storage_leaks_load(struct storage_leaks *leaks, struct database *database, int64_t pid, int64_t top,
                       struct varve_message *message);
void storage_leaks_free(struct storage_leaks *leaks);
void storage_leaks_print(FILE *out, struct database *database, const struct storage_leaks *leaks, int64_t pid,
                         int64_t frames);
struct cJSON *storage_leaks_json(struct database *database, const struct storage_leaks *leaks, int64_t pid,
                                 int64_t frames);
void storage_leaks_csv(FILE *out, const struct storage_leaks *leaks);

#endif
