/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moment at which the program's own code is over: main returned, exit was called, or a Python interpreter that is
 * the program begins to tear itself down. One event main_end for each process.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_MAIN_END_H
#define VARVE_TRACE_RECORDER_HEAP_MAIN_END_H

#include <stdbool.h>

/// Once per process image, by its main thread, while the C library's allocations are served from the bootstrap pool, or
/// by an allocator that is not recorded: what is asked for here is freed when nothing of it was recorded.
void main_end_prepare(void);
/// Once, with all libraries that the program is linked with in place: is it a Python interpreter?
void main_end_find_python(void);

/// Main is over, if it was not already. Threads: any; async-signal-safe.
void main_end_emit(void);

/// The program is a Python interpreter that has not begun to tear itself down: main_end_look before a free.
extern bool main_end_is_watched;
void main_end_look(void);

/* A load and a branch where the program is no interpreter. */
static inline void main_end_watch(void)
{
    if (__builtin_expect(__atomic_load_n(&main_end_is_watched, __ATOMIC_RELAXED), 0)) {
        main_end_look();
    }
}

#endif
