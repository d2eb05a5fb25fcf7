/* SPDX-License-Identifier: Apache-2.0 */
/* The chapter of `varve report` on rematerialization. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_REMAT_H
#define VARVE_ANALYSIS_REPORT_REPORT_REMAT_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;
struct database;
struct report_options;
struct report_section;

#define REPORT_REMAT_NO_NAME "(no name)"

/// Did a planner run?
bool report_has_remat(struct database *database);

/* Functions of the section: see report_section.h. */

void report_remat_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options);
struct cJSON *report_remat_json(struct database *database, const struct report_options *options);

#endif
