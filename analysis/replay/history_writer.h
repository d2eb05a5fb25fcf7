/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a replay, and what import makes of a history, as a trace database: all of them, also the splits
 * and merges that the history does not have, at the times and with the call sites of its events. Called by
 * replay_compare.c with each record, by analysis/import, and by the command.
 */
#ifndef VARVE_ANALYSIS_REPLAY_HISTORY_WRITER_H
#define VARVE_ANALYSIS_REPLAY_HISTORY_WRITER_H

#include "analysis/history/history.h"
#include "analysis/replay/replay.h"

#include <stdint.h>

struct history_writer;
struct varve_writer;

/// `database` and `history` are borrowed and must outlive it. Owner: the caller, by history_writer_free.
struct history_writer *history_writer_new(struct varve_writer *database, const struct history *history);
void history_writer_free(struct history_writer *writer);
/// Time of the history's first event, in its own clock.
int64_t history_writer_begin_us(const struct history_writer *writer);
/// All call sites of the history, by number of the stack; those that no event had are made now.
const uint32_t *history_writer_callsites(struct history_writer *writer);
/// Call sites of the history in the database, by number of the stack; made once.
uint32_t history_writer_callsite(struct history_writer *writer, uint32_t stack);
/// The same of what was there before the history of `device`, a block (`kind` ALLOC) or a segment; 0: it has been freed
/// since, so that nobody knows it.
uint32_t history_writer_start_callsite(struct history_writer *writer, const struct history_device *device,
                                       enum varve_kind kind, uint64_t addr);
/// No event has a time: the order stands for it, one microsecond an event, which the database says (meta
/// "history.times").
bool history_writer_has_no_times(const struct history_writer *writer);
/// ns of an event since the history's first one; never goes back.
int64_t history_writer_time(struct history_writer *writer, const struct history_event *event);
/// The records of plays go into the database, and what their numbers of pools and streams mean.
struct replay_output history_writer_output(struct history_writer *writer);

#endif
