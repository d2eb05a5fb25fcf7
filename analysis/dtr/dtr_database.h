/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One play as a trace database, by the same tables as a recording of a live planner: operators, evictions with scores
 * and causes, recomputations, what was pinned; in allocator mode the allocator's own events, too. Times are the
 * planner's clock.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_DATABASE_H
#define VARVE_ANALYSIS_DTR_DTR_DATABASE_H

#include "analysis/dtr/dtr_play.h"

/// Play with `options`, whose events and records go to a database at `path`, and nowhere else; the time that takes is
/// in the result's. Nothing appears at `path` unless all went well; a play that runs out of memory is well. Errors: as
/// of dtr_play and of varve_writer_open.
int dtr_database_write(const char *path, bool may_replace, const char *source, const struct dtr_log *log,
                       const struct dtr_options *options, struct dtr_result *result_out, struct varve_message *message);

#endif
