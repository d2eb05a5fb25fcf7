/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of handles, events and exports. An id that was released is not known again. */
#ifndef VARVE_ALLOC_DEVICE_DEVICE_SLOTS_H
#define VARVE_ALLOC_DEVICE_DEVICE_SLOTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <assert.h>

/* A handle of physical memory, an event, or an entry of the table of exports. */
struct device_slot {
    uint64_t bytes;      /* handles */
    uint64_t value;      /* handles of the host: offset in its file; events: number of their last record */
    uint64_t stream;     /* events: of the last record */
    uint32_t maps;       /* handles: mappings of it */
    uint32_t generation; /* times that the slot was released */
    uint32_t next;       /* spare slots: index + 1 of the next one */
    bool is_live;
    bool is_released; /* handles: gone with their last mapping */
    bool is_pending;  /* events: were recorded as incomplete, and not completed by name since */
};

struct device_slots {
    struct device_slot *slots;
    uint32_t count;
    size_t capacity;
    uint32_t spare; /* index + 1 */
    uint32_t live;
};

/// A slot and its id, not 0; NULL if there is no memory. The slot moves with the next take.
struct device_slot *slots_acquire(struct device_slots *slots, uint64_t *id_out);
void slots_release(struct device_slots *slots, uint64_t id);
/// NULL for an id that is not out.
struct device_slot *slots_find(const struct device_slots *slots, uint64_t id);
/// Position of an id in `slots->slots`.
uint32_t slots_index(uint64_t id);
void slots_close(struct device_slots *slots);
int slots_check(const struct device_slots *slots, const char *name, struct varve_message *message);

#endif
