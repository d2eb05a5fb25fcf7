/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What random streams (test_derived_tables.c) do not reach: the order of events, Python's memory beside the heap's, the
 * scratch file when the disk is full or rows are cold, what damaged records are made into; events of caching
 * allocators in traces that begin late or lose some; memory of the CUDA API of another process, and failures that take
 * something back; what the numbers of devices and streams mean, which are a process' own until derive has seen them.
 * Costs: 4 s
 */
#include "support/derive/lab.h"
#include "support/random.h"
#include "trace/model/device_calls.h"
#include "trace/model/device_labels.h"
#include "trace/model/allocation_scratch.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* ---- the heap ---- */

/* Only what is there can be freed, and only what is not there can be allocated. */
TEST_WITH(test_order_of_the_heap, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event map = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, 0x2000);
    struct event unmap = heap(VARVE_KIND_MUNMAP, VARVE_CAUSE_MUNMAP, 0x11000, 0x4000);
    struct event *const events[] = {&alloc, &release, &map, &unmap};
    for (unsigned i = 0; i < 4; i++) {
        events[i]->process_id = 1;
    }
    for (unsigned i = 0; i < 4; i += 2) {
        assert_false(derive_is_out_of_order(lab->derive, events[i]));
        assert_true(derive_is_out_of_order(lab->derive, events[i + 1]));
        *events[i] = take(lab, *events[i]);
        assert_true(derive_is_out_of_order(lab->derive, events[i]));
        assert_false(derive_is_out_of_order(lab->derive, events[i + 1]));
        *events[i + 1] = take(lab, *events[i + 1]);
        release.cause = VARVE_CAUSE_FREE;
    }
    take(lab, map);
    assert_true(derive_is_out_of_order(lab->derive, &map));
    map.arg = (uint64_t)MAP_FIXED << 32 | PROT_READ;
    assert_false(derive_is_out_of_order(lab->derive, &map));
    release.addr = 0;
    assert_false(derive_is_out_of_order(lab->derive, &release)); /* free(NULL) */
    release.addr = 0x9000;
    release.process_id = 77; /* its first event */
    assert_true(derive_is_out_of_order(lab->derive, &release));
    unmap.flags = VARVE_FLAG_FAILED;
    unmap.addr = 0x90000;
    assert_false(derive_is_out_of_order(lab->derive, &unmap));
}

/* Of damaged records: no sum may wrap, what can be true is believed, and a failed call may ask for anything.
 */
TEST_WITH(test_impossible_sizes, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event honest = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event failed = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0, UINT64_MAX);
    honest = take(lab, honest);
    for (uint64_t i = 1; i <= 50000; i++) {
        /* as large as a pointer: many of these are too much together */
        uint64_t size = i % 4 == 0 ? UINT64_MAX - i : UINT64_C(0x7fff00000000);
        struct event alloc = heap(i % 3 == 0 ? VARVE_KIND_HEAP_REALLOC : VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC,
                                  0x1000 + 16 * i, size);
        assert_int_equal(take_unchecked(lab, &alloc), VARVE_OK);
        assert_int_equal(alloc.size, scratch_peek(&lab->derive->scratch, alloc.id)->size);
        assert_int_equal(alloc.size, i % 4 == 0 ? 0 : i < 20000 ? size : alloc.size);
    }
    const struct total *heap_total = &lab->derive->domains[DOMAIN_HEAP].all;
    assert_true(heap_total->sum.live_bytes > (UINT64_C(1) << 61) && heap_total->sum.live_bytes < INT64_MAX);
    assert_true(derive_sizes_refused(lab->derive) > 12500 + 1000);
    struct varve_message message;
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
    for (uint64_t i = 0; i <= 50000; i++) {
        struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x1000 + 16 * i, 0);
        assert_int_equal(take_unchecked(lab, &release), VARVE_OK);
    }
    assert_int_equal(heap_total->sum.live_bytes, 0);
    failed.flags = VARVE_FLAG_FAILED;
    failed = take(lab, failed);
    assert_true(failed.size == UINT64_MAX);
    struct event map = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, UINT64_MAX / 2);
    map = take(lab, map);
    assert_int_equal(map.id, 0);
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
}

/* A large object of Python is a block of the heap too, at the same address: one call lies around the other. */
TEST_WITH(test_python_beside_heap, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event outer = heap(VARVE_KIND_PYTHON_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 600);
    struct event inner = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 600);
    struct event outer_leaves = heap(VARVE_KIND_PYTHON_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event inner_leaves = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event inner_comes = heap(VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 0x2000, 700);
    struct event outer_fails = heap(VARVE_KIND_PYTHON_REALLOC, VARVE_CAUSE_REALLOC, 0x1000, 700);
    struct event unknown = heap(VARVE_KIND_PYTHON_FREE, VARVE_CAUSE_FREE, 0x2000, 0);
    struct event outer_free = heap(VARVE_KIND_PYTHON_FREE, VARVE_CAUSE_FREE, 0x1000, 0);
    inner_comes.arg = 0x1000;
    outer_fails.arg = 0x1000;
    outer_fails.flags = VARVE_FLAG_FAILED;
    struct event *const events[] = {&inner, &outer, &outer_leaves, &inner_leaves, &inner_comes, &outer_fails};
    for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        *events[i] = take(lab, *events[i]);
    }
    assert_int_equal(total_of(lab, DOMAIN_HEAP, 0)->sum.live_bytes, 700);
    assert_int_equal(total_of(lab, DOMAIN_PYTHON, 0)->sum.live_bytes, 600);
    assert_int_equal(outer_fails.id, outer.id);
    unknown = take(lab, unknown);
    assert_int_equal(unknown.id, 0);
    assert_int_equal(unknown.cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
    outer_free = take(lab, outer_free);
    assert_int_equal(outer_free.id, outer.id);
    assert_int_equal(total_of(lab, DOMAIN_PYTHON, 0)->sum.live_allocations, 0);
    assert_int_equal(total_of(lab, DOMAIN_HEAP, 0)->sum.live_allocations, 1);
}

/* More allocations than a step of the file, so that old rows are cold when they are freed. */
TEST_WITH(test_cold_rows_are_completed, lab_begin, lab_end)
{
    struct lab *lab = *state;
    const uint64_t count = 900000;
    struct varve_message message;
    for (uint64_t i = 1; i <= 2 * count; i++) {
        bool is_alloc = i <= count;
        uint64_t number = is_alloc ? i : 1 + (i - count) * 7919 % count;
        struct event event = heap(is_alloc ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE,
                                  is_alloc ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE, number * 64, number);
        assert_int_equal(take_unchecked(lab, &event), VARVE_OK);
        assert_int_equal(event.id, number);
    }
    assert_true(lab->derive->scratch.cold > 0);
    assert_int_equal(lab->derive->domains[DOMAIN_HEAP].all.sum.live_allocations, 0);
    for (uint64_t id = 1; id <= count; id += 1000) {
        assert_true(scratch_peek(&lab->derive->scratch, id)->free_seq > count);
    }
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
}

TEST_WITH(test_full_disk_changes_nothing, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct rlimit before;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    alloc.seq = 1;
    alloc.process_id = 1;
    alloc.thread_id = 1;
    struct varve_message message;
    int code = derive_event(lab->derive, &alloc, &message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, VARVE_ERROR_FULL);
    assert_true(strlen(message.text) > 0);
    assert_int_equal(alloc.id, 0);
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
    assert_int_equal(derive_event(lab->derive, &alloc, &message), VARVE_OK);
    assert_int_equal(alloc.id, 1);
}

TEST_WITH(test_damaged_numbers_are_refused, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event event = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    event.thread_id = UINT32_MAX;
    event.process_id = 1;
    struct varve_message message;
    assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_ERROR_INVALID);
    event.thread_id = 1;
    event.process_id = UINT32_MAX;
    assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_ERROR_INVALID);
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
}

/* ---- caching allocators ---- */

static struct event lab_event(struct lab *lab, enum varve_kind kind, uint64_t addr, uint64_t size)
{
    return take(lab, (struct event){.kind = (uint8_t)kind, .device = 3, .addr = addr, .size = size, .requested = size});
}

static const struct total *lab_total(const struct lab *lab)
{
    return &lab->derive->domains[slot_of(DOMAIN_BLOCK, 3)].all;
}

/* What a trace that begins late, lost events or is damaged may hold. */
TEST_WITH(test_contradictions, lab_begin, lab_end)
{
    struct lab *lab = *state;
    assert_int_equal(lab_event(lab, VARVE_KIND_FREE_REQUESTED, 0x1000, 512).cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
    assert_int_equal(lab_event(lab, VARVE_KIND_FREE_COMPLETED, 0x1000, 512).id, 0);
    assert_int_equal(lab_event(lab, VARVE_KIND_SEGMENT_FREE, 0x1000, 512).cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
    /* handed out where no segment is known, twice */
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x10000, 1024).id, 1);
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x10200, 1024).id, 2);
    assert_int_equal(lab_total(lab)->sum.live_allocations, 1);
    assert_int_equal(lab_total(lab)->extra.reserved, 0);
    assert_int_equal(scratch_peek(&lab->derive->scratch, 1)->free_seq, 5);
    /* a segment that comes where blocks are live, and goes with live blocks in it */
    assert_int_equal(lab_event(lab, VARVE_KIND_SEGMENT_ALLOC, 0x10000, 0x10000).id, 1);
    assert_int_equal(lab_total(lab)->sum.live_allocations, 0);
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x14000, 0x1000).id, 3);
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x1f000, 0x9000).id, 4);
    assert_int_equal(lab_total(lab)->extra.active, 0xa000);
    assert_int_equal(lab_event(lab, VARVE_KIND_SEGMENT_FREE, 0x10000, 0x10000).id, 1);
    assert_int_equal(lab_total(lab)->sum.live_allocations, 0);
    assert_int_equal(lab_total(lab)->extra.reserved, 0);
    assert_int_equal(lab_total(lab)->sum.temporary, 0);
    /* completed without having been requested; requested twice */
    lab_event(lab, VARVE_KIND_ALLOC, 0x50000, 512);
    assert_int_equal(lab_event(lab, VARVE_KIND_FREE_COMPLETED, 0x50000, 512).id, 5);
    lab_event(lab, VARVE_KIND_ALLOC, 0x50000, 512);
    assert_int_equal(lab_event(lab, VARVE_KIND_FREE_REQUESTED, 0x50000, 512).id, 6);
    assert_int_equal(lab_event(lab, VARVE_KIND_FREE_REQUESTED, 0x50000, 512).id, 0);
    assert_int_equal(lab_total(lab)->extra.active, 512);
    /* sizes and addresses that cannot be */
    lab_event(lab, VARVE_KIND_ALLOC, 0x60000, UINT64_C(1) << 60);
    lab_event(lab, VARVE_KIND_ALLOC, 0, 512);
    lab_event(lab, VARVE_KIND_SEGMENT_ALLOC, UINT64_MAX - 100, UINT64_C(1) << 40);
    lab_event(lab, VARVE_KIND_SEGMENT_ALLOC, UINT64_MAX, 512);
    lab_event(lab, VARVE_KIND_SEGMENT_MAP, UINT64_MAX, 512);
    lab_event(lab, VARVE_KIND_ALLOC, UINT64_MAX, 512);
    lab_event(lab, VARVE_KIND_SPLIT, UINT64_MAX - 100, UINT64_MAX);
    lab_event(lab, VARVE_KIND_MERGE, UINT64_MAX, UINT64_MAX);
    lab_event(lab, VARVE_KIND_SEGMENT_UNMAP, UINT64_MAX - 100, UINT64_MAX);
    assert_int_equal(lab_total(lab)->failed, 3);
    assert_int_equal(derive_sizes_refused(lab->derive), 1);
}

/* Events that never fit together: whatever they say, the sums agree and nothing is out of bounds. */
TEST(test_noise)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        void *own = NULL;
        uint64_t numbers = seed * 104729;
        assert_int_equal(lab_begin(&own), 0);
        struct lab *lab = own;
        for (int i = 0; i < 2000; i++) {
            uint64_t random = random_next(&numbers);
            struct event event = {.kind = (uint8_t)(VARVE_KIND_ALLOC + (random >> 33) % 10),
                                  .cause = (uint8_t)(random >> 36 & 1 ? VARVE_CAUSE_PREVIOUS : VARVE_CAUSE_NEXT),
                                  .device = 3,
                                  .addr = 0x1000 + 0x100 * ((random >> 40) % 24),
                                  .size = 0x80 * ((random >> 45) % 12),
                                  .requested = 0x80 * ((random >> 49) % 12),
                                  .arg = (random >> 53) % 3};
            if (event.kind == VARVE_KIND_MERGE) {
                event.arg = 0x1000 + 0x100 * ((random >> 53) % 24);
            }
            take(lab, event);
        }
        assert_true(lab_total(lab)->sum.allocations > 100);
        lab_end(&own);
    }
}

TEST_WITH(test_oom, lab_begin, lab_end)
{
    struct lab *lab = *state;
    const struct event oom = {
        .kind = VARVE_KIND_OOM, .device = 3, .addr = 111, .size = 222, .requested = 333, .arg = 444};
    for (int i = 0; i < 2; i++) {
        take(lab, (struct event){.kind = VARVE_KIND_OOM_RETRY,
                                 .device = 3,
                                 .cause = i == 0 ? VARVE_CAUSE_CALLBACKS : VARVE_CAUSE_RELEASE_CACHED});
    }
    take(lab, oom);
    take(lab, oom);
    assert_int_equal(lab->derive->oom_count, 2);
    const struct derive_oom *row = lab->derive->ooms;
    assert_int_equal(row[0].stage, VARVE_CAUSE_RELEASE_CACHED);
    assert_int_equal(row[1].stage, VARVE_CAUSE_NONE);
    assert_int_equal(row[0].largest_free, 111);
    assert_int_equal(row[0].requested, 222);
    assert_int_equal(row[0].allocated, 333);
    assert_int_equal(row[0].reserved, 444);
    assert_int_equal(lab_total(lab)->failed, 2);
}

/* Numbers of a device's events say which must come first, whatever their times say. */
TEST_WITH(test_order_of_allocators, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event event = {.seq = 1, .process_id = 1, .thread_id = 1, .kind = VARVE_KIND_MARK_BEGIN, .dev_seq = 1};
    assert_false(derive_is_out_of_order(lab->derive, &event));
    event.dev_seq = 2;
    assert_true(derive_is_out_of_order(lab->derive, &event));
    event.dev_seq = 1;
    struct varve_message message;
    assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_OK);
    event.dev_seq = 2;
    assert_false(derive_is_out_of_order(lab->derive, &event));
    event.device = 1;
    assert_true(derive_is_out_of_order(lab->derive, &event));
    event.dev_seq = 0;
    assert_false(derive_is_out_of_order(lab->derive, &event));
}

/* ---- the CUDA API ---- */

static const struct scratch_row *row_of(const struct lab *lab, uint64_t id)
{
    return scratch_peek(&lab->derive->scratch, id);
}

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
    return total_of(lab, DOMAIN_DEVICE, 0)->sum.live_allocations;
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

TEST_WITH(test_a_failed_free_is_taken_back, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event alloc = alloc_of(0x1000, 10, VARVE_MEMORY_MANAGED);
    struct event other = free_of(0x1000);
    alloc.device = 1;
    take(lab, alloc);
    take(lab, free_of(0x1000));
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 1)->sum.live_allocations, 0);
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
    assert_int_equal(total_of(lab, DOMAIN_MANAGED, 1)->sum.live_allocations, 1);
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

TEST_WITH(test_order_of_the_api, lab_begin, lab_end)
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

/* ---- numbers of devices and streams ---- */

static struct event device(uint32_t process, unsigned ordinal, uint64_t uuid)
{
    return (struct event){.kind = VARVE_KIND_DEVICE,
                          .process_id = process,
                          .device = (uint8_t)ordinal,
                          .addr = uuid,
                          .arg = 1,
                          .size = 1 << 20};
}

static unsigned number_of(struct lab *lab, uint32_t process, unsigned ordinal)
{
    struct event event = alloc_of(0x1000 * ++lab->seq, 10, VARVE_MEMORY_DEVICE);
    event.process_id = process;
    event.device = (uint8_t)ordinal;
    return take(lab, event).device;
}

/* Two ranks call their device 0; a third process sees both the other way round. */
TEST_WITH(test_devices_are_reported_apart, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event reported = take(lab, device(1, 0, 0xaa));
    assert_int_equal(reported.device, 0);
    reported = take(lab, device(2, 0, 0xbb));
    assert_int_equal(reported.device, 1);
    assert_int_equal(reported.id, 0);
    take(lab, device(3, 0, 0xbb));
    reported = take(lab, device(3, 1, 0xaa));
    assert_int_equal(reported.device, 0);
    assert_int_equal(reported.id, 1);
    static const unsigned expected[][3] = {
        {1, 0, 0}, {2, 0, 1}, {3, 0, 1}, {3, 1, 0}, {3, 2, 2} /* not named: as it is */, {4, 0, 0}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_int_equal(number_of(lab, expected[i][0], expected[i][1]), expected[i][2]);
    }
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 1)->sum.allocations, 2);
    /* blocks of an allocator too, and the order of its events */
    struct event block = {.kind = VARVE_KIND_ALLOC, .process_id = 2, .addr = 0x100000, .size = 512, .dev_seq = 1};
    assert_int_equal(take(lab, block).device, 1);
    block =
        (struct event){.kind = VARVE_KIND_FREE_COMPLETED, .process_id = 2, .addr = 0x100000, .size = 512, .dev_seq = 2};
    assert_false(derive_is_out_of_order(lab->derive, &block));
    assert_int_equal(take(lab, block).id, lab->derive->scratch.count);
    assert_int_equal(total_of(lab, DOMAIN_BLOCK, 1)->sum.frees, 1);
    /* read back from a database: it has the number of the trace already */
    block.is_stored = true;
    block.device = 1;
    assert_int_equal(take(lab, block).device, 1);
}

TEST_WITH(test_all_numbers_are_taken, lab_begin, lab_end)
{
    struct lab *lab = *state;
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        assert_int_equal(take(lab, device(1, i, 0x1000 + i)).device, i);
    }
    assert_int_equal(take(lab, device(2, 5, 0x1)).device, 5); /* what else */
    struct event nameless = device(3, 9, 0);
    nameless.arg = 0;
    assert_int_equal(take(lab, nameless).device, 9);
}

TEST_WITH(test_names, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event name = {.kind = VARVE_KIND_DEVICE_NAME, .process_id = 2};
    char text[33] = "NVIDIA H200";
    take(lab, device(1, 0, 0xaa));
    take(lab, device(2, 0, 0xbb));
    uint64_t words[4];
    memcpy(words, text, sizeof(words));
    name.addr = words[0];
    name.size = words[1];
    name.requested = words[2];
    name.arg = words[3];
    take(lab, name);
    assert_string_equal(lab->derive->names->devices[1].name, "NVIDIA H200");
    assert_string_equal(lab->derive->names->devices[0].name, "");
    name.addr = UINT64_C(0xff01414141414141); /* damaged, and no end */
    name.size = name.requested = name.arg = UINT64_C(0x4242424242424242);
    take(lab, name);
    assert_string_equal(lab->derive->names->devices[1].name, "AAAAAA??BBBBBBBBBBBBBBBBBBBBBBBB");
}

/* A stream may be used before its device is. */
TEST_WITH(test_streams, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event stream = {.kind = VARVE_KIND_STREAM, .process_id = 2, .stream = 4, .addr = 0xdead};
    take(lab, device(1, 0, 0xaa));
    struct event reported = take(lab, stream);
    assert_int_equal(reported.device, 0);
    take(lab, device(2, 0, 0xbb));
    stream.stream = 5;
    assert_int_equal(take(lab, stream).device, 1);
    reported.is_stored = true; /* as it comes back from a database */
    take(lab, reported);
    assert_int_equal(lab->derive->names->meaning_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct derive_meaning *meaning = &lab->derive->names->meanings[i];
        assert_int_equal(names_device_of(lab->derive, meaning), 1);
        assert_int_equal(meaning->number, i == 1 ? 5 : 4);
        assert_int_equal(meaning->ids[0], 0xdead);
    }
}

static int count_events(void *context, uint64_t seq, unsigned kind)
{
    uint64_t *last = context;
    assert_int_equal(seq, *last + 1);
    assert_int_equal(kind, VARVE_KIND_DEV_SYNC);
    *last = seq;
    return VARVE_OK;
}

/* More events than a buffer holds. */
TEST_WITH(test_the_list_of_events, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct varve_message message;
    uint64_t last = 0;
    struct event wait = {.kind = VARVE_KIND_DEV_SYNC, .process_id = 1, .thread_id = 1};
    for (unsigned i = 0; i < 2 * SEQS_BUFFERED + 100; i++) {
        wait.seq = ++lab->seq;
        assert_int_equal(derive_event(lab->derive, &wait, &message), VARVE_OK);
    }
    assert_int_equal(seqs_each(&lab->derive->calls->events, count_events, &last, &message), VARVE_OK);
    assert_int_equal(last, lab->seq);
}
