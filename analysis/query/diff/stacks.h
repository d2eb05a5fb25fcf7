/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for the stacks of two traces, such that equal stacks have equal numbers, whatever the numbers of their
 * call sites and symbols are. They lie in tables stack_a and stack_b(callsite_id, stack) of the database in which
 * both are attached.
 */
#ifndef VARVE_ANALYSIS_QUERY_DIFF_STACKS_H
#define VARVE_ANALYSIS_QUERY_DIFF_STACKS_H

#ifdef __cplusplus
extern "C" {
#endif

struct database;

enum diff_frames {
    DIFF_FRAMES_WHOLE,  /* equal in all that is known of them, addresses too: traces of one run */
    DIFF_FRAMES_SOURCE, /* function, file and line; of frames without a name the module: different runs */
};

void diff_stacks_make(struct database *two, enum diff_frames frames);

#ifdef __cplusplus
}
#endif

#endif
