/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs load what LD_PRELOAD names: those with a dynamic linker of this machine and C library,
 * unless the kernel asks for secure execution (AT_SECURE): after setuid, setgid, file capabilities, or while
 * real and effective ids differ. What can't be read or decided passes: exec has the last word. Called before
 * the exec, by the process that will do it, since ids, mounts and roots are its own.
 *
 * musl and older versions of glibc end a program whose LD_PRELOAD names a library of a newer glibc, the loader of
 * another machine says something, and the address sanitizer ends a program in which it is not the first library.
 *
 * Source: cap_bprm_creds_from_file in security/commoncap.c of Linux (version 6.12).
 */
#include "trace/format/exec_check.h"
#include "base/syscall.h"

#include <elf.h>
#include <fcntl.h>
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

/* Of the newest function that the recorder calls; what the loader defines of it, so does the C library. */
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
#define LOADER_VERSION "GLIBC_2.35"
#elif defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
#define LOADER_VERSION "GLIBC_2.34"
#else
#define LOADER_VERSION "GLIBC_PRIVATE" /* any glibc */
#endif
#define LOADER_VERSIONS_MAX 256U

#define MOUNT_FLAG_NOSUID 2 /* ST_NOSUID: statfs(2) has the numbers of statvfs(3) */

/* Past the gate of confined programs: these do not ask. The collector has none. */
static long exec_check_read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return recorder_syscall_raw(SYS_pread64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

enum exec_format exec_check_format(int fd)
{
    char magic[SELFMAG] = "";
    long got = exec_check_read_at(fd, magic, sizeof(magic), 0);
    if (got == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0) {
        return EXEC_FORMAT_ELF;
    }
    return got >= 2 && magic[0] == '#' && magic[1] == '!' ? EXEC_FORMAT_SCRIPT : EXEC_FORMAT_OTHER;
}

void exec_check_line(int fd, char line[EXEC_LINE_BYTES])
{
    long got = exec_check_read_at(fd, line, EXEC_LINE_BYTES - 1, 2);
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

/* ---- what is in an ELF file ---- */

/* Its bytes through a small window, since headers are read one after the other. */
struct elf_reader {
    int fd;
    uint64_t at;
    size_t length;
    unsigned char window[256];
};

static bool file_read(struct elf_reader *file, void *out, size_t bytes, uint64_t offset)
{
    if (offset < file->at || offset - file->at > file->length || file->length - (offset - file->at) < bytes) {
        long got = exec_check_read_at(file->fd, file->window, sizeof(file->window), offset);
        file->at = offset;
        file->length = got > 0 ? (size_t)got : 0;
    }
    if (file->length - (offset - file->at) < bytes) {
        return false;
    }
    memcpy(out, file->window + (offset - file->at), bytes);
    return true;
}

/* The first segment of a type, or with PT_LOAD the one that holds `address`. 1, 0 if there is none, or negative if the
 * headers are cut off. */
static int exec_check_segment_find(struct elf_reader *file, const Elf64_Ehdr *header, uint32_t type, uint64_t address,
                                   Elf64_Phdr *segment)
{
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (!file_read(file, segment, sizeof(*segment), header->e_phoff + (uint64_t)i * sizeof(*segment))) {
            return -1;
        }
        if (segment->p_type == type && (type != PT_LOAD || address - segment->p_vaddr < segment->p_filesz)) {
            return 1;
        }
    }
    return 0;
}

/* Where in the file lies what will be at an address; 0: nowhere. */
static uint64_t exec_check_offset_of(struct elf_reader *file, const Elf64_Ehdr *header, uint64_t address)
{
    Elf64_Phdr segment;
    return exec_check_segment_find(file, header, PT_LOAD, address, &segment) == 1
               ? segment.p_offset + (address - segment.p_vaddr)
               : 0;
}

/* Entry `*index` of the dynamic section or a later one, the first with that tag, which `*index` is then behind. */
static bool dynamic_next(struct elf_reader *file, const Elf64_Phdr *dynamic, int64_t tag, uint64_t *index,
                         uint64_t *value)
{
    Elf64_Dyn entry;
    while (*index < dynamic->p_filesz / sizeof(entry) &&
           file_read(file, &entry, sizeof(entry), dynamic->p_offset + *index * sizeof(entry)) &&
           entry.d_tag != DT_NULL) {
        ++*index;
        if (entry.d_tag == tag) {
            *value = entry.d_un.d_val;
            return true;
        }
    }
    return false;
}

/* Where in the file lies what the dynamic section has the address of; 0: nowhere. */
static uint64_t dynamic_offset(struct elf_reader *file, const Elf64_Ehdr *header, const Elf64_Phdr *dynamic,
                               int64_t tag)
{
    uint64_t index = 0;
    uint64_t address;
    return dynamic_next(file, dynamic, tag, &index, &address) ? exec_check_offset_of(file, header, address) : 0;
}

/* An ELF file of this machine; 0, or what exec_check_elf answers. */
static int elf_open(struct elf_reader *file, int fd, Elf64_Ehdr *header)
{
    unsigned char data = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    file->fd = fd;
    file->at = 0;
    file->length = 0;
    if (!file_read(file, header, sizeof(*header), 0)) {
        return EXEC_CHECK_DAMAGED;
    }
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != data ||
        header->e_machine != EXEC_MACHINE) {
        return EXEC_REASON_MACHINE;
    }
    if ((header->e_type != ET_EXEC && header->e_type != ET_DYN) || header->e_phentsize != sizeof(Elf64_Phdr)) {
        return EXEC_CHECK_NO_PROGRAM;
    }
    return EXEC_REASON_NONE;
}

/* ---- its loader ---- */

static const char *exec_check_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool name_begins(const char *path, const char *word)
{
    return strncmp(exec_check_base_name(path), word, strlen(word)) == 0;
}

static bool is_loader(const char *path)
{
    return name_begins(path, "ld-linux") || name_begins(path, "ld-musl");
}

/* As the hash tables of symbol versions have it. */
static uint32_t elf_hash(const char *name)
{
    uint32_t hash = 0;
    for (; *name != '\0'; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash = (hash ^ ((hash & 0xf0000000U) >> 24)) & 0x0fffffffU;
    }
    return hash;
}

/* Does a library define symbols of that version? */
static bool defines_version(int fd, const char *version)
{
    struct elf_reader file;
    Elf64_Ehdr header;
    Elf64_Phdr dynamic;
    if (elf_open(&file, fd, &header) != EXEC_REASON_NONE ||
        exec_check_segment_find(&file, &header, PT_DYNAMIC, 0, &dynamic) != 1) {
        return false;
    }
    uint64_t offset = dynamic_offset(&file, &header, &dynamic, DT_VERDEF);
    uint32_t hash = elf_hash(version);
    Elf64_Verdef definition = {.vd_next = 0};
    for (unsigned i = 0; offset != 0 && i < LOADER_VERSIONS_MAX; i++) {
        if (!file_read(&file, &definition, sizeof(definition), offset)) {
            return false;
        }
        if (definition.vd_hash == hash) {
            return true;
        }
        offset = definition.vd_next != 0 ? offset + definition.vd_next : 0;
    }
    return false;
}

/* A loader of a C library that has all functions that the recorder calls. One that can't be read passes. */
static bool loads_recorder(const char *loader)
{
#ifdef __GLIBC__
    int fd = (int)recorder_syscall_raw(SYS_openat, AT_FDCWD, (long)loader, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    bool may = fd < 0 ? !name_begins(loader, "ld-musl") : defines_version(fd, LOADER_VERSION);
    if (fd >= 0) {
        recorder_syscall_raw(SYS_close, fd, 0, 0, 0, 0, 0);
    }
    return may;
#else
    (void)loader;
    return true;
#endif
}

static int loader_check(struct elf_reader *file, const Elf64_Ehdr *header, const char *path)
{
    Elf64_Phdr segment;
    int has_loader = exec_check_segment_find(file, header, PT_INTERP, 0, &segment);
    if (has_loader < 0) {
        return EXEC_CHECK_DAMAGED;
    }
    /* The loader run as a command (ld-linux-x86-64.so.2 PROGRAM) has none itself and heeds LD_PRELOAD. */
    if (has_loader == 0) {
        return !is_loader(path) ? EXEC_REASON_STATIC : loads_recorder(path) ? EXEC_REASON_NONE : EXEC_REASON_LIBC;
    }
    char loader[128];
    size_t bytes = segment.p_filesz < sizeof(loader) ? segment.p_filesz : sizeof(loader);
    if (bytes == 0 || exec_check_read_at(file->fd, loader, bytes, segment.p_offset) != (long)bytes) {
        return EXEC_CHECK_DAMAGED;
    }
    bool is_whole = loader[bytes - 1] == '\0';
    loader[bytes - 1] = '\0';
    return !is_whole || loads_recorder(loader) ? EXEC_REASON_NONE : EXEC_REASON_LIBC;
}

int exec_check_elf(int fd, const char *path)
{
    struct elf_reader file;
    Elf64_Ehdr header;
    int reason = elf_open(&file, fd, &header);
    if (reason == EXEC_REASON_NONE) {
        reason = loader_check(&file, &header, path);
    }
    return reason == EXEC_REASON_NONE ? secure_check(fd) : reason;
}

/* ---- its libraries ---- */

/* The address sanitizer as a shared library, of gcc and of clang. */
bool exec_check_is_first(const char *name)
{
    static const char gcc[] = "libasan.so";
    static const char clang[] = "libclang_rt.asan";
    return strncmp(name, gcc, sizeof(gcc) - 1) == 0 || strncmp(name, clang, sizeof(clang) - 1) == 0;
}

bool exec_check_minds_order(const char *asan_options)
{
    static const char name[] = "verify_asan_link_order=";
    char value = '1';
    const char *found = asan_options != NULL ? strstr(asan_options, name) : NULL;
    for (; found != NULL; found = strstr(found, name)) {
        found += sizeof(name) - 1;
        value = *found;
    }
    return value != '0' && value != 'f' && value != 'n'; /* false, no */
}

bool exec_check_needs_first(int fd)
{
    struct elf_reader file;
    Elf64_Ehdr header;
    Elf64_Phdr dynamic;
    if (elf_open(&file, fd, &header) != EXEC_REASON_NONE ||
        exec_check_segment_find(&file, &header, PT_DYNAMIC, 0, &dynamic) != 1) {
        return false;
    }
    uint64_t names = dynamic_offset(&file, &header, &dynamic, DT_STRTAB);
    uint64_t index = 0;
    uint64_t name;
    while (names != 0 && dynamic_next(&file, &dynamic, DT_NEEDED, &index, &name)) {
        char library[128];
        long got = exec_check_read_at(fd, library, sizeof(library) - 1, names + name);
        library[got > 0 ? got : 0] = '\0';
        if (exec_check_is_first(exec_check_base_name(library))) {
            return true;
        }
    }
    return false;
}

bool exec_check_is_32bit(int fd)
{
    unsigned char class = ELFCLASSNONE;
    return exec_check_read_at(fd, &class, 1, EI_CLASS) == 1 && class == ELFCLASS32;
}
