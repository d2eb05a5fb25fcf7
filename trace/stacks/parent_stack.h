/* SPDX-License-Identifier: Apache-2.0 */
/* The Python stack of a waiting thread, inherited by the threads that work for it. */
#ifndef VARVE_TRACE_STACKS_PARENT_STACK_H
#define VARVE_TRACE_STACKS_PARENT_STACK_H

#include "trace/stacks/python_frame.h"

/// May the calling thread inherit frames? Those who have published them do not. Threads: any.
bool parent_stack_is_lent(void);

/// Appends the frames that a waiting thread has published (varve_python_stack_publish) to the `count` of this thread's
/// own, innermost first, up to `max` in all. The number of all; `count` if nobody has published any, or these have a
/// beginning of their own. Threads: any.
unsigned parent_stack_inherit(struct python_frame *frames, unsigned count, unsigned max);

#endif
