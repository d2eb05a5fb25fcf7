/* SPDX-License-Identifier: Apache-2.0 */
/* The Python stack of a waiting thread, inherited by the threads that work for it. */
#ifndef VARVE_TRACE_RECORDER_STACKS_PYTHON_PARENT_STACK_H
#define VARVE_TRACE_RECORDER_STACKS_PYTHON_PARENT_STACK_H

#include "trace/recorder/stacks/python/frame.h"

/// Frames that a waiting thread has published (varve_python_stack_publish); 0 if none has. Threads: any.
unsigned parent_stack_inherit(struct python_frame *frames, unsigned max);

#endif
