/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A scenario under ptrace: the test steps the recording child instruction by instruction between two marks
 * and lets a signal come exactly where it wants, also SIGKILL. What a timer would hit once in a million times
 * is hit in every run.
 */
#ifndef VARVE_TESTS_SUPPORT_STEP_H
#define VARVE_TESTS_SUPPORT_STEP_H

#include "support/recorder.h"

#include <sched.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* Called before each step with the number of steps done: the signal to send now, or 0. */
typedef int (*step_choice)(void *context, uint64_t step);

struct stepping {
    step_choice choose;
    void *context;
    bool step_handlers;  /* else a handler runs at full speed until it calls step_handler_done */
    bool was_in_handler; /* at the last stop */
    uint64_t steps, sent;
};

/* Atomic: the stepped code runs now. Cleared in fork children, which nobody traces. */
static uint32_t step_is_traced;
/* The stepped code is over: a handler that forks now would leave a child that is about to stop itself. */
static bool step_is_ending;

static inline void step_mark(int number)
{
    if (__atomic_load_n(&step_is_traced, __ATOMIC_RELAXED) != 0) {
        syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), number);
    }
}

/* In the scenario, around the code to step through. */
static inline void step_begin(void)
{
    __atomic_store_n(&step_is_traced, 1, __ATOMIC_RELAXED);
    step_mark(SIGSTOP);
}

static inline void step_end(void)
{
    step_is_ending = true;
    step_mark(SIGSTOP);
    __atomic_store_n(&step_is_traced, 0, __ATOMIC_RELAXED);
}

/* The last thing that a handler does. */
static inline void step_handler_done(void)
{
    step_mark(SIGURG);
}

static inline void step_handle(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    CHECK(sigaction(number, &action, NULL) == 0, "sigaction");
}

/* True in a handler for `number`: sent now, it would come again and again before the next instruction. Where
 * the recorder blocks all signals it may be sent: it comes when that ends. */
static inline bool step_is_in_handler(pid_t child, int number)
{
    uint64_t blocked = 0;
    ptrace(PTRACE_GETSIGMASK, child, (void *)sizeof(blocked), &blocked);
    return (blocked >> (number - 1) & 1) != 0 && (blocked >> (SIGTERM - 1) & 1) == 0;
}

/* How the stepped child goes on after a stop for `number`. */
static inline void step_resume(struct stepping *stepping, pid_t child, int number)
{
    int send = number == SIGTRAP ? stepping->choose(stepping->context, stepping->steps) : 0;
    if (send != 0 && send != SIGKILL) {
        bool is_in_handler = step_is_in_handler(child, send);
        send = is_in_handler || stepping->was_in_handler ? 0 : send; /* first the instruction that was interrupted */
        stepping->was_in_handler = is_in_handler;
    }
    stepping->steps += number == SIGTRAP ? 1 : 0;
    stepping->sent += send != 0 ? 1 : 0;
    if (send == SIGKILL) {
        kill(child, SIGKILL);
    } else if (number != SIGTRAP && number != SIGURG && number != SIGSTOP) {
        ptrace(PTRACE_CONT, child, NULL, (long)number); /* a crash, or the alarm */
    } else {
        ptrace(send != 0 && !stepping->step_handlers ? PTRACE_CONT : PTRACE_SINGLESTEP, child, NULL, (long)send);
    }
}

/* Until the child has ended; its wait status. */
static inline int step_child(struct stepping *stepping, pid_t child)
{
    unsigned marks = 0;
    int wait_status = 0;
    while (waitpid(child, &wait_status, 0) == child && WIFSTOPPED(wait_status)) {
        int number = WSTOPSIG(wait_status);
        marks += number == SIGSTOP ? 1 : 0;
        if (marks == 2) {
            marks++;
            ptrace(PTRACE_DETACH, child, NULL, 0L);
        } else {
            step_resume(stepping, child, number);
        }
    }
    return wait_status;
}

/* Run a scenario, stepping what lies between its marks. Returns the wait status; skips without ptrace. */
static inline int step_scenario(struct session *session, scenario run, void *context, struct stepping *stepping)
{
    cpu_set_t all, here;
    sched_getaffinity(0, sizeof(all), &all); /* on one CPU a step takes a fraction of the time */
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    sched_setaffinity(0, sizeof(here), &here);
    verdict_open();
    stepping->steps = stepping->sent = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(77);
        }
        recorder_begin(session);
        run(session, context);
        exit(0);
    }
    int wait_status = step_child(stepping, child);
    sched_setaffinity(0, sizeof(all), &all);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 77) {
        session_end(session);
        skip("ptrace is not allowed here");
    }
    return wait_status;
}

#endif
