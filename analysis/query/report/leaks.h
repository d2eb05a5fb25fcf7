/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `varve leaks` as a table of the report and its page. */
#ifndef VARVE_ANALYSIS_QUERY_REPORT_LEAKS_H
#define VARVE_ANALYSIS_QUERY_REPORT_LEAKS_H

#include <stdbool.h>

struct database;

/// Makes the temporary table leak_list of the first lines, once for a database. False: there are none.
bool report_leaks_make(struct database *database);

#endif
