/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of handles, events and exports: a slot in an array that grows, the spare ones in a list. The number of
 * times that a slot was released is in the upper half of its id, so that an id kept too long is not known
 * any more instead of naming its successor. Called by the resource table.
 */
#include "alloc/device/device_slots.h"
#include "base/grown_array.h"

#include <stdlib.h>

#define SLOTS_MAX ((uint32_t)1 << 31)

struct device_slot *slots_acquire(struct device_slots *slots, uint64_t *id_out)
{
    struct device_slot *slot;
    uint32_t index, generation = 0;
    if (slots->spare) {
        index = slots->spare - 1;
        slot = &slots->slots[index];
        assert(!slot->is_live);
        generation = slot->generation;
        slots->spare = slot->next;
    } else {
        if (slots->count == SLOTS_MAX || !ARRAY_GROW(slots->slots, slots->capacity, slots->count + 1)) {
            return NULL;
        }
        index = slots->count++;
        slot = &slots->slots[index];
    }
    *slot = (struct device_slot){.generation = generation, .is_live = true};
    slots->live++;
    *id_out = (uint64_t)generation << 32 | (index + 1);
    return slot;
}

void slots_release(struct device_slots *slots, uint64_t id)
{
    struct device_slot *slot = slots_find(slots, id);
    assert(slot);
    slot->is_live = false;
    slot->generation++;
    slot->next = slots->spare;
    slots->spare = slots_index(id) + 1;
    slots->live--;
}

struct device_slot *slots_find(const struct device_slots *slots, uint64_t id)
{
    uint32_t number = (uint32_t)id;
    if (number == 0 || number > slots->count) {
        return NULL;
    }
    struct device_slot *slot = &slots->slots[number - 1];
    return slot->is_live && slot->generation == (uint32_t)(id >> 32) ? slot : NULL;
}

uint32_t slots_index(uint64_t id)
{
    return (uint32_t)id - 1;
}

void slots_close(struct device_slots *slots)
{
    free(slots->slots);
    *slots = (struct device_slots){0};
}

int slots_check(const struct device_slots *slots, const char *name, struct varve_message *message)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < slots->count; i++) {
        live += slots->slots[i].is_live;
    }
    uint32_t spare = 0;
    for (uint32_t at = slots->spare; at != 0; at = slots->slots[at - 1].next) {
        if (at > slots->count || slots->slots[at - 1].is_live || ++spare > slots->count) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: slot %u is no spare one", name, at);
        }
    }
    if (live != slots->live || live + spare != slots->count) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: %u live (%u counted) and %u spare of %u", name,
                                 live, slots->live, spare, slots->count);
    }
    return 0;
}
