/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that runs: the stacks of its threads while they are stopped; and what a file names in its symbol tables.
 */
#ifndef VARVE_TRACE_SYMBOLS_RUNNING_PROCESS_H
#define VARVE_TRACE_SYMBOLS_RUNNING_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct symbols_running;

/// The objects that `pid`, or the process of this thread, has mapped now; what their stacks are unwound by is read.
/// Owner: the caller. NULL: it has ended, or its maps can't be read.
struct symbols_running *symbols_running_open(int32_t pid);
void symbols_running_close(struct symbols_running *running);

/* Innermost first. Texts are borrowed for the call; NULL: unknown. */
struct symbols_running_frame {
    uint64_t pc;      /* of a caller: inside the call */
    uint64_t file_pc; /* the same as an address of the file */
    const char *path; /* of the object */
    int symbols;      /* how many it has; negative: unknown */
};

/// Calls `take` for each frame of thread `tid`, which the calling thread traces and has stopped, until it returns
/// false. A stack that can't be unwound to its end has fewer frames. False: not even the first one is known.
bool symbols_running_stack(struct symbols_running *running, int32_t tid,
                           bool (*take)(void *context, const struct symbols_running_frame *frame), void *context);

/// The frame that a thread at `pc` would have. False: there is no code of an object, and what is known of the frame is
/// its object, if there is one.
bool symbols_running_frame(struct symbols_running *running, uint64_t pc, struct symbols_running_frame *frame_out);

/// The symbol at or before a frame's pc: of several names for one place, any of them; NULL: unknown. `begin_out`:
/// where that begins, as an address of the file; 0: unknown. Looks at all symbols of the object: 5 ms of 500,000.
const char *symbols_running_function(struct symbols_running *running, const struct symbols_running_frame *frame,
                                     uint64_t *begin_out);

/// Address in the file at `path` of a function that it exports; 0: it does not, or can't be read.
uint64_t symbols_file_function(const char *path, const char *name);

/// The same of each of `names` (NULL at the end) into `addresses`, in one pass.
void symbols_file_functions(const char *path, const char *const *names, uint64_t *addresses);

/// The part of the code of `path` in which the object file lies that exports the functions `names` (NULL at the end):
/// from the end of what is exported before them to the end of the last one. False: it exports none of them.
bool symbols_file_span(const char *path, const char *const *names, uint64_t *start, uint64_t *end);

/// Calls `take` for each function that `path` defines, as far as its symbol tables were not stripped.
void symbols_file_each_function(const char *path, void (*take)(void *context, const char *function), void *context);
bool symbols_file_has_section(const char *path, const char *name);

#endif
