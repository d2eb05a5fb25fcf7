/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for every log that was read, walked by tests and fuzzers. */
#ifndef VARVE_ANALYSIS_DTR_DTR_CHECK_H
#define VARVE_ANALYSIS_DTR_DTR_CHECK_H

#include "analysis/dtr/dtr_log.h"

/// Numbers are in range and follow each other, sums are right, and nothing is used that has no reference.
/// VARVE_ERROR_CORRUPT with the first thing that is wrong.
int dtr_log_check(const struct dtr_log *log, struct varve_message *message);

#endif
