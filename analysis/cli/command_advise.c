/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve advise`: which settings of PyTorch's allocator would have helped a recorded program, or one that runs, and
 * whether it fits on a device of a given size. Options and the two ways to print; the search is
 * whatif/advise_search.c's, what does not fit is whatif/capacity_search.c's.
 */
#include "analysis/history/history_read.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/attached_history.h"
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/whatif/advise_search.h"
#include "analysis/whatif/capacity_search.h"
#include "analysis/whatif/live_demand.h"
#include "analysis/whatif/frontier_search.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITES_SHOWN 8
#define SETTINGS_MAX (1 + ADVISE_PICKS_MAX)

#define ATTACHED_NS INT64_C(20000000000) /* dozens of steps of most trainings */

struct values {
    int64_t memory_limit, capacity;
    int64_t attach_pid; /* 0: a trace */
    int64_t for_ns;     /* negative: not given */
    bool json;
};

static const struct values defaults = {.for_ns = -1};

static const struct option_spec options[] = {
    {"attach", 0, OPTION_INTEGER, "PID",
     "of the training that runs as process PID, in place of a trace: its requests from now on",
     offsetof(struct values, attach_pid), 1, INT32_MAX, NULL},
    {"for", 0, OPTION_SECONDS, "SECONDS", "with --attach: for so long (default: 20), or until Ctrl-C",
     offsetof(struct values, for_ns), 0, 0, NULL},
    {"capacity", 0, OPTION_BYTES, "BYTES",
     "memory of the GPU that it is to run on: does it fit, and under which settings (default: enough)",
     offsetof(struct values, capacity), 1, INT64_MAX, NULL},
    {"memory-limit", 'm', OPTION_BYTES, "BYTES",
     "what the program may reserve (default: what explains the recorded retries and failures, if anything does)",
     offsetof(struct values, memory_limit), 1, INT64_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* All that is printed. */
struct answer {
    const char *path;
    const struct history *history;
    uint64_t capacity; /* that is asked about; 0: none is */
    int64_t failed;    /* requests, there, as it is */
    bool fits;         /* some setting that was tried; else `advice` is about no capacity */
    struct advice advice;
    struct whatif_demand demand;
    struct capacity_load load;
    struct frontier frontiers[SETTINGS_MAX]; /* of the own setting and of each pick */
    size_t gone;         /* call sites of the load without which it runs; 0: it does with all, or not found */
    int64_t duration_ns; /* of the recording; 0: unknown */
};

static const struct advise_trial *trial_at(const struct answer *answer, size_t index)
{
    return index == 0 ? &answer->advice.own : answer->advice.picks[index - 1].trial;
}

static const struct whatif_waste *waste_at(const struct answer *answer, size_t index)
{
    return index == 0 ? &answer->advice.waste : &answer->advice.picks[index - 1].waste;
}

static bool runs(const struct answer *answer, size_t index)
{
    return trial_at(answer, index)->outcome.figures.ooms == 0;
}

/* The smallest memory limit above which every one that was tried does; INT64_MAX: none was found. */
static int64_t needs(const struct answer *answer, size_t index)
{
    const struct frontier *frontier = &answer->frontiers[index];
    return frontier->error == VARVE_OK ? (int64_t)frontier->safe : INT64_MAX;
}

/* The setting of those shown that runs with the least memory. */
static size_t most_frugal(const struct answer *answer)
{
    size_t best = 0;
    for (size_t i = 1; i <= answer->advice.pick_count; i++) {
        best = needs(answer, i) < needs(answer, best) ? i : best;
    }
    return best;
}

/* What the capacity lacks. A setting that fails there and runs with less lacks nothing that could be named. */
static uint64_t missing(const struct answer *answer, size_t index)
{
    int64_t more = needs(answer, index) - (int64_t)answer->capacity;
    return more > 0 && needs(answer, index) != INT64_MAX ? (uint64_t)more : 0;
}

/* What the program may reserve, of one device; 0: as much as it wants. */
static uint64_t room(const struct answer *answer)
{
    uint64_t limit = answer->advice.limit, capacity = answer->advice.capacity;
    return limit == 0 || (capacity != 0 && capacity < limit) ? capacity : limit;
}

/* ---- the figures of each setting, as a table and as JSON ---- */

enum unit { UNIT_BYTES, UNIT_COUNT, UNIT_TIME };

static int64_t headroom(const struct answer *answer, size_t index)
{
    return answer->history->device_count == 1 && room(answer) != 0
               ? (int64_t)room(answer) - trial_at(answer, index)->outcome.figures.peak_reserved
               : -1;
}

static int64_t known_needs(const struct answer *answer, size_t index)
{
    return needs(answer, index) != INT64_MAX ? needs(answer, index) : -1;
}

static int64_t lost(const struct answer *answer, size_t index)
{
    const struct whatif_waste *waste = waste_at(answer, index);
    return waste->is_known ? waste->reserved - waste->live_requested : -1;
}

#define FIGURE(field)                                                        \
    static int64_t figure_##field(const struct answer *answer, size_t index) \
    {                                                                        \
        return (int64_t)trial_at(answer, index)->outcome.figures.field;      \
    }
FIGURE(peak_reserved)
FIGURE(peak_allocated)
FIGURE(ooms)
FIGURE(retries)
FIGURE(device_calls)

static int64_t device_ns(const struct answer *answer, size_t index)
{
    return (int64_t)trial_at(answer, index)->outcome.result.device_ns;
}

#define WASTE(field)                                                                    \
    static int64_t waste_##field(const struct answer *answer, size_t index)             \
    {                                                                                   \
        return waste_at(answer, index)->is_known ? waste_at(answer, index)->field : -1; \
    }
WHATIF_CAUSE_LIST(WASTE)
#undef WASTE

/* Negative: there is no such figure here. */
static const struct {
    const char *title, *key;
    int64_t (*of)(const struct answer *answer, size_t index);
    enum unit unit;
    bool is_lost; /* a part of what is lost; its row is left out if it is 0 everywhere */
} figures[] = {
    {"peak reserved", "peak_reserved", figure_peak_reserved, UNIT_BYTES, false},
    {"  headroom", "headroom", headroom, UNIT_BYTES, false},
    {"peak allocated", "peak_allocated", figure_peak_allocated, UNIT_BYTES, false},
    {"needs at least", "needs", known_needs, UNIT_BYTES, false},
    {"out-of-memory errors", "ooms", figure_ooms, UNIT_COUNT, false},
    {"retries", "retries", figure_retries, UNIT_COUNT, false},
    {"device calls", "device_calls", figure_device_calls, UNIT_COUNT, false},
    {"  modelled time", "device_ns", device_ns, UNIT_TIME, false},
    {"lost at the peak", "lost", lost, UNIT_BYTES, false},
    {"  rounding", "rounding", waste_rounding, UNIT_BYTES, true},
    {"  unsplit remainders", "unsplit_remainder", waste_unsplit_remainder, UNIT_BYTES, true},
    {"  segments too large", "segment_quantum", waste_segment_quantum, UNIT_BYTES, true},
    {"  free in other pools", "pool_segregation", waste_pool_segregation, UNIT_BYTES, true},
    {"  waiting for streams", "stream_pending", waste_stream_pending, UNIT_BYTES, true},
    {"  cached whole segments", "cached_segments", waste_cached_segments, UNIT_BYTES, true},
    {"  holes between blocks", "external_holes", waste_external_holes, UNIT_BYTES, true},
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static struct cJSON *setting_json(const struct answer *answer, size_t index)
{
    static const char *const reasons[] = {"best", "without_expandable_segments", "without_more_time"};
    const struct advise_trial *trial = trial_at(answer, index);
    struct cJSON *object = json_object();
    struct cJSON *causes = json_object();
    json_text(object, "conf", trial->text);
    if (index > 0) {
        json_text(object, "reason", reasons[answer->advice.picks[index - 1].reason]);
    }
    for (size_t i = 0; i < FIGURES; i++) {
        struct cJSON *to = figures[i].is_lost ? causes : object;
        json_integer_or_null(to, figures[i].key, figures[i].of(answer, index));
    }
    json_add(object, "causes", causes);
    return object;
}

static void place_json(struct cJSON *object, const char *key, const struct capacity_place *place)
{
    struct cJSON *value = place->file != NULL ? json_object() : json_null_value();
    if (place->file != NULL) {
        json_text(value, "function", place->function);
        json_text(value, "file", place->file);
        json_integer(value, "line", (int64_t)place->line);
    }
    json_add(object, key, value);
}

static struct cJSON *command_advise_sites_json(const struct answer *answer)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < answer->gone; i++) {
        const struct capacity_site *site = &answer->load.sites[i];
        struct cJSON *object = json_object();
        place_json(object, "user", &site->user);
        place_json(object, "inner", &site->inner);
        json_integer(object, "bytes", (int64_t)site->bytes);
        json_integer(object, "blocks", (int64_t)site->blocks);
        json_append(array, object);
    }
    return array;
}

static struct cJSON *recorded_json(const struct replay_before *before)
{
    struct cJSON *object = json_object();
    json_bool(object, "reproduced", before->is_reproduced);
    json_integer_or_null(object, "peak_reserved", before->figures.peak_reserved);
    json_integer_or_null(object, "peak_allocated", before->figures.peak_allocated);
    json_integer_or_null(object, "device_calls", before->figures.device_calls);
    json_integer_or_null(object, "retries", before->figures.retries);
    json_integer_or_null(object, "ooms", before->figures.ooms);
    return object;
}

static void command_advise_print_json(FILE *out, const struct answer *answer)
{
    const struct advice *advice = &answer->advice;
    struct cJSON *object = json_object();
    struct cJSON *settings = json_array();
    for (size_t i = 1; i <= advice->pick_count; i++) {
        json_append(settings, setting_json(answer, i));
    }
    json_text(object, "trace", answer->path);
    json_integer_or_null(object, "memory_limit", advice->limit != 0 ? (int64_t)advice->limit : -1);
    json_integer_or_null(object, "capacity", answer->capacity != 0 ? (int64_t)answer->capacity : -1);
    json_integer(object, "load_bytes", (int64_t)answer->load.bytes);
    json_integer(object, "largest_request", (int64_t)answer->demand.largest_all);
    json_integer_or_null(object, "duration_ns", answer->duration_ns > 0 ? answer->duration_ns : -1);
    json_add(object, "recorded", recorded_json(&advice->before));
    json_add(object, "own", setting_json(answer, 0));
    json_integer(object, "tried", (int64_t)advice->trial_count);
    json_add(object, "settings", settings);
    if (answer->capacity != 0) {
        json_bool(object, "fits", answer->failed == 0);
        json_bool(object, "fits_with_settings", answer->fits);
        json_integer(object, "missing", (int64_t)missing(answer, most_frugal(answer)));
        json_add(object, "must_go", command_advise_sites_json(answer));
    }
    json_print(object, out);
}

/* ---- text ---- */

static struct format_text figure_text(int64_t value, enum unit unit)
{
    return unit == UNIT_BYTES ? format_bytes(value) : unit == UNIT_COUNT ? format_count(value) : format_duration(value);
}

static bool has_figure(const struct answer *answer, size_t figure)
{
    bool has = false;
    for (size_t i = 0; i <= answer->advice.pick_count; i++) {
        int64_t value = figures[figure].of(answer, i);
        has = has || (figures[figure].is_lost ? value > 0 : value >= 0);
    }
    return has;
}

static void command_advise_print_table(FILE *out, const struct answer *answer)
{
    static const char *const numbers[] = {"1", "2", "3"};
    struct table_column columns[1 + SETTINGS_MAX] = {{"", false},
                                                     {answer->advice.is_followed ? "recorded" : "as it is", true}};
    for (size_t i = 0; i < answer->advice.pick_count; i++) {
        columns[2 + i] = (struct table_column){numbers[i], true};
    }
    struct table table;
    table_init(&table, columns, 2 + answer->advice.pick_count);
    for (size_t i = 0; i < FIGURES; i++) {
        if (!has_figure(answer, i)) {
            continue;
        }
        table_add(&table, figures[i].title);
        for (size_t j = 0; j <= answer->advice.pick_count; j++) {
            int64_t value = figures[i].of(answer, j);
            table_add(&table, value < 0 ? "-" : figure_text(value, figures[i].unit).text);
        }
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void print_pick(FILE *out, const struct answer *answer, size_t index)
{
    static const char *const reasons[] = {"", "without expandable_segments; ",
                                          "without more time in calls of the device; "};
    const struct advise_pick *pick = &answer->advice.picks[index - 1];
    int64_t more = device_ns(answer, index) - device_ns(answer, 0);
    if (pick->trial->text[0] != '\0') {
        fprintf(out, "  %zu  export PYTORCH_ALLOC_CONF=%s\n", index, pick->trial->text);
    } else {
        fprintf(out, "  %zu  unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF\n", index);
    }
    char line[256];
    snprintf(line, sizeof(line), "%s", reasons[pick->reason]);
    if (more > device_ns(answer, 0) / 20) {
        size_t used = strlen(line);
        used +=
            (size_t)snprintf(line + used, sizeof(line) - used, "costs %s more in calls of the device", DURATION(more));
        if (answer->duration_ns > 0) {
            snprintf(line + used, sizeof(line) - used, ", %s of the recorded run",
                     format_share(more, answer->duration_ns).text);
        }
    } else if (line[0] != '\0') {
        line[strlen(line) - 2] = '\0'; /* the semicolon */
    }
    if (line[0] != '\0') {
        fputs("     ", out);
        format_print_wrapped(out, line, 5);
    }
}

static void print_place(FILE *out, const struct capacity_place *place, size_t columns)
{
    char function[160];
    format_function(function, sizeof(function), place->function, columns / 2);
    char file[160];
    format_path(file, sizeof(file), format_base_name(place->file), columns / 2 - 6);
    fprintf(out, "%s  %s:%" PRIu32, function, file, place->line);
}

static void print_site(FILE *out, const struct capacity_site *site)
{
    fprintf(out, "  %10s in %s %s", BYTES(site->bytes), COUNT(site->blocks),
            format_plural((int64_t)site->blocks, "block", "blocks"));
    if (site->user.file == NULL) {
        fprintf(out, " of %s\n", BYTES(site->size));
        return;
    }
    fputs(": ", out);
    print_place(out, &site->user, 40);
    if (site->inner.file != NULL) {
        fputs(", in ", out);
        print_place(out, &site->inner, 40);
    }
    fputs("\n", out);
}

static void print_must_go(FILE *out, const struct answer *answer)
{
    const struct capacity_load *load = &answer->load;
    size_t best = most_frugal(answer);
    char with[48] = "as it is";
    if (best > 0) {
        snprintf(with, sizeof(with), "with setting %zu", best);
    }
    if (answer->gone == 0) {
        fputs("which call sites' memory would have to go was not found\n", out);
        return;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < answer->gone; i++) {
        sum += load->sites[i].bytes;
    }
    fprintf(out, "it runs there %s without %s, %s in all:\n", with,
            load->has_callsites ? "what these call sites hold" : "these blocks (the trace has no call sites)",
            BYTES(sum));
    for (size_t i = 0; i < answer->gone && i < SITES_SHOWN; i++) {
        print_site(out, &load->sites[i]);
    }
    if (answer->gone > SITES_SHOWN) {
        fprintf(out, "  and %s more\n", COUNT(answer->gone - SITES_SHOWN));
    }
}

static void print_lack(FILE *out, const struct answer *answer)
{
    size_t best = most_frugal(answer);
    format_wrap(out, 0, "%s: does not fit under any setting tried: misses by %s as it is%s%s%s",
                BYTES(answer->capacity), BYTES(missing(answer, 0)), best > 0 ? ", by " : "",
                best > 0 ? BYTES(missing(answer, best)) : "", best > 0 ? " at best" : "");
    if (answer->load.bytes > answer->capacity) {
        format_wrap(out, 0, "no allocator can: %s are live after event %s, %s more than that",
                    EXACT(answer->load.bytes), COUNT(answer->load.event), BYTES(answer->load.bytes - answer->capacity));
    } else {
        format_wrap(out, 0, "never more than %s are live: the rest is lost to the allocator",
                    EXACT(answer->load.bytes));
    }
    print_must_go(out, answer);
}

static void print_capacity(FILE *out, const struct answer *answer)
{
    struct format_text capacity = format_bytes((int64_t)answer->capacity);
    if (answer->fits && answer->failed == 0) {
        fprintf(out, "%s: fits as it is\n", capacity.text);
    } else if (answer->fits) {
        format_wrap(out, 0, "%s: does not fit as it is, misses by %s (%s %s); fits with %s", capacity.text,
                    BYTES(missing(answer, 0)), COUNT(answer->failed),
                    format_plural(answer->failed, "request fails", "requests fail"),
                    answer->advice.pick_count > 1 && runs(answer, 2) ? "these settings" : "setting 1");
    } else {
        print_lack(out, answer);
    }
}

/* Replayed freely, the own setting should need what was recorded: as far as it does not, neither do other settings. */
static void print_doubt(FILE *out, const struct answer *answer)
{
    const struct advice *advice = &answer->advice;
    int64_t recorded = advice->before.figures.peak_reserved, again = advice->again.peak_reserved;
    int64_t difference = again > recorded ? again - recorded : recorded - again;
    if (recorded == REPLAY_UNKNOWN) {
        fputs("the trace has requests only: what stands as recorded is PyTorch's allocator, as it is set\n", out);
    }
    if (recorded == REPLAY_UNKNOWN || advice->is_given_room || difference <= recorded / 100) {
        return;
    }
    format_wrap(out, 0,
                "recorded: %s reserved at most; its requests made again under its own settings: %s (%s). Figures of "
                "other settings may be off as much",
                BYTES(recorded), BYTES(again),
                advice->is_followed ? "other addresses may decide otherwise"
                                    : "was there a memory limit? --memory-limit");
}

static void command_advise_print_head(FILE *out, const struct answer *answer)
{
    const struct advice *advice = &answer->advice;
    if (advice->own.text[0] != '\0') {
        fprintf(out, "recorded with %s\n", advice->own.text);
    }
    if (advice->limit != 0) {
        format_wrap(out, 0, "all under a memory limit of %s%s", EXACT(advice->limit),
                    advice->is_given_room ? "" : ", which explains the recorded retries and failures");
    }
    print_doubt(out, answer);
}

static void print_check(FILE *out, const struct answer *answer)
{
    const struct advice *advice = &answer->advice;
    fputs("older versions of PyTorch read PYTORCH_CUDA_ALLOC_CONF; requests are taken to be the\n"
          "same. varve replay --conf=…",
          out);
    if (advice->limit != 0) {
        fprintf(out, " --memory-limit %" PRIu64, advice->limit);
    }
    if (advice->capacity != 0) {
        fprintf(out, " --capacity %" PRIu64, advice->capacity);
    }
    fputs(" gives these figures\n", out);
}

static void command_advise_print_text(FILE *out, const struct answer *answer)
{
    const struct advice *advice = &answer->advice;
    const struct replay_figures *own = &advice->own.outcome.figures;
    command_advise_print_head(out, answer);
    if (answer->capacity != 0) {
        print_capacity(out, answer);
    }
    if (advice->pick_count == 0) {
        format_wrap(out, 0,
                    "nothing helps: none of %zu settings tried needs less memory than %s reserved, of which %s were "
                    "allocated, or less time in calls of the device",
                    advice->trial_count, BYTES(own->peak_reserved), BYTES(own->peak_allocated));
        return;
    }
    fprintf(out, "%zu of %zu settings tried:\n", advice->pick_count, advice->trial_count);
    for (size_t i = 1; i <= advice->pick_count; i++) {
        print_pick(out, answer, i);
    }
    fputs("\n", out);
    command_advise_print_table(out, answer);
    fputs("\n", out);
    print_check(out, answer);
}

/* ---- the work ---- */

static int64_t duration_of(const struct history *history)
{
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        for (size_t j = 0; j < history->devices[i].event_count; j++) {
            int64_t time = history->devices[i].events[j].time_us;
            first = time != 0 && time < first ? time : first;
            last = time > last ? time : last;
        }
    }
    return last > first && last - first < INT64_MAX / 1000 ? (last - first) * 1000 : 0;
}

static void find_frontiers(struct answer *answer, struct whatif *whatif, struct progress *progress)
{
    struct frontier_options find = {.with_failed = true, .progress = progress};
    struct whatif_setting settings[SETTINGS_MAX];
    for (size_t i = 0; i <= answer->advice.pick_count; i++) {
        settings[i] = advise_setting(&answer->advice, trial_at(answer, i));
        settings[i].capacity = 0;
    }
    frontier_find(whatif, &answer->demand, settings, 1 + answer->advice.pick_count, &find, answer->frontiers);
}

/* Where nothing fits, settings are compared without a limit: by what they need, not by how many requests fail. */
static int find_settings(struct answer *answer, const struct values *values, struct whatif *whatif,
                         struct progress *progress, struct varve_message *message)
{
    struct advise_options advise = {
        .memory_limit = (uint64_t)values->memory_limit,
        .capacity = (uint64_t)values->capacity,
        .duration_ns = answer->duration_ns,
        .progress = progress,
    };
    int error = advise_run(answer->history, whatif, &advise, &answer->advice, message);
    if (error != VARVE_OK || values->capacity == 0) {
        return error;
    }
    answer->failed = answer->advice.own.outcome.figures.ooms;
    answer->fits = answer->advice.least_ooms == 0;
    if (!answer->fits) {
        advise_free(&answer->advice);
        advise.capacity = 0;
        error = advise_run(answer->history, whatif, &advise, &answer->advice, message);
    }
    return error;
}

static int find_answer(struct answer *answer, const struct values *values, struct progress *progress,
                       struct varve_message *message)
{
    struct whatif *whatif;
    int error = whatif_open(answer->history, &whatif, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = find_settings(answer, values, whatif, progress, message);
    if (error == VARVE_OK) {
        find_frontiers(answer, whatif, progress);
    }
    if (error == VARVE_OK && values->capacity != 0 && !answer->fits) {
        size_t best = most_frugal(answer);
        struct whatif_setting setting = advise_setting(&answer->advice, trial_at(answer, best));
        setting.memory_limit = 0;
        setting.capacity = answer->capacity;
        answer->gone = capacity_shed(whatif, answer->history, &answer->load, &setting, missing(answer, best));
    }
    whatif_close(whatif);
    return error;
}

static int answer_history(struct command_context *context, const struct values *values, struct answer *answer,
                          struct progress *progress)
{
    struct varve_message message = {""};
    int error = whatif_demand_load(answer->history, &answer->demand, &message);
    if (error == VARVE_OK && answer->demand.served == 0) {
        return command_fail(context, "%s has no allocations of a GPU's caching allocator", answer->path);
    }
    if (error == VARVE_OK && values->capacity != 0 && answer->demand.largest_all > (uint64_t)values->capacity) {
        return command_fail(context, "%s: its largest request is %s, more than a capacity of %s", answer->path,
                            EXACT(answer->demand.largest_all), EXACT(values->capacity));
    }
    answer->duration_ns = duration_of(answer->history);
    answer->capacity = (uint64_t)values->capacity;
    VARVE_THEN(error, capacity_load_find(answer->history, &answer->load));
    VARVE_THEN(error, find_answer(answer, values, progress, &message));
    progress_end(progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s: %s", answer->path,
                            message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    if (values->json) {
        command_advise_print_json(context->out, answer);
    } else {
        command_advise_print_text(context->out, answer);
    }
    advise_free(&answer->advice);
    return 0;
}

static const char *command_advise_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->for_ns >= 0 && values->attach_pid == 0 ? "--for is for --attach" : NULL;
}

/* Of the trace, or of the process: 0, or EXIT_STATUS_FAILED with the reason said. */
static int command_advise_read(struct command_context *context, const struct values *values, const char *path,
                               struct history **history_out, struct progress *progress)
{
    struct varve_message message = {""};
    if (values->attach_pid != 0) {
        return attached_history_read(context, (int32_t)values->attach_pid,
                                     values->for_ns >= 0 ? values->for_ns : ATTACHED_NS, history_out);
    }
    if (history_read(path, history_out, progress, &message) != VARVE_OK) {
        progress_end(progress);
        return command_fail(context, "%s", message.text);
    }
    return 0;
}

static int command_advise_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct answer answer = {0};
    char process[32];
    if ((values->attach_pid != 0) == (operands->count > 0)) {
        return command_fail(context, "give either a TRACE or --attach PID");
    }
    snprintf(process, sizeof(process), "process %" PRId64, values->attach_pid);
    answer.path = operands->count > 0 ? operands->items[0] : process;
    struct progress progress;
    command_progress(context, &progress, false);
    struct history *history;
    int status = command_advise_read(context, values, answer.path, &history, &progress);
    if (status != 0) {
        return status;
    }
    answer.history = history;
    command_say_inferred(context, answer.path, history);
    status = answer_history(context, values, &answer, &progress);
    progress_end(&progress);
    capacity_load_free(&answer.load);
    history_free(history);
    return status;
}

const struct command command_advise = {
    .name = "advise",
    .arguments = "[TRACE]",
    .summary = "settings of PyTorch's allocator that would have helped, and does it fit on a GPU",
    .purpose =
        "TRACE is a snapshot of PyTorch (.pickle, also .xz, .gz, .zst) or a trace database. With --attach it is a "
        "training that runs, whose history PyTorch keeps for that time, as by varve attach --torch; it goes on, and "
        "nothing is left of the recording. Requests are replayed "
        "under many settings: expandable_segments, max_split_size_mb by the sizes that occur, "
        "roundup_power2_divisions, garbage_collection_threshold where there is a limit, per_process_memory_fraction "
        "with --capacity, and pairs of what did best. At most three that help are printed: the line to set, what it "
        "would have cost beside what was recorded, and what is still lost to which cause. With --capacity also whether "
        "the program fits on a GPU of that size, by how much it misses, and which call sites' memory would have to go.",
    .examples = "  varve advise snapshot.pickle\n"
                "  varve advise --capacity 24G snapshot.pickle.xz\n"
                "  varve advise --json run.db\n"
                "  varve advise --attach 4711 --for 30 --capacity 80G    # a training that runs\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_max = 1,
    .check = command_advise_check,
    .run = command_advise_run,
};
