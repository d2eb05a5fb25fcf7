/* SPDX-License-Identifier: Apache-2.0 */
/* The moments that `varve leaks` is asked about (--at, --from, --to), and the views of leaks for them. */
#ifndef VARVE_ANALYSIS_REPORT_LEAK_MOMENT_H
#define VARVE_ANALYSIS_REPORT_LEAK_MOMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;
struct varve_message;

enum leak_at {
    LEAK_AT_DEFAULT,      /* the exit of main of each process that has one, else its end */
    LEAK_AT_END,          /* of each process */
    LEAK_AT_EXIT_OF_MAIN, /* of each process that has one */
    LEAK_AT_TIME,         /* at_ns */
};

struct leak_moment {
    enum leak_at at;
    int64_t at_ns;   /* since the trace began */
    int64_t from_ns; /* only what was allocated later; -1: everything */
    int64_t processes, at_main, at_end,
        replaced;              /* of the images of processes: those at the exit of main, at their end, and that
                                                     exec replaced, which leave nothing */
    int64_t first_ns, last_ns; /* the moments of the first and the last of them */
    bool only_live;            /* of the allocations that were freed, nothing was kept */
};

/// Read the moments, each an event number, a time as `segments --at` takes them, "end" or "exit-of-main" (not `from`),
/// or NULL; make the views leak_moment, leak_tenth and leak_line of this connection say what they say for these moments
/// and for process `pid` (0: all). Errors: VARVE_ERROR_INVALID (no moment), NOT_FOUND (no such event, no process that
/// ran then), UNSUPPORTED (an event number, and the events were not kept).
int leak_moment_make(struct leak_moment *moment, struct database *database, const char *at, const char *from,
                     const char *to, int64_t pid, struct varve_message *message);
/// When, and why then: words that follow "live …" and end without a full stop.
void leak_moment_words(FILE *out, const struct leak_moment *moment);
struct cJSON *leak_moment_json(const struct leak_moment *moment);

#endif
