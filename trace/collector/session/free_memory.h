/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this machine, or the container, has left. */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_FREE_MEMORY_H
#define VARVE_TRACE_COLLECTOR_SESSION_FREE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Bytes that can be had without swapping, or before a control group of this process kills a process; UINT64_MAX if
/// nothing is known. `root` is put before /proc and /sys: "" but in tests.
uint64_t free_memory(const char *root);

/// The control groups of a process, as /proc/PID/cgroup lists them; `pid` 0: of this one. False: not known.
bool free_memory_groups(const char *root, int32_t pid, char *groups, size_t bytes);
/// Bytes that can be had in all of these; UINT64_MAX if nothing is known.
uint64_t free_memory_of_groups(const char *root, const char *groups);

#endif
