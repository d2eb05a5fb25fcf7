/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve dtr`: a log of operators played under a memory budget. Options, and which of three answers it is: one play,
 * what the log is, or a sweep. The work is done in dtr/.
 */
#include "analysis/dtr/dtr_play.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/dtr/dtr_print.h"
#include "analysis/base/output_file.h"
#include "analysis/base/progress.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 100000
#define FACTOR_MAX 1e6
#define RATIO_MAX 2.0 /* a number of a sweep up to this one is a ratio, unless it has a suffix */
#define OVERVIEW_POINTS 10
#define BISECTION_STEPS 1000 /* of the peak: as exactly the smallest budget is looked for */
#define HEURISTICS_MAX 64

static const char *const dealloc_names[] = {"eager", "ignore", "banish", NULL};
static const char *const mode_names[] = {"exact", "allocator", NULL};
static const char *const search_names[] = {"scan", "sample", "kinetic", NULL};

struct values {
    const char *heuristic;
    const char *budget;
    const char *ratio;
    const char *remat_limit;
    const char *sweep;
    const char *policy;
    const char *conf;
    const char *plot;
    const char *output;
    int64_t seed, jobs;
    int dealloc, search; /* enum varve_remat_dealloc, varve_remat_search */
    int mode;            /* 1: allocator */
    bool json;
    bool force;
};

static const struct values defaults = {.heuristic = "dtr", .remat_limit = "1.0"};

static const struct option_spec options[] = {
    {"heuristic", 'H', OPTION_TEXT, "NAME",
     "which storage is evicted: dtr (default), dtr-eq, dtr-local, msps, lru, size, …; any other word lists all",
     offsetof(struct values, heuristic), 0, 0, NULL},
    {"budget", 0, OPTION_TEXT, "BYTES|none", "play once, with so much memory, such as 4G",
     offsetof(struct values, budget), 0, 0, NULL},
    {"ratio", 'r', OPTION_TEXT, "R", "play once, with this share of the log's own peak", offsetof(struct values, ratio),
     0, 0, NULL},
    {"sweep", 0, OPTION_TEXT, "LO:HI:STEP", "play many budgets: bytes, or ratios such as 0.1:1:0.01",
     offsetof(struct values, sweep), 0, 0, NULL},
    {"dealloc", 0, OPTION_CHOICE, "POLICY",
     "what is released is evicted (eager), stays (ignore), or goes for good (banish)", offsetof(struct values, dealloc),
     0, 0, dealloc_names},
    {"search", 0, OPTION_CHOICE, "HOW",
     "look at all candidates (scan), at some (sample), or at a tournament's winner (kinetic)",
     offsetof(struct values, search), 0, 0, search_names},
    {"remat-limit", 0, OPTION_TEXT, "FACTOR|none",
     "stop when recomputation costs more than this share of the program (default 1.0)",
     offsetof(struct values, remat_limit), 0, 0, NULL},
    {"mode", 0, OPTION_CHOICE, "MODE",
     "storages are their sizes (exact), or blocks of the caching allocator, whose reserved bytes the budget limits "
     "(allocator)",
     offsetof(struct values, mode), 0, 0, mode_names},
    {"policy", 'P', OPTION_TEXT, "NAME", "of the allocator: pytorch (default), or another one",
     offsetof(struct values, policy), 0, 0, NULL},
    {"conf", 'c', OPTION_TEXT, "STRING", "of the allocator: settings in PyTorch's syntax",
     offsetof(struct values, conf), 0, 0, NULL},
    {"seed", 0, OPTION_INTEGER, "N", "of random choices", offsetof(struct values, seed), 0, INT64_MAX, NULL},
    {"jobs", 'j', OPTION_INTEGER, "N", "threads that play at the same time (default: the processors)",
     offsetof(struct values, jobs), 1, 256, NULL},
    {"plot", 0, OPTION_TEXT, "FILE", "draw the sweep: FILE.svg, or FILE.png (needs rsvg-convert)",
     offsetof(struct values, plot), 0, 0, NULL},
    {"output", 'o', OPTION_TEXT, "DB", "write what one play did to this trace database",
     offsetof(struct values, output), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB or FILE if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- options ---- */

static int find_heuristic(const char *name, const struct varve_remat_heuristic **heuristic_out,
                          struct varve_message *message)
{
    const char *names[HEURISTICS_MAX] = {NULL};
    *heuristic_out = varve_remat_heuristic_find(name);
    if (*heuristic_out != NULL) {
        return VARVE_OK;
    }
    char list[512] = "";
    size_t count = 0, used = 0;
    for (const struct varve_remat_heuristic *h = varve_remat_heuristics();
         h->name != NULL && count + 1 < HEURISTICS_MAX && used < sizeof(list); h++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", count > 0 ? ", " : "", h->name);
        names[count++] = h->name;
    }
    const char *nearest = option_suggest(name, names);
    if (nearest != NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "there is no heuristic '%s'; did you mean %s?", name,
                                 nearest);
    }
    return varve_message_set(message, VARVE_ERROR_INVALID, "there is no heuristic '%s'; there are %s", name, list);
}

/* A number from 0 to FACTOR_MAX, with nothing behind it but `end`. */
static bool parse_factor(const char *text, char end, double *value_out, const char **rest_out)
{
    char *rest;
    *value_out = strtod(text, &rest);
    *rest_out = rest;
    return rest != text && *rest == end && *value_out >= 0 && *value_out <= FACTOR_MAX;
}

static int fail_option(const char *option, const char *wanted, const char *text, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be %s, not '%s'", option, wanted, text);
}

/* Of a log that is large enough no share is a limit. */
static uint64_t command_dtr_share_of(double factor, uint64_t whole)
{
    double part = factor * (double)whole;
    return part < 0x1p63 ? (uint64_t)part : VARVE_REMAT_UNLIMITED;
}

/* ---- what is asked for ---- */

struct range {
    double low, high, step; /* ratios, or bytes */
    bool is_ratio;
};

/* As far as it can be known before the log is read. */
struct request {
    double ratio, limit; /* < 0: none */
    uint64_t budget;
    struct range sweep;
};

static int fail_sweep(const char *text, const char *why, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_INVALID,
                             "--sweep must be LO:HI:STEP, such as 0.1:1:0.01 or 1G:4G:16M, not '%s'%s", text, why);
}

static bool read_three_bytes(const char *text, double values_out[3])
{
    char copy[128];
    if (strlen(text) >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, strlen(text) + 1);
    char *save = NULL;
    char *word = strtok_r(copy, ":", &save);
    for (int i = 0; i < 3; i++, word = strtok_r(NULL, ":", &save)) {
        int64_t bytes;
        if (word == NULL || !option_bytes(word, &bytes)) {
            return false;
        }
        values_out[i] = (double)bytes;
    }
    return word == NULL;
}

static int command_dtr_read_range(const char *text, struct range *range_out, struct varve_message *message)
{
    const char *rest;
    double three[3];
    bool are_ratios = parse_factor(text, ':', &three[0], &rest) && parse_factor(rest + 1, ':', &three[1], &rest) &&
                      parse_factor(rest + 1, '\0', &three[2], &rest) &&
                      (strchr(text, '.') != NULL || three[1] <= RATIO_MAX);
    if (!are_ratios && !read_three_bytes(text, three)) {
        return fail_sweep(text, "", message);
    }
    *range_out = (struct range){.low = three[0], .high = three[1], .step = three[2], .is_ratio = are_ratios};
    if (range_out->low > range_out->high || range_out->step <= 0) {
        return fail_sweep(text, ": LO must not be above HI, and STEP not 0", message);
    }
    if ((range_out->high - range_out->low) / range_out->step >= POINTS_MAX) {
        return fail_sweep(text, ": that is more than 100,000 budgets", message);
    }
    return VARVE_OK;
}

static int read_request(const struct values *values, struct request *request_out, struct varve_message *message)
{
    const char *budget = values->budget, *limit = values->remat_limit;
    *request_out = (struct request){.ratio = -1, .limit = -1, .budget = VARVE_REMAT_UNLIMITED};
    const char *rest;
    if (values->ratio != NULL && !parse_factor(values->ratio, '\0', &request_out->ratio, &rest)) {
        return fail_option("ratio", "a number such as 0.5", values->ratio, message);
    }
    if (strcmp(limit, "none") != 0 && !parse_factor(limit, '\0', &request_out->limit, &rest)) {
        return fail_option("remat-limit", "a factor such as 1.0, or none", limit, message);
    }
    int64_t bytes = 0;
    if (budget != NULL && strcmp(budget, "none") != 0) {
        if (!option_bytes(budget, &bytes)) {
            return fail_option("budget", "bytes such as 4G, or none", budget, message);
        }
        request_out->budget = (uint64_t)bytes;
    }
    return values->sweep != NULL ? command_dtr_read_range(values->sweep, &request_out->sweep, message) : VARVE_OK;
}

/* What depends on the log. */
static void apply_request(const struct request *request, const struct dtr_result *baseline, struct dtr_options *play)
{
    play->remat_limit_ns = request->limit < 0
                               ? VARVE_REMAT_UNLIMITED
                               : command_dtr_share_of(request->limit, baseline->counters.model_compute_ns);
    play->budget =
        request->ratio < 0 ? request->budget : command_dtr_share_of(request->ratio, baseline->counters.max_used_bytes);
}

/* Owner: the caller, by free. Ratios that give the same budget are one point. */
static struct dtr_point *make_points(const struct range *range, uint64_t peak, size_t *count_out)
{
    /* of decimal fractions the last step may fall beside HI by a rounding */
    size_t count = (size_t)floor((range->high - range->low) / range->step * (1 + 1e-12) + 1e-9) + 1, kept = 0;
    struct dtr_point *points = memory_resize(NULL, count * sizeof(*points));
    for (size_t i = 0; i < count; i++) {
        double value = range->low + (double)i * range->step;
        uint64_t budget = range->is_ratio ? command_dtr_share_of(value, peak) : (uint64_t)value;
        if (kept == 0 || points[kept - 1].budget != budget) {
            points[kept++] = (struct dtr_point){.budget = budget};
        }
    }
    *count_out = kept;
    return points;
}

/* ---- the three answers ---- */

static int answer_play(struct command_context *context, const struct values *values, const struct dtr_subject *subject,
                       struct varve_message *message)
{
    struct dtr_result result = {.status = DTR_OOM};
    /* for people in words; programs derive it from the figures */
    bool is_hopeless = subject->options->budget < subject->description.bound_bytes && !values->json;
    int error = VARVE_OK;
    if (values->output != NULL) {
        error = dtr_database_write(values->output, values->force, subject->path, subject->log, subject->options,
                                   &result, message);
    } else if (!is_hopeless) {
        error = dtr_play(subject->log, subject->options, &result, message);
    }
    if (error == VARVE_OK && values->json) {
        dtr_print_play_json(context->out, subject, &result);
    } else if (error == VARVE_OK) {
        dtr_print_play(context->out, subject, &result);
    }
    return error;
}

static int answer_sweep(struct command_context *context, const struct values *values, const struct dtr_subject *subject,
                        const struct range *range, struct varve_message *message)
{
    size_t count;

    struct dtr_point *points = make_points(range, subject->baseline.counters.max_used_bytes, &count);
    struct dtr_sweep sweep = {0};
    int error = dtr_sweep_make(subject->log, subject->options, (unsigned)values->jobs, points, count, &sweep, message);
    if (error == VARVE_OK && values->plot != NULL) {
        error = dtr_plot_write(values->plot, values->force, subject, &sweep, message);
    }
    if (error == VARVE_OK && values->json) {
        dtr_print_sweep_json(context->out, subject, &sweep);
    } else if (error == VARVE_OK) {
        dtr_print_sweep(context->out, subject, &sweep);
    }
    dtr_sweep_free(&sweep);
    return error;
}

/* The smallest budget that works between the largest of the points that do not, or the bound, and the next above it. */
static int find_smallest(const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                         struct dtr_point *smallest_out, bool *is_found_out, struct varve_message *message)
{
    uint64_t bound = subject->description.bound_bytes;
    struct dtr_point fails = {.budget = bound > 0 ? bound - 1 : 0};
    size_t first = 0;
    while (first < count && points[first].status != DTR_OK) {
        fails = points[first].budget > fails.budget ? points[first] : fails;
        first++;
    }
    *is_found_out = first < count;
    if (first == count) {
        return VARVE_OK;
    }
    *smallest_out = points[first];
    return dtr_sweep_bisect(subject->log, subject->options,
                            subject->baseline.counters.max_used_bytes / BISECTION_STEPS + 1, &fails, smallest_out,
                            message);
}

static int answer_overview(struct command_context *context, const struct values *values,
                           const struct dtr_subject *subject, struct varve_message *message)
{
    struct dtr_point points[OVERVIEW_POINTS] = {0};
    for (size_t i = 0; i < OVERVIEW_POINTS; i++) {
        points[i].budget =
            (uint64_t)((double)subject->baseline.counters.max_used_bytes * (double)(i + 1) / OVERVIEW_POINTS);
    }
    int error =
        dtr_sweep_points(subject->log, subject->options, (unsigned)values->jobs, points, OVERVIEW_POINTS, message);
    struct dtr_point smallest;
    bool is_found = false;
    VARVE_THEN(error, find_smallest(subject, points, OVERVIEW_POINTS, &smallest, &is_found, message));
    if (error == VARVE_OK && values->json) {
        dtr_print_overview_json(context->out, subject, points, OVERVIEW_POINTS, is_found ? &smallest : NULL);
    } else if (error == VARVE_OK) {
        dtr_print_overview(context->out, subject, points, OVERVIEW_POINTS, is_found ? &smallest : NULL);
    }
    return error;
}

static int command_dtr_answer(struct command_context *context, const struct values *values,
                              const struct request *request, struct dtr_subject *subject, struct dtr_options *play,
                              struct varve_message *message)
{
    int error = dtr_play_baseline(subject->log, play->progress, &subject->baseline, message);
    if (error != VARVE_OK) {
        return error;
    }
    apply_request(request, &subject->baseline, play);
    dtr_describe(subject->log, play->dealloc, &subject->description);
    return values->sweep != NULL ? answer_sweep(context, values, subject, &request->sweep, message)
           : values->budget != NULL || values->ratio != NULL ? answer_play(context, values, subject, message)
                                                             : answer_overview(context, values, subject, message);
}

static const char *wrong_together(const struct values *values)
{
    if ((values->budget != NULL) + (values->ratio != NULL) + (values->sweep != NULL) > 1) {
        return "--budget, --ratio and --sweep are mutually exclusive";
    }
    if (values->mode == 0 && (values->policy != NULL || values->conf != NULL)) {
        return "--policy and --conf are settings of the allocator: they need --mode allocator";
    }
    if (values->plot != NULL && values->sweep == NULL) {
        return "--plot draws a sweep: it needs --sweep LO:HI:STEP";
    }
    if (values->output != NULL && values->budget == NULL && values->ratio == NULL) {
        return "-o writes one play: it needs --budget or --ratio";
    }
    return NULL;
}

static int check_files(const struct values *values, const struct operands *operands, struct varve_message *message)
{
    const char *output = values->plot != NULL ? values->plot : values->output;
    int error = values->plot != NULL ? dtr_plot_check(values->plot, message) : VARVE_OK;
    return error == VARVE_OK && output != NULL
               ? output_check(output, values->force, operands->items, operands->count, message)
               : error;
}

static int read_heuristic(const struct values *values, const struct varve_remat_heuristic **heuristic_out,
                          struct varve_message *message)
{
    int error = find_heuristic(values->heuristic, heuristic_out, message);
    if (error == VARVE_OK && values->mode == 0 &&
        ((*heuristic_out)->is_window || (*heuristic_out)->has_free_neighbours)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "heuristic %s looks at an allocator's free blocks: it needs --mode allocator",
                                 values->heuristic);
    }
    return error;
}

static int read_allocator(const struct values *values, struct dtr_allocator_options *allocator_out,
                          struct varve_message *message)
{
    *allocator_out = (struct dtr_allocator_options){.policy = values->policy};
    varve_alloc_config_init(&allocator_out->config);
    return values->conf == NULL ? VARVE_OK : varve_alloc_config_parse(values->conf, &allocator_out->config, message);
}

static int command_dtr_run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *wrong = wrong_together(values);
    struct varve_message message = {""};
    struct progress progress;
    struct dtr_allocator_options allocator = {.policy = NULL};
    struct dtr_options play = {
        .dealloc = (enum varve_remat_dealloc)values->dealloc,
        .search = (enum varve_remat_search)values->search,
        .seed = (uint64_t)values->seed,
        .allocator = values->mode == 1 ? &allocator : NULL,
        .progress = &progress,
    };
    struct dtr_log *log = NULL;
    if (wrong != NULL) {
        return command_fail(context, "%s", wrong);
    }
    int error = read_heuristic(values, &play.heuristic, &message);
    struct request request;
    error = error != VARVE_OK ? error : read_request(values, &request, &message);
    error = error != VARVE_OK ? error : read_allocator(values, &allocator, &message);
    error = error != VARVE_OK ? error : check_files(values, operands, &message);
    command_progress(context, &progress, false);
    VARVE_THEN(error, dtr_log_read(operands->items[0], &progress, &log, &message));
    if (error == VARVE_OK) {
        struct dtr_subject subject = {.path = operands->items[0], .log = log, .options = &play};
        error = command_dtr_answer(context, values, &request, &subject, &play, &message);
    }
    progress_end(&progress);
    dtr_log_free(log);
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_dtr = {
    .name = "dtr",
    .arguments = "LOG",
    .summary = "how small a memory budget can be, by evicting and recomputing",
    .purpose =
        "LOG is a log of operators as DTR (dynamic tensor rematerialization) writes them: one JSON object a line, "
        "also .xz, .gz, .zst. It is played under memory budgets: what does not fit is evicted, by a heuristic, and "
        "computed again when it is needed. Without --budget, --ratio or --sweep: what the log needs by itself, what "
        "ten budgets cost, and the smallest that was found to work. With one budget: what it costs, and where it "
        "ends if it does not work. A sweep says which budgets work and which do not, what they cost, and the first "
        "eviction that differs between neighbouring budgets. Ratio 1 is the peak of the log without a budget when "
        "everything goes once it is released.",
    .examples = "  varve dtr train.log.xz\n"
                "  varve dtr --ratio 0.4 --heuristic dtr-eq train.log.xz\n"
                "  varve dtr --sweep 0.1:1:0.001 train.log.xz\n"
                "  varve dtr --heuristic dtr-eq --search kinetic long.log.xz    (100,000 operators and more)\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = command_dtr_run,
};
