/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites on their way into the database: frames are resolved, stacks merged, and rows of nodes and call sites
 * handed over, in order of their numbers and as far as possible while the program runs. The rows are the same however
 * much was done by then.
 */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_OUTPUT_H
#define VARVE_TRACE_CALLSITES_CALLSITE_OUTPUT_H

#include "trace/store/store.h"
#include "trace/callsites/stack_merge.h"
#include "trace/callsites/callsite_resolver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsites;
struct store;
struct varve_message;

struct output_row {
    uint32_t parent, symbol;
    int64_t pc;
};

#define OUTPUT_LINE_NONE UINT32_MAX

/* All zero: nothing was done. */
struct callsites_output {
    struct resolver *resolver;
    struct resolved_frames resolved;
    struct callsites_merge merge;
    struct output_row *rows; /* lines from row_first on: not handed over yet */
    size_t row_capacity;
    uint32_t row_first, row_count, row_passed;
    uint32_t stacks; /* merged, and handed over unless they are held back */
    /* stacks that are held back until it is known which are kept (callsite_join.c) */
    bool is_held, is_joined;
    uint32_t *lines; /* of stack n at [n]; OUTPUT_LINE_NONE: it is not kept */
    size_t line_capacity;
    uint32_t joined_count, group_count; /* call sites put together, and what became of them */
    bool is_streamed;                   /* some of these are in the database, or in the next commit */
    bool is_hurrying;
    int error; /* while the program ran; it is reported at the end */
};

int output_open(struct callsites *callsites, struct varve_message *message);
/// What a merge reads, as it is now; its lines become rows of the output, or are only numbered.
void output_merge_set(const struct callsites *callsites, struct callsites_merge *merge, bool has_rows);
/// After callsites_hurry: wait for it.
int output_wait(struct callsites *callsites, store_progress progress, void *context);
/// After output_wait, of stacks that are held back: merge what is left.
int output_merge_rest(struct callsites *callsites, store_progress progress, void *context);
/// After output_wait: hand over what is left; the store commits on the way.
int output_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context);

/// callsite_join.c: the symbols, nodes and call sites that are kept, and how many are not.
int join_write(const struct callsites *callsites, struct store *store);

#endif
