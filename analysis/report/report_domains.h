/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of `varve report` on what was allocated: functions as report_section.h tells. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_DOMAINS_H
#define VARVE_ANALYSIS_REPORT_REPORT_DOMAINS_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;
struct database;
struct report_options;
struct report_section;

/// Are there several?
bool report_has_processes(struct database *database);
/// Lines in the heap and in Python's memory?
bool report_has_together(struct database *database);
void report_total_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options);
struct cJSON *report_total_json(struct database *database, const struct report_options *options);
void report_processes_text(FILE *out, struct database *database, const struct report_section *section,
                           const struct report_options *options);
void report_domains_text(FILE *out, struct database *database, const struct report_section *section,
                         const struct report_options *options);
struct cJSON *report_domains_json(struct database *database, const struct report_options *options);

#endif
