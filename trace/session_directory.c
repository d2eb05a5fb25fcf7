/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRACE.db.d, the recording directory: made when a recording starts, adopted when it must be recovered,
 * removed when its database is complete. Layout: session_internal.h. The lock on `owner` tells a living
 * collector from a dead one, whatever its pid has become since.
 */
#include "trace/collector_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SHARED_MEMORY "/dev/shm"
#define SHARED_MEMORY_MIN_BYTES (UINT64_C(64) << 20) /* below that, rings are better off on the disk */

static int from_errno(void)
{
    switch (errno) {
    case EACCES:
    case EPERM:
    case EROFS:
        return VARVE_ERROR_PERMISSION;
    case ENOENT:
    case ENOTDIR:
        return VARVE_ERROR_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return VARVE_ERROR_FULL;
    default:
        return VARVE_ERROR_IO;
    }
}

static int fail(struct varve_message *message, const char *what, const char *path)
{
    int error = from_errno();

    return varve_message_set(message, error, "cannot %s %s: %s", what, path, strerror(errno));
}

static int lock_owner(struct session_directory *directory, bool create, struct varve_message *message)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    char text[32];
    int length;

    snprintf(path, sizeof(path), "%s/owner", directory->path);
    directory->owner_fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
    if (directory->owner_fd < 0) {
        return fail(message, "open", path);
    }
    if (flock(directory->owner_fd, LOCK_EX | LOCK_NB) != 0) {
        close(directory->owner_fd);
        directory->owner_fd = -1;
        return varve_message_set(message, VARVE_ERROR_BUSY, "%s is being recorded into by another process",
                                 directory->path);
    }
    length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (pwrite(directory->owner_fd, text, (size_t)length, 0) != length) {
        return fail(message, "write", path);
    }
    return VARVE_OK;
}

static bool shared_memory_has_room(void)
{
    struct statvfs status;

    return statvfs(SHARED_MEMORY, &status) == 0 &&
           (uint64_t)status.f_bavail * status.f_bsize >= SHARED_MEMORY_MIN_BYTES;
}

/* ring -> /dev/shm/varve-UID-ID, or a real folder. */
static int make_ring_folder(struct session_directory *directory, uint64_t trace_id,
                            struct varve_message *message)
{
    char link[DIRECTORY_PATH_BYTES + 16];

    snprintf(link, sizeof(link), "%s/ring", directory->path);
    if (shared_memory_has_room()) {
        snprintf(directory->rings, sizeof(directory->rings), SHARED_MEMORY "/varve-%u-%016llx",
                 (unsigned)getuid(), (unsigned long long)trace_id);
        if (mkdir(directory->rings, 0700) == 0) {
            if (symlink(directory->rings, link) == 0) {
                return VARVE_OK;
            }
            rmdir(directory->rings);
        }
    }
    snprintf(directory->rings, sizeof(directory->rings), "%.*s", (int)sizeof(directory->rings) - 1, link);
    return mkdir(link, 0700) == 0 ? VARVE_OK : fail(message, "make", link);
}

/* NULL and `error_out` on failure. */
static void *map_page(const struct session_directory *directory, const char *name, size_t bytes, bool create,
                      int *error_out, struct varve_message *message)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    struct stat status;
    void *page;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", directory->rings, name);
    fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
    if (fd < 0) {
        *error_out = fail(message, "open", path);
        return NULL;
    }
    if (create && (errno = posix_fallocate(fd, 0, (off_t)bytes)) != 0) {
        close(fd);
        *error_out = fail(message, "make", path);
        return NULL;
    }
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)bytes) {
        close(fd);
        *error_out = varve_message_set(message, VARVE_ERROR_FORMAT,
                                       "%s is cut short: no recording directory", path);
        return NULL;
    }
    page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) {
        *error_out = fail(message, "map", path);
        return NULL;
    }
    return page;
}

static int map_session(struct session_directory *directory, bool create, struct varve_message *message)
{
    int error = VARVE_OK;

    directory->control = map_page(directory, "session", SESSION_CONTROL_BYTES, create, &error, message);
    if (directory->control != NULL) {
        directory->counts = map_page(directory, "counts", SESSION_COUNTS_BYTES, create, &error, message);
    }
    if (error != VARVE_OK && directory->control != NULL) {
        munmap(directory->control, SESSION_CONTROL_BYTES);
        directory->control = NULL;
    }
    return error;
}

static int absolute_path(const char *path, char *absolute, size_t bytes)
{
    char here[DIRECTORY_PATH_BYTES] = "";
    int length;

    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return VARVE_ERROR_IO;
    }
    length = path[0] == '/' ? snprintf(absolute, bytes, "%s", path)
                            : snprintf(absolute, bytes, "%s/%s", here, path);
    return length >= 0 && (size_t)length < bytes ? VARVE_OK : VARVE_ERROR_INVALID;
}

static int make_folder(struct session_directory *directory, struct varve_message *message)
{
    if (mkdir(directory->path, 0700) == 0) {
        return VARVE_OK;
    }
    if (errno == EEXIST) {
        int error = lock_owner(directory, false, message);
        if (error != VARVE_OK) {
            return varve_message_set(
                message, VARVE_ERROR_BUSY,
                "%s is in use by another recorder (or not a recording directory): choose another -o",
                directory->path);
        }
        close(directory->owner_fd);
        directory->owner_fd = -1;
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s holds an unfinished recording: run `varve recover %s`, or remove it",
                                 directory->path, directory->path);
    }
    return fail(message, "make", directory->path);
}

int session_directory_create(struct session_directory *directory, const char *database_path,
                             const struct session_control *settings, struct varve_message *message)
{
    char path[DIRECTORY_PATH_BYTES];
    int error;

    memset(directory, 0, sizeof(*directory));
    directory->owner_fd = -1;
    if (absolute_path(database_path, path, sizeof(path) - 8) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", database_path);
    }
    snprintf(directory->path, sizeof(directory->path), "%.*s.d", (int)sizeof(path) - 8, path);
    error = make_folder(directory, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = lock_owner(directory, true, message);
    if (error == VARVE_OK) {
        error = make_ring_folder(directory, settings->trace_id, message);
    }
    if (error == VARVE_OK) {
        error = map_session(directory, true, message);
    }
    if (error != VARVE_OK) {
        session_directory_remove(directory);
        return error;
    }
    *directory->control = *settings;
    directory->control->version = VARVE_TRANSPORT_VERSION;
    directory->control->collector_pid = (int32_t)getpid();
    directory->control->state = SESSION_STATE_RECORDING;
    __atomic_store_n(&directory->control->magic, SESSION_MAGIC, __ATOMIC_RELEASE);
    return VARVE_OK;
}

static int adopt_rings(struct session_directory *directory, struct varve_message *message)
{
    char link[DIRECTORY_PATH_BYTES + 16];
    ssize_t length;
    int error;

    snprintf(link, sizeof(link), "%s/ring", directory->path);
    length = readlink(link, directory->rings, sizeof(directory->rings) - 1);
    if (length >= 0) {
        directory->rings[length] = '\0';
    } else {
        snprintf(directory->rings, sizeof(directory->rings), "%.*s", (int)sizeof(directory->rings) - 1, link);
    }
    error = map_session(directory, false, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (directory->control->magic != SESSION_MAGIC) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s is not a recording directory",
                                 directory->path);
    }
    if (directory->control->version != VARVE_TRANSPORT_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s was recorded by another version of varve (transport %u, this is %u)",
                                 directory->path, directory->control->version, VARVE_TRANSPORT_VERSION);
    }
    return VARVE_OK;
}

int session_directory_adopt(struct session_directory *directory, const char *path,
                            struct varve_message *message)
{
    char owner[DIRECTORY_PATH_BYTES + 16];
    struct stat status;
    int error;

    memset(directory, 0, sizeof(*directory));
    directory->owner_fd = -1;
    if (absolute_path(path, directory->path, sizeof(directory->path) - 16) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    for (size_t length = strlen(directory->path); length > 1 && directory->path[length - 1] == '/';
         length--) {
        directory->path[length - 1] = '\0';
    }
    if (stat(directory->path, &status) != 0) {
        return fail(message, "find", directory->path);
    }
    snprintf(owner, sizeof(owner), "%s/owner", directory->path);
    if (!S_ISDIR(status.st_mode) || access(owner, F_OK) != 0) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is not a recording directory (those are named TRACE.db.d)",
                                 directory->path);
    }
    error = lock_owner(directory, false, message);
    if (error == VARVE_OK) {
        error = adopt_rings(directory, message);
    }
    if (error == VARVE_ERROR_NOT_FOUND) {
        error = VARVE_OK; /* they went first when a recording was being closed: `control` stays NULL */
    }
    if (error != VARVE_OK) {
        session_directory_close(directory);
    }
    return error;
}

/* What a recording leaves in its folders, but for the lock and the database. */
static bool is_scrap(const char *name)
{
    static const char *const names[] = {"session", "counts", "allocations"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return name[0] == 'p' && name[1] >= '0' && name[1] <= '9';
}

static void remove_scraps(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    if (folder == NULL) {
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (is_scrap(entry->d_name)) {
            unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    closedir(folder);
}

void session_directory_clear(struct session_directory *directory)
{
    char link[DIRECTORY_PATH_BYTES + 16];

    if (directory->rings[0] != '\0') {
        remove_scraps(directory->rings);
        rmdir(directory->rings);
    }
    snprintf(link, sizeof(link), "%s/ring", directory->path);
    unlink(link);
    remove_scraps(directory->path);
}

/* The lock goes last: a folder without it is not taken for a recording any more. */
void session_directory_remove(struct session_directory *directory)
{
    static const char *const names[] = {"trace.db-wal", "trace.db-shm", "trace.db-journal", "trace.db",
                                        "owner"};
    char path[DIRECTORY_PATH_BYTES + 32];

    session_directory_clear(directory);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory->path, names[i]);
        unlink(path);
    }
    rmdir(directory->path);
    session_directory_close(directory);
}

void session_directory_close(struct session_directory *directory)
{
    if (directory->control != NULL) {
        munmap(directory->control, SESSION_CONTROL_BYTES);
        directory->control = NULL;
    }
    if (directory->counts != NULL) {
        munmap(directory->counts, SESSION_COUNTS_BYTES);
        directory->counts = NULL;
    }
    if (directory->owner_fd >= 0) {
        close(directory->owner_fd);
        directory->owner_fd = -1;
    }
}
