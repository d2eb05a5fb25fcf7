/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formats of `varve export`: each is a line of EXPORT_FORMAT_LIST and a row `export_format_NAME` in the file that
 * writes it. Names in the files are UTF-8 without control characters, and cut (format_print_safe,
 * analysis/base/number_format.h).
 */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_H

#include "analysis/base/output_file.h"
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

/* A writer's errors are those of the database, VARVE_ERROR_UNSUPPORTED where it lacks what the format is made of, and
 * VARVE_ERROR_NOT_FOUND; failures of the stream show in ferror. One of the first four members is there. */
struct export_format {
    output_writer *write;         /* of a struct export_request */
    output_writer *write_history; /* of a struct history */
    bool is_by_python;            /* a folder that the Python package writes (export_by_python) */
    const char *refusal;          /* none is written, by this build or any; says why */

    const char *name;
    const char *meaning;                /* for the manual */
    output_folder_writer *write_folder; /* what `write` does for one view, for all of them; else NULL */
    bool is_binary;                     /* not for a terminal */
    bool takes_part;                    /* --domain and --pid */
    bool wants_domain;                  /* one of them, where none is named */
    bool takes_metric, takes_blocks;
};

/* X(name, what the help of --to says of it): all formats, by name. */
#define EXPORT_FORMAT_LIST(X)                                                         \
    X(arrow, "a folder like parquet's")                                               \
    X(csv, "a folder of tables and views, or one with --view")                        \
    X(dtr, "refused, since programs write logs of operators themselves")              \
    X(folded, "stacks for flamegraph.pl or inferno")                                  \
    X(parquet, "a folder of views by run, rank and device, for pandas, DuckDB, Dask") \
    X(perfetto, "for ui.perfetto.dev")                                                \
    X(pprof, "for `go tool pprof`")                                                   \
    X(pytorch, "a snapshot pickle (default)")                                         \
    X(speedscope, "for speedscope.app")

#define EXPORT_FORMAT_EXTERN(name, help) extern const struct export_format export_format_##name;
EXPORT_FORMAT_LIST(EXPORT_FORMAT_EXTERN)
#undef EXPORT_FORMAT_EXTERN

extern const struct export_format *const export_formats[]; /* those of the list, NULL at the end */

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
