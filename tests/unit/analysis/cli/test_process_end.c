/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of the process, in forked children: as a program that ended by a status or a signal, whatever this process has
 * done with its signals; and without memory, before and after the work is done.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "analysis/cli/process_end.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a child ends by `end`, and what it writes to both of its outputs. */
static int status_of_end(void (*end)(int), int wait_status, char *output, size_t bytes)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGTERM);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        signal(SIGPIPE, SIG_IGN);
        printf("buffered text\n");
        end(wait_status);
        _exit(98);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], output + used, bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    output[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(test_process_end_like)
{
    static const int statuses[] = {0, 37 << 8, SIGSEGV, SIGKILL, SIGPIPE, SIGTERM, SIGSEGV | 0x80};
    char output[1000];
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        assert_int_equal(status_of_end(process_end_like, statuses[i], output, sizeof(output)), statuses[i] & ~0x80);
        assert_string_equal(output, "buffered text\n");
    }
}

static void lack_memory(int wait_status)
{
    (void)wait_status;
    process_end_without_memory();
    memory_exhausted();
}

static void lack_memory_afterwards(int wait_status)
{
    process_end_without_memory();
    process_work_is_done(wait_status);
    memory_exhausted();
}

TEST(test_no_memory)
{
    char output[1000];
    assert_int_equal(status_of_end(lack_memory, 0, output, sizeof(output)), EXIT_STATUS_FAILED << 8);
    assert_string_equal(output, "varve: out of memory\n"); /* and no half of an answer */
    assert_int_equal(status_of_end(lack_memory_afterwards, SIGKILL, output, sizeof(output)), SIGKILL);
    assert_int_equal(strncmp(output, "varve: out of memory\n", strlen("varve: out of memory\n")), 0);
}
