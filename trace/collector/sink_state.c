/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's part of the second sink. It emits what only it knows (processes, threads, clock, call sites, meta)
 * and the records that the workload did not emit: those of fork children, of threads past their end, and those from
 * before or after LTTng was at work in their process. A trace that begins in mid-run gets everything again. The
 * provider's threads call `started` and nothing else.
 */
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "base/error.h"
#include "base/grown_array.h"
#include "trace/event_list.h"
#include "trace/format/callsite_format.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/format/sink_provider.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_TEXT_BYTES 4096U
#define ALLOW_BLOCKING "LTTNG_UST_ALLOW_BLOCKING" /* a full buffer may be waited for, within its channel's limit */

/* Traces that have begun. Counted by a thread of the provider's, which outlives the collector. */
static uint32_t starts;

static void sink_state_started(void *context)
{
    __atomic_add_fetch((uint32_t *)context, 1, __ATOMIC_RELEASE);
}

/* ---- call sites ---- */

/* Texts in entries have no NUL. */
static const char *sink_state_text_of(char *buffer, size_t buffer_bytes, const uint8_t *bytes, size_t count)
{
    snprintf(buffer, buffer_bytes, "%.*s", (int)count, (const char *)bytes);
    return buffer;
}

static void emit_module(const struct sink_provider *provider, uint32_t process, int32_t pid, const uint8_t *payload)
{
    struct callsite_file_module module;
    memcpy(&module, payload, sizeof(module));
    payload += sizeof(module);
    char path[PATH_TEXT_BYTES];
    provider->module(&(struct varve_sink_module){
        .process = process,
        .pid = pid,
        .base = module.base,
        .end = module.end,
        .bias = module.bias,
        .number = module.number,
        .build_id_bytes = module.build_id_bytes,
        .build_id = payload,
        .path = sink_state_text_of(path, sizeof(path), payload + module.build_id_bytes, module.path_bytes)});
}

static void emit_code(const struct sink_provider *provider, uint32_t process, int32_t pid, const uint8_t *payload)
{
    struct callsite_file_code code;
    memcpy(&code, payload, sizeof(code));
    payload += sizeof(code);
    char function[PATH_TEXT_BYTES];
    char file[PATH_TEXT_BYTES];
    provider->code(&(struct varve_sink_code){
        .process = process,
        .pid = pid,
        .code = code.code,
        .first_line = code.first_line,
        .function = sink_state_text_of(function, sizeof(function), payload, code.name_bytes),
        .file = sink_state_text_of(file, sizeof(file), payload + code.name_bytes, code.file_bytes)});
}

static void emit_callsite(const struct sink_provider *provider, uint32_t process, int32_t pid, const uint8_t *payload)
{
    struct callsite_file_stack callsite;
    memcpy(&callsite, payload, sizeof(callsite));
    payload += sizeof(callsite);
    uint64_t native[CALLSITE_FILE_DEPTH_MAX];
    memcpy(native, payload, callsite.native_count * sizeof(native[0]));
    payload += callsite.native_count * sizeof(native[0]);
    uint32_t codes[CALLSITE_FILE_DEPTH_MAX];
    uint32_t lines[CALLSITE_FILE_DEPTH_MAX];
    for (unsigned i = 0; i < callsite.python_count; i++) {
        struct callsite_file_python python;
        memcpy(&python, payload + i * sizeof(python), sizeof(python));
        codes[i] = python.code;
        lines[i] = python.line;
    }
    provider->callsite(&(struct varve_sink_callsite){.process = process,
                                                     .pid = pid,
                                                     .callsite = callsite.callsite,
                                                     .native_count = callsite.native_count,
                                                     .python_count = callsite.python_count,
                                                     .native = native,
                                                     .codes = codes,
                                                     .lines = lines});
}

static void emit_entry(void *context, uint32_t process_id, const struct callsite_file_entry *entry,
                       const uint8_t *payload)
{
    const struct collector *collector = context;
    const struct sink_provider *provider = collector->sink.provider;
    const struct traced_process *process =
        process_id <= collector->process_count ? collector->processes[process_id - 1] : NULL;
    int32_t pid = process != NULL ? process->pid : 0;
    if (__atomic_load_n(&starts, __ATOMIC_ACQUIRE) != collector->sink.starts_answered) {
        return; /* it will be emitted again in a moment, after what explains it */
    }
    struct callsite_file_gone gone;
    switch (entry->tag) {
    case CALLSITE_FILE_TAG_MODULE:
        emit_module(provider, process_id, pid, payload);
        break;
    case CALLSITE_FILE_TAG_MODULE_GONE:
        memcpy(&gone, payload, sizeof(gone));
        provider->module_gone(process_id, pid, gone.number);
        break;
    case CALLSITE_FILE_TAG_CODE:
        emit_code(provider, process_id, pid, payload);
        break;
    default:
        emit_callsite(provider, process_id, pid, payload);
        break;
    }
}

void collect_sink_listen(struct collector *collector)
{
    callsites_listen(collector->callsites, emit_entry, collector);
}

/* ---- the library ---- */

static int sink_state_load_provider(struct collect_sink *sink, const char *path, struct varve_message *message)
{
    static const struct sink_host host = {.context = &starts, .started = sink_state_started};
    sink_provider_open *open_provider = sink_provider_find(path);
    if (open_provider == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "cannot load LTTng-UST: %s", dlerror());
    }
    sink->starts_answered = __atomic_load_n(&starts, __ATOMIC_ACQUIRE);
    sink->provider = open_provider(SINK_INTERFACE_VERSION, &host);
    return sink->provider != NULL
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%s does not fit this varve", path);
}

int collect_sink_open(struct collector *collector, const char *provider_path, struct varve_message *message)
{
    bool is_set = getenv(ALLOW_BLOCKING) != NULL;
    setenv(ALLOW_BLOCKING, "1", 0); /* LTTng reads it when it is loaded; not for the program */
    int error = sink_state_load_provider(&collector->sink, provider_path, message);
    if (!is_set) {
        unsetenv(ALLOW_BLOCKING);
    }
    if (error == VARVE_OK) {
        collect_sink_listen(collector);
    }
    return error;
}

static void meta_free(struct collect_sink_meta *meta)
{
    free(meta->key);
    free(meta->text);
}

/* The library stays: its threads do. */
void collect_sink_close(struct collector *collector)
{
    struct collect_sink *sink = &collector->sink;
    for (size_t i = 0; i < sink->meta_count; i++) {
        meta_free(&sink->meta[i]);
    }
    free(sink->meta);
    *sink = (struct collect_sink){0};
}

/* ---- meta ---- */

static void emit_meta(const struct collector *collector, const struct collect_sink_meta *meta)
{
    uint64_t trace_id = collector->directory.control->trace_id;
    if (meta->text != NULL) {
        collector->sink.provider->meta_text(trace_id, meta->key, meta->text);
    } else {
        collector->sink.provider->meta_integer(trace_id, meta->key, meta->integer);
    }
}

/* `text` NULL: the integer. A long text is cut: an event has to fit into a sub-buffer of LTTng's. */
static int remember_meta(struct collector *collector, const char *key, const char *text, int64_t integer)
{
    struct collect_sink *sink = &collector->sink;
    if (sink->provider == NULL) {
        return VARVE_OK;
    }
    if (!ARRAY_GROW(sink->meta, sink->meta_capacity, sink->meta_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    struct collect_sink_meta *meta = &sink->meta[sink->meta_count];
    *meta = (struct collect_sink_meta){
        .key = strdup(key), .text = text != NULL ? strndup(text, PATH_TEXT_BYTES) : NULL, .integer = integer};
    if (meta->key == NULL || (text != NULL && meta->text == NULL)) {
        meta_free(meta);
        return VARVE_ERROR_NO_MEMORY;
    }
    sink->meta_count++;
    emit_meta(collector, meta);
    return VARVE_OK;
}

int collect_meta_text(struct collector *collector, const char *key, const char *value)
{
    int error = collector->is_unstored ? VARVE_OK : store_meta_text(collector->store, key, value);
    VARVE_THEN(error, remember_meta(collector, key, value, 0));
    return error;
}

int collect_meta_integer(struct collector *collector, const char *key, int64_t value)
{
    int error = collector->is_unstored ? VARVE_OK : store_meta_integer(collector->store, key, value);
    VARVE_THEN(error, remember_meta(collector, key, NULL, value));
    return error;
}

/* ---- processes, threads, records ---- */

void collect_sink_process(const struct collector *collector, const struct traced_process *process)
{
    const struct process_control *control = process->control;
    if (collector->sink.provider == NULL) {
        return;
    }
    char command_line[sizeof(control->command_line)];
    collect_process_command(control, command_line, sizeof(command_line));
    char executable[sizeof(control->executable)];
    snprintf(executable, sizeof(executable), "%.*s", (int)sizeof(executable) - 1, control->executable);
    collector->sink.provider->process(
        &(struct varve_sink_process){.trace_id = collector->directory.control->trace_id,
                                     .process = process->id,
                                     .parent = control->parent_id,
                                     .pid = control->pid,
                                     .parent_pid = control->parent_pid,
                                     .rank = control->rank,
                                     .clock_kind = collector->directory.control->clock_kind,
                                     .start_ticks = control->start_ticks,
                                     .start_ticks_proc = control->start_ticks_proc,
                                     .executable = executable,
                                     .command_line = command_line});
}

void collect_sink_process_end(const struct collector *collector, const struct traced_process *process)
{
    const struct process_control *control = process->control;
    if (collector->sink.provider == NULL) {
        return;
    }
    char exec_path[sizeof(control->exec_path)];
    snprintf(exec_path, sizeof(exec_path), "%.*s", (int)sizeof(exec_path) - 1, control->exec_path);
    collector->sink.provider->process_end(&(struct varve_sink_process_end){
        .process = process->id,
        .pid = control->pid,
        .end = __atomic_load_n(&control->state, __ATOMIC_ACQUIRE), /* the same numbers */
        .exec_path = exec_path});
}

static struct varve_sink_origin origin_of(const struct ring_reader *reader)
{
    return (struct varve_sink_origin){.process = reader->process->id,
                                      .ring = reader->index,
                                      .pid = reader->process->control->pid,
                                      .tid = reader->tid};
}

void collect_sink_thread(const struct collector *collector, const struct ring_reader *reader)
{
    const struct ring_header *ring = reader->ring;
    if (collector->sink.provider == NULL) {
        return;
    }
    char name[sizeof(ring->thread_name) + 1];
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(ring->thread_name), ring->thread_name);
    collector->sink.provider->thread(
        &(struct varve_sink_thread){.origin = origin_of(reader), .created_ticks = ring->created_ticks, .name = name});
}

void collect_sink_thread_end(struct collector *collector, const struct ring_reader *reader)
{
    collect_lttng_ring(collector, reader);
    if (collector->sink.provider == NULL) {
        return;
    }
    collector->sink.provider->thread_end(
        &(struct varve_sink_thread_end){.origin = origin_of(reader),
                                        .emitted = reader->sequence,
                                        .lost = __atomic_load_n(&reader->ring->lost, __ATOMIC_ACQUIRE),
                                        .lost_bytes = reader->ring->lost_bytes});
}

void collect_sink_record(struct collector *collector, const struct ring_reader *reader,
                         const struct varve_record *record, uint64_t sequence)
{
    const struct sink_provider *provider = collector->sink.provider;
    struct varve_sink_origin origin = origin_of(reader);
    if ((varve_record_flags(record) & VARVE_FLAG_SECOND_SINK) != 0 ||
        *provider->enabled[varve_record_kind(record) % VARVE_KIND_LIMIT] <= 0) {
        return;
    }
    provider->record(&origin, sequence, record);
}

static void emit_anchors(struct collector *collector)
{
    struct collect_sink *sink = &collector->sink;
    for (; sink->anchors_emitted < collector->clock.count; sink->anchors_emitted++) {
        const struct clock_anchor *anchor = &collector->clock.anchors[sink->anchors_emitted];
        sink->provider->clock(&(struct varve_sink_clock){.trace_id = collector->directory.control->trace_id,
                                                         .ticks = anchor->ticks,
                                                         .mono_ns = anchor->mono_ns,
                                                         .real_ns = anchor->real_ns});
    }
}

/* Its own state dump: a reader of this trace alone must find all that it needs. */
static void emit_all(struct collector *collector)
{
    struct collect_sink *sink = &collector->sink;
    sink->anchors_emitted = 0;
    for (size_t i = 0; i < sink->meta_count; i++) {
        emit_meta(collector, &sink->meta[i]);
    }
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed) {
            collect_sink_process(collector, process);
        }
    }
    for (size_t i = 0; i < collector->reader_count; i++) {
        collect_sink_thread(collector, collector->readers[i]);
    }
    callsites_replay(collector->callsites);
}

void collect_sink_round(struct collector *collector)
{
    struct collect_sink *sink = &collector->sink;
    if (sink->provider == NULL) {
        return;
    }
    uint32_t begun = __atomic_load_n(&starts, __ATOMIC_ACQUIRE);
    if (begun != sink->starts_answered) {
        sink->starts_answered = begun;
        emit_all(collector);
    }
    emit_anchors(collector);
}
