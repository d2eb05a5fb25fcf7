/* SPDX-License-Identifier: Apache-2.0 */
/* What a check of limits has found: as text, as annotations of GitHub's workflows, as JSON and as JUnit's XML. */
#ifndef VARVE_ANALYSIS_REPORT_LIMIT_PRINT_H
#define VARVE_ANALYSIS_REPORT_LIMIT_PRINT_H

#include "analysis/report/limit_check.h"

#include <stdbool.h>
#include <stdio.h>

struct cJSON;

/// A line for each limit, of broken ones alone if `is_quiet`.
void limit_print_text(FILE *out, const struct limit_check *check, bool is_quiet);
/// The broken ones as ::error of a workflow, at their lines; files below the working directory are named from there.
void limit_print_github(FILE *out, const struct limit_check *check);
/// `path`: of the recording.
struct cJSON *limit_check_json(const struct limit_check *check, const char *path);

struct limit_report {
    const struct limit_check *check;
    const char *path;
};

/// A test case for each limit: an output_writer, of a struct limit_report.
int limit_print_junit(const void *report, FILE *out, struct varve_message *message);

#endif
