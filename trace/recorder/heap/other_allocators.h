/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocators beside that of the program: the C library of another namespace, that of an object opened with
 * RTLD_DEEPBIND. Each gets hooks that call its own functions, so that its blocks go back to it. Threads: one at a time.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_OTHER_ALLOCATORS_H
#define VARVE_TRACE_RECORDER_HEAP_OTHER_ALLOCATORS_H

#include "trace/guest/elf_symbol.h"

#include <stdbool.h>

/// Is this one hooked, or given up?
bool other_allocators_know(const struct elf_object *object);

/// Hooks for what `object` defines, for all that is bound to it from now on. False: that can't be done.
bool other_allocators_hook(const struct elf_object *object);

/// It is left alone from now on.
void other_allocators_forgo(const struct elf_object *object);

#endif
