/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that begins and ends while the program runs. The library was loaded by dlopen, so no name leads to its
 * hooks: they are put where names are looked up (loading.c) and into the entries by which the program and its libraries
 * call (guest/elf_entries.c), and taken out again. A thread that is in a hook at that moment goes on in it; the library
 * stays loaded for good.
 */
#include "trace/recorder/heap/heap_attach.h"
#include "trace/recorder/emit_slow.h"
#include "trace/guest/elf_entries.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/format/attach_format.h"
#include "trace/format/session_format.h"

static bool was_begun;

static enum attach_answer heap_attach_begin(const char *directory)
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
    if (!was_begun) {
        was_begun = true;
        main_end_prepare();
    }
    main_end_find_python();
    heap_with_stacks = recorder_session()->stacks;
    preload_is_on = true;
    (void)recorder_process_attach();
    loading_begin();
    elf_entries_replace(hook_table()->rows, hook_table()->count);
    /* Only now: an allocation that was recorded while some entry of free was still the program's own
     * would never end. */
    __atomic_store_n(&heap_state, HEAP_STATE_ON, __ATOMIC_RELEASE);
    return ATTACH_DONE;
}

int varve_preload_attach(const char *directory)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    enum attach_answer answer = heap_attach_begin(directory);
    recorder_reentrant_end(&saved);
    return (int)answer;
}

int varve_preload_detach(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    loading_finish();
    __atomic_store_n(&heap_state, HEAP_STATE_OFF, __ATOMIC_RELEASE);
    preload_is_on = false;
    __atomic_store_n(&main_end_is_watched, false, __ATOMIC_RELAXED);
    loading_end();
    elf_entries_restore(hook_table()->rows, hook_table()->count);
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}

int varve_preload_release(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    recorder_threads_release();
    callsite_release();
    recorder_session_end();
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}
