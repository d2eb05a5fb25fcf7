/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that have inherited the hooks of an attached one. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_HOOKED_PROCESSES_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_HOOKED_PROCESSES_H

#include <stdint.h>

/// Calls `take` for each process that has this recording mapped and was started at `since_ticks` (proc_file_started) or
/// later: of whatever user and namespace it is, and whether or not it has recorded anything. Reads all of /proc.
void hooked_each(uint64_t trace_id, uint64_t since_ticks, void (*take)(void *context, int32_t pid), void *context);

#endif
