/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends in the way that its argument names. Before that it takes a block of 7001 bytes, which an exit handler frees;
 * `embed [LIBRARY SOURCE]` runs and ends a Python that was loaded with it (LD_PRELOAD) or that it loads for itself, and
 * takes a block of 7002 bytes afterwards.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *block;

static void free_block(void)
{
    free(block);
}

static void *exit_with_3(void *unused)
{
    (void)unused;
    exit(3);
}

static void fork_and_return(void)
{
    pid_t child = fork();
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
}

static void *library; /* NULL: the program itself */

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s\n", name);
        _exit(77);
    }
    return found;
}

static void embed(const char *source)
{
    void (*initialize)(void), (*finalize)(void);
    int (*run)(const char *);
    *(void **)&initialize = find("Py_Initialize");
    *(void **)&run = find("PyRun_SimpleString");
    *(void **)&finalize = find("Py_Finalize");
    initialize();
    run(source);
    finalize();
    block = malloc(7002);
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "return";
    block = malloc(7001);
    atexit(free_block);
    pthread_t thread;
    if (strcmp(way, "exit") == 0) {
        exit(0);
    } else if (strcmp(way, "_exit") == 0) {
        _exit(0);
    } else if (strcmp(way, "thread") == 0) {
        pthread_create(&thread, NULL, exit_with_3, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(way, "fork") == 0) {
        fork_and_return();
    } else if (strcmp(way, "quick_exit") == 0) {
        quick_exit(0);
    } else if (strcmp(way, "syscall") == 0) {
        syscall(SYS_exit_group, 0);
    } else if (strcmp(way, "daemon") == 0 && daemon(1, 1) != 0) {
        return 4;
    } else if (strcmp(way, "abort") == 0) {
        abort();
    } else if (strcmp(way, "embed") == 0) {
        library = count > 2 ? dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
        embed(count > 3 ? arguments[3] : "");
    }
    return 0;
}
