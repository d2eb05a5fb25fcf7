/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifetimes of a random history's blocks are those that the history was made of: also of what was live before its first event or is at
 * its end, of frees that wait, and of blocks that no event names.
 */
#include "cmocka.h"

#include "analysis/history/lifetimes.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 24 /* addresses */
#define EVENTS 400
#define SEGMENT_BYTES ((uint64_t)8 << 10)

enum slot_state { SLOT_FREE, SLOT_USED, SLOT_PENDING };

struct model {
    struct history *history;
    struct history_device *device;
    struct history_lifetime expected[SLOTS + EVENTS];
    size_t count;
    enum slot_state states[SLOTS];
    size_t number[SLOTS]; /* of the lifetime in the slot */
    uint64_t random;
};

static uint64_t slot_addr(size_t slot)
{
    return (slot + 1) << 10;
}

/* Three segments, the second of a private pool. */
static uint16_t slot_pool(size_t slot)
{
    return slot / 8 == 1 ? 1 : 0;
}

static void begin(struct model *model, size_t slot, int64_t lower)
{
    model->states[slot] = SLOT_USED;
    model->number[slot] = model->count;
    model->expected[model->count++] = (struct history_lifetime){
        .lower = lower,
        .upper = EVENTS,
        .addr = slot_addr(slot),
        .size = 1 + random_below(&model->random, 1024),
        .stack = lower < 0 ? 0 : 1 + (uint32_t)random_below(&model->random, 9),
        .stream = (uint16_t)random_below(&model->random, 3),
        .pool = slot_pool(slot),
    };
}

static void step(struct model *model, size_t index)
{
    struct history_event *event = history_add_event(model->device);
    size_t slot = random_below(&model->random, SLOTS);
    struct history_lifetime *lifetime;

    if (model->states[slot] == SLOT_FREE) {
        begin(model, slot, (int64_t)index);
        event->action = HISTORY_ALLOC;
    } else if (model->states[slot] == SLOT_USED) {
        model->states[slot] = SLOT_PENDING;
        event->action = HISTORY_FREE_REQUESTED;
    } else {
        model->states[slot] = SLOT_FREE;
        model->expected[model->number[slot]].upper = (int64_t)index;
        event->action = HISTORY_FREE_COMPLETED;
    }
    lifetime = &model->expected[model->number[slot]];
    event->addr = lifetime->addr;
    event->size = lifetime->size;
    event->stream = lifetime->stream;
    event->stack = lifetime->stack;
}

/* Blocks of segments at the end, with those that are free. */
static void end(struct model *model)
{
    for (size_t i = 0; i < 3; i++) {
        struct history_segment *segment = history_add_segment(model->device);

        segment->addr = slot_addr(8 * i);
        segment->size = SEGMENT_BYTES;
        segment->pool_id[1] = i == 1 ? 7 : 0;
        segment->first_block = model->device->block_count;
        segment->block_count = 8;
        for (size_t slot = 8 * i; slot < 8 * i + 8; slot++) {
            struct history_block *block = history_add_block(model->device);
            const struct history_lifetime *lifetime = &model->expected[model->number[slot]];

            block->addr = slot_addr(slot);
            block->size = 1024;
            block->state = model->states[slot] == SLOT_FREE   ? HISTORY_INACTIVE
                           : model->states[slot] == SLOT_USED ? HISTORY_ACTIVE_ALLOCATED
                                                              : HISTORY_ACTIVE_PENDING_FREE;
            block->requested = model->states[slot] == SLOT_FREE ? 0 : lifetime->size;
            segment->stream = lifetime->stream;
        }
    }
}

static int compare(const void *a_untyped, const void *b_untyped)
{
    const struct history_lifetime *a = a_untyped;
    const struct history_lifetime *b = b_untyped;

    if (a->lower != b->lower) {
        return a->lower < b->lower ? -1 : 1;
    }
    return (a->addr > b->addr) - (a->addr < b->addr);
}

static bool is_touched(const struct model *model, const struct history_lifetime *lifetime)
{
    for (size_t i = 0; i < model->device->event_count; i++) {
        if (model->device->events[i].addr == lifetime->addr) {
            return true;
        }
    }
    return false;
}

static void expect_lifetimes(struct model *model)
{
    struct history_lifetimes made;

    history_lifetimes_make(model->history, model->device, &made);
    assert_int_equal(made.count, model->count);
    assert_int_equal(made.lost, 0);
    qsort(model->expected, model->count, sizeof(*model->expected), compare);
    for (size_t i = 0; i < made.count; i++) {
        const struct history_lifetime *got = &made.items[i];
        const struct history_lifetime *wanted = &model->expected[i];

        if (got->lower != wanted->lower || got->upper != wanted->upper || got->addr != wanted->addr ||
            got->size != wanted->size || got->stack != wanted->stack) {
            fail_msg("lifetime %zu is [%lld, %lld) of %llu bytes, not [%lld, %lld) of %llu", i,
                     (long long)got->lower, (long long)got->upper, (unsigned long long)got->size,
                     (long long)wanted->lower, (long long)wanted->upper, (unsigned long long)wanted->size);
        }
        assert_int_equal(made.pools[got->pool][1], wanted->pool == 1 ? 7 : 0);
        assert_true(got->stream == wanted->stream || !is_touched(model, wanted)); /* else the segment's */
    }
    history_lifetimes_free(&made);
}

TEST(test_random)
{
    uint64_t random = test_first_seed(3);

    for (int round = 0; round < 100; round++) {
        struct model model = {.history = history_new(), .random = random_next(&random)};

        model.device = history_device(model.history, 0);
        for (size_t slot = 0; slot < SLOTS; slot++) {
            if (random_below(&model.random, 2) == 0) {
                begin(&model, slot, HISTORY_BEFORE);
            }
        }
        for (size_t i = 0; i < EVENTS; i++) {
            step(&model, i);
        }
        end(&model);
        expect_lifetimes(&model);
        history_free(model.history);
    }
}

/* Named pools go by their names; an address that comes again without a free ends the block that was there. */
TEST(test_named)
{
    struct history *history = history_new();
    struct history_device *device = history_device(history, 0);
    struct history_lifetimes made;

    history->pool_count = 2;
    history->pool_ids[1][0] = 5;
    for (uint8_t pool = 0; pool < 3; pool++) {
        *history_add_event(device) =
            (struct history_event){.action = HISTORY_ALLOC, .addr = 4096, .size = 100, .pool = pool};
    }
    history_lifetimes_make(history, device, &made);
    assert_int_equal(made.count, 3);
    assert_int_equal(made.lost, 2);
    assert_int_equal(made.items[0].upper, 1);
    assert_int_equal(made.items[1].upper, 2);
    assert_int_equal(made.items[2].upper, 3);
    assert_int_equal(made.items[1].pool, 0);
    assert_int_equal(made.pools[made.items[2].pool][0], 5);
    history_lifetimes_free(&made);
    history_free(history);
}
