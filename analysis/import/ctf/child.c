/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that runs babeltrace2, and the pipe from it. It is a copy of this one, so it must not run
 * anything but the graph, and must not outlive the one that it was made for. Called by reader.c.
 */
#include "analysis/import/ctf/ctf.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES (1024 * 1024)

/* What the parent catches ends a child; what is ignored stays so. */
static void signals_reset(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;

        sigaction(signals[i], NULL, &action);
        if (action.sa_handler != SIG_IGN || signals[i] == SIGPIPE) {
            action = (struct sigaction){.sa_handler = SIG_DFL};
            sigaction(signals[i], &action, NULL);
        }
    }
}

/* The log of babeltrace2 goes nowhere, unless its own variable asks for it; nor is a core file of its
 * assertions of use. */
static void child_prepare(pid_t parent)
{
    const struct rlimit none = {0, 0};
    const char *log_level = getenv("LIBBABELTRACE2_INIT_LOG_LEVEL");
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    signals_reset();
    setrlimit(RLIMIT_CORE, &none);
    if (nothing >= 0) {
        dup2(nothing, STDOUT_FILENO);
        if (log_level == NULL || log_level[0] == '\0') {
            dup2(nothing, STDERR_FILENO);
        }
    }
}

static void child_run(int descriptor, char *const *folders, size_t count) __attribute__((noreturn));

static void child_run(int descriptor, char *const *folders, size_t count)
{
    struct ctf_pipe_end *end = ctf_pipe_end_new(descriptor);

    if (ctf_graph_run(folders, count, ctf_pipe_put, end) == VARVE_OK) {
        (void)ctf_pipe_flush(end);
    }
    _exit(0);
}

int ctf_child_start(char *const *folders, size_t count, struct ctf_child *child,
                    struct varve_message *message)
{
    pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "no pipe can be made: %s", strerror(errno));
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* smaller is slower, no more */
    child->pid = fork();
    if (child->pid == 0) {
        close(ends[0]);
        child_prepare(parent);
        child_run(ends[1], folders, count);
    }
    close(ends[1]);
    child->descriptor = ends[0];
    if (child->pid < 0) {
        close(ends[0]);
        return varve_message_set(message, VARVE_ERROR_IO, "no process can be made: %s", strerror(errno));
    }
    return VARVE_OK;
}

int ctf_child_end(const struct ctf_child *child)
{
    int status = 0;

    close(child->descriptor);
    kill(child->pid, SIGKILL); /* whatever it still does, nobody listens */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}
