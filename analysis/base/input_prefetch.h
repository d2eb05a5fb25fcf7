/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data produced by one thread a few blocks before another consumes them, so that unpacking takes no time of the
 * reader's. Used by input_stream.c for compressed files.
 */
#ifndef VARVE_ANALYSIS_BASE_INPUT_PREFETCH_H
#define VARVE_ANALYSIS_BASE_INPUT_PREFETCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What came of one step; `done` is what the producer has used of its own input by then. */
struct prefetch_step {
    size_t made;
    uint64_t done;
    bool is_ended;
};

struct prefetch_producer {
    void *context;
    /* At most `room` bytes at `to`; it is not called again after an error or the end. */
    int (*make)(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                struct varve_message *message);
};

struct prefetch;

/// From now on `producer` is called on a thread of its own. NULL if there can be none.
struct prefetch *prefetch_start(const struct prefetch_producer *producer);
void prefetch_stop(struct prefetch *prefetch); /* NULL is allowed */
/// Move at most `room` bytes to `to`, waiting for the first of them; none only at the end. An error of the
/// producer comes after all that was made before it, and again on every later call.
int prefetch_read(struct prefetch *prefetch, unsigned char *to, size_t room, struct prefetch_step *step,
                  struct varve_message *message);

#endif
