/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites on their way into the database: frames are resolved, stacks merged, and rows of nodes and call sites
 * handed over, in order of their numbers and as far as possible while the program runs. The rows are the same however
 * much was done by then.
 */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_OUTPUT_H
#define VARVE_TRACE_CALLSITES_CALLSITE_OUTPUT_H

#include "trace/callsites/stack_merge.h"
#include "trace/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Names for frames, in a thread of its own: batch by batch while the program runs, the rest after its end. What comes
 * out depends on the order of the frames alone, not on when which of them were asked for. Everything here is
 * called by one thread.
 */

struct callsites;
struct resolver;
struct store_symbol;
struct varve_message;

/* The frames that are resolved: a prefix of all. All zero: none. */
struct resolved_frames {
    struct callsites_resolved *frames; /* of frame n at [n - 1] */
    size_t frame_capacity;
    uint32_t count;
    struct callsites_line_symbol *symbols; /* `symbol` is a number of resolver_symbol */
    size_t symbol_count, symbol_capacity;
};

/// Owner of the result: the caller, until resolver_close, which waits for the thread. Nothing is started yet.
int resolver_open(struct resolver **resolver_out, struct varve_message *message);
void resolver_close(struct resolver *resolver);

/// While the program runs: what is resolved is appended to `resolved`, and the thread, which gives way to everybody
/// else and rests for most of the time, gets the frames that are new. Never waits.
int resolver_step(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved);
/// The program is over: the thread resolves all that is left, as fast as it can. To be called once,
/// before resolver_wait.
int resolver_hurry(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved);
/// After resolver_hurry: until everything is resolved, and appended to `resolved`. `progress` may be NULL.
int resolver_wait(struct resolver *resolver, struct resolved_frames *resolved, store_progress progress, void *context);

/// The thread has no batch: resolver_symbol may be called for what is in `resolved`, until the next resolver_step.
bool resolver_rests(const struct resolver *resolver);

/// After resolver_wait: the symbols that occur, from 1, each once; texts are borrowed until resolver_close.
uint32_t resolver_symbol_count(const struct resolver *resolver);
void resolver_symbol(const struct resolver *resolver, uint32_t number, struct store_symbol *symbol_out);

struct store;

/* A line that is kept, where small call sites are joined. */
struct output_row {
    uint32_t parent, frame;
};

/*
 * All zero: nothing was done. A stack is merged, which gives it a line; the first stack of a line gives it a row of
 * `callsite`, a site for short. So sites are numbered in the order of the stacks.
 */
struct callsites_output {
    struct resolver *resolver;
    struct resolved_frames resolved;
    struct callsites_merge merge;
    uint32_t lines_passed;   /* lines that have rows */
    struct output_row *rows; /* see callsite_join.c */
    size_t row_capacity;
    uint32_t row_count;
    uint32_t stacks;       /* merged */
    uint32_t *stack_sites; /* of stack n at [n]; 0 at [0] */
    size_t stack_site_capacity;
    uint32_t *line_sites; /* of line n at [n]; 0: none yet */
    size_t line_site_capacity;
    uint32_t *site_lines; /* of site n at [n]; where it stands for small ones, the line outside of its own */
    size_t site_line_capacity;
    uint32_t site_count, site_passed;
    bool is_merged; /* all stacks are, and there will be no more: nodes are gone */
    bool is_held;   /* nothing is handed over until it is known which sites are kept (callsite_join.c) */
    bool is_joined;
    uint32_t *site_rows; /* then, of site n at [n]: which of `rows` its line is, from 1; OUTPUT_LINE_NONE: it is gone */
    uint32_t *kept_frames; /* of the frame n of lines at [n]: its row, 0: it has none; at [0] that of small sites */
    uint32_t kept_count;   /* rows of lines that were there before; those after them stand for small sites */
    uint32_t joined_count; /* sites put together */
    bool is_begun;         /* the tables are empty but for what was handed over */
    bool is_hurrying;
    int error; /* while the program ran; it is reported at the end */
};

#define OUTPUT_LINE_NONE UINT32_MAX

int output_open(struct callsites *callsites, struct varve_message *message);
/// After callsites_hurry: wait for it.
int output_wait(struct callsites *callsites, store_progress progress, void *context);
/// After output_wait: merge what is left, and hand it over, unless it is held; the store commits on the way.
int output_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context);
/// At the end: the frames of lines, and all addresses of those that have several.
int output_write_frames(const struct callsites *callsites, struct store *store);

/// callsite_join.c: the symbols, frames, nodes and sites that are kept, and how many are not.
int join_write(const struct callsites *callsites, struct store *store);

/* Python code that torch.compile wrote → the line of the model that it was made from. */

struct compiled_mark;

/* Zero at first. The last file that was asked for: who asks in the order of functions reads each once. */
struct compiled {
    char *path;
    char *text; /* texts of marks[] are parts of it */
    struct compiled_mark *marks;
    size_t mark_count, mark_capacity;
};

struct compiled_line {
    const char *file, *function; /* function NULL: not said */
    uint32_t line;
};

/// What the closest comment above line `line` of the file, in the same function, says: `# File: model.py:12 in f`.
/// False: it cannot be read, or says nothing. Texts are borrowed until the next call.
bool compiled_find(struct compiled *compiled, const char *path, uint32_t line, struct compiled_line *found);
void compiled_free(struct compiled *compiled);

#endif
