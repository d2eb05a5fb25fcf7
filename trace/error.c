/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the error codes, from the one list in error.h, and the reason that goes with a failure. Everybody
 * calls it, the recorder inside a workload too: nothing here allocates or takes a lock.
 */
#include "trace/error.h"

#include <stdarg.h>
#include <stdio.h>

const char *varve_strerror(int error)
{
    switch (error) {
    case VARVE_OK:
        return "success";
#define VARVE_ERROR_CASE(number, name, text) \
    case VARVE_ERROR_##name:                 \
        return text;
        VARVE_ERROR_LIST(VARVE_ERROR_CASE)
#undef VARVE_ERROR_CASE
    default:
        return "unknown error";
    }
}

int varve_message_set(struct varve_message *message, int error, const char *format, ...)
{
    if (message == NULL) {
        return error;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    /* The promise is one line, and a path or an SQL error may contain any byte. */
    for (char *c = message->text; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') {
            *c = ' ';
        }
    }
    return error;
}
