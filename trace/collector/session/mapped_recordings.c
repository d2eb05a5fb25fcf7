/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of a file named `session` that a process has mapped, the contents decide whether it is the page of a recording. It
 * names its collector by a number, which may be another process's by now: the collector is who has the file `owner`
 * open that has the recording's id. Neither says anything about a collector in another PID namespace. Called by
 * programs/ and watch.c.
 */
#include "trace/collector/session/mapped_recordings.h"

#include "base/proc_file.h"
#include "trace/format/session_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REMOVED " (deleted)" /* as the kernel writes it behind names */

static bool mapped_recordings_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* ---- the collector ---- */

static bool is_owner(const char *descriptor, uint64_t trace_id)
{
    struct stat status;
    uint64_t its = 0;
    bool is_one = false;
    int fd = stat(descriptor, &status) == 0 && S_ISREG(status.st_mode)
                 ? open(descriptor, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
                 : -1;
    if (fd >= 0) {
        is_one = session_owner_read(fd, &its) && its == trace_id;
        close(fd);
    }
    return is_one;
}

bool session_collector_is(int32_t pid, uint64_t trace_id, char *directory_out)
{
    static const char owner[] = "/owner";
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *folder = pid > 0 ? opendir(path) : NULL;
    char descriptor[sizeof(path) + 32], target[DIRECTORY_PATH_BYTES];
    const struct dirent *entry;
    bool is_one = false;
    while (folder != NULL && !is_one && (entry = readdir(folder)) != NULL) {
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        snprintf(descriptor, sizeof(descriptor), "%s/%.20s", path, entry->d_name);
        is_one =
            (mapped_recordings_ends_with(target, owner) || mapped_recordings_ends_with(target, "/owner" REMOVED)) &&
            is_owner(descriptor, trace_id);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (is_one && directory_out != NULL) {
        *strrchr(target, '/') = '\0';
        memcpy(directory_out, target, strlen(target) + 1);
    }
    return is_one;
}

/* ---- the page ---- */

static bool mapped_recordings_is_page(const struct session_control *control)
{
    return control->magic == SESSION_MAGIC;
}

/* Of a file that is gone only the process still has the contents. False: it is no page of a recording. */
static bool read_page(int32_t pid, const char *path, uint64_t start, bool is_removed, struct session_control *control)
{
    const struct iovec to = {control, sizeof(*control)}, from = {(void *)(uintptr_t)start, sizeof(*control)};
    bool is_whole = false;
    if (is_removed) {
        is_whole = process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)sizeof(*control);
        return is_whole ? mapped_recordings_is_page(control)
                        : errno == EPERM; /* which is said when it is to be traced */
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        is_whole = pread(fd, control, sizeof(*control), 0) == (ssize_t)sizeof(*control);
        close(fd);
    }
    return is_whole && mapped_recordings_is_page(control);
}

static void take_page(const struct session_control *control, bool is_removed, struct session_mapped *mapped)
{
    *mapped = (struct session_mapped){.is_removed = is_removed};
    if (control->version == VARVE_TRANSPORT_VERSION) {
        mapped->trace_id = control->trace_id;
        mapped->is_attached = control->attached_pid != 0;
        mapped->is_finishing = control->state != SESSION_STATE_RECORDING;
        if (session_collector_is(control->collector_pid, control->trace_id, mapped->directory)) {
            mapped->collector = control->collector_pid;
        }
    }
}

bool session_mapped_find(int32_t pid, struct session_mapped *mapped_out)
{
    *mapped_out = (struct session_mapped){0};
    const int32_t tid = proc_file_thread(pid);
    if (tid == 0) {
        return false;
    }
    struct proc_maps maps;
    struct proc_map map;
    bool is_found = false;
    (void)proc_maps_open(&maps, tid);
    while (mapped_out->collector == 0 && proc_maps_next(&maps, &map)) {
        struct session_control control = {0};
        const bool is_removed = mapped_recordings_ends_with(map.path, "/session" REMOVED);
        if ((is_removed || mapped_recordings_ends_with(map.path, "/session")) && map.offset == 0 && map.inode != 0 &&
            read_page(tid, map.path, map.start, is_removed, &control)) {
            take_page(&control, is_removed, mapped_out);
            is_found = true;
        }
    }
    proc_maps_close(&maps);
    return is_found;
}
