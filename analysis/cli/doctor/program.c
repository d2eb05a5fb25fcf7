/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, what may not answer: programs (a session daemon that hangs) and code of others in this
 * address space (a GPU driver that crashes when it starts). Both run as a process of their own, which is
 * ended when it has been silent for too long.
 */
#include "analysis/cli/doctor/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Its own process group, so that what it starts ends with it. 0 or an errno. */
static int start_program(const char *const *argv, int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int reason;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    reason = posix_spawnp(pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}

/* What comes until the other end is closed; false if nothing comes for `limit_ms`. */
static bool read_all(int input, int limit_ms, char *text, size_t bytes)
{
    int64_t end_ms = now_ms() + limit_ms;
    size_t used = 0;
    bool has_ended = false;

    while (!has_ended && used + 1 < bytes) {
        struct pollfd ready = {.fd = input, .events = POLLIN};
        int64_t left_ms = end_ms - now_ms();
        ssize_t got;

        if (left_ms <= 0 || (poll(&ready, 1, (int)left_ms) <= 0 && errno != EINTR)) {
            break;
        }
        got = ready.revents != 0 ? read(input, text + used, bytes - used - 1) : 0;
        has_ended = ready.revents != 0 && got <= 0;
        used += got > 0 ? (size_t)got : 0;
        end_ms = got > 0 ? now_ms() + limit_ms : end_ms;
    }
    text[used] = '\0';
    return has_ended || used + 1 >= bytes;
}

/* One that hangs within the kernel does not end even by SIGKILL: it is left alone then. */
static int end_group(pid_t pid)
{
    int status = 0;

    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* a child that is not yet the leader of its group */
    for (int round = 0; round < 100 && waitpid(pid, &status, WNOHANG) == 0; round++) {
        poll(NULL, 0, 10);
    }
    return status;
}

/* Reads what process group `pid` says, and sees to its end. */
static enum program_answer listen_to(pid_t pid, int input, int limit_ms, char *text, size_t bytes,
                                     int *status_out)
{
    int status = 0;

    if (!read_all(input, limit_ms, text, bytes)) {
        *status_out = end_group(pid);
        return PROGRAM_LATE;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *status_out = status;
    return status == 0 ? PROGRAM_ANSWERED : PROGRAM_FAILED;
}

enum program_answer program_run(const char *const *argv, int limit_ms, char *text, size_t bytes)
{
    enum program_answer answer = PROGRAM_FAILED;
    int ends[2];
    int status;
    pid_t pid;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return answer;
    }
    if (start_program(argv, ends[1], &pid) == 0) {
        close(ends[1]);
        ends[1] = -1;
        answer = listen_to(pid, ends[0], limit_ms, text, bytes, &status);
    }
    close(ends[0]);
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    return answer;
}

/* Nothing of what it does shows here: no word of a library on our output, no core file. */
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

enum program_answer child_run(void (*work)(int output), int limit_ms, char *text, size_t bytes,
                              int *status_out)
{
    enum program_answer answer = PROGRAM_FAILED;
    int ends[2];
    pid_t pid;

    text[0] = '\0';
    *status_out = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return answer;
    }
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        become_child();
        work(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (pid > 0) {
        answer = listen_to(pid, ends[0], limit_ms, text, bytes, status_out);
    }
    close(ends[0]);
    return answer;
}
