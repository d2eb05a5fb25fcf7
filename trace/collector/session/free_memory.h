/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this machine, or the container, has left. */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_FREE_MEMORY_H
#define VARVE_TRACE_COLLECTOR_SESSION_FREE_MEMORY_H

#include <stdint.h>

/// Bytes that can be had without swapping, or before a control group of this process kills a process; UINT64_MAX if
/// nothing is known. `root` is put before /proc and /sys: "" but in tests.
uint64_t free_memory(const char *root);

#endif
