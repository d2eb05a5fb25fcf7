/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots are taken by compare-and-swap, so processes of any user and threads need no lock. More of the file `counts`
 * than is mapped comes by mremap, which asks for no descriptor. Called by ring.c and session.c where a file can't be
 * made.
 */
#include "trace/recorder/ring.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"

#include <stdbool.h>
#include <time.h>

#define TURNS 2000U /* of waiting for a slot, which the collector makes between two commits */
#define TURN_NS 1000000L

static struct reserve_slot *slot_take_once(struct session_counts *counts)
{
    for (uint32_t i = 0; i < RESERVE_SLOTS; i++) {
        uint32_t ready = RESERVE_STATE_READY;
        if (__atomic_load_n(&counts->reserve[i].state, __ATOMIC_RELAXED) == ready &&
            __atomic_compare_exchange_n(&counts->reserve[i].state, &ready, RESERVE_STATE_TAKEN, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            return &counts->reserve[i];
        }
    }
    return NULL;
}

/* Waits in vain are not repeated for each thread and event: what they cost, this process and its forks pay once. */
static struct reserve_slot *slot_take(struct session_counts *counts)
{
    static uint32_t turns_in_vain; /* atomic */
    const struct timespec turn = {0, TURN_NS};
    struct reserve_slot *slot = slot_take_once(counts);
    while (slot == NULL && __atomic_load_n(&turns_in_vain, __ATOMIC_RELAXED) < TURNS && !recorder_collector_is_gone()) {
        recorder_sys_nanosleep(&turn);
        slot = slot_take_once(counts);
        __atomic_fetch_add(&turns_in_vain, 1, __ATOMIC_RELAXED);
    }
    if (slot != NULL) {
        __atomic_store_n(&turns_in_vain, 0, __ATOMIC_RELAXED);
    }
    return slot;
}

void *recorder_reserve_take(enum reserve_state kind, uint32_t process, uint32_t ring, size_t bytes)
{
    struct session_counts *counts = recorder_session_counts();
    struct reserve_slot *slot = slot_take(counts);
    if (slot == NULL) {
        return NULL;
    }
    const uint64_t offset = SESSION_COUNTS_BYTES + (uint64_t)(slot - counts->reserve) * RESERVE_SLOT_BYTES;
    void *memory = recorder_map_more(counts, offset, bytes);
    slot->process = process;
    slot->ring = ring;
    __atomic_store_n(&slot->state, memory != NULL ? kind : RESERVE_STATE_READY, __ATOMIC_RELEASE);
    return memory;
}
