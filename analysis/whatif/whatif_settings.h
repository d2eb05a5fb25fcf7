/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from what a command line says: every policy under every configuration, on every capacity, under every limit.
 */
#ifndef VARVE_ANALYSIS_WHATIF_WHATIF_SETTINGS_H
#define VARVE_ANALYSIS_WHATIF_WHATIF_SETTINGS_H

#include "analysis/whatif/whatif_run.h"

/* Where there is none of a kind, its default is the only one. Borrowed. */
struct whatif_grid {
    const char *policies; /* "NAME,NAME:key=value:…,…"; NULL or "all": all there are */
    const char *const *confs;
    const uint64_t *limits, *capacities;
    size_t conf_count, limit_count, capacity_count;
};

struct whatif_settings {
    struct whatif_setting *items; /* policies outermost, in their order, with the usual one in front */
    size_t count;
    char *names; /* of the policies */
};

/// Owner of `settings_out`: the caller, by whatif_settings_free. Errors: VARVE_ERROR_INVALID (a policy that does not
/// exist, with the list of those that do; an option that it does not take; a configuration that can't be read).
int whatif_settings_make(const struct whatif_grid *grid, struct whatif_settings *settings_out,
                         struct varve_message *message);
void whatif_settings_free(struct whatif_settings *settings);
/// "policy conf, limit 1 GiB, on 2 GiB": for people; parts that are the default are left out.
void whatif_setting_name(const struct whatif_setting *setting, char *buffer, size_t buffer_bytes);
/// The policy's name without its options, and these ("" if there are none, part of the setting's text).
void whatif_setting_policy(const struct whatif_setting *setting, char *name, size_t name_bytes,
                           const char **options_out);

#endif
