/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/json_writer.h"

#include <math.h>

static double dtr_print_json_overhead(const struct dtr_subject *subject, uint64_t clock)
{
    uint64_t cost = subject->baseline.counters.model_compute_ns;
    return cost > 0 ? (double)clock / (double)cost : 1;
}

static void add_bytes(struct cJSON *object, const char *key, uint64_t bytes)
{
    json_integer_or_null(object, key, bytes <= INT64_MAX ? (int64_t)bytes : -1);
}

static void add_number(struct cJSON *object, const char *key, uint64_t number)
{
    json_integer(object, key, (int64_t)number);
}

/* The operator, by its number, its name and the line of the log; null at the end of the log. */
static struct cJSON *op_json(const struct dtr_log *log, uint32_t op)
{
    if (op == VARVE_REMAT_NONE) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    add_number(object, "number", op);
    json_text(object, "name", dtr_log_name(log, log->ops[op].name));
    add_number(object, "line", log->ops[op].line);
    return object;
}

static struct cJSON *counters_json(const struct varve_remat_counters *counters)
{
    struct cJSON *object = json_object();

#define ADD_COUNTER(name, meaning) add_number(object, #name, counters->name);
    VARVE_REMAT_COUNTER_LIST(ADD_COUNTER)
#undef ADD_COUNTER
    add_number(object, "used_bytes", counters->used_bytes);
    add_number(object, "pinned_bytes", counters->pinned_bytes);
    add_number(object, "locked_bytes_max", counters->locked_bytes_max);
    add_number(object, "depth_max", counters->depth_max);
    add_number(object, "bottleneck_bytes", counters->bottleneck_bytes);
    add_number(object, "metadata_bytes", counters->metadata_bytes);
    return object;
}

/* What a play is compared by, under the names that the published simulator's figures have. */
static void dtr_print_json_add_figures(struct cJSON *object, const struct dtr_subject *subject,
                                       const struct varve_remat_counters *counters)
{
    add_number(object, "clock", counters->clock);
    json_real(object, "overhead", dtr_print_json_overhead(subject, counters->clock));
    add_number(object, "remat_compute", counters->remat_compute_ns);
    add_number(object, "max_memory", counters->max_used_bytes);
    add_number(object, "evictions", counters->evictions);
    add_number(object, "remats", counters->remats_direct);
}

static void add_allocator(struct cJSON *object, const struct dtr_subject *subject,
                          const struct dtr_allocator_figures *figures)
{
    if (subject->options->allocator == NULL) {
        return;
    }
    add_number(object, "peak_reserved", figures->peak_reserved);
    add_number(object, "peak_allocated", figures->peak_allocated);
    json_real(object, "fragmentation", dtr_allocator_fragmentation(figures));
    add_number(object, "largest_free", figures->largest_free);
    add_number(object, "reserved", figures->reserved);
    add_number(object, "allocated", figures->allocated);
    add_number(object, "retries", figures->retries);
    add_number(object, "failures", figures->failures);
    add_number(object, "segments_made", figures->segments_made);
    add_number(object, "device_calls", figures->device_calls);
}

static void dtr_print_json_add_setting(struct cJSON *object, const struct dtr_subject *subject)
{
    json_text(object, "log", subject->path);
    json_text(object, "heuristic", subject->options->heuristic->name);
    json_text(object, "mode", subject->options->allocator != NULL ? "allocator" : "exact");
    add_number(object, "baseline_memory", subject->baseline.counters.max_used_bytes);
    add_number(object, "baseline_compute", subject->baseline.counters.model_compute_ns);
    add_number(object, "lower_bound", subject->description.bound_bytes);
}

void dtr_print_play_json(FILE *out, const struct dtr_subject *subject, const struct dtr_result *result)
{
    struct cJSON *object = json_object();
    dtr_print_json_add_setting(object, subject);
    json_text(object, "status", dtr_status_name(result->status));
    add_bytes(object, "budget", subject->options->budget);
    dtr_print_json_add_figures(object, subject, &result->counters);
    add_number(object, "model_compute", result->counters.model_compute_ns);
    add_number(object, "op_executions", result->counters.executions);
    add_number(object, "heuristic_evals", result->counters.heuristic_evals);
    add_number(object, "heuristic_accesses", result->counters.heuristic_accesses);
    json_real(object, "seconds", result->seconds);
    add_number(object, "events", result->events);
    json_real(object, "events_per_second", result->seconds > 0 ? (double)result->events / result->seconds : 0);
    add_allocator(object, subject, &result->allocator);
    if (result->status != DTR_OK) {
        json_add(object, "failed_op", op_json(subject->log, result->op));
        json_text(object, "reason", result->reason.text);
    }
    json_add(object, "counters", counters_json(&result->counters));
    json_print(object, out);
}

static struct cJSON *point_json(const struct dtr_subject *subject, const struct dtr_point *point)
{
    struct cJSON *object = json_object();
    add_bytes(object, "budget", point->budget);
    json_text(object, "status", dtr_status_name(point->status));
    dtr_print_json_add_figures(object, subject, &point->counters);
    json_real(object, "seconds", point->seconds);
    add_allocator(object, subject, &point->allocator);
    return object;
}

static struct cJSON *points_json(const struct dtr_subject *subject, const struct dtr_point *points, size_t count)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_append(array, point_json(subject, &points[i]));
    }
    return array;
}

static struct cJSON *point_or_null(const struct dtr_subject *subject, const struct dtr_point *point)
{
    return point != NULL ? point_json(subject, point) : json_null_value();
}

void dtr_print_overview_json(FILE *out, const struct dtr_subject *subject, const struct dtr_point *points, size_t count,
                             const struct dtr_point *smallest)
{
    const struct dtr_log *log = subject->log;
    const struct dtr_description *description = &subject->description;
    struct cJSON *object = json_object();
    dtr_print_json_add_setting(object, subject);
    add_number(object, "operators", log->op_count);
    add_number(object, "backward_operators", description->backward_ops);
#define ADD_COUNT(name, meaning) add_number(object, #name, log->name);
    DTR_LOG_COUNT_LIST(ADD_COUNT)
#undef ADD_COUNT
    add_number(object, "storages", description->storages);
    add_number(object, "views", description->views);
    add_number(object, "constant_bytes", description->constant_bytes);
    add_number(object, "unreleased_memory", log->bytes);
    add_number(object, "end_bytes", description->end_bytes);
    json_add(object, "lower_bound_op", op_json(log, description->bound_op));
    json_add(object, "budgets", points_json(subject, points, count));
    json_add(object, "smallest", point_or_null(subject, smallest));
    json_print(object, out);
}

/* ---- sweeps ---- */

static struct cJSON *bands_json(const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < sweep->band_count; i++) {
        const struct dtr_band *band = &sweep->bands[i];
        struct cJSON *object = json_object();
        json_text(object, "status", dtr_status_name(band->status));
        add_bytes(object, "from", sweep->points[band->first].budget);
        add_bytes(object, "to", sweep->points[band->end - 1].budget);
        add_number(object, "points", band->end - band->first);
        if (band->status == DTR_OK) {
            json_real(object, "overhead_min", dtr_print_json_overhead(subject, band->clock_min));
            json_real(object, "overhead_max", dtr_print_json_overhead(subject, band->clock_max));
        }
        json_append(array, object);
    }
    return array;
}

static struct cJSON *decision_json(const struct dtr_log *log, const struct dtr_decision *decision)
{
    if (!decision->is_made) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    json_add(object, "op", op_json(log, decision->op));
    add_number(object, "storage", decision->storage);
    json_add(object, "made_by", op_json(log, decision->made_by));
    add_number(object, "bytes", decision->bytes);
    add_number(object, "clock", decision->clock);
    json_add(object, "score", isfinite(decision->score) ? json_real_value(decision->score) : json_null_value());
    return object;
}

static struct cJSON *partings_json(const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < sweep->parting_count; i++) {
        const struct dtr_parting *parting = &sweep->partings[i];
        struct cJSON *object = json_object();
        add_bytes(object, "smaller_budget", sweep->points[parting->below].budget);
        add_bytes(object, "larger_budget", sweep->points[parting->below + 1].budget);
        add_number(object, "decisions_alike", parting->index);
        json_add(object, "smaller", decision_json(subject->log, &parting->smaller));
        json_add(object, "larger", decision_json(subject->log, &parting->larger));
        json_append(array, object);
    }
    return array;
}

void dtr_print_sweep_json(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    struct cJSON *object = json_object();
    dtr_print_json_add_setting(object, subject);
    json_add(object, "smallest", point_or_null(subject, dtr_sweep_smallest(sweep)));
    json_add(object, "bands", bands_json(subject, sweep));
    json_add(object, "partings", partings_json(subject, sweep));
    json_add(object, "points", points_json(subject, sweep->points, sweep->point_count));
    json_print(object, out);
}
