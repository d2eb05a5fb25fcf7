/* SPDX-License-Identifier: Apache-2.0 */
/* Ticks of the workload's clock to ns since the program was started, by anchors taken now and then. */
#ifndef VARVE_TRACE_COLLECTOR_COLLECTOR_CLOCK_H
#define VARVE_TRACE_COLLECTOR_COLLECTOR_CLOCK_H

#include "trace/record.h"

#include <stddef.h>
#include <stdint.h>

#define COLLECT_META_START "start_monotonic_ns" /* what collect_clock_begin was told */

struct clock_anchor {
    uint64_t ticks;
    int64_t mono_ns;
    int64_t real_ns;
    /* from here to the next one; filled in by collect_clock_add, from this and earlier anchors alone */
    double rate;      /* ns per tick */
    int64_t floor_ns; /* where the stretch before ends: time does not go back */
};

struct collect_clock {
    enum varve_clock_kind kind;
    int64_t origin_mono_ns; /* ts_ns counts from here */
    struct clock_anchor *anchors;
    size_t count, capacity;
    size_t stored;    /* anchors already in the database */
    size_t last_used; /* hint for the search */
};

/// Which clock a session on this machine should use.
enum varve_clock_kind collect_clock_choose(void);
void collect_clock_open(struct collect_clock *clock, enum varve_clock_kind kind);
void collect_clock_close(struct collect_clock *clock);
uint64_t collect_clock_now(const struct collect_clock *clock);
/// How long after an anchor the next one should come: soon at first, while the rate is known badly.
uint64_t collect_clock_pause_ns(const struct collect_clock *clock);
/// Take an anchor now (the narrowest bracket of several tries), or add one read from a database.
int collect_clock_anchor(struct collect_clock *clock);
int collect_clock_add(struct collect_clock *clock, const struct clock_anchor *anchor);
/// Times count from the anchor with this time, if there is one; else, and without this, from the first.
void collect_clock_begin(struct collect_clock *clock, int64_t mono_ns);
/// ns since the origin; grows with ticks. Anchors later than `ticks` do not change the answer, so whoever has
/// the same anchors and ticks at whatever moment gets the same time.
int64_t collect_clock_ns(struct collect_clock *clock, uint64_t ticks);
/// A short span in ticks, by the rate of the first stretch: the same whenever it is asked.
uint64_t collect_clock_ticks_of(const struct collect_clock *clock, int64_t ns);

#endif
