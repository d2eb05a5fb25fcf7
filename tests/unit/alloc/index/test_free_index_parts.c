/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model of the free index cannot say (test_free_index.c has one): trees stay flat for every order and
 * stride of addresses, bins rise with sizes, streams do not move when others come, and a lack of memory
 * changes nothing.
 * Costs: 1 s
 */
#include "alloc/index/block_slab.h"
#include "alloc/index/free_index.h"
#include "support/structure.h"

static struct free_index free_blocks;
static char pools[2]; /* for their addresses only */

static int teardown(void **state)
{
    (void)state;
    free_index_close(&free_blocks);
    return 0;
}

static struct pool *made_up_pool(unsigned i)
{
    return (struct pool *)(void *)&pools[i];
}

static void index_is_sound(void)
{
    struct varve_message message;
    if (free_index_check(&free_blocks, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

/* ---- shape ---- */

static unsigned depth_of(const struct block *block)
{
    unsigned depth = 1;
    for (; block->up != NULL; block = block->up) {
        depth++;
    }
    return depth;
}

/* 2 ln n is what a random tree has at its typical node, some 50 for the deepest of 10^5. */
TEST_WITH(test_trees_stay_flat, NULL, teardown)
{
    enum { COUNT = 100000 };
    struct block_slab slab = {0};
    struct stream_bins *bins = free_index_bins(&free_blocks, made_up_pool(0), 0);
    static struct block *blocks[COUNT];
    assert_non_null(bins);
    for (uint64_t stride = 512; stride <= UINT64_C(1) << 32; stride = stride * 3 / 512 * 512 + 1024) {
        for (unsigned order = 0; order < 2; order++) { /* rising, falling */
            for (unsigned i = 0; i < COUNT; i++) {
                uint64_t k = order == 0 ? i : COUNT - 1 - i;
                blocks[i] = block_slab_acquire(&slab);
                assert_non_null(blocks[i]);
                blocks[i]->addr = UINT64_C(0x7f0000000000) + k * stride;
                blocks[i]->size = 512;
                blocks[i]->bins = bins;
                free_index_insert(&free_blocks, blocks[i]);
            }
            unsigned deepest = 0;
            for (unsigned i = 0; i < COUNT; i++) {
                unsigned depth = depth_of(blocks[i]);
                deepest = depth > deepest ? depth : deepest;
            }
            if (deepest > 65) {
                fail_msg("stride %llu, order %u: depth %u", (unsigned long long)stride, order, deepest);
            }
            for (unsigned i = 0; i < COUNT; i++) {
                free_index_remove(&free_blocks, blocks[i]);
                block_slab_release(&slab, blocks[i]);
            }
        }
    }
    block_slab_close(&slab);
    index_is_sound();
}

/* Bins rise with sizes and never leave the table; one multiple of 512 each up to 32 KiB. */
TEST(test_bins)
{
    assert_int_equal(index_bin_of(0), 0);
    for (uint64_t units = 0; units < 64; units++) {
        assert_int_equal(index_bin_of(units * 512), units);
        assert_int_equal(index_bin_of(units * 512 + 511), units);
    }
    unsigned last = 63;
    for (unsigned power = 15; power <= 60; power++) {
        uint64_t part = (UINT64_C(1) << power) / 32;
        for (uint64_t i = 0; i < 32; i++) {
            unsigned bin = index_bin_of((UINT64_C(1) << power) + i * part);
            assert_int_equal(bin, ++last);
            assert_int_equal(index_bin_of((UINT64_C(1) << power) + (i + 1) * part - 1), bin);
        }
    }
    assert_int_equal(last, INDEX_BIN_COUNT - 1);
    assert_int_equal(index_bin_of(FREE_INDEX_SIZE_LIMIT - 1), INDEX_BIN_COUNT - 1);
}

/* ---- streams ---- */

TEST_WITH(test_streams_stay_where_they_are, NULL, teardown)
{
    enum { COUNT = 1500 }; /* more than the first table of streams has room for */
    static struct stream_bins *all_bins[COUNT];
    static uint64_t handles[COUNT];
    random_state = 500;
    for (unsigned i = 0; i < COUNT; i++) {
        handles[i] = random_next(&random_state);
        all_bins[i] = free_index_bins(&free_blocks, made_up_pool(i % 2), handles[i]);
        assert_non_null(all_bins[i]);
        assert_null(free_index_last(all_bins[i]));
        all_bins[i]->number = (uint16_t)i;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ptr_equal(free_index_bins(&free_blocks, made_up_pool(0), handles[i]), all_bins[i]);
        assert_ptr_equal(free_index_bins(&free_blocks, made_up_pool(1), handles[i]), all_bins[i]);
        assert_int_equal(all_bins[i]->stream, handles[i]);
        assert_int_equal(all_bins[i]->number, i);
        assert_ptr_equal(all_bins[i]->pool, made_up_pool(i % 2));
    }
    assert_int_equal(free_blocks.stream_count, COUNT);
    index_is_sound();
}

TEST_WITH(test_no_memory, NULL, teardown)
{
    unsigned refused = 0;
    struct stream_bins *last = NULL;
    for (uint64_t handle = 0; handle < 600; handle++) {
        struct rlimit before = mappings_refuse();
        struct stream_bins *bins = free_index_bins(&free_blocks, made_up_pool(0), handle);
        struct stream_bins *found = handle > 0 ? free_index_bins(&free_blocks, made_up_pool(0), handle - 1) : NULL;
        mappings_allow(before);
        assert_ptr_equal(found, last); /* old streams are found without memory */
        if (bins == NULL) {
            refused++;
            assert_int_equal(free_blocks.stream_count, handle);
            index_is_sound();
            bins = free_index_bins(&free_blocks, made_up_pool(0), handle);
            assert_non_null(bins);
        }
        last = bins;
    }
    assert_true(refused >= 600 / INDEX_CHUNK_STREAMS); /* once per chunk */
}
