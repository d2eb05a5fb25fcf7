/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of this process that are not a return from main(): nothing below analysis/cli ends it. They may be called by
 * any thread.
 */
#ifndef VARVE_ANALYSIS_CLI_PROCESS_END_H
#define VARVE_ANALYSIS_CLI_PROCESS_END_H

/// End as the program that ended with `wait_status`, as waitpid has it: the same exit status, or the same signal,
/// without a core file.
void process_end_like(int wait_status) __attribute__((noreturn));
/// End at once, as shells have it of a program that Ctrl-C ended. Also for handlers of signals.
void process_end_interrupted(void);
/// Without memory the process ends from now on: with one line, EXIT_STATUS_FAILED, and nothing half-written left
/// behind.
void process_end_without_memory(void);
/// The work is done, and only words about it may still lack memory: after the line the process ends as a program that
/// ended with `wait_status`.
void process_work_is_done(int wait_status);

#endif
