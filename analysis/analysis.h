/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public header of analysis/: the whole `varve` command as one function, so that tests and other programs
 * can run a command line without starting a process. Everything else of this folder is private.
 */
#ifndef VARVE_ANALYSIS_H
#define VARVE_ANALYSIS_H

#include <stdio.h>

/// Run `varve ARGUMENTS…`; argv[0] is the program's name, argv[argc] is NULL. Answers go to `out`, messages
/// and progress to `err`; both stay the caller's. A command that fails writes one line to `err`, and a
/// command line without a command the usage; nothing goes to `out` then (`query` may have written rows that came before
/// the failure).
/// Threads: one at a time; `record` handles signals of the whole process.
/// Returns the exit status: 0, or 2 for bad usage, bad input and failures. `record` does not return once its
/// program ran: it ends the process as the program ended.
int varve_command_run(int argc, char *const argv[], FILE *out, FILE *err);

#endif
