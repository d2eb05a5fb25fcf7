/* SPDX-License-Identifier: Apache-2.0 */
/* A planner numbers tensors, operators and storages as the log does, so events go to it as they are. */
#include "analysis/dtr/dtr_play.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "base/error.h"
#include "trace/emit.h"

#include <stdlib.h>

#define PROGRESS_INTERVAL 256 /* events */

struct play {
    const struct dtr_log *log;
    const struct dtr_options *options;
    struct varve_remat *remat;
    struct dtr_allocator allocator;
    uint32_t *outputs; /* room for those of any operator */
    uint32_t op;       /* of the program, that is being played */
};

static void on_event(void *context, const struct varve_remat_event *event)
{
    const struct play *play = context;
    play->options->event(play->options->event_context, event, play->op);
}

static void set_op(struct play *play, uint32_t op)
{
    play->op = op;
    if (play->options->playing != NULL) {
        *play->options->playing = op;
    }
}

static int compute(struct play *play, uint32_t number, struct varve_message *message)
{
    const struct dtr_log *log = play->log;
    const struct dtr_op *op = &log->ops[number];
    const struct varve_remat_op planned = {
        .inputs = log->inputs + op->first_input,
        .sizes = log->sizes + op->first_output,
        .aliases = log->aliases + op->first_output,
        .input_count = op->input_count,
        .output_count = op->output_count,
        .cost_ns = op->cost_ns,
    };
    set_op(play, number);
    return varve_remat_compute(play->remat, &planned, play->outputs, message);
}

static int dtr_play_event(struct play *play, struct dtr_event event, struct varve_message *message)
{
    int error = VARVE_OK;
    switch (event.kind) {
    case DTR_EVENT_COMPUTE:
        return compute(play, event.id, message);
    case DTR_EVENT_GET:
        varve_remat_retain(play->remat, event.id);
        break;
    case DTR_EVENT_PIN:
        error = varve_remat_materialize(play->remat, event.id, message);
        if (error == VARVE_OK) {
            varve_remat_pin(play->remat, event.id);
        }
        break;
    case DTR_EVENT_RELEASE:
        varve_remat_release(play->remat, event.id);
        break;
    default:
        break;
    }
    return error;
}

static void show_progress(const struct play *play, size_t events_done)
{
    const struct dtr_options *options = play->options;
    uint64_t events = play->log->event_count, plays = options->plays > 0 ? options->plays : 1;
    progress_step(options->progress, options->stage != NULL ? options->stage : "playing",
                  options->plays_done * events + events_done, plays * events);
}

static int play_events(struct play *play, struct dtr_result *result)
{
    const struct dtr_log *log = play->log;
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < log->event_count; i++) {
        if (play->options->progress != NULL && i % PROGRESS_INTERVAL == 0) {
            show_progress(play, i);
        }
        if (i == log->end_event) {
            set_op(play, VARVE_REMAT_NONE);
        }
        error = dtr_play_event(play, log->events[i], &result->reason);
        result->events += error == VARVE_OK;
    }
    return error;
}

/* VARVE_OK if the log came to an end, whichever. */
static int take_result(struct play *play, int error, struct dtr_result *result, struct varve_message *message)
{
    varve_remat_get_counters(play->remat, &result->counters);
    result->op = play->op;
    if (play->options->allocator != NULL) {
        dtr_allocator_take(&play->allocator, &result->allocator);
    }
    if (error == VARVE_ERROR_NO_MEMORY && result->counters.failures == 0 && result->allocator.failures == 0) {
        memory_exhausted();
    }
    result->status = error == VARVE_ERROR_NO_MEMORY ? DTR_OOM : error == VARVE_ERROR_FULL ? DTR_THRASH : DTR_OK;
    if (error != VARVE_OK && result->status == DTR_OK) {
        return varve_message_set(message, error, "%s", result->reason.text);
    }
    return VARVE_OK;
}

static uint32_t *make_outputs(const struct dtr_log *log)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < log->op_count; i++) {
        most = log->ops[i].output_count > most ? log->ops[i].output_count : most;
    }
    return memory_resize(NULL, most * sizeof(uint32_t));
}

/* The planner, and the allocator if it has one. */
static int dtr_play_open_planner(struct play *play, struct varve_message *message)
{
    const struct dtr_options *options = play->options;
    void (*event)(void *, const struct varve_remat_event *) = options->event != NULL ? on_event : NULL;
    struct varve_remat_options remat;
    varve_remat_options_init(&remat);
    remat.heuristic = options->heuristic;
    remat.dealloc = options->dealloc;
    remat.search = options->search;
    remat.budget = options->budget;
    remat.remat_limit_ns = options->remat_limit_ns;
    remat.seed = options->seed;
    remat.driver.context = play;
    remat.driver.event = event;
    if (options->allocator == NULL) {
        return varve_remat_open(&remat, &play->remat, message);
    }
    int error = dtr_allocator_open(&play->allocator, options->allocator, options->budget, message);
    if (error != VARVE_OK) {
        return error;
    }
    dtr_allocator_drive(&play->allocator, event, play, &remat.driver);
    error = varve_remat_open(&remat, &play->remat, message);
    return error != VARVE_OK ? error : dtr_allocator_attach(&play->allocator, play->remat, message);
}

int dtr_play(const struct dtr_log *log, const struct dtr_options *options, struct dtr_result *result_out,
             struct varve_message *message)
{
    struct play play = {.log = log, .options = options, .op = VARVE_REMAT_NONE};
    int error = dtr_play_open_planner(&play, message);
    *result_out = (struct dtr_result){.op = VARVE_REMAT_NONE};
    if (error == VARVE_OK) {
        play.outputs = make_outputs(log);
        uint64_t begin_ns = varve_clock_monotonic_ns();
        error = play_events(&play, result_out);
        result_out->seconds = (double)(varve_clock_monotonic_ns() - begin_ns) / 1e9;
        error = take_result(&play, error, result_out, message);
    }
    varve_remat_close(play.remat);
    dtr_allocator_close(&play.allocator);
    free(play.outputs);
    return error;
}

int dtr_play_baseline(const struct dtr_log *log, struct progress *progress, struct dtr_result *result_out,
                      struct varve_message *message)
{
    const struct dtr_options options = {
        .heuristic = varve_remat_heuristic_find("dtr-local"),
        .dealloc = VARVE_REMAT_DEALLOC_BANISH,
        .budget = VARVE_REMAT_UNLIMITED,
        .remat_limit_ns = VARVE_REMAT_UNLIMITED,
        .progress = progress,
    };
    return dtr_play(log, &options, result_out, message);
}

const char *dtr_status_name(enum dtr_status status)
{
    static const char *const names[] = {[DTR_OK] = "ok", [DTR_OOM] = "oom", [DTR_THRASH] = "thrash"};
    return names[status];
}
