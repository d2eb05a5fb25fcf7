/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve segments`: the segments and blocks of caching allocators after any event of a trace.
 */
#include "analysis/query/segments.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

struct values {
    const char *at;
    int64_t device, pid;
    bool json;
    bool map, no_map;
};

static const struct values defaults = {.device = -1};

static const struct option_spec options[] = {
    {"at", 0, OPTION_TEXT, "SEQ|TIME",
     "after this event: its number, or a time since the trace began such as 1.5s, 20ms, 7us, 900ns (default: "
     "the last event)",
     offsetof(struct values, at), 0, 0, NULL},
    {"device", 0, OPTION_INTEGER, "N", "of this device only (default: all)", offsetof(struct values, device),
     0, 255, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all)", offsetof(struct values, pid),
     1, INT32_MAX, NULL},
    {"map", 0, OPTION_FLAG, NULL, "draw the blocks of each segment (the default)",
     offsetof(struct values, map), 0, 0, NULL},
    {"no-map", 0, OPTION_FLAG, NULL, "a line for each segment and nothing else",
     offsetof(struct values, no_map), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object, with every block", offsetof(struct values, json), 0, 0,
     NULL},
    {.kind = OPTION_END},
};

static const char *check(const void *values_untyped)
{
    const struct values *values = values_untyped;

    return values->map && values->no_map ? "--map and --no-map are mutually exclusive"
           : values->map && values->json ? "--map and --json are mutually exclusive"
                                         : NULL;
}

static int answer(struct command_context *context, struct database *database, const void *values_untyped,
                  struct varve_message *message)
{
    const struct values *values = values_untyped;
    struct segments_state state = {0};
    int64_t seq = 0;
    int error = segments_moment(database, values->at, &seq, message);

    if (error == VARVE_OK) {
        error = segments_state_load(&state, database, seq, values->device, values->pid, message);
    }
    if (error == VARVE_OK && values->json) {
        segments_print_json(context->out, database, &state);
    } else if (error == VARVE_OK) {
        segments_print_text(context->out, database, &state, !values->no_map);
    }
    segments_state_free(&state);
    return error;
}

const struct command command_segments = {
    .name = "segments",
    .arguments = "DB",
    .summary = "segments and blocks of a caching allocator at any event",
    .purpose = "Shows the memory that caching allocators had from the device after any event: each segment "
               "with what of it was used, freed but still waited for by other streams (pending) and free, "
               "and a map of its blocks, each character for what most of its bytes are.",
    .examples = "  varve segments trace.db\n"
                "  varve segments --at 1.5s --device 0 --json trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = check,
    .answer = answer,
};
