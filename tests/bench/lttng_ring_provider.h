/* SPDX-License-Identifier: Apache-2.0 */
/* C only: LTTng's macros read this file several times */
/*
 * A tracepoint whose fields are those of struct varve_record without the time, which LTTng writes itself: 56
 * bytes. One argument, so that a call costs LTTng as little as possible.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER varve_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "bench/lttng_ring_provider.h"

#if !defined(VARVE_TESTS_BENCH_LTTNG_RING_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define VARVE_TESTS_BENCH_LTTNG_RING_PROVIDER_H

#include "trace/record.h"

#include <lttng/tracepoint.h>

/* clang-format off */
LTTNG_UST_TRACEPOINT_EVENT(varve_bench, record,
    LTTNG_UST_TP_ARGS(const struct varve_record *, record),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(uint64_t, addr, record->addr)
        lttng_ust_field_integer(uint64_t, size, record->size)
        lttng_ust_field_integer(uint64_t, requested, record->requested)
        lttng_ust_field_integer(uint64_t, arg, record->arg)
        lttng_ust_field_integer(uint64_t, id_stream, record->id_stream)
        lttng_ust_field_integer(uint64_t, dev_seq_kind_flags, record->dev_seq_kind_flags)
        lttng_ust_field_integer(uint32_t, callsite, record->callsite)
        lttng_ust_field_integer(uint16_t, pool, record->pool)
        lttng_ust_field_integer(uint8_t, device, record->device)
        lttng_ust_field_integer(uint8_t, cause, record->cause)
    )
)
/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>
