/* SPDX-License-Identifier: Apache-2.0 */
/* `varve config`: what the user's files set (base/user_config.h), whence, and whether all of it can be read. */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/number_format.h"
#include "analysis/base/table.h"
#include "analysis/base/user_config.h"
#include "analysis/query/hidden_lines.h"
#include "analysis/report/leak_suppress.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdlib.h>
#include <string.h>

struct config_values {
    bool json;
};

static const struct option_spec config_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct config_values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- can all of it be read? ---- */

static bool is_list(const char *section)
{
    return strcmp(section, "plumbing") == 0 || strcmp(section, "suppressions") == 0;
}

static int config_check_entry(const struct config_entry *entry, struct varve_message *message)
{
    const struct command *command = command_find(entry->section);
    if (command == NULL) {
        char reason[256];
        snprintf(reason, sizeof(reason), "[%.100s] is no command, nor plumbing or suppressions", entry->section);
        return user_config_refuse(entry, reason, message);
    }
    struct operands operands = {0};
    void *values = command_values(command);
    const int error = options_set(command, entry, values, &operands, message);
    free(values);
    return error;
}

static int config_check(const struct user_config *config, struct varve_message *message)
{
    struct varve_plumbing *plumbing = NULL;
    struct suppressions *suppressions = NULL;
    int error = hidden_patterns(NULL, 0, &plumbing, message);
    VARVE_THEN(error, suppressions_load(&suppressions, NULL, message));
    for (size_t i = 0; i < config->count && error == VARVE_OK; i++) {
        error = is_list(config->entries[i].section) ? VARVE_OK : config_check_entry(&config->entries[i], message);
    }
    varve_plumbing_close(plumbing);
    suppressions_free(suppressions);
    return error;
}

/* ---- what holds ---- */

static bool is_repeated(const struct config_entry *entry)
{
    const struct command *command = command_find(entry->section);
    return command == NULL || options_is_list(command, entry->key);
}

/* A later line says something else. */
static bool is_overridden(const struct user_config *config, const struct config_entry *entry)
{
    const struct config_entry *later = entry;
    while (!is_repeated(entry) && (later = user_config_next(config, entry->section, later)) != NULL) {
        if (strcmp(later->key, entry->key) == 0) {
            return true;
        }
    }
    return false;
}

static void print_entries(FILE *out, const struct user_config *config)
{
    static const struct table_column columns[] = {{"section", false}, {"setting", false}, {"from", false}};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < config->count; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (!is_overridden(config, entry)) {
            char text[4096 + 16];
            table_add(&table, entry->section);
            snprintf(text, sizeof(text), "%s = %s", entry->key, entry->value);
            table_add(&table, text);
            snprintf(text, sizeof(text), "%s:%u", entry->file->path, entry->line);
            table_add(&table, text);
        }
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void print_config(FILE *out, const struct user_config *config)
{
    for (size_t i = 0; i < CONFIG_FILES; i++) {
        if (config->files[i].path[0] != '\0') {
            fprintf(out, "%s%s\n", config->files[i].path, config->files[i].is_there ? "" : " (is not there)");
        }
    }
    if (config->files[1].path[0] == '\0') {
        fputs("no varve.ini in this folder or above\n", out);
    }
    fputc('\n', out);
    if (config->count > 0) {
        print_entries(out, config);
    } else {
        fputs("nothing is set: every option is as varve help COMMAND says; varve help config has the form\n", out);
    }
}

static void print_config_json(FILE *out, const struct user_config *config)
{
    struct cJSON *object = json_object(), *files = json_array(), *settings = json_array();
    for (size_t i = 0; i < CONFIG_FILES; i++) {
        if (config->files[i].path[0] != '\0') {
            struct cJSON *file = json_object();
            json_text(file, "path", config->files[i].path);
            json_bool(file, "is_there", config->files[i].is_there);
            json_append(files, file);
        }
    }
    for (size_t i = 0; i < config->count; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (!is_overridden(config, entry)) {
            struct cJSON *setting = json_object();
            json_text(setting, "section", entry->section);
            json_text(setting, "name", entry->key);
            json_text(setting, "value", entry->value);
            json_text(setting, "path", entry->file->path);
            json_integer(setting, "line", entry->line);
            json_append(settings, setting);
        }
    }
    json_add(object, "files", files);
    json_add(object, "settings", settings);
    json_print(object, out);
}

static int command_config_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct config_values *values = values_untyped;
    struct user_config config;
    struct varve_message message = {""};
    (void)operands;
    int error = user_config_load(&config, &message);
    VARVE_THEN(error, config_check(&config, &message));
    if (error == VARVE_OK && values->json) {
        print_config_json(context->out, &config);
    } else if (error == VARVE_OK) {
        print_config(context->out, &config);
    }
    user_config_free(&config);
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_config = {
    .name = "config",
    .arguments = "",
    .summary = "what the files of settings set, and whether they can be read",
    .purpose =
        "Settings are read from ~/.config/varve/config ($XDG_CONFIG_HOME/varve/config) and, behind it, from the "
        "project's varve.ini, in the working folder or the nearest one above. A section is a command, and its lines "
        "are options without their dashes, those without a value as yes or no: they hold where the command line does "
        "not say otherwise (--NAME=no). Files to write and --force are for the command line only. [plumbing] has "
        "patterns of frames that are not the user's own (function, file, module, library, framework, user), "
        "[suppressions] leaks that are known (leak = PATTERN). Of an option the last line counts; patterns, and "
        "options that may be repeated, are added up. Lines that begin with ; or # are remarks, and so is what follows "
        "a blank and ;. VARVE_CONFIG names another file in place of both; empty: none.",
    .examples = "  varve config\n"
                "  varve config --json\n",
    .options = config_options,
    .values_bytes = sizeof(struct config_values),
    .run = command_config_run,
};
