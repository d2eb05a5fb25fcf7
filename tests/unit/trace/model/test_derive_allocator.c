/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single events of caching allocators and what derive makes of them: traces that begin late, lose events or
 * are damaged, requests that fail, the order that numbers of a device's events give. Whole histories:
 * test_derived_tables.c.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "support/random.h"
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

#include <stdlib.h>
#include <unistd.h>

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
    assert_int_equal(lab_total(lab)->live_allocations, 1);
    assert_int_equal(lab_total(lab)->extra.reserved, 0);
    assert_int_equal(scratch_peek(&lab->derive->scratch, 1)->free_seq, 5);
    /* a segment that comes where blocks are live, and goes with live blocks in it */
    assert_int_equal(lab_event(lab, VARVE_KIND_SEGMENT_ALLOC, 0x10000, 0x10000).id, 1);
    assert_int_equal(lab_total(lab)->live_allocations, 0);
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x14000, 0x1000).id, 3);
    assert_int_equal(lab_event(lab, VARVE_KIND_ALLOC, 0x1f000, 0x9000).id, 4);
    assert_int_equal(lab_total(lab)->extra.active, 0xa000);
    assert_int_equal(lab_event(lab, VARVE_KIND_SEGMENT_FREE, 0x10000, 0x10000).id, 1);
    assert_int_equal(lab_total(lab)->live_allocations, 0);
    assert_int_equal(lab_total(lab)->extra.reserved, 0);
    assert_int_equal(lab_total(lab)->temporary, 0);
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
        assert_true(lab_total(lab)->allocations > 100);
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
TEST_WITH(test_order, lab_begin, lab_end)
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
