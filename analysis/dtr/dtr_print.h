/* SPDX-License-Identifier: Apache-2.0 */
/* What `varve dtr` says of a log and of plays, for people and as JSON. */
#ifndef VARVE_ANALYSIS_DTR_DTR_PRINT_H
#define VARVE_ANALYSIS_DTR_DTR_PRINT_H

#include "analysis/dtr/dtr_log.h"
#include "analysis/dtr/dtr_play.h"
#include "storage/storage.h"

#include <stdio.h>

/*
 * One log under many budgets, on as many threads as there are jobs, a planner each: what each of them costs, which do
 * not work, and where the runs of two neighbours part that end otherwise. A larger budget is not always the better one.
 */

struct dtr_point {
    uint64_t budget;
    enum dtr_status status;
    double seconds;
    struct varve_remat_counters counters;
    struct dtr_allocator_figures allocator;
};

/* Neighbouring points with the same status, as many as there are. */
struct dtr_band {
    size_t first, end; /* of points */
    enum dtr_status status;
    uint64_t clock_min, clock_max;
};

/* An eviction that a play chose, rather than one of what was released. */
struct dtr_decision {
    bool is_made; /* false: there was none any more */
    uint32_t op;  /* of the program, that needed the room; VARVE_REMAT_NONE at the end */
    uint32_t made_by, storage;
    uint64_t bytes, clock;
    double score;
};

/* Two neighbouring points with different ends, and the first decision that differs. */
struct dtr_parting {
    size_t below;   /* the point with the smaller budget; the other is the next */
    uint64_t index; /* decisions before it, which are the same */
    struct dtr_decision smaller, larger;
};

struct dtr_sweep {
    struct dtr_point *points;
    struct dtr_band *bands;
    struct dtr_parting *partings;
    size_t point_count, band_count, parting_count;
};

/// Play all points, whose budgets are set and rise. `options` hold for all but for the budget; nobody sees their
/// events. `jobs`: threads, 0: one for each processor. Errors: as of dtr_play.
int dtr_sweep_points(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs,
                     struct dtr_point *points, size_t count, struct varve_message *message);
/// The same with all that follows from the points. Takes them; owner of the sweep: the caller, by dtr_sweep_free,
/// also after an error.
int dtr_sweep_make(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs,
                   struct dtr_point *points, size_t count, struct dtr_sweep *sweep_out, struct varve_message *message);
void dtr_sweep_free(struct dtr_sweep *sweep);
/// The first point that works, NULL: none does.
const struct dtr_point *dtr_sweep_smallest(const struct dtr_sweep *sweep);
/// A budget that works, found by bisection between one that does not and one that does, at most `step` above one that
/// does not. Both are changed.
int dtr_sweep_bisect(const struct dtr_log *log, const struct dtr_options *options, uint64_t step,
                     struct dtr_point *fails, struct dtr_point *works, struct varve_message *message);

/* What a log needs by itself, whatever is evicted: the budget below which no play can reach its end. */

struct dtr_description {
    uint32_t storages, views, backward_ops;
    uint64_t constant_bytes;
    uint64_t end_bytes; /* what must be resident at the end, constants included */
    /* No budget below can work. It is what `bound_op` needs: what is pinned by then, its inputs and its outputs; or the
     * end condition (VARVE_REMAT_NONE). */
    uint64_t bound_bytes;
    uint32_t bound_op;
};

/// `dealloc`: with VARVE_REMAT_DEALLOC_BANISH what is pinned goes, too, once it is released.
void dtr_describe(const struct dtr_log *log, enum varve_remat_dealloc dealloc, struct dtr_description *description_out);

/* What every answer is about; all borrowed. */
struct dtr_subject {
    const char *path;
    const struct dtr_log *log;
    const struct dtr_options *options; /* their budget: of a single play */
    struct dtr_description description;
    struct dtr_result baseline;
};

/// One play.
void dtr_print_play(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result);
void dtr_print_play_json(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result);
/// What the log is, and what it is below some budgets; `smallest`: that was found to work, NULL if none does.
void dtr_print_overview(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                        const struct dtr_point *smallest);
void dtr_print_overview_json(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                             const struct dtr_point *smallest);
void dtr_print_sweep(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep);
void dtr_print_sweep_json(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep);

/*
 * One play as a trace database, by the same tables as a recording of a live planner: operators, evictions with scores
 * and causes, recomputations, what was pinned; in allocator mode the allocator's own events, too. Times are the
 * planner's clock.
 */

/// Play with `options`, whose events and records go to a database at `path`, and nowhere else; the time that takes is
/// in the result's. Nothing appears at `path` unless all went well; a play that runs out of memory is well. Errors: as
/// of dtr_play and of varve_writer_open.
int dtr_database_write(const char *path, bool may_replace, const char *source, const struct dtr_log *log,
                       const struct dtr_options *options, struct dtr_result *result_out, struct varve_message *message);

/*
 * A sweep as a drawing: overhead against budget, with bands where no budget works. SVG is written here, for light and
 * dark pages; PNG is made of it by rsvg-convert.
 */

/// Can there be a drawing of that name? Errors: VARVE_ERROR_INVALID (neither .svg nor .png), NOT_FOUND (no
/// rsvg-convert for a .png).
int dtr_plot_check(const char *path, struct varve_message *message);
/// Errors: as of output_file.
int dtr_plot_write(const char *path, bool may_replace, const struct dtr_subject *subject, const struct dtr_sweep *sweep,
                   struct varve_message *message);

#endif
