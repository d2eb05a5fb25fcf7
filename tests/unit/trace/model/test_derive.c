/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The single rules of derive_event that a random stream (test_derived_tables.c) would show less plainly, the
 * scratch file when the disk is full, and what damaged records are made into.
 * Costs: 3 s
 */
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

struct fixture {
    char path[64];
    struct derive *derive;
    uint64_t seq;
};

static int fixture_begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct varve_message message;
    strcpy(fixture->path, "/tmp/test_derive.XXXXXX");
    int fd = mkstemp(fixture->path);
    close(fd);
    *state = fixture;
    return fd < 0 ? -1 : derive_open(fixture->path, &fixture->derive, &message);
}

static int fixture_end(void **state)
{
    struct fixture *fixture = *state;
    derive_close(fixture->derive);
    unlink(fixture->path);
    free(fixture);
    return 0;
}

/* An event of process 1, thread 1; returns the code of derive_event. */
static int take_unchecked(struct fixture *fixture, struct event *event)
{
    struct varve_message message;
    event->seq = ++fixture->seq;
    event->ts_ns = (int64_t)fixture->seq * 100;
    event->process_id = event->process_id != 0 ? event->process_id : 1;
    event->thread_id = event->thread_id != 0 ? event->thread_id : 1;
    return derive_event(fixture->derive, event, &message);
}

static int take(struct fixture *fixture, struct event *event)
{
    struct varve_message message;
    int code = take_unchecked(fixture, event);
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
    return code;
}

static struct event heap(enum varve_kind kind, enum varve_cause cause, uint64_t addr, uint64_t size)
{
    return (struct event){.kind = (uint8_t)kind, .cause = (uint8_t)cause, .addr = addr, .size = size};
}

TEST_WITH(test_free_gets_what_it_refers_to, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 77);
    struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x1000, 0);
    struct event again = release;
    alloc.callsite = 5;
    assert_int_equal(take(fixture, &alloc), VARVE_OK);
    assert_int_equal(take(fixture, &release), VARVE_OK);
    assert_int_equal(take(fixture, &again), VARVE_OK);
    assert_int_equal(alloc.id, 1);
    assert_int_equal(alloc.requested, 77);
    assert_int_equal(release.id, 1);
    assert_int_equal(release.size, 77);
    assert_int_equal(release.requested, 77);
    assert_int_equal(release.callsite, 0); /* its own, which was not taken */
    assert_int_equal(release.cause, VARVE_CAUSE_FREE);
    assert_int_equal(again.id, 0);
    assert_int_equal(again.cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
}

/* Another thread gets the old address before the realloc is over. */
TEST_WITH(test_realloc_keeps_its_block_apart, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event begin = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event other = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 30);
    struct event end = heap(VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 0x2000, 20);
    other.thread_id = 2;
    end.arg = 0x1000;
    assert_int_equal(take(fixture, &alloc), VARVE_OK);
    assert_true(derive_is_out_of_order(
        fixture->derive, &(struct event){.kind = VARVE_KIND_HEAP_ALLOC, .process_id = 1, .addr = 0x1000}));
    assert_int_equal(take(fixture, &begin), VARVE_OK);
    other.process_id = 1;
    assert_false(derive_is_out_of_order(fixture->derive, &other));
    assert_int_equal(take(fixture, &other), VARVE_OK);
    assert_int_equal(take(fixture, &end), VARVE_OK);
    assert_int_equal(begin.id, 1);
    assert_int_equal(other.id, 2);
    assert_int_equal(end.id, 3);
    const struct total *all = &fixture->derive->domains[DOMAIN_HEAP].all;
    assert_int_equal(all->live_bytes, 50);
    assert_int_equal(all->frees, 1);
    assert_int_equal(scratch_peek(&fixture->derive->scratch, 1)->free_seq, 2);
    assert_int_equal(scratch_peek(&fixture->derive->scratch, 2)->free_seq, 0);
}

TEST_WITH(test_forked_child_frees_what_it_inherited, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event parent = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event child = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x1000, 0);
    child.process_id = 2;
    child.thread_id = 2;
    assert_int_equal(take(fixture, &parent), VARVE_OK);
    derive_process_start(fixture->derive, 2, 1);
    assert_int_equal(take(fixture, &child), VARVE_OK);
    assert_int_equal(child.cause, VARVE_CAUSE_INHERITED);
    assert_int_equal(fixture->derive->domains[DOMAIN_HEAP].all.live_allocations, 1);
}

/* Only what is there can be freed, and only what is not there can be allocated. */
TEST_WITH(test_what_is_out_of_order, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event map = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, 0x2000);
    struct event unmap = heap(VARVE_KIND_MUNMAP, VARVE_CAUSE_MUNMAP, 0x11000, 0x4000);
    struct event *const events[] = {&alloc, &release, &map, &unmap};
    for (unsigned i = 0; i < 4; i++) {
        events[i]->process_id = 1;
    }
    for (unsigned i = 0; i < 4; i += 2) {
        assert_false(derive_is_out_of_order(fixture->derive, events[i]));
        assert_true(derive_is_out_of_order(fixture->derive, events[i + 1]));
        assert_int_equal(take(fixture, events[i]), VARVE_OK);
        assert_true(derive_is_out_of_order(fixture->derive, events[i]));
        assert_false(derive_is_out_of_order(fixture->derive, events[i + 1]));
        assert_int_equal(take(fixture, events[i + 1]), VARVE_OK);
        release.cause = VARVE_CAUSE_FREE;
    }
    release.addr = 0;
    assert_false(derive_is_out_of_order(fixture->derive, &release)); /* free(NULL) */
    release.addr = 0x9000;
    release.process_id = 77; /* its first event */
    assert_true(derive_is_out_of_order(fixture->derive, &release));
    unmap.flags = VARVE_FLAG_FAILED;
    unmap.addr = 0x90000;
    assert_false(derive_is_out_of_order(fixture->derive, &unmap));
}

/* Of damaged records: no sum may wrap, what can be true is believed, and a failed call may ask for anything.
 */
TEST_WITH(test_impossible_sizes, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event honest = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event failed = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0, UINT64_MAX);
    struct varve_message message;
    assert_int_equal(take(fixture, &honest), VARVE_OK);
    for (uint64_t i = 1; i <= 50000; i++) {
        /* as large as a pointer: many of these are too much together */
        uint64_t size = i % 4 == 0 ? UINT64_MAX - i : UINT64_C(0x7fff00000000);
        struct event alloc = heap(i % 3 == 0 ? VARVE_KIND_HEAP_REALLOC : VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC,
                                  0x1000 + 16 * i, size);
        assert_int_equal(take_unchecked(fixture, &alloc), VARVE_OK);
        assert_int_equal(alloc.size, scratch_peek(&fixture->derive->scratch, alloc.id)->size);
        assert_int_equal(alloc.size, i % 4 == 0 ? 0 : i < 20000 ? size : alloc.size);
    }
    const struct total *heap_total = &fixture->derive->domains[DOMAIN_HEAP].all;
    assert_true(heap_total->live_bytes > (UINT64_C(1) << 61) && heap_total->live_bytes < INT64_MAX);
    assert_true(derive_sizes_refused(fixture->derive) > 12500 + 1000);
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
    for (uint64_t i = 0; i <= 50000; i++) {
        struct event release = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x1000 + 16 * i, 0);
        assert_int_equal(take_unchecked(fixture, &release), VARVE_OK);
    }
    assert_int_equal(heap_total->live_bytes, 0);
    failed.flags = VARVE_FLAG_FAILED;
    assert_int_equal(take(fixture, &failed), VARVE_OK);
    assert_true(failed.size == UINT64_MAX);
    struct event map = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, UINT64_MAX / 2);
    assert_int_equal(take(fixture, &map), VARVE_OK);
    assert_int_equal(map.id, 0);
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
}

/* mmap of 10 pages, munmap of 3 in the middle, MAP_FIXED over the rest. */
TEST_WITH(test_mapping_is_cut, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event map = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, 0xa000);
    struct event unmap = heap(VARVE_KIND_MUNMAP, VARVE_CAUSE_MUNMAP, 0x13000, 0x3000);
    struct event over = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x12000, 0x8000);
    map.requested = 0x9f00;
    map.callsite = 3;
    assert_int_equal(take(fixture, &map), VARVE_OK);
    assert_int_equal(take(fixture, &unmap), VARVE_OK);
    assert_int_equal(unmap.id, 1);
    assert_int_equal(unmap.callsite, 0); /* its own, which was not taken */
    const struct scratch *scratch = &fixture->derive->scratch;
    assert_int_equal(scratch->count, 3);
    assert_int_equal(scratch_peek(scratch, 2)->addr, 0x10000);
    assert_int_equal(scratch_peek(scratch, 2)->size, 0x3000);
    assert_int_equal(scratch_peek(scratch, 3)->addr, 0x16000);
    assert_int_equal(scratch_peek(scratch, 3)->size, 0x4000);
    assert_int_equal(scratch_peek(scratch, 3)->source, VARVE_CAUSE_REMAINDER);
    assert_int_equal(scratch_peek(scratch, 3)->callsite, 3);
    over.process_id = 1;
    assert_true(derive_is_out_of_order(fixture->derive, &over));
    over.arg = (uint64_t)MAP_FIXED << 32 | PROT_READ;
    assert_false(derive_is_out_of_order(fixture->derive, &over));
    assert_int_equal(take(fixture, &over), VARVE_OK);
    assert_int_equal(fixture->derive->domains[DOMAIN_MMAP].all.live_bytes, 0xa000);
    assert_int_equal(fixture->derive->domains[DOMAIN_MMAP].all.live_allocations, 2);
}

static const struct total *total_in(const struct fixture *fixture, enum domain domain)
{
    return &fixture->derive->domains[slot_of(domain, 0)].all;
}

/* Ten pages without access, four of which get memory; then the rest grows by mremap, and a munmap of it fails. */
TEST_WITH(test_address_space, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    const uint64_t private = (uint64_t)(MAP_PRIVATE | MAP_ANONYMOUS) << 32;
    struct event reserve = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, 0xa000);
    struct event commit = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x10000, 0x4000);
    struct event leave = heap(VARVE_KIND_MUNMAP, VARVE_CAUSE_MREMAP, 0x14000, 0x6000);
    struct event arrive = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MREMAP, 0x40000, 0x8000);
    struct event unmap = heap(VARVE_KIND_MUNMAP, VARVE_CAUSE_MUNMAP, 0x40000, 0x8000);
    struct event again = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MUNMAP, 0x40000, 0x8000);
    struct event lazy = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MMAP, 0x80000, 0x1000);
    struct event moved = heap(VARVE_KIND_MMAP, VARVE_CAUSE_MREMAP, 0x90000, 0x1000);
    reserve.arg = private | PROT_NONE;
    commit.arg = private | (uint64_t)MAP_FIXED << 32 | PROT_READ | PROT_WRITE;
    lazy.arg = private | (uint64_t)MAP_NORESERVE << 32 | PROT_READ | PROT_WRITE;
    assert_int_equal(take(fixture, &reserve), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0xa000);
    assert_int_equal(total_in(fixture, DOMAIN_MMAP)->allocations, 0);
    assert_int_equal(take(fixture, &commit), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0x6000);
    assert_int_equal(total_in(fixture, DOMAIN_MMAP)->live_bytes, 0x4000);
    assert_int_equal(take(fixture, &leave), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0);
    assert_int_equal(take(fixture, &arrive), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0x8000);
    assert_int_equal(take(fixture, &unmap), VARVE_OK);
    assert_int_equal(take(fixture, &again), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0x8000);
    assert_int_equal(take(fixture, &lazy), VARVE_OK);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->live_bytes, 0x9000);
    assert_int_equal(take(fixture, &moved), VARVE_OK); /* MREMAP_DONTUNMAP: nothing says of what */
    assert_int_equal(total_in(fixture, DOMAIN_MMAP)->live_bytes, 0x5000);
    assert_int_equal(total_in(fixture, DOMAIN_MMAP)->peak_bytes, 0x5000);
    assert_int_equal(total_in(fixture, DOMAIN_ADDRESS_SPACE)->peak_bytes, 0xa000);
}

/* A large object of Python is a block of the heap too, at the same address: one call lies around the other. */
TEST_WITH(test_python_beside_heap, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
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
        assert_int_equal(take(fixture, events[i]), VARVE_OK);
    }
    assert_int_equal(total_in(fixture, DOMAIN_HEAP)->live_bytes, 700);
    assert_int_equal(total_in(fixture, DOMAIN_PYTHON)->live_bytes, 600);
    assert_int_equal(outer_fails.id, outer.id);
    assert_int_equal(take(fixture, &unknown), VARVE_OK);
    assert_int_equal(unknown.id, 0);
    assert_int_equal(unknown.cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
    assert_int_equal(take(fixture, &outer_free), VARVE_OK);
    assert_int_equal(outer_free.id, outer.id);
    assert_int_equal(total_in(fixture, DOMAIN_PYTHON)->live_allocations, 0);
    assert_int_equal(total_in(fixture, DOMAIN_HEAP)->live_allocations, 1);
}

/* More allocations than a step of the file, so that old rows are cold when they are freed. */
TEST_WITH(test_cold_rows_are_completed, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
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
        assert_int_equal(derive_event(fixture->derive, &event, &message), VARVE_OK);
        assert_int_equal(event.id, number);
    }
    assert_true(fixture->derive->scratch.cold > 0);
    assert_int_equal(fixture->derive->domains[DOMAIN_HEAP].all.live_allocations, 0);
    for (uint64_t id = 1; id <= count; id += 1000) {
        assert_true(scratch_peek(&fixture->derive->scratch, id)->free_seq > count);
    }
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
}

TEST_WITH(test_full_disk_changes_nothing, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct rlimit before;
    struct varve_message message;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    alloc.seq = 1;
    alloc.process_id = 1;
    alloc.thread_id = 1;
    int code = derive_event(fixture->derive, &alloc, &message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, VARVE_ERROR_FULL);
    assert_true(strlen(message.text) > 0);
    assert_int_equal(alloc.id, 0);
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
    assert_int_equal(derive_event(fixture->derive, &alloc, &message), VARVE_OK);
    assert_int_equal(alloc.id, 1);
}

TEST_WITH(test_damaged_numbers_are_refused, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct event event = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    event.thread_id = UINT32_MAX;
    assert_int_equal(take(fixture, &event), VARVE_ERROR_INVALID);
    event.thread_id = 1;
    event.process_id = UINT32_MAX;
    assert_int_equal(take(fixture, &event), VARVE_ERROR_INVALID);
}
