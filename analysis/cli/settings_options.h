/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands about many settings have in common: options that name policies, configurations, limits and
 * capacities, and a trace that is read for them.
 */
#ifndef VARVE_ANALYSIS_CLI_SETTINGS_OPTIONS_H
#define VARVE_ANALYSIS_CLI_SETTINGS_OPTIONS_H

#include "analysis/cli/command.h"
#include "analysis/whatif/live_demand.h"
#include "analysis/whatif/whatif_settings.h"

struct cJSON;
struct progress;
struct table;

enum { GRID_NAME_BYTES = 512 }; /* for whatif_setting_name */

struct grid_options {
    const char *policies;
    struct option_texts confs, limits, capacities;
    bool json, csv, quiet;
};

/* A trace and what all settings share. */
struct grid_trace {
    const char *path;
    struct history *history;
    struct whatif *whatif;
    struct whatif_demand demand;
};

/* An answer about one trace, in three forms; `answer` is the command's. */
struct grid_printer {
    const char *csv_header; /* without the end of the line */
    void (*text)(FILE *out, const void *answer);
    struct cJSON *(*json)(const void *answer, size_t index); /* of a setting, in the answer's order */
    void (*csv)(FILE *out, const void *answer, size_t index);
};

/* The command's run over one trace: it plays, and hands its answer to grid_print. */
struct grid_run {
    struct command_context *context;
    const struct grid_options *options;
    const struct grid_printer *printer;
    struct whatif_settings settings;
    struct grid_trace trace;   /* that is at work */
    struct progress *progress; /* of it */
    const void *values;        /* the command's */
    struct cJSON *answer;      /* the object of the one setting of one trace, or an array */
    bool is_one;
};

/// All operands, by `play`. Returns the exit status. Errors are of options, of reading and of replaying.
int grid_run(struct command_context *context, const struct operands *operands, const struct grid_options *options,
             const void *values, const struct grid_printer *printer,
             int (*play)(struct grid_run *run, struct varve_message *message));
/// From `play`: the answer about the trace at work.
void grid_print(struct grid_run *run, const void *answer);
/// A cell with the setting's name.
void grid_add_name(struct table *table, const struct whatif_setting *setting);
/// Keys that say which setting of which trace an object is about; those that are the default are left out.
void grid_setting_json(struct cJSON *object, const char *path, const struct whatif_setting *setting);

#endif
