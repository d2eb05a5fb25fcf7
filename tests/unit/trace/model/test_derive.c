/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a random stream (test_derived_tables.c) does not reach: the order of events, Python's memory beside the heap's,
 * the scratch file when the disk is full or rows are cold, and what damaged records are made into.
 * Costs: 3 s
 */
#include "support/derive/lab.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/model/scratch.h"
#include "trace/model/state.h"
#include "trace/model/totals.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its code; for many events in turn, which are checked together. */
static int take_unchecked(struct lab *lab, struct event *event)
{
    event->seq = ++lab->seq;
    event->ts_ns = (int64_t)lab->seq * 100;
    event->process_id = event->thread_id = 1;
    struct varve_message message;
    return derive_event(lab->derive, event, &message);
}

static struct event heap(enum varve_kind kind, enum varve_cause cause, uint64_t addr, uint64_t size)
{
    return (struct event){.kind = (uint8_t)kind, .cause = (uint8_t)cause, .addr = addr, .size = size};
}

/* Only what is there can be freed, and only what is not there can be allocated. */
TEST_WITH(test_what_is_out_of_order, lab_begin, lab_end)
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
    assert_true(heap_total->live_bytes > (UINT64_C(1) << 61) && heap_total->live_bytes < INT64_MAX);
    assert_true(derive_sizes_refused(lab->derive) > 12500 + 1000);
    struct varve_message message;
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
    for (uint64_t i = 0; i <= 50000; i++) {
        struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x1000 + 16 * i, 0);
        assert_int_equal(take_unchecked(lab, &release), VARVE_OK);
    }
    assert_int_equal(heap_total->live_bytes, 0);
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
    assert_int_equal(total_of(lab, DOMAIN_HEAP, 0)->live_bytes, 700);
    assert_int_equal(total_of(lab, DOMAIN_PYTHON, 0)->live_bytes, 600);
    assert_int_equal(outer_fails.id, outer.id);
    unknown = take(lab, unknown);
    assert_int_equal(unknown.id, 0);
    assert_int_equal(unknown.cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
    outer_free = take(lab, outer_free);
    assert_int_equal(outer_free.id, outer.id);
    assert_int_equal(total_of(lab, DOMAIN_PYTHON, 0)->live_allocations, 0);
    assert_int_equal(total_of(lab, DOMAIN_HEAP, 0)->live_allocations, 1);
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
        event.seq = i;
        event.process_id = 1;
        event.thread_id = 1;
        assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_OK);
        assert_int_equal(event.id, number);
    }
    assert_true(lab->derive->scratch.cold > 0);
    assert_int_equal(lab->derive->domains[DOMAIN_HEAP].all.live_allocations, 0);
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
