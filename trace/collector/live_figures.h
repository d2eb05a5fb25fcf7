/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the recording for whoever watches it (`varve top`): once a second, and only while somebody does. */
#ifndef VARVE_TRACE_COLLECTOR_LIVE_FIGURES_H
#define VARVE_TRACE_COLLECTOR_LIVE_FIGURES_H

#include "trace/model/group_leaders.h"

#include <stdint.h>

struct collector;
struct live;

/* All zero: nobody has watched. */
struct collect_live {
    struct live *store; /* NULL: nobody watches */
    struct leaders leaders;
    uint64_t next_ns;        /* when to ask whether somebody does */
    uint64_t next_moment_ns; /* when figures are due */
};

/// In every round.
void collect_live_round(struct collector *collector, uint64_t now_ns);
/// After the last event, before anything is put together for the database: the last figures.
void collect_live_end(struct collector *collector);
void collect_live_close(struct collector *collector);

#endif
