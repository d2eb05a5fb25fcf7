/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session's clock where it is not simply the time stamp counter (varve_clock_ticks of emit.h): the
 * kernel's, or for a thread that may read neither what the collector has last written into the session's
 * page.
 */
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/recorder/session.h"
#include "trace/producer.h"
#include "trace/record.h"
#include "trace/format/session_format.h"

#include <stddef.h>

uint64_t varve_clock_ticks_elsewhere(void)
{
    const struct session_control *session = recorder_session();
    bool is_tsc = session != NULL && session->clock_kind == VARVE_CLOCK_TSC;
    uint64_t ticks;
    uint64_t least;

    /* the kernel's clock may be the counter too, or a system call */
    if (session != NULL && (recorder_is_confined_in(RECORDER_CONFINE_CLOCK) || (!is_tsc && recorder_is_confined()))) {
        ticks = __atomic_load_n(&session->heartbeat_ticks, __ATOMIC_RELAXED);
        least = recorder_clock_left_ticks();
        return ticks > least ? ticks : least;
    }
#if defined(__x86_64__)
    if (is_tsc) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return varve_clock_monotonic_ns();
}
