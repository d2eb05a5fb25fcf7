/* SPDX-License-Identifier: Apache-2.0 */
/* The little text that the recorder needs: paths, variables, and numbers of /proc. Async-signal-safe. */
#ifndef VARVE_TRACE_GUEST_GUEST_TEXT_H
#define VARVE_TRACE_GUEST_GUEST_TEXT_H

#include <stddef.h>
#include <stdint.h>

/// printf for paths, cut to fit; async-signal-safe subset: %s and %u only.
void recorder_format(char *buffer, size_t bytes, const char *format, ...);

/// Value of a variable in an environment; NULL: it is not there. `envp` may be NULL.
const char *recorder_variable(char *const *envp, const char *name);

/// The decimal number at the start of `text`, 0 if there is none.
uint64_t recorder_number(const char *text);

#endif
