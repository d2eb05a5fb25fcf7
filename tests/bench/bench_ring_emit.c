/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of bench_ring.py: records through varve_emit into the ring of this thread. It links the recorder
 * itself, so it must run with VARVE_SESSION but without the preload library, which would be a second
 * recorder:
 *
 *   varve record -- env -u LD_PRELOAD bench_ring_emit bursts 200
 *
 * Without VARVE_SESSION it measures what an event costs that nobody records.
 */
#include "trace/recorder/emit_slow.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/ring.h"
#include "trace/recorder/session.h"
#include "trace/emit.h"
#include "trace/record.h"

#include "bench/bench_ring_loop.h"

static inline __attribute__((always_inline)) void emit(const struct varve_record *record)
{
    varve_emit(record);
}

/* What the preload library's constructor does: bench_lttng.py records to LTTng too. */
int main(int argc, char **argv)
{
    second_sink_open();
    return ring_loop_main(argc, argv, emit);
}
