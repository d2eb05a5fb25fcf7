/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a call site, and their printing as text and JSON. Loading ends early on a database error. */
#ifndef VARVE_ANALYSIS_QUERY_CALLSITE_STACK_H
#define VARVE_ANALYSIS_QUERY_CALLSITE_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct callsite_row;
struct database;

struct stack_frame {
    int64_t depth, line, pc; /* pc -1: Python */
    char *function, *file, *module;
    bool is_python, is_inlined;
    int64_t rank; /* enum varve_frame_rank: how near to what a user wrote */
};

struct stack {
    struct stack_frame *frames; /* innermost first */
    size_t count;
};

void stack_load(struct stack *stack, struct database *database, int64_t callsite_id);
void stack_free(struct stack *stack);
/// At most `limit` frames that say something: from the call site's own frame outwards, without the start-up
/// code. Unresolved frames of one module are one line, with the address of the first.
void stack_print(FILE *out, const struct stack *stack, const struct callsite_row *row, int64_t limit);
/// Each frame in a line of its own, with its address where it is unresolved.
void stack_print_all(FILE *out, const struct stack *stack);
/// A line: two callers of the user's line, that line's function, and the innermost frame; fewer callers where these
/// would have to be cut to a few letters. Nothing where there is no more than the user's line.
void stack_print_chain(FILE *out, const struct stack *stack, const struct callsite_row *row);
struct cJSON *stack_json(const struct stack *stack, int64_t limit); /* limit < 0: all */

#endif
