/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve replay`: options, the two ways to replay (the recorded decisions again, or the same requests under
 * other rules), the database that may come of it, and what is printed. The work is done in replay/replay.c.
 */
#include "analysis/history/history_database.h"
#include "analysis/history/history_read.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/output_file.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/replay/replay_before.h"
#include "analysis/replay/history_writer.h"
#include "analysis/replay/replay.h"
#include "analysis/whatif/memory_profile.h"
#include "base/error.h"
#include "trace/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    const char *policy;
    const char *conf;
    const char *output;
    int64_t memory_limit;
    int64_t capacity;
    bool verify;
    bool json;
    bool force;
};

static const struct values defaults = {0};

static const struct option_spec options[] = {
    {"policy", 'P', OPTION_TEXT, "NAME", "pytorch (default), or another policy of the allocator",
     offsetof(struct values, policy), 0, 0, NULL},
    {"conf", 'c', OPTION_TEXT, "STRING", "settings in PyTorch's syntax (default: those of the trace)",
     offsetof(struct values, conf), 0, 0, NULL},
    {"memory-limit", 'm', OPTION_BYTES, "BYTES",
     "what may be reserved (default: no limit; of a trace that is followed, its own)",
     offsetof(struct values, memory_limit), 1, INT64_MAX, NULL},
    {"capacity", 0, OPTION_BYTES, "BYTES", "memory of the device (default: enough)", offsetof(struct values, capacity),
     1, INT64_MAX, NULL},
    {"verify", 0, OPTION_FLAG, NULL, "compare every decision with the trace", offsetof(struct values, verify), 0, 0,
     NULL},
    {"output", 'o', OPTION_TEXT, "DB", "write what the replay did to this trace database",
     offsetof(struct values, output), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static void add_stat(void *context, const char *key, int64_t value)
{
    json_integer(context, key, value);
}

static struct cJSON *mismatch_json(const struct replay_mismatch *mismatch)
{
    if (!mismatch->is_set) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    json_integer(object, "device", mismatch->device);
    json_integer(object, "event", (int64_t)mismatch->event);
    json_text(object, "expected", mismatch->expected);
    json_text(object, "got", mismatch->got);
    json_integer_or_null(object, "memory_limit", mismatch->limit != 0 ? (int64_t)mismatch->limit : -1);
    return object;
}

/* The same requests under other rules, beside what they cost as they were recorded. */
struct whatif {
    struct replay_before before;
    bool is_unchanged;   /* every decision is as recorded */
    bool is_of_requests; /* nothing was decided */
    struct replay_ineffective ineffective[REPLAY_INEFFECTIVE_MAX];
    size_t ineffective_count;
};

static const struct {
    const char *title, *key;
    size_t offset;
    bool is_bytes;
} figures[] = {
    {"peak reserved", "peak_reserved", offsetof(struct replay_figures, peak_reserved), true},
    {"peak allocated", "peak_allocated", offsetof(struct replay_figures, peak_allocated), true},
    {"segments at the end", "segments", offsetof(struct replay_figures, segments), false},
    {"device calls", "device_calls", offsetof(struct replay_figures, device_calls), false},
    {"retries", "retries", offsetof(struct replay_figures, retries), false},
    {"out-of-memory errors", "ooms", offsetof(struct replay_figures, ooms), false},
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static int64_t command_replay_figure(const struct replay_figures *from, size_t index)
{
    return *(const int64_t *)(const void *)((const char *)from + figures[index].offset);
}

static struct cJSON *before_json(const struct replay_before *before)
{
    struct cJSON *object = json_object();
    json_bool(object, "reproduced", before->is_reproduced);
    json_integer_or_null(object, "memory_limit", before->limit != 0 ? (int64_t)before->limit : -1);
    for (size_t i = 0; i < FIGURES; i++) {
        json_integer_or_null(object, figures[i].key, command_replay_figure(&before->figures, i));
    }
    return object;
}

static struct cJSON *ineffective_json(const struct whatif *whatif)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < whatif->ineffective_count; i++) {
        struct cJSON *object = json_object();
        json_text(object, "setting", whatif->ineffective[i].setting);
        json_text(object, "reason", whatif->ineffective[i].reason);
        json_append(array, object);
    }
    return array;
}

static void add_whatif_json(struct cJSON *object, const struct replay_result *result, const struct whatif *whatif)
{
    struct replay_figures after = replay_figures_of(result);
    for (size_t i = 0; i < FIGURES; i++) {
        json_integer(object, figures[i].key, command_replay_figure(&after, i));
    }
    json_integer(object, "frees_skipped", (int64_t)result->skipped);
    json_bool(object, "unchanged", whatif->is_unchanged);
    json_add(object, "before", before_json(&whatif->before));
    json_add(object, "without_effect", ineffective_json(whatif));
}

/* Of each device whose recording has a limit that was found. */
static struct cJSON *limits_json(const struct history *history, const struct replay_inference *inference)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < history->device_count; i++) {
        const struct replay_limit *limit = replay_inference_limit(inference, i);
        if (limit->used != 0) {
            struct cJSON *object = json_object();
            json_integer(object, "device", (int64_t)i);
            json_integer(object, "least_bytes", (int64_t)limit->least);
            json_integer(object, "most_bytes", (int64_t)limit->most);
            json_integer(object, "used_bytes", (int64_t)limit->used);
            json_text(object, "used", limit->is_capacity ? "device_free" : "least");
            json_append(array, object);
        }
    }
    return array;
}

static void command_replay_print_json(FILE *out, const struct history *history,
                                      const struct replay_inference *inference, const struct replay_result *result,
                                      const struct whatif *whatif)
{
    struct cJSON *object = json_object();
    struct cJSON *stats = json_object();
    json_integer(object, "events", (int64_t)result->events);
    json_integer(object, "allocations", (int64_t)result->allocations);
    if (whatif == NULL) {
        json_integer(object, "mismatches", (int64_t)result->mismatches);
        json_add(object, "first_mismatch", mismatch_json(&result->first));
        json_bool(object, "segments_equal", result->segments_equal);
        json_text(object, "segments_difference", result->difference[0] != '\0' ? result->difference : NULL);
        json_integer(object, "pools_undecided", result->mismatches > 0 ? (int64_t)result->inferred_pools : 0);
        json_bool(object, "starts_late", result->starts_late);
        json_integer(object, "first_event", (int64_t)result->first_event);
        json_add(object, "memory_limits", limits_json(history, inference));
    } else {
        add_whatif_json(object, result, whatif);
    }
    varve_alloc_stats_each(&result->stats, add_stat, stats);
    json_add(object, "stats", stats);
    json_real(object, "seconds", result->seconds);
    json_real(object, "events_per_second", result->seconds > 0 ? (double)result->events / result->seconds : 0);
    json_print(object, out);
}

static void command_replay_add_cell(struct table *table, size_t index, int64_t value, bool is_difference)
{
    int64_t size = value < 0 ? -value : value;
    char text[64];
    snprintf(text, sizeof(text), "%s%s",
             value < 0                    ? "-"
             : is_difference && value > 0 ? "+"
                                          : "",
             figures[index].is_bytes ? BYTES(size) : COUNT(size));
    table_add(table, text);
}

static void command_replay_print_difference(FILE *out, const struct replay_before *before,
                                            const struct replay_figures *after)
{
    static const struct table_column columns[] = {
        {"", false}, {"recorded", true}, {"replayed", true}, {"difference", true}};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < FIGURES; i++) {
        int64_t old = command_replay_figure(&before->figures, i);
        int64_t new = command_replay_figure(after, i);
        table_add(&table, figures[i].title);
        if (old == REPLAY_UNKNOWN) {
            table_add(&table, "unknown");
        } else {
            command_replay_add_cell(&table, i, old, false);
        }
        command_replay_add_cell(&table, i, new, false);
        if (old == REPLAY_UNKNOWN) {
            table_add(&table, "");
        } else {
            command_replay_add_cell(&table, i, new - old, true);
        }
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void print_whatif(FILE *out, const struct replay_options *replay, const struct replay_result *result,
                         const struct whatif *whatif)
{
    const struct replay_before *before = &whatif->before;
    struct replay_figures after = replay_figures_of(result);
    command_replay_print_difference(out, before, &after);
    if (whatif->is_unchanged) {
        fputs("no decision changed: every address, segment, release and failure is as recorded\n", out);
    }
    for (size_t i = 0; i < whatif->ineffective_count; i++) {
        format_wrap(out, 0, "no effect: %s: %s", whatif->ineffective[i].setting, whatif->ineffective[i].reason);
    }
    if (before->limit != 0 && replay->memory_limit == 0) {
        format_wrap(out, 0,
                    "recorded where %s could be reserved and little more (a memory limit, or a full device; the trace "
                    "does not say), and replayed without a limit: --memory-limit %" PRIu64 " compares under the same",
                    BYTES(before->limit), before->limit);
    }
    if (whatif->is_of_requests) {
        format_print_wrapped(out,
                             "the trace has a program's requests, and not what served them: recorded is what "
                             "they add up to",
                             0);
    } else if (!before->is_reproduced) {
        format_print_wrapped(out,
                             "the recorded decisions did not come out again under the settings of the trace: "
                             "what is recorded was counted in its events",
                             0);
    }
}

/* What explains the recorded retries, failures and collections. */
static void print_limits(FILE *out, const struct history *history, const struct replay_inference *inference)
{
    for (size_t i = 0; i < history->device_count; i++) {
        const struct replay_limit *limit = replay_inference_limit(inference, i);
        char device[32] = "";
        if (limit->used == 0) {
            continue;
        }
        if (history->device_count > 1) {
            snprintf(device, sizeof(device), " of device %zu", i);
        }
        struct format_text used = format_bytes_exact((int64_t)limit->used);
        struct format_text least = format_bytes_exact((int64_t)limit->least);
        struct format_text most = format_bytes_exact((int64_t)limit->most);
        if (limit->is_capacity) {
            format_wrap(
                out, 0,
                "memory limit found%s: %s, what was reserved and what the device had free at a failure; all comes "
                "out as recorded from %s to %s",
                device, used.text, least.text, most.text);
        } else {
            format_wrap(
                out, 0,
                "memory limit found%s: %s, the smallest under which all comes out as recorded; the largest is %s",
                device, used.text, most.text);
        }
    }
}

static void command_replay_print_text(FILE *out, const struct history *history,
                                      const struct replay_inference *inference, const struct replay_options *replay,
                                      const struct replay_result *result, const struct whatif *whatif)
{
    const struct varve_alloc_stats *stats = &result->stats;
    fprintf(out, "%s events, %s allocations in %s (%s events/s)\n", COUNT(result->events), COUNT(result->allocations),
            DURATION(result->seconds * 1e9),
            COUNT(result->seconds > 0 ? (int64_t)((double)result->events / result->seconds) : 0));
    if (whatif != NULL) {
        print_whatif(out, replay, result, whatif);
    } else {
        if (result->mismatches == 0) {
            fprintf(out, "every decision as recorded; segments and blocks at the end %s\n",
                    result->segments_equal ? "are equal" : "differ");
        }
        fprintf(out, "peak reserved %s, peak allocated %s; at the end %s segments\n",
                EXACT(stats->reserved_bytes[VARVE_ALLOC_STAT_ALL].peak),
                EXACT(stats->allocated_bytes[VARVE_ALLOC_STAT_ALL].peak), COUNT(result->segments));
        fprintf(out, "%s out-of-memory errors, %s retries\n", COUNT(stats->num_ooms), COUNT(stats->num_alloc_retries));
        print_limits(out, history, inference);
    }
    if (result->starts_late) {
        fprintf(out, "the trace began late: the state before it was worked out from its end; what free blocks "
                     "were last requested for, and for how long they had been free, is not known\n");
    }
    if (result->first_event > 0) {
        fprintf(out, "the first %zu events end a request that began before the trace: they were not compared\n",
                result->first_event);
    }
}

static int fail_mismatch(struct command_context *context, const char *path, const struct history *history,
                         const struct replay_result *result, bool was_requested)
{
    const struct replay_mismatch *first = &result->first;
    char device[96] = "";
    int length = history->device_count > 1 ? snprintf(device, sizeof(device), " of device %u", first->device) : 0;
    if (first->limit != 0) {
        snprintf(device + length, sizeof(device) - (size_t)length,
                 ", under a limit of %" PRIu64 " bytes, with which most came out", first->limit);
    }
    if (!first->is_set) {
        return command_fail(context, "%s: every decision as recorded, but the end differs: %s", path,
                            result->difference);
    }
    if (result->inferred_pools > 0 && result->advice == NULL) {
        return command_fail(
            context,
            "%s: %zu private pool%s can't be distinguished in this snapshot: its events do not name them, "
            "and no assignment that was tried gives event %zu%s: expected %s; got %s (record --torch and "
            "--torch=observe name them; a memory limit or other settings may be the reason, too: "
            "--memory-limit, --conf)",
            path, result->inferred_pools, result->inferred_pools == 1 ? "" : "s", first->event, device, first->expected,
            first->got);
    }
    if (result->advice != NULL) {
        return command_fail(context, "%s: event %zu%s: expected %s; got %s (%s)", path, first->event, device,
                            first->expected, first->got, result->advice);
    }
    return command_fail(context, "%s: event %zu%s: expected %s; got %s%s", path, first->event, device, first->expected,
                        first->got,
                        was_requested ? ""
                                      : " (were there a memory limit or other settings? --memory-limit, --conf; or "
                                        "give --policy to replay the requests alone)");
}

static bool is_faithful(const struct replay_result *result)
{
    return result->mismatches == 0 && result->segments_equal;
}

/* What was inferred, played once more with somebody who takes the records. */
static int play_again(const struct replay_inference *inference, const struct replay_options *replay,
                      struct replay_result *result, struct varve_message *message)
{
    struct replay_result again = {0};
    int error = replay_play(inference, replay, &again, message);
    if (error == VARVE_OK && replay->follow && again.mismatches > 0) {
        error = varve_message_set(message, VARVE_ERROR_CORRUPT, "the second replay differed from the first");
    }
    if (!replay->follow) {
        *result = again; /* else that of the first, which has not waited for those who take records */
    }
    return error;
}

static int command_replay_write_database(const struct values *values, const char *path, const struct history *history,
                                         const struct replay_inference *inference, struct replay_options *replay,
                                         struct replay_result *result, struct varve_message *message)
{
    struct varve_writer *writer;
    int error = varve_writer_open(values->output, values->force, &writer, message);
    if (error != VARVE_OK) {
        return error;
    }
    varve_writer_meta_text(writer, "replay.source", path);
    varve_writer_meta_text(writer, "replay.policy", values->policy != NULL ? values->policy : "pytorch");
    if (values->memory_limit != 0) {
        varve_writer_meta_integer(writer, "replay.memory_limit", values->memory_limit);
    }
    if (values->capacity != 0) {
        varve_writer_meta_integer(writer, "replay.capacity", values->capacity);
    }
    struct history_writer *records = history_writer_new(writer, history);
    replay->output = history_writer_output(records);
    struct history_settings settings;
    error = replay_settings(history, values->conf, &settings, message);
    if (error == VARVE_OK) {
        history_write_settings(writer, &settings, history_writer_begin_us(records));
        error = play_again(inference, replay, result, message);
    }
    history_writer_free(records);
    replay->output = (struct replay_output){0};
    if (error != VARVE_OK) {
        varve_writer_abandon(writer);
        return error;
    }
    return varve_writer_finish(writer, progress_step, replay->progress, message);
}

/* The replay that `values` ask for; records go to a database or a recording if they are wanted. Owner of the inference,
 * NULL if there is none: the caller. */
static int command_replay_play(const struct values *values, const char *path, const struct history *history,
                               struct replay_options *replay, struct replay_inference **inference_out,
                               struct replay_result *result, struct varve_message *message)
{
    struct replay_inference *inference;
    replay_emit emit = replay_emit_find();
    bool is_kept = values->output != NULL || emit != NULL;
    int error = replay_infer(history, replay, &inference, result, message);
    if (error == VARVE_OK && !replay->follow && !is_kept) {
        double inferred = result->seconds;
        error = replay_play(inference, replay, result, message);
        result->seconds += inferred;
    }
    /* records go anywhere only when it is known that the replay ends well */
    if (error == VARVE_OK && is_kept && is_faithful(result)) {
        replay->emit = emit;
        error = values->output != NULL
                    ? command_replay_write_database(values, path, history, inference, replay, result, message)
                    : play_again(inference, replay, result, message);
    }
    *inference_out = inference;
    return error;
}

/* For a replay under other rules: what the history cost under its own, and what the policy must know beforehand. */
static int prepare_whatif(const struct values *values, const struct history *history, struct replay_options *replay,
                          struct whatif *whatif, struct whatif_profile *profile, struct varve_message *message)
{
    int error = replay_before_load(history, replay->progress, &whatif->before);
    if (error == VARVE_OK && whatif_needs_profile(values->policy)) {
        error = whatif_profile_make(history, profile, message);
        replay->plans = profile->plans;
    }
    if (error == VARVE_OK) {
        whatif->is_unchanged = replay_changes_nothing(history, replay, &whatif->before);
        replay->follow = whatif->is_unchanged; /* then the recorded history is what comes of it */
        replay->finds_limit = !replay->follow && whatif->before.limit != 0;
    }
    return error;
}

static int print(struct command_context *context, const struct values *values, const char *path,
                 const struct history *history, const struct replay_inference *inference,
                 const struct replay_options *replay, const struct replay_result *result, const struct whatif *whatif)
{
    if (values->json && (values->verify || is_faithful(result))) {
        command_replay_print_json(context->out, history, inference, result, whatif);
    } else if (is_faithful(result)) {
        command_replay_print_text(context->out, history, inference, replay, result, whatif);
    }
    return is_faithful(result) ? 0 : fail_mismatch(context, path, history, result, values->verify);
}

static int replay_history(struct command_context *context, const struct values *values, const char *path,
                          const struct history *history, struct progress *progress)
{
    bool follows = values->verify || (!history->has_requests_only && values->policy == NULL && values->conf == NULL &&
                                      values->memory_limit == 0 && values->capacity == 0);
    struct replay_options replay = {
        .policy = values->policy,
        .conf = values->conf,
        .memory_limit = (uint64_t)values->memory_limit,
        .capacity = (uint64_t)values->capacity,
        .finds_limit = follows,
        .finds_most = follows,
        .follow = follows,
        .progress = progress,
    };
    struct replay_result result = {.segments_equal = true};
    struct replay_inference *inference = NULL;
    struct varve_message message = {""};
    struct whatif whatif = {.is_of_requests = history->has_requests_only};
    struct whatif_profile profile = {0};
    int error = follows ? VARVE_OK : prepare_whatif(values, history, &replay, &whatif, &profile, &message);
    VARVE_THEN(error, command_replay_play(values, path, history, &replay, &inference, &result, &message));
    whatif_profile_free(&profile);
    progress_end(progress);
    int status;
    if (error != VARVE_OK) {
        status = command_fail(context, "%s: %s", path, message.text[0] != '\0' ? message.text : varve_strerror(error));
    } else {
        whatif.ineffective_count = follows ? 0 : replay_ineffective(history, &replay, &result, whatif.ineffective);
        status = print(context, values, path, history, inference, &replay, &result, follows ? NULL : &whatif);
    }
    replay_inference_free(inference);
    return status;
}

static int command_replay_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *path = operands->items[0];
    struct varve_message message = {""};
    if (values->output != NULL &&
        output_check(values->output, values->force, operands->items, operands->count, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    struct progress progress;
    command_progress(context, &progress, false);
    struct history *history;
    if (history_read(path, &history, &progress, &message) != VARVE_OK) {
        progress_end(&progress);
        return command_fail(context, "%s", message.text);
    }
    command_say_inferred(context, path, history);
    int status = replay_history(context, values, path, history, &progress);
    history_free(history);
    return status;
}

const struct command command_replay = {
    .name = "replay",
    .arguments = "TRACE",
    .summary = "run the caching allocator on a recorded history, exactly or under other rules",
    .purpose =
        "TRACE is a snapshot of PyTorch (.pickle, also .xz, .gz, .zst) or a trace database. Without settings "
        "of your own, or with --verify, the recorded decisions must come out again: every address, segment, "
        "release and failure; the first that differs is printed, and the exit status is 2. The memory limit "
        "that it was recorded under, if any, is found and printed unless --memory-limit gives it. With "
        "--policy, --conf, --memory-limit or --capacity and without --verify the same requests are made under those "
        "rules, and what they would have cost is printed. -o keeps all decisions, splits and merges too, in "
        "a database; under varve record they are recorded as well.",
    .examples = "  varve replay snapshot.pickle -o replay.db\n"
                "  varve replay --verify snapshot.pickle.xz\n"
                "  varve replay --conf expandable_segments:True snapshot.pickle\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .streams = true, /* --verify prints its figures also when it fails */
    .run = command_replay_run,
};
