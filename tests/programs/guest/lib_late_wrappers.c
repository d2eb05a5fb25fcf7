/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library as many are written: its wrappers of system calls look the real ones up in a
 * constructor. Who calls them before that, from a malloc of the loader say, jumps to address 0.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>

#define WRAP(result, name, parameters, arguments) \
    static result(*real_##name) parameters;       \
    result name parameters;                       \
    result name parameters                        \
    {                                             \
        return real_##name arguments;             \
    }

WRAP(ssize_t, read, (int fd, void *buffer, size_t bytes), (fd, buffer, bytes))
WRAP(ssize_t, pwrite, (int fd, const void *buffer, size_t bytes, off_t offset), (fd, buffer, bytes, offset))
WRAP(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence))
WRAP(int, close, (int fd), (fd))
WRAP(char *, getenv, (const char *name), (name))
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
WRAP(int, unlink, (const char *path), (path))
WRAP(ssize_t, readlink, (const char *path, char *buffer, size_t bytes), (path, buffer, bytes))
WRAP(long, sysconf, (int name), (name))
WRAP(int, dl_iterate_phdr, (int (*visit)(void *, size_t, void *), void *context), (visit, context))

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

#define FIND(name)                                   \
    do {                                             \
        void *found = dlsym(RTLD_NEXT, #name);       \
        memcpy(&real_##name, &found, sizeof(found)); \
    } while (0)

__attribute__((constructor)) static void find(void)
{
    FIND(open);
    FIND(read);
    FIND(pwrite);
    FIND(lseek);
    FIND(close);
    FIND(getenv);
    FIND(ftruncate);
    FIND(unlink);
    FIND(readlink);
    FIND(sysconf);
    FIND(dl_iterate_phdr);
}
