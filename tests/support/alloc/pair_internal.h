/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * What the files of pair.h share: one run of allocator and model under way
 * (pair.c), the addresses they are given (…_addresses.c), the comparison of their whole
 * states (…_state.c).
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_PAIR_INTERNAL_H
#define VARVE_TESTS_SUPPORT_ALLOC_PAIR_INTERNAL_H

#include "support/alloc/model.h"
#include "support/alloc/pair.h"

/* An answer of the model to "where does it lie", for the sim device to give too. */
struct pair_address {
    uint64_t addr, bytes, stream;
    bool is_reservation;
};

/* Addresses that the device has back. */
struct pair_hole {
    uint64_t addr, bytes;
};

#define PAIR_MISS_FREES 8U /* at most in a step */

struct pair {
    const struct alloc_pair_setup *setup;
    struct alloc_model *model;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    uint64_t *live; /* addresses */
    size_t live_count, live_capacity;
    struct alloc_model_event *events; /* of this step, from the allocator */
    size_t event_count, event_capacity;
    struct pair_address *places; /* of this step */
    size_t place_count, place_capacity, place_taken;
    struct pair_hole *holes;
    size_t hole_count, hole_capacity;
    uint64_t lowest, highest; /* of all addresses so far */
    uint32_t salt;
    uint64_t missed[PAIR_MISS_FREES]; /* what the model's callback has freed in this step */
    unsigned missed_count, missed_taken;
    unsigned misses, misses_taken; /* calls of the callbacks in this step */
    size_t step;
    bool is_different;
    struct alloc_pair_difference *difference;
    struct varve_message message;
};

/// Note the first difference; returns false.
bool alloc_pair_fail(struct pair *pair, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *alloc_pair_grow(void *items, size_t count, size_t *capacity, size_t item_size);

/* For the model: `context` is the pair. */
uint64_t alloc_pair_address_choose(void *context, uint64_t bytes, uint64_t stream, bool is_reservation);
void alloc_pair_address_gone(void *context, uint64_t addr, uint64_t bytes);
/* For the sim device. */
int alloc_pair_segment_address(void *context, uint64_t bytes, uint64_t stream,
                               const struct varve_device_reservation *place, uint64_t *addr_out);
int alloc_pair_reservation_address(void *context, uint64_t bytes, uint64_t stream,
                                   const struct varve_device_reservation *place, uint64_t *addr_out);

/// Statistics and snapshots.
bool alloc_pair_compare_state(struct pair *pair);

#endif
