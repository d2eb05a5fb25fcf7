/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that an exec function is about to run: the file that the kernel will load in the end (PATH, chains of #!,
 * the shell for files without any magic), and whether the recorder can be loaded into it. Looked at by the process
 * that does the exec, in its own root, folder and user. Called by the hooks of the exec family before the real
 * function, also in a vfork child: system calls only, on memory of the caller's.
 */
#include "trace/recorder/exec_look.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/exec_check.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_DEFAULT "/bin:/usr/bin" /* what execvp takes where PATH is unset */
#define SCRIPT_DEPTH_MAX 4

static bool is_refusal(int result)
{
    return result == -ENOENT || result == -ENOTDIR || result == -EACCES || result == -EPERM || result == -ELOOP;
}

/* By the rights of the real user, without capabilities unless that is root: as it will be after the exec. */
static bool is_within_reach(const char *path, int mode)
{
    return !is_refusal((int)recorder_syscall(SYS_faccessat, AT_FDCWD, (long)path, mode, 0, 0, 0));
}

/* What speaks against recording before the program itself is looked at. */
static void check_environment(struct exec_finding *finding, char *const *envp, struct exec_scratch *scratch)
{
    const char *session = recorder_variable(envp, SESSION_ENVIRONMENT);
    finding->has_recorder = exec_environment_recorder(envp, scratch->text, sizeof(scratch->text));
    if (finding->has_recorder && !is_within_reach(scratch->text, R_OK)) { /* the loader would say so */
        finding->reason = EXEC_REASON_UNREACHABLE;
        finding->must_clean = true;
    } else if (!finding->has_recorder || session == NULL) {
        finding->reason = EXEC_REASON_ENVIRONMENT;
    } else if (recorder_session() != NULL && strcmp(session, recorder_directory()) != 0) {
        finding->reason = EXEC_REASON_SESSION;
    } else {
        recorder_format(scratch->text, sizeof(scratch->text), "%s/ring/counts", session);
        finding->reason = is_within_reach(scratch->text, R_OK | W_OK) ? EXEC_REASON_NONE : EXEC_REASON_UNREACHABLE;
    }
}

/* A regular file that somebody may execute. */
static bool is_program(int fd)
{
    struct stat status;
    return recorder_syscall(SYS_fstat, fd, (long)&status, 0, 0, 0, 0) == 0 && S_ISREG(status.st_mode) &&
           (status.st_mode & 0111) != 0;
}

static int open_program_at(int folder, const char *path)
{
    int fd = recorder_sys_openat(folder, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd >= 0 && !is_program(fd)) {
        recorder_sys_close(fd);
        return -EACCES;
    }
    return fd;
}

static int open_program(const char *path)
{
    return open_program_at(AT_FDCWD, path);
}

/* As execvp looks for it: the first that can be run. The candidate stays in scratch->path. */
static int exec_look_search(const char *file, struct exec_scratch *scratch)
{
    const char *folder = recorder_variable(environ, "PATH");
    int fd = -ENOENT;
    for (folder = folder != NULL ? folder : PATH_DEFAULT; fd < 0 && folder != NULL;) {
        const char *end = strchr(folder, ':');
        size_t length = end != NULL ? (size_t)(end - folder) : strlen(folder);
        if (length + strlen(file) + 2 <= sizeof(scratch->path)) {
            memcpy(scratch->path, folder, length);
            recorder_format(scratch->path + length, sizeof(scratch->path) - length, "%s%s", length > 0 ? "/" : "",
                            file);
            fd = open_program(scratch->path);
        }
        folder = end != NULL ? end + 1 : NULL;
    }
    return fd;
}

/* The file of a descriptor, into scratch->path. */
static int open_descriptor(int fd, struct exec_scratch *scratch)
{
    recorder_format(scratch->text, sizeof(scratch->text), "/proc/self/fd/%u", (unsigned)fd);
    long length = recorder_sys_readlink(scratch->text, scratch->path, sizeof(scratch->path) - 1);
    scratch->path[length > 0 ? length : 0] = '\0';
    return open_program(scratch->text);
}

/* The file of the call, into scratch->path; a descriptor of ours, or -errno. */
static int open_called(const struct exec_call *call, struct exec_scratch *scratch)
{
    if (call->path[0] == '\0') {
        return call->folder != AT_FDCWD ? open_descriptor(call->folder, scratch) : -ENOENT;
    }
    if (call->is_searched && strchr(call->path, '/') == NULL) {
        return exec_look_search(call->path, scratch);
    }
    recorder_format(scratch->path, sizeof(scratch->path), "%s", call->path);
    if (call->folder == AT_FDCWD || call->path[0] == '/') {
        return open_program(scratch->path);
    }
    int fd = open_program_at(call->folder, call->path);
    if (fd >= 0) { /* by its path */
        int of_path = open_descriptor(fd, scratch);
        if (of_path >= 0) {
            recorder_sys_close(of_path);
        }
    }
    return fd;
}

/* From a script to its interpreter: that becomes scratch->path. Closes `fd`. */
static int open_interpreter(int fd, struct exec_scratch *scratch)
{
    exec_check_line(fd, scratch->line);
    recorder_sys_close(fd);
    size_t length = 0;
    while (scratch->line[length] != '\0' && scratch->line[length] != ' ' && scratch->line[length] != '\t') {
        length++;
    }
    memcpy(scratch->path, scratch->line, length);
    scratch->path[length] = '\0';
    return open_program(scratch->path);
}

/* The ELF file that will be loaded: a descriptor, or -errno; -ENOEXEC where it is of no known format. */
static int exec_look_open_loaded(int fd, const struct exec_call *call, struct exec_scratch *scratch)
{
    for (unsigned depth = 0; fd >= 0; depth++) {
        enum exec_format format = exec_check_format(fd);
        if (format == EXEC_FORMAT_ELF) {
            return fd;
        }
        if (format == EXEC_FORMAT_SCRIPT && depth <= SCRIPT_DEPTH_MAX) {
            fd = open_interpreter(fd, scratch);
            continue;
        }
        recorder_sys_close(fd);
        if (format == EXEC_FORMAT_SCRIPT || !call->is_searched) {
            return -ENOEXEC;
        }
        recorder_format(scratch->path, sizeof(scratch->path), "%s", EXEC_SHELL); /* the C library tries it */
        fd = open_program(scratch->path);
        if (fd >= 0 && exec_check_format(fd) != EXEC_FORMAT_ELF) {
            recorder_sys_close(fd);
            return -ENOEXEC;
        }
    }
    return fd;
}

/* The loader would end the program, or say that it can't load the recorder. */
static bool is_harmed(int reason)
{
    return reason == EXEC_REASON_MACHINE || reason == EXEC_REASON_LIBC || reason == EXEC_REASON_SANITIZER;
}

static int exec_look_check_program(int fd, const struct exec_call *call, struct exec_scratch *scratch)
{
    int reason = exec_check_elf(fd, scratch->path);
    if (reason != EXEC_REASON_NONE || !exec_check_minds_order(recorder_variable(call->envp, "ASAN_OPTIONS"))) {
        return reason;
    }
    enum exec_order order = exec_environment_order(call->envp);
    bool is_late = order == EXEC_ORDER_BEHIND || (order == EXEC_ORDER_NONE && exec_check_needs_first(fd));
    return is_late ? EXEC_REASON_SANITIZER : EXEC_REASON_NONE;
}

struct exec_finding exec_look(const struct exec_call *call, struct exec_scratch *scratch)
{
    struct exec_finding finding = {.will_run = true};
    check_environment(&finding, call->envp, scratch);
    int fd = exec_look_open_loaded(open_called(call, scratch), call, scratch);
    if (fd < 0) { /* may be executed, but not read */
        finding.will_run = !is_refusal(fd) || fd == -EACCES;
        return finding;
    }
    int reason = exec_look_check_program(fd, call, scratch);
    recorder_sys_close(fd);
    finding.will_run = reason >= 0;
    finding.must_clean = finding.must_clean || (finding.has_recorder && is_harmed(reason));
    finding.reason = finding.reason != EXEC_REASON_NONE || reason < 0 ? finding.reason : reason;
    return finding;
}
