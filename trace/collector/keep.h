/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the collector */
/*
 * How much of what happens the database keeps (enum varve_keep).
 */
#ifndef VARVE_TRACE_COLLECTOR_KEEP_H
#define VARVE_TRACE_COLLECTOR_KEEP_H

#include <stdint.h>

struct collector;
struct varve_message;

/// Before the program starts: what collector->keep and bytes_max say, into the database and in force.
int collect_keep_begin(struct collector *collector);
/// With every commit.
int collect_keep_commit(struct collector *collector);
/// After a commit: is the database as large as it may be?
int collect_keep_check(struct collector *collector);
/// A recording is continued whose stored events have been derived again: the same is in force, and what nobody knows is
/// counted.
int collect_keep_resume(struct collector *collector, struct varve_message *message);

#endif
