/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that note how a process image ends: exit handlers, _exit, exec. The collector sees a process
 * disappear in any case; with these notes it can say whether it ended, was killed, or became another
 * program. Programs that are about to run, here or in a new process, are noted if they can't be recorded
 * (recorder/exec_note.c). dlclose is here too: unloaded code may leave its addresses to other code.
 */
#include "trace/recorder/exec_look.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/emit_slow.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/python_stack.h"
#include "base/syscall.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool can_note(void)
{
    return hook_can_call() && hook_is_recording();
}

static void process_hooks_leave(void)
{
    struct varve_record record = {0};
    loading_finish();
    if (hook_is_recording() && recorder_process_current() != NULL) {
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_PROCESS_EXIT, 0);
        varve_emit(&record);
        recorder_process_exited();
    }
}

/* Once: at its end if that comes in a constructor before ours. */
static void note_loaded(void)
{
    static bool is_noted;
    if (!__atomic_exchange_n(&is_noted, true, __ATOMIC_RELAXED)) {
        exec_note_loaded();
    }
}

/* Before main, with the program's libraries ready and usually no other thread. */
__attribute__((constructor)) static void process_hooks_load(void)
{
    if (can_note()) {
        main_end_find_python();
        if (varve_records_wanted(VARVE_RECORDS_PYTHON)) {
            python_allocators_hook();
        }
        note_loaded();
        second_sink_open();
    }
}

__attribute__((destructor)) static void unload(void)
{
    process_hooks_leave();
}

HOOK __attribute__((noreturn)) void _exit(int status)
{
    if (can_note()) {
        note_loaded();
        recorder_process_exited();
    }
    heap_real._exit(status);
    __builtin_unreachable();
}

HOOK __attribute__((noreturn)) void _Exit(int status)
{
    _exit(status);
}

/* Its handlers run before the end, which the C library's own _exit is: that does not come by here. */
HOOK __attribute__((noreturn)) void quick_exit(int status)
{
    if (!hook_can_call() || heap_real.quick_exit == NULL) {
        _exit(status);
    }
    if (hook_is_recording()) {
        recorder_process_exited();
    }
    heap_real.quick_exit(status);
    __builtin_unreachable();
}

/* This process ends in it, its child comes back. */
HOOK int daemon(int stay_in_folder, int keep_output)
{
    if (!hook_can_call() || heap_real.daemon == NULL) {
        return -1;
    }
    if (hook_is_recording()) {
        recorder_process_exited();
    }
    int result = heap_real.daemon(stay_in_folder, keep_output);
    if (result != 0 && hook_is_recording()) {
        recorder_process_executing(NULL); /* it goes on */
    }
    return result;
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
    loading_closing();
    int result = heap_real.dlclose(handle);
    loading_closed();
    heap_cxx_closed();
    if (hook_is_recording()) {
        callsite_modules_changed();
    }
    return result;
}

/* ---- programs in this process ---- */

#define EXEC_STACK_BYTES 2048U

enum exec_door {
    EXEC_DOOR_EXECV,
    EXEC_DOOR_EXECVE,
    EXEC_DOOR_EXECVP,
    EXEC_DOOR_EXECVPE,
    EXEC_DOOR_FEXECVE,
    EXEC_DOOR_EXECVEAT,
};

/* Without a session too: it may have ended, and the environment still name the recorder. */
static void process_hooks_look(struct exec_noted *noted, const struct exec_call *call)
{
    *noted = (struct exec_noted){0};
    if (call->path != NULL && hook_can_call() && recorder_reentrant_depth == 0) {
        exec_note_begin(noted, call);
    }
}

static int exec_real(enum exec_door door, const struct exec_call *call, char *const argv[], char *const envp[])
{
    switch (door) {
    case EXEC_DOOR_EXECV:
        return heap_real.execv(call->path, argv);
    case EXEC_DOOR_EXECVP:
        return heap_real.execvp(call->path, argv);
    case EXEC_DOOR_EXECVPE:
        return heap_real.execvpe(call->path, argv, envp);
    case EXEC_DOOR_FEXECVE:
        return heap_real.fexecve(call->folder, argv, envp);
    case EXEC_DOOR_EXECVEAT:
        return heap_real.execveat(call->folder, call->path, argv, envp, call->flags);
    default:
        return heap_real.execve(call->path, argv, envp);
    }
}

/* For an environment that may be too large for the stack. A vfork child that has executed a program leaves it to the
 * thread that it is of, which takes it at its next exec. */
static __thread struct {
    void *memory;
    size_t bytes;
} exec_room __attribute__((tls_model("initial-exec")));

static void *exec_room_take(size_t bytes)
{
    if (exec_room.memory != NULL) {
        recorder_unmap(exec_room.memory, exec_room.bytes);
    }
    exec_room.memory = recorder_map(bytes);
    exec_room.bytes = bytes;
    return exec_room.memory;
}

/* Only returns when it failed. */
static int process_hooks_execute(enum exec_door door, const struct exec_call *call, char *const argv[])
{
    struct exec_noted noted;
    process_hooks_look(&noted, call);
    if (call->path != NULL && can_note()) {
        recorder_process_executing(call->path[0] != '\0' ? call->path : "a file descriptor");
    }
    char *const *envp = call->envp;
    if (noted.must_clean) {
        size_t bytes = exec_environment_bytes(envp);
        void *memory = bytes > EXEC_STACK_BYTES ? exec_room_take(bytes) : NULL;
        envp = exec_environment_without(envp, memory != NULL ? memory : __builtin_alloca(bytes));
        door = door == EXEC_DOOR_EXECV ? EXEC_DOOR_EXECVE : door == EXEC_DOOR_EXECVP ? EXEC_DOOR_EXECVPE : door;
    }
    int result = exec_real(door, call, argv, envp);
    if (hook_is_recording()) {
        exec_note_failed(&noted);
        recorder_process_executing(NULL);
    }
    return result;
}

HOOK int execve(const char *path, char *const argv[], char *const envp[])
{
    const struct exec_call call = {.path = path, .folder = AT_FDCWD, .envp = envp, .is_in_process = true};
    return process_hooks_execute(EXEC_DOOR_EXECVE, &call, argv);
}

HOOK int execv(const char *path, char *const argv[])
{
    const struct exec_call call = {.path = path, .folder = AT_FDCWD, .envp = environ, .is_in_process = true};
    return process_hooks_execute(EXEC_DOOR_EXECV, &call, argv);
}

HOOK int execvp(const char *file, char *const argv[])
{
    const struct exec_call call = {
        .path = file, .folder = AT_FDCWD, .envp = environ, .is_searched = true, .is_in_process = true};
    return process_hooks_execute(EXEC_DOOR_EXECVP, &call, argv);
}

HOOK int execvpe(const char *file, char *const argv[], char *const envp[])
{
    const struct exec_call call = {
        .path = file, .folder = AT_FDCWD, .envp = envp, .is_searched = true, .is_in_process = true};
    return process_hooks_execute(EXEC_DOOR_EXECVPE, &call, argv);
}

HOOK int fexecve(int fd, char *const argv[], char *const envp[])
{
    const struct exec_call call = {.path = "", .folder = fd, .envp = envp, .is_in_process = true};
    return process_hooks_execute(EXEC_DOOR_FEXECVE, &call, argv);
}

HOOK int execveat(int folder, const char *path, char *const argv[], char *const envp[], int flags)
{
    const struct exec_call call = {.path = path, .folder = folder, .flags = flags, .envp = envp, .is_in_process = true};
    if (!hook_can_call() || heap_real.execveat == NULL) {
        return (int)hook_answer(
            recorder_syscall_raw(SYS_execveat, folder, (long)path, (long)argv, (long)envp, flags, 0));
    }
    return process_hooks_execute(EXEC_DOOR_EXECVEAT, &call, argv);
}

/* ---- programs in new processes ---- */

/* The C library's own exec in these does not come by here. */
struct spawning {
    struct exec_noted noted;
    char *const *envp; /* what the program gets */
    void *memory;
    size_t bytes;
};

static void spawn_begin(struct spawning *spawning, const struct exec_call *call)
{
    process_hooks_look(&spawning->noted, call);
    spawning->envp = call->envp;
    spawning->memory = NULL;
    if (spawning->noted.must_clean) {
        spawning->bytes = exec_environment_bytes(call->envp);
        spawning->memory = recorder_map(spawning->bytes);
        spawning->envp = spawning->memory != NULL ? exec_environment_without(call->envp, spawning->memory) : call->envp;
    }
}

static int spawn_end(const struct spawning *spawning, int error)
{
    if (error != 0 && hook_is_recording()) {
        exec_note_failed(&spawning->noted);
    }
    if (spawning->memory != NULL) {
        recorder_unmap(spawning->memory, spawning->bytes);
    }
    return error;
}

HOOK int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
                     const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
                     char *const envp[restrict])
{
    const struct exec_call call = {.path = path, .folder = AT_FDCWD, .envp = envp};
    struct spawning spawning;
    spawn_begin(&spawning, &call);
    return spawn_end(&spawning, heap_real.posix_spawn(pid, path, actions, attributes, argv, spawning.envp));
}

HOOK int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                      const posix_spawn_file_actions_t *restrict actions, const posix_spawnattr_t *restrict attributes,
                      char *const argv[restrict], char *const envp[restrict])
{
    const struct exec_call call = {.path = file, .folder = AT_FDCWD, .envp = envp, .is_searched = true};
    struct spawning spawning;
    spawn_begin(&spawning, &call);
    return spawn_end(&spawning, heap_real.posix_spawnp(pid, file, actions, attributes, argv, spawning.envp));
}

HOOK int system(const char *command)
{
    const struct exec_call call = {.path = "/bin/sh", .folder = AT_FDCWD, .envp = environ};
    struct exec_noted noted;
    if (command != NULL) {
        process_hooks_look(&noted, &call);
    }
    return heap_real.system(command);
}

HOOK FILE *popen(const char *command, const char *mode)
{
    const struct exec_call call = {.path = "/bin/sh", .folder = AT_FDCWD, .envp = environ};
    struct exec_noted noted;
    process_hooks_look(&noted, &call);
    FILE *stream = heap_real.popen(command, mode);
    if (stream == NULL && hook_is_recording()) {
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
