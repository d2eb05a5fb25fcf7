/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of this library beside the functions that they stand for, for those whom no name leads to them. */
#ifndef VARVE_TRACE_RECORDER_HEAP_HOOK_TABLE_H
#define VARVE_TRACE_RECORDER_HEAP_HOOK_TABLE_H

#include "trace/guest/elf_entries.h"

/* Those of the allocator come first. */
struct hook_table {
    const struct elf_replacement *rows;
    unsigned count;
    unsigned allocator_count;
};

/// Made at the first call, after heap_real was filled and heap_cxx_prepare was called. Threads: one at a time.
const struct hook_table *hook_table(void);

#endif
