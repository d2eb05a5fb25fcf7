/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites put together after random events: which are small, and what the sums of the others are afterwards,
 * against figures that are added up event by event. derive_check compares the sums over call sites with those of
 * everything, at the peak too.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "support/random.h"

#include "trace/model/derive/derive.h"
#include "trace/model/derive/join.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/model/scratch.h"
#include "trace/model/state.h"
#include "trace/record.h"

#define EVENTS 4000U
#define ADDRESSES 100U
#define SITES 40U

/* Of one call site, added up event by event. */
struct naive {
    uint64_t allocations, frees, bytes, live_allocations, live_bytes;
    uint64_t peak_bytes; /* when the domain had most */
};

struct model {
    struct naive sites[SITES + 1];
    uint64_t live, peak, bytes, allocations;
    struct {
        uint64_t size;
        uint32_t site; /* 0: free */
    } blocks[ADDRESSES];
};

/* Most call sites allocate little: of 1 byte; the first ones a million. */
static void step(struct lab *lab, struct model *model, uint64_t *random)
{
    size_t i = (size_t)random_below(random, ADDRESSES);
    struct event event = {.addr = 0x10000 + 64 * i, .thread_id = 1};
    struct naive *site = &model->sites[model->blocks[i].site];

    if (model->blocks[i].site == 0) {
        model->blocks[i].site = 1 + (uint32_t)random_below(random, SITES);
        model->blocks[i].size =
            model->blocks[i].site < 4 ? 1000000 + random_below(random, 1000) : 1 + random_below(random, 100);
        event.kind = VARVE_KIND_HEAP_ALLOC;
        event.cause = VARVE_CAUSE_MALLOC;
        event.size = model->blocks[i].size;
        event.callsite = model->blocks[i].site;
        site = &model->sites[event.callsite];
        site->allocations++;
        site->bytes += event.size;
        site->live_allocations++;
        site->live_bytes += event.size;
        model->allocations++;
        model->bytes += event.size;
        model->live += event.size;
    } else {
        event.kind = VARVE_KIND_HEAP_FREE;
        event.cause = VARVE_CAUSE_FREE;
        site->frees++;
        site->live_allocations--;
        site->live_bytes -= model->blocks[i].size;
        model->live -= model->blocks[i].size;
        model->blocks[i].site = 0;
    }
    take(lab, event);
    if (model->live > model->peak) {
        model->peak = model->live;
        for (uint32_t n = 1; n <= SITES; n++) {
            model->sites[n].peak_bytes = model->sites[n].live_bytes;
        }
    }
}

static bool has_share(uint64_t value, uint64_t total)
{
    return value > 0 && value * 10000 >= total;
}

static void expect_sizes(const struct model *model, const uint8_t *sizes)
{
    unsigned small = 0;

    for (uint32_t n = 1; n <= SITES; n++) {
        const struct naive *site = &model->sites[n];
        bool is_large = has_share(site->allocations, model->allocations) || has_share(site->bytes, model->bytes) ||
                        has_share(site->peak_bytes, model->peak) || has_share(site->live_bytes, model->live);

        assert_int_equal(sizes[n], site->allocations == 0 ? JOIN_UNUSED : is_large ? JOIN_LARGE : JOIN_SMALL);
        small += sizes[n] == JOIN_SMALL;
    }
    assert_int_equal(small, 0); /* 4000 events: each allocation is more than 1/10,000 of them */
}

static void expect_sums(const struct lab *lab, const struct model *model, const uint32_t *joined)
{
    const struct domain_totals *totals = &lab->derive->domains[slot_of(DOMAIN_HEAP, 0)];

    for (uint32_t n = 1; n <= SITES && n < totals->callsite_limit; n++) {
        const struct callsite_total *total = &totals->callsites[n];
        struct naive sum = {0};
        uint64_t peak_allocations;
        uint64_t peak_bytes;

        for (uint32_t from = 1; from <= SITES; from++) {
            const struct naive *site = &model->sites[from];

            if (joined[from] == n) {
                sum.allocations += site->allocations;
                sum.frees += site->frees;
                sum.bytes += site->bytes;
                sum.live_allocations += site->live_allocations;
                sum.live_bytes += site->live_bytes;
                sum.peak_bytes += site->peak_bytes;
            }
        }
        totals_callsite_peak(totals, n, &peak_allocations, &peak_bytes);
        assert_int_equal(total->allocations, sum.allocations);
        assert_int_equal(total->frees, sum.frees);
        assert_int_equal(total->bytes, sum.bytes);
        assert_int_equal(total->live_allocations, sum.live_allocations);
        assert_int_equal(total->live_bytes, sum.live_bytes);
        assert_int_equal(peak_bytes, sum.peak_bytes);
    }
}

/* Live allocations are at the call site that has their figures. */
static void expect_rows(const struct lab *lab, const struct model *model, const uint32_t *joined)
{
    uint64_t live = 0;

    for (uint64_t id = 1; id <= lab->derive->scratch.count; id++) {
        const struct scratch_row *row = scratch_peek(&lab->derive->scratch, id);

        if (row->free_seq == 0) {
            live++;
            assert_int_equal(row->callsite, joined[model->blocks[(row->addr - 0x10000) / 64].site]);
        }
    }
    assert_int_equal(live, total_of(lab, DOMAIN_HEAP, 0)->live_allocations);
}

TEST(test_sums)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct lab *lab;
        struct model model = {0};
        struct varve_message message;
        uint8_t sizes[SITES + 1] = {0};
        uint32_t joined[SITES + 1] = {0};
        uint64_t random = seed;

        assert_int_equal(lab_begin((void **)&lab), 0);
        if (seed % 2 == 0) {
            derive_forget(lab->derive);
        }
        for (unsigned i = 0; i < EVENTS; i++) {
            step(lab, &model, &random);
        }
        join_sizes(lab->derive, sizes, SITES + 1);
        expect_sizes(&model, sizes);
        for (uint32_t n = 1; n <= SITES; n++) {
            uint32_t into = 1 + (uint32_t)random_below(&random, n);

            joined[n] = random_below(&random, 3) == 0 || joined[into] != into ? n : into;
        }
        assert_int_equal(join_callsites(lab->derive, joined, SITES + 1), VARVE_OK);
        expect_sums(lab, &model, joined);
        expect_rows(lab, &model, joined);
        assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
        lab_end((void **)&lab);
    }
}

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
            struct varve_message message;

            event.callsite = 1;
            event.addr = 0x10000;
            event.size = k == 0 ? 975000 - cases[i].size : k == 1 ? 25000 - 19998 : 1;
            event.addr = k == 1 ? 0x30000 : 0x10000;
            event.seq = ++lab->seq;
            event.ts_ns = (int64_t)lab->seq;
            event.process_id = event.thread_id = 1;
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
