/* SPDX-License-Identifier: Apache-2.0 */
/* operator new and delete, and what is recorded twice unless the two know of each other. */
#ifndef VARVE_TRACE_RECORDER_HEAP_OPERATOR_NEW_H
#define VARVE_TRACE_RECORDER_HEAP_OPERATOR_NEW_H

#include <stdbool.h>
#include <stdint.h>

/// Find what C++ code will see behind our own, once, before other threads exist and after heap_real was
/// filled; `is_recorded`: the heap is. False: an object in front of us defines malloc, so that the hooks see
/// nothing of what it serves.
bool heap_cxx_prepare(bool is_recorded);

/* Our malloc, whatever else has the name in C; set by heap_cxx_prepare. */
extern uintptr_t heap_malloc_hook;

/// One after the other those that are recorded here: name and definition. `*at` is 0 at first; false: no more.
bool heap_cxx_each_recorded(unsigned *at, const char **name, void **real);

/// Around the unloading of an object: what was found in it is forgotten.
void heap_cxx_closing(void);
void heap_cxx_closed(void);

/* An allocator's operator new or delete may itself call a function that has a hook: the address that a hook
 * of this thread has recorded last, and the one whose operator delete was recorded and is now at work. */
extern __thread void *heap_last_recorded __attribute__((tls_model("initial-exec")));
extern __thread void *heap_freeing __attribute__((tls_model("initial-exec")));

#endif
