/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that the interpreter is laid out as python_layout.c says. */
#ifndef VARVE_TRACE_STACKS_PYTHON_VERIFY_H
#define VARVE_TRACE_STACKS_PYTHON_VERIFY_H

#include "trace/stacks/python_layout.h"

#include <stdint.h>

enum python_verdict {
    PYTHON_VERDICT_NO_FRAMES,
    PYTHON_VERDICT_GOOD,
    PYTHON_VERDICT_BAD,
};

/// Check the thread state and every frame of this thread against the layout, without trusting any pointer.
/// `*frames` is how many frames were looked at. They are the caller's own.
enum python_verdict python_verify_stack(const struct python_layout *layout, const struct python_types *types,
                                        const void *state, unsigned *frames);

#endif
