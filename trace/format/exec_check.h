/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Will the dynamic linker heed LD_PRELOAD in the program of a file? Asked by the recorder before an exec, and
 * by `varve record` before it starts a program: so by raw system calls, with nothing allocated.
 * Async-signal-safe.
 */
#ifndef VARVE_TRACE_FORMAT_EXEC_CHECK_H
#define VARVE_TRACE_FORMAT_EXEC_CHECK_H

#include "trace/format/session_format.h"

#include <stdbool.h>

#define EXEC_SHELL "/bin/sh"
#define EXEC_LINE_BYTES 256U /* the kernel looks no further for the end of a #! line */

enum exec_format {
    EXEC_FORMAT_OTHER = 0, /* nothing that the kernel runs by itself, or not readable */
    EXEC_FORMAT_ELF = 1,
    EXEC_FORMAT_SCRIPT = 2,
};

enum exec_format exec_check_format(int fd);

/// The line of a script after "#!" without blanks at its ends, "" if there is none.
void exec_check_line(int fd, char line[EXEC_LINE_BYTES]);

/* What is wrong with an ELF file beyond enum exec_reason: exec will fail. */
#define EXEC_CHECK_DAMAGED (-1)    /* headers are cut off */
#define EXEC_CHECK_NO_PROGRAM (-2) /* an object file, a core dump */

/// enum exec_reason of an ELF file, by what the kernel and the loader will do for the calling process; or one
/// of the codes above. `path` is for its last part only.
int exec_check_elf(int fd, const char *path);

/// Is this the file name of a library that ends its program if another library stands before it, and does that
/// program name one? More of the path may follow the name.
bool exec_check_is_first(const char *name);
bool exec_check_needs_first(int fd);
/// Unless the variable ASAN_OPTIONS says otherwise; NULL: there is none.
bool exec_check_minds_order(const char *asan_options);

/// Its class differs from this machine's: 32-bit.
bool exec_check_is_32bit(int fd);

#endif
