/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of records: what is kept comes out again, ring by ring and in order, unless it was marked; against a
 * naive model with random rings, jumps and marks, with more rings than buffers, and with marks that nobody
 * can have made.
 */
#include "support/salvage_model.h"

/* Mostly the next one; short jumps, long ones, absurd ones. */
static uint64_t next_number(struct model *model, uint32_t index)
{
    const struct model_ring *ring = &model->rings[index];
    uint64_t number = ring->count > 0 ? ring->numbers[ring->count - 1] + 1 : 1;

    switch (random_word(&model->random) % 200) {
    case 0:
        return number + random_word(&model->random) % 10;
    case 1:
        return number + random_word(&model->random) % 10000;
    case 2:
        return number + (random_word(&model->random) % 8 == 0 ? random_word(&model->random) % FAR : 1);
    default:
        return number;
    }
}

/* Everything in turns: bursts of a few rings, marks of what is there already, readings. */
static void test_random_rings(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        uint32_t rings = 1 + round * 7 % 41;
        struct model model;

        model_open(&model, rings);
        model.random = round + 1;
        compare_all(&model);
        for (unsigned step = 0; step < 200; step++) {
            uint32_t ring = (uint32_t)(random_word(&model.random) % rings);
            for (uint64_t left = random_word(&model.random) % 600; left > 0; left--) {
                keep(&model, ring, next_number(&model, ring));
                ring = random_word(&model.random) % 4 == 0 ? (uint32_t)(random_word(&model.random) % rings)
                                                           : ring;
            }
            if (step % 50 == 49) {
                compare_all(&model);
                mark_some(&model, 1 + (unsigned)(random_word(&model.random) % 4));
                compare_all(&model);
            }
        }
        mark_some(&model, 1);
        compare_all(&model);
        model_close(&model);
    }
}

/* A long run of one ring: the file has most of it, and blocks of every size are cut and skipped right. */
static void test_holes_at_any_place(void **state)
{
    struct model model;
    const size_t count = 40000;

    (void)state;
    model_open(&model, 2);
    for (size_t i = 0; i < count; i++) {
        keep(&model, 1, 1 + i);
    }
    assert_true(model.salvage->written > 0);
    for (size_t from = 0; from < count;) {
        size_t marked = from + random_word(&model.random) % 3000;
        for (; from < marked && from < count; from++) {
            mark(&model, 1, from);
        }
        from += 1 + random_word(&model.random) % 3 * (random_word(&model.random) % 200);
    }
    compare_all(&model);
    mark_some(&model, 1);
    compare_all(&model);
    model_close(&model);
}

/* Records of more rings than there are buffers: memory stays bounded, nothing is mixed up. */
static void test_many_rings(void **state)
{
    const uint32_t rings = 10000;
    struct model model;
    uint64_t staged = 0;

    (void)state;
    model_open(&model, rings);
    for (unsigned round = 0; round < 60; round++) {
        for (uint32_t i = 0; i < rings; i++) {
            uint32_t ring = i * 7919 % rings;
            if (ring % 10 > round % 17) {
                continue; /* some are idle for a while */
            }
            keep(&model, ring, next_number(&model, ring));
            if (ring % 1000 == 3) {
                for (unsigned more = 0; more < 40; more++) {
                    keep(&model, ring, next_number(&model, ring));
                }
            }
            assert_true(model.salvage->staged <= SALVAGE_STAGED_MAX);
        }
    }
    for (uint32_t i = 0; i < model.salvage->ring_count; i++) {
        const struct salvage_ring *ring = &model.salvage->rings[i];
        assert_true(ring->count <= ring->capacity);
        assert_int_equal(ring->capacity == 0, ring->records == NULL);
        staged += ring->capacity;
    }
    assert_int_equal(staged, model.salvage->staged);
    compare_all(&model);
    mark_some(&model, 2);
    compare_all(&model);
    model_close(&model);
}

/* Rings that come and go, and a few that go on: buffers of those that are gone are used again. */
static void test_rings_come_and_go(void **state)
{
    const uint32_t rings = 4000;
    struct model model;
    uint32_t without = 0;

    (void)state;
    model_open(&model, rings);
    for (uint32_t ring = 2; ring < rings; ring++) {
        for (unsigned i = 0; i < 150; i++) {
            keep(&model, ring, 1 + i);
            keep(&model, i % 2, 1 + model.rings[i % 2].count);
        }
        uint32_t busy = salvage_ring_find(model.salvage, 1, origin_of(1, 1).pid, 1);
        if (ring > 10 && model.salvage->rings[busy].capacity != SALVAGE_BLOCK_RECORDS) {
            fail_msg("the ring at work lost its buffer to ring %u", ring);
        }
    }
    for (uint32_t i = 0; i < model.salvage->ring_count; i++) {
        without += model.salvage->rings[i].capacity == 0;
    }
    assert_true(without > 0); /* else the rings have been too few for this test */
    assert_true(model.salvage->staged <= SALVAGE_STAGED_MAX);
    compare_all(&model);
    mark_some(&model, 3);
    compare_all(&model);
    model_close(&model);
}

/* Buffers take all the room there is, and the hand comes to the very ring that wants to grow. */
static void test_hand_at_growing_ring(void **state)
{
    const uint32_t rings = SALVAGE_STAGED_MAX / SALVAGE_BLOCK_RECORDS + 100;
    uint32_t kept_small = 0;
    struct model model;

    (void)state;
    model_open(&model, rings);
    for (uint32_t ring = 0; ring < rings; ring++) {
        for (unsigned i = 0; ring % RINGS_PER_PROCESS > 1 && i < SALVAGE_BLOCK_RECORDS; i++) {
            keep(&model, ring, 1 + i);
        }
    }
    for (uint64_t number = 1; number < 2 * SALVAGE_BLOCK_RECORDS; number++) {
        for (uint32_t ring = 1; ring < rings; ring += RINGS_PER_PROCESS) {
            const struct varve_mirror_origin origin = origin_of(ring, number);
            uint32_t index = salvage_ring_find(model.salvage, origin.process, origin.pid, origin.ring);
            if (index != SALVAGE_NO_RING && model.salvage->rings[index].capacity > 0) {
                model.salvage->hand = index;
                model.salvage->rings[index].is_used = false;
                kept_small +=
                    model.salvage->staged + model.salvage->rings[index].capacity > SALVAGE_STAGED_MAX;
            }
            keep(&model, ring, number);
            assert_true(model.salvage->staged <= SALVAGE_STAGED_MAX);
        }
        if (number == SALVAGE_BLOCK_RECORDS / 2) { /* the rest of the room */
            for (uint32_t ring = 0; ring < rings; ring += RINGS_PER_PROCESS) {
                for (unsigned i = 0; i < SALVAGE_BLOCK_RECORDS; i++) {
                    keep(&model, ring, 1 + i);
                }
            }
        }
    }
    assert_true(kept_small > 0); /* else there was room enough for all of them */
    compare_all(&model);
    model_close(&model);
}

static int check_pid(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                     const struct varve_record *record)
{
    uint64_t *wrong = context;

    *wrong += number != 1 || record->addr != (uint64_t)origin->pid || origin->tid != origin->pid + 1 ||
              origin->pid % 3 == 0;
    return VARVE_OK;
}

/* One process number and one ring number, but not one program. */
static void test_pid_tells_rings_apart(void **state)
{
    const int32_t pids = 3000;
    struct model model;
    uint64_t count;
    uint64_t wrong = 0;

    (void)state;
    model_open(&model, 1);
    for (int32_t pid = 1; pid <= pids; pid++) {
        const struct varve_mirror_origin origin = {.process = 1, .ring = 1, .pid = pid, .tid = pid + 1};
        const struct varve_record record = {.addr = (uint64_t)pid};
        assert_int_equal(salvage_keep(model.salvage, &origin, 1, &record), VARVE_OK);
    }
    for (int32_t pid = 3; pid <= pids; pid += 3) {
        assert_int_equal(salvage_mark(model.salvage, 1, pid, 1, 1), VARVE_OK);
    }
    assert_int_equal(salvage_each(model.salvage, check_pid, &wrong, &count, NULL), VARVE_OK);
    assert_int_equal(count, pids / 3 * 2);
    assert_int_equal(wrong, 0);
    model_close(&model);
}

static void test_numbers_jump(void **state)
{
    struct model model;

    (void)state;
    model_open(&model, 3);
    for (unsigned i = 0; i < 5000; i++) {
        keep(&model, 1, 1 + 2 * (uint64_t)i); /* each one is a block */
    }
    keep(&model, 2, 1);
    keep(&model, 2, FAR);
    keep(&model, 2, FAR + 1);
    keep(&model, 2, FAR << 20);
    compare_all(&model);
    mark(&model, 2, 1);
    mark(&model, 2, 3);
    for (uint64_t number = 2; number < 10000; number += 2) {
        mark_only(&model, 1, number); /* those in between were lost before they could be kept */
    }
    compare_all(&model);
    mark_some(&model, 2);
    compare_all(&model);
    assert_true(model.salvage->page_count < 10);
    model_close(&model);
}

/* What a damaged trace may claim changes nothing and costs no memory. */
static void test_unknown_marks(void **state)
{
    struct model model;
    struct varve_mirror_origin origin = origin_of(1, 0);

    (void)state;
    model_open(&model, 2);
    mark_only(&model, 1, 1);
    for (uint64_t number = 1; number <= 3000; number++) {
        keep(&model, 1, number);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        mark_only(&model, 1, 3001 + i * SALVAGE_PAGE_NUMBERS);
        mark_only(&model, 1, FAR + 3000 + i * SALVAGE_PAGE_NUMBERS);
        mark_only(&model, 1, UINT64_MAX - i * SALVAGE_PAGE_NUMBERS);
    }
    assert_int_equal(salvage_mark(model.salvage, origin.process + 1, origin.pid, origin.ring, 1), VARVE_OK);
    assert_int_equal(salvage_mark(model.salvage, origin.process, origin.pid + 1, origin.ring, 1), VARVE_OK);
    assert_int_equal(salvage_mark(model.salvage, origin.process, origin.pid, origin.ring + 1, 1), VARVE_OK);
    assert_int_equal(model.salvage->page_count, 0);
    compare_all(&model);
    for (unsigned i = 0; i < 3; i++) {
        mark(&model, 1, 2999); /* again and again: it is the same */
        mark(&model, 1, 0);
    }
    mark_only(&model, 1, 0);
    compare_all(&model);
    keep(&model, 1, 3001); /* marked before it was known: not remembered */
    compare_all(&model);
    model_close(&model);
}

static void test_numbers_must_grow(void **state)
{
    struct model model;

    (void)state;
    model_open(&model, 2);
    keep(&model, 1, 10);
    keep(&model, 1, 11);
    assert_int_equal(keep_only(&model, 1, 11), VARVE_ERROR_INVALID);
    assert_int_equal(keep_only(&model, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(keep_only(&model, 1, UINT64_MAX), VARVE_ERROR_INVALID);
    keep(&model, 1, 12);
    compare_all(&model);
    model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rings),         cmocka_unit_test(test_holes_at_any_place),
        cmocka_unit_test(test_many_rings),           cmocka_unit_test(test_rings_come_and_go),
        cmocka_unit_test(test_hand_at_growing_ring), cmocka_unit_test(test_pid_tells_rings_apart),
        cmocka_unit_test(test_numbers_jump),         cmocka_unit_test(test_unknown_marks),
        cmocka_unit_test(test_numbers_must_grow),
    };
    return cmocka_run_group_tests_name("salvage", tests, NULL, NULL);
}
