/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what happens the database keeps (enum varve_keep). */
#ifndef VARVE_TRACE_COLLECTOR_KEEP_POLICY_H
#define VARVE_TRACE_COLLECTOR_KEEP_POLICY_H

#include "trace/collect.h"
#include "base/error.h"

#include <stdint.h>

struct collector;
struct varve_message;

/// Before the program starts: what collector->keep and bytes_max say, into the database and in force.
int collect_keep_begin(struct collector *collector);
/// With every commit.
int collect_keep_commit(struct collector *collector);
/// After a commit: is the database as large as it may be?
int collect_keep_check(struct collector *collector);
/// After the last event, before the totals are written: where only totals are kept, small call sites are put together.
int collect_keep_join(struct collector *collector, varve_collect_progress progress, void *context,
                      struct varve_message *message);
/// A recording is continued whose stored events have been derived again: the same is in force, and what nobody knows is
/// counted.
int collect_keep_resume(struct collector *collector, struct varve_message *message);

#endif
