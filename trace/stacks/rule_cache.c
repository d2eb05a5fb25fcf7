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

struct rule_set rule_sets[1U << RULE_SET_BITS];
_Alignas(CACHE_LINE_BYTES) unsigned rule_generation = 1;

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

/* In the first free way; where there is none, another rule is dropped, and found again when it is needed. So is one
 * that two threads put into the same way. */
static void rule_keep(uintptr_t address, uint32_t rule)
{
    uint64_t *ways = rule_sets[rule_set(address)].ways;
    unsigned way = 0;
    while (way < RULE_WAYS && __atomic_load_n(&ways[way], __ATOMIC_RELAXED) != 0) {
        way++;
    }
    /* of more rules than ways only those take turns that want the same one */
    way = way < RULE_WAYS ? way : rule_tag(address) % RULE_WAYS;
    __atomic_store_n(&ways[way], (uint64_t)rule_tag(address) << 32 | rule, __ATOMIC_RELAXED);
}

WALK_COLD uint32_t rule_fill(uintptr_t address)
{
    struct search search = {address, 0};
    struct recorder_signals signals;
    recorder_signals_block(&signals);
    (void)recorder_on_stack(search_now, &search);
    recorder_signals_restore(&signals);
    if (search.rule != 0) {
        rule_keep(address, search.rule);
    }
    return search.rule;
}

void native_stack_forget(void)
{
    for (unsigned i = 0; i < 1U << RULE_SET_BITS; i++) {
        for (unsigned way = 0; way < RULE_WAYS; way++) {
            if (__atomic_load_n(&rule_sets[i].ways[way], __ATOMIC_RELAXED) != 0) {
                __atomic_store_n(&rule_sets[i].ways[way], 0, __ATOMIC_RELAXED);
            }
        }
    }
    __atomic_fetch_add(&rule_generation, 1, __ATOMIC_RELEASE);
}
