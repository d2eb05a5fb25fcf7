/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison of two traces event by event, as text and as JSON. Stacks and losses are read from the databases of
 * diff->traces: database_error says whether that went well.
 */
#ifndef VARVE_ANALYSIS_REPORT_DIFF_EVENTS_PRINT_H
#define VARVE_ANALYSIS_REPORT_DIFF_EVENTS_PRINT_H

#include <stdio.h>

struct diff;

void diff_events_text(FILE *out, const struct diff *diff);
void diff_events_json(FILE *out, const struct diff *diff);

#endif
