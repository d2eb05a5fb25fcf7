/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes about programs that are about to run, in the session's counts: the collector names those that it
 * records nothing of (collector/exec.c). Called by the hooks of the exec family, also in a vfork child:
 * async-signal-safe, and nothing outlives the call but the note.
 */
#include "trace/recorder/exec_note.h"
#include "trace/recorder/guest/confine.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/guest/text.h"
#include "trace/recorder/session.h"
#include "trace/format/exec_check.h"
#include "trace/base/syscall.h"
#include "trace/format/session.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Each exec is looked at by the process that does it, in its own root, folder and user: a program that
 * can't load the recorder is noted with the reason, another one as awaited, and its recorder then notes
 * that it was loaded. Of programs that run in a new process (posix_spawn, system) only the reasons are
 * noted: their pids are not known here.
 */

#define LIBRARY_NAME "libvarve_preload"
#define PATH_DEFAULT "/bin:/usr/bin" /* what execvp takes where PATH is unset */
#define SCRIPT_DEPTH_MAX 4
#define SCRATCH_BYTES sizeof(struct scratch)

/* Not on the program's stack. */
struct scratch {
    char path[4096]; /* of what is looked at */
    char text[4096];
    char line[EXEC_LINE_BYTES];
};

struct finding {
    int reason;    /* enum exec_reason */
    bool will_run; /* as far as can be seen */
};

static bool is_refusal(int result)
{
    return result == -ENOENT || result == -ENOTDIR || result == -EACCES || result == -EPERM || result == -ELOOP;
}

static bool can_open(const char *path, int flags)
{
    int fd = recorder_sys_open(path, flags, 0);
    if (fd >= 0) {
        recorder_sys_close(fd);
    }
    return !is_refusal(fd); /* no descriptor left is another matter */
}

/* The element of LD_PRELOAD that is ours, into `path`; false: none is. */
static bool library_path(const char *preload, char *path, size_t bytes)
{
    const char *name = preload != NULL ? strstr(preload, LIBRARY_NAME) : NULL;
    if (name == NULL) {
        return false;
    }
    while (name > preload && name[-1] != ':' && name[-1] != ' ') {
        name--;
    }
    size_t length = 0;
    while (name[length] != '\0' && name[length] != ':' && name[length] != ' ') {
        length++;
    }
    if (length >= bytes) {
        return false;
    }
    memcpy(path, name, length);
    path[length] = '\0';
    return true;
}

static int check_environment(char *const *envp, struct scratch *scratch)
{
    const char *session = recorder_variable(envp, SESSION_ENVIRONMENT);
    if (session == NULL || !library_path(recorder_variable(envp, "LD_PRELOAD"), scratch->text, sizeof(scratch->text))) {
        return EXEC_REASON_ENVIRONMENT;
    }
    if (strcmp(session, recorder_directory()) != 0) {
        return EXEC_REASON_SESSION;
    }
    if (!can_open(scratch->text, O_RDONLY)) {
        return EXEC_REASON_UNREACHABLE;
    }
    recorder_format(scratch->text, sizeof(scratch->text), "%s/ring/counts", session);
    return can_open(scratch->text, O_RDWR) ? EXEC_REASON_NONE : EXEC_REASON_UNREACHABLE;
}

/* A regular file that somebody may execute. */
static bool is_program(int fd)
{
    struct stat status;
    return recorder_syscall(SYS_fstat, fd, (long)&status, 0, 0, 0, 0) == 0 && S_ISREG(status.st_mode) &&
           (status.st_mode & 0111) != 0;
}

static int open_program(const char *path)
{
    int fd = recorder_sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd >= 0 && !is_program(fd)) {
        recorder_sys_close(fd);
        return -EACCES;
    }
    return fd;
}

/* As execvp looks for it: the first that can be run. The candidate stays in scratch->path. */
static int search(const char *file, struct scratch *scratch)
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

/* The file of the call, into scratch->path; a descriptor of ours, or -errno. */
static int open_called(const struct exec_call *call, struct scratch *scratch)
{
    if (call->path == NULL) {
        recorder_format(scratch->text, sizeof(scratch->text), "/proc/self/fd/%u", (unsigned)call->fd);
        long length = recorder_sys_readlink(scratch->text, scratch->path, sizeof(scratch->path) - 1);

        scratch->path[length > 0 ? length : 0] = '\0';
        return open_program(scratch->text);
    }
    if (call->is_searched && strchr(call->path, '/') == NULL) {
        return call->path[0] != '\0' ? search(call->path, scratch) : -ENOENT;
    }
    recorder_format(scratch->path, sizeof(scratch->path), "%s", call->path);
    return open_program(scratch->path);
}

/* From a script to its interpreter: that becomes scratch->path. Closes `fd`. */
static int open_interpreter(int fd, struct scratch *scratch)
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

static struct finding check_file(int fd, const struct exec_call *call, struct scratch *scratch)
{
    struct finding finding = {EXEC_REASON_NONE, true};
    enum exec_format format = EXEC_FORMAT_OTHER;
    for (unsigned depth = 0; fd >= 0 && depth <= SCRIPT_DEPTH_MAX; depth++) {
        format = exec_check_format(fd);
        if (format != EXEC_FORMAT_SCRIPT) {
            break;
        }
        fd = open_interpreter(fd, scratch);
    }
    if (fd >= 0 && format == EXEC_FORMAT_OTHER && call->is_searched) { /* the C library tries the shell */
        recorder_sys_close(fd);
        recorder_format(scratch->path, sizeof(scratch->path), "%s", EXEC_SHELL);
        fd = open_program(scratch->path);
        format = EXEC_FORMAT_ELF;
    }
    if (fd >= 0 && format == EXEC_FORMAT_ELF) {
        finding.reason = exec_check_elf(fd, scratch->path);
        finding.will_run = finding.reason >= 0;
    } else if (fd < 0) {
        finding.will_run = !is_refusal(fd) || fd == -EACCES; /* may be executed, but not read */
    }
    if (fd >= 0) {
        recorder_sys_close(fd);
    }
    return finding;
}

static struct finding check_call(const struct exec_call *call, struct scratch *scratch)
{
    struct finding finding = {check_environment(call->envp, scratch), true};
    int fd = open_called(call, scratch);
    if (fd == -ENOENT || fd == -ENOTDIR || finding.reason != EXEC_REASON_NONE) {
        finding.will_run = fd != -ENOENT && fd != -ENOTDIR;
        if (fd >= 0) {
            recorder_sys_close(fd);
        }
        return finding;
    }
    return check_file(fd, call, scratch);
}

/* A relative path as an absolute one, its end if it is too long for the note. */
static void copy_path(char *target, size_t bytes, struct scratch *scratch)
{
    const char *path = scratch->path;
    if (path[0] != '/' &&
        recorder_syscall(SYS_getcwd, (long)scratch->text, (long)sizeof(scratch->text) - 1, 0, 0, 0, 0) > 0) {
        size_t folder = strlen(scratch->text);
        if (strncmp(path, "./", 2) == 0) {
            path += 2;
        }
        recorder_format(scratch->text + folder, sizeof(scratch->text) - folder, "/%s", path);
        path = scratch->text;
    }
    size_t length = strlen(path);
    recorder_format(target, bytes, "%s", length < bytes ? path : path + length - bytes + 1);
}

static struct session_exec *slot_claim(struct session_counts *counts, uint32_t order)
{
    for (uint32_t i = 0; i < SESSION_EXECS; i++) {
        struct session_exec *slot = &counts->execs[(order + i) % SESSION_EXECS];
        uint32_t expected = EXEC_STATE_FREE;
        if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) == EXEC_STATE_FREE &&
            __atomic_compare_exchange_n(&slot->state, &expected, EXEC_STATE_WRITING, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return slot;
        }
    }
    __atomic_fetch_add(&counts->execs_dropped, 1, __ATOMIC_RELAXED);
    return NULL;
}

static struct session_exec *note_begin(struct session_counts *counts, enum exec_kind kind)
{
    uint32_t order = __atomic_add_fetch(&counts->execs_noted, 1, __ATOMIC_RELAXED);
    struct session_exec *slot = slot_claim(counts, order);
    if (slot != NULL) {
        slot->kind = kind;
        slot->order = order;
        slot->of = 0;
        slot->reason = EXEC_REASON_NONE;
        slot->is_awaited = 0;
        slot->path[0] = '\0';
        process_identity_read(&slot->process);
    }
    return slot;
}

static void note_end(struct session_counts *counts, struct session_exec *slot)
{
    __atomic_store_n(&slot->state, EXEC_STATE_WRITTEN, __ATOMIC_RELEASE);
    __atomic_fetch_add(&counts->execs_written, 1, __ATOMIC_RELEASE);
}

/* NULL: there is no session, or nobody reads notes any more, or nothing can be looked at here. */
static struct session_counts *open_counts(void)
{
    const struct session_control *session = recorder_session();
    return session != NULL && !recorder_is_confined() &&
                   __atomic_load_n(&session->state, __ATOMIC_ACQUIRE) == SESSION_STATE_RECORDING
               ? recorder_session_counts()
               : NULL;
}

void exec_note_begin(struct exec_noted *noted, const struct exec_call *call)
{
    struct session_counts *counts = open_counts();
    struct scratch *scratch = counts != NULL ? recorder_map(SCRATCH_BYTES) : NULL;
    noted->order = 0;
    if (scratch == NULL) {
        return;
    }
    struct finding finding = check_call(call, scratch);
    struct session_exec *slot = NULL;
    if (finding.will_run && (finding.reason != EXEC_REASON_NONE || call->is_in_process)) {
        slot = note_begin(counts, EXEC_KIND_BEGUN);
    }
    if (slot != NULL) {
        slot->reason = (uint32_t)finding.reason;
        slot->is_awaited = finding.reason == EXEC_REASON_NONE;
        copy_path(slot->path, sizeof(slot->path), scratch);
        noted->order = slot->order;
        note_end(counts, slot);
    }
    recorder_unmap(scratch, SCRATCH_BYTES);
}

void exec_note_failed(const struct exec_noted *noted)
{
    struct session_counts *counts = noted->order != 0 ? open_counts() : NULL;
    struct session_exec *slot = counts != NULL ? note_begin(counts, EXEC_KIND_FAILED) : NULL;
    if (slot != NULL) {
        slot->of = noted->order;
        note_end(counts, slot);
    }
}

void exec_note_loaded(void)
{
    struct session_counts *counts = open_counts();
    struct session_exec *slot = counts != NULL ? note_begin(counts, EXEC_KIND_LOADED) : NULL;
    if (slot != NULL) {
        note_end(counts, slot);
    }
}
