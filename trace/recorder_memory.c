/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, files, locks and signal masks for the code that lives inside the workload. Everything goes straight
 * to the kernel: the C library's mmap may be our own hook, its allocator is what we record, and its stdio
 * allocates. Called by all files of the recorder.
 */
#include "trace/recorder_internal.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL_SIGSET_BYTES 8U

#if defined(__SANITIZE_THREAD__) /* it must see that an address begins a new life; there are no hooks in its \
                                    builds */
static void *map(size_t bytes, int protection, int flags, int fd)
{
    void *memory = mmap(NULL, bytes, protection, flags, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void recorder_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}
#else
static void *map(size_t bytes, int protection, int flags, int fd)
{
    long address = syscall(SYS_mmap, NULL, bytes, protection, flags, fd, 0L);

    return address == -1 ? NULL : (void *)address;
}

void recorder_unmap(void *memory, size_t bytes)
{
    syscall(SYS_munmap, memory, bytes);
}
#endif

void *recorder_map(size_t bytes)
{
    return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void *recorder_map_file(int fd, size_t bytes, bool fork_private)
{
    void *memory = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd);

    if (memory != NULL && fork_private) {
        syscall(SYS_madvise, memory, bytes, MADV_DONTFORK);
    }
    return memory;
}

void *recorder_map_wiped(size_t bytes)
{
    void *memory = recorder_map(bytes);

    if (memory != NULL && syscall(SYS_madvise, memory, bytes, MADV_WIPEONFORK) != 0) {
        recorder_unmap(memory, bytes); /* Linux before 4.14: a fork child could not be told apart */
        return NULL;
    }
    return memory;
}

void *recorder_map_wiped_once(void **slot, size_t bytes)
{
    void *found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    void *expected = NULL;

    if (found != NULL) {
        return found;
    }
    found = recorder_map_wiped(bytes);
    if (found != NULL &&
        !__atomic_compare_exchange_n(slot, &expected, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        recorder_unmap(found, bytes);
        found = expected;
    }
    return found;
}

long recorder_read_file(const char *path, char *buffer, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got;

    if (fd < 0) {
        return -1;
    }
    do {
        got = read(fd, buffer + length, bytes - length);
        length += got > 0 ? (size_t)got : 0;
    } while (got > 0 && length < bytes);
    close(fd);
    return got < 0 ? -1 : (long)length;
}

static size_t append_number(char *buffer, size_t bytes, unsigned value)
{
    char digits[10];
    size_t count = 0;
    size_t length = 0;

    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0 && length + 1 < bytes) {
        buffer[length++] = digits[--count];
    }
    return length;
}

void recorder_format(char *buffer, size_t bytes, const char *format, ...)
{
    va_list arguments;
    size_t length = 0;

    va_start(arguments, format);
    for (; *format != '\0' && length + 1 < bytes; format++) {
        if (format[0] == '%' && format[1] == 's') {
            const char *text = va_arg(arguments, const char *);
            while (*text != '\0' && length + 1 < bytes) {
                buffer[length++] = *text++;
            }
            format++;
        } else if (format[0] == '%' && format[1] == 'u') {
            length += append_number(buffer + length, bytes - length, va_arg(arguments, unsigned));
            format++;
        } else {
            buffer[length++] = *format;
        }
    }
    va_end(arguments);
    buffer[length] = '\0';
}

void recorder_lock(uint32_t *lock)
{
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0) {
        sched_yield();
    }
}

void recorder_unlock(uint32_t *lock)
{
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

void recorder_signals_block(struct recorder_signals *saved)
{
    unsigned long all[16];

    memset(all, 0xff, sizeof(all));
    /* not pthread_sigmask: that leaves the C library's own signals (cancellation, setuid) open */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, all, saved->saved_mask, KERNEL_SIGSET_BYTES);
}

void recorder_signals_restore(const struct recorder_signals *saved)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, saved->saved_mask, NULL, KERNEL_SIGSET_BYTES);
}
