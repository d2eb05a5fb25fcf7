/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that no preloaded library stands in front of: of RTLD_DEEPBIND, which ask the libraries that they need
 * first, and of namespaces of their own (dlmopen), with a C library of their own.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_LOADING_H
#define VARVE_TRACE_RECORDER_HEAP_LOADING_H

#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"

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

/*
 * Allocators beside that of the program: the C library of another namespace, that of an object opened with
 * RTLD_DEEPBIND. Each gets hooks that call its own functions, so that its blocks go back to it. Threads: one at a time.
 */

/// Is this one hooked, or given up?
bool other_allocators_know(const struct elf_object *object);

/// Hooks for what `object` defines, for all that is bound to it from now on. False: that can't be done.
bool other_allocators_hook(const struct elf_object *object);

/// It is left alone from now on.
void other_allocators_forgo(const struct elf_object *object);

/* The hooks of this library beside the functions that they stand for, for those whom no name leads to them. */

/* Those of the allocator come first. */
struct hook_table {
    const struct elf_replacement *rows;
    unsigned count;
    unsigned allocator_count;
};

/// Made at the first call, after heap_real was filled and heap_cxx_prepare was called. Threads: one at a time.
const struct hook_table *hook_table(void);

#endif
