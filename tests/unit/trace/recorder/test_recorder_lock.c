/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The locks of the recorder: who waits sleeps, whatever its priority, and nobody waits for ever for a thread
 * that is stopped inside. The stopped thread is played by a lock that nobody will give back.
 * Costs: 1 s
 */
#include "support/recorder.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#include "trace/guest/guest_lock.h"

#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>

static uint32_t lock;
static int waiter_tid; /* atomic */

static void *wait_for_lock(void *context)
{
    (void)context;
    struct recorder_signals saved;
    recorder_signals_block(&saved);
    __atomic_store_n(&waiter_tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    recorder_lock(&lock);
    recorder_unlock(&lock);
    recorder_signals_restore(&saved);
    return NULL;
}

static char state_of(int tid)
{
    char path[64];
    char text[256] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    const char *at = strrchr(text, ')');
    return at != NULL && at[1] != '\0' ? at[2] : '?';
}

/* A thread that yields instead is runnable all the time: of a higher real-time priority it would keep the
 * holder from ever giving the lock back. */
TEST(test_waiter_sleeps)
{
    unsigned asleep = 0;
    recorder_lock(&lock);
    pthread_t waiter;
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_lock, NULL), 0);
    while (__atomic_load_n(&waiter_tid, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
    for (unsigned i = 0; i < 1000 && asleep < 20; i++) {
        asleep = state_of(waiter_tid) == 'S' ? asleep + 1 : 0;
        usleep(1000);
    }
    assert_int_equal(asleep, 20);
    recorder_unlock(&lock);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_int_equal(lock, 0);
}

TEST(test_soon_or_never)
{
    assert_true(recorder_lock_soon(&lock));
    assert_false(recorder_lock_soon(&lock));
    recorder_unlock(&lock);
    assert_true(recorder_lock_soon(&lock));
    recorder_unlock(&lock);
    assert_int_equal(lock, 0);
}

/* A thread was stopped while it took the number of the process. */
static void scenario_stopped_in_attach(struct session *session, void *context)
{
    const struct session_counts *counts = session->directory.counts;
    (void)context;
    CHECK(recorder_session() != NULL, "no session");
    struct recorder_process *process = recorder_process_page();
    recorder_lock(&process->lock);
    emit(VARVE_KIND_HEAP_ALLOC, 1, 10);
    emit(VARVE_KIND_HEAP_ALLOC, 1, 10);
    CHECK(recorder_process_current() == NULL, "attached");
    CHECK(counts->unattached == 2 && counts->unattached_bytes == 20 &&
              counts->unattached_by_kind[VARVE_KIND_HEAP_ALLOC] == 2,
          "%llu counted", (unsigned long long)counts->unattached);
    recorder_unlock(&process->lock);
    for (unsigned i = 0; i < 5000 && recorder_process_current() == NULL; i++) {
        usleep(1000);
        emit(VARVE_KIND_HEAP_ALLOC, 1, 10);
    }
    CHECK(recorder_process_current() != NULL, "never attached");
    CHECK(counts->process_count == 1, "%u numbers", counts->process_count);
}

static void *live_shortly(void *context)
{
    (void)context;
    late_end();
    emit(VARVE_KIND_HEAP_ALLOC, 1, 10);
    return NULL;
}

/* A thread was stopped while it wrote into the ring that all late events share. */
static void scenario_stopped_in_late_ring(struct session *session, void *context)
{
    (void)session, (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 10);
    late_key_make();
    struct recorder_process *process = recorder_process_current();
    recorder_lock(&process->late_lock);
    run_threads(1, live_shortly, 0, 0);
    CHECK(__atomic_load_n(&process->control->unattached, __ATOMIC_ACQUIRE) > 0, "nothing was late");
    recorder_unlock(&process->late_lock);
    usleep(50000); /* it is tried again after a few ms */
    verdict->figures[0] = __atomic_load_n(&process->control->unattached, __ATOMIC_ACQUIRE);
    run_threads(1, live_shortly, 0, 0);
    CHECK(process->control->unattached == verdict->figures[0], "lost with a free lock");
}

TEST(test_stopped_inside)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_stopped_in_attach, NULL, "attach");
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_stopped_in_late_ring, NULL, "late ring");
}
