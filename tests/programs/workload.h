/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workload programs share: output and memory that no recorder sees (write(2), a mapping by a bare
 * system call), so that a program can print exactly what it allocated. Everything is static inline: each
 * program is one file.
 */
#ifndef VARVE_TESTS_PROGRAMS_WORKLOAD_H
#define VARVE_TESTS_PROGRAMS_WORKLOAD_H

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Formats one piece of output and writes it at once; stdio would allocate a buffer. */
static inline void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char text[1024];
    int length = vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (length < 0 || (size_t)length >= sizeof(text) || write(STDOUT_FILENO, text, (size_t)length) != length) {
        _exit(120);
    }
}

/* Ends the program with a line on stderr; the status differs from anything that a test expects. */
static inline void __attribute__((noreturn)) give_up(const char *reason)
{
    if (write(STDERR_FILENO, reason, strlen(reason)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        _exit(122);
    }
    _exit(121);
}

/* A block that has been written to. */
static inline void *take_block(size_t size)
{
    char *block = malloc(size);
    if (block == NULL) {
        give_up("out of memory");
    }
    block[0] = 1;
    return block;
}

static inline pthread_t start_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0) {
        give_up("cannot start a thread");
    }
    return thread;
}

/* Zeroed shared memory of the file `path` (made anew), or of no file where path is NULL; not through mmap(3).
 */
static inline void *map_unseen(const char *path, size_t bytes)
{
    int fd = -1;
    if (path) {
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
            give_up("cannot make the shared file");
        }
    }
    long address =
        syscall(SYS_mmap, 0L, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (path ? 0 : MAP_ANONYMOUS), fd, 0L);
    if (address == -1) {
        give_up("cannot map memory");
    }
    if (fd >= 0) {
        close(fd);
    }
    return (void *)(uintptr_t)address;
}

static inline double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline int thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

#endif
