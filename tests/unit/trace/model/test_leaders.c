/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which call sites are small; what the sums of the others are when these are put together: test_derived_tables.c. And
 * the call sites that lead, after random events of two domains and two devices, against figures that are added up event
 * by event: nobody who is left out has more than who is in, in any order, and each has what it had at the look before.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "support/random.h"
#include "trace/model/curve.h"
#include "trace/model/derive.h"
#include "trace/model/group_leaders.h"

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
            assert_int_equal(take_unchecked(lab, &event), VARVE_OK);
            if (k != 1) {
                struct event end = small_free;
                end.addr = 0x10000;
                assert_int_equal(take_unchecked(lab, &end), VARVE_OK);
            }
        }
        if (cases[i].freed == AFTER_PEAK) {
            take(lab, small_free);
        }
        const uint32_t rows[] = {0, 1, 2, 3};
        join_sizes(lab->derive, rows, 4, sizes, 4);
        assert_int_equal(sizes[1], JOIN_LARGE);
        assert_int_equal(sizes[2], cases[i].expected);
        assert_int_equal(sizes[3], JOIN_UNUSED);
        lab_end((void **)&lab);
    }
}

/* One process has no rows of its own, however much it does. */
TEST_WITH(test_one_process, lab_begin, lab_end)
{
    struct lab *lab = *state;
    for (unsigned i = 0; i < 100; i++) {
        take(lab, heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x1000 + 64 * i, 10));
    }
    struct event other = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x9000, 10);
    other.callsite = 4;
    take(lab, other);
    assert_null(process_total(lab->derive->processes[1], slot_of(DOMAIN_HEAP, 0))->shares.rows);
    /* what is its own stays so where a call site that it never used is joined */
    const uint32_t joined[] = {0, 1, 2, 3, 4, 4, 6};
    struct varve_message message;
    other.callsite = 6;
    other.addr = 0xa000;
    take(lab, other);
    assert_int_equal(join_callsites(lab->derive, joined, 7, false), VARVE_OK);
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
}

/* ---- call sites that are one row ---- */

#define STACKS 12U
#define ALLOCATIONS 4000U

/* Row r of stack n: what it had is there, and only there, as if it had been one; rows are numbered in turn. */
TEST_WITH(test_rows, lab_begin, lab_end)
{
    static const uint32_t rows[STACKS + 1] = {0, 1, 2, 1, 3, 3, 4, 1, 2, 5, 4, 5, 6};
    struct lab *lab = *state;
    struct figures expected[7] = {{0}};
    uint64_t made[7] = {0}, random = test_first_seed(3), live[7][ALLOCATIONS + 1];
    struct varve_message message;
    memset(live, 0, sizeof(live));
    for (uint64_t i = 0; i < ALLOCATIONS; i++) {
        struct event event = heap(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 0x10000 + 64 * i, 1 + i % 50);
        /* the last is not used; stacks 9 and 11 make few, and are their row */
        event.callsite = 1 + (uint32_t)random_below(&random, STACKS - 1);
        const uint32_t row = rows[event.callsite];
        const bool stays = random_below(&random, 10) == 0;
        assert_int_equal(take_unchecked(lab, &event), VARVE_OK);
        expected[row].allocations++;
        expected[row].bytes += event.size;
        expected[row].left_allocations += stays;
        expected[row].left_bytes += stays ? event.size : 0;
        if (!stays) {
            struct event end = heap(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 0x10000 + 64 * i, 0);
            assert_int_equal(take_unchecked(lab, &end), VARVE_OK);
            expected[row].frees++;
        }
        live[row][++made[row]] = expected[row].left_allocations;
    }
    assert_int_equal(join_callsites(lab->derive, rows, STACKS + 1, true), VARVE_OK);
    assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
    const struct domain_totals *heap_totals = &lab->derive->domains[slot_of(DOMAIN_HEAP, 0)];
    assert_int_equal(heap_totals->callsite_limit, 6);
    for (uint32_t row = 1; row < 6; row++) {
        const struct callsite_total *total = &heap_totals->callsites[row];
        assert_int_equal(total->sum.allocations, expected[row].allocations);
        assert_int_equal(total->sum.frees, expected[row].frees);
        assert_int_equal(total->sum.bytes, expected[row].bytes);
        assert_int_equal(total->sum.left_allocations, expected[row].left_allocations);
        assert_int_equal(total->sum.left_bytes, expected[row].left_bytes);
        assert_non_null(total->curve);
        for (unsigned tenth = 1; tenth <= 10; tenth++) {
            const struct curve_point end = {total->sum.left_allocations, total->sum.left_bytes};
            const uint64_t at = made[row] * tenth / 10, slack = 3 * CURVE_EVERY_MIN; /* of three at most */
            const uint64_t low = at > slack ? at - slack : 0, high = at + slack < made[row] ? at + slack : made[row];
            const struct curve_point point = curve_at(total->curve, tenth, made[row], end);
            assert_in_range(point.allocations + 1, live[row][low], live[row][high] + 1);
        }
    }
}

/* ---- the call sites that lead ---- */

#define EVENTS 3000U
#define LOOK_EVERY 250U
#define MOST 4U
#define SITES 30U
#define ADDRESSES 64U

struct naive {
    uint64_t allocations, bytes, live_bytes;
    uint64_t allocations_before, bytes_before;
};

struct model {
    struct naive sites[2][SITES + 1]; /* of the heap, of both devices */
    struct {
        uint64_t size;
        uint32_t site; /* 0: free */
    } blocks[2][ADDRESSES];
};

static void step(struct lab *lab, struct model *model, uint64_t *random)
{
    const unsigned d = (unsigned)random_below(random, 2);
    const size_t i = (size_t)random_below(random, ADDRESSES);
    struct event event = {.addr = 0x10000 + 64 * i};
    if (d != 0) {
        event = free_of(0x7f0000000000 + 0x100000 * i);
    }
    event.device = d == 0 ? 0 : (uint8_t)(i % 2);
    if (model->blocks[d][i].site == 0) {
        const uint32_t site = 1 + (uint32_t)random_below(random, SITES);
        const uint64_t size = 1 + random_below(random, 2000);
        event.kind = d == 0 ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_DEV_ALLOC;
        event.cause = d == 0 ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_CUDA_MALLOC;
        event.pool = d == 0 ? 0 : KIND_OF(VARVE_MEMORY_DEVICE, 1);
        event.size = size;
        event.callsite = site;
        model->blocks[d][i].site = site;
        model->blocks[d][i].size = size;
        model->sites[d][site].allocations++;
        model->sites[d][site].bytes += size;
        model->sites[d][site].live_bytes += size;
    } else {
        event.kind = d == 0 ? VARVE_KIND_HEAP_FREE : VARVE_KIND_DEV_FREE;
        event.cause = d == 0 ? VARVE_CAUSE_FREE : VARVE_CAUSE_CUDA_FREE;
        model->sites[d][model->blocks[d][i].site].live_bytes -= model->blocks[d][i].size;
        model->blocks[d][i].site = 0;
    }
    take(lab, event);
}

static uint64_t key_of(const struct naive *site, unsigned order)
{
    return order == 0 ? site->live_bytes : order == 1 ? site->bytes : site->bytes - site->bytes_before;
}

static const struct leader *find(const struct leaders *leaders, unsigned domain, uint32_t site)
{
    for (size_t i = 0; i < leaders->count; i++) {
        if (leaders->rows[i].domain == domain && leaders->rows[i].callsite == site) {
            return &leaders->rows[i];
        }
    }
    return NULL;
}

/* Who is left out has at least MOST others before or beside it in each order. */
static void expect_order(const struct leaders *leaders, const struct naive *sites, unsigned domain, unsigned order)
{
    for (uint32_t n = 1; n <= SITES; n++) {
        unsigned before = 0;
        for (uint32_t k = 1; k <= SITES; k++) {
            before += k != n && key_of(&sites[k], order) >= key_of(&sites[n], order);
        }
        if (find(leaders, domain, n) == NULL && key_of(&sites[n], order) > 0) {
            assert_true(before >= MOST);
        }
    }
}

static void expect_leaders(const struct leaders *leaders, struct model *model)
{
    static const unsigned domains[] = {DOMAIN_HEAP, DOMAIN_DEVICE};
    assert_true(leaders->count <= 2 * 3 * MOST);
    for (unsigned d = 0; d < 2; d++) {
        for (unsigned order = 0; order < 3; order++) {
            expect_order(leaders, model->sites[d], domains[d], order);
        }
        for (uint32_t n = 1; n <= SITES; n++) {
            const struct leader *leader = find(leaders, domains[d], n);
            struct naive *site = &model->sites[d][n];
            if (leader != NULL) {
                assert_int_equal(leader->total.sum.allocations, site->allocations);
                assert_int_equal(leader->total.sum.bytes, site->bytes);
                assert_int_equal(leader->total.sum.live_bytes, site->live_bytes);
                assert_int_equal(leader->allocations_before, site->allocations_before);
                assert_int_equal(leader->bytes_before, site->bytes_before);
            }
            site->allocations_before = site->allocations;
            site->bytes_before = site->bytes;
        }
    }
}

TEST_WITH(test_random, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct model model = {0};
    struct leaders leaders = {0};
    uint64_t random = test_first_seed(20261);
    for (unsigned i = 1; i <= EVENTS; i++) {
        step(lab, &model, &random);
        if (i % LOOK_EVERY == 0) {
            assert_int_equal(leaders_look(&leaders, lab->derive, MOST), VARVE_OK);
            expect_leaders(&leaders, &model);
        }
    }
    leaders_free(&leaders);
}

TEST_WITH(test_nothing, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct leaders leaders = {0};
    assert_int_equal(leaders_look(&leaders, lab->derive, MOST), VARVE_OK);
    assert_int_equal(leaders.count, 0);
    leaders_free(&leaders);
}
