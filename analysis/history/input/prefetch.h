/* SPDX-License-Identifier: Apache-2.0 */
/* Data made by one thread a few blocks before another takes them: how stream.c unpacks while it is
 * read. */
#ifndef VARVE_ANALYSIS_HISTORY_INPUT_PREFETCH_H
#define VARVE_ANALYSIS_HISTORY_INPUT_PREFETCH_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What came of one step; `done` is what the maker has used of its own input by then. */
struct input_ahead_step {
    size_t made;
    uint64_t done;
    bool is_ended;
};

struct input_ahead_maker {
    void *context;
    /* At most `room` bytes at `to`; nothing is asked of it after an error or the end. */
    int (*make)(void *context, unsigned char *to, size_t room, struct input_ahead_step *step,
                struct varve_message *message);
};

struct input_ahead;

/// From now on `maker` is called on a thread of its own. NULL if there can be none.
struct input_ahead *input_ahead_start(const struct input_ahead_maker *maker);
void input_ahead_stop(struct input_ahead *ahead); /* NULL is allowed */
/// Move at most `room` bytes to `to`, waiting for the first of them; none only at the end. An error of the
/// maker comes after all that was made before it, and again whenever it is asked.
int input_ahead_take(struct input_ahead *ahead, unsigned char *to, size_t room, struct input_ahead_step *step,
                     struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
