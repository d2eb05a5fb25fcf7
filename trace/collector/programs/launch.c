/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program under record: starts it, passes signals on, collects its end. The program keeps the signal mask
 * and the dispositions that varve was started with, gets SIGTERM and similar signals as if they had been sent to it,
 * and varve ends exactly as the program did. Signals to the collector arrive through a signalfd, never
 * through a handler. Called by the collector's loop.
 *
 * After launch_start, in this process: SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT are blocked and read from
 * launch.signal_fd; SIGPIPE and SIGXFSZ are ignored, so that a closed terminal or a file size limit is an
 * error of write() and not the end of the recording.
 */
#include "trace/collector/programs/launch.h"

#include "base/error.h"
#include "base/file_error.h"
#include "base/program.h"
#include "trace/collector/programs/preload_link.h"
#include "trace/format/session_format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCH_EXIT_STATUS_EXEC 127 /* of a child that could not exec; nobody sees it: the error comes back by pipe */

struct launch_signals {
    sigset_t mask;
    struct sigaction on_child, on_pipe, on_file_size;
};

static void signals_give_back(const struct launch_signals *saved)
{
    sigaction(SIGCHLD, &saved->on_child, NULL);
    sigaction(SIGPIPE, &saved->on_pipe, NULL);
    sigaction(SIGXFSZ, &saved->on_file_size, NULL);
    sigprocmask(SIG_SETMASK, &saved->mask, NULL);
}

/* From here on they arrive at launch->signal_fd. Calls with constant, valid arguments can't fail. */
static int launch_listen(struct launch *launch, struct launch_signals *saved, struct varve_message *message)
{
    sigset_t collected;
    sigemptyset(&collected);
    sigaddset(&collected, SIGCHLD);
    sigaddset(&collected, SIGINT);
    sigaddset(&collected, SIGTERM);
    sigaddset(&collected, SIGHUP);
    sigaddset(&collected, SIGQUIT);
    sigprocmask(SIG_BLOCK, &collected, &saved->mask);
    /* Where SIGCHLD is ignored (some service managers start us so) children would vanish unreaped. */
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, &saved->on_child);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &saved->on_pipe);
    sigaction(SIGXFSZ, &action, &saved->on_file_size);
    launch->signal_fd = signalfd(-1, &collected, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signal_fd < 0) {
        const int reason = errno;
        signals_give_back(saved);
        return varve_message_set(message, VARVE_ERROR_IO, "cannot receive signals: %s", strerror(reason));
    }
    return VARVE_OK;
}

struct launch_environment {
    char **entries; /* borrowed from environ and the caller, but for the two below */
    char *preload;
    char *session;
};

static void environment_free(struct launch_environment *environment)
{
    free(environment->entries);
    free(environment->preload);
    free(environment->session);
}

static int launch_environment_make(struct launch_environment *environment, const char *preload, const char *session,
                                   char *const *variables)
{
    memset(environment, 0, sizeof(*environment));
    const char *others = getenv("LD_PRELOAD");
    const char *separator = others && *others ? ":" : "";
    if (asprintf(&environment->preload, "LD_PRELOAD=%s%s%s", preload, separator, others ? others : "") < 0) {
        environment->preload = NULL;
    }
    if (asprintf(&environment->session, "%s=%s", SESSION_ENVIRONMENT, session) < 0) {
        environment->session = NULL;
    }
    if (environment->preload && environment->session) {
        const char *changes[RECORD_VARIABLES + 3] = {0};
        size_t count = 0;
        for (; count < RECORD_VARIABLES && variables[count]; count++) {
            changes[count] = variables[count];
        }
        changes[count] = environment->preload;
        changes[count + 1] = environment->session;
        environment->entries = program_environment(changes);
    }
    if (!environment->entries) {
        environment_free(environment);
        return VARVE_ERROR_NO_MEMORY;
    }
    return VARVE_OK;
}

static void __attribute__((noreturn)) launch_child_run(char *const argv[], const struct launch_environment *environment,
                                                       const struct launch_signals *signals, int error_fd)
{
    signals_give_back(signals);
    execvpe(argv[0], argv, environment->entries);
    int reason = errno;
    ssize_t written = write(error_fd, &reason, sizeof(reason));
    _exit(written == (ssize_t)sizeof(reason) ? LAUNCH_EXIT_STATUS_EXEC : LAUNCH_EXIT_STATUS_EXEC - 1);
}

static int exec_error(int reason, const char *program, struct varve_message *message)
{
    int error = file_error(reason);
    switch (reason) {
    case ENOEXEC:
    case ELIBBAD:
    case ELOOP:
        error = VARVE_ERROR_UNSUPPORTED;
        break;
    case E2BIG:
        error = VARVE_ERROR_INVALID;
        break;
    case ENOMEM:
    case EAGAIN:
        error = VARVE_ERROR_NO_MEMORY;
        break;
    default:
        break;
    }
    return varve_message_set(message, error, "cannot start '%s': %s", program, strerror(reason));
}

static void launch_wait_for(int32_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Fork, exec, and wait until the exec has happened or failed: then the write end of the pipe is closed. */
static int program_start(struct launch *launch, char *const argv[], const struct launch_environment *environment,
                         const struct launch_signals *signals, struct varve_message *message)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "cannot make a pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        launch_child_run(argv, environment, signals, ends[1]);
    }
    int reason = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return exec_error(reason, argv[0], message);
    }
    ssize_t got;
    do {
        got = read(ends[0], &reason, sizeof(reason));
    } while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == (ssize_t)sizeof(reason)) {
        launch_wait_for(pid);
        return exec_error(reason, argv[0], message);
    }
    launch->pid = pid;
    /* Old kernels and some sandboxes refuse it: then only SIGCHLD reports the end. */
    launch->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return VARVE_OK;
}

/* LD_PRELOAD and the program's own chdir ask for absolute paths. */
static int paths_resolve(const char *preload, const char *session_directory, char **preload_out, char **session_out,
                         struct varve_message *message)
{
    *session_out = realpath(session_directory, NULL);
    const int session_errno = errno;
    const int error = preload_link(preload, preload_out, message);
    if (error == VARVE_OK && *session_out == NULL) {
        return varve_message_set(message, session_errno == ENOMEM ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_NOT_FOUND,
                                 "'%s': %s", session_directory, strerror(session_errno));
    }
    return error;
}

static int start_with(struct launch *launch, char *const argv[], const char *preload, const char *session,
                      char *const *variables, struct varve_message *message)
{
    struct launch_environment environment;
    if (launch_environment_make(&environment, preload, session, variables)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the program's environment");
    }
    struct launch_signals signals;
    int error = launch_listen(launch, &signals, message);
    if (error == VARVE_OK && (error = program_start(launch, argv, &environment, &signals, message)) != VARVE_OK) {
        close(launch->signal_fd);
        launch->signal_fd = -1;
        signals_give_back(&signals);
    }
    environment_free(&environment);
    return error;
}

int launch_start(struct launch *launch, char *const argv[], const char *preload, const char *session_directory,
                 char *const *variables, struct varve_message *message)
{
    assert(argv[0]);
    memset(launch, 0, sizeof(*launch));
    launch->pid = -1;
    launch->pidfd = -1;
    launch->signal_fd = -1;
    char *preload_path;
    char *session_path;
    int error = paths_resolve(preload, session_directory, &preload_path, &session_path, message);
    if (!error) {
        error = start_with(launch, argv, preload_path, session_path, variables, message);
    }
    free(preload_path);
    free(session_path);
    return error;
}

int launch_attach(struct launch *launch, int32_t pid, struct varve_message *message)
{
    *launch = (struct launch){.pid = pid, .is_attached = true};
    struct launch_signals signals;
    launch->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return launch_listen(launch, &signals, message);
}

/* Old kernels give no descriptor. */
bool launch_attached_is_gone(const struct launch *launch)
{
    struct pollfd ready = {.fd = launch->pidfd, .events = POLLIN};
    return launch->pidfd >= 0 ? poll(&ready, 1, 0) > 0 : kill(launch->pid, 0) != 0 && errno == ESRCH;
}

static void signal_handle(struct launch *launch, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    if (number == SIGCHLD) {
        return; /* launch_poll reaps in any case: several ends may share one signal */
    }
    if (launch->has_ended) {
        launch->interrupts++;
        return;
    }
    if (launch->is_attached) {
        launch->has_ended = true;
        return;
    }
    /* What a key of the terminal caused went to the whole foreground group, the program included. */
    bool is_key = (number == SIGINT || number == SIGQUIT) && info->ssi_code == SI_KERNEL;
    if (!is_key) {
        kill(launch->pid, number); /* not reaped yet, so the pid is still its own */
    }
}

void launch_poll(struct launch *launch, launch_ended *ended, void *context)
{
    struct signalfd_siginfo infos[8];
    ssize_t got;
    while ((got = read(launch->signal_fd, infos, sizeof(infos))) > 0) {
        for (size_t i = 0; i < (size_t)got / sizeof(infos[0]); i++) {
            signal_handle(launch, &infos[i]);
        }
    }
    if (launch->is_attached) {
        if (!launch->has_ended && launch_attached_is_gone(launch)) {
            launch->has_ended = launch->is_gone = true;
        }
        return;
    }
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (pid == launch->pid && !launch->has_ended) {
            launch->has_ended = true;
            launch->wait_status = status;
            if (launch->pidfd >= 0) {
                close(launch->pidfd);
                launch->pidfd = -1;
            }
        }
        ended(context, pid, status, (uint64_t)usage.ru_maxrss * 1024);
    }
}

static void emit_to_nobody(void *context, int32_t pid, int wait_status, uint64_t peak_rss_bytes)
{
    (void)context;
    (void)pid;
    (void)wait_status;
    (void)peak_rss_bytes;
}

int launch_wait(struct launch *launch, int error)
{
    while (!launch->has_ended) {
        struct pollfd ready = {.fd = launch->signal_fd, .events = POLLIN};
        poll(&ready, 1, -1); /* an early return is harmless: the loop looks again */
        launch_poll(launch, emit_to_nobody, NULL);
    }
    return error;
}

/* ---- Ctrl-C while the database is written ---- */

static struct {
    char lines[2][4352];
    volatile sig_atomic_t count;
    void (*end)(void);
    struct sigaction before;
    bool is_on;
} interrupts; /* of the process, as signals are */

static void answer_interrupt(int number)
{
    int reason = errno;
    int at = interrupts.count < 1 || interrupts.end == NULL ? 0 : 1;
    const char *line = interrupts.lines[at];
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)number;
    (void)written; /* standard error is all there is */
    interrupts.count = 1;
    if (at == 1) {
        interrupts.end();
    }
    errno = reason;
}

void launch_finishing(struct launch *launch, const char *first, const char *second, void (*end)(void))
{
    launch_poll(launch, emit_to_nobody, NULL);
    snprintf(interrupts.lines[0], sizeof(interrupts.lines[0]), "%s\n", first);
    snprintf(interrupts.lines[1], sizeof(interrupts.lines[1]), "%s\n", second);
    interrupts.end = end;
    interrupts.count = 0;
    sigaction(SIGINT, NULL, &interrupts.before);
    if (interrupts.before.sa_handler == SIG_IGN) {
        return; /* as whoever started varve wants it */
    }
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = answer_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    interrupts.is_on = true;
}

void launch_finished(void)
{
    if (!interrupts.is_on) {
        return;
    }
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    pthread_sigmask(SIG_BLOCK, &only, NULL);
    sigaction(SIGINT, &interrupts.before, NULL);
    interrupts.is_on = false;
}
