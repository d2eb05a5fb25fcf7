/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that begins and ends while the program runs: the session, and what each recorder does for it. A thread
 * that is in a hook at its end goes on in it; the library stays loaded for good.
 */
#include "trace/recorder/attach/attach_calls.h"
#include "trace/recorder/attach/attach_python.h"
#include "trace/guest/elf_entries.h"
#include "trace/recorder/cuda/cuda_attach.h"
#include "trace/recorder/emit_slow.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/format/attach_format.h"
#include "trace/emit.h"

#define ROWS_MAX 192U

/* What is in entries of the loaded objects: put there, and taken out, in one walk. */
static struct elf_replacement rows[ROWS_MAX];
static unsigned row_count;

static void hooks_in(bool is_heap)
{
    if (is_heap) {
        heap_attach_prepare();
    }
    row_count = heap_attach_rows(is_heap, rows, ROWS_MAX);
    row_count += cuda_attach_prepare(rows + row_count, ROWS_MAX - row_count);
    elf_entries_replace(rows, row_count);
    cuda_attach_begin();
    if (is_heap) {
        heap_attach_begin();
    }
}

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
    hooks_in(varve_records_wanted(VARVE_RECORDS_HEAP));
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
    elf_entries_restore(rows, row_count);
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
