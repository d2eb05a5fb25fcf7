/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace databases without a recording: importers and replays hand over events in order, and the same store
 * and derive that serve the collector make the same tables of them. One process with one thread stands for
 * whatever the events came from. Everything happens in a folder beside the target that is moved over at the
 * end or removed, so a database is there whole or not at all; it needs no log meanwhile. The caller's thread
 * derives, the one of database_queue.c stores. analysis/ calls it, through trace.h.
 */
#include "trace/error.h"
#include "trace/import/database_queue.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/publish.h"
#include "trace/store/rows.h"
#include "trace/store/stack_nodes.h"
#include "trace/store/store.h"
#include "trace/symbols/callsites/names.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_MAX 65535U
#define PROCESS_ID 1U
#define THREAD_ID 1U

struct symbol_class {
    uint8_t rank;       /* enum varve_frame_rank */
    bool is_allocation; /* an allocation function, passed over */
};

struct varve_writer {
    char *path;
    char *folder; /* NULL: not made yet */
    bool may_replace;
    struct store *store;
    struct writer_queue *queue; /* events on their way into the store */
    struct derive *derive;
    struct event event; /* what all events have in common; seq of the last one */
    int64_t end_ns;
    char *executable, *command_line;
    int32_t rank;
    uint32_t callsites; /* given so far */
    struct stack_nodes nodes;
    struct varve_plumbing *plumbing;
    struct symbol_class *classes; /* by symbol */
    size_t symbol_capacity;
    int error; /* the first one */
    struct varve_message message;
};

/* ---- the folder ---- */

static void path_in(const struct varve_writer *writer, const char *name, char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "%s/%s", writer->folder, name);
}

static int folder_make(struct varve_writer *writer, struct varve_message *message)
{
    char folder[4096 + 16];
    int error = varve_publish_folder_make(writer->path, writer->may_replace, folder, sizeof(folder), message);
    if (error != VARVE_OK) {
        return error;
    }
    writer->folder = strdup(folder);
    return writer->folder != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

/* The thread of all events; its row comes before them, so that theirs need not say it. */
static int thread_write(struct varve_writer *writer)
{
    uint64_t events = writer->event.seq;
    const struct store_thread thread = {
        .id = THREAD_ID,
        .process_id = PROCESS_ID,
        .pid = writer->event.pid,
        .tid = writer->event.tid,
        .end_ns = writer->end_ns,
        .emitted = events,
        .stored = events,
    };
    return store_thread(writer->store, &thread);
}

/* ---- open and close ---- */

static void writer_free(struct varve_writer *writer)
{
    derive_close(writer->derive);
    writer_queue_close(writer->queue);
    store_close(writer->store);
    if (writer->folder != NULL) {
        varve_publish_folder_remove(writer->folder);
    }
    stack_nodes_free(&writer->nodes);
    varve_plumbing_close(writer->plumbing);
    free(writer->classes);
    free(writer->executable);
    free(writer->command_line);
    free(writer->folder);
    free(writer->path);
    free(writer);
}

int varve_writer_open(const char *path, bool replace, struct varve_writer **writer_out,
                      struct varve_message *message)
{
    char name[4096 + 64];
    struct varve_writer *writer = calloc(1, sizeof(*writer));
    *writer_out = NULL;
    if (writer == NULL || (writer->path = strdup(path)) == NULL) {
        free(writer);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to write %s", path);
    }
    writer->may_replace = replace;
    writer->rank = -1;
    writer->event = (struct event){.process_id = PROCESS_ID, .thread_id = THREAD_ID, .pid = 1, .tid = 1};
    int error = varve_plumbing_open(&writer->plumbing);
    if (error == VARVE_OK) {
        error = folder_make(writer, message);
    }
    if (error == VARVE_OK) {
        path_in(writer, "trace.db", name, sizeof(name));
        error = store_open(name, STORE_CREATE_PRIVATE, &writer->store, message);
    }
    if (error == VARVE_OK) {
        error = thread_write(writer);
    }
    if (error == VARVE_OK) {
        path_in(writer, "allocations", name, sizeof(name));
        error = derive_open(name, &writer->derive, message);
    }
    if (error == VARVE_OK) {
        writer->queue = writer_queue_open(writer->store);
        error = writer->queue != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    }
    if (error != VARVE_OK) {
        writer_free(writer);
        return error;
    }
    unlink(name); /* it is open: nobody has to find it */
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

/* Keep the first error. Rows of the store have no reason but their code. */
static int keep(struct varve_writer *writer, int code, const char *what)
{
    if (code != VARVE_OK && writer->error == VARVE_OK) {
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

/* Before a row goes into the store: events on their way there come first. Returns the first error so far. */
static int store_take(struct varve_writer *writer)
{
    struct varve_message message = {""};
    return writer->error != VARVE_OK
               ? writer->error
               : keep_message(writer, writer_queue_drain(writer->queue, &message), &message);
}

int varve_writer_meta_text(struct varve_writer *writer, const char *key, const char *value)
{
    return store_take(writer) != VARVE_OK ? writer->error
                                          : keep(writer, store_meta_text(writer->store, key, value), key);
}

int varve_writer_meta_integer(struct varve_writer *writer, const char *key, int64_t value)
{
    return store_take(writer) != VARVE_OK ? writer->error
                                          : keep(writer, store_meta_integer(writer->store, key, value), key);
}

int varve_writer_process(struct varve_writer *writer, const struct varve_writer_process *process)
{
    if (writer->error != VARVE_OK) {
        return writer->error;
    }
    if (writer->event.seq > 0 || process->pid < 1) {
        return keep(writer, VARVE_ERROR_INVALID, "a process after its events, or without a pid,");
    }
    free(writer->executable);
    free(writer->command_line);
    writer->executable = process->executable != NULL ? strdup(process->executable) : NULL;
    writer->command_line = process->command_line != NULL ? strdup(process->command_line) : NULL;
    writer->event.pid = process->pid;
    writer->event.tid = process->pid;
    writer->rank = process->rank;
    return store_take(writer) != VARVE_OK ? writer->error : keep(writer, thread_write(writer), "a thread");
}

int varve_writer_device(struct varve_writer *writer, unsigned index, const char *name, uint64_t total_bytes)
{
    return store_take(writer) != VARVE_OK
               ? writer->error
               : keep(writer, store_device(writer->store, index, name, total_bytes), "a device");
}

int varve_writer_stream(struct varve_writer *writer, unsigned device, unsigned number, uint64_t handle)
{
    return store_take(writer) != VARVE_OK
               ? writer->error
               : keep(writer, store_stream(writer->store, PROCESS_ID, device, number, handle), "a stream");
}

int varve_writer_pool(struct varve_writer *writer, unsigned device, unsigned number, uint64_t capture_id,
                      uint64_t user_id, bool is_small)
{
    return store_take(writer) != VARVE_OK
               ? writer->error
               : keep(writer,
                      store_pool(writer->store, PROCESS_ID, device, number, capture_id, user_id, is_small),
                      "a pool");
}

/* ---- call sites ---- */

uint32_t varve_writer_symbol(struct varve_writer *writer, const struct varve_writer_symbol *symbol)
{
    const struct store_symbol row = {
        .function = symbol->function,
        .file = symbol->file,
        .module = symbol->module,
        .line = symbol->line,
        .rank = (uint32_t)varve_plumbing_rank(writer->plumbing, symbol),
        .is_python = symbol->is_python,
        .is_inlined = symbol->is_inlined,
    };
    uint32_t id = store_take(writer) == VARVE_OK ? store_symbol(writer->store, &row) : 0;
    if (id == 0) {
        keep(writer, VARVE_ERROR_DATABASE, "a symbol");
        return 0;
    }
    if (id >= writer->symbol_capacity) {
        size_t capacity = 2 * (size_t)id + 256;
        struct symbol_class *grown = realloc(writer->classes, capacity * sizeof(*grown));
        if (grown == NULL) {
            keep(writer, VARVE_ERROR_NO_MEMORY, "a symbol");
            return 0;
        }
        writer->classes = grown;
        writer->symbol_capacity = capacity;
    }
    writer->classes[id] =
        (struct symbol_class){.rank = (uint8_t)row.rank,
                              .is_allocation = !symbol->is_python && symbol->function != NULL &&
                                               callsites_name_is_allocation(symbol->function)};
    return id;
}

uint32_t varve_writer_callsite(struct varve_writer *writer, const uint32_t *symbols, uint32_t depth)
{
    uint32_t id = writer->callsites + 1;
    uint32_t origin = depth > 0 ? symbols[0] : 0;
    uint32_t user = 0;
    uint32_t frames = depth < FRAMES_MAX ? depth : FRAMES_MAX;
    for (uint32_t i = frames; i-- > 0;) {
        if (symbols[i] == 0 || symbols[i] >= writer->symbol_capacity) {
            keep(writer, VARVE_ERROR_INVALID, "a call site of unknown symbols");
            return 0;
        }
        const struct symbol_class class = writer->classes[symbols[i]];
        origin = class.is_allocation ? origin : symbols[i];
        if (class.rank != VARVE_FRAME_PLUMBING && (user == 0 || class.rank >= writer->classes[user].rank)) {
            user = symbols[i];
        }
    }
    uint32_t node = 0;
    store_take(writer);
    for (uint32_t i = frames; i-- > 0 && writer->error == VARVE_OK;) {
        keep(writer, stack_nodes_find(&writer->nodes, writer->store, node, symbols[i], -1, &node),
             "a call site");
    }
    if (writer->error == VARVE_OK) {
        keep(writer, store_callsite(writer->store, id, node, frames, origin, user != 0 ? user : origin),
             "a call site");
    }
    writer->callsites += writer->error == VARVE_OK;
    return writer->error == VARVE_OK ? id : 0;
}

/* ---- events ---- */

int varve_writer_event(struct varve_writer *writer, const struct varve_record *record, int64_t ts_ns)
{
    struct event *event = &writer->event;
    struct varve_message message = {""};
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
        code = writer_queue_add(writer->queue, event, &message);
    }
    return keep_message(writer, code, &message);
}

uint64_t varve_writer_events(const struct varve_writer *writer)
{
    return writer->event.seq;
}

/* ---- the end ---- */

static int rows_finish(struct varve_writer *writer)
{
    struct store *store = writer->store;
    uint64_t events = writer->event.seq;
    const struct store_process process = {
        .id = PROCESS_ID,
        .pid = writer->event.pid,
        .rank = writer->rank,
        .executable = writer->executable,
        .command_line = writer->command_line,
        .end_ns = writer->end_ns,
        .exit_status = -1,
    };
    int error = store_process(store, &process);
    if (error == VARVE_OK) {
        error = thread_write(writer);
    }
    if (error == VARVE_OK) {
        error = store_stat(store, "events_emitted", -1, "info", "writer", (int64_t)events);
    }
    if (error == VARVE_OK) {
        error = store_stat(store, "events_stored", -1, "info", "writer", (int64_t)events);
    }
    if (error == VARVE_OK) {
        error = store_stat(store, "sizes_refused", -1, "data_loss", "writer",
                           (int64_t)derive_sizes_refused(writer->derive));
    }
    return error == VARVE_OK ? store_meta_integer(store, "duration_ns", writer->end_ns) : error;
}

int varve_writer_finish(struct varve_writer *writer, varve_collect_progress progress, void *context,
                        struct varve_message *message)
{
    struct varve_message reason = {""};
    int code = writer->error;
    if (code == VARVE_OK) {
        code = keep_message(writer, writer_queue_flush(writer->queue, &reason), &reason);
    }
    if (code == VARVE_OK) {
        code = keep(writer, rows_finish(writer), "the process");
    }
    if (code == VARVE_OK) {
        code = keep_message(writer, derive_finish(writer->derive, writer->store, progress, context, &reason),
                            &reason);
    }
    if (code == VARVE_OK) {
        code = keep_message(writer, store_finish(writer->store, progress, context, &reason), &reason);
    }
    if (code == VARVE_OK) {
        store_close(writer->store);
        writer->store = NULL;
        code = keep_message(writer, publish_file(writer->folder, writer->path, writer->may_replace, &reason),
                            &reason);
    }
    if (code != VARVE_OK) {
        varve_message_set(message, code, "%s", writer->message.text);
    }
    writer_free(writer);
    return code;
}
