/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who of a session still lives, asked without trusting a pid: a process in another PID namespace has one that
 * means another process here, or nobody. Each process holds a lock of its control page through the mapping,
 * and one of the session's counts, which its fork children inherit: locks that last until the last mapping
 * goes, whatever ends the process. Where mappings keep no locks (overlayfs, some network file systems), /proc
 * is searched instead. Called by the collector.
 */
#include "trace/collector/session/mapped_recordings.h"

#include "base/proc_file.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/session_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool liveness_is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool liveness_locks_work(const struct session_directory *directory, const char *name)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = session_file_open(directory, name, O_RDWR);
    int other = session_file_open(directory, name, O_RDWR);
    void *page = MAP_FAILED;
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    }
    session_descriptor_close(&fd);
    bool works = false;
    if (page != MAP_FAILED) {
        works = other >= 0 && liveness_is_locked(other);
        munmap(page, 1);
    }
    session_descriptor_close(&other);
    return works;
}

static uint64_t namespace_of(const char *process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/ns/pid", process);
    char text[64];
    ssize_t length = readlink(path, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *number = strchr(text, '[');
    return number != NULL ? strtoull(number + 1, NULL, 10) : 0;
}

uint64_t liveness_namespace(void)
{
    return namespace_of("self");
}

/* The number that the innermost namespace of a process gave it: the last one of the line. */
static int32_t innermost_pid(const char *process)
{
    char text[4096];
    proc_file_read(process, "status", text, sizeof(text));
    char *line = strstr(text, "\nNSpid:");
    char *end = line != NULL ? strchr(line + 1, '\n') : NULL;
    if (end == NULL) {
        return 0;
    }
    *end = '\0';
    line = strrchr(line, '\t');
    return line != NULL ? (int32_t)strtol(line + 1, NULL, 10) : 0;
}

static bool has_variable(const char *process, const char *variable)
{
    size_t bytes = 1U << 20; /* more than the kernel lets a program have, as a rule */
    size_t length = strlen(variable);
    char *text = malloc(bytes);
    if (text == NULL) {
        return false;
    }
    size_t end = proc_file_read(process, "environ", text, bytes);
    bool found = false;
    for (size_t at = 0; !found && at < end; at += strlen(text + at) + 1) {
        found = strncmp(text + at, variable, length) == 0 && text[at + length] == '\0';
    }
    free(text);
    return found;
}

/* Calls `matches` for each process until it says yes; the number of that one, else 0. */
static int32_t liveness_search(bool (*matches)(const char *process, const void *context), const void *context)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL) {
        return 0;
    }
    struct dirent *entry;
    int32_t found = 0;
    while (found == 0 && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && matches(entry->d_name, context)) {
            found = (int32_t)strtol(entry->d_name, NULL, 10);
        }
    }
    closedir(folder);
    return found;
}

static bool liveness_is_process(const char *process, const void *context)
{
    const struct process_identity *wanted = context;
    return namespace_of(process) == wanted->pid_namespace && innermost_pid(process) == wanted->pid;
}

int32_t liveness_find(const struct process_identity *identity)
{
    return identity->pid_namespace != 0 ? liveness_search(liveness_is_process, identity) : 0;
}

/* A number of an unknown namespace, and the session that such a process has mapped. */
struct unplaced {
    int32_t pid;
    uint64_t trace_id;
};

/* May we not look at what it has mapped, though it is of our own user? So it is where users are others (user
 * namespaces). */
static bool is_closed_to_us(const char *process)
{
    char path[64], status[4096];
    snprintf(path, sizeof(path), "/proc/%s/maps", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_open = fd >= 0 || errno != EACCES;
    session_descriptor_close(&fd);
    if (is_open || getuid() == 0) {
        return false;
    }
    proc_file_read(process, "status", status, sizeof(status));
    return session_status_number(status, "Uid:") == getuid();
}

static bool is_unplaced(const char *process, const void *context)
{
    const struct unplaced *wanted = context;
    struct session_mapped mapped;
    if (innermost_pid(process) != wanted->pid) {
        return false;
    }
    return session_mapped_find((int32_t)strtol(process, NULL, 10), &mapped) ? mapped.trace_id == wanted->trace_id
                                                                            : is_closed_to_us(process);
}

int32_t liveness_find_unplaced(int32_t pid, uint64_t trace_id)
{
    const struct unplaced wanted = {.pid = pid, .trace_id = trace_id};
    char process[16];
    snprintf(process, sizeof(process), "%d", pid);
    return is_unplaced(process, &wanted) ? pid : liveness_search(is_unplaced, &wanted);
}

static bool is_of_session(const char *process, const void *context)
{
    return (int32_t)strtol(process, NULL, 10) != (int32_t)getpid() && has_variable(process, context);
}

bool liveness_has_followers(const char *session)
{
    char variable[DIRECTORY_PATH_BYTES + 32];
    snprintf(variable, sizeof(variable), SESSION_ENVIRONMENT "=%s", session);
    return liveness_search(is_of_session, variable) != 0;
}
