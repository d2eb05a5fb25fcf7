/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs load what LD_PRELOAD names: those with a dynamic linker of this machine and C library,
 * unless the kernel asks for secure execution (AT_SECURE): after setuid, setgid, file capabilities, or while
 * real and effective ids differ. What can't be read or decided passes: exec has the last word. Called before
 * the exec, by the process that will do it, since ids, mounts and roots are its own.
 *
 * Source: cap_bprm_creds_from_file in security/commoncap.c of Linux (version 6.12).
 */
#include "trace/format/exec_check.h"
#include "trace/base/syscall.h"

#include <elf.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* The two machines that the recorder knows. */
#if defined(__aarch64__)
#define EXEC_MACHINE EM_AARCH64
#else
#define EXEC_MACHINE EM_X86_64
#endif

#define MOUNT_FLAG_NOSUID 2 /* ST_NOSUID: statfs(2) has the numbers of statvfs(3) */

/* Past the gate of confined programs: these do not ask. The collector has none. */
static long read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return recorder_syscall_raw(SYS_pread64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

enum exec_format exec_check_format(int fd)
{
    char magic[SELFMAG] = "";
    long got = read_at(fd, magic, sizeof(magic), 0);
    if (got == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0) {
        return EXEC_FORMAT_ELF;
    }
    return got >= 2 && magic[0] == '#' && magic[1] == '!' ? EXEC_FORMAT_SCRIPT : EXEC_FORMAT_OTHER;
}

void exec_check_line(int fd, char line[EXEC_LINE_BYTES])
{
    long got = read_at(fd, line, EXEC_LINE_BYTES - 1, 2);
    size_t blanks = 0;
    line[got > 0 ? got : 0] = '\0';
    char *end = strchr(line, '\n');
    if (end != NULL) {
        *end = '\0';
    }
    size_t length = strlen(line);
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t')) {
        line[--length] = '\0';
    }
    while (line[blanks] == ' ' || line[blanks] == '\t') {
        blanks++;
    }
    memmove(line, line + blanks, length + 1 - blanks);
}

static bool has_capabilities(int fd)
{
    struct vfs_ns_cap_data data; /* little-endian in the file, like both machines */
    memset(&data, 0, sizeof(data));
    long got =
        recorder_syscall_raw(SYS_fgetxattr, fd, (long)"security.capability", (long)&data, (long)sizeof(data), 0, 0);
    if (got < (long)sizeof(data.magic_etc)) {
        return false;
    }
    return (data.magic_etc & VFS_CAP_FLAGS_EFFECTIVE) != 0 || data.data[0].permitted != 0 ||
           data.data[1].permitted != 0;
}

static unsigned id_of(long number)
{
    return (unsigned)recorder_syscall_raw(number, 0, 0, 0, 0, 0, 0);
}

static bool may_gain_rights(int fd)
{
    struct statfs mount;
    return recorder_syscall_raw(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) != 1 &&
           (recorder_syscall_raw(SYS_fstatfs, fd, (long)&mount, 0, 0, 0, 0) != 0 ||
            (mount.f_flags & MOUNT_FLAG_NOSUID) == 0);
}

/* New effective ids against real ones: root starting a setuid-root program gains nothing. */
static int secure_check(int fd)
{
    unsigned user = id_of(SYS_getuid);
    unsigned group = id_of(SYS_getgid);
    bool may_gain = may_gain_rights(fd);
    struct stat status;
    if (recorder_syscall_raw(SYS_fstat, fd, (long)&status, 0, 0, 0, 0) != 0) {
        return EXEC_REASON_NONE;
    }
    if (may_gain && (status.st_mode & S_ISUID) != 0) {
        return status.st_uid != user ? EXEC_REASON_SETUID : EXEC_REASON_NONE;
    }
    /* without the group's x bit, setgid meant mandatory locking */
    if (may_gain && (status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != group) {
        return EXEC_REASON_SETGID;
    }
    if (may_gain && user != 0 && has_capabilities(fd)) {
        return EXEC_REASON_CAPABILITIES;
    }
    return id_of(SYS_geteuid) != user || id_of(SYS_getegid) != group ? EXEC_REASON_OTHER_USER : EXEC_REASON_NONE;
}

/* 1 if there is a loader, whose path is copied; 0 if there is none; negative if the headers are cut off. */
static int elf_loader(int fd, const Elf64_Ehdr *header, char *loader, size_t loader_bytes)
{
    loader[0] = '\0';
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        uint64_t offset = header->e_phoff + (uint64_t)i * sizeof(segment);
        if (read_at(fd, &segment, sizeof(segment), offset) != (long)sizeof(segment)) {
            return -1;
        }
        if (segment.p_type == PT_INTERP) {
            size_t bytes = segment.p_filesz < loader_bytes ? segment.p_filesz : loader_bytes;
            long got = read_at(fd, loader, bytes, segment.p_offset);
            if (got <= 0 || (size_t)got != bytes) {
                return -1;
            }
            loader[bytes - 1] = '\0';
            return 1;
        }
    }
    return 0;
}

static bool name_begins(const char *path, const char *word)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash != NULL ? slash + 1 : path, word, strlen(word)) == 0;
}

static int loader_check(int fd, const Elf64_Ehdr *header, const char *path)
{
    char loader[128];
    int has_loader = elf_loader(fd, header, loader, sizeof(loader));
    if (has_loader < 0) {
        return EXEC_CHECK_DAMAGED;
    }
    /* The loader run as a command (ld-linux-x86-64.so.2 PROGRAM) has none itself and heeds LD_PRELOAD. */
    if (has_loader == 0 && !name_begins(path, "ld-linux")) {
        return EXEC_REASON_STATIC;
    }
#ifdef __GLIBC__
    if (name_begins(loader, "ld-musl")) {
        return EXEC_REASON_LIBC;
    }
#endif
    return EXEC_REASON_NONE;
}

int exec_check_elf(int fd, const char *path)
{
    unsigned char data = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    Elf64_Ehdr header;
    if (read_at(fd, &header, sizeof(header), 0) != (long)sizeof(header)) {
        return EXEC_CHECK_DAMAGED;
    }
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != data || header.e_machine != EXEC_MACHINE) {
        return EXEC_REASON_MACHINE;
    }
    if ((header.e_type != ET_EXEC && header.e_type != ET_DYN) || header.e_phentsize != sizeof(Elf64_Phdr)) {
        return EXEC_CHECK_NO_PROGRAM;
    }
    int reason = loader_check(fd, &header, path);
    return reason == EXEC_REASON_NONE ? secure_check(fd) : reason;
}

bool exec_check_is_32bit(int fd)
{
    unsigned char class = ELFCLASSNONE;
    return read_at(fd, &class, 1, EI_CLASS) == 1 && class == ELFCLASS32;
}
