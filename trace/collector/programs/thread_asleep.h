/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread waits for in the kernel, seen without stopping it: a stop ends the wait. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_ASLEEP_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_ASLEEP_H

#include <stdbool.h>
#include <stdint.h>

/* What the program sees of a stop, once the thread goes on. */
enum asleep_harm {
    ASLEEP_UNHARMED, /* nothing */
    ASLEEP_ANEW,     /* a time limit begins anew */
    ASLEEP_CUT,      /* the call ends, with less done than it was asked for or an error */
};

struct asleep {
    enum asleep_harm harm;
    uint64_t pc, sp; /* of the program */
};

/// False: it runs, or can't be looked at.
bool asleep_look(int32_t tid, struct asleep *asleep_out);
/// Has it been so since? Another call of the same kind from the same place is not told from that.
bool asleep_still(int32_t tid, const struct asleep *asleep);

#endif
