/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider library's one exported function, varve_sink_provider: a table of functions that call
 * tracepoints. Nothing is kept here between two calls. The program's threads are in the middle of a malloc
 * when they emit a record: no lock is taken, nothing is allocated, and no thread may be cancelled there.
 * Called by the recorder (sink_emit.c) and the collector.
 */
#include "trace/format/sink_provider.h"

#include "trace/recorder/lttng/provider_events.h"
#include "trace/recorder/lttng/provider.h"

#include <pthread.h>
#include <stdlib.h>

#define KIND_COUNT 256U /* as many as a record can name */

static const int *tracepoint_states[KIND_COUNT];

/* LTTng may wait for space in a full buffer, by poll(), where a thread can be cancelled. Decided once, by
 * what LTTng decides it by. */
static bool may_wait;

static inline int cancellation_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    if (may_wait) {
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    }
    return before;
}

static inline void cancellation_restore(int before)
{
    if (may_wait) {
        (void)pthread_setcancelstate(before, &before);
    }
}

#define EMIT(...)                                 \
    do {                                          \
        int before = cancellation_off();          \
        lttng_ust_tracepoint(varve, __VA_ARGS__); \
        cancellation_restore(before);             \
    } while (0)

/* ---- records ---- */

static void provider_emit_record(const struct varve_sink_origin *origin, uint64_t ring_seq,
                                 const struct varve_record *record)
{
    const struct lttng_provider_record fields = {
        .process = origin->process,
        .ring = origin->ring,
        .ring_seq = ring_seq,
        .ticks = record->ticks,
        .pid = origin->pid,
        .tid = origin->tid,
        .device = record->device,
        .dev_seq = varve_record_dev_seq(record),
        .stream = (uint16_t)varve_record_stream(record),
        .pool = record->pool,
        .id = varve_record_id(record),
        .addr = record->addr,
        .size = record->size,
        .requested = record->requested,
        .arg = record->arg,
        .cause = record->cause,
        .callsite = record->callsite,
        .flags = (uint8_t)(varve_record_flags(record) & VARVE_FLAGS_STORED),
    };
    switch (varve_record_kind(record)) {
#define EMIT_KIND(code, NAME, name, group, addr, size, requested, arg, meaning) \
    case VARVE_KIND_##NAME:                                                     \
        lttng_ust_tracepoint(varve, name, &fields);                             \
        break;
        VARVE_EVENT_LIST(EMIT_KIND)
#undef EMIT_KIND
    default:
        break;
    }
}

static void emit_record_waiting(const struct varve_sink_origin *origin, uint64_t ring_seq,
                                const struct varve_record *record)
{
    int before;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    provider_emit_record(origin, ring_seq, record);
    (void)pthread_setcancelstate(before, &before);
}

/* ---- everything else ---- */

#define EMITTER(name)                                             \
    static void emit_##name(const struct varve_sink_##name *fact) \
    {                                                             \
        EMIT(meta_##name, fact);                                  \
    }
EMITTER(process)
EMITTER(process_end)
EMITTER(thread)
EMITTER(thread_end)
EMITTER(clock)
EMITTER(module)
EMITTER(code)
EMITTER(callsite)

static void emit_module_gone(uint32_t process, int32_t pid, uint32_t number)
{
    EMIT(meta_module_gone, process, pid, number);
}

static void emit_meta_text(uint64_t trace_id, const char *key, const char *value)
{
    EMIT(meta_text, trace_id, key, value);
}

static void emit_meta_integer(uint64_t trace_id, const char *key, int64_t value)
{
    EMIT(meta_integer, trace_id, key, value);
}

/* ---- opening ---- */

bool lttng_provider_is_wanted(void)
{
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (__atomic_load_n(tracepoint_states[kind], __ATOMIC_RELAXED) > 0) {
            return true;
        }
    }
    return false;
}

static struct sink_provider provider = {
    .version = SINK_INTERFACE_VERSION,
    .enabled = tracepoint_states,
    .record = provider_emit_record,
    .process = emit_process,
    .process_end = emit_process_end,
    .thread = emit_thread,
    .thread_end = emit_thread_end,
    .clock = emit_clock,
    .module = emit_module,
    .module_gone = emit_module_gone,
    .code = emit_code,
    .callsite = emit_callsite,
    .meta_text = emit_meta_text,
    .meta_integer = emit_meta_integer,
};

static void find_states(void)
{
    static const int never = 0;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        tracepoint_states[kind] = &never;
    }
#define FIND_STATE(code, NAME, name, group, addr, size, requested, arg, meaning) \
    tracepoint_states[VARVE_KIND_##NAME] = &lttng_ust_tracepoint_varve___##name.state;
    VARVE_EVENT_LIST(FIND_STATE)
#undef FIND_STATE
}

__attribute__((visibility("default"))) sink_provider_open varve_sink_provider;

const struct sink_provider *varve_sink_provider(uint32_t version, const struct sink_host *host)
{
    if (version != SINK_INTERFACE_VERSION || host == NULL) {
        return NULL;
    }
    find_states();
    may_wait = getenv("LTTNG_UST_ALLOW_BLOCKING") != NULL;
    if (may_wait) {
        provider.record = emit_record_waiting;
    }
    lttng_provider_watch_forks();
    return lttng_provider_watch_starts(host) ? &provider : NULL;
}
