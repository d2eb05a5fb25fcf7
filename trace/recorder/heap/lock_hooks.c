/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that locks its memory must not pay for the recorder's: rings are files of which most has no page, which
 * locking would fill, and all counts against the program's limit. So what is mapped now is locked range by range,
 * without the recording's files, and what the recorder maps later is unlocked (guest/guest_memory.c).
 */
#include "trace/guest/guest_memory.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define MAPS_BYTES (64U << 10) /* read at once */

/* A line of /proc/thread-self/maps: "FIRST-END rwxp OFFSET DEVICE INODE PATH". */
struct range {
    uintptr_t first, end;
    const char *path; /* "" or what stands at the end */
};

static uintptr_t take_hexadecimal(const char **text)
{
    uintptr_t number = 0;
    for (; (**text >= '0' && **text <= '9') || (**text >= 'a' && **text <= 'f'); ++*text) {
        number = number * 16 + (uintptr_t)(**text <= '9' ? **text - '0' : **text - 'a' + 10);
    }
    return number;
}

static struct range range_read(const char *line)
{
    struct range range = {0};
    range.first = take_hexadecimal(&line);
    line += *line == '-';
    range.end = take_hexadecimal(&line);
    const char *path = strchr(line, '/');
    path = path != NULL ? path : strchr(line, '[');
    range.path = path != NULL ? path : "";
    return range;
}

/* Of the recording, or of the kernel, which locks none of its own. */
static bool is_left_out(const struct range *range)
{
    const char *directory = recorder_directory();
    return strncmp(range->path, "/dev/shm/varve-", 15) == 0 || strncmp(range->path, "[v", 2) == 0 ||
           strncmp(range->path, directory, strlen(directory)) == 0 || strstr(range->path, "/libvarve_") != NULL;
}

/* As the kernel's mlockall: pages that can't be there are no failure (a guard, what lies behind the end of a file), nor
 * is a range that another thread has unmapped since it was read; a limit is. */
static long range_lock(const char *line, int flags)
{
    const struct range range = range_read(line);
    const long bytes = (long)(range.end - range.first);
    if (range.end <= range.first || is_left_out(&range)) {
        return 0;
    }
    const long locked = recorder_syscall(SYS_mlock2, (long)range.first, bytes, MLOCK_ONFAULT, 0, 0, 0);
    if (locked == 0 && (flags & MCL_ONFAULT) == 0) {
        recorder_syscall(SYS_mlock2, (long)range.first, bytes, 0, 0, 0, 0);
    }
    const bool is_gone = locked != 0 && recorder_syscall(SYS_msync, (long)range.first, bytes, MS_ASYNC, 0, 0, 0) != 0;
    return is_gone ? 0 : locked;
}

/* Whole lines of the buffer; what is left of the last one goes to its front. */
static long lines_lock(char *buffer, size_t *filled, int flags)
{
    char *line = buffer;
    char *end;
    long result = 0;
    while (result == 0 && (end = memchr(line, '\n', *filled - (size_t)(line - buffer))) != NULL) {
        *end = '\0';
        result = range_lock(line, flags);
        line = end + 1;
    }
    *filled -= (size_t)(line - buffer);
    memmove(buffer, line, *filled);
    return result;
}

static long ranges_lock(int flags)
{
    char *buffer = recorder_map(MAPS_BYTES);
    const int maps = buffer != NULL ? recorder_sys_open("/proc/thread-self/maps", O_RDONLY, 0) : -1;
    long result = maps >= 0 ? 0 : -ENOMEM, got = 1;
    size_t filled = 0;
    while (result == 0 && got > 0) {
        got = recorder_sys_read(maps, buffer + filled, MAPS_BYTES - 1 - filled);
        filled += got > 0 ? (size_t)got : 0;
        result = lines_lock(buffer, &filled, flags);
    }
    if (maps >= 0) {
        recorder_sys_close(maps);
    }
    if (buffer != NULL) {
        recorder_unmap(buffer, MAPS_BYTES);
    }
    return result;
}

static long lock_all(int flags)
{
    const int later = flags & ~MCL_CURRENT;
    recorder_memory_is_locked(true);
    long result = (flags & MCL_FUTURE) != 0 ? recorder_syscall(SYS_mlockall, later, 0, 0, 0, 0, 0) : 0;
    if (result == 0) {
        result = ranges_lock(flags);
    }
    if (result != 0 && (flags & MCL_FUTURE) != 0) {
        recorder_syscall(SYS_munlockall, 0, 0, 0, 0, 0, 0);
    }
    return result;
}

HOOK int mlockall(int flags)
{
    const bool is_ours = hook_is_recording() && (flags & MCL_CURRENT) != 0;
    if (!is_ours) {
        recorder_memory_is_locked((flags & MCL_FUTURE) != 0);
    }
    return (int)hook_answer(is_ours ? lock_all(flags) : recorder_syscall(SYS_mlockall, flags, 0, 0, 0, 0, 0));
}
