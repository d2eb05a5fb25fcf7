/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve oom`: the requests that a caching allocator could not serve, explained. The history of a snapshot, and of a
 * database that was imported from one, is followed: only its decisions say sizes of blocks and stages.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/oom_print.h"
#include "analysis/cli/options.h"
#include "analysis/history/history_read.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/hidden_lines.h"
#include "trace/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct values {
    int64_t device, top, memory_limit;
    bool all, no_replay, json;
};

static const struct values defaults = {.device = -1, .top = 1};

static const struct option_spec options[] = {
    {"device", 0, OPTION_INTEGER, "N", "of this device only (default: all)", offsetof(struct values, device), 0, 255,
     NULL},
    {"top", 'n', OPTION_INTEGER, "N", "requests that are explained, from the first one on (default 1)",
     offsetof(struct values, top), 1, 1000000000, NULL},
    {"all", 'a', OPTION_FLAG, NULL, "explain all of them", offsetof(struct values, all), 0, 0, NULL},
    {"memory-limit", 'm', OPTION_BYTES, "BYTES",
     "what could be reserved when it was recorded (default: worked out from the trace)",
     offsetof(struct values, memory_limit), 1, INT64_MAX, NULL},
    {"no-replay", 0, OPTION_FLAG, NULL, "only what the trace itself says", offsetof(struct values, no_replay), 0, 0,
     NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

struct source {
    const struct values *values;
    const char *path;
    struct history *history;
    struct database *database;     /* what was given; NULL: a snapshot */
    struct varve_plumbing *hidden; /* patterns of the user's own; NULL: none */
    struct progress progress;
};

/* Of a database that a replay wrote. */
static char *replayed_with(struct database *database, const char *key)
{
    return database != NULL ? database_meta(database, key) : NULL;
}

static uint64_t command_oom_limit_of(const struct source *source, struct database *database)
{
    char *text = source->values->memory_limit == 0 ? replayed_with(database, "replay.memory_limit") : NULL;
    uint64_t limit = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)source->values->memory_limit;
    free(text);
    return limit;
}

/* Replays need a history; without one there is still what the database says. */
static void open_explain(struct source *source, struct oom_scene *scene, char *policy)
{
    struct explain_options explain = {
        .policy = policy, .memory_limit = command_oom_limit_of(source, scene->database), .progress = &source->progress};
    struct varve_message message = {""};
    if (source->values->no_replay) {
        snprintf(scene->reason, sizeof(scene->reason), "--no-replay was given");
        return;
    }
    if (source->history == NULL &&
        history_read_database(source->path, &source->history, &source->progress, &message) != VARVE_OK) {
        snprintf(scene->reason, sizeof(scene->reason), "%.500s", message.text);
        return;
    }
    scene->history = source->history;
    if (explain_open(source->history, &explain, &scene->explain, &message) != VARVE_OK) {
        scene->explain = NULL;
        snprintf(scene->reason, sizeof(scene->reason), "%.500s",
                 message.text[0] != '\0' ? message.text : "the history can't be replayed");
    }
}

/* Sizes of blocks are the requested ones, and there are no stages. */
static bool is_approximate(struct database *database)
{
    char *text = database != NULL ? database_meta(database, "block_sizes") : NULL;
    bool is = database == NULL || (text != NULL && strcmp(text, "requested") == 0);
    free(text);
    return is;
}

static int load_scene(struct command_context *context, struct source *source, struct oom_scene *scene, size_t explained,
                      struct varve_message *message)
{
    struct oom_following following = {
        .history = source->history,
        .device = source->values->device,
        .limit = scene->explain != NULL ? explain_get_facts(scene->explain)->limit : 0,
        .plumbing = source->hidden,
        .progress = &source->progress,
    };
    int error = VARVE_ERROR_FORMAT;
    if (scene->explain != NULL && is_approximate(scene->database)) {
        error = oom_follow(scene, &following, message);
    }
    bool is_followed = error == VARVE_OK;
    if (is_followed && scene->database != NULL) {
        oom_scene_number(scene, source->values->device);
    } else if (error == VARVE_ERROR_FORMAT && scene->database != NULL) {
        /* the decisions, or sizes as they were asked for if these do not come out again */
        error = oom_scene_load(scene, source->values->device, source->values->json ? SIZE_MAX : explained, message);
    } else if (is_followed || error == VARVE_ERROR_FORMAT) {
        error = oom_follow_import(scene, &following, is_followed, message);
    }
    command_say_hidden(context, following.all_hidden);
    return error;
}

static int explain_scene(struct command_context *context, struct source *source, struct oom_scene *scene,
                         struct varve_message *message)
{
    char *policy = replayed_with(scene->database, "replay.policy");
    size_t explained = source->values->all ? SIZE_MAX : (size_t)source->values->top;
    open_explain(source, scene, policy);
    int error = load_scene(context, source, scene, explained, message);
    if (error == VARVE_OK) {
        oom_scene_describe(scene, source->values->device);
        if (source->values->json) {
            oom_print_json(context->out, scene, source->path, explained);
        } else {
            oom_print_text(context->out, scene, explained);
        }
    }
    oom_scene_free(scene);
    explain_close(scene->explain);
    free(policy);
    return error;
}

static bool history_has_failures(const struct source *source)
{
    bool has = false;
    for (size_t i = 0; i < source->history->device_count && !has; i++) {
        const struct history_device *device = &source->history->devices[i];
        for (size_t j = 0; j < device->event_count && !has; j++) {
            has = device->events[j].action == HISTORY_OOM &&
                  (source->values->device < 0 || (size_t)source->values->device == i);
        }
    }
    return has;
}

static bool has_failures(const struct source *source)
{
    if (source->database == NULL) {
        return history_has_failures(source);
    }
    struct cursor cursor;
    cursor_open(&cursor, source->database, "SELECT 1 FROM oom WHERE ?1 < 0 OR device = ?1 LIMIT 1");
    cursor_bind_integer(&cursor, 1, source->values->device);
    bool has = cursor_next(&cursor);
    cursor_close(&cursor);
    return has;
}

static int open_source(struct source *source, struct varve_message *message)
{
    if (history_is_database(source->path)) {
        return database_open(source->path, DATABASE_DERIVED, &source->database, message);
    }
    return history_read_pytorch(source->path, &source->history, &source->progress, message);
}

static int answer_source(struct command_context *context, struct source *source, const struct operands *operands,
                         struct varve_message *message)
{
    struct oom_scene scene = {.database = source->database, .reason = "there is nothing to replay"};
    int error = hidden_patterns(operands->hidden.items, (size_t)operands->hidden.count, &source->hidden, message);
    if (source->database != NULL) {
        command_say_imported(context, source->database);
        VARVE_THEN(error, command_hide(context, source->database, operands, message));
    } else {
        command_say_inferred(context, source->path, source->history);
    }
    if (error == VARVE_OK && !has_failures(source)) {
        if (source->values->json) {
            oom_print_json(context->out, &scene, source->path, 0);
        } else {
            oom_print_text(context->out, &scene, 0);
        }
    } else if (error == VARVE_OK) {
        error = explain_scene(context, source, &scene, message);
    }
    return error == VARVE_OK && source->database != NULL ? database_error(source->database, message) : error;
}

static int command_oom_run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    struct source *source = memory_resize(NULL, sizeof(*source));
    struct varve_message message = {""};
    *source = (struct source){.values = values_untyped, .path = operands->items[0]};
    command_progress(context, &source->progress, false);
    int error = open_source(source, &message);
    VARVE_THEN(error, answer_source(context, source, operands, &message));
    progress_end(&source->progress);
    int status = error == VARVE_OK
                     ? 0
                     : command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    if (source->database != NULL) {
        database_close(source->database);
    }
    varve_plumbing_close(source->hidden);
    history_free(source->history);
    free(source);
    return status;
}

const struct command command_oom = {
    .name = "oom",
    .arguments = "TRACE",
    .summary = "why a request for memory failed, and what would have served it",
    .purpose =
        "TRACE is a trace database or a snapshot of PyTorch (.pickle, also .xz, .gz, .zst). Of the first request "
        "that failed for want of memory (-n, --all: of more): who made it, what was tried before, what was reserved, "
        "allocated and free, the cause in one sentence, the best hole and the blocks that keep it from growing, with "
        "their ages and call sites. Then the requests of the trace are replayed under the same memory limit with "
        "other settings, other policies and one more call of empty_cache: those that serve the request are printed, "
        "with the line to set; and the smallest limits under which this request, and the whole trace, are served as "
        "things are set.",
    .examples = "  varve oom trace.db\n"
                "  varve oom --all snapshot.pickle.xz\n"
                "  varve oom --json --memory-limit 10G snapshot.pickle\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .reads_database = true,
    .hides = true,
    .run = command_oom_run,
};
