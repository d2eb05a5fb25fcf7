/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the cache of unwind rules: a look-up takes microseconds and room, so it runs on the recorder's stack with
 * signals blocked, once for each return address. Called by native_stack.c and native_deep.c.
 */
#include "trace/stacks/native_walk.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/guest_signals.h"
#include "trace/stacks/native_stack.h"

uint64_t rule_sets[1U << RULE_SET_BITS][RULE_WAYS];
unsigned rule_generation = 1;

struct search {
    uintptr_t address;
    uint32_t rule;
};

static void search_now(void *argument)
{
    struct search *search = argument;
    search->rule = unwind_rule_find(search->address);
    if (search->rule == 0) {
        search->rule = UNWIND_GUESS; /* what an object has no table for, it has none for as long as it is there */
    }
}

WALK_COLD uint32_t rule_fill(uintptr_t address)
{
    uint64_t *set = rule_sets[rule_set(address)];
    struct search search = {address, 0};
    if (!loaded_object_is_at(address)) {
        return 0;
    }
    struct recorder_signals signals;
    recorder_signals_block(&signals);
    (void)recorder_on_stack(search_now, &search);
    recorder_signals_restore(&signals);
    if (search.rule != 0) {
        /* Newest first; two threads here may drop a rule of each other, which is found again. */
        uint64_t older = __atomic_load_n(&set[0], __ATOMIC_RELAXED);
        __atomic_store_n(&set[1], older, __ATOMIC_RELAXED);
        __atomic_store_n(&set[0], (uint64_t)rule_tag(address) << 32 | search.rule, __ATOMIC_RELAXED);
    }
    return search.rule;
}

void native_stack_forget(void)
{
    for (unsigned i = 0; i < 1U << RULE_SET_BITS; i++) {
        for (unsigned way = 0; way < RULE_WAYS; way++) {
            if (__atomic_load_n(&rule_sets[i][way], __ATOMIC_RELAXED) != 0) {
                __atomic_store_n(&rule_sets[i][way], 0, __ATOMIC_RELAXED);
            }
        }
    }
    __atomic_fetch_add(&rule_generation, 1, __ATOMIC_RELEASE);
}
