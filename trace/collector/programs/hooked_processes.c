/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that has not allocated since it was forked is known to nobody; what it has mapped is seen. Called by
 * attach_run.c and detach.c.
 */
#include "trace/collector/programs/attach_run.h"

#include "base/proc_file.h"
#include "trace/collector/session/mapped_recordings.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

void hooked_each(uint64_t trace_id, uint64_t since_ticks, void (*take)(void *context, int32_t pid), void *context)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    struct session_mapped mapped;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const int32_t pid = (int32_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && proc_file_started(pid) >= since_ticks && session_mapped_find(pid, &mapped) &&
            mapped.trace_id == trace_id) {
            take(context, pid);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}
