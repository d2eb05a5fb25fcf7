/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files past the C library. A file that is stored into through a mapping gets its blocks beforehand, since
 * a store where there are none is a SIGBUS. Called where the recorder makes a file.
 */
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <signal.h>
#include <string.h>
#include <time.h>

long recorder_read_file(const char *path, char *buffer, size_t bytes)
{
    int fd = recorder_sys_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return -1;
    }
    size_t length = 0;
    long got;
    do {
        got = recorder_sys_read(fd, buffer + length, bytes - length);
        length += got > 0 ? (size_t)got : 0;
    } while ((got > 0 && length < bytes) || got == -EINTR);
    recorder_sys_close(fd);
    return got < 0 ? -1 : (long)length;
}

/* Of this image and its fork children. */
static struct {
    uint32_t is_asked, length; /* atomic; length: 0 until the path is there */
    char path[4096];
} executable;

size_t recorder_executable(char *path, size_t bytes)
{
    if (__atomic_exchange_n(&executable.is_asked, 1, __ATOMIC_ACQ_REL) == 0) {
        const long length = recorder_sys_readlink("/proc/thread-self/exe", executable.path, sizeof(executable.path));
        __atomic_store_n(&executable.length, length > 0 ? (uint32_t)length : 0, __ATOMIC_RELEASE);
    }
    size_t length = __atomic_load_n(&executable.length, __ATOMIC_ACQUIRE);
    length = length < bytes ? length : bytes - 1;
    memcpy(path, executable.path, length);
    path[length] = '\0';
    return length;
}

static const uint64_t size_signal = UINT64_C(1) << (SIGXFSZ - 1);

bool recorder_size_signal_begin(void)
{
    uint64_t pending = 0;
    recorder_syscall(SYS_rt_sigpending, (long)&pending, (long)sizeof(pending), 0, 0, 0, 0);
    return (pending & size_signal) != 0;
}

void recorder_size_signal_end(bool was_pending, long result)
{
    const struct timespec now = {0, 0};
    if (result == -EFBIG && !was_pending) {
        recorder_syscall(SYS_rt_sigtimedwait, (long)&size_signal, 0, (long)&now, (long)sizeof(size_signal), 0, 0);
    }
}

/* Where the file system cannot allocate. */
static long write_zeros(int fd, uint64_t offset, uint64_t bytes)
{
    static const char zeros[4096];
    long written = 0;
    for (uint64_t at = 0; at < bytes && written >= 0; at += (uint64_t)(written > 0 ? written : 0)) {
        uint64_t left = bytes - at;
        written = recorder_sys_pwrite(fd, zeros, left < sizeof(zeros) ? left : sizeof(zeros), offset + at);
        written = written == -EINTR ? 0 : written == 0 ? -EIO : written;
    }
    return written < 0 ? written : 0;
}

long recorder_file_allocate(int fd, uint64_t offset, uint64_t bytes)
{
    bool was_pending = recorder_size_signal_begin();
    long result;
    do {
        result = recorder_sys_fallocate(fd, offset, bytes);
    } while (result == -EINTR);
    if (result == -EOPNOTSUPP) {
        result = write_zeros(fd, offset, bytes);
    }
    recorder_size_signal_end(was_pending, result);
    return result;
}

long recorder_file_resize(int fd, uint64_t bytes)
{
    bool was_pending = recorder_size_signal_begin();
    long result;
    do {
        result = recorder_sys_ftruncate(fd, bytes);
    } while (result == -EINTR);
    recorder_size_signal_end(was_pending, result);
    return result;
}
