/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner's storages as blocks of an allocator: each resident storage with bytes has one, and no other does.
 * Costs: 1 s
 */
#include "storage/remat.h"
#include "support/storage/pool.h"

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

/* An output is evicted for room while the operator makes it a second time: the second block is its own then. */
static void test_output_evicted_in_its_run(void **state)
{
    const uint64_t sizes[] = {MIB, MIB};
    const int32_t aliases[] = {-1, -1};
    struct varve_remat_op op = {.sizes = sizes, .aliases = aliases, .output_count = 2, .cost_ns = 1};
    struct pool *pool = *state;
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.is_live = true;
    struct varve_remat_blocks *blocks;
    assert_int_equal(varve_remat_blocks_open(pool->alloc, &blocks, NULL), VARVE_OK);
    varve_remat_blocks_drive(blocks, &options.driver);
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, NULL), VARVE_OK);
    assert_int_equal(varve_remat_blocks_attach(blocks, remat, NULL), VARVE_OK);
    uint32_t outputs[2], locked;
    assert_int_equal(varve_remat_compute(remat, &op, outputs, NULL), VARVE_OK);
    op.output_count = 1;
    assert_int_equal(varve_remat_compute(remat, &op, &locked, NULL), VARVE_OK);
    varve_remat_lock(remat, locked);
    assert_int_equal(varve_remat_evict(remat, outputs[1], NULL), VARVE_OK);
    assert_int_equal(varve_alloc_set_allocated_limit(pool->alloc, 3 * MIB), VARVE_OK);
    assert_int_equal(varve_remat_materialize(remat, outputs[1], NULL), VARVE_OK);
    assert_true(varve_remat_is_defined(remat, outputs[0]) && varve_remat_is_defined(remat, outputs[1]));
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 3 * MIB);
    assert_int_equal(varve_remat_evict(remat, outputs[0], NULL), VARVE_OK);
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 2 * MIB);
    assert_int_equal(varve_remat_check(remat, NULL), VARVE_OK);
    varve_remat_close(remat);
    varve_remat_blocks_close(blocks);
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_output_evicted_in_its_run, pool_sim),
};

TEST_CASES(cases)
