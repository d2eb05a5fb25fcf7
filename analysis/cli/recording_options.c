/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/cli/recording_options.h"

#include "analysis/base/component_find.h"
#include "analysis/base/number_format.h"
#include "analysis/cli/process_end.h"
#include "trace/record.h"

#include <string.h>

const char *const recording_stacks_names[] = {"none", "native", "python", "all", NULL};
const char *const recording_overflow_names[] = {"spill", "block", "drop", NULL};
const char *const recording_keep_names[] = {"events", "lasting", "allocations", "totals", NULL};

/* While the program runs the terminal is its own. */
void recording_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    if (strcmp(stage, "recording") != 0) {
        progress_step(context, stage, done, total);
    }
}

/* What is missing is said by the collector, which names what it looked for. */
static void find_libraries(struct recording *recording, struct varve_collect_options *collect)
{
    component_find(COMPONENT_PROVIDER, recording->provider, sizeof(recording->provider));
    collect->provider_path = recording->provider;
    component_find(COMPONENT_CUPTI, recording->cupti, sizeof(recording->cupti));
    collect->cupti_path = recording->cupti;
    component_find(COMPONENT_REPLACE, recording->replace, sizeof(recording->replace));
    component_find(COMPONENT_TORCH, recording->torch, sizeof(recording->torch));
    collect->torch_path = recording->torch;
    component_find(COMPONENT_PYTHON, recording->python, sizeof(recording->python));
    char *slash = strrchr(recording->python, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    collect->python_path = recording->python;
}

bool recording_begin(struct command_context *context, const struct recording_options *options,
                     struct recording *recording, struct varve_collect_options *collect)
{
    if ((options->ring_bytes & (options->ring_bytes - 1)) != 0) {
        command_fail(context, "--ring-size must be a power of two, such as 4M");
        return false;
    }
    if (!component_find(COMPONENT_PRELOAD, recording->preload, sizeof(recording->preload))) {
        command_fail(context, "%s is missing: build it, or install varve as a whole", recording->preload);
        return false;
    }
    find_libraries(recording, collect);
    command_progress(context, &recording->progress, options->quiet);
    collect->overflow = (unsigned)options->overflow;
    collect->stacks = (unsigned)options->stacks;
    collect->stack_depth = (unsigned)options->stack_depth;
    collect->stacks_max = (unsigned)options->stacks_max;
    collect->ring_records = (unsigned)(options->ring_bytes / (int64_t)sizeof(struct varve_record));
    collect->spill_bytes_max = (uint64_t)options->spill_bytes;
    collect->keep = options->keep >= 0           ? (unsigned)options->keep
                    : collect->python_allocators ? VARVE_KEEP_LASTING
                                                 : VARVE_KEEP_EVENTS;
    collect->bytes_max = (uint64_t)options->bytes_max;
    collect->replace = options->force;
    collect->quiet = options->quiet;
    collect->preload_path = recording->preload;
    collect->progress = recording_step;
    collect->progress_context = &recording->progress;
    collect->interrupted = process_end_interrupted;
    return true;
}

void recording_observe_torch(struct varve_collect_options *collect)
{
    collect->cuda = true;
    collect->torch = VARVE_TORCH_OBSERVE;
}

void recording_say_hooked(FILE *err, const struct varve_collect_result *result)
{
    if (result->hooked_count == 1) {
        command_say(err, "varve: the recorder is still inside: %s; varve detach %d tries again\n",
                    result->hooked_why.text, result->hooked_pid);
    } else if (result->hooked_count > 1) {
        command_say(err, "varve: the recorder is still inside %s processes: %s; varve detach %d tries again\n",
                    COUNT(result->hooked_count), result->hooked_why.text, result->hooked_pid);
    }
}
