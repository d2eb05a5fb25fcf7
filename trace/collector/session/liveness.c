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

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static uint64_t namespace_at(const char *path)
{
    char text[64];
    ssize_t length = readlink(path, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *number = strchr(text, '[');
    return number != NULL ? strtoull(number + 1, NULL, 10) : 0;
}

uint64_t liveness_namespace(void)
{
    return namespace_at("/proc/self/ns/pid");
}

static bool liveness_is_process(void *context, int32_t pid)
{
    const struct process_identity *wanted = context;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    return namespace_at(path) == wanted->pid_namespace && proc_file_innermost(pid) == wanted->pid;
}

int32_t liveness_find(const struct process_identity *identity)
{
    struct process_identity wanted = *identity;
    return wanted.pid_namespace != 0 ? proc_file_search(0, liveness_is_process, &wanted) : 0;
}

/* A number of an unknown namespace, and the session that such a process has mapped. */
struct unplaced {
    int32_t pid;
    uint64_t trace_id;
};

/* May we not look at what it has mapped, though it is of our own user? So it is where users are others (user
 * namespaces). */
static bool is_closed_to_us(int32_t pid)
{
    char status[4096];
    struct proc_maps maps;
    const bool is_open = proc_maps_open(&maps, pid) || errno != EACCES;
    proc_maps_close(&maps);
    if (is_open || getuid() == 0) {
        return false;
    }
    proc_file_read(pid, "status", status, sizeof(status));
    return session_status_number(status, "Uid:") == getuid();
}

static bool is_unplaced(void *context, int32_t pid)
{
    const struct unplaced *wanted = context;
    struct session_mapped mapped;
    if (proc_file_innermost(pid) != wanted->pid) {
        return false;
    }
    return session_mapped_find(pid, &mapped) ? mapped.trace_id == wanted->trace_id : is_closed_to_us(pid);
}

int32_t liveness_find_unplaced(int32_t pid, uint64_t trace_id)
{
    struct unplaced wanted = {.pid = pid, .trace_id = trace_id};
    return pid > 0 && is_unplaced(&wanted, pid) ? pid : proc_file_search(0, is_unplaced, &wanted);
}

static bool is_of_session(void *session, int32_t pid)
{
    char its[DIRECTORY_PATH_BYTES];
    return pid != getpid() && proc_file_variable(pid, SESSION_ENVIRONMENT, its, sizeof(its)) &&
           strcmp(its, session) == 0;
}

bool liveness_has_followers(const char *session)
{
    char wanted[DIRECTORY_PATH_BYTES];
    snprintf(wanted, sizeof(wanted), "%s", session);
    return proc_file_search(0, is_of_session, wanted) != 0;
}
