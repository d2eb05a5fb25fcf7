/* SPDX-License-Identifier: Apache-2.0 */
/* `varve segments`: the segments and blocks of caching allocators after any event of a trace. */
#include "analysis/query/segment_query.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include "statements_generated.h"

#include <string.h>

struct values {
    const char *at;
    int64_t device, pid;
    int64_t top;
    bool all, blocks, json;
    bool map, no_map;
};

static const struct values defaults = {.device = -1, .top = 10};

static const struct option_spec options[] = {
    {"at", 0, OPTION_TEXT, "SEQ|TIME",
     "after this event: its number, a time since the trace began such as 1.5s, 20ms, 7us, 900ns, or peak: when "
     "most was reserved (default: the last event)",
     offsetof(struct values, at), 0, 0, NULL},
    {"device", 0, OPTION_INTEGER, "N", "of this device only (default: all)", offsetof(struct values, device), 0, 255,
     NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all)", offsetof(struct values, pid), 1,
     INT32_MAX, NULL},
    {"top", 'n', OPTION_INTEGER, "N", "empty segments, holes and segments in use that are listed (default 10)",
     offsetof(struct values, top), 1, 1000000000, NULL},
    {"all", 'a', OPTION_FLAG, NULL, "list all of them", offsetof(struct values, all), 0, 0, NULL},
    {"blocks", 0, OPTION_FLAG, NULL, "list the blocks of each segment in use, with the call site of each",
     offsetof(struct values, blocks), 0, 0, NULL},
    {"map", 0, OPTION_FLAG, NULL, "draw the blocks of each segment in use (the default)", offsetof(struct values, map),
     0, 0, NULL},
    {"no-map", 0, OPTION_FLAG, NULL, "no maps", offsetof(struct values, no_map), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object, with every block", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *command_segments_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->map && values->no_map ? "--map and --no-map are mutually exclusive"
           : values->map && values->json ? "--map and --json are mutually exclusive"
                                         : NULL;
}

/* When most was reserved, by the allocator that had most of those that are looked at. */
static int64_t peak_seq(struct database *database, const struct values *values)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_peak_of_ladders);
    cursor_bind_integer(&cursor, 1, values->device);
    cursor_bind_integer(&cursor, 2, values->pid);
    int64_t seq = 0;
    if (cursor_next(&cursor)) {
        seq = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return seq;
}

static int command_segments_answer(struct command_context *context, struct database *database,
                                   const void *values_untyped, struct varve_message *message)
{
    const struct values *values = values_untyped;
    struct segments_state state = {0};
    int64_t seq = 0;
    bool is_peak = values->at != NULL && strcmp(values->at, "peak") == 0;
    int error = segments_moment(database, is_peak ? NULL : values->at, &seq, message);
    seq = is_peak ? peak_seq(database, values) : seq;
    VARVE_THEN(error, segments_state_load(&state, database, seq, values->device, values->pid, message));
    if (error == VARVE_OK && values->json) {
        listing_json(context->out, database, &state);
    } else if (error == VARVE_OK) {
        listing_text(context->out, database, &state,
                     &(struct listing){.top = values->all ? INT64_MAX : values->top,
                                       .with_map = !values->no_map,
                                       .with_blocks = values->blocks});
    }
    segments_state_free(&state);
    return error;
}

const struct command command_segments = {
    .name = "segments",
    .arguments = "DB",
    .summary = "segments and blocks of a caching allocator at any event",
    .purpose =
        "Shows the memory that caching allocators had from the device after any event: totals first, then what "
        "is cached and unused, and why what is reserved serves no request; then, the largest first, empty "
        "segments, which could be given back, and holes, free ranges beside blocks in use, with the call sites "
        "of the blocks before and behind each; then the segments in use, those with most free memory first, with "
        "a map of their blocks, each character for what most of its bytes are. Pending blocks are freed but may "
        "still be used by other streams.",
    .examples = "  varve segments trace.db\n"
                "  varve segments --blocks --top 3 trace.db\n"
                "  varve segments --at peak trace.db\n"
                "  varve segments --at 1.5s --device 0 --json trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_segments_check,
    .answer = command_segments_answer,
};
