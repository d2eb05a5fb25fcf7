/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chapter of `varve report` on storages.
 */
#ifndef VARVE_ANALYSIS_QUERY_REPORT_STORAGES_H
#define VARVE_ANALYSIS_QUERY_REPORT_STORAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;
struct database;

/// Nothing where there are no storages. `top`: leaks shown. Without `is_all` the largest totals only.
void report_storages_text(FILE *out, struct database *database, int64_t top, bool is_all);
/// NULL where there are none.
struct cJSON *report_storages_json(struct database *database, int64_t top, int64_t frames);

#ifdef __cplusplus
}
#endif

#endif
