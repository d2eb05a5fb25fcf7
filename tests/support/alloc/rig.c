/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "support/alloc/rig.h"

void rig_record(void *context, const struct varve_record *record)
{
    struct rig *rig = context;

    if (rig->count < RIG_RECORDS) {
        rig->records[rig->count] = *record;
    }
    rig->count++;
}

/* ---- life ---- */

void rig_check(struct rig *rig)
{
    struct varve_message message = {""};

    if (varve_alloc_check(rig->alloc, &message) != VARVE_OK || varve_sim_check(rig->device, &message) != VARVE_OK) {
        fail_msg("after record %zu: %s", rig->count, message.text);
    }
}

void rig_open(struct rig *rig, const struct rig_options *options)
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

void rig_close(struct rig *rig)
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

int rig_setup(void **state)
{
    *state = calloc(2, sizeof(struct rig)); /* some tests need two */
    return *state == NULL;
}

int rig_teardown(void **state)
{
    struct rig *rigs = *state;

    for (int i = 0; i < 2; i++) {
        if (rigs[i].alloc != NULL) {
            rig_close(&rigs[i]);
        } else if (rigs[i].device != NULL) {
            rigs[i].device->ops->close(rigs[i].device);
        }
    }
    free(rigs);
    return 0;
}

/* ---- steps ---- */

uint64_t take_on(struct rig *rig, uint64_t bytes, uint64_t stream)
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

uint64_t take(struct rig *rig, uint64_t bytes)
{
    return take_on(rig, bytes, 0);
}

void refused_on(struct rig *rig, uint64_t bytes, uint64_t stream, int error)
{
    uint64_t addr = 1;

    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &addr, &rig->message), error);
    assert_int_equal(addr, 0);
    assert_string_not_equal(rig->message.text, "");
    rig_check(rig);
}

void refused(struct rig *rig, uint64_t bytes, int error)
{
    refused_on(rig, bytes, 0, error);
}

void give(struct rig *rig, uint64_t addr)
{
    if (varve_alloc_raw_delete(rig->alloc, addr, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

void use_on(struct rig *rig, uint64_t addr, uint64_t stream)
{
    if (varve_alloc_record_stream(rig->alloc, addr, stream, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

void empty_cache(struct rig *rig)
{
    assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_OK);
    rig_check(rig);
}

struct varve_alloc_stats stats_of(struct rig *rig)
{
    struct varve_alloc_stats stats;

    assert_int_equal(varve_alloc_get_device_stats(rig->alloc, &stats), VARVE_OK);
    return stats;
}

uint64_t calls_of(const struct rig *rig, enum varve_device_call call)
{
    return varve_sim_calls(rig->device, call);
}

/* ---- records as text ---- */

static const char *cause_name(unsigned cause)
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

static const char *kind_name(unsigned kind)
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

static int put_size(char *text, size_t room, const char *before, uint64_t bytes)
{
    return bytes % MIB == 0 ? snprintf(text, room, "%s%" PRIu64 "M", before, bytes / MIB)
                            : snprintf(text, room, "%s%" PRIu64, before, bytes);
}

static size_t put_record(char *text, size_t room, const struct varve_record *record)
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

void expect(struct rig *rig, const char *expected)
{
    char text[RIG_TEXT] = "";
    size_t at = 0;

    assert_true(rig->count <= RIG_RECORDS);
    for (; rig->mark < rig->count && at < RIG_TEXT - 256; rig->mark++) {
        at += put_record(text + at, RIG_TEXT - at, &rig->records[rig->mark]);
    }
    assert_string_equal(text, expected);
}

void forget(struct rig *rig)
{
    rig->mark = rig->count;
}

const struct varve_record *nth_record(const struct rig *rig, enum varve_kind kind, size_t n)
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

char *layout_of(struct rig *rig)
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
        at +=
            (size_t)snprintf(text + at, room - at,
                             "%#" PRIx64 " %" PRIu64 " stream %" PRIu64 " pool %" PRIu64 ",%" PRIu64
                             "%s%s active %" PRIu64 " requested %" PRIu64 "\n",
                             segment->addr, segment->bytes, segment->stream, segment->pool.capture, segment->pool.user,
                             segment->is_small ? " small" : " large", segment->is_expandable ? " expandable" : "",
                             segment->active_bytes, segment->requested_bytes);
        for (size_t k = 0; k < segment->block_count; k++) {
            const struct varve_block_info *block = &snapshot.blocks[segment->first_block + k];
            at += (size_t)snprintf(text + at, room - at, "  %#" PRIx64 " %" PRIu64 " of %" PRIu64 " %c\n", block->addr,
                                   block->bytes, block->requested, states[block->state]);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return text;
}

void expect_segment(struct rig *rig, uint64_t addr, const char *expected)
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
