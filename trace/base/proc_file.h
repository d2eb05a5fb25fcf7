/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of /proc about another process. */
#ifndef VARVE_TRACE_BASE_PROC_FILE_H
#define VARVE_TRACE_BASE_PROC_FILE_H

#include <stddef.h>

/// The first bytes of /proc/PROCESS/NAME, ended by a NUL; how many there are before it: 0 too if it can't be read.
/// `process` is a number or "self".
size_t proc_file_read(const char *process, const char *name, char *text, size_t bytes);

#endif
