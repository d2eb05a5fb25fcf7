/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of the CUDA API's events that random streams (test_derived_tables.c) do not reach: memory of another process,
 * failures that take something back, order.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "trace/model/device/calls.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/model/scratch.h"
#include "trace/record.h"

static const struct scratch_row *row_of(const struct lab *lab, uint64_t id)
{
    return scratch_peek(&lab->derive->scratch, id);
}

/* ---- physical memory ---- */

static struct event vmm(enum varve_kind kind, enum varve_cause cause, uint64_t addr, uint64_t size, uint64_t handle)
{
    return (struct event){.kind = (uint8_t)kind,
                          .cause = (uint8_t)cause,
                          .addr = addr,
                          .size = size,
                          .arg = handle,
                          .pool = KIND_OF(VARVE_MEMORY_DEVICE, 0)};
}

#define CREATE(size, handle) vmm(VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_CREATE, 0, size, handle)
#define RETAIN(handle) vmm(VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE, 0, 0x1000, handle)
#define IMPORT(handle) vmm(VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE, 0, 0x1000, handle)
#define MAP(addr, size, handle) vmm(VARVE_KIND_VMM_MAP, VARVE_CAUSE_CU_MEM_MAP, addr, size, handle)
#define UNMAP(addr, size) vmm(VARVE_KIND_VMM_UNMAP, VARVE_CAUSE_CU_MEM_UNMAP, addr, size, 0)
#define RELEASE(handle) vmm(VARVE_KIND_VMM_RELEASE, VARVE_CAUSE_CU_MEM_RELEASE, 0, 0, handle)

static uint64_t live(const struct lab *lab)
{
    return total_of(lab, DOMAIN_DEVICE, 0)->live_allocations;
}

TEST_WITH(test_imported_memory, lab_begin, lab_end)
{
    struct lab *lab = *state;
    assert_int_equal(take(lab, IMPORT(7)).id, 0);
    struct event map = MAP(0x10000, 0x1000, 7);
    map.process_id = 1;
    assert_false(derive_is_out_of_order(lab->derive, &map));
    assert_int_equal(take(lab, map).id, 0);
    assert_int_equal(take(lab, RELEASE(7)).id, 0);
    assert_int_equal(take(lab, UNMAP(0x10000, 0x1000)).id, 0);
    assert_int_equal(lab->derive->scratch.count, 0);
    map.addr = 0x30000;
    assert_true(derive_is_out_of_order(lab->derive, &map)); /* the handle is gone */
}

/* ---- failures ---- */

TEST_WITH(test_a_failed_free_is_taken_back, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event alloc = alloc_of(0x1000, 10, VARVE_MEMORY_MANAGED);
    struct event other = free_of(0x1000);
    alloc.device = 1;
    take(lab, alloc);
    take(lab, free_of(0x1000));
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 1)->live_allocations, 0);
    /* not by another thread, not of another address, not by another function */
    other.thread_id = 5;
    assert_int_equal(take(lab, failed(other)).id, 0);
    take(lab, free_of(0x1000)); /* unknown now: nothing to take back */
    assert_int_equal(take(lab, failed(free_of(0x1000))).id, 0);
    take(lab, alloc);
    take(lab, free_of(0x1000));
    struct event sync = {.kind = VARVE_KIND_DEV_SYNC, .cause = VARVE_CAUSE_CUDA_FREE, .requested = 30};
    take(lab, sync); /* before or after the failure */
    struct event back = take(lab, failed(free_of(0x1000)));
    assert_int_equal(back.id, 2);
    assert_int_equal(back.device, 1);
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 1)->live_allocations, 1);
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 1)->failed, 1);
    assert_int_equal(row_of(lab, 2)->free_seq, 0);
    assert_int_equal(take(lab, failed(free_of(0x1000))).id, 0); /* once */
    assert_int_equal(take(lab, free_of(0x1000)).id, 2);
}

TEST_WITH(test_a_failed_unmapping_is_taken_back, lab_begin, lab_end)
{
    struct lab *lab = *state;
    for (uint64_t i = 0; i < 3; i++) {
        take(lab, CREATE(0x1000, 10 + i));
        take(lab, MAP(0x10000 + i * 0x1000, 0x1000, 10 + i));
    }
    take(lab, RELEASE(10));
    take(lab, RELEASE(11));
    take(lab, UNMAP(0x10000, 0x3000));
    assert_int_equal(live(lab), 1);
    assert_int_equal(take(lab, failed(UNMAP(0, 0x3000))).id, 1); /* its address may be missing */
    assert_int_equal(live(lab), 3);
    take(lab, UNMAP(0x10000, 0x3000));
    assert_int_equal(live(lab), 1);
    take(lab, RELEASE(12));
    assert_int_equal(live(lab), 0);
    assert_int_equal(take(lab, failed(RELEASE(12))).id, 3);
    assert_int_equal(live(lab), 1);
    assert_int_equal(take(lab, MAP(0x50000, 0x1000, 12)).id, 3); /* it has its name again */
}

/* ---- the end of a context ---- */

/* ---- order ---- */

static void expect_order(const struct lab *lab, struct event event, bool is_out_of_order)
{
    event.process_id = 1;
    assert_int_equal(derive_is_out_of_order(lab->derive, &event), is_out_of_order);
    if (is_out_of_order) {
        assert_false(derive_is_out_of_order(lab->derive, &(struct event){.kind = event.kind,
                                                                         .process_id = 1,
                                                                         .addr = event.addr,
                                                                         .arg = event.arg,
                                                                         .flags = VARVE_FLAG_FAILED}));
    }
}

TEST_WITH(test_what_is_out_of_order, lab_begin, lab_end)
{
    struct lab *lab = *state;
    expect_order(lab, alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE), false);
    expect_order(lab, free_of(0x1000), true);
    expect_order(lab, free_of(0), false);
    take(lab, alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE));
    expect_order(lab, alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE), true);
    expect_order(lab, free_of(0x1000), false);
    expect_order(lab, CREATE(0x1000, 7), false);
    expect_order(lab, RETAIN(7), true);
    expect_order(lab, MAP(0x10000, 0x1000, 7), true);
    expect_order(lab, RELEASE(7), true);
    take(lab, CREATE(0x1000, 7));
    expect_order(lab, CREATE(0x1000, 7), true);
    expect_order(lab, RETAIN(7), false);
    expect_order(lab, UNMAP(0x10000, 0x1000), true);
    expect_order(lab, MAP(0x10000, 0x1000, 7), false);
    take(lab, MAP(0x10000, 0x1000, 7));
    expect_order(lab, MAP(0x10000, 0x1000, 7), true);
    expect_order(lab, UNMAP(0x10000, 0x1000), false);
    take(lab, RELEASE(7));
    expect_order(lab, RELEASE(7), true);
    expect_order(lab, CREATE(0x1000, 7), false); /* it may be used again as soon as it was released */
    struct event seen = free_of(0x1000);
    seen.flags = VARVE_FLAG_DUPLICATE;
    expect_order(lab, seen, true);
}
