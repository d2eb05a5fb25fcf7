/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that executes a program waits, with a lock which PTRACE_SEIZE asks for too, until all other threads of its
 * process have ended, and a traced one has ended only when its tracer has been told. So that call is interrupted after
 * a moment, and whatever else is known of traced threads is taken: one that comes to its stop late is not held, one
 * that has ended keeps nobody waiting.
 */
#include "trace/collector/programs/thread_look.h"

#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collector/programs/attach_registers.h"
#include "trace/format/session_format.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP_NS 50000L
#define SEIZE_US 5000

/* ---- what is told of traced threads ---- */

bool stop_go_on(int32_t tid, int number)
{
    return ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)number) == 0;
}

void stop_let_go(int32_t tid)
{
    ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

static enum stop stop_of(int status, int *signal_out)
{
    if (!WIFSTOPPED(status)) {
        return STOP_GONE;
    }
    *signal_out = WSTOPSIG(status);
    if (status >> 16 != PTRACE_EVENT_STOP) {
        return STOP_SIGNAL;
    }
    return *signal_out == SIGTRAP ? STOP_ASKED : STOP_WHOLE;
}

static void take_late(int32_t tid, int status)
{
    int number = 0;
    const enum stop stop = stop_of(status, &number);
    if (stop == STOP_ASKED) {
        registers_repeat(tid);
    }
    if (stop != STOP_GONE) {
        ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)(stop == STOP_SIGNAL ? number : 0));
    }
}

void stop_late(void)
{
    pid_t got;
    int status;
    while ((got = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
        take_late(got, status);
    }
}

enum stop stop_await(int32_t tid, uint64_t limit_ns, int *signal_out)
{
    const uint64_t end_ns = monotonic_ns() + limit_ns;
    int status;
    do {
        const pid_t got = waitpid(-1, &status, __WALL | WNOHANG);
        if (got == tid) {
            return stop_of(status, signal_out);
        }
        if (got > 0) {
            take_late(got, status);
        } else if (got < 0 && errno != EINTR) {
            return STOP_GONE;
        } else {
            monotonic_nap(STEP_NS);
        }
    } while (monotonic_ns() < end_ns);
    return STOP_NONE;
}

enum stop stop_thread(int32_t tid)
{
    enum stop stop = STOP_SIGNAL;
    int number = 0;
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0) {
        return STOP_GONE;
    }
    while (stop == STOP_SIGNAL) {
        stop = stop_await(tid, STOP_NS, &number);
        if (stop == STOP_SIGNAL && !stop_go_on(tid, number)) {
            stop = STOP_GONE;
        }
    }
    return stop;
}

/* ---- taking ---- */

static sigjmp_buf out_of_seize;

static void leave_seize(int number)
{
    (void)number;
    siglongjmp(out_of_seize, 1);
}

static void alarm_set(void (*handler)(int), long us)
{
    struct sigaction action = {.sa_handler = handler};
    const struct itimerval time = {{0, us}, {0, us}}; /* again, should the first come too early */
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &time, NULL);
}

/* PTRACE_SEIZE. The kernel would begin it again after every signal: the handler leaves it. -1: in vain, see errno, of
 * which EINTR says that it may have come true at the last moment. */
static int seize_in_time(int32_t tid)
{
    sigset_t only_alarm;
    sigemptyset(&only_alarm);
    sigaddset(&only_alarm, SIGALRM);
    volatile int result = -1;
    volatile int error = EINTR;
    if (sigsetjmp(out_of_seize, 1) == 0) {
        alarm_set(leave_seize, SEIZE_US);
        sigprocmask(SIG_UNBLOCK, &only_alarm, NULL);
        result = (int)ptrace(PTRACE_SEIZE, tid, NULL, NULL);
        error = errno;
        sigprocmask(SIG_BLOCK, &only_alarm, NULL);
    }
    alarm_set(SIG_IGN, 0); /* one that is pending goes with this */
    errno = error;
    return result;
}

/* What /proc says of the thread: who traces it, and does it live? */
static bool lives(int32_t tid, int32_t *tracer_out)
{
    char status[4096];
    const size_t length = proc_file_read(tid, "status", status, sizeof(status));
    const char state = proc_file_state(status);
    *tracer_out = (int32_t)session_status_number(status, "TracerPid:");
    return length > 0 && state != 'Z' && state != 'X';
}

enum stop_taken stop_take(int32_t tid, int32_t *tracer_out)
{
    for (unsigned i = 0; i < 2; i++) { /* a tracer may have let go of it just now */
        if (seize_in_time(tid) == 0) {
            return STOP_TAKEN;
        }
        const int error = errno;
        const bool is_alive = lives(tid, tracer_out);
        if (is_alive && *tracer_out == getpid()) {
            return STOP_TAKEN; /* it did not stop in time the last time */
        }
        if (error == EINTR || !is_alive || error != EPERM) {
            stop_late();
            return STOP_TAKEN_NOT;
        }
        if (*tracer_out != 0) {
            return STOP_TAKEN_BY_ANOTHER;
        }
    }
    return STOP_TAKEN_FORBIDDEN;
}
