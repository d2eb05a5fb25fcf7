/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can a running process be attached to? Everything that speaks against it is found before it is touched, so that the
 * user gets one line and the process nothing. Called by attach.c.
 */
#include "trace/collector/attach/target.h"

#include "trace/base/proc_file.h"
#include "trace/error.h"
#include "trace/format/exec_check.h"
#include "trace/format/session.h"
#include "trace/symbols/running.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define STATUS_BYTES 16384U

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static size_t proc_read(int32_t pid, const char *name, char *text, size_t bytes)
{
    char process[16];
    snprintf(process, sizeof(process), "%d", pid);
    return proc_file_read(process, name, text, bytes);
}

/* ---- who it is ---- */

/* The letter behind "State:". */
static char state_of(const char *status)
{
    const char *at = strstr(status, "\nState:");
    return at != NULL ? at[8] : '?';
}

static int check_user(int32_t pid, const char *status, struct varve_message *message)
{
    const char *at = strstr(status, "\nUid:");
    unsigned real = 0, effective = 0;
    if (at == NULL || sscanf(at + 5, "%u %u", &real, &effective) != 2 || effective == geteuid()) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_PERMISSION,
                             "process %d belongs to user %u: run varve as that user (sudo -u '#%u' varve attach %d)",
                             pid, effective, effective, pid);
}

static int check_status(int32_t pid, const char *status, struct varve_message *message)
{
    const uint32_t group = session_status_number(status, "Tgid:");
    const uint32_t tracer = session_status_number(status, "TracerPid:");
    const char state = state_of(status);
    if (pid == getpid()) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d is this varve itself", pid);
    }
    if ((int32_t)group != pid) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%d is a thread of process %u: give that number",
                                 pid, group);
    }
    if (state == 'Z' || state == 'X') {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d has ended (it is a zombie)", pid);
    }
    if (strstr(status, "\nVmSize:") == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d is a thread of the kernel: there is no program in it", pid);
    }
    char name[64] = "";
    if (tracer != 0) {
        proc_read((int32_t)tracer, "comm", name, sizeof(name));
        name[strcspn(name, "\n")] = '\0';
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "process %d is being traced by %s (pid %u): detach that first", pid,
                                 name[0] != '\0' ? name : "a debugger", tracer);
    }
    if (state == 'T') {
        return varve_message_set(message, VARVE_ERROR_BUSY, "process %d is stopped: let it go on first (kill -CONT %d)",
                                 pid, pid);
    }
    if (check_user(pid, status, message) != VARVE_OK) {
        return VARVE_ERROR_PERMISSION;
    }
    if (session_status_number(status, "Seccomp:") != 0) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d has confined itself (seccomp): what recording needs may be forbidden in "
                                 "it; record it from its start",
                                 pid);
    }
    return VARVE_OK;
}

static int check_program(int32_t pid, struct varve_message *message)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return varve_message_set(message, errno == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_PERMISSION,
                                 "process %d: its program can't be read: %s", pid, strerror(errno));
    }
    int reason = exec_check_elf(fd, path);
    if (reason == EXEC_REASON_STATIC) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "process %d is statically linked: no recorder can be loaded into it", pid);
    } else if (reason == EXEC_REASON_LIBC) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "process %d uses another C library than this varve was built for", pid);
    } else if (reason == EXEC_REASON_MACHINE) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d is %s: this varve can't attach to it", pid,
                          exec_check_is_32bit(fd) ? "a 32-bit program" : "a program for another machine");
    } else {
        reason = EXEC_REASON_NONE;
    }
    close(fd);
    return reason == EXEC_REASON_NONE ? VARVE_OK : VARVE_ERROR_UNSUPPORTED;
}

static int check_root(int32_t pid, struct varve_message *message)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/%d/ns/mnt", pid);
    char its[64] = "", own[64] = "";
    if (readlink(link, its, sizeof(its) - 1) < 0 || readlink("/proc/self/ns/mnt", own, sizeof(own) - 1) < 0) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION, "process %d can't be looked at: %s", pid,
                                 strerror(errno));
    }
    snprintf(link, sizeof(link), "/proc/%d/root/.", pid);
    struct stat root, here;
    if (strcmp(its, own) == 0 && stat(link, &root) == 0 && stat("/", &here) == 0 && root.st_ino == here.st_ino &&
        root.st_dev == here.st_dev) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "process %d has another view of the file system (a container or chroot): run varve in "
                             "there",
                             pid);
}

/* ---- what it has mapped ---- */

struct mapping {
    uint64_t start, offset;
    unsigned major, minor;
    uint64_t inode;
    char *path;
};

/* False: it is of no file. */
static bool mapping_parse(char *line, struct mapping *mapping)
{
    line[strcspn(line, "\n")] = '\0';
    int at = 0;
    if (sscanf(line, "%lx-%*x %*4s %lx %x:%x %lu %n", &mapping->start, &mapping->offset, &mapping->major,
               &mapping->minor, &mapping->inode, &at) < 5 ||
        at == 0) {
        return false;
    }
    mapping->path = line + at;
    return mapping->inode != 0 && mapping->path[0] == '/';
}

static void object_set(struct target_object *object, const struct mapping *mapping)
{
    if (object->path[0] == '\0') {
        snprintf(object->path, sizeof(object->path), "%s", mapping->path);
        object->base = mapping->start;
        object->inode = mapping->inode;
        object->device = makedev(mapping->major, mapping->minor);
    }
}

static void allocator_add(struct target *target, const struct mapping *mapping)
{
    if (target->allocator_count < TARGET_ALLOCATORS && symbols_file_function(mapping->path, "malloc") != 0) {
        snprintf(target->allocators[target->allocator_count++], TARGET_PATH_BYTES, "%s", mapping->path);
    }
}

/* A mapping of the beginning of a file. */
static void mapping_take(struct target *target, const struct mapping *mapping)
{
    const char *name = base_name(mapping->path);
    if (strncmp(name, "libc.so.6", 9) == 0 || strncmp(name, "libc-2.", 7) == 0) {
        object_set(&target->libc, mapping);
    } else if (strncmp(name, "libdl.so.2", 10) == 0 || strncmp(name, "libdl-2.", 8) == 0) {
        object_set(&target->libdl, mapping);
    } else if (strncmp(name, "libvarve_preload.so", 19) == 0) {
        object_set(&target->recorder, mapping);
    } else if (strncmp(name, "ld-", 3) != 0) {
        allocator_add(target, mapping);
    }
}

static int read_maps(struct target *target, struct varve_message *message)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/maps", target->pid);
    FILE *file = fopen(path, "re");
    size_t bytes = 0;
    char *line = NULL;
    while (file != NULL && getline(&line, &bytes, file) > 0) {
        struct mapping mapping;
        if (mapping_parse(line, &mapping) && mapping.offset == 0) {
            mapping_take(target, &mapping);
        }
    }
    free(line);
    if (file == NULL) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION, "process %d can't be looked at: %s", target->pid,
                                 strerror(errno));
    }
    fclose(file);
    if (target->libc.path[0] == '\0') {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d has no C library of its own (glibc) loaded: no recorder can be loaded "
                                 "into it",
                                 target->pid);
    }
    if (strstr(target->libc.path, " (deleted)") != NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d runs with a C library that was replaced on the disk: restart it",
                                 target->pid);
    }
    return VARVE_OK;
}

static void read_command(struct target *target)
{
    size_t length = proc_read(target->pid, "cmdline", target->command, sizeof(target->command));
    for (size_t i = 0; i + 1 < length; i++) {
        if (target->command[i] == '\0') {
            target->command[i] = ' ';
        }
    }
}

int target_open(struct target *target, int32_t pid, struct varve_message *message)
{
    memset(target, 0, sizeof(*target));
    target->pid = pid;
    char status[STATUS_BYTES];
    if (proc_read(pid, "status", status, sizeof(status)) == 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "no such process: %d", pid);
    }
    int error = check_status(pid, status, message);
    VARVE_THEN(error, check_program(pid, message));
    VARVE_THEN(error, check_root(pid, message));
    VARVE_THEN(error, read_maps(target, message));
    if (error == VARVE_OK) {
        target->is_recorded = session_mapped_find(pid, &target->recording);
        read_command(target);
    }
    return error;
}

/* ---- files and functions ---- */

bool target_sees(const struct target *target, const char *path)
{
    char its[TARGET_PATH_BYTES + 32];
    snprintf(its, sizeof(its), "/proc/%d/root%s", target->pid, path);
    struct stat here, there;
    return stat(path, &here) == 0 && stat(its, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

uint64_t target_function(const struct target_object *object, const char *name)
{
    uint64_t address = object->path[0] != '\0' ? symbols_file_function(object->path, name) : 0;
    return address != 0 ? object->base + address : 0;
}
