/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers in records mean: a recorder that emits names gives streams the numbers that all recorders
 * of the process share, and each pool is emitted before its number is used; another one has streams numbered by
 * their first appearance, and emits no names.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"

#define HANDLE UINT64_C(0x7f12345000)

static bool is_private(void *context, uint64_t stream)
{
    return stream == *(uint64_t *)context;
}

/* Streams in another order than that of their handles, a private pool, a second one of the same name. */
static void work(struct rig *rig)
{
    static uint64_t captured = HANDLE + 2;
    const struct varve_pool_id pool = {7, 9};
    take_on(rig, 700, HANDLE + 1);
    take_on(rig, 5 * MIB, HANDLE);
    take(rig, 700);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, is_private, &captured), VARVE_OK);
        uint64_t addr = take_on(rig, 700, captured);
        give(rig, addr);
        assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
        assert_int_equal(varve_alloc_release_pool(rig->alloc, pool), VARVE_OK);
        empty_cache(rig); /* and the pool is gone */
    }
}

TEST_WITH(test_reported, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    bool is_reported[8] = {false};
    unsigned private_pools = 0;
    rig_open(rig, &(struct rig_options){.sim.index = 5, .emits_names = true});
    work(rig);
    assert_int_equal(varve_stream_number(5, 0), 0);
    for (size_t i = 0; i < rig->count; i++) {
        const struct varve_record *record = &rig->records[i];
        unsigned kind = varve_record_kind(record), stream = varve_record_stream(record);
        assert_int_equal(varve_record_dev_seq(record), i + 1);
        assert_int_equal(record->device, 5);
        assert_true(record->pool < 8);
        if (kind == VARVE_KIND_POOL) {
            assert_false(is_reported[record->pool]);
            is_reported[record->pool] = true;
            assert_int_equal(record->arg, record->pool % 2);
            assert_int_equal(record->addr, record->pool > 1 ? 7 : 0);
            assert_int_equal(record->size, record->pool > 1 ? 9 : 0);
            private_pools += record->pool > 1;
        } else if (kind == VARVE_KIND_ALLOC) {
            assert_true(is_reported[record->pool]);
            assert_int_equal(stream, varve_stream_number(5, record->pool > 1               ? HANDLE + 2
                                                            : record->size == 5 * MIB      ? HANDLE
                                                            : varve_record_id(record) == 1 ? HANDLE + 1
                                                                                           : 0));
        }
    }
    assert_int_equal(private_pools, 2);
    rig->count = rig->mark = 0;
}

TEST_WITH(test_not_reported, rig_setup, rig_teardown)
{
    static const unsigned streams[] = {1, 2, 0, 3, 3};
    struct rig *rig = *state;
    size_t allocs = 0;
    rig_open(rig, &(struct rig_options){.sim.index = 5});
    work(rig);
    for (size_t i = 0; i < rig->count; i++) {
        assert_int_not_equal(varve_record_kind(&rig->records[i]), VARVE_KIND_POOL);
        if (varve_record_kind(&rig->records[i]) == VARVE_KIND_ALLOC) {
            assert_int_equal(varve_record_stream(&rig->records[i]), streams[allocs++]);
        }
    }
    assert_int_equal(allocs, 5);
    rig->count = rig->mark = 0;
}
