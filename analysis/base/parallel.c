/* SPDX-License-Identifier: Apache-2.0 */
/* Threads take the next piece until none is left. */
#include "analysis/base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define THREADS_MAX 256

struct work {
    void (*run)(void *context, size_t index);
    void *context;
    size_t count;
    size_t next; /* atomic */
};

static void *work_on(void *untyped)
{
    struct work *work = untyped;
    size_t index;
    while ((index = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->count) {
        work->run(work->context, index);
    }
    return NULL;
}

unsigned parallel_threads(unsigned threads)
{
    cpu_set_t allowed;
    if (threads == 0) {
        /* the kernel refuses a set that is smaller than its own */
        threads = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? (unsigned)CPU_COUNT(&allowed)
                                                                       : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return threads == 0 ? 1 : threads < THREADS_MAX ? threads : THREADS_MAX;
}

void parallel_run(size_t count, unsigned threads, void (*run)(void *context, size_t index), void *context)
{
    struct work work = {.run = run, .context = context, .count = count};
    threads = parallel_threads(threads);
    pthread_t others[THREADS_MAX];
    unsigned started = 0;
    while (started + 1 < threads && started + 1 < count &&
           pthread_create(&others[started], NULL, work_on, &work) == 0) {
        started++;
    }
    work_on(&work);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(others[i], NULL);
    }
}
