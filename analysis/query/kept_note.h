/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording did not keep on purpose (varve record --keep, --max-size), in words. Reports begin with it; what
 * needs events that are not there is refused with it. And that a history had no times.
 */
#ifndef VARVE_ANALYSIS_QUERY_KEPT_NOTE_H
#define VARVE_ANALYSIS_QUERY_KEPT_NOTE_H

#include <stdbool.h>
#include <stdio.h>

struct cJSON;
struct database;
struct varve_message;

/// Every event has a row.
bool report_keeps_events(struct database *database);
/// Of allocations, only those that were never freed have a row.
bool report_keeps_only_live(struct database *database);
/// A sentence without its full stop; "" if everything was kept.
void report_kept_words(char *text, size_t bytes, struct database *database);
/// `keep`, and where they apply `kept_events` and `callsites_joined`.
void report_kept_json(struct cJSON *object, struct database *database);
/// It is of a history without times, for which the order of its events stands; then a line that says so.
bool report_has_no_times(struct database *database);
void report_times_print(FILE *out, struct database *database);
void report_times_json(struct cJSON *object, struct database *database); /* `times`: "order" then, else nothing */
/// For what can't be worked out without all events. VARVE_ERROR_UNSUPPORTED, with the reason.
int report_require_events(struct database *database, struct varve_message *message);

#endif
