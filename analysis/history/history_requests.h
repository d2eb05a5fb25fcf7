/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace database without a caching allocator's decisions as a history all the same: of the requests that a program
 * made to something else, so that other policies can be tried on them. history_database.c asks.
 *
 * That is the case where `meta.history.requests` names the domain whose allocations are the requests (imports of other
 * tools' logs), and where there are no events of allocators, but allocations of device memory: what a program
 * asked of the driver.
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_REQUESTS_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_REQUESTS_H

#include <stdbool.h>

struct database;
struct history;
struct history_stacks;
struct progress;
struct varve_message;

bool history_is_of_requests(struct database *database);
/// Into a history without events. Errors: VARVE_ERROR_UNSUPPORTED (of several processes), those of the
/// database come later.
int history_read_requests(struct database *database, struct history *history, struct history_stacks *stacks,
                          struct progress *progress, struct varve_message *message);

#endif
