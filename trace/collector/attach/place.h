/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to collector/attach */
/*
 * May a thread call dlopen where it stands? Not within the allocator, the loader and other places of the C library that
 * hold a lock which dlopen takes.
 */
#ifndef VARVE_TRACE_COLLECTOR_ATTACH_PLACE_H
#define VARVE_TRACE_COLLECTOR_ATTACH_PLACE_H

#include "trace/collector/attach/target.h"

#include <stdbool.h>
#include <stdint.h>

struct symbols_running;

struct place_rules {
    const struct target *target;
    uint64_t malloc_start, malloc_end; /* of the C library's allocator, in its file */
};

void place_rules_init(struct place_rules *rules, const struct target *target);

enum place {
    PLACE_SAFE = 0,
    PLACE_UNSAFE,   /* in the loader, the allocator, … */
    PLACE_RECORDER, /* in libvarve_preload.so */
};

/// Of a thread that is traced and stopped.
enum place place_of(const struct place_rules *rules, struct symbols_running *running, int32_t tid);

#endif
