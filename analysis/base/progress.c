/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of long work: one line on a terminal, drawn anew at most ten times a second and only once the work
 * has taken half a second, erased at the end. Nothing at all if standard error is no terminal.
 */
#include "analysis/base/progress.h"

#include "analysis/base/number_format.h"
#include "base/monotonic.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_NS INT64_C(500000000)
#define RATE_AFTER_NS INT64_C(1000000000)
#define MILLIONS_FROM UINT64_C(10000000)
#define INTERVAL_NS INT64_C(100000000)

void progress_begin(struct progress *progress, FILE *out, bool is_on)
{
    *progress = (struct progress){.out = out, .is_on = is_on};
    progress->begin_ns = (int64_t)monotonic_ns();
}

/* "38 of 357 M": both in the unit that the total has. */
static void print_count(FILE *out, uint64_t done, uint64_t total)
{
    if (total >= MILLIONS_FROM) {
        fprintf(out, " %.0f of %.0f M", (double)done / 1e6, (double)total / 1e6);
    } else {
        fprintf(out, " %s of %s", format_count((int64_t)done).text, format_count((int64_t)total).text);
    }
}

/* From the rate of the stage so far; nothing as long as that says little. */
static void print_time_left(const struct progress *progress, int64_t now, uint64_t done, uint64_t total)
{
    int64_t took = now - progress->stage_ns;
    if (took < RATE_AFTER_NS || done <= progress->stage_done || done >= total) {
        return;
    }
    double left_s = (double)took / 1e9 * (double)(total - done) / (double)(done - progress->stage_done);
    if (left_s >= 90) {
        fprintf(progress->out, ", %.0f min left", left_s / 60);
    } else {
        fprintf(progress->out, ", %.0f s left", left_s < 1 ? 1 : left_s);
    }
}

void progress_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    if (!progress->is_on) {
        return;
    }
    int64_t now = (int64_t)monotonic_ns();
    if (progress->stage == NULL || strcmp(progress->stage, stage) != 0) {
        progress->stage = stage;
        progress->stage_ns = now;
        progress->stage_done = done;
    }
    if (now - progress->begin_ns < PATIENCE_NS || now - progress->drawn_ns < INTERVAL_NS) {
        return;
    }
    progress->drawn_ns = now;
    progress->is_drawn = true;
    fprintf(progress->out, "\r\033[Kvarve: %s", stage);
    if (total > 0) {
        print_count(progress->out, done, total);
        print_time_left(progress, now, done, total);
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
