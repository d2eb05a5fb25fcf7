/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracepoints of the provider `varve`, as LTTng's macros want them described. Those of records are made from
 * VARVE_EVENT_LIST, all of one event class, so that one function writes them; their fields are named and meant like
 * the columns of the table `event`. varve:meta_* carry what a recording has besides records (sink.h).
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER varve
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "trace/recorder/lttng/provider_events.h"

#if !defined(VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)

#ifndef VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H
#define VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H

/* A tracepoint takes one pointer where there is more than one word to pass: arguments are moved around at each call,
 * and twice more if a filter is on. A text that is NULL is written as an empty one. */

/* All of the provider is in one library, which exports nothing of it. */
#define LTTNG_UST_TRACEPOINT_HIDDEN_DEFINITION
#define LTTNG_UST_TRACEPOINT_PROVIDER_HIDDEN_DEFINITION

#include "trace/sink.h"
#include "trace/record.h"

#include <lttng/tracepoint.h>

/* What the tracepoint of a record gets: its fields, in the order and with the sizes that they have in a trace.
 */
struct __attribute__((packed)) lttng_provider_record {
    uint32_t process, ring;
    uint64_t ring_seq, ticks;
    int32_t pid, tid;
    uint8_t device;
    uint64_t dev_seq;
    uint16_t stream, pool;
    uint64_t id, addr, size, requested, arg;
    uint8_t cause;
    uint32_t callsite;
    uint8_t flags;
};

_Static_assert(sizeof(struct lttng_provider_record) == 8 * 8 + 5 * 4 + 2 * 2 + 3 * 1, "no padding");

static inline const char *lttng_provider_text(const char *text)
{
    return text != NULL ? text : "";
}

/* An enumeration wants a label for each value; the text of "no cause" is empty. */
#define VARVE_LTTNG_CAUSE(code, NAME, text) lttng_ust_field_enum_value(sizeof(text) > 1 ? (text) : "none", (code))

#define VARVE_LTTNG_INSTANCE(code, NAME, name, group, addr, size, requested, arg, meaning) \
    LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(varve, record, varve, name,                        \
                                        LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, fact))

#endif

/* clang-format off */

/* records */

/* cppcheck-suppress unknownMacro ; a macro of LTTng's */
LTTNG_UST_TRACEPOINT_ENUM(varve, cause,
    LTTNG_UST_TP_ENUM_VALUES(VARVE_CAUSE_LIST(VARVE_LTTNG_CAUSE))
)

#if defined(lttng_ust__get_dynamic_len) && !defined(LTTNG_UST_RING_BUFFER_NATURAL_ALIGN)
/* The reading that makes the function which writes the fields (LTTng defines that macro for it alone): all of
 * them at once. One by one, as an LTTng without that macro has them, they cost 60 ns more. */
LTTNG_UST_TRACEPOINT_EVENT_CLASS(varve, record,
    LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_array(uint8_t, all, fact, sizeof(*fact))
    )
)
#else
LTTNG_UST_TRACEPOINT_EVENT_CLASS(varve, record,
    LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(uint32_t, ring, fact->ring)
        lttng_ust_field_integer(uint64_t, ring_seq, fact->ring_seq)
        lttng_ust_field_integer(uint64_t, ticks, fact->ticks)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_integer(int32_t, tid, fact->tid)
        lttng_ust_field_integer(uint8_t, device, fact->device)
        lttng_ust_field_integer(uint64_t, dev_seq, fact->dev_seq)
        lttng_ust_field_integer(uint16_t, stream, fact->stream)
        lttng_ust_field_integer(uint16_t, pool, fact->pool)
        lttng_ust_field_integer(uint64_t, id, fact->id)
        lttng_ust_field_integer_hex(uint64_t, addr, fact->addr)
        lttng_ust_field_integer(uint64_t, size, fact->size)
        lttng_ust_field_integer(uint64_t, requested, fact->requested)
        lttng_ust_field_integer(uint64_t, arg, fact->arg)
        lttng_ust_field_enum(varve, cause, uint8_t, cause, fact->cause)
        lttng_ust_field_integer(uint32_t, callsite, fact->callsite)
        lttng_ust_field_integer(uint8_t, flags, fact->flags)
    )
)
#endif

VARVE_EVENT_LIST(VARVE_LTTNG_INSTANCE)

/* processes, threads, the clock */

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_process,
    LTTNG_UST_TP_ARGS(const struct varve_sink_process *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, fact->trace_id)
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(uint32_t, parent, fact->parent)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_integer(int32_t, parent_pid, fact->parent_pid)
        lttng_ust_field_integer(int32_t, rank, fact->rank)
        lttng_ust_field_integer(uint32_t, clock_kind, fact->clock_kind)
        lttng_ust_field_integer(uint64_t, start_ticks, fact->start_ticks)
        lttng_ust_field_integer(uint64_t, start_ticks_proc, fact->start_ticks_proc)
        lttng_ust_field_string(executable, lttng_provider_text(fact->executable))
        lttng_ust_field_string(command_line, lttng_provider_text(fact->command_line))
    )
)

LTTNG_UST_TRACEPOINT_ENUM(varve, end,
    LTTNG_UST_TP_ENUM_VALUES(
        lttng_ust_field_enum_value("running", VARVE_SINK_END_RUNNING)
        lttng_ust_field_enum_value("exited", VARVE_SINK_END_EXITED)
        lttng_ust_field_enum_value("executing", VARVE_SINK_END_EXECUTING)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_process_end,
    LTTNG_UST_TP_ARGS(const struct varve_sink_process_end *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_enum(varve, end, uint32_t, end, fact->end)
        lttng_ust_field_string(exec_path, lttng_provider_text(fact->exec_path))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_thread,
    LTTNG_UST_TP_ARGS(const struct varve_sink_thread *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->origin.process)
        lttng_ust_field_integer(uint32_t, ring, fact->origin.ring)
        lttng_ust_field_integer(int32_t, pid, fact->origin.pid)
        lttng_ust_field_integer(int32_t, tid, fact->origin.tid)
        lttng_ust_field_integer(uint64_t, created_ticks, fact->created_ticks)
        lttng_ust_field_string(name, lttng_provider_text(fact->name))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_thread_end,
    LTTNG_UST_TP_ARGS(const struct varve_sink_thread_end *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->origin.process)
        lttng_ust_field_integer(uint32_t, ring, fact->origin.ring)
        lttng_ust_field_integer(int32_t, pid, fact->origin.pid)
        lttng_ust_field_integer(int32_t, tid, fact->origin.tid)
        lttng_ust_field_integer(uint64_t, emitted, fact->emitted)
        lttng_ust_field_integer(uint64_t, lost, fact->lost)
        lttng_ust_field_integer(uint64_t, lost_bytes, fact->lost_bytes)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_clock,
    LTTNG_UST_TP_ARGS(const struct varve_sink_clock *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, fact->trace_id)
        lttng_ust_field_integer(uint64_t, ticks, fact->ticks)
        lttng_ust_field_integer(int64_t, mono_ns, fact->mono_ns)
        lttng_ust_field_integer(int64_t, real_ns, fact->real_ns)
    )
)

/* what code events come from */

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_module,
    LTTNG_UST_TP_ARGS(const struct varve_sink_module *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_integer_hex(uint64_t, base, fact->base)
        lttng_ust_field_integer_hex(uint64_t, end, fact->end)
        lttng_ust_field_integer_hex(uint64_t, bias, fact->bias)
        lttng_ust_field_integer(uint32_t, number, fact->number)
        lttng_ust_field_integer(uint32_t, build_id_bytes, fact->build_id_bytes)
        lttng_ust_field_sequence_hex(uint8_t, build_id, fact->build_id, uint32_t, fact->build_id_bytes)
        lttng_ust_field_string(path, lttng_provider_text(fact->path))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_module_gone,
    LTTNG_UST_TP_ARGS(uint32_t, process_number, int32_t, pid_number, uint32_t, module_number),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, process_number)
        lttng_ust_field_integer(int32_t, pid, pid_number)
        lttng_ust_field_integer(uint32_t, number, module_number)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_code,
    LTTNG_UST_TP_ARGS(const struct varve_sink_code *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_integer(uint32_t, code, fact->code)
        lttng_ust_field_integer(uint32_t, first_line, fact->first_line)
        lttng_ust_field_string(function, lttng_provider_text(fact->function))
        lttng_ust_field_string(file, lttng_provider_text(fact->file))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_callsite,
    LTTNG_UST_TP_ARGS(const struct varve_sink_callsite *, fact),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, fact->process)
        lttng_ust_field_integer(int32_t, pid, fact->pid)
        lttng_ust_field_integer(uint32_t, callsite, fact->callsite)
        lttng_ust_field_integer(uint32_t, native_count, fact->native_count)
        lttng_ust_field_integer(uint32_t, python_count, fact->python_count)
        lttng_ust_field_sequence_hex(uint64_t, native, fact->native, uint32_t, fact->native_count)
        lttng_ust_field_sequence(uint32_t, codes, fact->codes, uint32_t, fact->python_count)
        lttng_ust_field_sequence(uint32_t, lines, fact->lines, uint32_t, fact->python_count)
    )
)

/* rows of `meta` */

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_text,
    LTTNG_UST_TP_ARGS(uint64_t, trace, const char *, row_key, const char *, row_value),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, trace)
        lttng_ust_field_string(key, lttng_provider_text(row_key))
        lttng_ust_field_string(value, lttng_provider_text(row_value))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_integer,
    LTTNG_UST_TP_ARGS(uint64_t, trace, const char *, row_key, int64_t, row_value),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, trace)
        lttng_ust_field_string(key, lttng_provider_text(row_key))
        lttng_ust_field_integer(int64_t, value, row_value)
    )
)

/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>
