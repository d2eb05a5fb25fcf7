/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of bench_ring.py: the same records through an LTTng-UST tracepoint. The provider (the code
 * that writes events into LTTng's buffers) is part of this program. Without an LTTng session it measures a
 * tracepoint that is off.
 */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include <lttng/tracepoint.h>

#include "bench/lttng_ring_provider.h"

#include "bench/bench_ring_loop.h"

static inline __attribute__((always_inline)) void emit(const struct varve_record *record)
{
    lttng_ust_tracepoint(varve_bench, record, record);
}

int main(int argc, char **argv)
{
    return ring_loop_main(argc, argv, emit);
}
