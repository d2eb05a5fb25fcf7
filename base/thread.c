/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How threads begin, with their mask set before they run, and end. Called by whatever works beside the collector or an
 * import.
 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

int thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

bool thread_join_within(pthread_t thread, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    return pthread_timedjoin_np(thread, NULL, &until) != ETIMEDOUT;
}
