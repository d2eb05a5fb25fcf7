/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a CPython interpreter in this process. Nothing here allocates, takes a lock or changes anything of the
 * interpreter.
 */
#ifndef VARVE_TRACE_STACKS_PYTHON_STACK_H
#define VARVE_TRACE_STACKS_PYTHON_STACK_H

#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"

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

/// What python_memo_inner says of them. Threads: any, with signals blocked.
unsigned python_stack_inner(struct stack_hash hash, unsigned count, const uint64_t *outer, unsigned outer_count,
                            struct python_frame *frames, uint64_t *hashes);

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

/* Names and lines out of a code object. */

/// A str object as UTF-8, cut between characters to fit, NUL-terminated; lone surrogates become U+FFFD.
/// False if the object is not a plain str.
bool python_text_copy(const struct python_layout *layout, const struct python_types *types, const void *object,
                      char *out, size_t out_bytes);

/// Line of the instruction at `offset` bytes (negative: not started) in a line table; 0 if it has none.
uint32_t python_line_find(enum python_line_format format, const uint8_t *table, size_t table_bytes, int32_t first_line,
                          int32_t offset);

/* The proof that the interpreter is laid out as python_layout.c says. */

enum python_verdict {
    PYTHON_VERDICT_NO_FRAMES,
    PYTHON_VERDICT_GOOD,
    PYTHON_VERDICT_BAD,
};

/// Check the thread state and every frame of this thread against the layout, without trusting any pointer.
/// `*frames` is how many frames were looked at. They are the caller's own.
enum python_verdict python_verify_stack(const struct python_layout *layout, const struct python_types *types,
                                        const void *state, unsigned *frames);

/* What a thread's last walk has read, and the hash of each part of it. */

#define PYTHON_STACK_UNKNOWN (~0U - 1)

/// Hash and number of the frames from `at` outwards that are kept (stack_is_cut), by what is known of this thread's
/// last walk. PYTHON_STACK_UNKNOWN if there is no room. `frames` has room for both ends of a stack, and what comes to
/// lie there is of no use. Threads: any; not reentrant: a handler must not come here while its thread is in it.
unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at, unsigned depth,
                          struct python_frame *frames, struct stack_hash *hash);

/// Of the `count` frames that had this hash just now, those inside of all that `outer` has: hashes (the lower half) of
/// frames and all outside of them, outermost first, `outer_count` of them. They are in order, as if captured, each with
/// such a hash. Returns how many there are; PYTHON_STACK_UNKNOWN: a walk of a signal handler has come between, or some
/// frames are left out (stack_is_cut). Threads: any, with signals blocked.
unsigned python_memo_inner(const struct python_layout *layout, struct stack_hash hash, unsigned count,
                           const uint64_t *outer, unsigned outer_count, struct python_frame *frames, uint64_t *hashes);

/// All frames, as python_stack_ends has them. Otherwise as above.
unsigned python_memo_ends(const struct python_layout *layout, const void *code_type, const char *at,
                          struct python_frame *frames);

/// This thread ends: its memo goes. Signals are blocked.
void python_memo_thread_end(void);

#endif
