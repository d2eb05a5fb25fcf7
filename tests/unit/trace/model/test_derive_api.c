/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single rules of the CUDA API's events that random streams (test_derived_tables.c) show less plainly: what
 * a free is emitted, which domain memory is in, physical memory, failures, resets, order.
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

TEST_WITH(test_a_free_gets_what_it_refers_to, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event alloc = alloc_of(0x1000, 77, VARVE_MEMORY_DEVICE);
    alloc.device = 2;
    alloc.stream = 5;
    alloc.callsite = 9;
    alloc = take(lab, alloc);
    assert_int_equal(alloc.id, 1);
    assert_int_equal(alloc.requested, 50); /* the duration stays */
    assert_int_equal(row_of(lab, 1)->requested, 77);
    struct event release = take(lab, free_of(0x1000));
    assert_int_equal(release.id, 1);
    assert_int_equal(release.size, 77);
    assert_int_equal(release.device, 2);
    assert_int_equal(release.stream, 5);
    assert_int_equal(release.callsite, 0); /* its own, which was not taken */
    assert_int_equal(release.pool, KIND_OF(VARVE_MEMORY_DEVICE, 1));
    assert_int_equal(release.cause, VARVE_CAUSE_CUDA_FREE);
    struct event again = take(lab, free_of(0x1000));
    assert_int_equal(again.id, 0);
    assert_int_equal(again.cause, VARVE_CAUSE_CUDA_FREE);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 2)->frees, 1);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 2)->temporary, 1);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 0)->series.limit, 0); /* never used */
}

/* Stream-ordered and ordinary calls work on the same addresses. */
TEST_WITH(test_async_and_not, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event event = alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE);
    event.kind = VARVE_KIND_DEV_ALLOC_ASYNC;
    event.stream = 3;
    take(lab, event);
    assert_int_equal(take(lab, free_of(0x1000)).id, 1);
    take(lab, alloc_of(0x1000, 20, VARVE_MEMORY_DEVICE));
    event = free_of(0x1000);
    event.kind = VARVE_KIND_DEV_FREE_ASYNC;
    event.stream = 7;
    event = take(lab, event);
    assert_int_equal(event.id, 2);
    assert_int_equal(event.stream, 7); /* the one that it was given back on */
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 0)->live_allocations, 0);
}

TEST_WITH(test_domains, lab_begin, lab_end)
{
    struct lab *lab = *state;
    static const struct {
        unsigned memory, flags, domain;
    } cases[] = {
        {VARVE_MEMORY_UNKNOWN, 0, DOMAIN_DEVICE},
        {VARVE_MEMORY_DEVICE, 0, DOMAIN_DEVICE},
        {VARVE_MEMORY_ARRAY, 0, DOMAIN_DEVICE},
        {VARVE_MEMORY_DEVICE_STATIC, 0, DOMAIN_DEVICE},
        {VARVE_MEMORY_PINNED, 0, DOMAIN_PINNED},
        {VARVE_MEMORY_MANAGED, 0, DOMAIN_MANAGED},
        {VARVE_MEMORY_MANAGED_STATIC, 0, DOMAIN_MANAGED},
        {VARVE_MEMORY_DEVICE, VARVE_FLAG_DUPLICATE, DOMAIN_CUPTI},
        {VARVE_MEMORY_ARRAY, VARVE_FLAG_DUPLICATE, DOMAIN_CUPTI},
        {VARVE_MEMORY_PINNED, VARVE_FLAG_DUPLICATE, 0},
        {VARVE_MEMORY_MANAGED, VARVE_FLAG_DUPLICATE, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct event event = alloc_of(0x1000 * (i + 1), 100 + i, cases[i].memory);
        event.flags = (uint8_t)cases[i].flags;
        event.device = 3;
        event = take(lab, event);
        assert_int_equal(event.id != 0, cases[i].domain != 0);
        if (cases[i].domain != 0) {
            assert_int_equal(row_of(lab, event.id)->domain, cases[i].domain);
        }
        /* what it does not count it still knows: nothing has to wait for it */
        struct event release = free_of(event.addr);
        release.flags = event.flags;
        release.process_id = 1;
        assert_false(derive_is_out_of_order(lab->derive, &release));
    }
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 3)->allocations, 4);
    assert_int_equal(total_of(lab, DOMAIN_PINNED, 0)->allocations, 1);
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 3)->allocations, 2);
    assert_int_equal(total_of(lab, DOMAIN_CUPTI, 3)->allocations, 2);
}

/* The same call by the CUDA recorder and by CUPTI, each in its own index. */
TEST_WITH(test_a_duplicate_has_its_own, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event reported = alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE);
    struct event seen = reported;
    seen.flags = VARVE_FLAG_DUPLICATE;
    assert_int_equal(take(lab, reported).id, 1);
    assert_int_equal(take(lab, seen).id, 2);
    assert_int_equal(take(lab, free_of(0x1000)).id, 1);
    seen = free_of(0x1000);
    seen.flags = VARVE_FLAG_DUPLICATE;
    assert_int_equal(take(lab, seen).id, 2);
    assert_int_equal(lab->derive->calls->call_count, 2); /* cudaMalloc and cudaFree, of the recorder */
    assert_int_equal(lab->derive->calls->calls[0].calls, 1);
}

TEST_WITH(test_memory_from_elsewhere_makes_no_row, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event event = alloc_of(0x1000, 10, VARVE_MEMORY_DEVICE);
    event.cause = VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE;
    assert_int_equal(take(lab, event).id, 0);
    event = free_of(0x1000);
    event.process_id = 1;
    event.cause = VARVE_CAUSE_CU_IPC_CLOSE_MEM_HANDLE;
    assert_false(derive_is_out_of_order(lab->derive, &event));
    assert_int_equal(take(lab, event).id, 0);
    assert_int_equal(lab->derive->scratch.count, 0);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 0)->series.limit, 0);
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

/* It is there until nobody has the handle and nothing maps it, whichever ends last. */
TEST_WITH(test_physical_memory, lab_begin, lab_end)
{
    struct lab *lab = *state;
    assert_int_equal(take(lab, CREATE(0x2000, 7)).id, 1);
    assert_int_equal(row_of(lab, 1)->addr, 0);
    assert_int_equal(take(lab, MAP(0x10000, 0x1000, 7)).id, 1);
    assert_int_equal(take(lab, MAP(0x20000, 0x1000, 7)).id, 1);
    assert_int_equal(row_of(lab, 1)->addr, 0x10000);
    struct event release = take(lab, RELEASE(7));
    assert_int_equal(release.id, 1);
    assert_int_equal(release.size, 0x2000);
    assert_int_equal(take(lab, UNMAP(0x10000, 0x1000)).id, 1);
    assert_int_equal(live(lab), 1);
    struct event unmap = take(lab, UNMAP(0x20000, 0x1000));
    assert_int_equal(unmap.size, 0x1000); /* its own */
    assert_int_equal(live(lab), 0);
    /* the other way round, with one more reference */
    take(lab, CREATE(0x1000, 7));
    take(lab, MAP(0x10000, 0x1000, 7));
    assert_int_equal(take(lab, RETAIN(7)).id, 2);
    take(lab, UNMAP(0x10000, 0x1000));
    take(lab, RELEASE(7));
    assert_int_equal(live(lab), 1);
    take(lab, RELEASE(7));
    assert_int_equal(live(lab), 0);
    assert_int_equal(take(lab, RELEASE(7)).id, 0);
}

TEST_WITH(test_an_unmapping_takes_all_inside, lab_begin, lab_end)
{
    struct lab *lab = *state;
    for (uint64_t i = 0; i < 5; i++) {
        take(lab, CREATE(0x1000, 10 + i));
        take(lab, MAP(0x10000 + i * 0x1000, 0x1000, 10 + i));
        take(lab, RELEASE(10 + i));
    }
    assert_int_equal(live(lab), 5);
    assert_int_equal(take(lab, UNMAP(0x11000, 0x3000)).id, 2);
    assert_int_equal(live(lab), 2);
    assert_int_equal(row_of(lab, 1)->free_seq, 0);
    assert_int_equal(row_of(lab, 5)->free_seq, 0);
}

TEST_WITH(test_a_handle_is_used_again, lab_begin, lab_end)
{
    struct lab *lab = *state;
    take(lab, CREATE(0x1000, 7));
    take(lab, MAP(0x10000, 0x1000, 7));
    take(lab, RELEASE(7));
    assert_int_equal(take(lab, CREATE(0x4000, 7)).id, 2); /* the first one is only mapped */
    assert_int_equal(take(lab, MAP(0x20000, 0x1000, 7)).id, 2);
    assert_int_equal(live(lab), 2);
    assert_int_equal(take(lab, UNMAP(0x10000, 0x1000)).id, 1);
    assert_int_equal(live(lab), 1);
    /* a release without an event */
    take(lab, UNMAP(0x20000, 0x1000));
    assert_int_equal(take(lab, CREATE(0x4000, 7)).id, 3);
    assert_int_equal(live(lab), 1);
    assert_int_equal(row_of(lab, 2)->free_seq, lab->seq);
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

TEST_WITH(test_failures_count, lab_begin, lab_end)
{
    struct lab *lab = *state;
    take(lab, failed(alloc_of(0, 100, VARVE_MEMORY_PINNED)));
    struct event oom = alloc_of(0, 100, VARVE_MEMORY_DEVICE);
    oom.kind = VARVE_KIND_DEV_OOM;
    oom.device = 1;
    oom.flags = VARVE_FLAG_FAILED;
    take(lab, oom);
    take(lab, failed(CREATE(0x1000, 0)));
    take(lab, failed(free_of(0x9000)));
    assert_int_equal(total_of(lab, DOMAIN_PINNED, 0)->failed, 1);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 1)->failed, 1);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 0)->failed, 2);
    assert_int_equal(lab->derive->scratch.count, 0);
}

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

TEST_WITH(test_reset, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event event;
    for (unsigned i = 0; i < 8; i++) { /* devices 0 and 1, contexts 1 and 2, two processes */
        event = alloc_of(0x1000 * (i + 1), 10, VARVE_MEMORY_DEVICE);
        event.device = i % 2;
        event.pool = KIND_OF(VARVE_MEMORY_DEVICE, 1 + i / 2 % 2);
        event.process_id = 1 + i / 4;
        take(lab, event);
    }
    event = alloc_of(0x20000, 10, VARVE_MEMORY_DEVICE); /* of driver pool 1, not of context 1 */
    event.kind = VARVE_KIND_DEV_ALLOC_ASYNC;
    take(lab, event);
    take(lab, CREATE(0x1000, 7));
    take(lab, MAP(0x30000, 0x1000, 7));
    event = alloc_of(0x40000, 10, VARVE_MEMORY_PINNED);
    take(lab, event);
    struct event reset = {.kind = VARVE_KIND_DEV_RESET, .cause = VARVE_CAUSE_CU_CTX_DESTROY, .pool = 2};
    take(lab, failed(reset));
    assert_int_equal(live(lab), 6);
    assert_int_equal(take(lab, reset).id, 0);
    assert_int_equal(live(lab), 5);
    assert_int_not_equal(row_of(lab, 3)->free_seq, 0);
    reset.pool = 0;
    take(lab, reset);
    assert_int_equal(live(lab), 2); /* those of process 2 */
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 1)->live_allocations, 4);
    assert_int_equal(total_of(lab, DOMAIN_PINNED, 0)->live_allocations, 0);
    assert_int_equal(take(lab, UNMAP(0x30000, 0x1000)).id, 0);
}

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
