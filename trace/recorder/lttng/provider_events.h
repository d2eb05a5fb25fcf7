/* SPDX-License-Identifier: Apache-2.0 */
/* C only: LTTng's macros read this file several times */
/*
 * The tracepoints of the provider `varve`, as LTTng's macros want them told. Those of records are made from
 * VARVE_EVENT_LIST, one for each kind: varve:alloc, varve:heap_free, …, all of one event class, so that there
 * is one function that writes them. Their fields are named and meant like the columns of the table `event`.
 * varve:meta_* carry what a recording has besides records (sink.h); their fields are the members of the
 * structures there.
 *
 * A tracepoint takes one pointer where there is more than one word to pass: arguments are moved around at
 * each call, and twice more if a filter is on. A text that is NULL is written as an empty one.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER varve
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "trace/recorder/lttng/provider_events.h"

#if !defined(VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)

#ifndef VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H
#define VARVE_TRACE_RECORDER_LTTNG_PROVIDER_EVENTS_H

/* All of the provider is in one library, which exports nothing of it. */
#define LTTNG_UST_TRACEPOINT_HIDDEN_DEFINITION
#define LTTNG_UST_TRACEPOINT_PROVIDER_HIDDEN_DEFINITION

#include "trace/sink.h"
#include "trace/record.h"

#include <lttng/tracepoint.h>

/* What a record's tracepoint is given: its fields, in the order and with the sizes that they have in a trace.
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
#define VARVE_LTTNG_CAUSE(code, NAME, text) \
    lttng_ust_field_enum_value(sizeof(text) > 1 ? (text) : "none", (code))

#define VARVE_LTTNG_INSTANCE(code, NAME, name, group, addr, size, requested, arg, meaning) \
    LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(varve, record, varve, name,                        \
                                        LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, told))

#endif

/* clang-format off */

/* ---- records ---- */

/* cppcheck-suppress unknownMacro ; a macro of LTTng's */
LTTNG_UST_TRACEPOINT_ENUM(varve, cause,
    LTTNG_UST_TP_ENUM_VALUES(VARVE_CAUSE_LIST(VARVE_LTTNG_CAUSE))
)

#if defined(lttng_ust__get_dynamic_len) && !defined(LTTNG_UST_RING_BUFFER_NATURAL_ALIGN)
/* The reading that makes the function which writes the fields (LTTng defines that macro for it alone): all of
 * them at once. One by one, as an LTTng without that macro has them, they cost 60 ns more. */
LTTNG_UST_TRACEPOINT_EVENT_CLASS(varve, record,
    LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_array(uint8_t, all, told, sizeof(*told))
    )
)
#else
LTTNG_UST_TRACEPOINT_EVENT_CLASS(varve, record,
    LTTNG_UST_TP_ARGS(const struct lttng_provider_record *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(uint32_t, ring, told->ring)
        lttng_ust_field_integer(uint64_t, ring_seq, told->ring_seq)
        lttng_ust_field_integer(uint64_t, ticks, told->ticks)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_integer(int32_t, tid, told->tid)
        lttng_ust_field_integer(uint8_t, device, told->device)
        lttng_ust_field_integer(uint64_t, dev_seq, told->dev_seq)
        lttng_ust_field_integer(uint16_t, stream, told->stream)
        lttng_ust_field_integer(uint16_t, pool, told->pool)
        lttng_ust_field_integer(uint64_t, id, told->id)
        lttng_ust_field_integer_hex(uint64_t, addr, told->addr)
        lttng_ust_field_integer(uint64_t, size, told->size)
        lttng_ust_field_integer(uint64_t, requested, told->requested)
        lttng_ust_field_integer(uint64_t, arg, told->arg)
        lttng_ust_field_enum(varve, cause, uint8_t, cause, told->cause)
        lttng_ust_field_integer(uint32_t, callsite, told->callsite)
        lttng_ust_field_integer(uint8_t, flags, told->flags)
    )
)
#endif

VARVE_EVENT_LIST(VARVE_LTTNG_INSTANCE)

/* ---- processes, threads, the clock ---- */

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_process,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_process *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, told->trace_id)
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(uint32_t, parent, told->parent)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_integer(int32_t, parent_pid, told->parent_pid)
        lttng_ust_field_integer(int32_t, rank, told->rank)
        lttng_ust_field_integer(uint32_t, clock_kind, told->clock_kind)
        lttng_ust_field_integer(uint64_t, start_ticks, told->start_ticks)
        lttng_ust_field_integer(uint64_t, start_ticks_proc, told->start_ticks_proc)
        lttng_ust_field_string(executable, lttng_provider_text(told->executable))
        lttng_ust_field_string(command_line, lttng_provider_text(told->command_line))
    )
)

LTTNG_UST_TRACEPOINT_ENUM(varve, end,
    LTTNG_UST_TP_ENUM_VALUES(
        lttng_ust_field_enum_value("running", VARVE_MIRROR_END_RUNNING)
        lttng_ust_field_enum_value("exited", VARVE_MIRROR_END_EXITED)
        lttng_ust_field_enum_value("executing", VARVE_MIRROR_END_EXECUTING)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_process_end,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_process_end *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_enum(varve, end, uint32_t, end, told->end)
        lttng_ust_field_string(exec_path, lttng_provider_text(told->exec_path))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_thread,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_thread *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->origin.process)
        lttng_ust_field_integer(uint32_t, ring, told->origin.ring)
        lttng_ust_field_integer(int32_t, pid, told->origin.pid)
        lttng_ust_field_integer(int32_t, tid, told->origin.tid)
        lttng_ust_field_integer(uint64_t, created_ticks, told->created_ticks)
        lttng_ust_field_string(name, lttng_provider_text(told->name))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_thread_end,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_thread_end *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->origin.process)
        lttng_ust_field_integer(uint32_t, ring, told->origin.ring)
        lttng_ust_field_integer(int32_t, pid, told->origin.pid)
        lttng_ust_field_integer(int32_t, tid, told->origin.tid)
        lttng_ust_field_integer(uint64_t, emitted, told->emitted)
        lttng_ust_field_integer(uint64_t, lost, told->lost)
        lttng_ust_field_integer(uint64_t, lost_bytes, told->lost_bytes)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_clock,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_clock *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, trace_id, told->trace_id)
        lttng_ust_field_integer(uint64_t, ticks, told->ticks)
        lttng_ust_field_integer(int64_t, mono_ns, told->mono_ns)
        lttng_ust_field_integer(int64_t, real_ns, told->real_ns)
    )
)

/* ---- what code events come from ---- */

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_module,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_module *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_integer_hex(uint64_t, base, told->base)
        lttng_ust_field_integer_hex(uint64_t, end, told->end)
        lttng_ust_field_integer_hex(uint64_t, bias, told->bias)
        lttng_ust_field_integer(uint32_t, number, told->number)
        lttng_ust_field_integer(uint32_t, build_id_bytes, told->build_id_bytes)
        lttng_ust_field_sequence_hex(uint8_t, build_id, told->build_id, uint32_t, told->build_id_bytes)
        lttng_ust_field_string(path, lttng_provider_text(told->path))
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
    LTTNG_UST_TP_ARGS(const struct varve_mirror_code *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_integer(uint32_t, code, told->code)
        lttng_ust_field_integer(uint32_t, first_line, told->first_line)
        lttng_ust_field_string(function, lttng_provider_text(told->function))
        lttng_ust_field_string(file, lttng_provider_text(told->file))
    )
)

LTTNG_UST_TRACEPOINT_EVENT(varve, meta_callsite,
    LTTNG_UST_TP_ARGS(const struct varve_mirror_callsite *, told),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, process, told->process)
        lttng_ust_field_integer(int32_t, pid, told->pid)
        lttng_ust_field_integer(uint32_t, callsite, told->callsite)
        lttng_ust_field_integer(uint32_t, native_count, told->native_count)
        lttng_ust_field_integer(uint32_t, python_count, told->python_count)
        lttng_ust_field_sequence_hex(uint64_t, native, told->native, uint32_t, told->native_count)
        lttng_ust_field_sequence(uint32_t, codes, told->codes, uint32_t, told->python_count)
        lttng_ust_field_sequence(uint32_t, lines, told->lines, uint32_t, told->python_count)
    )
)

/* ---- rows of `meta` ---- */

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
