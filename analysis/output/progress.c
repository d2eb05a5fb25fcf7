/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work: one line on a terminal, drawn anew at most ten times a second and only once the work
 * has taken half a second, erased at the end. Nothing at all if standard error is no terminal.
 */
#include "analysis/output/progress.h"

#include "analysis/output/format.h"

#include <stdio.h>
#include <time.h>

#define PATIENCE_NS INT64_C(500000000)
#define INTERVAL_NS INT64_C(100000000)

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void progress_begin(struct progress *progress, FILE *out, bool is_on)
{
    *progress = (struct progress){.out = out, .is_on = is_on};
    progress->begin_ns = now_ns();
}

void progress_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    int64_t now;

    if (!progress->is_on) {
        return;
    }
    now = now_ns();
    if (now - progress->begin_ns < PATIENCE_NS || now - progress->drawn_ns < INTERVAL_NS) {
        return;
    }
    progress->drawn_ns = now;
    progress->is_drawn = true;
    fprintf(progress->out, "\r\033[Kvarve: %s", stage);
    if (total > 0) {
        fprintf(progress->out, " %3.0f %%  (%s of %s)", 100.0 * (double)done / (double)total,
                format_count((int64_t)done).text, format_count((int64_t)total).text);
    } else if (done > 0) {
        fprintf(progress->out, " %s", format_count((int64_t)done).text);
    } else {
        fprintf(progress->out, " %s", format_duration(now - progress->begin_ns).text);
    }
    fflush(progress->out);
}

void progress_end(struct progress *progress)
{
    if (progress->is_drawn) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
        progress->is_drawn = false;
    }
}
