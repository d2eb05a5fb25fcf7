/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread's last walk has read, and the hash of each part of it. */
#ifndef VARVE_TRACE_STACKS_PYTHON_MEMO_H
#define VARVE_TRACE_STACKS_PYTHON_MEMO_H

#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"

#define PYTHON_STACK_UNKNOWN (~0U - 1)

/// Hash and number of the frames from `at` outwards that are kept (stack_is_cut), by what is known of this thread's
/// last walk. PYTHON_STACK_UNKNOWN if there is no room. `frames` has room for both ends of a stack, and what comes to
/// lie there is of no use. Threads: any; not reentrant: a handler must not come here while its thread is in it.
unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at, unsigned depth,
                          struct python_frame *frames, struct stack_hash *hash);

/// All frames, as python_stack_ends has them. Otherwise as above.
unsigned python_memo_ends(const struct python_layout *layout, const void *code_type, const char *at,
                          struct python_frame *frames);

/// This thread ends: its memo goes. Signals are blocked.
void python_memo_thread_end(void);

#endif
