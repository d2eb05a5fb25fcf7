/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Other processes: this program again, started with the name of its part as the argument, since a fork child
 * could do nothing with a device. It has a pipe in and a pipe out.
 */
#ifndef VARVE_TESTS_SUPPORT_OTHER_PROCESS_H
#define VARVE_TESTS_SUPPORT_OTHER_PROCESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct other {
    pid_t pid;
    int to, from; /* its input and output */
};

static inline struct other other_start(const char *part)
{
    char *arguments[] = {(char *)"other", (char *)(uintptr_t)part, NULL};
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn_file_actions_addclose(&actions, to[1]);
    posix_spawn_file_actions_addclose(&actions, from[0]);
    struct other other;
    assert_int_equal(posix_spawn(&other.pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    other.to = to[1];
    other.from = from[0];
    return other;
}

static inline bool read_all(int fd, void *into, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)into + done, bytes - done);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static inline bool say(int fd, const void *what, size_t bytes)
{
    return write(fd, what, bytes) == (ssize_t)bytes;
}

/* Its exit status; what it still has to say goes to our output. */
static inline int other_end(struct other *other)
{
    int status = -1;
    close(other->to);
    char text[1000];
    ssize_t got;
    while ((got = read(other->from, text, sizeof(text))) > 0) {
        printf("%.*s", (int)got, text);
    }
    close(other->from);
    assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
