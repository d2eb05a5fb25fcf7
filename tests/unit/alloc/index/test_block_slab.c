/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slab of descriptors: what is taken is zeroed and nobody else's; what is given back comes again before a new
 * region does; a reserve makes the takes after it certain, which the kernel's refusal of memory proves; and the walker
 * sees damage.
 * Costs: 1 s
 */
#include "alloc/index/block_slab.h"
#include "support/structure.h"

static void slab_is_sound(const struct block_slab *slab)
{
    struct varve_message message;
    if (block_slab_check(slab, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

/* Each descriptor in use carries a number that must survive. */
TEST(test_random)
{
    struct block_slab slab = {0};
    static struct block *live[20000];
    random_state = 1;
    for (unsigned step = 0; step < 200000; step++) {
        uint64_t i = random_below(&random_state, 20000);
        if (live[i] == NULL) {
            live[i] = block_slab_acquire(&slab);
            assert_non_null(live[i]);
            assert_true(live[i]->id == 0 && live[i]->addr == 0);
            live[i]->id = live[i]->addr = i + 1;
        } else {
            assert_true(live[i]->id == i + 1 && live[i]->addr == i + 1);
            block_slab_release(&slab, live[i]);
            live[i] = NULL;
        }
    }
    slab_is_sound(&slab);
    block_slab_close(&slab);
}

TEST(test_reserve_makes_takes_certain)
{
    static const uint64_t counts[] = {1, 2, 8191, 8192, 8193, 20000, 3, 100000, 0};
    struct block_slab slab = {0};
    uint64_t taken = 0;
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        assert_int_equal(block_slab_reserve(&slab, counts[i]), VARVE_OK);
        slab_is_sound(&slab);
        uint64_t failed = 0;
        struct rlimit before = mappings_refuse();
        for (uint64_t j = 0; j < counts[i]; j++) {
            failed += block_slab_acquire(&slab) == NULL;
        }
        mappings_allow(before);
        assert_int_equal(failed, 0);
        taken += counts[i];
        assert_int_equal(slab.in_use, taken);
        slab_is_sound(&slab);
    }
    block_slab_close(&slab);
}

TEST(test_no_memory)
{
    struct block_slab slab = {0};
    struct rlimit before = mappings_refuse();
    struct block *block = block_slab_acquire(&slab);
    int code = block_slab_reserve(&slab, 5);
    mappings_allow(before);
    assert_null(block);
    assert_int_equal(code, VARVE_ERROR_NO_MEMORY);
    slab_is_sound(&slab);
    /* Counts that no machine has, and such that overflow when they are made bytes. */
    assert_int_equal(block_slab_reserve(&slab, UINT64_C(1) << 45), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(block_slab_reserve(&slab, UINT64_C(1) << 57), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(block_slab_reserve(&slab, UINT64_MAX), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(slab.in_use, 0);
    assert_non_null(block_slab_acquire(&slab));
    /* A refusal when the region is full leaves what there is usable. */
    while (slab.in_use < slab.capacity) {
        assert_non_null(block_slab_acquire(&slab));
    }
    struct block *last = slab.fresh - 1;
    before = mappings_refuse();
    block = block_slab_acquire(&slab);
    mappings_allow(before);
    assert_null(block);
    slab_is_sound(&slab);
    block_slab_release(&slab, last);
    assert_ptr_equal(block_slab_acquire(&slab), last);
    block_slab_close(&slab);
}

TEST(test_check_sees_damage)
{
    struct block_slab slab = {0};
    struct block *first = block_slab_acquire(&slab);
    struct block *second = block_slab_acquire(&slab);
    block_slab_release(&slab, first);
    slab.in_use++;
    struct varve_message message;
    assert_int_equal(block_slab_check(&slab, &message), VARVE_ERROR_CORRUPT);
    slab.in_use--;
    struct block stranger = {0};
    slab.spare = &stranger;
    assert_int_equal(block_slab_check(&slab, &message), VARVE_ERROR_CORRUPT);
    slab.spare = first;
    first->next = first; /* given back twice */
    assert_int_equal(block_slab_check(&slab, &message), VARVE_ERROR_CORRUPT);
    first->next = NULL;
    slab_is_sound(&slab);
    slab.capacity--;
    assert_int_equal(block_slab_check(&slab, &message), VARVE_ERROR_CORRUPT);
    slab.capacity++;
    block_slab_release(&slab, second);
    slab_is_sound(&slab);
    block_slab_close(&slab);
}
