/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/collector/programs/launch.c: signals, dispositions, environment, daemons and how the program ended. Each case
 * that starts a program does so in a forked child (isolate), because launch_start changes the signals of its process
 * for good; its exit status is the program's, or 128 and the signal. The programs are lines for /bin/sh; what they
 * print comes back through a pipe.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "trace/collector/programs/launch.h"
#include "trace/collector/programs/preload_link.h"
#include "base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct reaped {
    unsigned count;
    int32_t pids[16];
    int statuses[16];
};

struct outcome {
    int status;        /* of the isolated process, as of waitpid */
    char output[8192]; /* what the program and the case printed */
};

static char folder[] = "/tmp/varve-launch-XXXXXX";
static char preload[4096]; /* any library that is loaded already */

static void take_reaped(void *context, int32_t pid, int wait_status, uint64_t peak_rss_bytes)
{
    (void)peak_rss_bytes;
    struct reaped *reaped = context;
    if (reaped->count < 16) {
        reaped->pids[reaped->count] = pid;
        reaped->statuses[reaped->count] = wait_status;
    }
    reaped->count++;
}

/* Runs in the isolated process, where no cmocka assertion may be used: a failure ends it with status 99. */
static void require(bool holds, const char *what)
{
    if (!holds) {
        dprintf(STDOUT_FILENO, "failed: %s\n", what);
        _exit(99);
    }
}

static void isolate(void (*body)(void), struct outcome *outcome)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        setpgid(0, 0);
        body();
        _exit(98);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], outcome->output + used, sizeof(outcome->output) - 1 - used)) > 0) {
        used += (size_t)got;
    }
    outcome->output[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &outcome->status, 0), pid);
}

static char *no_variables[] = {NULL};
static char **variables = no_variables;

static void start(struct launch *launch, char *const argv[], const char *session)
{
    struct varve_message message = {""};
    int error = launch_start(launch, argv, preload, session, variables, &message);
    require(error == VARVE_OK, message.text);
    require(launch->pid > 0 && !launch->has_ended && launch->signal_fd >= 0, "launch is filled in");
}

static void start_shell(struct launch *launch, const char *line)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s", line);
    char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, text, NULL};
    start(launch, argv, folder);
}

static void launch_end_as(const struct launch *launch)
{
    int status = launch->wait_status;
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void end_like(struct launch *launch)
{
    struct reaped reaped = {0};
    for (unsigned i = 0; i < 2000 && !launch->has_ended; i++) {
        struct pollfd ready = {launch->signal_fd, POLLIN, 0};
        poll(&ready, 1, 10);
        launch_poll(launch, take_reaped, &reaped);
    }
    require(launch->has_ended, "the program ends within 20 s");
    require(reaped.count == 1 && reaped.pids[0] == launch->pid, "the end is reported once");
    require(reaped.statuses[0] == launch->wait_status, "with its status");
    launch_end_as(launch);
}

static void run_like(const char *line)
{
    struct launch launch;
    start_shell(&launch, line);
    end_like(&launch);
}

/* What it prints, and how it ends. */
static void expect_outcome(void (*body)(void), const char *output, int status)
{
    struct outcome outcome = {0};
    isolate(body, &outcome);
    if (outcome.status != status || strcmp(outcome.output, output) != 0) {
        fail_msg("status %#x instead of %#x, '%s' instead of '%s'", (unsigned)outcome.status, (unsigned)status,
                 outcome.output, output);
    }
}

/* ---- the end of the program is ours ---- */

static const char *line_of_case; /* a body takes no argument */

static void body_line(void)
{
    run_like(line_of_case);
}

/* SIGPIPE is ignored and SIGTERM blocked in this process after launch_start: the program dies by them all the same. */
TEST(test_end_of_program)
{
    static const struct {
        const char *line;
        int status;
    } cases[] = {{"exit 0", 0},
                 {"exit 37", 37 << 8},
                 {"kill -SEGV $$", (128 + SIGSEGV) << 8},
                 {"kill -KILL $$", (128 + SIGKILL) << 8},
                 {"kill -PIPE $$", (128 + SIGPIPE) << 8},
                 {"kill -TERM $$", (128 + SIGTERM) << 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        line_of_case = cases[i].line;
        expect_outcome(body_line, "", cases[i].status);
    }
}

/* ---- environment ---- */

static void body_environment_clean(void)
{
    unsetenv("LD_PRELOAD");
    setenv("VARVE_SESSION", "/stale", 1);
    run_like("echo \"$LD_PRELOAD|$VARVE_SESSION\"; env | grep -c VARVE_SESSION");
}

static void body_environment_prepended(void)
{
    setenv("LD_PRELOAD", "libdl.so.2:libpthread.so.0", 1);
    run_like("echo \"$LD_PRELOAD\"; env | grep -c LD_PRELOAD");
}

static void body_environment_relative(void)
{
    require(chdir("/tmp") == 0, "chdir");
    struct launch launch;
    char shell[] = "/bin/sh", option[] = "-c", line[] = "cd /; echo \"$VARVE_SESSION\"";
    char *argv[] = {shell, option, line, NULL};
    start(&launch, argv, strrchr(folder, '/') + 1);
    end_like(&launch);
}

static void body_environment_replaced(void)
{
    char first[] = "PYTHONPATH=/ours:/theirs", second[] = "VARVE_TORCH=observe";
    char *items[] = {first, second, NULL};
    setenv("PYTHONPATH", "/theirs", 1);
    setenv("PYTHONPATHS", "another", 1);
    variables = items;
    run_like("echo \"$PYTHONPATH|$VARVE_TORCH|$PYTHONPATHS\"; env | grep -c ^PYTHONPATH=");
}

TEST(test_environment)
{
    char expected[8192];
    snprintf(expected, sizeof(expected), "%s|%s\n1\n", preload, folder);
    expect_outcome(body_environment_clean, expected, 0);
    snprintf(expected, sizeof(expected), "%s:libdl.so.2:libpthread.so.0\n1\n", preload);
    expect_outcome(body_environment_prepended, expected, 0);
    snprintf(expected, sizeof(expected), "%s\n", folder);
    expect_outcome(body_environment_relative, expected, 0);
    expect_outcome(body_environment_replaced, "/ours:/theirs|observe|another\n1\n", 0);
}

/* ---- mask and dispositions ---- */

/* Prints blocked and ignored sets, the kernel's masks with bit N-1 for signal N. No shell: dash resets
 * SIGCHLD. */
static void run_print_signals(void)
{
    struct launch launch;
    char grep[] = "grep", option[] = "-E", pattern[] = "^Sig(Blk|Ign)", file[] = "/proc/self/status";
    char *argv[] = {grep, option, pattern, file, NULL};
    start(&launch, argv, folder);
    end_like(&launch);
}

static void body_signals_unusual(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    run_print_signals();
}

/* These signals are blocked and ignored; of `others` nothing is said. */
static void expect_signals(void (*body)(void), uint64_t blocked, uint64_t ignored, uint64_t others)
{
    struct outcome outcome = {0};
    unsigned long long first = 0, second = 0;
    isolate(body, &outcome);
    assert_int_equal(outcome.status, 0);
    assert_int_equal(sscanf(outcome.output, "SigBlk: %llx SigIgn: %llx", &first, &second), 2);
    assert_int_equal(first, blocked);
    assert_int_equal(second & ~others, ignored);
}

TEST(test_signals_inherited)
{
    const uint64_t three = 1U << (SIGPIPE - 1) | 1U << (SIGCHLD - 1) | 1U << (SIGXFSZ - 1);
    expect_signals(run_print_signals, 0, 0, ~three);
    /* With SIGCHLD ignored the collector must still learn of the end: run_like did. */
    expect_signals(body_signals_unusual, 1U << (SIGTERM - 1) | 1U << (SIGUSR2 - 1), three, ~UINT64_C(0x7fffffff));
}

static void body_collector_signals(void)
{
    struct launch launch;
    start_shell(&launch, "exit 3");
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    require(sigismember(&blocked, SIGCHLD) && sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) &&
                sigismember(&blocked, SIGHUP) && sigismember(&blocked, SIGQUIT),
            "collected signals are blocked");
    struct sigaction action;
    require(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_IGN, "SIGPIPE is ignored");
    int is_subreaper = 0;
    require(prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper, 0, 0, 0) == 0 && is_subreaper == 0,
            "no subreaper: daemons would see it");
    end_like(&launch);
}

TEST(test_collector_signals)
{
    expect_outcome(body_collector_signals, "", 3 << 8);
}

/* ---- signals to the collector; while the program runs: tests/faults/test_launching.py ---- */

static void body_interrupts(void)
{
    struct launch launch;
    struct reaped reaped = {0};
    start_shell(&launch, "exit 5");
    require(launch_wait(&launch, VARVE_ERROR_FULL) == VARVE_ERROR_FULL && launch.has_ended, "waits, keeps the error");
    require(launch_wait(&launch, VARVE_OK) == VARVE_OK, "returns at once");
    require(launch.interrupts == 0, "none yet");
    for (unsigned i = 1; i <= 3; i++) {
        kill(getpid(), i == 3 ? SIGTERM : SIGINT);
        launch_poll(&launch, take_reaped, &reaped);
        require(launch.interrupts == i, "a signal after the end counts");
    }
    require(reaped.count == 0, "no second end");
    launch_end_as(&launch);
}

TEST(test_interrupts_after_end)
{
    expect_outcome(body_interrupts, "", 5 << 8);
}

/* ---- daemons ---- */

static void body_daemon(void)
{
    struct launch launch;
    struct reaped reaped = {0};
    int is_subreaper = -1;
    start_shell(&launch, "(sh -c 'sleep 0.3; exit 9' > /dev/null &) ; exit 6");
    require(prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper) == 0 && is_subreaper == 0, "daemons are adopted by others");
    launch_wait(&launch, VARVE_OK);
    require(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "the daemon is no child of ours");
    launch_poll(&launch, take_reaped, &reaped);
    require(reaped.count == 0 && WEXITSTATUS(launch.wait_status) == 6, "the program's status stays");
    launch_end_as(&launch);
}

TEST(test_daemon_left_alone)
{
    expect_outcome(body_daemon, "", 6 << 8);
}

/* ---- failures ---- */

static void refuse(char *program, const char *library, const char *session, int expected, const char *text)
{
    struct launch launch;
    struct varve_message message = {""};
    char *argv[] = {program, NULL};
    assert_int_equal(launch_start(&launch, argv, library, session, no_variables, &message), expected);
    if (!strstr(message.text, text)) {
        fail_msg("'%s' is not in '%s'", text, message.text);
    }
    assert_int_equal(launch.pid, -1);
    assert_int_equal(launch.signal_fd, -1);
    struct sigaction action;
    sigaction(SIGPIPE, NULL, &action);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_true(action.sa_handler == SIG_DFL && !sigismember(&mask, SIGTERM)); /* as it was */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);                          /* no child left behind */
    assert_int_equal(errno, ECHILD);
}

TEST(test_start_fails)
{
    setenv("PATH", "/bin:/usr/bin", 1); /* a folder that may not be searched would make it a matter of permission */
    char absent[] = "/nonexistent/program", named[] = "varve-no-such-program", shell[] = "/bin/sh";
    refuse(absent, preload, folder, VARVE_ERROR_NOT_FOUND, "'/nonexistent/program': No such file");
    refuse(named, preload, folder, VARVE_ERROR_NOT_FOUND, named);
    refuse(folder, preload, folder, VARVE_ERROR_PERMISSION, folder);
    refuse(shell, "/nonexistent/lib.so", folder, VARVE_ERROR_NOT_FOUND, "/nonexistent/lib.so");
    refuse(shell, preload, "/nonexistent/session", VARVE_ERROR_NOT_FOUND, "/nonexistent/session");
}

static char *link_of(const char *library)
{
    struct varve_message message = {""};
    char *name;
    assert_int_equal(preload_link(library, &name, &message), VARVE_OK);
    return name;
}

static void link_remove(char *name)
{
    assert_int_equal(unlink(name), 0);
    *strrchr(name, '/') = '\0';
    assert_int_equal(rmdir(name), 0);
    free(name);
}

/* A name that the loader does not split leads to the library; another file in its place has another one. */
TEST(test_spaces_in_path)
{
    char spaced[64], other[64], target[64] = "";
    snprintf(spaced, sizeof(spaced), "%s/a b:c.so", folder);
    snprintf(other, sizeof(other), "%s/other", folder);
    fclose(fopen(spaced, "w"));
    char *plain = link_of(preload), *first = link_of(spaced), *again = link_of(spaced);
    assert_null(strpbrk(first, " :"));
    assert_string_equal(first, again);
    assert_true(readlink(first, target, sizeof(target) - 1) > 0);
    assert_string_equal(target, spaced);
    fclose(fopen(other, "w"));
    assert_int_equal(rename(other, spaced), 0);
    char *anew = link_of(spaced);
    assert_string_not_equal(anew, first);
    assert_null(strstr(plain, "/tmp/varve-"));
    unlink(spaced);
    link_remove(first);
    link_remove(anew);
    free(again);
    free(plain);
}

static int make_folder(void **state)
{
    (void)state;
    Dl_info info;
    /* the C library itself, found through a function that no sanitizer intercepts */
    if (!mkdtemp(folder) || dladdr((void *)(uintptr_t)&gnu_get_libc_version, &info) == 0) {
        return -1;
    }
    char *resolved = realpath(info.dli_fname, NULL);
    snprintf(preload, sizeof(preload), "%s", resolved ? resolved : "");
    free(resolved);
    return preload[0] ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

TEST_FILE(make_folder, remove_folder)
