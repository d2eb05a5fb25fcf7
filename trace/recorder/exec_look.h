/* SPDX-License-Identifier: Apache-2.0 */
/* What an exec function is about to run: the program, and whether the recorder can be loaded into it. */
#ifndef VARVE_TRACE_RECORDER_EXEC_LOOK_H
#define VARVE_TRACE_RECORDER_EXEC_LOOK_H

#include "trace/format/exec_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Notes about programs that are about to run, for the collector: which of them can't be recorded. */

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

/*
 * The environment that a program is about to get: is the recorder in its LD_PRELOAD, and what is it without it. For
 * exec_look.c and the hooks of the exec family: also in a vfork child, with nothing allocated. Async-signal-safe.
 * `envp` may be NULL.
 */

/// The element of LD_PRELOAD that is the recorder, copied into `path`; false: none is, or it is too long.
bool exec_environment_recorder(char *const *envp, char *path, size_t bytes);

enum exec_order {
    EXEC_ORDER_NONE,   /* LD_PRELOAD names no library that must be the first (format/exec_check.h) */
    EXEC_ORDER_BEFORE, /* one before the recorder */
    EXEC_ORDER_BEHIND,
};

enum exec_order exec_environment_order(char *const *envp);

/// The environment without the recorder in LD_PRELOAD, whose other elements stay; the variable goes with its last
/// one. It lies in `memory`, of exec_environment_bytes(envp), but for the entries that are the same.
size_t exec_environment_bytes(char *const *envp);
char **exec_environment_without(char *const *envp, void *memory);

#endif
