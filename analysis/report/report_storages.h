/* SPDX-License-Identifier: Apache-2.0 */
/* The chapter of `varve report` on storages. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_STORAGES_H
#define VARVE_ANALYSIS_REPORT_REPORT_STORAGES_H

#include <stdio.h>

struct cJSON;
struct database;
struct report_options;
struct report_section;

/* Functions of the section: see report_section.h. */

void report_storages_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options);
struct cJSON *report_storages_json(struct database *database, const struct report_options *options);

#endif
