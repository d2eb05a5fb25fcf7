/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace databases without a recording: importers and replays hand over events in order, and the same store
 * and derive that serve the collector make the same tables of them. One process with one thread stands for
 * whatever the events came from, unless the caller says more. Everything happens in a folder beside the target that is
 * moved over at the end or removed, so a database is there whole or not at all; it needs no log meanwhile. analysis/
 * calls it, through writer.h.
 */
#include "base/grown_array.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "base/publish.h"
#include "trace/store/stack_nodes.h"
#include "trace/callsites/frame_kinds.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMIT_EVENTS 65536U
#define FRAMES_MAX 65535U
#define THREADS_MAX 65536U

struct symbol_class {
    uint8_t rank;       /* enum varve_frame_rank */
    bool is_allocation; /* an allocation function, passed over */
};

struct writer_process {
    char *executable, *command_line;
    int32_t pid, rank;
    uint32_t first_thread; /* number of its row; made with the process */
};

struct writer_thread {
    char *name;
    uint64_t events;
    uint32_t process_id;
    int32_t tid;
    bool is_described; /* by varve_writer_thread */
};

struct varve_writer {
    char *path;
    char *folder; /* NULL: not made yet */
    bool may_replace;
    struct varve_writer_output output; /* of a writer without a store */
    struct store *store;
    struct derive *derive;
    struct event event; /* what the next events have in common; seq of the last one */
    int64_t end_ns;
    struct writer_process *processes; /* number n is row n + 1 */
    struct writer_thread *threads;    /* likewise; the first is the one without varve_writer_thread */
    uint32_t process_count, thread_count;
    size_t process_capacity, thread_capacity;
    uint32_t callsites; /* given so far */
    struct stack_nodes nodes;
    uint32_t *node_callsites; /* of node n at [n]: its call site, 0: it has none */
    size_t node_capacity;
    struct varve_plumbing *own_plumbing;
    const struct varve_plumbing *plumbing; /* that, or the caller's */
    struct symbol_class *classes;          /* by symbol */
    size_t symbol_capacity;
    int error; /* the first one */
    struct varve_message message;
};

/* ---- the folder ---- */

static void path_in(const struct varve_writer *writer, const char *name, char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "%s/%s", writer->folder, name);
}

static int database_writer_folder_make(struct varve_writer *writer, struct varve_message *message)
{
    char folder[4096 + 16];
    int error = varve_publish_folder_make(writer->path, writer->may_replace, folder, sizeof(folder), message);
    if (error != VARVE_OK) {
        return error;
    }
    writer->folder = strdup(folder);
    return writer->folder != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

/* A thread's row comes before its events, so that theirs need not say it. */
static int thread_write(struct varve_writer *writer, uint32_t number)
{
    const struct writer_thread *thread = &writer->threads[number - 1];
    const struct store_thread row = {
        .id = number,
        .process_id = thread->process_id,
        .pid = writer->processes[thread->process_id - 1].pid,
        .tid = thread->tid,
        .name = thread->name,
        .end_ns = writer->end_ns,
        .emitted = thread->events,
        .stored = thread->events,
    };
    return store_thread(writer->store, &row);
}

/* The number of the new row; 0 without memory. */
static uint32_t process_add(struct varve_writer *writer, int32_t pid)
{
    if (!ARRAY_GROW(writer->processes, writer->process_capacity, writer->process_count + 1)) {
        return 0;
    }
    writer->processes[writer->process_count++] = (struct writer_process){.pid = pid, .rank = -1, .first_thread = 1};
    return writer->process_count;
}

static uint32_t thread_add(struct varve_writer *writer, uint32_t process_id, int32_t tid, const char *name)
{
    char *copy = name != NULL ? strdup(name) : NULL;
    if ((name != NULL && copy == NULL) ||
        !ARRAY_GROW(writer->threads, writer->thread_capacity, writer->thread_count + 1)) {
        free(copy);
        return 0;
    }
    writer->threads[writer->thread_count++] =
        (struct writer_thread){.name = copy, .process_id = process_id, .tid = tid};
    return writer->thread_count;
}

static void thread_enter(struct varve_writer *writer, uint32_t number)
{
    const struct writer_thread *thread = &writer->threads[number - 1];
    writer->event.process_id = thread->process_id;
    writer->event.thread_id = number;
    writer->event.pid = writer->processes[thread->process_id - 1].pid;
    writer->event.tid = thread->tid;
}

/* ---- open and close ---- */

static void writer_free(struct varve_writer *writer)
{
    store_close(writer->store);
    derive_close(writer->derive);
    if (writer->folder != NULL) {
        varve_publish_folder_remove(writer->folder);
    }
    stack_nodes_free(&writer->nodes);
    free(writer->node_callsites);
    varve_plumbing_close(writer->own_plumbing);
    free(writer->classes);
    for (uint32_t i = 0; i < writer->process_count; i++) {
        free(writer->processes[i].executable);
        free(writer->processes[i].command_line);
    }
    for (uint32_t i = 0; i < writer->thread_count; i++) {
        free(writer->threads[i].name);
    }
    free(writer->processes);
    free(writer->threads);
    free(writer->folder);
    free(writer->path);
    free(writer);
}

int varve_writer_open(const char *path, bool replace, struct varve_writer **writer_out, struct varve_message *message)
{
    struct varve_writer *writer = calloc(1, sizeof(*writer));
    *writer_out = NULL;
    if (writer == NULL || (writer->path = strdup(path)) == NULL) {
        free(writer);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to write %s", path);
    }
    writer->may_replace = replace;
    int error = varve_plumbing_open(&writer->own_plumbing);
    writer->plumbing = writer->own_plumbing;
    if (error == VARVE_OK && (process_add(writer, 1) == 0 || thread_add(writer, 1, 1, NULL) == 0)) {
        error = VARVE_ERROR_NO_MEMORY;
    }
    if (error == VARVE_OK) {
        thread_enter(writer, 1);
        error = database_writer_folder_make(writer, message);
    }
    char name[4096 + 64];
    if (error == VARVE_OK) {
        path_in(writer, "trace.db", name, sizeof(name));
        error = store_open(name, STORE_CREATE_DIRECT, &writer->store, message);
    }
    VARVE_THEN(error, thread_write(writer, 1));
    if (error == VARVE_OK) {
        path_in(writer, "allocations", name, sizeof(name));
        error = derive_open(name, &writer->derive, message);
    }
    if (error != VARVE_OK) {
        writer_free(writer);
        return error;
    }
    unlink(name); /* it is open: nobody has to find it */
    *writer_out = writer;
    return VARVE_OK;
}

int varve_writer_open_output(const struct varve_writer_output *output, const struct varve_plumbing *plumbing,
                             struct varve_writer **writer_out, struct varve_message *message)
{
    struct varve_writer *writer = calloc(1, sizeof(*writer));
    *writer_out = NULL;
    if (writer == NULL || (plumbing == NULL && varve_plumbing_open(&writer->own_plumbing) != VARVE_OK)) {
        free(writer);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for events");
    }
    writer->output = *output;
    writer->plumbing = plumbing != NULL ? plumbing : writer->own_plumbing;
    *writer_out = writer;
    return VARVE_OK;
}

void varve_writer_abandon(struct varve_writer *writer)
{
    if (writer != NULL) {
        writer_free(writer);
    }
}

/* ---- rows ---- */

/* Keep the first error. Rows of the store have no reason but their code, or that of a commit before them. */
static int database_writer_keep(struct varve_writer *writer, int code, const char *what)
{
    if (code == VARVE_OK || writer->error != VARVE_OK) {
        return writer->error;
    }
    writer->error = writer->store != NULL ? store_wait(writer->store, &writer->message) : VARVE_OK;
    if (writer->error == VARVE_OK) {
        writer->error = code;
        varve_message_set(&writer->message, code, "%s: %s cannot be written: %s", writer->path, what,
                          varve_strerror(code));
    }
    return writer->error;
}

static int keep_message(struct varve_writer *writer, int code, const struct varve_message *message)
{
    if (code != VARVE_OK && writer->error == VARVE_OK) {
        writer->error = code;
        writer->message = *message;
    }
    return writer->error;
}

/* Rows go into the store, if there is one, until the first error, which is returned; `call` is not made after it. */
#define WRITE(writer, what, call)                                             \
    ((writer)->store == NULL || (writer)->error != VARVE_OK ? (writer)->error \
                                                            : database_writer_keep(writer, call, what))

int varve_writer_meta_text(struct varve_writer *writer, const char *key, const char *value)
{
    return WRITE(writer, key, store_meta_text(writer->store, key, value));
}

int varve_writer_meta_integer(struct varve_writer *writer, const char *key, int64_t value)
{
    return WRITE(writer, key, store_meta_integer(writer->store, key, value));
}

/* A thread that is written from now on; the first of a process has its pid. */
static uint32_t thread_begin(struct varve_writer *writer, uint32_t process_id, int32_t tid, const char *name)
{
    uint32_t number = writer->error == VARVE_OK ? thread_add(writer, process_id, tid, name) : 0;
    if (number == 0) {
        database_writer_keep(writer, VARVE_ERROR_NO_MEMORY, "a thread");
        return 0;
    }
    return WRITE(writer, "a thread", thread_write(writer, number)) == VARVE_OK ? number : 0;
}

/* The row of a process, which is written at the end; the first pid is that of the process that nobody described. */
static struct writer_process *process_begin(struct varve_writer *writer, int32_t pid)
{
    for (uint32_t i = 0; i < writer->process_count; i++) {
        if (writer->processes[i].pid == pid) {
            return &writer->processes[i];
        }
    }
    if (writer->event.seq == 0 && writer->process_count == 1 && writer->thread_count == 1) {
        writer->processes[0].pid = pid;
        writer->threads[0].tid = pid;
        return WRITE(writer, "a thread", thread_write(writer, 1)) == VARVE_OK ? &writer->processes[0] : NULL;
    }
    uint32_t number = process_add(writer, pid);
    if (number == 0) {
        database_writer_keep(writer, VARVE_ERROR_NO_MEMORY, "a process");
        return NULL;
    }
    uint32_t thread = thread_begin(writer, number, pid, NULL);
    writer->processes[number - 1].first_thread = thread;
    return thread != 0 ? &writer->processes[number - 1] : NULL;
}

uint32_t varve_writer_process(struct varve_writer *writer, const struct varve_writer_process *process)
{
    if (writer->error != VARVE_OK) {
        return 0;
    }
    if (process->pid < 1) {
        database_writer_keep(writer, VARVE_ERROR_INVALID, "a process without a pid");
        return 0;
    }
    struct writer_process *row = process_begin(writer, process->pid);
    if (row == NULL) {
        return 0;
    }
    free(row->executable);
    free(row->command_line);
    row->executable = process->executable != NULL ? strdup(process->executable) : NULL;
    row->command_line = process->command_line != NULL ? strdup(process->command_line) : NULL;
    row->rank = process->rank;
    thread_enter(writer, row->first_thread);
    return row->first_thread;
}

uint32_t varve_writer_thread(struct varve_writer *writer, int32_t tid, const char *name)
{
    uint32_t process_id = writer->event.process_id;
    struct writer_process *process = &writer->processes[process_id - 1];
    struct writer_thread *first = &writer->threads[process->first_thread - 1];
    if (writer->thread_count == THREADS_MAX) {
        database_writer_keep(writer, VARVE_ERROR_UNSUPPORTED, "more than 65536 threads");
    }
    if (writer->error != VARVE_OK) {
        return 0;
    }
    if (first->events > 0 || first->is_described) {
        uint32_t number = thread_begin(writer, process_id, tid, name);
        if (number != 0) {
            writer->threads[number - 1].is_described = true;
        }
        return number;
    }
    /* The one that came with the process has had nothing to do. */
    first->tid = tid;
    first->name = name != NULL ? strdup(name) : NULL;
    first->is_described = true;
    thread_enter(writer, process->first_thread);
    return WRITE(writer, "a thread", thread_write(writer, process->first_thread)) == VARVE_OK ? process->first_thread
                                                                                              : 0;
}

int varve_writer_use_thread(struct varve_writer *writer, uint32_t number)
{
    if (number == 0 || number > writer->thread_count) {
        return database_writer_keep(writer, VARVE_ERROR_INVALID, "a thread that there is not");
    }
    thread_enter(writer, number);
    return writer->error;
}

int varve_writer_stat(struct varve_writer *writer, const char *name, bool is_loss, uint64_t value)
{
    int64_t figure = value < INT64_MAX ? (int64_t)value : INT64_MAX;
    return WRITE(writer, name, store_stat(writer->store, name, -1, is_loss ? "data_loss" : "info", "import", figure));
}

int varve_writer_device(struct varve_writer *writer, unsigned index, const char *name, uint64_t total_bytes)
{
    return WRITE(writer, "a device", store_device(writer->store, index, name, total_bytes));
}

int varve_writer_stream(struct varve_writer *writer, unsigned device, unsigned number, uint64_t handle)
{
    return WRITE(writer, "a stream", store_stream(writer->store, writer->event.process_id, device, number, handle));
}

int varve_writer_pool(struct varve_writer *writer, unsigned device, unsigned number, uint64_t capture_id,
                      uint64_t user_id, bool is_small)
{
    return WRITE(writer, "a pool",
                 store_pool(writer->store, writer->event.process_id, device, number, capture_id, user_id, is_small));
}

/* ---- call sites ---- */

/* 0: there is none, by an error. */
static uint32_t symbol_number(struct varve_writer *writer, const struct varve_writer_symbol *symbol,
                              enum varve_frame_rank rank)
{
    const struct store_symbol row = {
        .function = symbol->function,
        .file = symbol->file,
        .module = symbol->module,
        .line = symbol->line,
        .rank = (uint32_t)rank,
        .is_python = symbol->is_python,
        .is_inlined = symbol->is_inlined,
    };
    if (writer->store == NULL) {
        return writer->output.symbol != NULL ? writer->output.symbol(writer->output.context, symbol) : 1;
    }
    return writer->error == VARVE_OK ? store_symbol(writer->store, &row) : 0;
}

uint32_t varve_writer_symbol(struct varve_writer *writer, const struct varve_writer_symbol *symbol)
{
    const enum varve_frame_rank rank = varve_plumbing_rank(writer->plumbing, symbol);
    uint32_t id = symbol_number(writer, symbol, rank);
    if (id == 0) {
        database_writer_keep(writer, VARVE_ERROR_DATABASE, "a symbol");
        return 0;
    }
    if (id >= writer->symbol_capacity) {
        size_t capacity = 2 * (size_t)id + 256;
        struct symbol_class *grown = realloc(writer->classes, capacity * sizeof(*grown));
        if (grown == NULL) {
            database_writer_keep(writer, VARVE_ERROR_NO_MEMORY, "a symbol");
            return 0;
        }
        writer->classes = grown;
        writer->symbol_capacity = capacity;
    }
    writer->classes[id] = (struct symbol_class){.rank = (uint8_t)rank,
                                                .is_allocation = !symbol->is_python && symbol->function != NULL &&
                                                                 callsites_name_is_allocation(symbol->function)};
    return id;
}

/* The call site of these frames, stored as `id` if it is new; 0 after an error. */
static uint32_t callsite_store(struct varve_writer *writer, uint32_t id, const uint32_t *symbols, uint32_t frames,
                               uint32_t origin, uint32_t user)
{
    uint32_t node = 0;
    for (uint32_t i = frames; i-- > 0 && writer->error == VARVE_OK;) {
        database_writer_keep(writer, stack_nodes_find(&writer->nodes, writer->store, node, symbols[i], &node),
                             "a call site");
    }
    if (writer->error == VARVE_OK && !ARRAY_COVER(writer->node_callsites, writer->node_capacity, node)) {
        database_writer_keep(writer, VARVE_ERROR_NO_MEMORY, "a call site");
    }
    if (writer->error == VARVE_OK && writer->node_callsites[node] == 0) {
        (void)WRITE(writer, "a call site", store_callsite(writer->store, id, node, frames, origin, user));
        writer->node_callsites[node] = id;
    }
    return writer->error == VARVE_OK ? writer->node_callsites[node] : 0;
}

uint32_t varve_writer_callsite(struct varve_writer *writer, const uint32_t *symbols, uint32_t depth)
{
    uint32_t id = writer->callsites + 1;
    uint32_t origin = depth > 0 ? symbols[0] : 0;
    uint32_t user = 0;
    uint32_t frames = depth < FRAMES_MAX ? depth : FRAMES_MAX;
    for (uint32_t i = frames; i-- > 0;) {
        if (symbols[i] == 0 || symbols[i] >= writer->symbol_capacity) {
            database_writer_keep(writer, VARVE_ERROR_INVALID, "a call site of unknown symbols");
            return 0;
        }
        const struct symbol_class class = writer->classes[symbols[i]];
        origin = class.is_allocation ? origin : symbols[i];
        if (class.rank != VARVE_FRAME_PLUMBING && (user == 0 || class.rank >= writer->classes[user].rank)) {
            user = symbols[i];
        }
    }
    if (writer->store != NULL) {
        id = callsite_store(writer, id, symbols, frames, origin, user != 0 ? user : origin);
    } else if (writer->output.callsite != NULL) {
        bool is_hidden = user == 0 || writer->classes[user].rank <= VARVE_FRAME_RUNTIME;
        writer->output.callsite(writer->output.context, id, user != 0 ? user : origin, is_hidden);
    }
    writer->callsites += writer->error == VARVE_OK && id > writer->callsites;
    return writer->error == VARVE_OK ? id : 0;
}

/* ---- events ---- */

static int event_store(struct store *store, struct derive *derive, const struct event *event,
                       struct varve_message *message)
{
    int error = store_append(store, derive, event, message);
    return error == VARVE_OK && store_pending(store) >= COMMIT_EVENTS ? store_commit(store, NULL, 0, message) : error;
}

int varve_writer_event(struct varve_writer *writer, const struct varve_record *record, int64_t ts_ns)
{
    struct event *event = &writer->event;
    struct varve_message message = {""};
    if (writer->store == NULL) {
        writer->output.event(writer->output.context, record, ts_ns);
        return VARVE_OK;
    }
    if (writer->error != VARVE_OK) {
        return writer->error;
    }
    event->seq++;
    event->ring_seq = event->seq;
    event->ts_ns = ts_ns;
    event->kind = (uint8_t)varve_record_kind(record);
    event->cause = record->cause;
    event->device = record->device;
    event->flags = (uint8_t)(varve_record_flags(record) & VARVE_FLAGS_STORED);
    event->pool = record->pool;
    event->stream = (uint16_t)varve_record_stream(record);
    event->callsite = record->callsite;
    event->dev_seq = varve_record_dev_seq(record);
    event->id = varve_record_id(record);
    event->addr = record->addr;
    event->size = record->size;
    event->requested = record->requested;
    event->arg = record->arg;
    writer->end_ns = ts_ns > writer->end_ns ? ts_ns : writer->end_ns;
    int code = derive_event(writer->derive, event, &message);
    if (code == VARVE_OK) {
        writer->threads[event->thread_id - 1].events++;
        code = event_store(writer->store, writer->derive, event, &message);
    }
    return keep_message(writer, code, &message);
}

uint64_t varve_writer_events(const struct varve_writer *writer)
{
    return writer->event.seq;
}

/* ---- the end ---- */

static int process_write(struct varve_writer *writer, uint32_t number)
{
    const struct writer_process *process = &writer->processes[number - 1];
    const struct store_process row = {
        .id = number,
        .pid = process->pid,
        .rank = process->rank,
        .executable = process->executable,
        .command_line = process->command_line,
        .end_ns = writer->end_ns,
        .exit_status = -1,
    };
    return store_process(writer->store, &row);
}

static int rows_finish(struct varve_writer *writer)
{
    struct store *store = writer->store;
    uint64_t events = writer->event.seq;
    int error = VARVE_OK;
    for (uint32_t i = 1; i <= writer->process_count && error == VARVE_OK; i++) {
        error = process_write(writer, i);
    }
    for (uint32_t i = 1; i <= writer->thread_count && error == VARVE_OK; i++) {
        error = thread_write(writer, i);
    }
    VARVE_THEN(error, store_stat(store, "events_emitted", -1, "info", "writer", (int64_t)events));
    VARVE_THEN(error, store_stat(store, "events_stored", -1, "info", "writer", (int64_t)events));
    VARVE_THEN(error, store_stat(store, "sizes_refused", -1, "data_loss", "writer",
                                 (int64_t)derive_sizes_refused(writer->derive)));
    return error == VARVE_OK ? store_meta_integer(store, "duration_ns", writer->end_ns) : error;
}

int varve_writer_finish(struct varve_writer *writer, varve_collect_progress progress, void *context,
                        struct varve_message *message)
{
    struct varve_message reason = {""};
    int code = writer->error;
    VARVE_THEN(code, WRITE(writer, "the process", rows_finish(writer)));
    VARVE_THEN(code,
               keep_message(writer, derive_finish(writer->derive, writer->store, progress, context, &reason), &reason));
    VARVE_THEN(code, keep_message(writer, store_finish(writer->store, progress, context, &reason), &reason));
    if (code == VARVE_OK) {
        store_close(writer->store);
        writer->store = NULL;
        code = keep_message(writer, publish_file(writer->folder, writer->path, writer->may_replace, &reason), &reason);
    }
    if (code != VARVE_OK) {
        varve_message_set(message, code, "%s", writer->message.text);
    }
    writer_free(writer);
    return code;
}
