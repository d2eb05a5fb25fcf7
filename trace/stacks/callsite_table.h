/* SPDX-License-Identifier: Apache-2.0 */
/* Hash to number, read without a lock. */
#ifndef VARVE_TRACE_STACKS_CALLSITE_TABLE_H
#define VARVE_TRACE_STACKS_CALLSITE_TABLE_H

#include "trace/guest/stack_hash.h"

#include <stdint.h>

#define CALLSITE_TABLE_SIZES 21U /* 2^10 entries to 2^30 */

/* All zero is an empty table. Owner: its user, who also orders the writers. */
struct callsite_table {
    uintptr_t entries;                        /* pages; the low 12 bits hold the logarithm of the number of entries */
    uint32_t count;                           /* writers only */
    uintptr_t outgrown[CALLSITE_TABLE_SIZES]; /* smaller ones before it, whose addresses stay; writers only */
};

/// Number stored for `hash`, 0 if there is none (or not yet visible to this thread). Threads: any.
uint32_t callsite_table_find(const struct callsite_table *table, struct stack_hash hash);

/// Make room for one more entry. Returns VARVE_OK or VARVE_ERROR_NO_MEMORY. Threads: writers.
int callsite_table_reserve(struct callsite_table *table);

/// Store a number for a hash that is not in the table; callsite_table_reserve went before. Threads: writers.
void callsite_table_insert(struct callsite_table *table, struct stack_hash hash, uint32_t number);

/// Empty it and give its memory back. Threads: writers, while there are no readers.
void callsite_table_reset(struct callsite_table *table);

#endif
