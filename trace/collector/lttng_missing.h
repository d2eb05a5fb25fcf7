/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many records of a recording its LTTng trace lacks. A program that is killed while it writes an event leaves
 * a sub-buffer that LTTng never delivers, and LTTng does not count that. The collector knows what each ring held;
 * what the trace holds is compared with it by ring and number. One thread calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_MISSING_H
#define VARVE_TRACE_COLLECTOR_LTTNG_MISSING_H

#include "base/error.h"
#include "trace/collect.h"

#include <stddef.h>
#include <stdint.h>

/* A ring of the recording: `records` with numbers up to `last`. */
struct lttng_ring {
    uint32_t process, ring;
    uint64_t records, last;
    uint64_t found; /* of these, in the trace */
};

/// Counts what the traces below `folder` lack of `rings`, which are sorted meanwhile. A record that the trace has
/// and the ring has not (a thread was killed between the two) makes up for none. Errors: those of `numbers`.
int lttng_missing_count(struct lttng_ring *rings, size_t count, const char *folder, varve_collect_numbers *numbers,
                        uint64_t *missing_out, struct varve_message *message);

#endif
