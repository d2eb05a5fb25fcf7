/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One log under many budgets, on as many threads as there are jobs, a planner each: what each of them costs, which do
 * not work, and where the runs of two neighbours part that end otherwise. A larger budget is not always the better one.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_SWEEP_H
#define VARVE_ANALYSIS_DTR_DTR_SWEEP_H

#include "analysis/dtr/dtr_play.h"

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
/// events. Errors: as of dtr_play.
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

#endif
