/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a planner of rematerialization does, as records of a trace. Part of storage.h. Any thread, no errors; callers set `callsite`, and
 * `addr` and `device` where they know them.
 */
#ifndef VARVE_STORAGE_REMAT_RECORD_H
#define VARVE_STORAGE_REMAT_RECORD_H

#include "trace/trace.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_remat_event;

/// `name`: number of the name of the operator that the event is about, or that made its storage; 0: it has none.
void varve_remat_event_record(const struct varve_remat_event *event, uint16_t name,
                              struct varve_record *record_out);
/// What such a number means, from 1 on: before the first record that has it. Of longer names the first 32 bytes.
void varve_remat_name_record(uint16_t number, const char *name, struct varve_record *record_out);

#ifdef __cplusplus
}
#endif

#endif
