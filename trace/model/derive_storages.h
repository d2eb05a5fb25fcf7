/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the events of the storage layer: a row for each storage and view. */
#ifndef VARVE_TRACE_MODEL_DERIVE_STORAGES_H
#define VARVE_TRACE_MODEL_DERIVE_STORAGES_H

#include <stdbool.h>

struct derive;
struct derive_process;
struct derive_step;
struct event;
struct varve_message;

/// Take an event of that group, whose device is the trace's number already; the event stays as it is.
int derive_storage(const struct derive_step *step, struct varve_message *message);
/// It destroys what was not created yet, or is a view of that.
bool derive_storage_is_out_of_order(const struct derive_process *process, const struct event *event);
int derive_storages_check(const struct derive *derive, unsigned process_id, struct varve_message *message);

#endif
