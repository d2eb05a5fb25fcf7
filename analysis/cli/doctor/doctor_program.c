/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, what may not answer: programs (a session daemon that hangs) and code of others in this
 * address space (a GPU driver that crashes when it starts). Both run as a process of their own, which is
 * ended when it has been silent for too long.
 */
#include "analysis/cli/doctor/doctor_program.h"

#include "base/monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_PER_MS 1000000

/* What comes until the other end is closed; false if nothing comes for `limit_ms`. */
static bool doctor_program_read_all(int input, int limit_ms, char *text, size_t bytes, size_t *used_out)
{
    int64_t end_ms = (int64_t)monotonic_ns() / NS_PER_MS + limit_ms;
    size_t used = 0;
    bool has_ended = false;
    while (!has_ended && used + 1 < bytes) {
        struct pollfd ready = {.fd = input, .events = POLLIN};
        int64_t left_ms = end_ms - (int64_t)monotonic_ns() / NS_PER_MS;
        if (left_ms <= 0 || (poll(&ready, 1, (int)left_ms) <= 0 && errno != EINTR)) {
            break;
        }
        ssize_t got = ready.revents != 0 ? read(input, text + used, bytes - used - 1) : 0;
        has_ended = ready.revents != 0 && got <= 0;
        used += got > 0 ? (size_t)got : 0;
        end_ms = got > 0 ? (int64_t)monotonic_ns() / NS_PER_MS + limit_ms : end_ms;
    }
    text[used] = '\0';
    *used_out = used;
    return has_ended || used + 1 >= bytes;
}

/* One that hangs within the kernel does not end even by SIGKILL: it is left alone then. */
static int end_group(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* a child that is not yet the leader of its group */
    int status = 0;
    for (int round = 0; round < 100 && waitpid(pid, &status, WNOHANG) == 0; round++) {
        monotonic_nap(10 * NS_PER_MS);
    }
    return status;
}

/* Nothing of what it does shows here: no word of a library on our output, no core file. Its own process group, so that
 * what it starts ends with it. */
static void become_child(void)
{
    const struct rlimit none = {0, 0};
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &none);
    if (nowhere >= 0) {
        dup2(nowhere, STDIN_FILENO);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
}

struct child_end child_run(void (*work)(int output, const void *context), const void *context, int limit_ms, char *text,
                           size_t bytes)
{
    struct child_end end = {.answer = PROGRAM_FAILED};
    text[0] = '\0';
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return end;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        become_child();
        work(ends[1], context);
        _exit(0);
    }
    close(ends[1]);
    int status = 0;
    if (pid > 0 && !doctor_program_read_all(ends[0], limit_ms, text, bytes, &end.bytes)) {
        status = end_group(pid);
        end.answer = PROGRAM_LATE;
    } else if (pid > 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        end.answer = status == 0 ? PROGRAM_ANSWERED : PROGRAM_FAILED;
        end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    close(ends[0]);
    return end;
}

static void work_program(int output, const void *argv)
{
    char *const *arguments = argv;
    dup2(output, STDOUT_FILENO);
    execvp(arguments[0], arguments);
    _exit(127);
}

enum program_answer program_run(const char *const *argv, int limit_ms, char *text, size_t bytes)
{
    return child_run(work_program, argv, limit_ms, text, bytes).answer;
}
