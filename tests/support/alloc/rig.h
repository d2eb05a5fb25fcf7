/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What the hand-made tests of the allocator share: a rig is a sim device, an allocator on it, and all records
 * of its decisions. Records are compared as text, one line each with what matters about its kind, so that a
 * test shows a chain of decisions as a reader would describe it. Every step is followed by the walkers.
 *
 * Sizes in texts are in MiB ("20M") where they are whole ones.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_RIG_H
#define VARVE_TESTS_SUPPORT_ALLOC_RIG_H

#include <cmocka.h>

#include "alloc/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define RIG_RECORDS 4096U
#define RIG_TEXT 8192U

struct rig_options {
    struct varve_sim_options sim;
    const char *config; /* PyTorch's syntax; NULL: defaults */
    const char *policy;
    uint64_t limit;
    bool has_research; /* search again after freed blocks came back */
};

struct rig {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record records[RIG_RECORDS];
    size_t count;
    size_t mark; /* records before it have been looked at */
    struct varve_message message;
};
void rig_record(void *context, const struct varve_record *record);

/* ---- life ---- */

void rig_check(struct rig *rig);
void rig_open(struct rig *rig, const struct rig_options *options);

/* The allocator goes; the device must have got back all that it gave. Of the last one by the teardown. */
void rig_close(struct rig *rig);

/* Setup and teardown of each test, which closes what is open, with all checks. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* ---- steps ---- */

uint64_t take_on(struct rig *rig, uint64_t bytes, uint64_t stream);
uint64_t take(struct rig *rig, uint64_t bytes);

/* The request fails; the reason is in rig->message. */
void refused_on(struct rig *rig, uint64_t bytes, uint64_t stream, int error);
void refused(struct rig *rig, uint64_t bytes, int error);
void give(struct rig *rig, uint64_t addr);
void use_on(struct rig *rig, uint64_t addr, uint64_t stream);
void empty_cache(struct rig *rig);
struct varve_alloc_stats stats_of(struct rig *rig);
uint64_t calls_of(const struct rig *rig, enum varve_device_call call);

/* ---- records as text ---- */

/* All records since the last look, one line each. */
void expect(struct rig *rig, const char *expected);
void forget(struct rig *rig);

/* The n-th record of a kind since the last look, counted from 0. */
const struct varve_record *nth_record(const struct rig *rig, enum varve_kind kind, size_t n);

/* ---- snapshots as text ---- */

/* Everything in a snapshot but the numbers of segments and allocations. Owner: the caller, by free.
 */
char *layout_of(struct rig *rig);

/* Blocks of the segment that begins at `addr`, as "a10M -10M": allocated, free (-), pending (p). */
void expect_segment(struct rig *rig, uint64_t addr, const char *expected);

#endif
