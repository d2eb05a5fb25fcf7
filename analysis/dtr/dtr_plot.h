/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep as a drawing: overhead against budget, with bands where no budget works. SVG is written here, for light and
 * dark pages; PNG is made of it by rsvg-convert.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_PLOT_H
#define VARVE_ANALYSIS_DTR_DTR_PLOT_H

#include "analysis/dtr/dtr_print.h"

/// Can there be a drawing of that name? Errors: VARVE_ERROR_INVALID (neither .svg nor .png), NOT_FOUND (no
/// rsvg-convert for a .png).
int dtr_plot_check(const char *path, struct varve_message *message);
/// Errors: as of output_file.
int dtr_plot_write(const char *path, bool may_replace, const struct dtr_subject *subject, const struct dtr_sweep *sweep,
                   struct varve_message *message);

#endif
