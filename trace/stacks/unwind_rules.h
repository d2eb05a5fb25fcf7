/* SPDX-License-Identifier: Apache-2.0 */
/* How to leave one frame, in 32 bits. */
#ifndef VARVE_TRACE_STACKS_UNWIND_RULES_H
#define VARVE_TRACE_STACKS_UNWIND_RULES_H

#include <stdint.h>

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

#endif
