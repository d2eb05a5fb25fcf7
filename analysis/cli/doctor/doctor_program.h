/* SPDX-License-Identifier: Apache-2.0 */
/* Programs, and code that may hang or crash, as processes with a time limit. */
#ifndef VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_PROGRAM_H
#define VARVE_ANALYSIS_CLI_DOCTOR_DOCTOR_PROGRAM_H

#include <stddef.h>

enum program_answer {
    PROGRAM_ANSWERED, /* and ended with status 0 */
    PROGRAM_FAILED,
    PROGRAM_LATE, /* said nothing for so long; it was ended */
};

/// What `argv` (found in PATH, NULL at its end) prints goes to `text`; what is too much is dropped.
enum program_answer program_run(const char *const *argv, int limit_ms, char *text, size_t bytes);

struct child_end {
    enum program_answer answer;
    int signal;   /* that ended it, of PROGRAM_FAILED; 0: none */
    size_t bytes; /* of what it wrote */
};

/// `work` in a fork child; what it writes to `output` goes to `text`, with a NUL behind it.
struct child_end child_run(void (*work)(int output, const void *context), const void *context, int limit_ms, char *text,
                           size_t bytes);

#endif
