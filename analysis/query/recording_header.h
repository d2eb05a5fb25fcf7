/* SPDX-License-Identifier: Apache-2.0 */
/* What was recorded: path, program, host, time, extent and health. report and info begin with it. */
#ifndef VARVE_ANALYSIS_QUERY_RECORDING_HEADER_H
#define VARVE_ANALYSIS_QUERY_RECORDING_HEADER_H

#include <stdio.h>

struct cJSON;
struct database;
struct report_loss;

/// Path, program, duration and extent of the recording.
void report_header_print(FILE *out, struct database *database, const struct report_loss *loss);
void report_header_json(struct cJSON *object, struct database *database, const struct report_loss *loss);

#endif
