/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of derive, each for itself: the address index and the mapped ranges against naive copies, the
 * thinning of samples, the scratch file when the disk is full, and the single rules of derive_event that a
 * random stream (test_derive_model.c) would show less plainly.
 */
#include "trace/derive_internal.h"

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

static uint64_t random_state; /* seeded by each test */

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (random_state >> 33) % limit;
}

/* ---- live index ---- */

static void test_live_index_as_array(void **state)
{
    (void)state;
    enum { ADDRESSES = 3000 };
    static uint64_t ids[ADDRESSES];
    struct live_index index = {0};
    uint64_t count = 0;
    random_state = 11;
    memset(ids, 0, sizeof ids);
    assert_int_equal(live_find(&index, 16), 0);
    assert_int_equal(live_take(&index, 16), 0);
    for (uint64_t step = 1; step < 60000; step++) {
        /* Grows in the first third, shrinks in the last. */
        uint64_t bias = step < 20000 ? 70 : step < 40000 ? 50 : 25;
        uint64_t slot = random_below(ADDRESSES);
        uint64_t addr = UINT64_C(0x7f0000000000) + 16 * slot;
        assert_int_equal(live_find(&index, addr), ids[slot]);
        if (random_below(100) < bias) {
            assert_int_equal(live_reserve(&index), VARVE_OK);
            assert_int_equal(live_put(&index, addr, step), ids[slot]);
            count += ids[slot] == 0;
            ids[slot] = step;
        } else {
            assert_int_equal(live_take(&index, addr), ids[slot]);
            count -= ids[slot] != 0;
            ids[slot] = 0;
        }
        assert_int_equal(index.count, count);
        if (step % 64 == 0) {
            assert_int_equal(live_check(&index), VARVE_OK);
        }
    }
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        assert_int_equal(live_find(&index, UINT64_C(0x7f0000000000) + 16 * i), ids[i]);
    }
    live_clear(&index);
    assert_int_equal(live_find(&index, 16), 0);
}

/* The promise of 64 bytes per live block, also while the table is doubled. */
static void test_live_index_bytes(void **state)
{
    (void)state;
    struct live_index index = {0};
    uint64_t slots_before = 0;
    for (uint64_t i = 1; i <= 200000; i++) {
        assert_int_equal(live_reserve(&index), VARVE_OK);
        uint64_t slots = UINT64_C(1) << index.bits;
        if (slots != slots_before && i > 1000) {
            assert_true((slots + slots_before) * sizeof(struct live_slot) <= 64 * i + 4096);
        }
        slots_before = slots;
        live_put(&index, i * 32, i);
    }
    live_clear(&index);
}

/* ---- ranges ---- */

/* One cell per page: the id of the range that covers it. */
enum { PAGES = 4000 };

static int expect_range(void *context, const struct range *range)
{
    const uint64_t *pages = context;
    for (uint64_t page = range->start; page < range->end; page++) {
        assert_int_equal(pages[page], range->id);
    }
    return 0;
}

static void test_ranges_as_pages(void **state)
{
    (void)state;
    static uint64_t pages[PAGES];
    struct ranges ranges = {0};
    uint64_t covered = 0;
    random_state = 5;
    memset(pages, 0, sizeof pages);
    for (uint64_t step = 1; step < 30000; step++) {
        uint64_t start = random_below(PAGES - 8);
        uint64_t end = start + 1 + random_below(4);
        struct range range;
        uint64_t first = 0;
        for (uint64_t page = start; page < end && first == 0; page++) {
            first = pages[page];
        }
        assert_int_equal(ranges_first(&ranges, start, end, &range), first != 0);
        if (first != 0) {
            assert_int_equal(range.id, first);
            ranges_remove(&ranges, range.start);
            memset(&pages[range.start], 0, (range.end - range.start) * sizeof pages[0]);
            covered -= range.end - range.start;
        } else if (step < 20000 || random_below(4) == 0) {
            range = (struct range){.start = start, .end = end, .id = step};
            assert_int_equal(ranges_reserve(&ranges, 1), VARVE_OK);
            ranges_insert(&ranges, &range);
            for (uint64_t page = start; page < end; page++) {
                pages[page] = step;
            }
            covered += end - start;
        }
        assert_int_equal(ranges_check(&ranges), VARVE_OK);
    }
    assert_int_equal(ranges_each(&ranges, expect_range, pages), 0);
    uint64_t cells = 0;
    for (uint64_t i = 0; i < PAGES; i++) {
        cells += pages[i] != 0;
    }
    assert_int_equal(cells, covered);
    assert_true(ranges.leaf_count > 4);
    ranges_clear(&ranges);
}

/* ---- samples ---- */

static void test_series_thins_evenly(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 2, 63, 64, 65, 200, 1000, 12345};
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        struct series series = {.limit = 64, .stride = 1};
        uint64_t maximum = 0;
        random_state = lengths[k];
        for (uint64_t seq = 1; seq <= lengths[k]; seq++) {
            uint64_t allocated = random_below(1000000);
            maximum = allocated > maximum ? allocated : maximum;
            assert_int_equal(series_reserve(&series), VARVE_OK);
            series_add(&series, seq, (int64_t)seq * 10, allocated, seq % 7);
            assert_int_equal(series_check(&series), VARVE_OK);
        }
        assert_int_equal(series_reserve(&series), VARVE_OK);
        series_end(&series, series.limit);
        uint64_t seen = 0;
        for (uint32_t i = 0; i < series.count; i++) {
            seen = series.points[i].allocated_max > seen ? series.points[i].allocated_max : seen;
            assert_int_equal(series.points[i].ts_ns, (int64_t)series.points[i].seq * 10);
            assert_int_equal(series.points[i].live, series.points[i].seq % 7);
            if (i + 1 < series.count) {
                assert_int_equal(series.points[i].seq, (i + 1) * series.stride);
            }
        }
        assert_int_equal(seen, maximum);
        assert_int_equal(series.points[series.count - 1].seq, lengths[k]);
        assert_true(lengths[k] <= 64 ? series.count == lengths[k] : series.count >= 32);
        series_end(&series, 4);
        assert_true(series.count <= 4);
        assert_int_equal(series.points[series.count - 1].seq, lengths[k]);
        free(series.points);
    }
}

/* ---- derive_event ---- */

struct fixture {
    char path[64];
    struct derive *derive;
    uint64_t seq;
};

static int fixture_begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
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
static int take(struct fixture *fixture, struct event *event)
{
    struct varve_message message;
    event->seq = ++fixture->seq;
    event->ts_ns = (int64_t)fixture->seq * 100;
    event->process_id = event->process_id != 0 ? event->process_id : 1;
    event->thread_id = event->thread_id != 0 ? event->thread_id : 1;
    int code = derive_event(fixture->derive, event, &message);
    assert_int_equal(derive_check(fixture->derive, &message), VARVE_OK);
    return code;
}

static struct event heap(enum varve_kind kind, enum varve_cause cause, uint64_t addr, uint64_t size)
{
    return (struct event){.kind = (uint8_t)kind, .cause = (uint8_t)cause, .addr = addr, .size = size};
}

static void test_free_gets_what_it_refers_to(void **state)
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
    assert_int_equal(release.callsite, 5);
    assert_int_equal(release.cause, VARVE_CAUSE_FREE);
    assert_int_equal(again.id, 0);
    assert_int_equal(again.cause, VARVE_CAUSE_UNKNOWN_ADDRESS);
}

/* Another thread gets the old address before the realloc is over. */
static void test_realloc_keeps_its_block_apart(void **state)
{
    struct fixture *fixture = *state;
    struct event alloc = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    struct event begin = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 0x1000, 0);
    struct event other = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 30);
    struct event end = heap(VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 0x2000, 20);
    other.thread_id = 2;
    end.arg = 0x1000;
    assert_int_equal(take(fixture, &alloc), VARVE_OK);
    assert_true(derive_is_premature(
        fixture->derive, &(struct event){.kind = VARVE_KIND_HEAP_ALLOC, .process_id = 1, .addr = 0x1000}));
    assert_int_equal(take(fixture, &begin), VARVE_OK);
    other.process_id = 1;
    assert_false(derive_is_premature(fixture->derive, &other));
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

static void test_forked_child_frees_what_it_inherited(void **state)
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

/* mmap of 10 pages, munmap of 3 in the middle, MAP_FIXED over the rest. */
static void test_mapping_is_cut(void **state)
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
    assert_int_equal(unmap.callsite, 3);
    const struct scratch *scratch = &fixture->derive->scratch;
    assert_int_equal(scratch->count, 3);
    assert_int_equal(scratch_peek(scratch, 2)->addr, 0x10000);
    assert_int_equal(scratch_peek(scratch, 2)->size, 0x3000);
    assert_int_equal(scratch_peek(scratch, 3)->addr, 0x16000);
    assert_int_equal(scratch_peek(scratch, 3)->size, 0x4000);
    assert_int_equal(scratch_peek(scratch, 3)->source, VARVE_CAUSE_REMAINDER);
    assert_int_equal(scratch_peek(scratch, 3)->callsite, 3);
    over.process_id = 1;
    assert_true(derive_is_premature(fixture->derive, &over));
    over.arg = (uint64_t)MAP_FIXED << 32;
    assert_false(derive_is_premature(fixture->derive, &over));
    assert_int_equal(take(fixture, &over), VARVE_OK);
    assert_int_equal(fixture->derive->domains[DOMAIN_MMAP].all.live_bytes, 0xa000);
    assert_int_equal(fixture->derive->domains[DOMAIN_MMAP].all.live_allocations, 2);
}

/* More allocations than a step of the file, so that old rows are cold when they are freed. */
static void test_cold_rows_are_completed(void **state)
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

static void test_full_disk_changes_nothing(void **state)
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

static void test_damaged_numbers_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct event event = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000, 10);
    event.thread_id = UINT32_MAX;
    assert_int_equal(take(fixture, &event), VARVE_ERROR_INVALID);
    event.thread_id = 1;
    event.process_id = UINT32_MAX;
    assert_int_equal(take(fixture, &event), VARVE_ERROR_INVALID);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_begin, fixture_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_index_as_array),
        cmocka_unit_test(test_live_index_bytes),
        cmocka_unit_test(test_ranges_as_pages),
        cmocka_unit_test(test_series_thins_evenly),
        WITH_FIXTURE(test_free_gets_what_it_refers_to),
        WITH_FIXTURE(test_realloc_keeps_its_block_apart),
        WITH_FIXTURE(test_forked_child_frees_what_it_inherited),
        WITH_FIXTURE(test_mapping_is_cut),
        WITH_FIXTURE(test_cold_rows_are_completed),
        WITH_FIXTURE(test_full_disk_changes_nothing),
        WITH_FIXTURE(test_damaged_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
