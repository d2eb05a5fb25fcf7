/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's part of the second sink. It emits what only it knows (processes, threads, clock, call sites, meta) and
 * the records that the workload did not emit: those of fork children, of threads past their end, and those from before
 * or after LTTng was at work in their process. A trace that begins in mid-run gets everything again. The provider's
 * threads call `started` and nothing else.
 */
#include "trace/collector/clock.h"
#include "trace/collector/collector.h"
#include "trace/collector/process.h"
#include "trace/collector/retire.h"
#include "trace/collector/ring_reader.h"
#include "trace/error.h"
#include "trace/event_list.h"
#include "trace/format/callsite_file.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/format/sink_provider.h"
#include "trace/record.h"
#include "trace/store/rows.h"
#include "trace/symbols/callsites/callsites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_TEXT_BYTES 4096U
#define ALLOW_BLOCKING \
    "LTTNG_UST_ALLOW_BLOCKING" /* a full buffer may be waited for, within its channel's limit */

/* Traces that have begun. Counted by a thread of the provider's, which outlives the collector. */
static uint32_t starts;

static void started(void *context)
{
    __atomic_add_fetch((uint32_t *)context, 1, __ATOMIC_RELEASE);
}

/* ---- call sites ---- */

/* Texts in entries have no NUL. */
static const char *text_of(char *buffer, size_t buffer_bytes, const uint8_t *bytes, size_t count)
{
    snprintf(buffer, buffer_bytes, "%.*s", (int)count, (const char *)bytes);
    return buffer;
}

static void emit_module(const struct mirror_provider *provider, uint32_t process, int32_t pid,
                        const uint8_t *payload)
{
    char path[PATH_TEXT_BYTES];
    struct sites_module module;

    memcpy(&module, payload, sizeof(module));
    payload += sizeof(module);
    provider->module(&(struct varve_mirror_module){
        .process = process,
        .pid = pid,
        .base = module.base,
        .end = module.end,
        .bias = module.bias,
        .number = module.number,
        .build_id_bytes = module.build_id_bytes,
        .build_id = payload,
        .path = text_of(path, sizeof(path), payload + module.build_id_bytes, module.path_bytes)});
}

static void emit_code(const struct mirror_provider *provider, uint32_t process, int32_t pid,
                      const uint8_t *payload)
{
    char function[PATH_TEXT_BYTES];
    char file[PATH_TEXT_BYTES];
    struct sites_code code;

    memcpy(&code, payload, sizeof(code));
    payload += sizeof(code);
    provider->code(&(struct varve_mirror_code){
        .process = process,
        .pid = pid,
        .code = code.code,
        .first_line = code.first_line,
        .function = text_of(function, sizeof(function), payload, code.name_bytes),
        .file = text_of(file, sizeof(file), payload + code.name_bytes, code.file_bytes)});
}

static void emit_callsite(const struct mirror_provider *provider, uint32_t process, int32_t pid,
                          const uint8_t *payload)
{
    uint64_t native[SITES_DEPTH_MAX];
    uint32_t codes[SITES_DEPTH_MAX];
    uint32_t lines[SITES_DEPTH_MAX];
    struct sites_site site;

    memcpy(&site, payload, sizeof(site));
    payload += sizeof(site);
    memcpy(native, payload, site.native_count * sizeof(native[0]));
    payload += site.native_count * sizeof(native[0]);
    for (unsigned i = 0; i < site.python_count; i++) {
        struct sites_python python;
        memcpy(&python, payload + i * sizeof(python), sizeof(python));
        codes[i] = python.code;
        lines[i] = python.line;
    }
    provider->callsite(&(struct varve_mirror_callsite){.process = process,
                                                       .pid = pid,
                                                       .callsite = site.site,
                                                       .native_count = site.native_count,
                                                       .python_count = site.python_count,
                                                       .native = native,
                                                       .codes = codes,
                                                       .lines = lines});
}

static void emit_entry(void *context, uint32_t process_id, const struct sites_entry *entry,
                       const uint8_t *payload)
{
    const struct collector *collector = context;
    const struct mirror_provider *provider = collector->mirror.provider;
    const struct traced_process *process =
        process_id <= collector->process_count ? collector->processes[process_id - 1] : NULL;
    int32_t pid = process != NULL ? process->pid : 0;
    struct sites_gone gone;

    if (__atomic_load_n(&starts, __ATOMIC_ACQUIRE) != collector->mirror.starts_answered) {
        return; /* it will be emitted again in a moment, after what explains it */
    }
    switch (entry->tag) {
    case SITES_TAG_MODULE:
        emit_module(provider, process_id, pid, payload);
        break;
    case SITES_TAG_MODULE_GONE:
        memcpy(&gone, payload, sizeof(gone));
        provider->module_gone(process_id, pid, gone.number);
        break;
    case SITES_TAG_CODE:
        emit_code(provider, process_id, pid, payload);
        break;
    default:
        emit_callsite(provider, process_id, pid, payload);
        break;
    }
}

/* ---- the library ---- */

static int load_provider(struct collect_mirror *mirror, const char *path, struct varve_message *message)
{
    static const struct mirror_host host = {.context = &starts, .started = started};
    mirror_provider_open *open_provider = mirror_provider_find(path);

    if (open_provider == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "cannot load LTTng-UST: %s", dlerror());
    }
    mirror->starts_answered = __atomic_load_n(&starts, __ATOMIC_ACQUIRE);
    mirror->provider = open_provider(MIRROR_INTERFACE_VERSION, &host);
    return mirror->provider != NULL
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%s does not fit this varve", path);
}

int collect_mirror_open(struct collector *collector, const char *provider_path, struct varve_message *message)
{
    bool is_set = getenv(ALLOW_BLOCKING) != NULL;
    int error;

    setenv(ALLOW_BLOCKING, "1", 0); /* LTTng reads it when it is loaded; not for the program */
    error = load_provider(&collector->mirror, provider_path, message);
    if (!is_set) {
        unsetenv(ALLOW_BLOCKING);
    }
    if (error == VARVE_OK) {
        callsites_listen(collector->callsites, emit_entry, collector);
    }
    return error;
}

/* The library stays: its threads do. */
void collect_mirror_close(struct collector *collector)
{
    struct collect_mirror *mirror = &collector->mirror;

    for (size_t i = 0; i < mirror->meta_count; i++) {
        free(mirror->meta[i]);
    }
    free(mirror->meta);
    mirror->meta = NULL;
    mirror->meta_count = 0;
    mirror->provider = NULL;
}

/* ---- meta ---- */

/* Values start with '#' if they are integers, with '=' if they are text. */
static void emit_meta(const struct collector *collector, const char *key, const char *value)
{
    uint64_t trace_id = collector->directory.control->trace_id;

    if (value[0] == '#') {
        collector->mirror.provider->meta_integer(trace_id, key, strtoll(value + 1, NULL, 10));
    } else {
        collector->mirror.provider->meta_text(trace_id, key, value + 1);
    }
}

static int remember_meta(struct collector *collector, const char *key, const char *value)
{
    struct collect_mirror *mirror = &collector->mirror;
    char **grown;

    if (mirror->provider == NULL) {
        return VARVE_OK;
    }
    emit_meta(collector, key, value);
    grown = realloc(mirror->meta, (mirror->meta_count + 2) * sizeof(*grown));
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    mirror->meta = grown;
    grown[mirror->meta_count] = strdup(key);
    grown[mirror->meta_count + 1] = strdup(value);
    mirror->meta_count += 2;
    return grown[mirror->meta_count - 2] != NULL && grown[mirror->meta_count - 1] != NULL
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

int collect_meta_text(struct collector *collector, const char *key, const char *value)
{
    char text[PATH_TEXT_BYTES + 2];
    int error = collector->is_unstored ? VARVE_OK : store_meta_text(collector->store, key, value);

    snprintf(text, sizeof(text), "=%s", value);
    return error == VARVE_OK ? remember_meta(collector, key, text) : error;
}

int collect_meta_integer(struct collector *collector, const char *key, int64_t value)
{
    char text[32];
    int error = collector->is_unstored ? VARVE_OK : store_meta_integer(collector->store, key, value);

    snprintf(text, sizeof(text), "#%lld", (long long)value);
    return error == VARVE_OK ? remember_meta(collector, key, text) : error;
}

/* ---- processes, threads, records ---- */

void collect_mirror_process(const struct collector *collector, const struct traced_process *process)
{
    const struct process_control *control = process->control;
    char command_line[sizeof(control->command_line)];
    char executable[sizeof(control->executable)];

    if (collector->mirror.provider == NULL) {
        return;
    }
    collect_process_command(control, command_line, sizeof(command_line));
    snprintf(executable, sizeof(executable), "%.*s", (int)sizeof(executable) - 1, control->executable);
    collector->mirror.provider->process(
        &(struct varve_mirror_process){.trace_id = collector->directory.control->trace_id,
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

void collect_mirror_process_end(const struct collector *collector, const struct traced_process *process)
{
    const struct process_control *control = process->control;
    char exec_path[sizeof(control->exec_path)];

    if (collector->mirror.provider == NULL) {
        return;
    }
    snprintf(exec_path, sizeof(exec_path), "%.*s", (int)sizeof(exec_path) - 1, control->exec_path);
    collector->mirror.provider->process_end(&(struct varve_mirror_process_end){
        .process = process->id,
        .pid = control->pid,
        .end = __atomic_load_n(&control->state, __ATOMIC_ACQUIRE), /* the same numbers */
        .exec_path = exec_path});
}

static struct varve_mirror_origin origin_of(const struct ring_reader *reader)
{
    return (struct varve_mirror_origin){.process = reader->process->id,
                                        .ring = reader->index,
                                        .pid = reader->process->control->pid,
                                        .tid = reader->tid};
}

void collect_mirror_thread(const struct collector *collector, const struct ring_reader *reader)
{
    const struct ring_header *ring = reader->ring;
    char name[sizeof(ring->thread_name) + 1];

    if (collector->mirror.provider == NULL) {
        return;
    }
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(ring->thread_name), ring->thread_name);
    collector->mirror.provider->thread(&(struct varve_mirror_thread){
        .origin = origin_of(reader), .created_ticks = ring->created_ticks, .name = name});
}

void collect_mirror_thread_end(struct collector *collector, const struct ring_reader *reader)
{
    collect_lttng_ring(collector, reader);
    if (collector->mirror.provider == NULL) {
        return;
    }
    collector->mirror.provider->thread_end(
        &(struct varve_mirror_thread_end){.origin = origin_of(reader),
                                          .emitted = reader->sequence,
                                          .lost = __atomic_load_n(&reader->ring->lost, __ATOMIC_ACQUIRE),
                                          .lost_bytes = reader->ring->lost_bytes});
}

void collect_mirror_record(struct collector *collector, const struct ring_reader *reader,
                           const struct varve_record *record, uint64_t sequence)
{
    const struct mirror_provider *provider = collector->mirror.provider;
    struct varve_mirror_origin origin = origin_of(reader);

    if ((varve_record_flags(record) & VARVE_FLAG_MIRRORED) != 0 ||
        *provider->enabled[varve_record_kind(record) % VARVE_KIND_LIMIT] <= 0) {
        return;
    }
    provider->record(&origin, sequence, record);
}

static void emit_anchors(struct collector *collector)
{
    struct collect_mirror *mirror = &collector->mirror;

    for (; mirror->anchors_told < collector->clock.count; mirror->anchors_told++) {
        const struct clock_anchor *anchor = &collector->clock.anchors[mirror->anchors_told];
        mirror->provider->clock(
            &(struct varve_mirror_clock){.trace_id = collector->directory.control->trace_id,
                                         .ticks = anchor->ticks,
                                         .mono_ns = anchor->mono_ns,
                                         .real_ns = anchor->real_ns});
    }
}

/* Its own state dump: a reader of this trace alone must find all that it needs. */
static void emit_all(struct collector *collector)
{
    struct collect_mirror *mirror = &collector->mirror;

    mirror->anchors_told = 0;
    for (size_t i = 0; i + 1 < mirror->meta_count; i += 2) {
        emit_meta(collector, mirror->meta[i], mirror->meta[i + 1]);
    }
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed) {
            collect_mirror_process(collector, process);
        }
    }
    for (size_t i = 0; i < collector->reader_count; i++) {
        collect_mirror_thread(collector, collector->readers[i]);
    }
    callsites_replay(collector->callsites);
}

void collect_mirror_round(struct collector *collector)
{
    struct collect_mirror *mirror = &collector->mirror;
    uint32_t begun;

    if (mirror->provider == NULL) {
        return;
    }
    begun = __atomic_load_n(&starts, __ATOMIC_ACQUIRE);
    if (begun != mirror->starts_answered) {
        mirror->starts_answered = begun;
        emit_all(collector);
    }
    emit_anchors(collector);
}
