/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May a thread call dlopen where it stands? Not within the allocator, the loader and other places of the C library that
 * hold a lock which dlopen takes.
 */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_PLACE_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_PLACE_H

#include "trace/collector/programs/attach_target.h"

#include <stddef.h>
#include <stdint.h>

struct symbols_running;

struct place_range {
    uint64_t start, end;
};

struct place_rules {
    const struct target *target;
    uint64_t malloc_start, malloc_end; /* of the C library's allocator, in its file */
    struct place_range *ranges;        /* where stacks may lie, once asked for; until the end of this process */
    size_t range_count;
};

void place_rules_init(struct place_rules *rules, const struct target *target);

/* Where a thread is, a bit mask; 0: where it may call anything. */
enum place {
    PLACE_ALLOCATOR = 1,
    PLACE_LOADER = 2, /* or another holder of a lock that dlopen takes, or a constructor */
    PLACE_RECORDER = 4,
    PLACE_UNKNOWN = 8,
    PLACE_ANY = 15,
};

/// Of a thread that is traced and stopped.
unsigned place_of(const struct place_rules *rules, struct symbols_running *running, int32_t tid);
/// Of one that sleeps there, traced or not. More than is so: what has been called before has left its traces.
unsigned place_asleep(struct place_rules *rules, struct symbols_running *running, int32_t tid, uint64_t pc,
                      uint64_t sp);

#endif
