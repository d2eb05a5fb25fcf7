/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What the hand-made tests of the allocator share: a rig is a sim device, an allocator on it, and all records
 * of its decisions. Records are compared as text, one line each with what matters about its kind, so that a
 * test shows a chain of decisions as a reader would tell it. Every step is followed by the walkers.
 *
 * Sizes in texts are in MiB ("20M") where they are whole ones.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_RIG_H
#define VARVE_TESTS_SUPPORT_ALLOC_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
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

static inline void rig_record(void *context, const struct varve_record *record)
{
    struct rig *rig = context;

    if (rig->count < RIG_RECORDS) {
        rig->records[rig->count] = *record;
    }
    rig->count++;
}

/* ---- life ---- */

static inline void rig_check(struct rig *rig)
{
    struct varve_message message = {""};

    if (varve_alloc_check(rig->alloc, &message) != VARVE_OK ||
        varve_sim_check(rig->device, &message) != VARVE_OK) {
        fail_msg("after record %zu: %s", rig->count, message.text);
    }
}

static inline void rig_open(struct rig *rig, const struct rig_options *options)
{
    struct varve_alloc_options alloc_options;
    struct varve_message message = {""};

    varve_alloc_options_init(&alloc_options);
    assert_int_equal(varve_sim_open(&options->sim, &rig->device, &message), VARVE_OK);
    if (options->config != NULL &&
        varve_alloc_config_parse(options->config, &alloc_options.config, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->recorder = (struct varve_alloc_recorder){.record = rig_record, .context = rig};
    alloc_options.device = rig->device;
    alloc_options.policy = options->policy;
    alloc_options.memory_limit = options->limit;
    alloc_options.recorder = &rig->recorder;
    alloc_options.config.research_after_release = options->has_research;
    if (varve_alloc_open(&alloc_options, &rig->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->mark = rig->count;
    rig_check(rig);
}

/* The allocator goes; the device must have got back all that it gave. */
static inline void rig_close(struct rig *rig)
{
    struct varve_message message = {""};

    rig_check(rig);
    assert_true(rig->count <= RIG_RECORDS);
    varve_alloc_close(rig->alloc);
    rig->alloc = NULL;
    assert_int_equal(varve_sim_used(rig->device), 0);
    if (varve_sim_check(rig->device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->device->ops->close(rig->device);
    rig->device = NULL;
}

/* Setup and teardown of each test: an assertion leaves a rig open. */
static inline int rig_setup(void **state)
{
    *state = calloc(2, sizeof(struct rig)); /* some tests need two */
    return *state == NULL;
}

static inline int rig_teardown(void **state)
{
    struct rig *rigs = *state;

    for (int i = 0; i < 2; i++) {
        if (rigs[i].alloc != NULL) {
            varve_alloc_close(rigs[i].alloc);
        }
        if (rigs[i].device != NULL) {
            rigs[i].device->ops->close(rigs[i].device);
        }
    }
    free(rigs);
    return 0;
}

/* ---- steps ---- */

static inline uint64_t take_on(struct rig *rig, uint64_t bytes, uint64_t stream)
{
    uint64_t addr = 0;

    rig->message.text[0] = '\0';
    if (varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &addr, &rig->message) != VARVE_OK) {
        fail_msg("%" PRIu64 " bytes: %s", bytes, rig->message.text);
    }
    assert_int_not_equal(addr, 0);
    rig_check(rig);
    return addr;
}

static inline uint64_t take(struct rig *rig, uint64_t bytes)
{
    return take_on(rig, bytes, 0);
}

/* The request fails; the reason is in rig->message. */
static inline void refused_on(struct rig *rig, uint64_t bytes, uint64_t stream, int error)
{
    uint64_t addr = 1;

    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &addr, &rig->message),
                     error);
    assert_int_equal(addr, 0);
    assert_string_not_equal(rig->message.text, "");
    rig_check(rig);
}

static inline void refused(struct rig *rig, uint64_t bytes, int error)
{
    refused_on(rig, bytes, 0, error);
}

static inline void give(struct rig *rig, uint64_t addr)
{
    if (varve_alloc_raw_delete(rig->alloc, addr, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

static inline void use_on(struct rig *rig, uint64_t addr, uint64_t stream)
{
    if (varve_alloc_record_stream(rig->alloc, addr, stream, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

static inline void empty_cache(struct rig *rig)
{
    assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_OK);
    rig_check(rig);
}

static inline struct varve_alloc_stats stats_of(struct rig *rig)
{
    struct varve_alloc_stats stats;

    assert_int_equal(varve_alloc_get_device_stats(rig->alloc, &stats), VARVE_OK);
    return stats;
}

static inline uint64_t calls_of(const struct rig *rig, enum varve_device_call call)
{
    return varve_sim_calls(rig->device, call);
}

/* ---- records as text ---- */

static inline const char *cause_name(unsigned cause)
{
    switch (cause) {
#define RIG_CAUSE(code, NAME, text) \
    case code:                      \
        return text;
        VARVE_CAUSE_LIST(RIG_CAUSE)
#undef RIG_CAUSE
    default:
        return "?";
    }
}

static inline const char *kind_name(unsigned kind)
{
    switch (kind) {
#define RIG_KIND(code, NAME, name, group, addr, size, requested, arg, meaning) \
    case code:                                                                 \
        return #name;
        VARVE_EVENT_LIST(RIG_KIND)
#undef RIG_KIND
    default:
        return "?";
    }
}

static inline int put_size(char *text, size_t room, const char *before, uint64_t bytes)
{
    return bytes % MIB == 0 ? snprintf(text, room, "%s%" PRIu64 "M", before, bytes / MIB)
                            : snprintf(text, room, "%s%" PRIu64, before, bytes);
}

static inline size_t put_record(char *text, size_t room, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);
    size_t at = (size_t)snprintf(text, room, "%s", kind_name(kind));

    if (record->cause != VARVE_CAUSE_NONE) {
        at += (size_t)snprintf(text + at, room - at, " %s", cause_name(record->cause));
    }
    at += (size_t)put_size(text + at, room - at, " ", record->size);
    if (kind == VARVE_KIND_OOM_RETRY) {
        at += (size_t)put_size(text + at, room - at, " freed ", record->requested);
        at += (size_t)snprintf(text + at, room - at, "%s", record->arg ? " served" : "");
    } else if (kind == VARVE_KIND_MERGE) {
        at += (size_t)put_size(text + at, room - at, " absorbed ", record->requested);
    } else if (kind == VARVE_KIND_SPLIT) {
        at += (size_t)put_size(text + at, room - at, " left ", record->requested);
    } else if (kind == VARVE_KIND_EMPTY_CACHE) {
        at += (size_t)snprintf(text + at, room - at, " segments %" PRIu64, record->arg);
    }
    at += (size_t)snprintf(text + at, room - at, "\n");
    return at;
}

/* All records since the last look, one line each. */
static inline void expect(struct rig *rig, const char *expected)
{
    char text[RIG_TEXT] = "";
    size_t at = 0;

    assert_true(rig->count <= RIG_RECORDS);
    for (; rig->mark < rig->count && at < RIG_TEXT - 256; rig->mark++) {
        at += put_record(text + at, RIG_TEXT - at, &rig->records[rig->mark]);
    }
    assert_string_equal(text, expected);
}

static inline void forget(struct rig *rig)
{
    rig->mark = rig->count;
}

/* The n-th record of a kind since the last look, counted from 0. */
static inline const struct varve_record *nth_record(const struct rig *rig, enum varve_kind kind, size_t n)
{
    for (size_t i = rig->mark; i < rig->count; i++) {
        if (varve_record_kind(&rig->records[i]) == (unsigned)kind && n-- == 0) {
            return &rig->records[i];
        }
    }
    fail_msg("there is no such record of kind %s", kind_name(kind));
    return NULL;
}

/* ---- snapshots as text ---- */

/* Everything that a snapshot tells but the numbers of segments and allocations. Owner: the caller, by free.
 */
static inline char *layout_of(struct rig *rig)
{
    static const char states[] = "-ap";
    struct varve_alloc_snapshot snapshot;
    size_t room, at = 0;
    char *text;

    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    room = 256 * (snapshot.segment_count + snapshot.block_count + 1);
    text = calloc(1, room);
    assert_non_null(text);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];
        at += (size_t)snprintf(text + at, room - at,
                               "%#" PRIx64 " %" PRIu64 " stream %" PRIu64 " pool %" PRIu64 ",%" PRIu64
                               "%s%s active %" PRIu64 " requested %" PRIu64 "\n",
                               segment->addr, segment->bytes, segment->stream, segment->pool.capture,
                               segment->pool.user, segment->is_small ? " small" : " large",
                               segment->is_expandable ? " expandable" : "", segment->active_bytes,
                               segment->requested_bytes);
        for (size_t k = 0; k < segment->block_count; k++) {
            const struct varve_block_info *block = &snapshot.blocks[segment->first_block + k];
            at += (size_t)snprintf(text + at, room - at, "  %#" PRIx64 " %" PRIu64 " of %" PRIu64 " %c\n",
                                   block->addr, block->bytes, block->requested, states[block->state]);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return text;
}

/* Blocks of the segment that begins at `addr`, as "a10M -10M": allocated, free (-), pending (p). */
static inline void expect_segment(struct rig *rig, uint64_t addr, const char *expected)
{
    static const char *const states[] = {" -", " a", " p"};
    struct varve_alloc_snapshot snapshot;
    char text[RIG_TEXT] = "";
    size_t at = 0;

    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];
        for (size_t k = 0; segment->addr == addr && k < segment->block_count && at < RIG_TEXT - 64; k++) {
            const struct varve_block_info *block = &snapshot.blocks[segment->first_block + k];
            at += (size_t)put_size(text + at, RIG_TEXT - at, states[block->state], block->bytes);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    assert_string_equal(text[0] ? text + 1 : text, expected);
}

#endif
