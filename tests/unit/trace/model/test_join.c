/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which call sites are small. What the sums of the others are when these are put together: test_callsite_shares.c.
 * Costs: 1 s
 */
#include "support/derive/lab.h"

#include "trace/model/derive/derive.h"
#include "trace/model/derive/join.h"
#include "trace/model/event.h"
#include "trace/record.h"

/* Just below a share and just at it, by each of the measures. */
TEST(test_shares)
{
    static const struct {
        uint64_t size; /* of call site 2 */
        enum { AT_ONCE, AFTER_PEAK, NEVER } freed;
        uint8_t expected;
    } cases[] = {
        {99, AT_ONCE, JOIN_SMALL},    {100, AT_ONCE, JOIN_LARGE}, {97, AFTER_PEAK, JOIN_SMALL},
        {98, AFTER_PEAK, JOIN_LARGE}, {1, NEVER, JOIN_LARGE}, /* of some 5,000 bytes that stay */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lab *lab;
        uint8_t sizes[4] = {0};
        const struct event small = {.kind = VARVE_KIND_HEAP_ALLOC,
                                    .cause = VARVE_CAUSE_MALLOC,
                                    .addr = 0x20000,
                                    .size = cases[i].size,
                                    .callsite = 2};
        const struct event small_free = {.kind = VARVE_KIND_HEAP_FREE, .cause = VARVE_CAUSE_FREE, .addr = 0x20000};
        assert_int_equal(lab_begin((void **)&lab), 0);
        take(lab, small);
        if (cases[i].freed == AT_ONCE) {
            take(lab, small_free);
        }
        /* 20,000 allocations of call site 1, a million bytes with the small one: 1 of 20,001 is no share. The first
         * is the peak, 975,000 bytes with the small one if that is live; 5,002 bytes stay. */
        for (unsigned k = 0; k < 20000; k++) {
            struct event event = small;
            event.callsite = 1;
            event.addr = 0x10000;
            event.size = k == 0 ? 975000 - cases[i].size : k == 1 ? 25000 - 19998 : 1;
            event.addr = k == 1 ? 0x30000 : 0x10000;
            event.seq = ++lab->seq;
            event.ts_ns = (int64_t)lab->seq;
            event.process_id = event.thread_id = 1;
            struct varve_message message;
            assert_int_equal(derive_event(lab->derive, &event, &message), VARVE_OK);
            if (k != 1) {
                struct event end = small_free;
                end.addr = 0x10000;
                end.seq = ++lab->seq;
                end.ts_ns = (int64_t)lab->seq;
                end.process_id = end.thread_id = 1;
                assert_int_equal(derive_event(lab->derive, &end, &message), VARVE_OK);
            }
        }
        if (cases[i].freed == AFTER_PEAK) {
            take(lab, small_free);
        }
        join_sizes(lab->derive, sizes, 4);
        assert_int_equal(sizes[1], JOIN_LARGE);
        assert_int_equal(sizes[2], cases[i].expected);
        assert_int_equal(sizes[3], JOIN_UNUSED);
        lab_end((void **)&lab);
    }
}
