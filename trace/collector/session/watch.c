/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of watching a recording: the collector, who asks a lock whether figures are wanted, and the watcher, who
 * opens the directory as session_directory_look does, reads, and changes nothing in it. The figures are a file that is
 * complete when it gets its name: a watcher that is stopped in the middle holds up nobody. What a watcher reads may
 * have been put there by anybody with the rights of this user; its size is limited, and who uses it checks the rest.
 */
#include "trace/collector/session/watch.h"

#include "trace/collector/session/recording_directory.h"
#include "trace/collector/session/mapped_recordings.h"
#include "trace/format/attach_format.h"
#include "trace/format/session_format.h"
#include "base/error.h"
#include "base/proc_file.h"
#include "trace/collect.h"
#include "trace/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_WATCH "watch"
#define FILE_LIVE "live.json"
#define FILE_LIVE_NEW "live.json.new"
#define BYTE_WATCHERS 0
#define BYTE_COLLECTOR 1
#define LIVE_BYTES_MAX ((off_t)64 << 20)
#define SECOND_NS INT64_C(1000000000)

static bool lock_byte(int fd, int command, short type, off_t byte, struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, command, lock) == 0;
}

static bool is_held(int fd, off_t byte)
{
    struct flock lock;
    return lock_byte(fd, F_OFD_GETLK, F_WRLCK, byte, &lock) && lock.l_type != F_UNLCK;
}

/* ---- the collector ---- */

void watch_allow(struct session_directory *directory)
{
    struct flock lock;
    int fd = openat(directory->rings_fd, FILE_WATCH, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && !lock_byte(fd, F_OFD_SETLK, F_WRLCK, BYTE_COLLECTOR, &lock)) {
        session_descriptor_close(&fd);
        unlinkat(directory->rings_fd, FILE_WATCH, 0);
    }
    directory->watch_fd = fd;
}

bool watch_is_wanted(const struct session_directory *directory)
{
    return directory->watch_fd >= 0 && is_held(directory->watch_fd, BYTE_WATCHERS);
}

static bool watch_write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written <= 0 && errno != EINTR) {
            return false;
        }
        bytes += written > 0 ? written : 0;
        count -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

void watch_publish(const struct session_directory *directory, const void *bytes, size_t count)
{
    const int folder = directory->rings_fd;
    unlinkat(folder, FILE_LIVE_NEW, 0);
    int fd = openat(folder, FILE_LIVE_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool is_written = fd >= 0 && watch_write_all(fd, bytes, count);
    session_descriptor_close(&fd);
    if (!is_written || renameat(folder, FILE_LIVE_NEW, folder, FILE_LIVE) != 0) {
        watch_withdraw(directory);
    }
}

void watch_withdraw(const struct session_directory *directory)
{
    unlinkat(directory->rings_fd, FILE_LIVE_NEW, 0);
    unlinkat(directory->rings_fd, FILE_LIVE, 0);
}

/* ---- the watcher ---- */

struct varve_watch {
    struct session_directory directory;
    int fd;         /* of `watch`, with the lock */
    int session_fd; /* of the session page, which is read: a mapping would fault if somebody cut it */
};

static int no_figures(const struct session_directory *directory, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "%s has no figures to watch: it is recorded without a database, or by another varve",
                             directory->path);
}

static int watch_begin(struct varve_watch *watch, const char *path, struct varve_message *message)
{
    int error = session_directory_look(&watch->directory, path, message);
    if (error != VARVE_OK) {
        return error;
    }
    watch->session_fd = session_file_open(&watch->directory, "session", O_RDONLY);
    struct session_control control;
    if (watch->session_fd < 0 || pread(watch->session_fd, &control, sizeof(control), 0) != (ssize_t)sizeof(control) ||
        control.magic != SESSION_MAGIC) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is not the directory of a recording under way (those are named TRACE.db.d)",
                                 watch->directory.path);
    }
    if (control.version != VARVE_TRANSPORT_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s is recorded by another version of varve (transport %u, this is %u)",
                                 watch->directory.path, control.version, VARVE_TRANSPORT_VERSION);
    }
    watch->fd = session_file_open(&watch->directory, FILE_WATCH, O_RDONLY);
    struct flock lock;
    return watch->fd >= 0 && lock_byte(watch->fd, F_OFD_SETLK, F_RDLCK, BYTE_WATCHERS, &lock)
               ? VARVE_OK
               : no_figures(&watch->directory, message);
}

int varve_watch_open(const char *directory, struct varve_watch **watch_out, struct varve_message *message)
{
    struct varve_watch *watch = calloc(1, sizeof(*watch));
    *watch_out = NULL;
    if (watch == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    watch->fd = watch->session_fd = -1;
    int error = watch_begin(watch, directory, message);
    if (error != VARVE_OK) {
        varve_watch_close(watch);
        return error;
    }
    *watch_out = watch;
    return VARVE_OK;
}

enum varve_watch_state varve_watch_state(const struct varve_watch *watch)
{
    struct stat status;
    if (!is_held(watch->fd, BYTE_COLLECTOR)) {
        /* the lock of a directory goes last */
        return fstatat(watch->directory.fd, "owner", &status, AT_SYMLINK_NOFOLLOW) == 0 ? VARVE_WATCH_DEAD
                                                                                        : VARVE_WATCH_ENDED;
    }
    struct session_control control;
    return pread(watch->session_fd, &control, sizeof(control), 0) == (ssize_t)sizeof(control) &&
                   control.state == SESSION_STATE_CLOSED
               ? VARVE_WATCH_FINISHING
               : VARVE_WATCH_RECORDING;
}

static bool watch_read_all(int fd, char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(fd, bytes + done, count - done, (off_t)done);
        if (got <= 0 && (got == 0 || errno != EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

void *varve_watch_read(const struct varve_watch *watch, size_t *bytes_out)
{
    int fd = session_file_open(&watch->directory, FILE_LIVE, O_RDONLY);
    *bytes_out = 0;
    char *bytes = NULL;
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0 && status.st_size <= LIVE_BYTES_MAX) {
        bytes = malloc((size_t)status.st_size);
        if (bytes != NULL && !watch_read_all(fd, bytes, (size_t)status.st_size)) {
            free(bytes);
            bytes = NULL;
        }
        *bytes_out = bytes != NULL ? (size_t)status.st_size : 0;
    }
    session_descriptor_close(&fd);
    return bytes;
}

bool varve_watch_torch(const struct varve_watch *watch, struct varve_watch_torch *torch_out)
{
    int fd = session_file_open(&watch->directory, ATTACH_TORCH_NOW, O_RDONLY);
    struct stat status;
    struct timespec now;
    const bool is_there = fd >= 0 && fstat(fd, &status) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0;
    session_descriptor_close(&fd);
    if (!is_there) {
        return false;
    }
    snprintf(torch_out->path, sizeof(torch_out->path), "%s/" ATTACH_TORCH_NOW, watch->directory.path);
    torch_out->bytes = (uint64_t)status.st_size;
    torch_out->written_ns = (int64_t)status.st_mtim.tv_sec * SECOND_NS + status.st_mtim.tv_nsec;
    const int64_t age_ns = (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec - torch_out->written_ns;
    torch_out->age_ns = age_ns > 0 ? age_ns : 0; /* the clock may have been set */
    return true;
}

const char *varve_watch_directory(const struct varve_watch *watch)
{
    return watch->directory.path;
}

void varve_watch_close(struct varve_watch *watch)
{
    if (watch != NULL) {
        session_descriptor_close(&watch->fd);
        session_descriptor_close(&watch->session_fd);
        session_directory_close(&watch->directory);
        free(watch);
    }
}

/* ---- which recordings there are ---- */

struct search {
    char **paths;
    size_t count, limit;
};

static void search_add(struct search *search, const char *path)
{
    for (size_t i = 0; i < search->count; i++) {
        if (strcmp(search->paths[i], path) == 0) {
            return;
        }
    }
    if (search->count < search->limit) {
        search->paths[search->count] = strdup(path);
        search->count += search->paths[search->count] != NULL;
    }
}

/* The collector holds `owner` in its directory open; watchers and programs that are recorded do not. */
static bool search_descriptors(void *context, int32_t pid)
{
    static const char owner[] = ".d/owner";
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    char target[DIRECTORY_PATH_BYTES];
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (length >= (ssize_t)sizeof(owner) && strcmp(target + length - (ssize_t)(sizeof(owner) - 1), owner) == 0) {
            target[length - (ssize_t)strlen("/owner")] = '\0';
            search_add(context, target);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return false; /* there may be others */
}

/* A process that is recorded has the session page mapped: one that was attached to has nothing else of it. */
static void search_mapped(struct search *search, int32_t pid)
{
    struct session_mapped mapped;
    if (session_mapped_find(pid, &mapped) && mapped.directory[0] != '\0') {
        search_add(search, mapped.directory);
    }
}

/* A program that is started to be recorded has the directory in its environment, also where it has not
 * mapped anything. */
static void search_environment(struct search *search, int32_t pid)
{
    char directory[DIRECTORY_PATH_BYTES];
    if (proc_file_variable(pid, SESSION_ENVIRONMENT, directory, sizeof(directory))) {
        search_add(search, directory);
    }
}

size_t varve_watch_find(int32_t pid, char **paths, size_t limit)
{
    struct search search = {.paths = paths, .limit = limit};
    if (pid == 0) {
        (void)proc_file_search(0, search_descriptors, &search);
        return search.count;
    }
    search_descriptors(&search, pid);
    if (search.count == 0) {
        search_mapped(&search, pid);
    }
    if (search.count == 0) {
        search_environment(&search, pid);
    }
    return search.count;
}
