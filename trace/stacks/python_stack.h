/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a CPython interpreter in this process. Nothing here allocates, takes a lock or changes anything of the
 * interpreter.
 */
#ifndef VARVE_TRACE_STACKS_PYTHON_STACK_H
#define VARVE_TRACE_STACKS_PYTHON_STACK_H

#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Frames of this thread, innermost first, at most `max`; 0 if there is no interpreter, its version is
/// unknown, or this thread has no frames. Never allocates, never runs Python code.
unsigned python_stack_capture(struct python_frame *frames, unsigned max);

/// The two ends of a stack of any depth, by the slots of stack_ends.h, and the number of all frames; STACK_UNENDED if
/// they are no chain (a signal handler saw them half linked). Threads: any; async-signal-safe.
unsigned python_stack_ends(struct python_frame *frames);

/// Function name and file name as UTF-8 (cut to fit, NUL-terminated) and the line of a frame just captured.
/// Returns false if they cannot be read safely.
bool python_stack_describe(const struct python_frame *frame, char *name, size_t name_bytes, char *file,
                           size_t file_bytes, uint32_t *line);

/// Hash and number of the frames that python_stack_ends and python_stack_cut would give now, for far less than a walk:
/// most of them are still those of this thread's last call. PYTHON_STACK_UNKNOWN: not in this way (the layout is not
/// trusted yet, no memory), capture them. `frames` has room for both ends, and what comes to lie there is of no use.
/// Threads: any; async-signal-safe.
unsigned python_stack_hash(struct stack_hash *hash, unsigned depth, struct python_frame *frames);

/// An object is about to be unloaded: if an interpreter was found, its library stays. Only where the program
/// itself calls the loader, since this does.
void python_stack_pin_library(void);

/// Whom to tell once an interpreter is found: its version, and what is to be said behind it if its frames can't be
/// read, else NULL. The function must not allocate; it may be called from inside hooks, by any thread, and a second
/// time with another answer.
void python_stack_report_by(void (*function)(const char *version, const char *why));

/// The set of loaded objects has changed: an interpreter that was absent is looked for at the next capture.
/// Threads: any; async-signal-safe.
void python_stack_modules_changed(void);

#endif
