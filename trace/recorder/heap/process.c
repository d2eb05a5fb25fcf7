/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that note how a process image ends: exit handlers, _exit, exec. The collector sees a process
 * disappear in any case; with these notes it can say whether it ended, was killed, or became another
 * program. Programs that are about to run, here or in a new process, are noted if they can't be recorded
 * (recorder/exec_note.c). dlclose is here too: unloaded code may leave its addresses to other code.
 */
#include "trace/recorder/exec_note.h"
#include "trace/recorder/heap/hooks.h"
#include "trace/recorder/heap/main_end.h"
#include "trace/recorder/heap/operator_new.h"
#include "trace/recorder/heap/python_allocators.h"
#include "trace/recorder/heap/real.h"
#include "trace/recorder/second_sink.h"
#include "trace/recorder/session.h"
#include "trace/recorder/stacks/callsite.h"
#include "trace/recorder/stacks/python/stack.h"
#include "trace/trace.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool can_note(void)
{
    return hook_can_call() && hook_is_recording();
}

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
    if (can_note()) {
        main_end_find_python();
        if (varve_records_wanted(VARVE_RECORDS_PYTHON)) {
            python_allocators_hook();
        }
        exec_note_loaded();
        second_sink_open();
    }
}

__attribute__((destructor)) static void unload(void)
{
    leave();
}

HOOK __attribute__((noreturn)) void _exit(int status)
{
    if (can_note()) {
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
    if (!hook_can_call() || heap_real.dlclose == NULL) {
        return -1;
    }
    if (hook_is_recording()) {
        python_stack_pin_library();
    }
    heap_cxx_closing();
    int result = heap_real.dlclose(handle);
    heap_cxx_closed();
    if (hook_is_recording()) {
        callsite_modules_changed();
    }
    return result;
}

/* Before the call that may run another program in this process; exec only returns when it failed. */
static void executing(struct exec_noted *noted, const struct exec_call *call)
{
    noted->order = 0;
    if (can_note()) {
        exec_note_begin(noted, call);
        recorder_process_executing(call->path != NULL ? call->path : "a file descriptor");
    }
}

static void execute_failed(const struct exec_noted *noted)
{
    if (hook_is_recording()) {
        exec_note_failed(noted);
        recorder_process_executing(NULL);
    }
}

HOOK int execve(const char *path, char *const argv[], char *const envp[])
{
    const struct exec_call call = {.path = path, .envp = envp, .is_in_process = true};
    struct exec_noted noted;
    executing(&noted, &call);
    int result = heap_real.execve(path, argv, envp);
    execute_failed(&noted);
    return result;
}

HOOK int execv(const char *path, char *const argv[])
{
    const struct exec_call call = {.path = path, .envp = environ, .is_in_process = true};
    struct exec_noted noted;
    executing(&noted, &call);
    int result = heap_real.execv(path, argv);
    execute_failed(&noted);
    return result;
}

HOOK int execvp(const char *file, char *const argv[])
{
    const struct exec_call call = {.path = file, .envp = environ, .is_searched = true, .is_in_process = true};
    struct exec_noted noted;
    executing(&noted, &call);
    int result = heap_real.execvp(file, argv);
    execute_failed(&noted);
    return result;
}

HOOK int execvpe(const char *file, char *const argv[], char *const envp[])
{
    const struct exec_call call = {.path = file, .envp = envp, .is_searched = true, .is_in_process = true};
    struct exec_noted noted;
    executing(&noted, &call);
    int result = heap_real.execvpe(file, argv, envp);
    execute_failed(&noted);
    return result;
}

HOOK int fexecve(int fd, char *const argv[], char *const envp[])
{
    const struct exec_call call = {.fd = fd, .envp = envp, .is_in_process = true};
    struct exec_noted noted;
    executing(&noted, &call);
    int result = heap_real.fexecve(fd, argv, envp);
    execute_failed(&noted);
    return result;
}

/* Programs in new processes. The C library's own exec in these does not come by here. */
static void spawning(struct exec_noted *noted, const struct exec_call *call)
{
    noted->order = 0;
    if (can_note()) {
        exec_note_begin(noted, call);
    }
}

HOOK int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                     const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
                     char *const envp[restrict])
{
    const struct exec_call call = {.path = path, .envp = envp};
    struct exec_noted noted;
    spawning(&noted, &call);
    int error = heap_real.posix_spawn(pid, path, actions, attributes, argv, envp);
    if (error != 0) {
        exec_note_failed(&noted);
    }
    return error;
}

HOOK int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                      const posix_spawn_file_actions_t *restrict actions, const posix_spawnattr_t *restrict attributes,
                      char *const argv[restrict], char *const envp[restrict])
{
    const struct exec_call call = {.path = file, .envp = envp, .is_searched = true};
    struct exec_noted noted;
    spawning(&noted, &call);
    int error = heap_real.posix_spawnp(pid, file, actions, attributes, argv, envp);
    if (error != 0) {
        exec_note_failed(&noted);
    }
    return error;
}

HOOK int system(const char *command)
{
    const struct exec_call call = {.path = "/bin/sh", .envp = environ};
    struct exec_noted noted;
    if (command != NULL) {
        spawning(&noted, &call);
    }
    return heap_real.system(command);
}

HOOK FILE *popen(const char *command, const char *mode)
{
    const struct exec_call call = {.path = "/bin/sh", .envp = environ};
    struct exec_noted noted;
    spawning(&noted, &call);
    FILE *stream = heap_real.popen(command, mode);
    if (stream == NULL) {
        exec_note_failed(&noted);
    }
    return stream;
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
    va_list list;
    va_start(list, argument);
    char **argv;
    COLLECT_ARGUMENTS(argv, argument, list);
    va_end(list);
    return execv(path, argv);
}

HOOK int execlp(const char *file, const char *argument, ...)
{
    va_list list;
    va_start(list, argument);
    char **argv;
    COLLECT_ARGUMENTS(argv, argument, list);
    va_end(list);
    return execvp(file, argv);
}

HOOK int execle(const char *path, const char *argument, ...)
{
    va_list list;
    va_start(list, argument);
    char **argv;
    COLLECT_ARGUMENTS(argv, argument, list);
    char *const *envp = va_arg(list, char *const *);
    va_end(list);
    return execve(path, argv, envp);
}
