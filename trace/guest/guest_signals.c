/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All signals of a thread blocked, those of the C library too. Called around everything that a handler must
 * not interrupt.
 */
#include "trace/guest/guest_signals.h"
#include "trace/guest/confinement.h"
#include "base/syscall.h"

#include <signal.h>
#include <stddef.h>

void recorder_signals_block(struct recorder_signals *saved)
{
    /* not pthread_sigmask: that leaves the C library's own signals (cancellation, setuid) open */
    saved->is_blocked = recorder_confine_section_begin();
    const uint64_t all = UINT64_MAX;
    if (saved->is_blocked) {
        recorder_sys_sigmask(SIG_SETMASK, &all, &saved->mask);
    }
}

void recorder_signals_restore(const struct recorder_signals *saved)
{
    if (saved->is_blocked) {
        recorder_sys_sigmask(SIG_SETMASK, &saved->mask, NULL);
        recorder_confine_section_end();
    }
}
