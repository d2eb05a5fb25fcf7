/* SPDX-License-Identifier: Apache-2.0 */
/* The program under record, looked at before it is started. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_CHECK_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_CHECK_H

#include "base/error.h"

struct launch_check {
    char path[4096];        /* what will be executed, found along PATH */
    char interpreter[4096]; /* of a script; "" otherwise */
};

/// Look at the program before it is started: VARVE_ERROR_NOT_FOUND, VARVE_ERROR_PERMISSION (not executable, a
/// directory), VARVE_ERROR_UNSUPPORTED (statically linked, other machine, setuid or setgid, file
/// capabilities), each with one line that says what is wrong and what to do.
int launch_check(const char *program, struct launch_check *check_out, struct varve_message *message);

#endif
