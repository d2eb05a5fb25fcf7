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
#include "analysis/report/call_tree.h"

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

/* Formats that the Python package writes, since pyarrow has them: the package is run as a program. */

struct python_export {
    const char *database;
    const char *format;    /* parquet, arrow */
    const char *directory; /* other runs may be there already */
    bool force;            /* replace a run of the same name */
    int64_t timeout_ns;    /* of computing, for a batch of rows; 0: none */
};

/// `python3 -m varve export`, by the interpreter that VARVE_PYTHON3 names, that of build/venv beside this program, or
/// the python3 in PATH; with the package of the source tree that this program was built in, else an installed one.
/// Waits for its end. Errors: VARVE_ERROR_UNSUPPORTED (no Python, or without the package or pyarrow),
/// VARVE_ERROR_FORMAT with the reason that it gave.
int export_by_python(const struct python_export *request, struct varve_message *message);

/* Call trees as exports want them: whole, with a note where there is nothing to show. */

/// Nothing is left out but what no tree holds. Owner: the caller, by call_tree_free, also after an error.
int export_tree_load(struct call_tree *tree, const struct export_request *request, enum call_tree_metric metric,
                     enum call_tree_figure figure, struct varve_message *message);
/// Say in request->note that the domain has nothing, or that it has no stacks.
void export_note_stacks(const struct export_request *request, bool is_empty, bool has_stacks);

#endif
