/* SPDX-License-Identifier: Apache-2.0 */
/* `varve report`: the whole answer as text and as JSON. Loading ends early on a database error: see database_error. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_H
#define VARVE_ANALYSIS_REPORT_REPORT_H

#include "analysis/query/callsite_query.h"

#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

#define REPORT_ENTRIES_ALL 10 /* of a list with --all */

struct report_options {
    int64_t top; /* entries of a list; < 0: as suits the report */
    enum group_by by;
    struct callsite_options stacks; /* is_all: every ranking and every section, whole */
};

void report_text(FILE *out, struct database *database, const struct report_options *options);
struct cJSON *report_json(struct database *database, const struct report_options *options);

#endif
