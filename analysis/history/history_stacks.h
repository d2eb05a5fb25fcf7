/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites of a trace database as stacks of a history, each when it is first asked for: a database may have many more
 * of them than its allocators' events name. It owns the nodes in memory. history_database.c asks.
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_STACKS_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_STACKS_H

#include <stdint.h>

struct database;
struct history;
struct history_stacks;
struct varve_message;

/// Both must outlive it. Errors of the database: database_error. Owner: the caller, by history_stacks_free.
struct history_stacks *history_stacks_new(struct database *database, struct history *history);
/// The stack of a call site; 0, the empty one, if there is none.
uint32_t history_stacks_of(struct history_stacks *stacks, uint64_t callsite);
/// VARVE_ERROR_UNSUPPORTED: the stacks asked for were too many to be kept, and some came out empty.
int history_stacks_error(const struct history_stacks *stacks, struct varve_message *message);
void history_stacks_free(struct history_stacks *stacks);

#endif
