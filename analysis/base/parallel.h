/* SPDX-License-Identifier: Apache-2.0 */
/* Independent pieces of work on several threads. */
#ifndef VARVE_ANALYSIS_BASE_PARALLEL_H
#define VARVE_ANALYSIS_BASE_PARALLEL_H

#include <stddef.h>

/// Call `run` with each index below `count`, lower ones first, on the calling thread and `threads` - 1 others
/// (0: one for each processor that the process may use; fewer if no more can be made). Returns when all are done.
void parallel_run(size_t count, unsigned threads, void (*run)(void *context, size_t index), void *context);
/// How many threads that are if `threads` is 0: at least 1.
unsigned parallel_threads(unsigned threads);

#endif
