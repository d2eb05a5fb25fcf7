/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code that emits asks first: is that kind of record wanted, and from where was I called.
 */
#include "trace/recorder/emit.h"
#include "trace/recorder/guest/reentrant.h"
#include "trace/recorder/session.h"
#include "trace/recorder/stacks/callsite.h"
#include "trace/recorder/stacks/native/stack.h"
#include "trace/format/session.h"
#include "trace/trace.h"

#include <stddef.h>

bool varve_records_wanted(unsigned records)
{
    static bool has_looked;

    if (!__atomic_load_n(&has_looked, __ATOMIC_ACQUIRE)) {
        recorder_prepare();
        __atomic_store_n(&has_looked, true, __ATOMIC_RELEASE);
    }
    return recorder_session() != NULL && (recorder_session()->records & records) != 0;
}

uint32_t varve_callsite_here(void)
{
    const struct session_control *session = recorder_session();
    const uintptr_t *frame = __builtin_frame_address(0);
    struct callsite_start start;

    if (session == NULL || session->stacks == SESSION_STACKS_NONE || recorder_foreign_depth > 0) {
        return 0;
    }
    start = (struct callsite_start){.pc = frame[1], .sp = (uintptr_t)(frame + 2), .fp = frame[0]};
    return callsite_capture_borrowing(&start);
}
