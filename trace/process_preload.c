/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that tell how a process image ends: exit handlers, _exit, exec. The collector sees a process
 * disappear in any case; with these notes it can say whether it ended, was killed, or became another program
 * that did not load the recorder. dlclose is here too: unloaded code may leave its addresses to other code.
 */
#include "trace/heap_hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

int dlclose(void *handle); /* dlfcn.h adds attributes that differ between C libraries */

static void leave(void)
{
    struct varve_record record = {0};

    if (hook_is_recording() && recorder_process_current() != NULL) {
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_PROCESS_EXIT, 0);
        varve_emit(&record);
        recorder_process_exited();
    }
}

/* Before main, with the program's libraries ready and usually no other thread. */
__attribute__((constructor)) static void load(void)
{
    if (hook_can_call() && hook_is_recording()) {
        recorder_mirror_open();
    }
}

__attribute__((destructor)) static void unload(void)
{
    leave();
}

HOOK __attribute__((noreturn)) void _exit(int status)
{
    if (hook_can_call() && hook_is_recording()) {
        recorder_process_exited();
    }
    heap_real._exit(status);
    __builtin_unreachable();
}

HOOK __attribute__((noreturn)) void _Exit(int status)
{
    _exit(status);
}

HOOK int dlclose(void *handle)
{
    int result;

    if (!hook_can_call() || heap_real.dlclose == NULL) {
        return -1;
    }
    heap_cxx_closing();
    if (hook_is_recording()) {
        python_stack_keep();
    }
    result = heap_real.dlclose(handle);
    heap_cxx_closed();
    if (hook_is_recording()) {
        callsite_modules_changed();
    }
    return result;
}

/* exec only returns when it failed. */
#define EXECUTE(path, call)                           \
    do {                                              \
        int result;                                   \
        if (hook_can_call() && hook_is_recording()) { \
            recorder_process_executing(path);         \
        }                                             \
        result = heap_real.call;                      \
        if (hook_is_recording()) {                    \
            int saved_errno = errno;                  \
            recorder_process_executing(NULL);         \
            errno = saved_errno;                      \
        }                                             \
        return result;                                \
    } while (0)

HOOK int execve(const char *path, char *const argv[], char *const envp[])
{
    EXECUTE(path, execve(path, argv, envp));
}

HOOK int execv(const char *path, char *const argv[])
{
    EXECUTE(path, execv(path, argv));
}

HOOK int execvp(const char *file, char *const argv[])
{
    EXECUTE(file, execvp(file, argv));
}

HOOK int execvpe(const char *file, char *const argv[], char *const envp[])
{
    EXECUTE(file, execvpe(file, argv, envp));
}

HOOK int fexecve(int fd, char *const argv[], char *const envp[])
{
    EXECUTE("a file descriptor", fexecve(fd, argv, envp));
}

/* The list of a variadic exec as an array: on the stack, because a vfork child may not allocate. */
#define COLLECT_ARGUMENTS(argv, first, list)                     \
    do {                                                         \
        size_t count = 1;                                        \
        va_list counted;                                         \
        va_copy(counted, list);                                  \
        while (va_arg(counted, char *) != NULL) {                \
            count++;                                             \
        }                                                        \
        va_end(counted);                                         \
        (argv) = __builtin_alloca((count + 1) * sizeof(char *)); \
        (argv)[0] = (char *)(uintptr_t)(first);                  \
        for (size_t i = 1; i <= count; i++) {                    \
            (argv)[i] = va_arg(list, char *);                    \
        }                                                        \
    } while (0)

HOOK int execl(const char *path, const char *argument, ...)
{
    char **argv;
    va_list list;

    va_start(list, argument);
    COLLECT_ARGUMENTS(argv, argument, list);
    va_end(list);
    return execv(path, argv);
}

HOOK int execlp(const char *file, const char *argument, ...)
{
    char **argv;
    va_list list;

    va_start(list, argument);
    COLLECT_ARGUMENTS(argv, argument, list);
    va_end(list);
    return execvp(file, argv);
}

HOOK int execle(const char *path, const char *argument, ...)
{
    char **argv;
    char *const *envp;
    va_list list;

    va_start(list, argument);
    COLLECT_ARGUMENTS(argv, argument, list);
    envp = va_arg(list, char *const *);
    va_end(list);
    return execve(path, argv, envp);
}
