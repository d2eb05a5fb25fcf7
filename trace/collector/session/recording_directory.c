/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRACE.db.d, the recording directory: made when a recording starts, adopted when it must be recovered,
 * removed when its database is complete. Layout: format/session_format.h. The lock on `owner` distinguishes a living
 * collector from a dead one, whatever its pid has become since.
 *
 * A directory that is adopted may have been prepared by anybody. So its files are opened by name below a
 * descriptor of it, no link is followed, and all must be plain files of this user with one name, in folders
 * that nobody else can enter. One link is as it should be: `ring`, if it names the folder in shared memory
 * that belongs to the number in `owner`. Anything else is refused before anything is changed, and only names
 * that a recording gives are ever removed.
 */
#include "trace/collector/session/recording_directory.h"

#include "base/grown_array.h"
#include "trace/format/attach_format.h"
#include "base/error.h"
#include "base/file_error.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

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
#define OWNER_BYTES 64U                              /* of the file `owner`, at most */
#define SHARED_MEMORY_MIN_BYTES (UINT64_C(64) << 20) /* below that, rings are better off on the disk */

static int recording_directory_fail(struct varve_message *message, const char *what, const char *path)
{
    int error = file_error(errno);
    return varve_message_set(message, error, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- files ---- */

static bool recording_directory_is_ours(const struct stat *status, mode_t type)
{
    return (status->st_mode & S_IFMT) == type && status->st_uid == geteuid() &&
           (type == S_IFDIR ? (status->st_mode & (S_IRWXG | S_IRWXO)) == 0 : status->st_nlink == 1);
}

/* One below it, whose mode LTTng has chosen. */
static bool is_our_folder(const struct stat *status)
{
    return S_ISDIR(status->st_mode) && status->st_uid == geteuid();
}

/* What came of an open: -1 and errno if it is not ours. */
static int only_ours(int fd, mode_t type)
{
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) != 0 || !recording_directory_is_ours(&status, type))) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

static int recording_directory_open_folder(int folder, const char *name)
{
    return only_ours(openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), S_IFDIR);
}

static int open_below(int folder, const char *name, int flags)
{
    return only_ours(openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600), S_IFREG);
}

int session_file_open(const struct session_directory *directory, const char *name, int flags)
{
    int fd = open_below(directory->rings_fd, name, flags);
    return fd < 0 && (errno == ENOENT || errno == EBADF) ? open_below(directory->fd, name, flags) : fd;
}

void session_descriptor_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* What the reserve holds of the kind that a name stands for; RESERVE_STATE_EMPTY: of this kind nothing. */
static enum reserve_state reserve_kind(const char *name, struct session_file *file)
{
    if (!session_file_parse(name, file)) {
        return RESERVE_STATE_EMPTY;
    }
    return file->kind == SESSION_FILE_PROCESS ? RESERVE_STATE_PROCESS
           : file->kind == SESSION_FILE_RING  ? RESERVE_STATE_RING
                                              : RESERVE_STATE_EMPTY;
}

static void *map_reserved(const struct session_directory *directory, const char *name, int flags, size_t bytes,
                          size_t *bytes_out)
{
    struct session_file file;
    const enum reserve_state kind = reserve_kind(name, &file);
    uint64_t offset;
    if (kind == RESERVE_STATE_EMPTY ||
        !session_reserve_find(&directory->reserve, kind, file.process, file.ring, &offset)) {
        errno = ENOENT;
        return NULL;
    }
    bytes = bytes_out != NULL ? RESERVE_SLOT_BYTES : bytes;
    void *memory = mmap(NULL, bytes, flags == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED,
                        directory->reserve.fd, (off_t)offset);
    if (bytes_out != NULL) {
        *bytes_out = bytes;
    }
    return memory == MAP_FAILED ? NULL : memory;
}

void *session_file_map(const struct session_directory *directory, const char *name, int flags, size_t bytes,
                       size_t *bytes_out, int *fd_out)
{
    int fd = session_file_open(directory, name, flags);
    if (fd < 0 && errno == ENOENT) {
        if (fd_out != NULL) {
            *fd_out = -1;
        }
        return map_reserved(directory, name, flags, bytes, bytes_out);
    }
    void *memory = MAP_FAILED;
    struct stat status = {0};
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size >= (off_t)bytes) {
        bytes = bytes_out != NULL ? (size_t)status.st_size : bytes;
        memory = mmap(NULL, bytes, flags == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED && fd >= 0) {
        session_descriptor_close(&fd);
        errno = status.st_size == 0 ? ENOENT : EPERM; /* empty: whoever makes it was killed in between */
    }
    if (bytes_out != NULL) {
        *bytes_out = bytes;
    }
    if (fd_out != NULL) {
        *fd_out = fd;
    } else {
        session_descriptor_close(&fd);
    }
    return memory == MAP_FAILED ? NULL : memory;
}

bool session_file_size(const struct session_directory *directory, const char *name, uint64_t *bytes, bool *is_in_rings)
{
    struct stat status;
    *is_in_rings = fstatat(directory->rings_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*is_in_rings && fstatat(directory->fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return false;
    }
    *bytes = (uint64_t)status.st_size;
    return true;
}

void session_file_remove(const struct session_directory *directory, const char *name)
{
    struct session_file file;
    const enum reserve_state kind = reserve_kind(name, &file);
    if (unlinkat(directory->rings_fd, name, 0) != 0 && unlinkat(directory->fd, name, 0) != 0 &&
        kind != RESERVE_STATE_EMPTY) {
        session_reserve_release(&directory->reserve, kind, file.process, file.ring);
    }
}

/* ---- names ---- */

/* As the recorder writes it: no sign, no zero in front; `end` behind it. */
static bool parse_number(const char *text, uint32_t limit, uint32_t *number, const char **end)
{
    if (text[0] < '0' || text[0] > '9' || (text[0] == '0' && text[1] >= '0' && text[1] <= '9')) {
        return false;
    }
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9' && value <= limit; text++) {
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *number = (uint32_t)value;
    *end = text;
    return value <= limit;
}

/* ".spill" and the number of a piece, from 1 on. */
static bool is_piece(const char *rest)
{
    uint32_t piece;
    return strncmp(rest, ".spill", 6) == 0 && parse_number(rest + 6, UINT32_MAX, &piece, &rest) && piece > 0 &&
           rest[0] == '\0';
}

bool session_file_parse(const char *name, struct session_file *file_out)
{
    struct session_file file = {.kind = SESSION_FILE_PROCESS};
    const char *rest;
    if (name[0] != 'p' || !parse_number(name + 1, SESSION_PROCESS_MAX, &file.process, &rest) || file.process == 0) {
        return false;
    }
    if (strcmp(rest, ".sites") == 0) {
        file.kind = SESSION_FILE_CALLSITES;
    } else if (rest[0] != '\0') {
        if (rest[0] != '.' || rest[1] != 'r' || !parse_number(rest + 2, SESSION_RING_MAX, &file.ring, &rest) ||
            (rest[0] != '\0' && !is_piece(rest) && strcmp(rest, ".staging") != 0)) {
            return false;
        }
        file.kind = rest[0] == '\0'                 ? SESSION_FILE_RING
                    : strcmp(rest, ".staging") == 0 ? SESSION_FILE_STAGING
                                                    : SESSION_FILE_SPILL;
    }
    *file_out = file;
    return true;
}

/* What an entry of a recording's folders is. */
enum {
    ENTRY_SCRAP = 1,    /* of no use once the database is finished */
    ENTRY_FRAME = 2,    /* there before anything is recorded, or only for who watches */
    ENTRY_DATABASE = 4, /* or what SQLite keeps beside it */
    ENTRY_OUTSIDE = 8,  /* known in the recording directory itself only */
    ENTRY_FOLDER = 16,
    ENTRY_PIPE = 32,
};

/* In the order in which they are removed: a folder without the lock is not taken for a recording any more. */
static const struct {
    const char *name;
    unsigned traits;
} entries[] = {
    {"session", ENTRY_SCRAP | ENTRY_FRAME},
    {"counts", ENTRY_SCRAP | ENTRY_FRAME},
    {"watch", ENTRY_SCRAP | ENTRY_FRAME},
    {"live.json", ENTRY_SCRAP | ENTRY_FRAME},
    {"live.json.new", ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_VARIABLES, ENTRY_FRAME | ENTRY_OUTSIDE},
    {ATTACH_TORCH_ASK, ENTRY_SCRAP | ENTRY_FRAME | ENTRY_PIPE},
    {ATTACH_TORCH_ANSWER, ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_TORCH_ANSWER ".tmp", ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_TORCH_HISTORY ".tmp", ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_TORCH_HISTORY ".new", ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_TORCH_HISTORY, ENTRY_OUTSIDE},
    {ATTACH_TORCH_PASSES, ENTRY_FRAME | ENTRY_OUTSIDE},
    {ATTACH_TORCH_NOW, ENTRY_SCRAP | ENTRY_FRAME},
    {ATTACH_TORCH_NOW ".tmp", ENTRY_SCRAP | ENTRY_FRAME},
    {"allocations", ENTRY_SCRAP},
    {"trace.db-events", ENTRY_SCRAP},
    {"trace.db-rows", ENTRY_SCRAP},
    {"trace.db-whole", ENTRY_SCRAP},
    {"ctf", ENTRY_FOLDER},
    {"trace.db-wal", ENTRY_DATABASE},
    {"trace.db-shm", ENTRY_DATABASE},
    {"trace.db-journal", ENTRY_DATABASE},
    {"trace.db", ENTRY_DATABASE},
    {"allocations.blocks", ENTRY_OUTSIDE},
    {"owner", ENTRY_FRAME | ENTRY_OUTSIDE},
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* 0: nothing that a recording has a name for. */
static unsigned traits_of(const char *name)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(name, entries[i].name) == 0) {
            return entries[i].traits;
        }
    }
    struct session_file file;
    return session_file_parse(name, &file) ? ENTRY_SCRAP : 0;
}

/* ---- the owner ---- */

/* Pid and trace id, as wide every time: written over another one it leaves nothing of that. */
static int write_owner(const struct session_directory *directory, struct varve_message *message)
{
    char text[OWNER_BYTES];
    int length =
        snprintf(text, sizeof(text), "%11ld %016llx\n", (long)getpid(), (unsigned long long)directory->trace_id);
    return pwrite(directory->owner_fd, text, (size_t)length, 0) == length
               ? VARVE_OK
               : recording_directory_fail(message, "write", directory->path);
}

/* An empty file is of one that was killed at once. */
bool session_owner_read(int fd, uint64_t *trace_id_out)
{
    char text[OWNER_BYTES + 1];
    ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    unsigned long long trace_id = 0;
    long pid = 0;
    int used = 0;
    if (length != 0 &&
        (sscanf(text, "%11ld %16llx%n", &pid, &trace_id, &used) != 2 || strcmp(text + used, "\n") != 0)) {
        return false;
    }
    *trace_id_out = trace_id;
    return true;
}

static bool read_owner(struct session_directory *directory)
{
    return session_owner_read(directory->owner_fd, &directory->trace_id);
}

static int recording_directory_lock_owner(struct session_directory *directory, bool create,
                                          struct varve_message *message)
{
    directory->owner_fd = open_below(directory->fd, "owner", O_RDWR | (create ? O_CREAT | O_EXCL : 0));
    if (directory->owner_fd < 0) {
        return create ? recording_directory_fail(message, "make the lock of", directory->path) : VARVE_ERROR_FORMAT;
    }
    if (flock(directory->owner_fd, LOCK_EX | LOCK_NB) != 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "%s is being recorded into by another process",
                                 directory->path);
    }
    return create || read_owner(directory) ? VARVE_OK : VARVE_ERROR_FORMAT;
}

/* ---- making ---- */

static bool shared_memory_has_room(void)
{
    struct statvfs status;
    return statvfs(SHARED_MEMORY, &status) == 0 &&
           (uint64_t)status.f_bavail * status.f_bsize >= SHARED_MEMORY_MIN_BYTES;
}

static void name_shared_folder(const struct session_directory *directory, char *path, size_t bytes)
{
    snprintf(path, bytes, SHARED_MEMORY "/varve-%u-%016llx", (unsigned)geteuid(),
             (unsigned long long)directory->trace_id);
}

/* ring -> /dev/shm/varve-UID-ID, or a real folder. */
static int make_ring_folder(struct session_directory *directory, struct varve_message *message)
{
    if (shared_memory_has_room()) {
        name_shared_folder(directory, directory->rings, sizeof(directory->rings));
        if (mkdir(directory->rings, 0700) == 0) {
            directory->rings_fd = recording_directory_open_folder(AT_FDCWD, directory->rings);
            if (directory->rings_fd >= 0 && symlinkat(directory->rings, directory->fd, "ring") == 0) {
                return VARVE_OK;
            }
            rmdir(directory->rings);
        }
    }
    snprintf(directory->rings, sizeof(directory->rings), "%.*s/ring", (int)sizeof(directory->rings) - 8,
             directory->path);
    session_descriptor_close(&directory->rings_fd);
    directory->rings_fd =
        mkdirat(directory->fd, "ring", 0700) == 0 ? recording_directory_open_folder(directory->fd, "ring") : -1;
    return directory->rings_fd >= 0 ? VARVE_OK : recording_directory_fail(message, "make", directory->rings);
}

/* NULL and `error_out` on failure. */
static void *map_page(const struct session_directory *directory, const char *name, size_t bytes, bool create,
                      int *error_out, struct varve_message *message)
{
    int fd = open_below(directory->rings_fd, name, O_RDWR | (create ? O_CREAT | O_EXCL : 0));
    if (fd < 0) {
        *error_out = recording_directory_fail(message, "open a page of", directory->rings);
        return NULL;
    }
    if (create && (errno = posix_fallocate(fd, 0, (off_t)bytes)) != 0) {
        close(fd);
        *error_out = recording_directory_fail(message, "make a page of", directory->rings);
        return NULL;
    }
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)bytes) {
        close(fd);
        *error_out = varve_message_set(message, VARVE_ERROR_FORMAT, "%s/%s is cut short: no recording directory",
                                       directory->rings, name);
        return NULL;
    }
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) {
        *error_out = recording_directory_fail(message, "map a page of", directory->rings);
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
    directory->reserve.fd = directory->counts != NULL ? open_below(directory->rings_fd, "counts", O_RDWR) : -1;
    if (directory->reserve.fd >= 0) {
        directory->reserve.counts = directory->counts;
        directory->reserve.used = create ? 0 : RESERVE_SLOTS;
    }
    return error;
}

static int absolute_path(const char *path, char *absolute, size_t bytes)
{
    char here[DIRECTORY_PATH_BYTES] = "";
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return VARVE_ERROR_IO;
    }
    int length =
        path[0] == '/' ? snprintf(absolute, bytes, "%s", path) : snprintf(absolute, bytes, "%s/%s", here, path);
    return length >= 0 && (size_t)length < bytes ? VARVE_OK : VARVE_ERROR_INVALID;
}

/* Something has the name already: say what. Nothing of it is changed. */
static int explain_taken(struct session_directory *directory, struct varve_message *message)
{
    directory->fd = recording_directory_open_folder(AT_FDCWD, directory->path);
    int error = VARVE_ERROR_FORMAT;
    if (directory->fd >= 0) {
        error = recording_directory_lock_owner(directory, false, message);
    }
    session_directory_close(directory);
    if (error == VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s holds an unfinished recording: run `varve recover %s`, or remove it",
                                 directory->path, directory->path);
    }
    return varve_message_set(message, VARVE_ERROR_BUSY,
                             error == VARVE_ERROR_BUSY
                                 ? "%s is in use by another recorder: choose another -o"
                                 : "%s exists, and is no recording directory of yours: choose another -o",
                             directory->path);
}

static int make_folder(struct session_directory *directory, struct varve_message *message)
{
    if (mkdir(directory->path, 0700) != 0) {
        return errno == EEXIST ? explain_taken(directory, message)
                               : recording_directory_fail(message, "make", directory->path);
    }
    directory->fd = recording_directory_open_folder(AT_FDCWD, directory->path);
    return directory->fd >= 0 ? VARVE_OK : recording_directory_fail(message, "open", directory->path);
}

static void recording_directory_begin(struct session_directory *directory)
{
    memset(directory, 0, sizeof(*directory));
    directory->fd = directory->rings_fd = directory->owner_fd = directory->watch_fd = directory->reserve.fd = -1;
}

int session_directory_create(struct session_directory *directory, const char *database_path,
                             const struct session_control *settings, struct varve_message *message)
{
    recording_directory_begin(directory);
    char path[DIRECTORY_PATH_BYTES];
    if (absolute_path(database_path, path, sizeof(path) - 8) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", database_path);
    }
    snprintf(directory->path, sizeof(directory->path), "%.*s.d", (int)sizeof(path) - 8, path);
    directory->trace_id = settings->trace_id;
    int error = make_folder(directory, message);
    if (error != VARVE_OK) {
        return error;
    }
    error = recording_directory_lock_owner(directory, true, message);
    VARVE_THEN(error, write_owner(directory, message));
    VARVE_THEN(error, make_ring_folder(directory, message));
    VARVE_THEN(error, map_session(directory, true, message));
    if (error != VARVE_OK) {
        session_directory_remove(directory);
        return error;
    }
    *directory->control = *settings;
    directory->control->version = VARVE_TRANSPORT_VERSION;
    directory->control->collector_pid = (int32_t)getpid();
    directory->control->state = SESSION_STATE_RECORDING;
    __atomic_store_n(&directory->control->magic, SESSION_MAGIC, __ATOMIC_RELEASE);
    session_reserve_fill(&directory->reserve);
    return VARVE_OK;
}

/* ---- adopting ---- */

static int recording_directory_refuse(const struct session_directory *directory, const char *why,
                                      struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_FORMAT,
                             "%s is not a recording directory (those are named TRACE.db.d): %s", directory->path, why);
}

/* A folder of it, for its entries: the caller closes it, the descriptor stays. */
static DIR *recording_directory_list(int fd)
{
    int copy = fd >= 0 ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    if (folder == NULL && copy >= 0) {
        close(copy);
    }
    return folder;
}

static bool is_as_made(const struct stat *status, unsigned traits)
{
    return (traits & ENTRY_FOLDER) != 0
               ? is_our_folder(status)
               : recording_directory_is_ours(status, (traits & ENTRY_PIPE) != 0 ? S_IFIFO : S_IFREG);
}

/* What a recording has names for must be what a recording makes; what else lies there is not touched.
 * `*has_data`: there is something to be recovered. */
static int check_entries(const struct session_directory *directory, int fd, bool *has_data,
                         struct varve_message *message)
{
    DIR *folder = recording_directory_list(fd);
    const struct dirent *entry;
    int error = folder != NULL ? VARVE_OK : recording_directory_fail(message, "read", directory->path);
    while (error == VARVE_OK && (entry = readdir(folder)) != NULL) {
        const unsigned traits = traits_of(entry->d_name);
        const bool is_known = traits != 0 && ((traits & ENTRY_OUTSIDE) == 0 || fd == directory->fd);
        struct stat status;
        if (is_known &&
            (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !is_as_made(&status, traits))) {
            error = varve_message_set(message, VARVE_ERROR_FORMAT,
                                      "%s: %s in it is a link, or not a file of this user alone: nothing was "
                                      "changed",
                                      directory->path, entry->d_name);
        }
        *has_data = *has_data || (is_known && (traits & ENTRY_FRAME) == 0);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return error;
}

/* `rings_fd` stays -1 if the folder is gone: it goes first when a recording is closed, and with a reboot. */
static int open_rings(struct session_directory *directory, struct varve_message *message)
{
    char target[DIRECTORY_PATH_BYTES];
    ssize_t length = readlinkat(directory->fd, "ring", target, sizeof(target) - 1);
    if (length >= 0) {
        target[length] = '\0';
        name_shared_folder(directory, directory->rings, sizeof(directory->rings));
        if (strcmp(target, directory->rings) != 0) {
            return recording_directory_refuse(directory, "its `ring` is a link to somewhere else", message);
        }
        directory->rings_fd = recording_directory_open_folder(AT_FDCWD, directory->rings);
    } else {
        snprintf(directory->rings, sizeof(directory->rings), "%.*s/ring", (int)sizeof(directory->rings) - 8,
                 directory->path);
        directory->rings_fd = recording_directory_open_folder(directory->fd, "ring");
    }
    return directory->rings_fd >= 0 || errno == ENOENT
               ? VARVE_OK
               : recording_directory_refuse(directory, "its rings are not in a folder of this user alone", message);
}

static void unmap_session(struct session_directory *directory)
{
    if (directory->control != NULL) {
        munmap(directory->control, SESSION_CONTROL_BYTES);
        directory->control = NULL;
    }
    if (directory->counts != NULL) {
        munmap(directory->counts, SESSION_COUNTS_BYTES);
        directory->counts = NULL;
        directory->reserve.counts = NULL;
        session_descriptor_close(&directory->reserve.fd);
    }
}

static int adopt_session(struct session_directory *directory, struct varve_message *message)
{
    int error = map_session(directory, false, message);
    if (error == VARVE_ERROR_NOT_FOUND) {
        return VARVE_OK; /* it went before: `control` stays NULL */
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (directory->control->magic == 0 && directory->is_empty) {
        unmap_session(directory); /* it was about to be made */
        return VARVE_OK;
    }
    if (directory->control->magic != SESSION_MAGIC || directory->control->trace_id != directory->trace_id) {
        return recording_directory_refuse(directory, "its session page belongs to another recording, or is damaged",
                                          message);
    }
    if (directory->control->version != VARVE_TRANSPORT_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s was recorded by another version of varve (transport %u, this is %u)",
                                 directory->path, directory->control->version, VARVE_TRANSPORT_VERSION);
    }
    return VARVE_OK;
}

static int adopt(struct session_directory *directory, struct varve_message *message)
{
    bool has_data = false;
    int error = check_entries(directory, directory->fd, &has_data, message);
    if (error == VARVE_OK) {
        error = recording_directory_lock_owner(directory, false, message);
        error = error == VARVE_ERROR_FORMAT
                    ? recording_directory_refuse(directory, "it was not made by varve record", message)
                    : error;
    }
    VARVE_THEN(error, open_rings(directory, message));
    if (error == VARVE_OK && directory->rings_fd >= 0) {
        error = check_entries(directory, directory->rings_fd, &has_data, message);
    }
    directory->is_empty = !has_data;
    if (error == VARVE_OK && directory->rings_fd >= 0) {
        error = adopt_session(directory, message);
    }
    return error == VARVE_OK ? write_owner(directory, message) : error;
}

static int explain_refusal(const struct session_directory *directory, struct varve_message *message)
{
    switch (errno) {
    case EPERM:
        return recording_directory_refuse(directory, "it belongs to another user, or its mode is not 0700", message);
    case ELOOP:
    case ENOTDIR:
        return recording_directory_refuse(directory, "it is a link or a file", message);
    default:
        return recording_directory_fail(message, "find", directory->path);
    }
}

/* The folder itself, of this user. */
static int open_existing(struct session_directory *directory, const char *path, struct varve_message *message)
{
    recording_directory_begin(directory);
    if (absolute_path(path, directory->path, sizeof(directory->path) - 16) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s is too long", path);
    }
    for (size_t length = strlen(directory->path); length > 1 && directory->path[length - 1] == '/'; length--) {
        directory->path[length - 1] = '\0';
    }
    directory->fd = recording_directory_open_folder(AT_FDCWD, directory->path);
    if (directory->fd < 0) {
        return explain_refusal(directory, message);
    }
    return VARVE_OK;
}

int session_directory_look(struct session_directory *directory, const char *path, struct varve_message *message)
{
    int error = open_existing(directory, path, message);
    if (error == VARVE_OK) {
        directory->owner_fd = open_below(directory->fd, "owner", O_RDONLY);
        if (directory->owner_fd < 0 || !read_owner(directory)) {
            error = recording_directory_refuse(directory, "it was not made by varve record", message);
        }
        session_descriptor_close(&directory->owner_fd);
    }
    VARVE_THEN(error, open_rings(directory, message));
    if (error != VARVE_OK) {
        session_directory_close(directory);
    }
    return error;
}

int session_directory_adopt(struct session_directory *directory, const char *path, struct varve_message *message)
{
    int error = open_existing(directory, path, message);
    VARVE_THEN(error, adopt(directory, message));
    if (error != VARVE_OK) {
        session_directory_close(directory);
    }
    return error;
}

/* ---- what is there ---- */

static int compare_files(const void *a_untyped, const void *b_untyped)
{
    const struct session_file *a = a_untyped, *b = b_untyped;
    if (a->process != b->process) {
        return a->process < b->process ? -1 : 1;
    }
    if (a->ring != b->ring) {
        return a->ring < b->ring ? -1 : 1;
    }
    return (int)a->kind - (int)b->kind;
}

static int scan(int fd, struct session_file **files, size_t *capacity, size_t *count)
{
    DIR *folder = recording_directory_list(fd);
    const struct dirent *entry;
    int error = folder != NULL || fd < 0 ? VARVE_OK : VARVE_ERROR_IO; /* < 0: there is none */
    while (folder != NULL && error == VARVE_OK && (entry = readdir(folder)) != NULL) {
        if (!ARRAY_GROW(*files, *capacity, *count + 1)) {
            error = VARVE_ERROR_NO_MEMORY;
        } else if (session_file_parse(entry->d_name, *files + *count)) {
            ++*count;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return error;
}

/* A process has its call sites in its slot. */
static int scan_reserve(const struct session_reserve *reserve, struct session_file **files, size_t *capacity,
                        size_t *count)
{
    for (uint32_t i = 0; reserve->counts != NULL && i < RESERVE_SLOTS; i++) {
        const struct reserve_slot *slot = &reserve->counts->reserve[i];
        const uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        if ((state != RESERVE_STATE_PROCESS && state != RESERVE_STATE_RING) || slot->process == 0 ||
            slot->process > SESSION_PROCESS_MAX || slot->ring > SESSION_RING_MAX) {
            continue;
        }
        if (!ARRAY_GROW(*files, *capacity, *count + 2)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        const bool is_ring = state == RESERVE_STATE_RING;
        (*files)[(*count)++] = (struct session_file){.kind = is_ring ? SESSION_FILE_RING : SESSION_FILE_PROCESS,
                                                     .process = slot->process,
                                                     .ring = is_ring ? slot->ring : 0};
        if (!is_ring) {
            (*files)[(*count)++] = (struct session_file){.kind = SESSION_FILE_CALLSITES, .process = slot->process};
        }
    }
    return VARVE_OK;
}

int session_directory_scan(const struct session_directory *directory, struct session_file **files_out,
                           size_t *count_out)
{
    struct session_file *files = NULL;
    size_t capacity = 0;
    size_t count = 0;
    int error = scan(directory->rings_fd, &files, &capacity, &count);
    if (error == VARVE_OK) {
        error = scan(directory->fd, &files, &capacity, &count); /* spills, and what tmpfs had no room for */
    }
    VARVE_THEN(error, scan_reserve(&directory->reserve, &files, &capacity, &count));
    if (error != VARVE_OK) {
        free(files);
        return error;
    }
    if (count > 0) {
        qsort(files, count, sizeof(*files), compare_files);
    }
    *files_out = files;
    *count_out = count;
    return VARVE_OK;
}

/* ---- removing ---- */

static void remove_scraps(int fd)
{
    DIR *folder = recording_directory_list(fd);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if ((traits_of(entry->d_name) & ENTRY_SCRAP) != 0) {
            unlinkat(fd, entry->d_name, 0);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

void session_directory_clear(struct session_directory *directory)
{
    if (directory->fd < 0) {
        return;
    }
    remove_scraps(directory->rings_fd);
    if (unlinkat(directory->fd, "ring", AT_REMOVEDIR) != 0) { /* a link, or deleted with the directory */
        rmdir(directory->rings);
        unlinkat(directory->fd, "ring", 0);
    }
    remove_scraps(directory->fd);
}

void session_directory_remove(struct session_directory *directory)
{
    session_directory_clear(directory);
    for (size_t i = 0; directory->fd >= 0 && i < ENTRIES; i++) { /* by name, too: without memory no folder is listed */
        unlinkat(directory->fd, entries[i].name, 0);
    }
    if (directory->fd >= 0) {
        rmdir(directory->path);
    }
    session_directory_close(directory);
}

void session_directory_close(struct session_directory *directory)
{
    unmap_session(directory);
    session_descriptor_close(&directory->rings_fd);
    session_descriptor_close(&directory->fd);
    session_descriptor_close(&directory->watch_fd);
    session_descriptor_close(&directory->owner_fd);
}
