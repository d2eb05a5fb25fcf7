/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments and blocks that a replay ends with, against those that the history ends with: addresses,
 * sizes, states, and what was requested. Free blocks keep the request of an earlier life, which depends on
 * which of two merged neighbours survived; they are compared, too, unless the history began late. Called by
 * replay.c.
 */
#include "analysis/replay/replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static bool differ(struct replay_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool differ(struct replay_result *result, const char *format, ...)
{
    va_list arguments;

    if (result->difference[0] == '\0') {
        va_start(arguments, format);
        vsnprintf(result->difference, sizeof(result->difference), format, arguments);
        va_end(arguments);
    }
    return false;
}

static const char *state_text(unsigned state)
{
    static const char *const texts[] = {
        [HISTORY_INACTIVE] = "inactive",
        [HISTORY_ACTIVE_ALLOCATED] = "active_allocated",
        [HISTORY_ACTIVE_PENDING_FREE] = "active_pending_free",
    };

    return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : "unknown";
}

static unsigned state_of(enum varve_block_state state)
{
    switch (state) {
    case VARVE_BLOCK_ACTIVE_ALLOCATED:
        return HISTORY_ACTIVE_ALLOCATED;
    case VARVE_BLOCK_ACTIVE_PENDING_FREE:
        return HISTORY_ACTIVE_PENDING_FREE;
    default:
        return HISTORY_INACTIVE;
    }
}

static bool equal_block(const struct replay *replay, const struct history_block *want,
                        const struct varve_block_info *got, struct replay_result *result)
{
    bool is_free = want->state == HISTORY_INACTIVE;
    bool compares_request = !is_free || replay->start.segment_count == 0;

    if (want->addr == got->addr && want->size == got->bytes && want->state == state_of(got->state) &&
        (!compares_request || want->requested == got->requested)) {
        return true;
    }
    return differ(result,
                  "block 0x%" PRIx64 ", %" PRIu64 " bytes (%" PRIu64
                  " requested), %s; the replay has 0x%" PRIx64 ", %" PRIu64 " bytes (%" PRIu64
                  " requested), %s",
                  want->addr, want->size, want->requested, state_text(want->state), got->addr, got->bytes,
                  got->requested, state_text(state_of(got->state)));
}

static bool equal_segment(const struct replay *replay, const struct history_segment *want,
                          const struct varve_segment_info *got, const struct varve_alloc_snapshot *snapshot,
                          struct replay_result *result)
{
    if (want->addr != got->addr || want->size != got->bytes ||
        replay->history->streams[want->stream] != got->stream || want->is_small != got->is_small ||
        want->is_expandable != got->is_expandable) {
        return differ(result,
                      "segment 0x%" PRIx64 ", %" PRIu64 " bytes; the replay has 0x%" PRIx64 ", %" PRIu64
                      " bytes there, or another stream or kind",
                      want->addr, want->size, got->addr, got->bytes);
    }
    if (want->block_count != got->block_count) {
        return differ(result, "segment 0x%" PRIx64 ": %zu blocks; the replay has %zu", want->addr,
                      want->block_count, got->block_count);
    }
    for (size_t i = 0; i < want->block_count; i++) {
        if (!equal_block(replay, &replay->trace->blocks[want->first_block + i],
                         &snapshot->blocks[got->first_block + i], result)) {
            return false;
        }
    }
    return true;
}

int replay_final(struct replay *replay, struct replay_result *result)
{
    const struct history_device *trace = replay->trace;
    struct varve_alloc_snapshot snapshot;
    bool is_equal = true;
    int error = varve_alloc_snapshot(replay->alloc, &snapshot);

    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; i < trace->segment_count && i < snapshot.segment_count && is_equal; i++) {
        is_equal = equal_segment(replay, &trace->segments[i], &snapshot.segments[i], &snapshot, result);
    }
    if (is_equal && trace->segment_count != snapshot.segment_count) {
        is_equal =
            differ(result, "%zu segments; the replay has %zu", trace->segment_count, snapshot.segment_count);
    }
    result->segments_equal &= is_equal;
    varve_alloc_snapshot_free(&snapshot);
    return VARVE_OK;
}
