/* SPDX-License-Identifier: Apache-2.0 */
/* The section of `varve report` about CUPTI, and its member in the JSON. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_CUPTI_H
#define VARVE_ANALYSIS_REPORT_REPORT_CUPTI_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;
struct database;
struct report_options;
struct report_section;

/// Did CUPTI record allocations beside the CUDA recorder?
bool report_cupti_is_checked(struct database *database);
/// Do both have the same ones?
bool report_cupti_agrees(struct database *database);
void report_cupti_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options);
struct cJSON *report_cupti_json(struct database *database, const struct report_options *options);

#endif
