/* SPDX-License-Identifier: Apache-2.0 */
/* Notes about programs that are about to run, for the collector: which of them can't be recorded. */
#ifndef VARVE_TRACE_RECORDER_EXEC_NOTE_H
#define VARVE_TRACE_RECORDER_EXEC_NOTE_H

#include "trace/recorder/exec_look.h"

#include <stdbool.h>
#include <stdint.h>

struct exec_noted {
    uint32_t order;  /* 0: there is no note */
    bool must_clean; /* the program must get exec_environment_without what it was to get */
};

/// Before the call: look at the program, and note it if it can't be recorded, or if its recorder should say
/// that it was loaded. Async-signal-safe, also in a vfork child. After the call, if it came back without
/// having run the program: exec_note_failed.
void exec_note_begin(struct exec_noted *noted, const struct exec_call *call);
void exec_note_failed(const struct exec_noted *noted);
/// In a new program: the recorder is here.
void exec_note_loaded(void);

#endif
