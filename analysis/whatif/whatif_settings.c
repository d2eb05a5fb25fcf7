/* SPDX-License-Identifier: Apache-2.0 */
/* What can't be is found before anything is played: an allocator with each policy is opened, and closed again. */
#include "analysis/whatif/whatif_settings.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- policies ---- */

static const char *usual_policy(void)
{
    return varve_alloc_policies()[0];
}

void whatif_setting_policy(const struct whatif_setting *setting, char *name, size_t name_bytes,
                           const char **options_out)
{
    const char *policy = setting->policy != NULL ? setting->policy : usual_policy();
    size_t length = strcspn(policy, ":");
    snprintf(name, name_bytes, "%.*s", (int)length, policy);
    *options_out = policy[length] == ':' ? policy + length + 1 : "";
}

static void list_policies(char *buffer, size_t bytes, const char *between)
{
    buffer[0] = '\0';
    size_t used = 0;
    for (const char *const *name = varve_alloc_policies(); *name != NULL && used < bytes; name++) {
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%s", used > 0 ? between : "", *name);
    }
}

static int whatif_settings_check_policy(const char *policy, struct varve_message *message)
{
    struct whatif_setting setting = {.policy = policy};
    const struct varve_sim_options sim = {.capacity_bytes = 0};
    struct varve_message reason = {""};
    const char *ignored;
    char name[64];
    whatif_setting_policy(&setting, name, sizeof(name), &ignored);
    char list[512];
    for (const char *const *known = varve_alloc_policies(); strcmp(name, *known) != 0;) {
        if (*++known == NULL) {
            list_policies(list, sizeof(list), ", ");
            return varve_message_set(message, VARVE_ERROR_INVALID, "there is no policy '%s'; there are %s", name, list);
        }
    }
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.policy = policy;
    int error = varve_sim_open(&sim, &options.device, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_alloc *alloc;
    error = varve_alloc_open(&options, &alloc, &reason);
    if (error == VARVE_OK) {
        varve_alloc_close(alloc);
    }
    options.device->ops->close(options.device);
    return error == VARVE_OK ? VARVE_OK
                             : varve_message_set(message, VARVE_ERROR_INVALID, "policy '%s': %s", policy,
                                                 reason.text[0] != '\0' ? reason.text : varve_strerror(error));
}

/* Split `names` at its commas into `policies`; the usual one comes first. */
static int split_policies(char *names, const char ***policies_out, size_t *count_out, struct varve_message *message)
{
    size_t count = 0, capacity = 0, usual = strlen(usual_policy());
    const char **policies = NULL;
    char *save = NULL;
    int error = VARVE_OK;
    for (char *name = strtok_r(names, ",", &save); name != NULL && error == VARVE_OK;
         name = strtok_r(NULL, ",", &save)) {
        error = whatif_settings_check_policy(name, message);
        *MEMORY_ADD(policies, count, capacity) = name;
    }
    if (error == VARVE_OK && count == 0) {
        error = varve_message_set(message, VARVE_ERROR_INVALID, "no policy is named");
    }
    for (size_t i = 1; i < count; i++) {
        if (strncmp(policies[i], usual_policy(), usual) == 0 && policies[i][usual] == '\0' &&
            strcmp(policies[0], usual_policy()) != 0) {
            const char *found = policies[i];
            memmove(policies + 1, policies, i * sizeof(*policies));
            policies[0] = found;
        }
    }
    *policies_out = policies;
    *count_out = count;
    return error;
}

/* ---- all of them ---- */

static int check_confs(const struct whatif_grid *grid, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < grid->conf_count && error == VARVE_OK; i++) {
        struct varve_alloc_config ignored;
        error = varve_alloc_config_parse(grid->confs[i], &ignored, message);
    }
    return error;
}

static size_t at_least_one(size_t count)
{
    return count > 0 ? count : 1;
}

static void combine(const struct whatif_grid *grid, const char *const *policies, size_t policy_count,
                    struct whatif_settings *settings)
{
    size_t confs = at_least_one(grid->conf_count), limits = at_least_one(grid->limit_count);
    size_t capacities = at_least_one(grid->capacity_count);
    settings->count = policy_count * confs * limits * capacities;
    settings->items = memory_resize(NULL, settings->count * sizeof(*settings->items));
    for (size_t i = 0; i < settings->count; i++) {
        size_t capacity = i % capacities, limit = i / capacities % limits;
        size_t conf = i / capacities / limits % confs;
        settings->items[i] = (struct whatif_setting){
            .policy = policies[i / capacities / limits / confs],
            .conf = grid->conf_count > 0 ? grid->confs[conf] : NULL,
            .memory_limit = grid->limit_count > 0 ? grid->limits[limit] : 0,
            .capacity = grid->capacity_count > 0 ? grid->capacities[capacity] : 0,
        };
    }
}

int whatif_settings_make(const struct whatif_grid *grid, struct whatif_settings *settings_out,
                         struct varve_message *message)
{
    int error = check_confs(grid, message);
    *settings_out = (struct whatif_settings){0};
    if (error != VARVE_OK) {
        return error;
    }
    char all[512];
    list_policies(all, sizeof(all), ",");
    settings_out->names =
        memory_copy_text(grid->policies == NULL || strcmp(grid->policies, "all") == 0 ? all : grid->policies);
    const char **policies = NULL;
    size_t policy_count = 0;
    error = split_policies(settings_out->names, &policies, &policy_count, message);
    if (error == VARVE_OK) {
        combine(grid, policies, policy_count, settings_out);
    } else {
        whatif_settings_free(settings_out);
    }
    free(policies);
    return error;
}

void whatif_settings_free(struct whatif_settings *settings)
{
    free(settings->items);
    free(settings->names);
    *settings = (struct whatif_settings){0};
}

void whatif_setting_name(const struct whatif_setting *setting, char *buffer, size_t buffer_bytes)
{
    int used = snprintf(buffer, buffer_bytes, "%s%s%s", setting->policy != NULL ? setting->policy : usual_policy(),
                        setting->conf != NULL ? " " : "", setting->conf != NULL ? setting->conf : "");
    if (setting->memory_limit != 0 && used >= 0 && (size_t)used < buffer_bytes) {
        used += snprintf(buffer + used, buffer_bytes - (size_t)used, ", limit %s", BYTES(setting->memory_limit));
    }
    if (setting->capacity != 0 && used >= 0 && (size_t)used < buffer_bytes) {
        snprintf(buffer + used, buffer_bytes - (size_t)used, ", on %s", BYTES(setting->capacity));
    }
}
