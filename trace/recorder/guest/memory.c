/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, files, locks and signal masks for the code that lives inside the workload. Everything goes straight
 * to the kernel: the C library's mmap may be our own hook, its allocator is what we record, and its stdio
 * allocates. Called by all files of the recorder.
 */
#include "trace/recorder/guest/confine.h"
#include "trace/recorder/recorder.h"
#include "trace/base/syscall.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#if defined( \
    __SANITIZE_THREAD__) /* it must see that an address begins a new life; there are no hooks in its \
                                    builds */
static void *map(size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    void *memory = mmap(NULL, bytes, protection, fd < 0 ? flags : MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* the file past it, over that place: it did not see how the descriptor was opened */
    if (fd >= 0 &&
        recorder_sys_failed(recorder_sys_mmap(memory, bytes, protection, flags | MAP_FIXED, fd, offset))) {
        munmap(memory, bytes);
        return NULL;
    }
    return memory;
}

void recorder_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}
#else
static void *map(size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    void *memory = recorder_sys_mmap(NULL, bytes, protection, flags, fd, offset);

    return recorder_sys_failed(memory) ? NULL : memory;
}

void recorder_unmap(void *memory, size_t bytes)
{
    recorder_sys_munmap(memory, bytes);
}
#endif

void *recorder_map(size_t bytes)
{
    return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void *recorder_map_window(int fd, uint64_t offset, size_t bytes)
{
    void *memory = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

    if (memory != NULL) {
        recorder_sys_madvise(memory, bytes, MADV_DONTFORK);
    }
    return memory;
}

void *recorder_map_file(int fd, size_t bytes, bool fork_private)
{
    return fork_private ? recorder_map_window(fd, 0, bytes)
                        : map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

void *recorder_map_file_read(int fd, size_t bytes)
{
    return map(bytes, PROT_READ, MAP_SHARED, fd, 0);
}

void *recorder_map_wiped(size_t bytes)
{
    void *memory = recorder_map(bytes);

    if (memory != NULL && recorder_sys_madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
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
    int fd = recorder_sys_open(path, O_RDONLY, 0);
    size_t length = 0;
    long got;

    if (fd < 0) {
        return -1;
    }
    do {
        got = recorder_sys_read(fd, buffer + length, bytes - length);
        length += got > 0 ? (size_t)got : 0;
    } while ((got > 0 && length < bytes) || got == -EINTR);
    recorder_sys_close(fd);
    return got < 0 ? -1 : (long)length;
}

/* Some sandboxes know process_vm_readv and not this. */
static __attribute__((noinline)) long read_own_memory(void *out, uintptr_t address, size_t bytes)
{
    int fd = recorder_sys_open("/proc/self/mem", O_RDONLY, 0);
    long got = -EPERM;

    if (fd >= 0) {
        got = recorder_sys_pread(fd, out, bytes, address);
        recorder_sys_close(fd);
    }
    return got;
}

bool recorder_read_memory(void *out, uintptr_t address, size_t bytes)
{
    long got = recorder_sys_read_memory(out, address, bytes);

    if (got == -EPERM || got == -ENOSYS) {
        got = read_own_memory(out, address, bytes);
    }
    return got == (long)bytes;
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

uint64_t recorder_number(const char *text)
{
    uint64_t number = 0;

    for (; *text >= '0' && *text <= '9'; text++) {
        number = number * 10 + (uint64_t)(*text - '0');
    }
    return number;
}

#define LOCK_TURNS 10U
#define LOCK_TURN_NS 100000000L

/* Source: U. Drepper, Futexes Are Tricky (2011), the second mutex there. */
enum lock_state { LOCK_FREE = 0, LOCK_HELD = 1, LOCK_AWAITED = 2 };

void recorder_lock(uint32_t *lock)
{
    uint32_t expected = LOCK_FREE;

    if (__atomic_compare_exchange_n(lock, &expected, LOCK_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return;
    }
    while (__atomic_exchange_n(lock, LOCK_AWAITED, __ATOMIC_ACQUIRE) != LOCK_FREE) {
        recorder_sys_futex(lock, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, NULL);
    }
}

bool recorder_lock_soon(uint32_t *lock)
{
    const struct timespec turn = {0, LOCK_TURN_NS};
    uint32_t expected = LOCK_FREE;

    if (__atomic_compare_exchange_n(lock, &expected, LOCK_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return true;
    }
    for (unsigned i = 0; i < LOCK_TURNS; i++) {
        if (__atomic_exchange_n(lock, LOCK_AWAITED, __ATOMIC_ACQUIRE) == LOCK_FREE) {
            return true;
        }
        recorder_sys_futex(lock, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, &turn);
    }
    return false;
}

void recorder_unlock(uint32_t *lock)
{
    if (__atomic_exchange_n(lock, LOCK_FREE, __ATOMIC_RELEASE) == LOCK_AWAITED) {
        recorder_sys_futex(lock, FUTEX_WAKE_PRIVATE, 1, NULL);
    }
}

void recorder_signals_block(struct recorder_signals *saved)
{
    const uint64_t all = UINT64_MAX;

    /* not pthread_sigmask: that leaves the C library's own signals (cancellation, setuid) open */
    saved->is_blocked = recorder_confine_section_begin();
    if (saved->is_blocked) {
        recorder_sys_sigmask(SIG_SETMASK, &all, &saved->mask);
    }
}

void recorder_signals_restore(const struct recorder_signals *saved)
{
    if (saved->is_blocked) {
        recorder_sys_sigmask(SIG_SETMASK, &saved->mask, NULL);
        recorder_confine_section_end();
    }
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
        recorder_syscall(SYS_rt_sigtimedwait, (long)&size_signal, 0, (long)&now, (long)sizeof(size_signal), 0,
                         0);
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
