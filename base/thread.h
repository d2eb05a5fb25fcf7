/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the collector's half. The program's signals, and the terminal's, are for the thread that runs the command.
 */
#ifndef VARVE_BASE_THREAD_H
#define VARVE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/// pthread_create of a thread that no signal is sent to; SIGBUS stays open: its own, of a file that became shorter,
/// must reach whoever guards against it. Returns what pthread_create does.
int thread_start(pthread_t *thread, void *(*run)(void *context), void *context);
/// pthread_join, if the thread ends within so many nanoseconds, less than 10^9; false: it does not.
bool thread_join_within(pthread_t thread, long ns);

#endif
