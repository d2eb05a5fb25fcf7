/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind the slots comes from fallocate, before a producer can take one: a store into a page that can't be had
 * would be its SIGBUS. Called by recording_directory.c, which looks here for what is no file, and in each round of the
 * collector.
 */
#include "trace/collector/session/recording_directory.h"

#include "trace/format/ring_format.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#define READY_FIRST 8U
#define READY_MOST 64U

static uint64_t slot_offset(uint32_t slot)
{
    return SESSION_COUNTS_BYTES + slot * RESERVE_SLOT_BYTES;
}

/* What the file has in memory, counted with all that the recording has there. */
static uint64_t reserve_slots_file_bytes(const struct session_reserve *reserve)
{
    struct stat status;
    return fstat(reserve->fd, &status) == 0 ? (uint64_t)status.st_blocks * 512 : 0;
}

static void reserve_slots_count(const struct session_reserve *reserve, uint64_t before)
{
    __atomic_add_fetch(&reserve->counts->memory_bytes, reserve_slots_file_bytes(reserve) - before, __ATOMIC_ACQ_REL);
}

static bool reserve_slots_allocate(const struct session_reserve *reserve, uint32_t slot, uint64_t from, uint64_t bytes)
{
    const uint64_t before = reserve_slots_file_bytes(reserve);
    const bool is_there = posix_fallocate(reserve->fd, (off_t)(slot_offset(slot) + from), (off_t)bytes) == 0;
    reserve_slots_count(reserve, before);
    return is_there;
}

/* Its memory goes, and reads as zeros when there is some again. */
static bool reserve_slots_clear(const struct session_reserve *reserve, uint32_t slot)
{
    const uint64_t before = reserve_slots_file_bytes(reserve);
    const bool is_gone = fallocate(reserve->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)slot_offset(slot),
                                   (off_t)RESERVE_SLOT_BYTES) == 0;
    reserve_slots_count(reserve, before);
    return is_gone;
}

/* What either kind of content uses first. */
static bool make_ready(const struct session_reserve *reserve, uint32_t slot)
{
    static_assert(RESERVE_SITES_OFFSET + RESERVE_SITES_FIRST_BYTES >= RING_HEADER_BYTES, "the header of a ring too");
    if (!reserve_slots_allocate(reserve, slot, 0, RESERVE_SITES_OFFSET + RESERVE_SITES_FIRST_BYTES) ||
        !reserve_slots_allocate(reserve, slot, RING_HEADER_BYTES + RING_STAGING_BYTES,
                                RING_FIRST_RECORDS * sizeof(struct varve_record))) {
        (void)reserve_slots_clear(reserve, slot);
        return false;
    }
    __atomic_store_n(&reserve->counts->reserve[slot].state, RESERVE_STATE_READY, __ATOMIC_RELEASE);
    return true;
}

static uint32_t reserve_slots_state_of(const struct session_reserve *reserve, uint32_t slot)
{
    return __atomic_load_n(&reserve->counts->reserve[slot].state, __ATOMIC_ACQUIRE);
}

void session_reserve_fill(struct session_reserve *reserve)
{
    uint32_t ready = 0;
    for (uint32_t slot = 0; reserve->counts != NULL && slot < reserve->used; slot++) {
        ready += reserve_slots_state_of(reserve, slot) == RESERVE_STATE_READY;
    }
    if (reserve->counts == NULL || (ready > 0 && ready >= reserve->ready / 2)) {
        return;
    }
    if (reserve->ready == 0) {
        reserve->ready = READY_FIRST;
    } else if (ready == 0 && reserve->ready < READY_MOST) {
        reserve->ready *= 2;
    }
    for (uint32_t slot = 0; slot < RESERVE_SLOTS && ready < reserve->ready; slot++) {
        if (reserve_slots_state_of(reserve, slot) == RESERVE_STATE_EMPTY) {
            if (!make_ready(reserve, slot)) {
                return;
            }
            ready++;
            reserve->used = slot + 1 > reserve->used ? slot + 1 : reserve->used;
        }
    }
}

/* RESERVE_SLOTS: none. */
static uint32_t find_slot(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                          uint32_t ring)
{
    uint32_t slot = reserve->counts != NULL ? 0 : RESERVE_SLOTS;
    for (; slot < RESERVE_SLOTS; slot++) {
        const struct reserve_slot *at = &reserve->counts->reserve[slot];
        if (reserve_slots_state_of(reserve, slot) == (uint32_t)kind && at->process == process && at->ring == ring) {
            break;
        }
    }
    return slot;
}

bool session_reserve_find(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                          uint32_t ring, uint64_t *offset)
{
    const uint32_t slot = find_slot(reserve, kind, process, ring);
    *offset = slot_offset(slot);
    return slot < RESERVE_SLOTS;
}

bool session_reserve_grow(const struct session_reserve *reserve, uint64_t offset, uint64_t from, uint64_t bytes)
{
    return from <= RESERVE_SLOT_BYTES && bytes <= RESERVE_SLOT_BYTES - from &&
           reserve_slots_allocate(reserve, (uint32_t)((offset - SESSION_COUNTS_BYTES) / RESERVE_SLOT_BYTES), from,
                                  bytes);
}

void session_reserve_release(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                             uint32_t ring)
{
    const uint32_t slot = find_slot(reserve, kind, process, ring);
    if (slot < RESERVE_SLOTS && reserve_slots_clear(reserve, slot)) {
        __atomic_store_n(&reserve->counts->reserve[slot].state, RESERVE_STATE_EMPTY, __ATOMIC_RELEASE);
    }
}
