/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `varve leaks` as a table of the report and its page. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_LEAKS_H
#define VARVE_ANALYSIS_REPORT_REPORT_LEAKS_H

#include <stdbool.h>

struct database;
struct leak_list;

/// The first lines. Owner: the caller, until report_leaks_put.
struct leak_list *report_leaks_load(struct database *database);
/// Makes the temporary table leak_list of them, which may come from another connection.
void report_leaks_put(struct database *database, struct leak_list *list);
/// Both, unless there is such a table. False: there are no lines.
bool report_leaks_make(struct database *database);

#endif
