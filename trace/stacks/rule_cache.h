/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of each return address that was met, for all threads. */
#ifndef VARVE_TRACE_STACKS_RULE_CACHE_H
#define VARVE_TRACE_STACKS_RULE_CACHE_H

#include "trace/stacks/unwind_rules.h"
#include "trace/stacks/native_window.h"

#include <stdint.h>

#define WALK_INLINE static inline __attribute__((always_inline)) UNWIND_UNSANITIZED
#define WALK_COLD __attribute__((noinline, cold)) UNWIND_UNSANITIZED
#define UNLIKELY(condition) __builtin_expect((condition), 0)

enum { RULE_SET_BITS = 17, RULE_WAYS = 2 };

/*
 * An entry is one word, so it is never seen torn. Upper half: the bits of the address that the set number does not
 * imply; lower half: the rule. 0 is empty.
 */
extern uint64_t rule_sets[1U << RULE_SET_BITS][RULE_WAYS];
extern unsigned rule_generation; /* grows with native_stack_forget; never 0 */

WALK_INLINE unsigned rule_set(uintptr_t address)
{
    return (unsigned)((address >> 3) ^ (address >> (RULE_SET_BITS + 3))) & ((1U << RULE_SET_BITS) - 1U);
}

WALK_INLINE uint32_t rule_tag(uintptr_t address)
{
    return (uint32_t)((address >> (RULE_SET_BITS + 3)) << 3) | (uint32_t)(address & 7);
}

/* 0 if it is not in the cache. */
WALK_INLINE uint32_t rule_cached(uintptr_t address)
{
    uint64_t *set = rule_sets[rule_set(address)];
    uint64_t entry = __atomic_load_n(&set[0], __ATOMIC_RELAXED);
    if (UNLIKELY((uint32_t)(entry >> 32) != rule_tag(address))) {
        entry = __atomic_load_n(&set[1], __ATOMIC_RELAXED);
        if ((uint32_t)(entry >> 32) != rule_tag(address)) {
            return 0;
        }
    }
    return (uint32_t)entry;
}

/// Looks the rule up and keeps it, but not that of code which is in no loaded object: such code comes and goes without
/// notice. Of kind UNWIND_NONE if there is none, or no memory to look it up. Threads: any; async-signal-safe.
uint32_t rule_fill(uintptr_t address);

#endif
