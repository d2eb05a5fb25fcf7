/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library as many are written: its wrappers of system calls look the real ones up in a
 * constructor. Who calls them before that, from a malloc of the loader say, jumps to address 0.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

#define WRAPPERS(X)                                                                                           \
    X(ssize_t, read, (int fd, void *buffer, size_t bytes), (fd, buffer, bytes))                               \
    X(ssize_t, pwrite, (int fd, const void *buffer, size_t bytes, off_t offset), (fd, buffer, bytes, offset)) \
    X(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence))                                 \
    X(int, close, (int fd), (fd))                                                                             \
    X(char *, getenv, (const char *name), (name))                                                             \
    X(int, ftruncate, (int fd, off_t bytes), (fd, bytes))                                                     \
    X(int, unlink, (const char *path), (path))                                                                \
    X(ssize_t, readlink, (const char *path, char *buffer, size_t bytes), (path, buffer, bytes))               \
    X(long, sysconf, (int name), (name))                                                                      \
    X(int, dl_iterate_phdr, (int (*visit)(void *, size_t, void *), void *context), (visit, context))

#define WRAP(result, name, parameters, arguments) \
    static result(*real_##name) parameters;       \
    result name parameters;                       \
    result name parameters                        \
    {                                             \
        return real_##name arguments;             \
    }
WRAPPERS(WRAP)

static int (*real_open)(const char *path, int flags, ...);

int open(const char *path, int flags, ...);
int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    return real_open(path, flags, mode);
}

__attribute__((constructor)) static void find(void)
{
#define FIND(result, name, ...) *(void **)&real_##name = dlsym(RTLD_NEXT, #name);
    WRAPPERS(FIND)
    FIND(int, open)
}
