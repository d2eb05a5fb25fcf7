/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chapter of `varve report` on rematerialization.
 */
#ifndef VARVE_ANALYSIS_QUERY_REPORT_REMAT_H
#define VARVE_ANALYSIS_QUERY_REPORT_REMAT_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;
struct database;

/// Nothing where no planner ran. Without `is_all` no tables of operators and storages.
void report_remat_text(FILE *out, struct database *database, bool is_all);
/// NULL where none did.
struct cJSON *report_remat_json(struct database *database);

#ifdef __cplusplus
}
#endif

#endif
