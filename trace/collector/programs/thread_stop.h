/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of another process, traced and stopped by this one, which has one thread, no children of its own and all
 * signals blocked. Every call returns in its time.
 */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_STOP_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_STOP_H

#include <stdbool.h>
#include <stdint.h>

#define STOP_NS UINT64_C(100000000) /* for a thread to stop: one in vfork, or waiting for a disk, does not */

/// CLOCK_MONOTONIC.
uint64_t stop_now_ns(void);
void stop_nap(long ns);

enum stop_taken {
    STOP_TAKEN,
    STOP_TAKEN_NOT,        /* it has ended, or its process is executing a program */
    STOP_TAKEN_FORBIDDEN,  /* it may not be traced */
    STOP_TAKEN_BY_ANOTHER, /* somebody else traces it */
};

/// The thread is traced. `tracer_out`: by whom else. One that does not stop is let go of when it does, by any of these
/// functions.
enum stop_taken stop_take(int32_t tid, int32_t *tracer_out);

enum stop {
    STOP_GONE,
    STOP_NONE,   /* in time */
    STOP_ASKED,  /* by stop_thread */
    STOP_WHOLE,  /* its process is stopped, by SIGSTOP or alike */
    STOP_SIGNAL, /* it is about to get one */
};

/// A traced thread is stopped, with no signal of the program's on its way; one that arrives first is delivered.
enum stop stop_thread(int32_t tid);
/// The next stop of a traced thread that runs. `signal_out`: of STOP_SIGNAL.
enum stop stop_await(int32_t tid, uint64_t limit_ns, int *signal_out);
/// Threads that were waited for in vain and have stopped or ended since are let go of.
void stop_late(void);
/// A stopped thread runs, and gets this signal, if it is not 0. False: it has ended.
bool stop_go_on(int32_t tid, int number);
/// It is traced no more, and runs, unless its process is stopped.
void stop_let_go(int32_t tid);

#endif
