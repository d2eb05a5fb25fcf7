/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of the program's own file that no other object can see, which are not in memory. */
#ifndef VARVE_TRACE_GUEST_ELF_FILE_H
#define VARVE_TRACE_GUEST_ELF_FILE_H

#include <stdbool.h>

/// Addresses in this process of `count` symbols of the program, by the table that linkers write for debuggers; NULL for
/// those that are not there. False: the program has no such table, or no section of that name (a few system calls
/// decide that). Not in hooks of programs whose calls are confined. Needs some hundred bytes of the stack; allocates
/// nothing. Threads: any.
bool elf_file_symbols(const char *section, const char *const *names, unsigned count, void **addresses_out);

#endif
