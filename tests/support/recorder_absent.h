/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of the recorder, for a program that has its stack walkers alone: sections are only counted, and signals
 * come in them too. Included by one source of a program. (callsite_reading.h has those of call sites, without signals.)
 */
#ifndef VARVE_TESTS_SUPPORT_RECORDER_ABSENT_H
#define VARVE_TESTS_SUPPORT_RECORDER_ABSENT_H

#include "trace/guest/guest_clock.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"

__thread uint32_t recorder_reentrant_depth;
uint32_t varve_clock_is_tsc;

void recorder_clock_leave(void)
{
}

void recorder_reentrant_begin(struct recorder_signals *saved)
{
    (void)saved;
    recorder_reentrant_depth++;
}

void recorder_reentrant_end(const struct recorder_signals *saved)
{
    (void)saved;
    recorder_reentrant_depth--;
}

#endif
