/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pair.h: where segments and reservations come to lie. The model asks first and is
 * chosen above all others, below all others, or where memory was given back; the sim device must then ask for
 * the same.
 */
#include "support/alloc/pair_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define PLACE_ALIGNMENT UINT64_C(0x200000)

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

void *alloc_pair_grow(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        items = realloc(items, *capacity * item_size);
        require(items != NULL);
    }
    return items;
}

static uint64_t place_reused(struct pair *pair, uint64_t bytes)
{
    for (size_t i = pair->hole_count; i > 0; i--) {
        struct pair_hole *hole = &pair->holes[i - 1];
        uint64_t addr = hole->addr;

        if (hole->bytes >= bytes) {
            hole->addr += bytes;
            hole->bytes -= bytes;
            return addr;
        }
    }
    return 0;
}

uint64_t alloc_pair_address_choose(void *context, uint64_t bytes, uint64_t stream, bool is_reservation)
{
    struct pair *pair = context;
    uint64_t room = (bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
    uint32_t way = (pair->salt + (uint32_t)pair->place_count) % 4;
    uint64_t addr = way == 1 ? place_reused(pair, bytes) : 0;

    if (!addr && way == 2) {
        pair->lowest -= room;
        addr = pair->lowest;
    }
    if (!addr) {
        addr = pair->highest;
        pair->highest += room;
    }
    pair->places =
        alloc_pair_grow(pair->places, pair->place_count, &pair->place_capacity, sizeof(*pair->places));
    pair->places[pair->place_count++] = (struct pair_address){addr, bytes, stream, is_reservation};
    return addr;
}

void alloc_pair_address_gone(void *context, uint64_t addr, uint64_t bytes)
{
    struct pair *pair = context;

    pair->holes = alloc_pair_grow(pair->holes, pair->hole_count, &pair->hole_capacity, sizeof(*pair->holes));
    pair->holes[pair->hole_count++] = (struct pair_hole){addr, bytes};
}

static int place_take(struct pair *pair, uint64_t bytes, uint64_t stream, bool is_reservation,
                      uint64_t *addr_out)
{
    const struct pair_address *place = &pair->places[pair->place_taken];

    if (pair->place_taken == pair->place_count) {
        alloc_pair_fail(pair, "the allocator asked for a %s of %" PRIu64 " bytes, the model for none",
                        is_reservation ? "reservation" : "segment", bytes);
        return VARVE_ERROR_INVALID;
    }
    if (place->bytes != bytes || place->stream != stream || place->is_reservation != is_reservation) {
        alloc_pair_fail(pair,
                        "the allocator asked for a %s of %" PRIu64 " bytes, the model for a %s of %" PRIu64,
                        is_reservation ? "reservation" : "segment", bytes,
                        place->is_reservation ? "reservation" : "segment", place->bytes);
        return VARVE_ERROR_INVALID;
    }
    pair->place_taken++;
    *addr_out = place->addr;
    return VARVE_OK;
}

int alloc_pair_segment_address(void *context, uint64_t bytes, uint64_t stream,
                               const struct varve_device_reservation *place, uint64_t *addr_out)
{
    (void)place;
    return place_take(context, bytes, stream, false, addr_out);
}

int alloc_pair_reservation_address(void *context, uint64_t bytes, uint64_t stream,
                                   const struct varve_device_reservation *place, uint64_t *addr_out)
{
    (void)stream;
    return place_take(context, bytes, place->stream, true, addr_out);
}
