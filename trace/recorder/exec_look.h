/* SPDX-License-Identifier: Apache-2.0 */
/* What an exec function is about to run: the program, and whether the recorder can be loaded into it. */
#ifndef VARVE_TRACE_RECORDER_EXEC_LOOK_H
#define VARVE_TRACE_RECORDER_EXEC_LOOK_H

#include "trace/format/exec_check.h"

#include <stdbool.h>

/* What an exec function was given. */
struct exec_call {
    const char *path;   /* "" : of the descriptor `folder` itself */
    char *const *envp;  /* what the program gets; may be NULL */
    int folder;         /* that a relative path is of; AT_FDCWD */
    int flags;          /* of execveat */
    bool is_searched;   /* along PATH, and by the shell if it is of no known format */
    bool is_in_process; /* exec itself: the program will run in the calling process */
};

/* Not on the program's stack. */
struct exec_scratch {
    char path[4096]; /* of what will be loaded, of a script its interpreter */
    char text[4096];
    char line[EXEC_LINE_BYTES];
};

struct exec_finding {
    int reason;        /* enum exec_reason */
    bool will_run;     /* as far as can be seen */
    bool has_recorder; /* LD_PRELOAD names it */
    bool must_clean;   /* the program would fail, or say something, if it got that */
};

/// Async-signal-safe, also in a vfork child.
struct exec_finding exec_look(const struct exec_call *call, struct exec_scratch *scratch);

#endif
