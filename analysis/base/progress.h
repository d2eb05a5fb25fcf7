/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work as one line on a terminal. The one who draws owns the struct progress. */
#ifndef VARVE_ANALYSIS_BASE_PROGRESS_H
#define VARVE_ANALYSIS_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool is_on;
    bool is_drawn;
    int64_t begin_ns;
    int64_t drawn_ns;
    const char *stage; /* of the last step: borrowed */
    int64_t stage_ns;  /* when it began, and how much was done then */
    uint64_t stage_done;
    const char *watched; /* of database_watch: what SQLite works on */
};

void progress_begin(struct progress *progress, FILE *out, bool is_on);
/// varve_collect_progress; `context` is a struct progress.
void progress_step(void *context, const char *stage, uint64_t done, uint64_t total);
void progress_end(struct progress *progress);

#endif
