/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can a running process be attached to? Everything that speaks against it is found before it is touched, so that the
 * user gets one line and the process nothing. Called by attach_run.c.
 */
#include "trace/collector/programs/attach_target.h"

#include "base/monotonic.h"
#include "base/proc_file.h"
#include "base/error.h"
#include "trace/format/exec_check.h"
#include "trace/format/session_format.h"
#include "trace/symbols/running_process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define STATUS_BYTES 16384U
#define KERNEL_THREAD 0x00200000UL /* PF_KTHREAD of the kernel */
#define STARTING_TRIES 20U
#define STARTING_NS 10000000L
#define LOCK_TRIES 150U
#define LOCK_NS 20000000L

static const char *attach_target_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- who it is ---- */

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

static int check_tracer(int32_t pid, const char *status, struct varve_message *message)
{
    const uint32_t tracer = session_status_number(status, "TracerPid:");
    char name[64] = "";
    if (tracer == 0) {
        return VARVE_OK;
    }
    proc_file_read((int32_t)tracer, "comm", name, sizeof(name));
    name[strcspn(name, "\n")] = '\0';
    return varve_message_set(message, VARVE_ERROR_BUSY, "process %d is being traced by %s (pid %u): detach that first",
                             pid, name[0] != '\0' ? name : "a debugger", tracer);
}

/* Without memory is also who is about to end: the kernel's own threads have a flag (field 9 of stat). */
static bool is_of_kernel(int32_t pid)
{
    char text[1024];
    proc_file_read(pid, "stat", text, sizeof(text));
    const char *at = strrchr(text, ')');
    unsigned long flags = 0;
    return at != NULL && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 && (flags & KERNEL_THREAD) != 0;
}

static int check_status(const struct target *target, const char *status, struct varve_message *message)
{
    const int32_t pid = target->pid;
    const uint32_t group = session_status_number(status, "Tgid:");
    if (pid == getpid()) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d is this varve itself", pid);
    }
    if ((int32_t)group != pid) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%d is a thread of process %u: give that number",
                                 pid, group);
    }
    if (target->tid == 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d has ended (it is a zombie)", pid);
    }
    if (strstr(status, "\nVmSize:") == NULL && !is_of_kernel(pid)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d has ended", pid);
    }
    if (strstr(status, "\nVmSize:") == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d is a thread of the kernel: there is no program in it", pid);
    }
    if (check_tracer(pid, status, message) != VARVE_OK) {
        return VARVE_ERROR_BUSY;
    }
    if (proc_file_state(status) == 'T') {
        return varve_message_set(message, VARVE_ERROR_BUSY, "process %d is stopped: let it go on first (kill -CONT %d)",
                                 pid, pid);
    }
    return VARVE_OK;
}

/* By more filters than `inherited`, which a container has put upon all that runs in it. */
static bool is_confined_by(const char *status, uint32_t inherited)
{
    const uint32_t mode = session_status_number(status, "Seccomp:");
    return mode != 0 && (mode != SECCOMP_MODE_FILTER || inherited == 0 ||
                         session_status_number(status, "Seccomp_filters:") != inherited);
}

static bool is_confined(void *inherited, int32_t tid)
{
    char status[STATUS_BYTES];
    return proc_file_read(tid, "status", status, sizeof(status)) > 0 &&
           is_confined_by(status, *(const uint32_t *)inherited);
}

/* What one thread has taken upon itself counts: it may meet the recorder. That varve is under as many filters shows
 * that they are those of the container. Kernels before 5.9 do not count them. */
static int check_confinement(int32_t pid, struct varve_message *message)
{
    char status[STATUS_BYTES];
    proc_file_read(getpid(), "status", status, sizeof(status));
    uint32_t inherited = session_status_number(status, "Seccomp_filters:");
    return proc_file_search(pid, is_confined, &inherited) == 0
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                   "process %d has confined itself (seccomp): what recording needs may be forbidden in "
                                   "it; record it from its start",
                                   pid);
}

static int attach_target_check_program(const struct target *target, struct varve_message *message)
{
    const int32_t pid = target->pid;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", target->tid);
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

static int attach_target_check_root(const struct target *target, struct varve_message *message)
{
    const int32_t pid = target->pid;
    char link[64];
    snprintf(link, sizeof(link), "/proc/%d/ns/mnt", target->tid);
    char its[64] = "", own[64] = "";
    if (readlink(link, its, sizeof(its) - 1) < 0 || readlink("/proc/self/ns/mnt", own, sizeof(own) - 1) < 0) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION, "process %d can't be looked at: %s", pid,
                                 strerror(errno));
    }
    snprintf(link, sizeof(link), "/proc/%d/root/.", target->tid);
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

static void object_set(struct target_object *object, const struct proc_map *mapping)
{
    if (object->path[0] == '\0') {
        snprintf(object->path, sizeof(object->path), "%s", mapping->path);
        object->base = mapping->start;
        object->inode = mapping->inode;
        object->device = makedev(mapping->major, mapping->minor);
    }
}

static void allocator_add(struct target *target, const struct proc_map *mapping)
{
    if (target->allocator_count < TARGET_ALLOCATORS && symbols_file_function(mapping->path, "malloc") != 0) {
        snprintf(target->allocators[target->allocator_count++], TARGET_PATH_BYTES, "%s", mapping->path);
    }
}

/* A mapping of the beginning of a file. */
static void mapping_take(struct target *target, const struct proc_map *mapping)
{
    const char *name = attach_target_base_name(mapping->path);
    if (strncmp(name, "libc.so.6", 9) == 0 || strncmp(name, "libc-2.", 7) == 0) {
        object_set(&target->libc, mapping);
    } else if (strncmp(name, "libdl.so.2", 10) == 0 || strncmp(name, "libdl-2.", 8) == 0) {
        object_set(&target->libdl, mapping);
    } else if (strncmp(name, "libvarve_preload.so", 19) == 0) {
        object_set(&target->recorder, mapping);
    } else if (strncmp(name, "ld-", 3) != 0) {
        target->has_torch = target->has_torch || strncmp(name, "libtorch", 8) == 0;
        allocator_add(target, mapping);
    }
}

/* False: they can't be read. */
static bool take_maps(struct target *target)
{
    struct proc_maps maps;
    struct proc_map mapping;
    const bool is_open = proc_maps_open(&maps, target->tid);
    while (proc_maps_next(&maps, &mapping)) {
        if (mapping.inode != 0 && mapping.path[0] == '/' && mapping.offset == 0) {
            mapping_take(target, &mapping);
        }
    }
    proc_maps_close(&maps);
    return is_open;
}

static int read_maps(struct target *target, struct varve_message *message)
{
    bool is_read = take_maps(target);
    for (unsigned i = 0; i < STARTING_TRIES && is_read && target->libc.path[0] == '\0'; i++) {
        monotonic_nap(STARTING_NS); /* a program that is being started gets it in a moment */
        is_read = take_maps(target);
    }
    if (!is_read) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION, "process %d can't be looked at: %s", target->pid,
                                 strerror(errno));
    }
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

/* The same path may lead to another file there; addresses come from ours. */
static int check_libc(const struct target *target, struct varve_message *message)
{
    struct stat status;
    if (stat(target->libc.path, &status) == 0 && status.st_ino == target->libc.inode) {
        return VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                             "process %d has a C library that is not seen from here: run varve where it is",
                             target->pid);
}

/* ---- which program ---- */

/* Where the kernel has put its random bytes, and these: new ones with each. */
static void image_read(int32_t tid, uint64_t image[3])
{
    uint64_t entries[64][2];
    const size_t bytes = proc_file_read(tid, "auxv", (char *)entries, sizeof(entries));
    memset(image, 0, 3 * sizeof(image[0]));
    for (size_t i = 0; i < bytes / sizeof(entries[0]); i++) {
        if (entries[i][0] == AT_RANDOM) {
            image[0] = entries[i][1];
        }
    }
    const struct iovec to = {image + 1, 2 * sizeof(image[0])},
                       from = {(void *)(uintptr_t)image[0], 2 * sizeof(image[0])};
    (void)process_vm_readv(tid, &to, 1, &from, 1, 0);
}

bool target_is_same(const struct target *target, int32_t tid)
{
    uint64_t image[3];
    image_read(tid, image);
    return memcmp(image, target->image, sizeof(image)) == 0;
}

static int check_same(const struct target *target, struct varve_message *message)
{
    const int32_t pid = target->pid;
    if (target_is_same(target, target->tid)) {
        return VARVE_OK;
    }
    if (proc_file_thread(pid) == 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d has ended", pid);
    }
    return varve_message_set(message, VARVE_ERROR_BUSY, "process %d has executed a program just now: try again", pid);
}

static void read_command(struct target *target)
{
    size_t length = proc_file_read(target->tid, "cmdline", target->command, sizeof(target->command));
    for (size_t i = 0; i + 1 < length; i++) {
        if (target->command[i] == '\0') {
            target->command[i] = ' ';
        }
    }
}

static int attach_target_look_at(struct target *target, enum target_purpose purpose, struct varve_message *message)
{
    const bool is_left = purpose == TARGET_TO_LEAVE;
    char status[STATUS_BYTES];
    target->tid = proc_file_thread(target->pid);
    if (proc_file_read(target->tid != 0 ? target->tid : target->pid, "status", status, sizeof(status)) == 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "no such process: %d", target->pid);
    }
    if (target->tid != 0) {
        image_read(target->tid, target->image);
    }
    int error = check_status(target, status, message);
    if (!is_left || geteuid() != 0) {
        VARVE_THEN(error, check_user(target->pid, status, message));
    }
    VARVE_THEN(error, check_confinement(target->pid, message));
    VARVE_THEN(error, attach_target_check_program(target, message));
    if (!is_left) {
        VARVE_THEN(error, attach_target_check_root(target, message));
    }
    VARVE_THEN(error, read_maps(target, message));
    if (is_left && error == VARVE_OK && attach_target_check_root(target, message) != VARVE_OK) {
        error = check_libc(target, message);
    }
    return error;
}

int target_open(struct target *target, int32_t pid, enum target_purpose purpose, struct varve_message *message)
{
    memset(target, 0, sizeof(*target));
    target->pid = pid;
    int error = attach_target_look_at(target, purpose, message);
    if (target->tid != 0 && error != VARVE_OK && !target_is_same(target, target->tid)) {
        error = VARVE_OK; /* what was seen is a bit of each */
    }
    VARVE_THEN(error, check_same(target, message));
    if (error == VARVE_OK) {
        target->is_recorded = session_mapped_find(target->pid, &target->recording);
        read_command(target);
    }
    return error;
}

int target_lock(int32_t pid, int *fd_out, struct varve_message *message)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/personality", pid); /* whom nobody else may open, also of the dead */
    *fd_out = open(path, O_RDONLY | O_CLOEXEC);
    unsigned tries = 0;
    while (*fd_out >= 0 && flock(*fd_out, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (++tries > LOCK_TRIES) {
            session_descriptor_close(fd_out);
            return varve_message_set(message, VARVE_ERROR_BUSY,
                                     "process %d: another varve is attaching to it, or detaching from it: try again",
                                     pid);
        }
        monotonic_nap(LOCK_NS);
    }
    return VARVE_OK;
}

/* ---- files and functions ---- */

bool target_sees(const struct target *target, const char *path)
{
    char its[TARGET_PATH_BYTES + 32];
    snprintf(its, sizeof(its), "/proc/%d/root%s", target->tid, path);
    struct stat here, there;
    return stat(path, &here) == 0 && stat(its, &there) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

uint64_t target_function(const struct target_object *object, const char *name)
{
    uint64_t address = object->path[0] != '\0' ? symbols_file_function(object->path, name) : 0;
    return address != 0 ? object->base + address : 0;
}
