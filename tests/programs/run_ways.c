/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way to run a program, from a process that has allocated nothing itself:
 *
 *   run_ways WAY PROGRAM [ARGUMENTS]   waits for it; the way says how it is run
 *   run_ways sleep MILLISECONDS
 */
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <fcntl.h>
#include <unistd.h>

static void exec_as(const char *way, char **argv)
{
    if (strcmp(way, "execv") == 0 || strcmp(way, "vfork") == 0) {
        execv(argv[0], argv);
    } else if (strcmp(way, "execve") == 0) {
        execve(argv[0], argv, environ);
    } else if (strcmp(way, "execvp") == 0) {
        execvp(argv[0], argv);
    } else if (strcmp(way, "execvpe") == 0) {
        execvpe(argv[0], argv, environ);
    } else if (strcmp(way, "execl") == 0) {
        execl(argv[0], argv[0], (char *)NULL);
    } else if (strcmp(way, "execlp") == 0) {
        execlp(argv[0], argv[0], (char *)NULL);
    } else if (strcmp(way, "execle") == 0) {
        execle(argv[0], argv[0], (char *)NULL, environ);
    } else if (strcmp(way, "fexecve") == 0) {
        fexecve(open(argv[0], O_RDONLY | O_CLOEXEC), argv, environ);
    } else if (strcmp(way, "execveat") == 0) {
        execveat(open(argv[0], O_RDONLY | O_CLOEXEC), "", argv, environ, AT_EMPTY_PATH);
    } else if (strcmp(way, "execveat_folder") == 0) { /* that it is in */
        const char *slash = strrchr(argv[0], '/');
        char *folder = strndup(argv[0], (size_t)(slash - argv[0]));
        execveat(open(folder, O_PATH | O_CLOEXEC), slash + 1, argv, environ, 0);
    } else if (strcmp(way, "syscall") == 0) {
        syscall(SYS_execve, argv[0], argv, environ);
    }
    _exit(127);
}

static void *exec_in_thread(void *argv)
{
    exec_as("execve", argv);
    return NULL;
}

/* By a thread with the smallest stack that there is. */
static void exec_on_small_stack(char **argv)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attributes, exec_in_thread, argv) == 0) {
        pthread_join(thread, NULL);
    }
    _exit(127);
}

static int wait_for(pid_t child)
{
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static int run_by_library(const char *way, char **argv)
{
    pid_t child = -1;
    int status = -1;
    if (strcmp(way, "posix_spawn") == 0) {
        return posix_spawn(&child, argv[0], NULL, NULL, argv, environ) == 0 ? wait_for(child) : 98;
    }
    if (strcmp(way, "posix_spawnp") == 0) {
        return posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) == 0 ? wait_for(child) : 98;
    }
    if (strcmp(way, "system") == 0) {
        status = system(argv[0]);
    } else if (strcmp(way, "popen") == 0) {
        FILE *stream = popen(argv[0], "w");
        status = stream != NULL ? pclose(stream) : -1;
    } else {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        return 95;
    }
    if (strcmp(argv[1], "sleep") == 0) {
        long milliseconds = strtol(argv[2], NULL, 10);
        struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        nanosleep(&time, NULL);
        _exit(0);
    }
    int status = run_by_library(argv[1], argv + 2);
    if (status < 0) {
        pid_t child = strcmp(argv[1], "vfork") == 0 ? vfork() : fork();
        if (child == 0 && strcmp(argv[1], "small_stack") == 0) {
            exec_on_small_stack(argv + 2);
        } else if (child == 0) {
            exec_as(argv[1], argv + 2);
        }
        status = wait_for(child);
    }
    _exit(status);
}
