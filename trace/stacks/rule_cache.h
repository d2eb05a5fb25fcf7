/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of each return address that was met, for all threads. */
#ifndef VARVE_TRACE_STACKS_RULE_CACHE_H
#define VARVE_TRACE_STACKS_RULE_CACHE_H

#include "trace/stacks/native_window.h"

#include <stdint.h>

/* How to leave one frame, in 32 bits. */

#define UNWIND_ADDRESS_LIMIT ((uintptr_t)1 << 47) /* user addresses on x86-64 with 4 page-table levels */

/* The canonical frame address (CFA) is what rsp will be in the caller; the return address lies just below. */
enum unwind_kind {
    UNWIND_NONE = 0,    /* no table: guess that rbp heads a frame */
    UNWIND_FRAME = 1,   /* CFA = rbp + 16, rbp saved at CFA - 16: the frame-pointer convention */
    UNWIND_RSP = 2,     /* CFA = rsp + 8 * offset */
    UNWIND_RBP = 3,     /* CFA = rbp + 8 * offset */
    UNWIND_DRAP = 4,    /* CFA = *(rbp - 8 * offset), rbp saved at rbp: a realigned stack */
    UNWIND_SIGNAL = 5,  /* the frame that the kernel made for a signal handler */
    UNWIND_END = 6,     /* outermost frame */
    UNWIND_UNKNOWN = 7, /* a table that these rules cannot express: the stack ends */
};

/* bits 0-2 kind, 3-10 where rbp is saved (CFA - 8 * slot; 0: not saved), 11-31 offset */
#define UNWIND_SLOT_MAX 255U
#define UNWIND_OFFSET_MAX ((1U << 21) - 1U)

static inline uint32_t unwind_rule(enum unwind_kind kind, uint32_t slot, uint32_t offset)
{
    return (uint32_t)kind | (slot << 3) | (offset << 11);
}

/* As a cached rule: there is no table, and there will be none. Never 0. */
#define UNWIND_GUESS ((uint32_t)UNWIND_NONE | (2U << 11))

static inline enum unwind_kind unwind_rule_kind(uint32_t rule)
{
    return (enum unwind_kind)(rule & 7U);
}

static inline uintptr_t unwind_rule_slot_bytes(uint32_t rule)
{
    return rule & (UNWIND_SLOT_MAX << 3);
}

static inline uintptr_t unwind_rule_offset_bytes(uint32_t rule)
{
    return (uintptr_t)(rule >> 11) * 8U;
}

/// Rule for the instruction at `address` (one below a return address). Threads: any; reads tables of loaded
/// objects, takes microseconds and 2 KiB of stack: the caller caches it.
uint32_t unwind_rule_find(uintptr_t address);

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
