/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that has not allocated since it was forked is known to nobody; what it has mapped is seen. Called by
 * attach_run.c and detach.c.
 */
#include "trace/collector/programs/attach_run.h"

#include "base/proc_file.h"
#include "trace/collector/session/mapped_recordings.h"

#include <unistd.h>

struct hooked {
    uint64_t trace_id, since_ticks;
    void (*take)(void *context, int32_t pid);
    void *context;
};

static bool take_hooked(void *context, int32_t pid)
{
    const struct hooked *hooked = context;
    struct session_mapped mapped;
    if (pid != getpid() && proc_file_started(pid) >= hooked->since_ticks && session_mapped_find(pid, &mapped) &&
        mapped.trace_id == hooked->trace_id) {
        hooked->take(hooked->context, pid);
    }
    return false; /* all of them */
}

void hooked_each(uint64_t trace_id, uint64_t since_ticks, void (*take)(void *context, int32_t pid), void *context)
{
    struct hooked hooked = {trace_id, since_ticks, take, context};
    (void)proc_file_search(0, take_hooked, &hooked);
}
