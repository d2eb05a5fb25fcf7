/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from the events in their order: which allocation a free gives up, what is live, what the peak was. The
 * collector calls derive_event for every event just before it stores it; store/derived_tables.h writes the result.
 */
#ifndef VARVE_TRACE_MODEL_DERIVE_H
#define VARVE_TRACE_MODEL_DERIVE_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct varve_message;

struct derive;

/// `scratch_path`: a file of the recording directory that holds one fixed-size row per allocation until the
/// end; created or emptied. Owner of the result: the caller, until derive_close.
int derive_open(const char *scratch_path, struct derive **derive_out, struct varve_message *message);

/// Take one event in order of seq; completes it: ids and sizes of frees, requested, causes `inherited` and
/// `unknown_address`, size and callsite of what a free refers to; of an allocator's event the row of its
/// allocation or segment as id; the number of the device in its process becomes the one of the trace
/// (DEVICE and STREAM events keep the former as id). After an error (VARVE_ERROR_FULL, NO_MEMORY) nothing has
/// changed: the same event may be tried again.
int derive_event(struct derive *derive, struct event *event, struct varve_message *message);

/// True if `event` allocates an address that is still live in its process, or frees one that is not: then the
/// free, or the allocation, that must have come before it is still to be read from another ring (the clocks
/// of two CPUs were read within ns of each other), and the merge should let other rings go first for a
/// moment. The same of physical memory of a device, which a handle names. Events of a caching allocator are
/// numbered (dev_seq): true if numbers before this one are missing.
bool derive_is_out_of_order(const struct derive *derive, const struct event *event);

/// A process image ended or was replaced: its live allocations stay recorded as leaks, its index entries go.
/// `forked_from`: a child inherits what its parent had; frees of that are marked `inherited`.
void derive_process_start(struct derive *derive, uint32_t process_id, uint32_t forked_from);
void derive_process_end(struct derive *derive, uint32_t process_id);

/// From here on nothing is kept of host memory that was freed but what it adds to the totals, no layouts, and no list
/// of events: memory and scratch file grow with what is live only. Ids are given anew.
void derive_forget(struct derive *derive);

/// Allocations seen so far.
uint64_t derive_allocations(const struct derive *derive);
/// Sizes of damaged records, larger than any block can be: these count as 0 bytes.
uint64_t derive_sizes_refused(const struct derive *derive);
/// Frees and resizes of addresses that no allocation was recorded of, but for those that a fork child has inherited.
uint64_t derive_frees_unknown(const struct derive *derive);
/// Events before the next one are missing: a fork child may free what it had allocated then, so that from here on frees
/// of unknown addresses in it count, and no longer as inherited; unmapped memory too.
void derive_past_is_lost(struct derive *derive);

void derive_close(struct derive *derive);

/// Walk everything and compare the sums; 0 or VARVE_ERROR_CORRUPT with the reason.
int derive_check(const struct derive *derive, struct varve_message *message);

#endif
