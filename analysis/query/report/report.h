/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What report, info, leaks, peak and timeline are made of: ranked call sites and their stacks, totals,
 * health, bytes over time; grouped by file. Every figure is selected from the views of the database, or
 * summed over them.
 *
 *   cli/report.c ─► text.c, json.c ─► loss.c, totals.c, callsite_*.c
 *                                                    └─► report_gpu*.c ─► query.c, segments_*.c
 *   cli/ranked.c, cli/timeline.c ─► query/selection.c, query/timeline.c, callsite_*.c
 *
 * Functions that load end early on a database error and leave what they have: see database_error.
 */
#ifndef VARVE_ANALYSIS_QUERY_REPORT_REPORT_H
#define VARVE_ANALYSIS_QUERY_REPORT_REPORT_H

#include "analysis/output/format.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;
struct database;
struct table_column;

/* ---- query/callsite_rank.c: the largest call sites by one of their figures ---- */

enum callsite_rank {
    CALLSITE_BY_PEAK,      /* bytes live at the peak of the domain */
    CALLSITE_BY_BYTES,     /* bytes allocated in all */
    CALLSITE_BY_COUNT,     /* allocations */
    CALLSITE_BY_LIFETIME,  /* mean lifetime, of those with at least 1 % of the bytes */
    CALLSITE_BY_TEMPORARY, /* temporary allocations */
    CALLSITE_BY_LIVE,      /* bytes never freed */
    CALLSITE_RANK_COUNT,
};

/* A row of callsite_total; texts are owned by the list, NULL if unknown. */
struct callsite_row {
    int64_t id;
    int64_t allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary;
    int64_t mean_lifetime_ns; /* -1: none was freed */
    char *function, *file, *module;
    int64_t line;
    bool is_python;
};

struct callsite_list {
    struct callsite_row *rows;
    size_t count;
    int64_t count_all;                  /* rows that a list without limit would have */
    int64_t sum_bytes, sum_allocations; /* over all of them, of the figures that the ranking is about */
};

struct callsite_rank_info {
    const char *key;   /* in JSON */
    const char *title; /* in the report */
};

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank);
/// The two figures that a ranking is about.
int64_t callsite_rank_bytes(const struct callsite_row *row, enum callsite_rank rank);
int64_t callsite_rank_allocations(const struct callsite_row *row, enum callsite_rank rank);

void callsite_list_load(struct callsite_list *list, struct database *database, enum callsite_rank rank,
                        const char *domain, int64_t top);
/// Blocks of one process that were live at `seq` (never freed: seq < 0), by call site; bytes and allocations
/// are in the figures of `rank` (CALLSITE_BY_PEAK or CALLSITE_BY_LIVE). Reads the allocations themselves:
/// takes its time.
void callsite_list_load_process(struct callsite_list *list, struct database *database,
                                enum callsite_rank rank, const char *domain, int64_t process_id, int64_t seq,
                                int64_t top);
void callsite_list_free(struct callsite_list *list);

/* ---- query/callsite_stack.c: a call site's frames ---- */

struct stack_frame {
    int64_t depth, line, pc; /* pc -1: Python */
    char *function, *file, *module;
    bool is_python, is_inlined;
};

struct stack {
    struct stack_frame *frames; /* innermost first */
    size_t count;
};

void stack_load(struct stack *stack, struct database *database, int64_t callsite_id);
void stack_free(struct stack *stack);
/// At most `limit` frames that say something: from the call site's own place outwards, without the start-up
/// code.
void stack_print(FILE *out, const struct stack *stack, const struct callsite_row *row, int64_t limit);
void stack_print_place(FILE *out, const char *indent, const struct stack_frame *frame, size_t times);
void stack_print_unnamed(FILE *out, const struct stack *stack, const struct callsite_row *row);
struct cJSON *stack_json(const struct stack *stack, int64_t limit); /* limit < 0: all */

/* ---- query/callsite_print.c: ranked lists as text, JSON, CSV ---- */

struct callsite_options {
    int64_t frames; /* per stack; < 0: as suits the format */
    int64_t stacks; /* how many entries of a list get their stack as text; < 0: all */
};

/* Call sites whose stack was printed: later lists refer back instead of repeating it. */
struct callsite_seen {
    int64_t *ids;
    size_t count, capacity;
};

void callsite_seen_free(struct callsite_seen *seen);
void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options,
                         struct callsite_seen *seen);
/// An array; each entry has bytes and allocations of the ranking, or, with_totals, every figure of the call
/// site.
struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list,
                                 enum callsite_rank rank, const struct callsite_options *options,
                                 bool with_totals);
void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank,
                       const char *domain);

/* ---- report_*.c: the parts of `varve report` and `varve info` ---- */

/* Sums over the rings: emitted = stored + lost + uncommitted. */
struct report_loss {
    int64_t emitted, stored, spilled, lost, lost_bytes, uncommitted;
    int64_t threads, threads_with_loss;
    int64_t stat_rows;            /* rows of data_loss */
    int64_t other_rows;           /* of these, such as report_loss_words has no words for */
    int64_t unattached;           /* events that no ring took */
    int64_t damaged;              /* rings of which it is not known what they held */
    int64_t running;              /* processes that lived on when the recording stopped */
    int64_t killed, gone;         /* processes that a signal ended; that ended without their exit handlers */
    int64_t killed_by;            /* the signal of all of the killed, 0: of different ones */
    int64_t unrecorded;           /* programs that could not be recorded */
    int64_t unrecorded_runs;      /* how often these ran */
    int64_t unattached_processes; /* processes of which nothing but a number is known */
    int64_t unseen_heaps;         /* processes whose heap no hook sees: their program brings its allocator */
    bool has_programs;            /* there is a table of them */
};

/* A row of total. */
struct report_total {
    char *domain;
    int64_t process_id, pid, device, allocations, frees, bytes, live_allocations, live_bytes, peak_bytes,
        peak_allocations, peak_seq, peak_ns, temporary, failed;
};

struct report_totals {
    struct report_total *rows;
    size_t count;
};

void report_loss_load(struct report_loss *loss, struct database *database);
bool report_is_lossless(const struct report_loss *loss);
/// One line (and a line per kind of loss): what a reader of the figures must know.
void report_loss_print(FILE *out, struct database *database, const struct report_loss *loss);
/// The same in a few words for the end of a line: what was lost, who still runs, who was killed.
void report_loss_words(FILE *out, const struct report_loss *loss);
/// The programs that could not be recorded, the first few of them, if there are any: part of a line.
void report_unrecorded_print(FILE *out, struct database *database, const struct report_loss *loss);
/// For a command that has just made the database of `result`: the words, with a ';' before each.
void report_result_words(FILE *out, const struct varve_collect_result *result);
/// And a line with the programs that could not be recorded, if there are any.
void report_result_programs(FILE *out, const struct varve_collect_result *result);
struct cJSON *report_loss_json(struct database *database, const struct report_loss *loss);

/// All processes together: process_id 0. process_id < 0: each process of its own.
void report_totals_load(struct report_totals *totals, struct database *database, int64_t process_id);
void report_totals_free(struct report_totals *totals);
/// What a row is about: its domain, and the GPU where there are several, or it is not the first.
struct format_text report_total_name(const struct report_totals *totals, const struct report_total *row);
struct cJSON *report_total_json(const struct report_total *total);
/// Of the recorded program, from its start to its end; to the last event where no program was started here.
int64_t report_duration_ns(struct database *database);
/// Since the trace began.
int64_t report_last_event_ns(struct database *database);
/// Path, program, duration and extent of the recording.
void report_header_print(FILE *out, struct database *database, const char *path,
                         const struct report_loss *loss);
void report_header_json(struct cJSON *object, struct database *database, const char *path);

struct report_options {
    int64_t top;
    struct callsite_options stacks;
};

/// An empty line, `title`, and a line under it.
void report_rule_print(FILE *out, const char *title);
void report_text(FILE *out, struct database *database, const char *path,
                 const struct report_options *options);
struct cJSON *report_json(struct database *database, const char *path, const struct report_options *options);

/* ---- query.c: a query as a table, or as JSON with its columns' names as keys ---- */

struct query {
    const char *sql; /* ?1: the bound number */
    const struct table_column *columns;
    /* a letter for each column: t text, c count, b bytes, d duration, n plain number, x address, % tenths of
     * a percent */
    const char *kinds;
};

/// Returns the number of rows; prints nothing if there are none.
int64_t query_print(FILE *out, struct database *database, const struct query *query, int64_t bound);
struct cJSON *query_json(struct database *database, const char *sql, int64_t bound);

/* ---- report_gpu*.c: what GPU runs have beside allocations ---- */

/* A moment of a caching allocator: when it had reserved most. */
struct report_segment {
    int64_t process_id, pid, device, seq, ts_ns;
    int64_t reserved, allocated, active; /* bytes; active: allocated, or freed but still waited for */
    int64_t from_driver;                 /* what its process had of the driver on that device; -1: unknown */
    int64_t largest_free, segments;      /* -1: unknown */
};

struct report_segments {
    struct report_segment *rows;
    size_t count;
};

#define REPORT_DEVICES_SQL                                                                        \
    "SELECT u.device, d.name, d.total_bytes, d.uuid FROM (SELECT id AS device FROM device UNION " \
    "SELECT device FROM device_process) u LEFT JOIN device d ON d.id = u.device ORDER BY 1"

/* Per device: how often the driver was asked, its memory, the most in use and what was seen of it then, and
 * the rest: the least, the most, the last. */
#define REPORT_UNEXPLAINED_SQL                                                                            \
    "SELECT device, count(*) AS asked, max(total) AS total, max(used) AS most_used, "                     \
    "(SELECT seen FROM device_unexplained m WHERE m.device = u.device ORDER BY used DESC, seq LIMIT 1) "  \
    "AS seen, min(unexplained) AS least, max(unexplained) AS most, "                                      \
    "(SELECT unexplained FROM device_unexplained l WHERE l.device = u.device ORDER BY seq DESC LIMIT 1) " \
    "AS last FROM device_unexplained u GROUP BY device ORDER BY device"

/// Is there anything about GPUs in this database?
bool report_has_gpu(struct database *database);
void report_gpu_text(FILE *out, struct database *database);
struct cJSON *report_gpu_json(struct database *database);
/// CUDA's name of a CUresult, NULL if it is not one of the usual.
const char *report_cuda_result(int64_t result);
void report_segments_load(struct report_segments *segments, struct database *database, int64_t limit);
void report_segments_free(struct report_segments *segments);
/// Did CUPTI tell allocations beside the CUDA recorder?
bool report_has_witness(struct database *database);
/// Do both tell the same ones?
bool report_witness_agrees(struct database *database);
void report_cupti_print(FILE *out, struct database *database);
struct cJSON *report_cupti_json(struct database *database);

/* ---- query/selection.c: --domain and --pid ---- */

#define DOMAIN_HELP                                                                                  \
    "heap (default: malloc and its kin), mmap; of GPU runs device (the CUDA API), block (a caching " \
    "allocator), "                                                                                   \
    "pinned, managed, cupti"

/* What leaks, peak and timeline are asked about. */
struct selection {
    const char *domain;
    int64_t pid;        /* 0: all processes together */
    int64_t process_id; /* 0: all processes together */
    int64_t device;     /* where most was live at a time */
    int64_t devices;    /* there are in the domain; 0: nothing was allocated */
};

/// Checks the two against the database; a pid that names several process images gives the one with the larger
/// peak. Errors: VARVE_ERROR_NOT_FOUND, with one line that lists what there is.
int selection_make(struct selection *selection, struct database *database, const char *domain, int64_t pid,
                   struct varve_message *message);
/// Ask about this device instead. VARVE_ERROR_NOT_FOUND: the domain has nothing there.
int selection_device(struct selection *selection, struct database *database, int64_t device,
                     struct varve_message *message);
/// The row of total that the selection is about; false if there is none (nothing was allocated).
bool selection_total(const struct selection *selection, struct database *database,
                     struct report_total *total);
/// The same of all devices: bytes and allocations, live and at the peak of each, added up. The moment is that
/// of selection->device.
bool selection_sum(const struct selection *selection, struct database *database, struct report_total *total);

/* ---- query/timeline.c: bytes over time, in equal steps ---- */

struct timeline_point {
    int64_t begin_ns, end_ns;
    int64_t allocated;     /* at the end of the step */
    int64_t allocated_max; /* within the step */
    int64_t live;          /* allocations at the end of the step */
};

struct timeline {
    struct timeline_point *points;
    size_t count;
    int64_t samples; /* rows of the view that went in */
};

void timeline_load(struct timeline *timeline, struct database *database, const struct selection *selection,
                   int64_t points);
void timeline_free(struct timeline *timeline);
/// A chart of the maxima, `rows` lines high.
void timeline_chart(FILE *out, const struct timeline *timeline, int rows);

#ifdef __cplusplus
}
#endif

#endif
