/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment that a program is about to get: is the recorder in its LD_PRELOAD, and what is it without it. For
 * exec_look.c and the hooks of the exec family: also in a vfork child, with nothing allocated. Async-signal-safe.
 * `envp` may be NULL.
 */
#ifndef VARVE_TRACE_RECORDER_EXEC_ENVIRONMENT_H
#define VARVE_TRACE_RECORDER_EXEC_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/// The element of LD_PRELOAD that is the recorder, copied into `path`; false: none is, or it is too long.
bool exec_environment_recorder(char *const *envp, char *path, size_t bytes);

enum exec_order {
    EXEC_ORDER_NONE,   /* LD_PRELOAD names no library that must be the first (format/exec_check.h) */
    EXEC_ORDER_BEFORE, /* one before the recorder */
    EXEC_ORDER_BEHIND,
};

enum exec_order exec_environment_order(char *const *envp);

/// The environment without the recorder in LD_PRELOAD, whose other elements stay; the variable goes with its last
/// one. It lies in `memory`, of exec_environment_bytes(envp), but for the entries that are the same.
size_t exec_environment_bytes(char *const *envp);
char **exec_environment_without(char *const *envp, void *memory);

#endif
