/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's name has a number in records, from 1 on: here its number in the log and 1. Names beyond the last
 * number have none.
 */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <stdlib.h>

struct database {
    struct varve_writer *writer; /* its errors stick until it finishes */
    const struct dtr_log *log;
    const char *source;
    uint64_t clock;                /* of the planner's last event */
    uint32_t op;                   /* of the program, that is being played */
    uint32_t *callsites;           /* by operator; 0: not written yet */
    bool is_named[UINT16_MAX + 1]; /* by number: its record is written */
};

/* The operator that the program asked for, at its line of the log; 0: none. */
static uint32_t callsite(struct database *database)
{
    if (database->op == VARVE_REMAT_NONE) {
        return 0;
    }
    struct varve_writer_symbol symbol;
    uint32_t number;
    if (database->callsites[database->op] == 0) {
        const struct dtr_op *op = &database->log->ops[database->op];
        symbol = (struct varve_writer_symbol){
            .function = dtr_log_name(database->log, op->name), .file = database->source, .line = (uint32_t)op->line};
        number = varve_writer_symbol(database->writer, &symbol);
        database->callsites[database->op] = varve_writer_callsite(database->writer, &number, 1);
    }
    return database->callsites[database->op];
}

static void dtr_database_write_record(struct database *database, const struct varve_record *record)
{
    struct varve_record copy = *record;
    copy.callsite = callsite(database);
    varve_writer_event(database->writer, &copy, (int64_t)database->clock);
}

static uint16_t dtr_database_name_of(struct database *database, uint32_t op)
{
    if (op == VARVE_REMAT_NONE) {
        return 0;
    }
    uint32_t name = database->log->ops[op].name + 1;
    if (name > UINT16_MAX) {
        return 0;
    }
    struct varve_record record;
    if (!database->is_named[name]) {
        database->is_named[name] = true;
        varve_remat_name_record((uint16_t)name, dtr_log_name(database->log, name - 1), &record);
        dtr_database_write_record(database, &record);
    }
    return (uint16_t)name;
}

static void dtr_database_take_event(void *context, const struct varve_remat_event *event, uint32_t op)
{
    struct database *database = context;
    (void)op;
    database->clock = event->time;
    struct varve_record record;
    varve_remat_event_record(event, dtr_database_name_of(database, event->op), &record);
    dtr_database_write_record(database, &record);
}

static void take_record(void *context, const struct varve_record *record)
{
    dtr_database_write_record(context, record);
}

static int dtr_database_play(struct database *database, const struct dtr_options *options,
                             struct dtr_result *result_out, struct varve_message *message)
{
    const struct varve_alloc_recorder recorder = {.record = take_record, .context = database};
    struct dtr_options own = *options;
    own.event = dtr_database_take_event;
    own.event_context = database;
    own.playing = &database->op;
    struct dtr_allocator_options allocator;
    if (options->allocator != NULL) {
        allocator = *options->allocator;
        allocator.recorder = &recorder;
        own.allocator = &allocator;
        varve_writer_device(database->writer, 0, NULL, options->budget != VARVE_REMAT_UNLIMITED ? options->budget : 0);
    }
    return dtr_play(database->log, &own, result_out, message);
}

int dtr_database_write(const char *path, bool may_replace, const char *source, const struct dtr_log *log,
                       const struct dtr_options *options, struct dtr_result *result_out, struct varve_message *message)
{
    struct varve_writer *writer;
    int error = varve_writer_open(path, may_replace, &writer, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct database *database = memory_resize(NULL, sizeof(*database));
    *database = (struct database){.writer = writer, .log = log, .source = source, .op = VARVE_REMAT_NONE};
    database->callsites = calloc(log->op_count + (size_t)1, sizeof(*database->callsites));
    if (database->callsites == NULL) {
        memory_exhausted();
    }
    varve_writer_meta_text(writer, "dtr.source", source);
    varve_writer_meta_text(writer, "dtr.heuristic", options->heuristic->name);
    error = dtr_database_play(database, options, result_out, message);
    free(database->callsites);
    free(database);
    if (error != VARVE_OK) {
        varve_writer_abandon(writer);
        return error;
    }
    return varve_writer_finish(writer, options->progress != NULL ? progress_step : NULL, options->progress, message);
}
