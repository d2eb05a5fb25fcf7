/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that no preloaded library stands in front of: of RTLD_DEEPBIND, which ask the libraries that they need
 * first, and of namespaces of their own (dlmopen), with a C library of their own.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_LOADING_H
#define VARVE_TRACE_RECORDER_HEAP_LOADING_H

#include <stdbool.h>

/// From now on the definitions that the hooks stand for lead to the hooks, whoever asks. Once heap_real is filled and
/// heap_cxx_prepare was called, before anything is recorded. Threads: one at a time.
void loading_begin(void);
/// No more: names lead again where they led before. Threads: one at a time.
void loading_end(void);

/// For hooks, while heap_state is HEAP_STATE_LOADING: looks at what this thread has loaded since. Always true.
/// Threads: any.
bool loading_look(void);

/// The process ends, or its recording: a last look. Threads: any.
void loading_finish(void);

/// Around the unloading of an object: what is known of the list of objects is not so any more.
void loading_closing(void);
void loading_closed(void);

#endif
