/* SPDX-License-Identifier: Apache-2.0 */
/* Notes about programs that are about to run, for the collector: which of them can't be recorded. */
#ifndef VARVE_TRACE_RECORDER_EXEC_NOTE_H
#define VARVE_TRACE_RECORDER_EXEC_NOTE_H

#include <stdbool.h>
#include <stdint.h>

/* What an exec function was given. */
struct exec_call {
    const char *path;   /* NULL: `fd` */
    char *const *envp;  /* what the program gets */
    int fd;             /* of fexecve */
    bool is_searched;   /* along PATH, and by the shell if it is of no known format */
    bool is_in_process; /* exec itself: the program will run in the calling process */
};

struct exec_noted {
    uint32_t order; /* 0: there is no note */
};

/// Before the call: look at the program, and note it if it can't be recorded, or if its recorder should say
/// that it was loaded. Async-signal-safe, also in a vfork child. After the call, if it came back without
/// having run the program: exec_note_failed.
void exec_note_begin(struct exec_noted *noted, const struct exec_call *call);
void exec_note_failed(const struct exec_noted *noted);
/// In a new program: the recorder is here.
void exec_note_loaded(void);

#endif
