/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of the recorder, past the C library: its functions may be the program's own, an interceptor's
 * (sanitizers wrap read and open, and look the real ones up in a constructor that may not have run), may
 * allocate, may be cancellation points. All of these return what the kernel returned, 0 or more, or -errno;
 * none touches errno. A confined thread (guest/confinement.h) gets -EPERM, and no call is made.
 * Threads: any, in any state; async-signal-safe.
 *
 * A write or an allocation past the program's RLIMIT_FSIZE raises SIGXFSZ: callers block signals and use
 * recorder_size_signal_begin and _end around it.
 */
#ifndef VARVE_BASE_SYSCALL_H
#define VARVE_BASE_SYSCALL_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#define RECORDER_KERNEL_SIGSET_BYTES 8U

/* guest/confinement.c */
long recorder_syscall(long number, long a, long b, long c, long d, long e, long f);

/// The call itself, also of a confined thread: for what hooks do in the program's name.
/// syscall_ARCH.c.
long recorder_syscall_raw(long number, long a, long b, long c, long d, long e, long f);

static inline long recorder_sys0(long number)
{
    return recorder_syscall(number, 0, 0, 0, 0, 0, 0);
}

static inline int recorder_sys_openat(int folder, const char *path, int flags, unsigned mode)
{
    return (int)recorder_syscall(SYS_openat, folder, (long)path, flags | O_CLOEXEC, (long)mode, 0, 0);
}

static inline int recorder_sys_open(const char *path, int flags, unsigned mode)
{
    return recorder_sys_openat(AT_FDCWD, path, flags, mode);
}

static inline int recorder_sys_close(int fd)
{
    return (int)recorder_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

static inline long recorder_sys_read(int fd, void *buffer, size_t bytes)
{
    return recorder_syscall(SYS_read, fd, (long)buffer, (long)bytes, 0, 0, 0);
}

static inline long recorder_sys_pread(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return recorder_syscall(SYS_pread64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

static inline long recorder_sys_write(int fd, const void *buffer, size_t bytes)
{
    return recorder_syscall(SYS_write, fd, (long)buffer, (long)bytes, 0, 0, 0);
}

static inline long recorder_sys_pwrite(int fd, const void *buffer, size_t bytes, uint64_t offset)
{
    return recorder_syscall(SYS_pwrite64, fd, (long)buffer, (long)bytes, (long)offset, 0, 0);
}

static inline long recorder_sys_getcwd(char *buffer, size_t bytes)
{
    return recorder_syscall(SYS_getcwd, (long)buffer, (long)bytes, 0, 0, 0, 0);
}

static inline long recorder_sys_lseek(int fd, int64_t offset, int whence)
{
    return recorder_syscall(SYS_lseek, fd, (long)offset, whence, 0, 0, 0);
}

static inline int recorder_sys_ftruncate(int fd, uint64_t bytes)
{
    return (int)recorder_syscall(SYS_ftruncate, fd, (long)bytes, 0, 0, 0, 0);
}

static inline int recorder_sys_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
    return (int)recorder_syscall(SYS_fallocate, fd, 0, (long)offset, (long)bytes, 0, 0);
}

/// A shared lock of the open file description of `fd`, of all its bytes: it lasts until the description goes,
/// which a mapping of the file keeps like a descriptor (not on overlayfs: the mapping is of another file).
static inline int recorder_sys_lock_shared(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = 0 /* SEEK_SET */};

    return (int)recorder_syscall(SYS_fcntl, fd, F_OFD_SETLK, (long)&lock, 0, 0, 0);
}

/// Somebody holds such a lock through another description.
static inline bool recorder_sys_is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = 0};

    return recorder_syscall(SYS_fcntl, fd, F_OFD_GETLK, (long)&lock, 0, 0, 0) == 0 && lock.l_type != F_UNLCK;
}

static inline int recorder_sys_flock(int fd, int operation)
{
    return (int)recorder_syscall(SYS_flock, fd, operation, 0, 0, 0, 0);
}

static inline int recorder_sys_unlink(const char *path)
{
    return (int)recorder_syscall(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline long recorder_sys_readlink(const char *path, char *buffer, size_t bytes)
{
    return recorder_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)buffer, (long)bytes, 0, 0);
}

/* -errno cast to a pointer on failure: see recorder_sys_failed. */
static inline void *recorder_sys_mmap(void *address, size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    return (void *)recorder_syscall(SYS_mmap, (long)address, (long)bytes, protection, flags, fd, (long)offset);
}

static inline bool recorder_sys_failed(const void *address)
{
    return (uintptr_t)address >= (uintptr_t)-4095L;
}

static inline int recorder_sys_munmap(void *address, size_t bytes)
{
    return (int)recorder_syscall(SYS_munmap, (long)address, (long)bytes, 0, 0, 0, 0);
}

/// A second mapping of what is shared at `address`, from there on `bytes` long, wherever there is room; or, with
/// MREMAP_FIXED in `flags`, at `target`.
static inline void *recorder_sys_map_again(const void *address, size_t bytes, int flags, void *target)
{
    return (void *)recorder_syscall(SYS_mremap, (long)address, 0, (long)bytes, MREMAP_MAYMOVE | flags, (long)target, 0);
}

static inline int recorder_sys_mprotect(void *address, size_t bytes, int protection)
{
    return (int)recorder_syscall(SYS_mprotect, (long)address, (long)bytes, protection, 0, 0, 0);
}

static inline int recorder_sys_madvise(void *address, size_t bytes, int advice)
{
    return (int)recorder_syscall(SYS_madvise, (long)address, (long)bytes, advice, 0, 0, 0);
}

/// `how`, `set` and `old` as rt_sigprocmask has them; sets are 8 bytes.
static inline int recorder_sys_sigmask(int how, const void *set, void *old)
{
    return (int)recorder_syscall(SYS_rt_sigprocmask, how, (long)set, (long)old, (long)RECORDER_KERNEL_SIGSET_BYTES, 0,
                                 0);
}

static inline int recorder_sys_gettid(void)
{
    return (int)recorder_sys0(SYS_gettid);
}

static inline int recorder_sys_getpid(void)
{
    return (int)recorder_sys0(SYS_getpid);
}

static inline int recorder_sys_getppid(void)
{
    return (int)recorder_sys0(SYS_getppid);
}

/// `name`: 16 bytes.
static inline int recorder_sys_thread_name(char *name)
{
    return (int)recorder_syscall(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0);
}

static inline int recorder_sys_nanosleep(const struct timespec *time)
{
    return (int)recorder_syscall(SYS_nanosleep, (long)time, 0, 0, 0, 0, 0);
}

/// Copy memory of this process that may not be there. By the number of the thread: that of the process leads to none
/// once the main thread has ended.
static inline long recorder_sys_read_memory(void *out, uintptr_t address, size_t bytes)
{
    const struct iovec local = {out, bytes};
    const struct iovec remote = {(void *)address, bytes};

    return recorder_syscall(SYS_process_vm_readv, recorder_sys_gettid(), (long)&local, 1, (long)&remote, 1, 0);
}

/// `timeout`: relative, or NULL for ever.
static inline int recorder_sys_futex(const uint32_t *word, int operation, uint32_t value,
                                     const struct timespec *timeout)
{
    return (int)recorder_syscall(SYS_futex, (long)word, operation, (long)value, (long)timeout, 0, 0);
}

#endif
