/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of addresses against a naive model, a table of flags with one entry per possible block: random
 * puts, removals and searches where many entries lie together, also for addresses that are not there. Then what the
 * model cannot say: runs of filled slots stay short for every stride, so costs stay constant, and a reserve makes the
 * next put certain.
 * Costs: 2 s
 */
#include "alloc/index/block_map.h"
#include "alloc/index/block_slab.h"
#include "support/structure.h"

#define BLOCKS 6000U

struct world {
    struct block_map map;
    struct block blocks[BLOCKS];
    bool is_in[BLOCKS];
    uint64_t count;
};

static struct world *world;

static int setup(void **state)
{
    (void)state;
    world = aligned_alloc(64, (sizeof(*world) + 63) / 64 * 64);
    if (world == NULL) {
        return -1;
    }
    memset(world, 0, sizeof(*world));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    block_map_close(&world->map);
    free(world);
    return 0;
}

static void map_is_sound(unsigned step)
{
    struct varve_message message;
    if (block_map_check(&world->map, &message) != VARVE_OK) {
        fail_msg("step %u: %s", step, message.text);
    }
}

static void step_at_random(unsigned step, unsigned blocks, unsigned put_share)
{
    uint64_t i = random_below(&random_state, blocks);
    struct block *block = &world->blocks[i];
    struct block *found = block_map_find(&world->map, block->addr);
    if (found != (world->is_in[i] ? block : NULL)) {
        fail_msg("step %u: address 0x%llx finds %p", step, (unsigned long long)block->addr, (void *)found);
    }
    /* Addresses inside and beside blocks are not there. */
    assert_null(block_map_find(&world->map, block->addr + 1 + random_below(&random_state, 511)));
    if (random_below(&random_state, 100) < put_share ? !world->is_in[i] : world->is_in[i]) {
        if (world->is_in[i]) {
            block_map_remove(&world->map, block);
            world->count--;
        } else {
            assert_int_equal(block_map_reserve(&world->map), VARVE_OK);
            block_map_put(&world->map, block);
            world->count++;
        }
        world->is_in[i] = !world->is_in[i];
    }
    assert_int_equal(world->map.count, world->count);
}

/* Entries that all hash close together, so that runs are long, wrap around the end and removals must mend
 * them: addresses are picked by where a map of the least size puts them. */
TEST_WITH(test_random_crowded, setup, teardown)
{
    random_state = 13;
    struct block_map probe = {0};
    unsigned blocks = 0;
    for (uint64_t addr = 512; blocks < 300; addr += 512) {
        struct block *block = &world->blocks[blocks];
        *block = (struct block){.addr = addr, .size = 512};
        assert_int_equal(block_map_reserve(&probe), VARVE_OK);
        block_map_put(&probe, block);
        uint64_t last = (UINT64_C(1) << probe.bits) - 1;
        bool is_close = false;
        for (uint64_t i = 0; i <= last; i += i == 7 ? last - 15 : 1) {
            is_close |= probe.slots[i].block == block;
        }
        block_map_remove(&probe, block);
        blocks += is_close;
    }
    block_map_close(&probe);
    for (unsigned step = 0; step < 6000; step++) {
        step_at_random(step, blocks, step / 1000 % 2 == 0 ? 80 : 30);
        map_is_sound(step);
    }
}

/* Slots filled without a gap, the most in one place, of a map that is half full. */
static uint64_t longest_run(const struct block_map *map)
{
    uint64_t longest = 0;
    uint64_t run_length = 0;
    for (uint64_t i = 0; i < UINT64_C(2) << map->bits; i++) {
        bool is_filled = map->slots[i & ((UINT64_C(1) << map->bits) - 1)].block != NULL;
        run_length = is_filled ? run_length + 1 : 0;
        longest = run_length > longest ? run_length : longest;
    }
    return longest;
}

TEST(test_strides_make_no_long_runs)
{
    const unsigned count = 1U << 15;
    struct block_slab slab = {0};
    static const uint64_t odd[] = {1, 3, 5, 127, 257, 1000, 4095, 6700417};
    for (unsigned shift = 9; shift <= 30; shift++) {
        for (unsigned k = 0; k < sizeof(odd) / sizeof(odd[0]); k++) {
            struct block_map map = {0};
            struct block *blocks = NULL;
            for (uint64_t i = 0; i < count; i++) {
                struct block *block = block_slab_acquire(&slab);
                assert_non_null(block);
                block->addr = UINT64_C(0x7f0000000000) + i * (odd[k] << shift);
                block->next = blocks;
                blocks = block;
                assert_int_equal(block_map_reserve(&map), VARVE_OK);
                block_map_put(&map, block);
            }
            uint64_t longest = longest_run(&map);
            if (longest > 100) { /* random numbers give up to 60 */
                fail_msg("stride %llu << %u: a run of %llu slots", (unsigned long long)odd[k], shift,
                         (unsigned long long)longest);
            }
            while (blocks != NULL) {
                struct block *next = blocks->next;
                block_slab_release(&slab, blocks);
                blocks = next;
            }
            block_map_close(&map);
        }
    }
    block_slab_close(&slab);
}

TEST_WITH(test_reserve_and_no_memory, setup, teardown)
{
    struct rlimit before = mappings_refuse();
    int code = block_map_reserve(&world->map);
    mappings_allow(before);
    assert_int_equal(code, VARVE_ERROR_NO_MEMORY);
    map_is_sound(0);
    unsigned put = 0;
    unsigned refused = 0;
    while (put < BLOCKS) {
        /* of segments, of small numbers, and at the end of the address space */
        uint64_t base = put % 3 == 0 ? 0 : put % 3 == 1 ? UINT64_C(0x7f0000000000) : UINT64_C(0xffffffff00000000);
        world->blocks[put].addr = base + UINT64_C(512) * (put + 1);
        before = mappings_refuse();
        code = block_map_reserve(&world->map);
        mappings_allow(before);
        if (code != VARVE_OK) {
            refused++;
            map_is_sound(put); /* as it was */
            assert_int_equal(block_map_reserve(&world->map), VARVE_OK);
        }
        before = mappings_refuse();
        block_map_put(&world->map, &world->blocks[put]);
        mappings_allow(before);
        put++;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_ptr_equal(block_map_find(&world->map, world->blocks[i].addr), &world->blocks[i]);
    }
    assert_int_equal(refused, 3); /* 2^12 slots for 2^11 entries, then 2^13, then 2^14 */
    assert_int_equal(world->map.count, BLOCKS);
    assert_int_equal(world->map.mapped_bytes, sizeof(struct block_map_slot) << world->map.bits);
    map_is_sound(put);
}

TEST_WITH(test_check_sees_damage, setup, teardown)
{
    for (unsigned i = 0; i < 100; i++) {
        world->blocks[i].addr = UINT64_C(512) * (i + 1);
        assert_int_equal(block_map_reserve(&world->map), VARVE_OK);
        block_map_put(&world->map, &world->blocks[i]);
    }
    map_is_sound(0);
    world->blocks[7].addr += 512 * UINT64_C(1000);
    struct varve_message message;
    assert_int_equal(block_map_check(&world->map, &message), VARVE_ERROR_CORRUPT);
    world->blocks[7].addr -= 512 * UINT64_C(1000);
    world->map.count++;
    assert_int_equal(block_map_check(&world->map, &message), VARVE_ERROR_CORRUPT);
    world->map.count--;
    /* An entry where probes do not come by. */
    uint64_t i = 0;
    while (world->map.slots[i].block == NULL) {
        i++;
    }
    uint64_t mask = (UINT64_C(1) << world->map.bits) - 1;
    uint64_t far = (i + mask / 2) & mask;
    while (world->map.slots[far].block != NULL || world->map.slots[(far - 1) & mask].block != NULL) {
        far = (far + 1) & mask;
    }
    world->map.slots[far] = world->map.slots[i];
    world->map.slots[i] = (struct block_map_slot){0};
    assert_int_equal(block_map_check(&world->map, &message), VARVE_ERROR_CORRUPT);
    world->map.slots[i] = world->map.slots[far];
    world->map.slots[far] = (struct block_map_slot){0};
    map_is_sound(1);
}
