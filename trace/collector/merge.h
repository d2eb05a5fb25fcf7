/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the collector */
/*
 * Records of all rings into one order of time.
 */
#ifndef VARVE_TRACE_COLLECTOR_MERGE_H
#define VARVE_TRACE_COLLECTOR_MERGE_H

#include <stdint.h>

struct collector;
struct varve_message;

/// Take every record older than collector->watermark, oldest first.
int merge_run(struct collector *collector, uint64_t *moved_out, struct varve_message *message);

#endif
