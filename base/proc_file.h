/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of /proc about another process. */
#ifndef VARVE_BASE_PROC_FILE_H
#define VARVE_BASE_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The first bytes of /proc/PROCESS/NAME, ended by a NUL; how many there are before it: 0 too if it can't be read.
/// `process` is a number or "self".
size_t proc_file_read(const char *process, const char *name, char *text, size_t bytes);

/// The letter of a /proc/PID/status behind "State:"; '?' without one.
char proc_file_state(const char *status);

/// Is there none of that number any more, or has nobody waited for its end? `process` as above, or "PID/task/TID".
bool proc_file_has_ended(const char *process);

/// A thread of process `pid` that has not ended: the main one unless that alone has, when files of /proc/PID say
/// nothing any more; those of /proc/THREAD do. 0: all of them have ended.
int32_t proc_file_thread(int32_t pid);

/// When process `pid` was started, in ticks since boot (field 22 of its stat), also if nobody has waited for its end
/// yet; 0: there is none, or /proc is that of another PID namespace.
uint64_t proc_file_started(int32_t pid);

#endif
