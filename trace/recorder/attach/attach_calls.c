/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that begins and ends while the program runs: the session, and what each recorder does for it. A thread
 * that is in a hook at its end goes on in it; the library stays loaded for good.
 */
#include "trace/recorder/attach/attach_calls.h"
#include "trace/recorder/attach/attach_python.h"
#include "trace/recorder/cuda/cuda_attach.h"
#include "trace/recorder/emit_slow.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/format/attach_format.h"
#include "trace/emit.h"

static enum attach_answer attach_begin(const char *directory)
{
    if (!heap_is_late) {
        return ATTACH_NOT_LATE;
    }
    if (heap_state != HEAP_STATE_OFF || recorder_session() != NULL) {
        return ATTACH_RECORDED;
    }
    if (!recorder_session_begin(directory) || !recorder_prepare()) {
        return ATTACH_NO_SESSION;
    }
    preload_is_on = true;
    (void)recorder_process_attach();
    if (varve_records_wanted(VARVE_RECORDS_HEAP)) {
        heap_attach_begin();
    } else {
        heap_attach_watch_unloading();
    }
    cuda_attach_begin();
    attach_python_begin(directory);
    return ATTACH_DONE;
}

int varve_preload_attach(const char *directory)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    enum attach_answer answer = attach_begin(directory);
    recorder_reentrant_end(&saved);
    return (int)answer;
}

int varve_preload_detach(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    heap_attach_end();
    cuda_attach_end();
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}

int varve_preload_release(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    recorder_threads_release();
    callsite_release();
    device_names_release();
    cuda_resources_release();
    recorder_session_end();
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}
