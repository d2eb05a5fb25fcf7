/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/cli/settings_options.h"

#include "analysis/cli/options.h"
#include "analysis/history/history_read.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "base/error.h"

#define NAME_COLUMNS 44

static int read_bytes(const struct option_texts *texts, const char *option, uint64_t *bytes_out,
                      struct varve_message *message)
{
    for (int i = 0; i < texts->count; i++) {
        int64_t bytes = 0;
        if (!option_bytes(texts->items[i], &bytes) || bytes < 1) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be bytes such as 512M or 24G, not '%s'",
                                     option, texts->items[i]);
        }
        bytes_out[i] = (uint64_t)bytes;
    }
    return VARVE_OK;
}

static int grid_settings(const struct grid_options *options, struct whatif_settings *settings_out,
                         struct varve_message *message)
{
    uint64_t limits[OPTION_TEXTS_MAX], capacities[OPTION_TEXTS_MAX];
    struct whatif_grid grid = {
        .policies = options->policies,
        .confs = options->confs.items,
        .limits = limits,
        .capacities = capacities,
        .conf_count = (size_t)options->confs.count,
        .limit_count = (size_t)options->limits.count,
        .capacity_count = (size_t)options->capacities.count,
    };
    int error = read_bytes(&options->limits, "memory-limit", limits, message);
    VARVE_THEN(error, read_bytes(&options->capacities, "capacity", capacities, message));
    return error == VARVE_OK ? whatif_settings_make(&grid, settings_out, message) : error;
}

static void grid_close(struct grid_trace *trace)
{
    whatif_close(trace->whatif);
    history_free(trace->history);
    *trace = (struct grid_trace){0};
}

/* The message begins with the path. */
static int grid_open(struct grid_trace *trace, const char *path, struct progress *progress,
                     struct varve_message *message)
{
    struct varve_message reason = {""};
    *trace = (struct grid_trace){.path = path};
    int error = history_read(path, &trace->history, progress, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = whatif_demand_load(trace->history, &trace->demand, &reason);
    VARVE_THEN(error, whatif_open(trace->history, &trace->whatif, &reason));
    if (error != VARVE_OK) {
        grid_close(trace);
        return varve_message_set(message, error, "%s: %s", path,
                                 reason.text[0] != '\0' ? reason.text : varve_strerror(error));
    }
    return VARVE_OK;
}

void grid_add_name(struct table *table, const struct whatif_setting *setting)
{
    char name[GRID_NAME_BYTES];
    whatif_setting_name(setting, name, sizeof(name));
    char cut[4 * NAME_COLUMNS];
    format_head(cut, sizeof(cut), name, NAME_COLUMNS);
    table_add(table, cut);
}

void grid_setting_json(struct cJSON *object, const char *path, const struct whatif_setting *setting)
{
    const char *options;
    char name[64];
    whatif_setting_policy(setting, name, sizeof(name), &options);
    json_text(object, "trace", path);
    json_text(object, "policy", name);
    if (options[0] != '\0') {
        json_text(object, "options", options);
    }
    if (setting->conf != NULL) {
        json_text(object, "conf", setting->conf);
    }
    if (setting->memory_limit != 0) {
        json_integer(object, "memory_limit", (int64_t)setting->memory_limit);
    }
    if (setting->capacity != 0) {
        json_integer(object, "capacity", (int64_t)setting->capacity);
    }
}

void grid_print(struct grid_run *run, const void *answer)
{
    FILE *out = run->context->out;
    progress_end(run->progress);
    for (size_t i = 0; i < run->settings.count; i++) {
        if (run->options->json && run->is_one) {
            run->answer = run->printer->json(answer, i);
        } else if (run->options->json) {
            run->answer = run->answer == NULL ? json_array() : run->answer;
            json_append(run->answer, run->printer->json(answer, i));
        } else if (run->options->csv) {
            run->printer->csv(out, answer, i);
        }
    }
    if (!run->options->json && !run->options->csv) {
        run->printer->text(out, answer);
    }
}

int grid_run(struct command_context *context, const struct operands *operands, const struct grid_options *options,
             const void *values, const struct grid_printer *printer,
             int (*play)(struct grid_run *run, struct varve_message *message))
{
    struct progress progress;
    struct varve_message message = {""};
    struct grid_run run = {
        .context = context, .options = options, .printer = printer, .progress = &progress, .values = values};
    int error = grid_settings(options, &run.settings, &message);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    context->is_exact = options->csv;
    run.is_one = run.settings.count * (size_t)operands->count == 1;
    fprintf(context->out, "%s%s", options->csv ? printer->csv_header : "", options->csv ? "\n" : "");
    for (int i = 0; i < operands->count && error == VARVE_OK; i++) {
        fputs(i > 0 && !options->json && !options->csv ? "\n" : "", context->out);
        command_progress(context, &progress, options->quiet);
        error = grid_open(&run.trace, operands->items[i], &progress, &message);
        if (error == VARVE_OK) {
            command_say_inferred(context, operands->items[i], run.trace.history);
            error = play(&run, &message);
            grid_close(&run.trace);
        }
        progress_end(&progress);
    }
    whatif_settings_free(&run.settings);
    if (run.answer != NULL) {
        json_print(run.answer, context->out);
    }
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}
