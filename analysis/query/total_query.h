/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The totals of all processes together (view `total`) or of each (`total_process`), and how long the recording took.
 * Loading ends early on a database error: see database_error.
 */
#ifndef VARVE_ANALYSIS_QUERY_TOTAL_QUERY_H
#define VARVE_ANALYSIS_QUERY_TOTAL_QUERY_H

#include "analysis/base/number_format.h"

#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct database;

/* A row of total or total_process. */
struct report_total {
    char *domain;
    int64_t process_id, pid, device, allocations, frees, bytes, live_allocations, live_bytes, peak_bytes,
        peak_allocations, peak_seq, peak_ns, temporary, failed;
};

struct report_totals {
    struct report_total *rows;
    size_t count;
};

/// All processes together: process_id 0. process_id < 0: each process of its own.
void report_totals_load(struct report_totals *totals, struct database *database, int64_t process_id);
void report_totals_free(struct report_totals *totals);
/// What a row is about: its domain, and the GPU where there are several, or it is not the first.
struct format_text report_total_name(const struct report_totals *totals, const struct report_total *row);
/// Those of all processes together, every figure.
struct cJSON *report_totals_json(struct database *database);
/// Processes that were recorded, and the programs that they executed, one after the other.
int64_t report_process_count(struct database *database);
int64_t report_image_count(struct database *database);
/// From the start of the program, which is 0 of all times, to the end of it and of all recorded processes (view
/// recording).
int64_t report_duration_ns(struct database *database);
/// A figure of sql_figure by its name; `otherwise` if it is NULL.
int64_t report_figure(struct database *database, const char *name, int64_t otherwise);
/// "40 processes (80 program images)"; without the images where each process has one.
void report_processes_words(char *text, size_t bytes, int64_t processes, int64_t images);

#endif
