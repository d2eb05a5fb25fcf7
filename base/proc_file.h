/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of other processes. */
#ifndef VARVE_BASE_PROC_FILE_H
#define VARVE_BASE_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/// The first bytes of /proc/PID/NAME, ended by a NUL; how many there are before it: 0 too if it can't be read. `pid`
/// of a process or a thread; 0: of this process.
size_t proc_file_read(int32_t pid, const char *name, char *text, size_t bytes);

/// The letter of a /proc/PID/status behind "State:"; '?' without one.
char proc_file_state(const char *status);

/// Is there no process or thread of that number any more, or has nobody waited for its end?
bool proc_file_has_ended(int32_t pid);

/// Its number in the innermost of its PID namespaces; 0: not known.
int32_t proc_file_innermost(int32_t pid);

/// The value of a variable with which a process was started, cut to fit. False: it has none, or can't be looked at.
bool proc_file_variable(int32_t pid, const char *name, char *value, size_t bytes);

/// Calls `matches` for each process, or for each thread of `pid`, until it says yes: the number of that one, else 0.
int32_t proc_file_search(int32_t pid, bool (*matches)(void *context, int32_t number), void *context);

/// A thread of process `pid` that has not ended: the main one unless that alone has, when files of /proc/PID say
/// nothing any more; those of /proc/THREAD do. 0: all of them have ended.
int32_t proc_file_thread(int32_t pid);

/// When process `pid` was started, in ticks since boot (field 22 of its stat), also if nobody has waited for its end
/// yet; 0: there is none, or /proc is that of another PID namespace.
uint64_t proc_file_started(int32_t pid);

/* What a process has mapped, in the order of addresses. */
struct proc_map {
    uint64_t start, end, offset, inode;
    unsigned major, minor;
    char rights[5];   /* as in "rw-p" */
    const char *path; /* of its file, or what else is said there; until the next one */
};

struct proc_maps {
    FILE *file; /* NULL: it can't be read */
    char *line;
    size_t room;
};

/// To be closed in any case. False: they can't be read, see errno.
bool proc_maps_open(struct proc_maps *maps, int32_t pid);
bool proc_maps_next(struct proc_maps *maps, struct proc_map *map);
void proc_maps_close(struct proc_maps *maps);

#endif
