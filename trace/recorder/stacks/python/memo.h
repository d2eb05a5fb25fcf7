/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread's last walk has read, and the hash of each part of it. */
#ifndef VARVE_TRACE_RECORDER_STACKS_PYTHON_MEMO_H
#define VARVE_TRACE_RECORDER_STACKS_PYTHON_MEMO_H

#include "trace/recorder/guest/stack_hash.h"
#include "trace/recorder/stacks/python/layout.h"

#define PYTHON_STACK_UNKNOWN (~0U)
#define PYTHON_MEMO_FRAMES_MAX 256U /* deeper stacks are captured without a memo */

/// Hash and number of the frames from `at` outwards, by what is known of this thread's last walk.
/// PYTHON_STACK_UNKNOWN if there is no room, or if there are more than `max`. Threads: any; not reentrant: a handler
/// must not come here while its thread is in it.
unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at, unsigned max,
                          struct stack_hash *hash);

/// This thread ends: its memo goes. Signals are blocked.
void python_memo_thread_end(void);

#endif
