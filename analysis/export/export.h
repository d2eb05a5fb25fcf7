/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cli/command_export.c writes, by format. What comes from a database is asked for by a struct export_request,
 * which fits output_writer and output_folder_writer: errors are those of the database, VARVE_ERROR_UNSUPPORTED where it
 * lacks what the format is made of, and VARVE_ERROR_NOT_FOUND; failures of the stream show in ferror. Names in the
 * files are UTF-8 without control characters, and cut.
 */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_H

#include "analysis/history/history.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct database;
struct varve_message;

struct export_request {
    struct database *database;
    const char *domain;         /* that the database has; of timelines NULL: all */
    int64_t process_id;         /* 0: all processes */
    int metric;                 /* enum call_tree_metric */
    int64_t blocks;             /* of a timeline: the largest ones that are drawn */
    const char *view;           /* CSV of one view or table */
    struct varve_message *note; /* what the file lacks, in a line; "": nothing */
};

/// A snapshot as torch.cuda.memory._dump_snapshot writes it (protocol 4). Failures show in ferror(out).
void export_pytorch(const struct history *history, FILE *out);
/// Folded stacks of one metric, as `varve flamegraph --folded --min-share 0` has them.
int export_folded(const void *request, FILE *out, struct varve_message *message);
/// speedscope's JSON: a profile for each metric; the one that was asked for is shown first.
int export_speedscope(const void *request, FILE *out, struct varve_message *message);
/// pprof's profile.proto, gzipped: a sample for each process and call site.
int export_pprof(const void *request, FILE *out, struct varve_message *message);
/// A trace of Perfetto: counters of memory, segments, blocks, marks, calls of the driver.
int export_perfetto(const void *request, FILE *out, struct varve_message *message);
/// CSV of request->view, or of every table and view of the contract in an empty folder, NAME.csv each.
int export_csv(const void *request, FILE *out, struct varve_message *message);
int export_csv_folder(const void *request, const char *folder, struct varve_message *message);
/// Does this build write pprof and Perfetto? It needs protobuf-c; where that was not there, these answer
/// VARVE_ERROR_UNSUPPORTED.
bool export_has_protobuf(void);

#endif
