/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error codes of all of varve: 0 is success, failures are negative. One list gives the enum, the names and
 * the texts, so that they cannot drift. Where a reason helps, a function also fills a caller-owned
 * `struct varve_message`.
 */
#ifndef VARVE_BASE_ERROR_H
#define VARVE_BASE_ERROR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_ERROR_LIST(X)                          \
    X(1, INVALID, "invalid argument")                \
    X(2, NO_MEMORY, "out of memory")                 \
    X(3, IO, "input or output failed")               \
    X(4, NOT_FOUND, "no such file or object")        \
    X(5, PERMISSION, "permission denied")            \
    X(6, FORMAT, "not in the expected format")       \
    X(7, VERSION, "written by a newer version")      \
    X(8, BUSY, "in use by another process")          \
    X(9, FULL, "no space left")                      \
    X(10, UNSUPPORTED, "not supported here")         \
    X(11, DATABASE, "the database reports an error") \
    X(12, LOST, "data was lost")                     \
    X(13, CORRUPT, "an invariant does not hold")

enum varve_error {
    VARVE_OK = 0,
#define VARVE_ERROR_ENUM(number, name, text) VARVE_ERROR_##name = -(number),
    VARVE_ERROR_LIST(VARVE_ERROR_ENUM)
#undef VARVE_ERROR_ENUM
};

/// The next step of several: the call is evaluated only if no step before it failed, and `error` becomes what it
/// returns. `error` is a variable of any codes of which 0 is success.
#define VARVE_THEN(error, call) \
    do {                        \
        if ((error) == 0) {     \
            (error) = (call);   \
        }                       \
    } while (0)

/// A step whose failure is its function's: the function returns its code at once.
#define VARVE_TRY(call)       \
    do {                      \
        int tried = (call);   \
        if (tried != 0) {     \
            return tried;     \
        }                     \
    } while (0)

/// The reason of a failure, one line without a newline. Owner: the caller, on its stack.
struct varve_message {
    char text[512];
};

/// Text of an error code; never NULL, static storage. Threads: any.
const char *varve_strerror(int error);

/// Format a reason into `message`, with ' ' for ends of lines and '?' for what may not be shown (NULL is
/// allowed: the reason is dropped) and return `error`. Threads: any. Never allocates.
int varve_message_set(struct varve_message *message, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/// Bytes of the UTF-8 sequence that the first of `bytes` begin with; 0 if it is malformed. Threads: any.
size_t varve_utf8_length(const char *text, size_t bytes);
/// The same, and 0 for control characters (C0, DEL, C1) as well: what a terminal gets of texts from
/// elsewhere.
size_t varve_utf8_shown(const char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
