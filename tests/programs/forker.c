/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of every kind. Sizes are marks: 60001 in the parent before the fork, 60100 in a child (freed),
 * 60200 in a child (kept), 60300 in a daemon.
 *
 *   forker storm [N]      N children, some at a time; each frees the parent's block too; every other one ends by _exit
 *   forker threads [N]    four threads fork N children each while all of them allocate
 *   forker vfork          vfork and exec of /bin/true, vfork and _exit; the parent goes on recording
 *   forker daemon         double fork; the daemon allocates after the program has ended, and writes "daemon"
 *   forker signal         the child is killed by SIGKILL
 *
 * Prints {"children":N}.
 */
#include "workload.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define AT_A_TIME 16

static void child_work(void *of_parent)
{
    free(take_block(60100));
    free(of_parent);
    take_block(60200);
}

static pid_t fork_or_give_up(void)
{
    pid_t pid = fork();
    if (pid < 0) {
        give_up("cannot fork");
    }
    return pid;
}

static void reap(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        int status;
        while (waitpid(-1, &status, 0) < 0) {
            if (errno != EINTR) {
                give_up("a child is missing");
            }
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            give_up("a child failed");
        }
    }
}

static void run_storm(unsigned count)
{
    void *block = take_block(60001);
    unsigned running = 0;
    for (unsigned i = 0; i < count; i++) {
        if (running == AT_A_TIME) {
            reap(1);
            running--;
        }
        if (fork_or_give_up() == 0) {
            child_work(block);
            if (i % 2 == 0) {
                _exit(0);
            }
            exit(0);
        }
        running++;
    }
    reap(running);
    free(block);
}

static unsigned forks_per_thread;

static void *thread_work(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < forks_per_thread; i++) {
        for (unsigned k = 0; k < 200; k++) {
            free(take_block(100 + k));
        }
        pid_t pid = fork_or_give_up();
        if (pid == 0) {
            child_work(NULL);
            _exit(0);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status != 0) {
            give_up("a child failed");
        }
    }
    return NULL;
}

static void run_threads(unsigned count)
{
    forks_per_thread = count;
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        threads[i] = start_thread(thread_work, NULL);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void run_vfork(void)
{
    static char name[] = "/bin/true";
    static char *arguments[] = {name, NULL};
    int status;
    for (volatile int round = 0; round < 2; round++) {
        free(take_block(60001));
        pid_t pid = vfork();
        if (pid == 0 && round == 0) {
            execv(name, arguments);
            _exit(1);
        } else if (pid == 0) {
            _exit(3);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != (round == 0 ? 0 : 3)) {
            give_up("a vfork child failed");
        }
    }
    free(take_block(60001));
}

static void run_daemon(void)
{
    take_block(60001);
    if (fork_or_give_up() == 0) {
        setsid();
        if (fork_or_give_up() == 0) {
            usleep(300000);
            free(take_block(60300));
            say("daemon\n");
            exit(0);
        }
        _exit(0);
    }
    reap(1);
}

static void run_signal(void)
{
    pid_t pid = fork_or_give_up();
    if (pid == 0) {
        child_work(NULL);
        kill(getpid(), SIGKILL);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) {
        give_up("the child was not killed");
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned given = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0, count = 1;
    if (strcmp(mode, "storm") == 0) {
        run_storm(count = given ? given : 200);
    } else if (strcmp(mode, "threads") == 0) {
        run_threads(given ? given : 10);
        count = (given ? given : 10) * 4;
    } else if (strcmp(mode, "vfork") == 0) {
        run_vfork();
        count = given;
    } else if (strcmp(mode, "daemon") == 0) {
        run_daemon();
    } else if (strcmp(mode, "signal") == 0) {
        run_signal();
    } else {
        give_up("forker: unknown mode");
    }
    say("{\"children\":%u}\n", count);
    return 0;
}
