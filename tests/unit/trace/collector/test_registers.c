/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sleep that a stop has interrupted goes on after a handler has run in its place: stopped for the first time, stopped
 * again, and stopped when the kernel had already set it to restart_syscall.
 * Costs: 1 s
 */
#include <stdbool.h>
#include <cmocka.h>

#include "trace/collector/programs/attach_registers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__

static volatile sig_atomic_t has_ended;

static void end_sleep(int number)
{
    has_ended = number == SIGUSR2;
}

/* Exit status 0: the sleep lasted until SIGUSR2. */
static pid_t begin_sleeper(void)
{
    const pid_t child = fork();
    if (child == 0) {
        const struct timespec time = {100, 0};
        signal(SIGUSR1, end_sleep);
        signal(SIGUSR2, end_sleep);
        nanosleep(&time, NULL);
        _exit(!has_ended);
    }
    assert_true(child > 0);
    return child;
}

static void await_sleep(pid_t child)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/syscall", child);
    for (int number = -1; number != SYS_clock_nanosleep && number != SYS_restart_syscall; usleep(1000)) {
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        if (fscanf(file, "%d", &number) != 1) {
            number = -1; /* it runs */
        }
        fclose(file);
    }
}

static int await_stop(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    return WSTOPSIG(status);
}

static void stop(pid_t child)
{
    await_sleep(child);
    assert_return_code(ptrace(PTRACE_INTERRUPT, child, NULL, NULL), 0);
    await_stop(child);
}

/* Stopped behind the kernel's return from the handler, which makes it forget how much of the sleep was left. */
static void run_handler(pid_t child)
{
    struct user_regs_struct general = {0};
    intptr_t number = 0;
    kill(child, SIGUSR1);
    do {
        assert_return_code(ptrace(PTRACE_SYSCALL, child, NULL, (void *)number), 0);
        number = await_stop(child);
        number = number == SIGUSR1 ? SIGUSR1 : 0;
        assert_return_code(ptrace(PTRACE_GETREGS, child, NULL, &general), 0);
    } while (general.orig_rax != SYS_rt_sigreturn);
    assert_return_code(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
    await_stop(child);
}

/* What the kernel does on the way back from a stop in a sleep. */
static void set_to_restart(pid_t child)
{
    struct user_regs_struct general;
    assert_return_code(ptrace(PTRACE_GETREGS, child, NULL, &general), 0);
    general.rax = SYS_restart_syscall;
    general.rip -= 2;
    general.orig_rax = UINT64_MAX;
    assert_return_code(ptrace(PTRACE_SETREGS, child, NULL, &general), 0);
}

static void goes_on_sleeping(unsigned stops, bool is_set)
{
    static struct registers saved;
    const pid_t child = begin_sleeper();
    await_sleep(child);
    assert_return_code(ptrace(PTRACE_SEIZE, child, NULL, NULL), 0);
    stop(child);
    for (unsigned i = 1; i < stops; i++) {
        assert_return_code(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
        stop(child);
    }
    if (is_set) {
        set_to_restart(child);
    }
    assert_true(registers_read(child, &saved));
    run_handler(child);
    registers_repeat_anew(child, &saved);
    assert_true(registers_write(child, &saved));
    assert_return_code(ptrace(PTRACE_DETACH, child, NULL, NULL), 0);
    usleep(20000);
    kill(child, SIGUSR2);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(stopped_once)
{
    goes_on_sleeping(1, false);
}

TEST(stopped_again)
{
    goes_on_sleeping(3, false);
}

TEST(stopped_before_it_sleeps_again)
{
    goes_on_sleeping(1, true);
    goes_on_sleeping(3, true);
}

#else

TEST(sleeps)
{
    skip("x86-64 only");
}

#endif

TEST_FILE(NULL, NULL)
