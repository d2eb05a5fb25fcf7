/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for the stacks of two traces, such that equal stacks have equal numbers, whatever the numbers of their
 * call sites and symbols are; or that those of one line have. They lie in tables stack_a and stack_b(callsite_id,
 * stack) of the database in which both are attached.
 */
#ifndef VARVE_ANALYSIS_REPORT_DIFF_STACKS_H
#define VARVE_ANALYSIS_REPORT_DIFF_STACKS_H

struct database;

enum diff_frames {
    DIFF_FRAMES_WHOLE,  /* equal in all that is known of them, addresses too: traces of one run */
    DIFF_FRAMES_SOURCE, /* function, file and line; of frames without a name the module: different runs */
};

void diff_stacks_make(struct database *two, enum diff_frames frames);

enum diff_by {
    DIFF_BY_LINE,     /* function, file and line of the user's line; of one without a file its module instead */
    DIFF_BY_FUNCTION, /* the same without the line */
    DIFF_BY_STACK,    /* diff_stacks_make with DIFF_FRAMES_SOURCE */
    DIFF_BY_MODULE,   /* the name of the shared object, or the Python file, of that line */
};

/// The same tables, in which call sites have equal numbers if they are of one line, function or module.
void diff_lines_make(struct database *two, enum diff_by by);

#endif
