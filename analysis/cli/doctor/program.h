/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs, and code that may hang or crash, as processes with a time limit.
 */
#ifndef VARVE_ANALYSIS_CLI_DOCTOR_PROGRAM_H
#define VARVE_ANALYSIS_CLI_DOCTOR_PROGRAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum program_answer {
    PROGRAM_ANSWERED, /* and ended with status 0 */
    PROGRAM_FAILED,
    PROGRAM_LATE, /* said nothing for so long; it was ended */
};

/// What `argv` (found in PATH, NULL at its end) prints goes to `text`; what is too much is dropped.
enum program_answer program_run(const char *const *argv, int limit_ms, char *text, size_t bytes);
/// `work` in a fork child; what it writes to `output` goes to `text`. status_out: as waitpid reports it, of
/// PROGRAM_FAILED.
enum program_answer child_run(void (*work)(int output), int limit_ms, char *text, size_t bytes,
                              int *status_out);

#ifdef __cplusplus
}
#endif

#endif
