/* SPDX-License-Identifier: Apache-2.0 */
/* Control pages and call-site files of a rebuild, under the names that the collector looks for. Called by
 * rebuild_finish.c. */
#include "trace/import/rebuild.h"

#include "trace/collector/collector.h"
#include "base/error.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void rebuild_directory_control_fill(const struct rebuild_process *process, struct process_control *control)
{
    const struct varve_sink_process *from = &process->description;
    const uint32_t state = !process->has_end                          ? PROCESS_STATE_RUNNING
                           : process->end == VARVE_SINK_END_EXITED    ? PROCESS_STATE_EXITED
                           : process->end == VARVE_SINK_END_EXECUTING ? PROCESS_STATE_EXECUTING
                                                                      : 0; /* nobody knows how */
    memset(control, 0, sizeof(*control));
    control->magic = PROCESS_MAGIC;
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = process->number;
    control->parent_id = from->parent;
    control->pid = process->pid;
    control->parent_pid = from->parent_pid;
    control->rank = from->rank;
    control->start_ticks_proc = from->start_ticks_proc;
    control->start_ticks = process->is_described ? from->start_ticks : process->first_ticks;
    control->state = state;
    control->ring_count = 1;
    control->rings_made = process->rings;
    if (process->is_described) {
        snprintf(control->executable, sizeof(control->executable), "%s", process->executable);
        snprintf(control->command_line, sizeof(control->command_line) - 1, "%s", process->command_line);
    }
    if (process->exec_path != NULL) {
        snprintf(control->exec_path, sizeof(control->exec_path), "%s", process->exec_path);
    }
}

int rebuild_process_write(const struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message)
{
    struct process_control *control = malloc(PROCESS_CONTROL_BYTES);
    if (control == NULL) {
        return rebuild_no_memory(message);
    }
    rebuild_directory_control_fill(process, control);
    char path[REBUILD_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/p%u", rebuild->folder, process->number);
    int error = rebuild_file_write(path, control, sizeof(*control), 0, message);
    free(control);
    if (error == VARVE_OK && truncate(path, PROCESS_CONTROL_BYTES) != 0) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size", path);
    }
    char callsites[REBUILD_PATH_BYTES];
    if (error == VARVE_OK && process->callsites.has_file) {
        rebuild_callsites_path(rebuild, process->file, callsites, sizeof(callsites));
        snprintf(path, sizeof(path), "%s/p%u.sites", rebuild->folder, process->number);
        if (rename(callsites, path) != 0) {
            error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be renamed", callsites);
        }
    }
    return error;
}
