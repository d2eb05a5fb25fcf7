/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`: what this machine offers and what is missing; each line says what the lack means and what
 * to install. The checks are the other files here.
 */
#include "analysis/cli/doctor/doctor.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"

#include <stdarg.h>
#include <stdio.h>

struct values {
    bool json;
};

static const struct option_spec options[] = {
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *const state_names[] = {"ok", "missing", "warning"};

void doctor_add(struct doctor_lines *lines, const char *key, enum doctor_state state, const char *effect,
                const char *remedy, const char *found_format, ...)
{
    if (lines->count == sizeof(lines->items) / sizeof(lines->items[0])) {
        return;
    }
    struct doctor_line *line = &lines->items[lines->count++];
    *line = (struct doctor_line){.key = key, .state = state};
    if (state != DOCTOR_OK) {
        snprintf(line->effect, sizeof(line->effect), "%s", effect);
        snprintf(line->remedy, sizeof(line->remedy), "%s", remedy);
    }
    va_list arguments;
    va_start(arguments, found_format);
    vsnprintf(line->found, sizeof(line->found), found_format, arguments);
    va_end(arguments);
}

static void doctor_print_text(FILE *out, const struct doctor_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        const struct doctor_line *line = &lines->items[i];
        fprintf(out, "%-8s %-14s ", state_names[line->state], line->key);
        format_print_safe(out, line->found);
        fputc('\n', out);
        if (line->effect[0] != '\0') {
            fprintf(out, "%24simpact: %s\n", "", line->effect);
        }
        if (line->remedy[0] != '\0') {
            fprintf(out, "%24sremedy: %s\n", "", line->remedy);
        }
    }
}

static struct cJSON *lines_json(const struct doctor_lines *lines)
{
    struct cJSON *object = json_object();
    struct cJSON *checks = json_array();
    for (size_t i = 0; i < lines->count; i++) {
        const struct doctor_line *line = &lines->items[i];
        struct cJSON *check = json_object();
        json_text(check, "key", line->key);
        json_text(check, "state", state_names[line->state]);
        json_text(check, "found", line->found);
        json_text(check, "effect", line->effect[0] != '\0' ? line->effect : NULL);
        json_text(check, "remedy", line->remedy[0] != '\0' ? line->remedy : NULL);
        json_append(checks, check);
    }
    json_add(object, "checks", checks);
    return object;
}

static int doctor_run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct doctor_lines lines = {.count = 0};
    (void)operands;
    doctor_check_machine(&lines);
    doctor_check_libraries(&lines);
    doctor_check_gpu(&lines);
    doctor_check_lttng(&lines);
    doctor_check_leftovers(&lines);
    if (values->json) {
        json_print(lines_json(&lines), context->out);
    } else {
        doctor_print_text(context->out, &lines);
    }
    return 0;
}

const struct command command_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "what this machine offers, and what is missing",
    .purpose = "Looks at the machine: kernel, clock, disk space, whether processes may be attached to, debug "
               "information, Python; the GPU, its driver, CUPTI and PyTorch; LTTng, and recordings that were killed. "
               "Each line is ok, missing or a warning, with what it means and what to do about it.",
    .examples = "  varve doctor\n"
                "  varve doctor --json | jq '.checks[] | select(.state != \"ok\")'\n",
    .options = options,
    .values_bytes = sizeof(struct values),
    .run = doctor_run,
};
