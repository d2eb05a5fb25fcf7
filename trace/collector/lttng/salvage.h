/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the collector */
/*
 * What a killed program leaves behind in LTTng's buffers can have holes: events that a preempted thread had
 * begun hide those that came after them on the same CPU, from LTTng's consumer and from lttng-crash alike. So
 * while a recording has a second sink the collector keeps a copy of every record that it takes from a ring,
 * packed, in a file of the recording directory; after a kill the numbers found in the trace are marked, and
 * what is not marked is told again. One thread calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_SALVAGE_H
#define VARVE_TRACE_COLLECTOR_LTTNG_SALVAGE_H

#include "trace/error.h"
#include "trace/record.h"
#include "trace/sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct salvage;

/// `path`: a new file, removed at once (it is open). Owner of the result: the caller, until salvage_close.
int salvage_open(const char *path, struct salvage **salvage_out, struct varve_message *message);
void salvage_close(struct salvage *salvage); /* NULL is allowed */

/// Keep a record of a ring; numbers of a ring grow. VARVE_ERROR_FULL, NO_MEMORY: from then on nothing is
/// kept, and salvage_each says so.
int salvage_keep(struct salvage *salvage, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                 const struct varve_record *record);

/// This number is in the trace; unknown ones are ignored.
int salvage_mark(struct salvage *salvage, uint32_t process, int32_t pid, uint32_t ring, uint64_t ring_seq);

/// Call `take` for every record that was kept and not marked, ring by ring, in the order of numbers; NULL:
/// just count them. Stops at the first error of `take`. VARVE_ERROR_FULL: not everything had been kept.
int salvage_each(struct salvage *salvage,
                 int (*take)(void *context, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                             const struct varve_record *record),
                 void *context, uint64_t *count_out, struct varve_message *message);

#endif
