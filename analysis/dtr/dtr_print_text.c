/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/number_format.h"
#include "analysis/base/table.h"

#include <inttypes.h>

#define POINTS_SHOWN 20
#define PARTINGS_SHOWN 4

static double ratio(const struct dtr_subject *subject, uint64_t bytes)
{
    uint64_t peak = subject->baseline.counters.max_used_bytes;
    return peak > 0 ? (double)bytes / (double)peak : 1;
}

static double dtr_print_text_overhead(const struct dtr_subject *subject, uint64_t clock)
{
    uint64_t cost = subject->baseline.counters.model_compute_ns;
    return cost > 0 ? (double)clock / (double)cost : 1;
}

/* `'name' (line N)`, or the end of the log. */
static void print_op(FILE *out, const struct dtr_log *log, uint32_t op)
{
    if (op == VARVE_REMAT_NONE) {
        fprintf(out, "the end of the log");
    } else {
        fprintf(out, "'%s' (line %" PRIu64 ")", dtr_log_name(log, log->ops[op].name), log->ops[op].line);
    }
}

/* Why the lower bound is what it is. */
static void print_bound(FILE *out, const struct dtr_subject *subject, const char *indent)
{
    const struct dtr_description *description = &subject->description;
    if (description->bound_op == VARVE_REMAT_NONE) {
        fprintf(out, "%sresident at the end\n", indent);
    } else {
        fprintf(out, "%sin use while ", indent);
        print_op(out, subject->log, description->bound_op);
        fprintf(out, " runs:\n%sits inputs, its outputs, and what is pinned by then\n", indent);
    }
}

/* ---- one play ---- */

static int64_t evictions_for_room(const struct varve_remat_counters *counters)
{
    return (int64_t)(counters->evictions_budget + counters->evictions_allocator);
}

static void dtr_text_print_failure(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result)
{
    fprintf(out, "%s at ", dtr_status_name(result->status));
    print_op(out, subject->log, result->op);
    fputs(":\n  ", out);
    format_print_wrapped(out, result->reason.text, 2);
}

static void print_allocator(FILE *out, const struct dtr_result *result)
{
    const struct dtr_allocator_figures *figures = &result->allocator;
    fprintf(out, "allocator: peak reserved %s, peak allocated %s (%.1f %% less)\n", EXACT(figures->peak_reserved),
            EXACT(figures->peak_allocated), 100 * dtr_allocator_fragmentation(figures));
    if (result->status == DTR_OOM) {
        fprintf(out, "  then %s reserved, %s allocated, largest free block %s\n", BYTES(figures->reserved),
                BYTES(figures->allocated), BYTES(figures->largest_free));
    }
    fprintf(out, "  %s segments made, %s calls of the device, %s retries\n", COUNT(figures->segments_made),
            COUNT(figures->device_calls), COUNT(figures->retries));
}

void dtr_print_play(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result)
{
    const struct varve_remat_counters *counters = &result->counters;
    uint64_t budget = subject->options->budget;
    if (budget < subject->description.bound_bytes) {
        fprintf(out, "no budget below %s can work: that is\n", EXACT(subject->description.bound_bytes));
        print_bound(out, subject, "  ");
        return;
    }
    if (budget == VARVE_REMAT_UNLIMITED) {
        fprintf(out, "no budget, heuristic %s\n", subject->options->heuristic->name);
    } else {
        fprintf(out, "budget %s, %.3f of the peak; heuristic %s\n", EXACT(budget), ratio(subject, budget),
                subject->options->heuristic->name);
    }
    if (result->status != DTR_OK) {
        dtr_text_print_failure(out, subject, result);
    } else {
        fprintf(out, "ok: overhead %.3f, peak %s\n", dtr_print_text_overhead(subject, counters->clock),
                EXACT(counters->max_used_bytes));
    }
    fprintf(out, "%s of the program, %s of recomputation\n", DURATION(counters->model_compute_ns),
            DURATION(counters->remat_compute_ns));
    fprintf(out, "%s evictions: %s released, %s for room\n", COUNT(counters->evictions),
            COUNT(counters->evictions_released), COUNT(evictions_for_room(counters)));
    fprintf(out, "%s recomputations, up to %s nested; storages that came back unasked: %s\n",
            COUNT(counters->remats_direct), COUNT(counters->depth_max), COUNT(counters->remats_collateral));
    if (subject->options->allocator != NULL) {
        print_allocator(out, result);
    }
    fprintf(out, "%s events of the log played in %s (%s events/s)\n", COUNT(result->events),
            DURATION(result->seconds * 1e9),
            COUNT(result->seconds > 0 ? (int64_t)((double)result->events / result->seconds) : 0));
}

/* ---- points ---- */

#define POINT_COLUMNS 8
static const struct table_column point_columns[] = {
    {"ratio", true},    {"budget", true},         {"status", false}, {"overhead", true}, {"evictions", true},
    {"for room", true}, {"recomputations", true}, {"peak", true},    {"reserved", true}, {"retries", true},
};

static void add_real(struct table *table, double value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.3f", value);
    table_add(table, text);
}

static void add_point(struct table *table, const struct dtr_subject *subject, const struct dtr_point *point)
{
    const struct varve_remat_counters *counters = &point->counters;
    const struct dtr_allocator_figures *figures = &point->allocator;
    add_real(table, ratio(subject, point->budget));
    table_add(table, BYTES(point->budget));
    table_add(table, dtr_status_name(point->status));
    if (point->status != DTR_OK) {
        for (size_t i = 3; i < table->column_count; i++) {
            table_add(table, "-");
        }
        return;
    }
    add_real(table, dtr_print_text_overhead(subject, counters->clock));
    table_add(table, COUNT(counters->evictions));
    table_add(table, COUNT(evictions_for_room(counters)));
    table_add(table, COUNT(counters->remats_direct));
    table_add(table, BYTES(counters->max_used_bytes));
    if (table->column_count > POINT_COLUMNS) {
        table_add(table, BYTES(figures->peak_reserved));
        table_add(table, COUNT(figures->retries));
    }
}

static void print_points(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                         size_t step)
{
    struct table table;
    table_init(&table, point_columns, POINT_COLUMNS + (subject->options->allocator != NULL ? 2 : 0));
    for (size_t i = 0; i < count; i += step) {
        add_point(&table, subject, &points[i]);
    }
    table_print(&table, out, true);
    table_free(&table);
    fprintf(out, "overhead: time with recomputation / without; for room: evictions that are no releases\n"
                 "oom: nothing is left to evict; thrash: recomputation costs more than --remat-limit allows\n");
}

static void dtr_text_print_smallest(FILE *out, const struct dtr_subject *subject, const struct dtr_point *smallest)
{
    if (smallest == NULL) {
        fprintf(out, "no budget that works was found\n");
    } else {
        fprintf(out, "smallest budget found that works: %s, %.3f of the peak, overhead %.3f\n", EXACT(smallest->budget),
                ratio(subject, smallest->budget), dtr_print_text_overhead(subject, smallest->counters.clock));
    }
}

/* ---- what the log is ---- */

static void print_bytes(FILE *out, const char *what, uint64_t bytes)
{
    fprintf(out, "  %-30s %s\n", what, EXACT(bytes));
}

void dtr_print_overview(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                        const struct dtr_point *smallest)
{
    const struct dtr_log *log = subject->log;
    const struct dtr_description *description = &subject->description;
    fprintf(out, "%s\n%s operators in %s: %s constants, %s of the backward pass; %s storages, %s views\n\n",
            subject->path, COUNT(log->op_count), DURATION(log->cost_ns), COUNT(log->constants),
            COUNT(description->backward_ops), COUNT(description->storages), COUNT(description->views));
    print_bytes(out, "constants", description->constant_bytes);
    print_bytes(out, "resident at the end", description->end_bytes);
    print_bytes(out, "peak (ratio 1)", subject->baseline.counters.max_used_bytes);
    print_bytes(out, "peak if nothing were released", log->bytes);
    print_bytes(out, "lower bound of budgets", description->bound_bytes);
    print_bound(out, subject, "    ");
    fprintf(out, "\nheuristic %s:\n", subject->options->heuristic->name);
    print_points(out, subject, points, count, 1);
    fputc('\n', out);
    dtr_text_print_smallest(out, subject, smallest);
    if (smallest != NULL) {
        fprintf(out, "it was found by bisection, but more memory is not always better: --sweep looks at all "
                     "budgets\n");
    }
}

/* ---- sweeps ---- */

static const struct table_column band_columns[] = {
    {"status", false}, {"from", true}, {"to", true}, {"ratios", true}, {"budgets", true}, {"overhead", true},
};

static void print_bands(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    struct table table;
    table_init(&table, band_columns, sizeof(band_columns) / sizeof(band_columns[0]));
    char text[64];
    for (size_t i = 0; i < sweep->band_count; i++) {
        const struct dtr_band *band = &sweep->bands[i];
        uint64_t from = sweep->points[band->first].budget, to = sweep->points[band->end - 1].budget;
        table_add(&table, dtr_status_name(band->status));
        table_add(&table, BYTES(from));
        table_add(&table, BYTES(to));
        snprintf(text, sizeof(text), "%.4f-%.4f", ratio(subject, from), ratio(subject, to));
        table_add(&table, text);
        table_add(&table, COUNT(band->end - band->first));
        snprintf(text, sizeof(text), "%.3f-%.3f", dtr_print_text_overhead(subject, band->clock_min),
                 dtr_print_text_overhead(subject, band->clock_max));
        table_add(&table, band->status == DTR_OK ? text : "-");
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void print_decision(FILE *out, const struct dtr_log *log, uint64_t budget, const struct dtr_decision *decision)
{
    fprintf(out, "    %s bytes: ", COUNT(budget));
    if (!decision->is_made) {
        fprintf(out, "nothing more is evicted\n");
        return;
    }
    fprintf(out, "%s of ", BYTES(decision->bytes));
    print_op(out, log, decision->made_by);
    fprintf(out, " make room for\n      ");
    print_op(out, log, decision->op);
    fprintf(out, ", at %s\n", DURATION(decision->clock));
}

static void print_partings(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    fprintf(out, "neighbouring budgets that end differently, and the first eviction in which they differ:\n");
    for (size_t i = 0; i < sweep->parting_count && i < PARTINGS_SHOWN; i++) {
        const struct dtr_parting *parting = &sweep->partings[i];
        const struct dtr_point *points = &sweep->points[parting->below];
        fprintf(out, "  %s and %s; equal evictions before: %s\n", dtr_status_name(points[0].status),
                dtr_status_name(points[1].status), COUNT(parting->index));
        print_decision(out, subject->log, points[0].budget, &parting->smaller);
        print_decision(out, subject->log, points[1].budget, &parting->larger);
    }
    if (sweep->parting_count > PARTINGS_SHOWN) {
        fprintf(out, "  and %zu more: --json has them all\n", sweep->parting_count - PARTINGS_SHOWN);
    }
}

void dtr_print_sweep(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    fprintf(out, "%s budgets of %s, heuristic %s\n\n", COUNT(sweep->point_count), subject->path,
            subject->options->heuristic->name);
    print_points(out, subject, sweep->points, sweep->point_count,
                 (sweep->point_count + POINTS_SHOWN - 1) / POINTS_SHOWN);
    fputc('\n', out);
    print_bands(out, subject, sweep);
    fputc('\n', out);
    dtr_text_print_smallest(out, subject, dtr_sweep_smallest(sweep));
    if (sweep->parting_count > 0) {
        fputc('\n', out);
        print_partings(out, subject, sweep);
    }
}
