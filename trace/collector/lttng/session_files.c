/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an LTTng session of ours has in the file system: the folder of its buffers, how large these are, and
 * the file that names the user's current session, which `lttng create` overwrites.
 */
#include "trace/collector/lttng/session_parts.h"
#include "trace/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define SUB_BUFFER_MIN (64 * KIB)
#define SUB_BUFFER_MAX (4 * MIB)
#define SUB_BUFFERS_MIN 8U
#define SUB_BUFFERS_MAX 16U
#define DEFAULT_MAX (256 * MIB)
#define DEFAULT_CPU_MIN MIB
#define DEPTH_MAX 12

/* Many small sub-buffers rather than few large ones: what a killed program leaves undelivered is at most the
 * open one of each CPU, and the consumer begins to write as soon as the first is full. */
struct lttng_buffers lttng_buffers_plan(uint64_t bytes, uint64_t free_bytes, unsigned cpus)
{
    struct lttng_buffers plan = {.sub_buffer_bytes = SUB_BUFFER_MIN, .sub_buffers = SUB_BUFFERS_MAX};
    uint64_t cpu_bytes = bytes / cpus;

    if (bytes == 0) {
        bytes = free_bytes / 4 < DEFAULT_MAX ? free_bytes / 4 : DEFAULT_MAX;
        cpu_bytes = bytes / cpus > DEFAULT_CPU_MIN ? bytes / cpus : DEFAULT_CPU_MIN;
    }
    if (cpu_bytes < SUB_BUFFER_MIN * SUB_BUFFERS_MAX) {
        plan.sub_buffers = SUB_BUFFERS_MIN;
    }
    while (plan.sub_buffer_bytes < SUB_BUFFER_MAX &&
           plan.sub_buffer_bytes * 2 * plan.sub_buffers <= cpu_bytes) {
        plan.sub_buffer_bytes *= 2;
    }
    plan.bytes = (plan.sub_buffer_bytes * plan.sub_buffers +
                  LTTNG_META_SUB_BUFFER_BYTES * (uint64_t)LTTNG_META_SUB_BUFFERS) *
                 cpus;
    return plan;
}

/* Something else is in need of memory too, LTTng's own files among it. */
bool lttng_buffers_fit(const struct lttng_buffers *plan, uint64_t free_bytes)
{
    return plan->bytes <= free_bytes - free_bytes / 16;
}

unsigned lttng_buffers_cpus(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/possible", "re");
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    char line[256];

    if (file != NULL) {
        const char *last = NULL;

        if (fgets(line, sizeof(line), file) != NULL) {
            last = line + strcspn(line, "\n");
            while (last > line && last[-1] >= '0' && last[-1] <= '9') {
                last--;
            }
        }
        fclose(file);
        if (last != NULL && *last >= '0' && *last <= '9') {
            return (unsigned)strtoul(last, NULL, 10) + 1;
        }
    }
    return configured > 0 ? (unsigned)configured : 1;
}

int lttng_folder_make(const char *path, uint64_t *free_bytes_out, struct varve_message *message)
{
    struct statvfs status;

    if (mkdir(path, 0700) != 0) {
        int reason = errno;
        int error = reason == EEXIST                      ? VARVE_ERROR_INVALID
                    : reason == EACCES || reason == EPERM ? VARVE_ERROR_PERMISSION
                                                          : VARVE_ERROR_IO;

        return varve_message_set(message, error, "cannot make %s for LTTng's buffers: %s", path,
                                 strerror(reason));
    }
    *free_bytes_out = UINT64_MAX;
    if (statvfs(path, &status) == 0) {
        *free_bytes_out = (uint64_t)status.f_bavail * status.f_frsize;
    }
    return VARVE_OK;
}

static DIR *folder_open_at(int parent, const char *name)
{
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;

    if (folder == NULL && descriptor >= 0) {
        close(descriptor);
    }
    return folder;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* LTTng removes files in it at the same time: whatever is gone already is well. */
static void remove_below(int parent, const char *name, int depth)
{
    DIR *folder = depth < DEPTH_MAX ? folder_open_at(parent, name) : NULL;
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (!is_dots(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0) {
            remove_below(dirfd(folder), entry->d_name, depth + 1);
        }
    }
    if (folder != NULL) {
        closedir(folder);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
}

void lttng_folder_remove(const char *path)
{
    remove_below(AT_FDCWD, path, 0);
}

bool lttng_folder_is_empty(const char *path)
{
    DIR *folder = folder_open_at(AT_FDCWD, path);
    struct stat status;
    struct dirent *entry;
    bool is_empty = true;

    if (folder == NULL) {
        return lstat(path, &status) != 0;
    }
    while (is_empty && (entry = readdir(folder)) != NULL) {
        is_empty = is_dots(entry->d_name);
    }
    closedir(folder);
    return is_empty;
}

static void sizes_below(int parent, const char *name, int depth, struct lttng_folder_sizes *sizes)
{
    DIR *folder = depth < DEPTH_MAX ? folder_open_at(parent, name) : NULL;
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct stat status;

        if (is_dots(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (S_ISDIR(status.st_mode)) {
            sizes_below(dirfd(folder), entry->d_name, depth + 1, sizes);
        } else if (S_ISREG(status.st_mode) && strcmp(entry->d_name, "metadata") != 0) {
            uint64_t bytes = (uint64_t)status.st_size;

            sizes->total += bytes;
            sizes->largest = bytes > sizes->largest ? bytes : sizes->largest;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

struct lttng_folder_sizes lttng_folder_sizes(const char *path)
{
    struct lttng_folder_sizes sizes = {0, 0};

    sizes_below(AT_FDCWD, path, 0, &sizes);
    return sizes;
}

/* ---- metadata ---- */

static bool metadata_copy(int from, const char *to, const char *scratch)
{
    int descriptor = open(scratch, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0660);
    char block[65536];
    bool is_well = descriptor >= 0;
    ssize_t got;

    while (is_well && (got = read(from, block, sizeof(block))) != 0) {
        is_well = got > 0 && write(descriptor, block, (size_t)got) == got;
    }
    if (descriptor >= 0) {
        is_well = close(descriptor) == 0 && is_well && rename(scratch, to) == 0;
        unlink(scratch);
    }
    return is_well;
}

/* `from` and `to` are folders of the same depth in the buffers and in the trace. */
static void metadata_below(const char *from, const char *to, int depth)
{
    DIR *folder = depth < DEPTH_MAX ? folder_open_at(AT_FDCWD, from) : NULL;
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char source[PATH_MAX];
        char target[PATH_MAX];
        char scratch[PATH_MAX + 8];
        struct stat status;

        if (is_dots(entry->d_name) ||
            snprintf(source, sizeof(source), "%s/%s", from, entry->d_name) >= (int)sizeof(source) ||
            snprintf(target, sizeof(target), "%s/%s", to, entry->d_name) >= (int)sizeof(target) ||
            lstat(source, &status) != 0) {
            continue;
        }
        if (S_ISDIR(status.st_mode)) {
            metadata_below(source, target, depth + 1);
        } else if (strcmp(entry->d_name, "metadata") == 0 && status.st_size > 0) {
            int descriptor = open(source, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

            snprintf(scratch, sizeof(scratch), "%s.new", target);
            if (descriptor >= 0) {
                metadata_copy(descriptor, target, scratch);
                close(descriptor);
            }
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

void lttng_metadata_rescue(const char *shm, const char *output)
{
    DIR *folder = folder_open_at(AT_FDCWD, shm);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char path[PATH_MAX];

        if (!is_dots(entry->d_name) &&
            snprintf(path, sizeof(path), "%s/%s", shm, entry->d_name) < (int)sizeof(path)) {
            metadata_below(path, output, 0); /* one level per session: NAME-DATE-TIME */
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* ---- the current session ---- */

void lttng_current_save(struct lttng_current *current)
{
    const char *home = getenv("LTTNG_HOME");
    int descriptor;

    home = home != NULL ? home : getenv("HOME");
    current->length = -1;
    snprintf(current->path, sizeof(current->path), "%s/.lttngrc", home != NULL ? home : "");
    descriptor = open(current->path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        current->length = read(descriptor, current->text, sizeof(current->text));
        close(descriptor);
    }
}

/* Only if it names `session` now. LTTng itself writes nothing into it but that one line. */
void lttng_current_restore(const struct lttng_current *current, const char *session)
{
    struct lttng_current now;
    char expected[300];
    int length = snprintf(expected, sizeof(expected), "session=%s\n", session);
    int descriptor;

    lttng_current_save(&now);
    if (now.length != length || memcmp(now.text, expected, (size_t)length) != 0) {
        return;
    }
    if (current->length < 0) {
        unlink(now.path);
        return;
    }
    descriptor = open(now.path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (descriptor >= 0) {
        ssize_t written = write(descriptor, current->text, (size_t)current->length);

        (void)written; /* the user's next `lttng set-session` puts it right */
        close(descriptor);
    }
}
