/* SPDX-License-Identifier: Apache-2.0 */
/* Of the threads that play, the calling one alone draws progress. */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/progress.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- threads ---- */

struct work {
    int (*run)(const struct work *work, const struct dtr_options *options, size_t index, struct varve_message *message);
    const struct dtr_log *log;
    const struct dtr_options *options;
    void *items;
    size_t count;
    const char *what;
    size_t done; /* atomic */
    pthread_t caller;
    pthread_mutex_t lock;
    int error; /* the first, atomic; written with `message` under the lock */
    struct varve_message message;
};

static void run_piece(void *context, size_t index)
{
    struct work *work = context;
    if (__atomic_load_n(&work->error, __ATOMIC_RELAXED) != VARVE_OK) {
        return;
    }
    struct varve_message message = {""};
    struct dtr_options options = *work->options;
    options.progress = pthread_equal(pthread_self(), work->caller) ? options.progress : NULL;
    options.stage = work->what;
    options.plays = work->count;
    options.plays_done = __atomic_load_n(&work->done, __ATOMIC_RELAXED);
    int error = work->run(work, &options, index, &message);
    __atomic_fetch_add(&work->done, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&work->lock);
    if (error != VARVE_OK && work->error == VARVE_OK) {
        work->message = message;
        __atomic_store_n(&work->error, error, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&work->lock);
}

static int run_all(struct work *work, unsigned jobs, struct varve_message *message)
{
    work->caller = pthread_self();
    pthread_mutex_init(&work->lock, NULL);
    parallel_run(work->count, jobs, run_piece, work);
    pthread_mutex_destroy(&work->lock);
    return work->error == VARVE_OK ? VARVE_OK : varve_message_set(message, work->error, "%s", work->message.text);
}

/* ---- points ---- */

static int play_point(const struct dtr_log *log, const struct dtr_options *options, struct dtr_point *point,
                      struct varve_message *message)
{
    struct dtr_options own = *options;
    own.budget = point->budget;
    struct dtr_result result;
    int error = dtr_play(log, &own, &result, message);
    point->status = result.status;
    point->seconds = result.seconds;
    point->counters = result.counters;
    point->allocator = result.allocator;
    return error;
}

static int run_point(const struct work *work, const struct dtr_options *options, size_t index,
                     struct varve_message *message)
{
    struct dtr_point *points = work->items;
    return play_point(work->log, options, &points[index], message);
}

int dtr_sweep_points(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs,
                     struct dtr_point *points, size_t count, struct varve_message *message)
{
    struct work work = {
        .run = run_point, .log = log, .options = options, .items = points, .count = count, .what = "playing budgets"};
    return run_all(&work, jobs, message);
}

int dtr_sweep_bisect(const struct dtr_log *log, const struct dtr_options *options, uint64_t step,
                     struct dtr_point *fails, struct dtr_point *works, struct varve_message *message)
{
    struct dtr_options staged = *options;
    staged.stage = "looking for the smallest budget";
    while (works->budget - fails->budget > step) {
        struct dtr_point middle = {.budget = fails->budget + (works->budget - fails->budget) / 2};
        int error = play_point(log, &staged, &middle, message);
        if (error != VARVE_OK) {
            return error;
        }
        *(middle.status == DTR_OK ? works : fails) = middle;
    }
    return VARVE_OK;
}

/* ---- bands ---- */

static void make_bands(struct dtr_sweep *sweep)
{
    size_t capacity = 0;
    for (size_t i = 0; i < sweep->point_count; i++) {
        const struct dtr_point *point = &sweep->points[i];
        if (sweep->band_count == 0 || sweep->bands[sweep->band_count - 1].status != point->status) {
            *MEMORY_ADD(sweep->bands, sweep->band_count, capacity) =
                (struct dtr_band){.first = i, .status = point->status, .clock_min = point->counters.clock};
        }
        struct dtr_band *band = &sweep->bands[sweep->band_count - 1];
        band->end = i + 1;
        band->clock_min = point->counters.clock < band->clock_min ? point->counters.clock : band->clock_min;
        band->clock_max = point->counters.clock > band->clock_max ? point->counters.clock : band->clock_max;
    }
}

/* ---- where two runs part ---- */

/* The first run notes its decisions, the second is compared with them. */
struct decisions {
    struct dtr_decision *items;
    size_t count, capacity;
    size_t compared; /* of the second run, up to the first that differs */
    bool is_second, has_parted;
    struct dtr_decision other;
};

static bool dtr_sweep_is_same(const struct dtr_decision *a, const struct dtr_decision *b)
{
    return a->storage == b->storage && a->op == b->op && a->clock == b->clock;
}

static void note_decision(void *context, const struct varve_remat_event *event, uint32_t op)
{
    struct decisions *decisions = context;
    const struct dtr_decision decision = {
        .is_made = true,
        .op = op,
        .made_by = event->op,
        .storage = event->storage,
        .bytes = event->bytes,
        .clock = event->time,
        .score = event->score,
    };
    if (event->kind != VARVE_REMAT_EVENT_EVICT || decisions->has_parted ||
        (event->cause != VARVE_REMAT_CAUSE_BUDGET && event->cause != VARVE_REMAT_CAUSE_ALLOCATOR)) {
        return;
    }
    if (!decisions->is_second) {
        *MEMORY_ADD(decisions->items, decisions->count, decisions->capacity) = decision;
    } else if (decisions->compared < decisions->count &&
               dtr_sweep_is_same(&decisions->items[decisions->compared], &decision)) {
        decisions->compared++;
    } else {
        decisions->has_parted = true;
        decisions->other = decision;
    }
}

struct parting_work {
    const struct dtr_point *points;
    struct dtr_parting *partings;
};

static int run_parting(const struct work *work, const struct dtr_options *played, size_t index,
                       struct varve_message *message)
{
    const struct parting_work *items = work->items;
    struct dtr_parting *parting = &items->partings[index];
    struct dtr_options options = *played;
    options.event = note_decision;
    struct decisions decisions = {0};
    options.event_context = &decisions;
    options.budget = items->points[parting->below].budget;
    struct dtr_result result;
    int error = dtr_play(work->log, &options, &result, message);
    decisions.is_second = true;
    options.budget = items->points[parting->below + 1].budget;
    VARVE_THEN(error, dtr_play(work->log, &options, &result, message));
    parting->index = decisions.compared;
    parting->larger = decisions.other;
    if (decisions.compared < decisions.count) {
        parting->smaller = decisions.items[decisions.compared];
    }
    free(decisions.items);
    return error;
}

static int find_partings(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs,
                         struct dtr_sweep *sweep, struct varve_message *message)
{
    struct parting_work items = {.points = sweep->points};
    struct work work = {
        .run = run_parting, .log = log, .options = options, .items = &items, .what = "comparing neighbours"};
    sweep->parting_count = sweep->band_count > 0 ? sweep->band_count - 1 : 0;
    sweep->partings = memory_resize(NULL, sweep->parting_count * sizeof(*sweep->partings));
    for (size_t i = 0; i < sweep->parting_count; i++) {
        sweep->partings[i] = (struct dtr_parting){.below = sweep->bands[i].end - 1};
    }
    items.partings = sweep->partings;
    work.count = sweep->parting_count;
    return run_all(&work, jobs, message);
}

/* ---- the whole ---- */

int dtr_sweep_make(const struct dtr_log *log, const struct dtr_options *options, unsigned jobs,
                   struct dtr_point *points, size_t count, struct dtr_sweep *sweep_out, struct varve_message *message)
{
    int error = dtr_sweep_points(log, options, jobs, points, count, message);
    *sweep_out = (struct dtr_sweep){.points = points, .point_count = count};
    if (error != VARVE_OK) {
        return error;
    }
    make_bands(sweep_out);
    return find_partings(log, options, jobs, sweep_out, message);
}

void dtr_sweep_free(struct dtr_sweep *sweep)
{
    free(sweep->points);
    free(sweep->bands);
    free(sweep->partings);
    *sweep = (struct dtr_sweep){0};
}

const struct dtr_point *dtr_sweep_smallest(const struct dtr_sweep *sweep)
{
    for (size_t i = 0; i < sweep->point_count; i++) {
        if (sweep->points[i].status == DTR_OK) {
            return &sweep->points[i];
        }
    }
    return NULL;
}
