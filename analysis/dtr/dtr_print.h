/* SPDX-License-Identifier: Apache-2.0 */
/* What `varve dtr` says of a log and of plays, for people and as JSON. */
#ifndef VARVE_ANALYSIS_DTR_DTR_PRINT_H
#define VARVE_ANALYSIS_DTR_DTR_PRINT_H

#include "analysis/dtr/dtr_describe.h"
#include "analysis/dtr/dtr_play.h"
#include "analysis/dtr/dtr_sweep.h"

#include <stdio.h>

/* What every answer is about; all borrowed. */
struct dtr_subject {
    const char *path;
    const struct dtr_log *log;
    const struct dtr_options *options; /* their budget: of a single play */
    struct dtr_description description;
    struct dtr_result baseline;
};

/// One play.
void dtr_print_play(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result);
void dtr_print_play_json(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result);
/// What the log is, and what it is below some budgets; `smallest`: that was found to work, NULL if none does.
void dtr_print_overview(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                        const struct dtr_point *smallest);
void dtr_print_overview_json(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                             const struct dtr_point *smallest);
void dtr_print_sweep(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep);
void dtr_print_sweep_json(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep);

#endif
