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
struct table;

enum { GRID_NAME_BYTES = 512 }; /* for whatif_setting_name */

struct grid_options {
    const char *policies;
    struct option_texts confs, limits, capacities;
};

/* A trace and what all settings share. */
struct grid_trace {
    const char *path;
    struct history *history;
    struct whatif *whatif;
    struct whatif_demand demand;
};

/// Errors: VARVE_ERROR_INVALID, with what is wrong in which option. The caller owes
/// whatif_settings_free after VARVE_OK.
int grid_settings(const struct grid_options *options, struct whatif_settings *settings_out,
                  struct varve_message *message);
/// Errors: those of reading and replaying; the message begins with the path. The caller owes grid_close after VARVE_OK.
int grid_open(struct grid_trace *trace, const char *path, struct progress *progress, struct varve_message *message);
void grid_close(struct grid_trace *trace);
/// A cell with the setting's name.
void grid_add_name(struct table *table, const struct whatif_setting *setting);
/// Keys that say which setting of which trace an object is about; those that are the default are left out.
void grid_setting_json(struct cJSON *object, const char *path, const struct whatif_setting *setting);
/// One object is the answer by itself, several are an array: `answer` begins NULL. Takes `object`.
void grid_add_json(struct cJSON **answer, bool is_one, struct cJSON *object);

#endif
