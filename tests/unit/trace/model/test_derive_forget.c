/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A derivation that forgets what was freed, beside one that keeps everything, over the same events: totals, call
 * sites and what is live are equal after each of them, and the rows are as many as were ever live.
 * Costs: 4 s
 */
#include "support/derive/lab.h"
#include "support/random.h"

#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/model/scratch.h"
#include "trace/model/state.h"
#include "trace/record.h"

#define EVENTS 20000U
#define ADDRESSES 200U
#define THREADS 3U

/* What each address is doing; `waits_in` is the thread whose realloc of it is not over. */
struct block {
    bool is_live;
    unsigned waits_in;
};

struct pair {
    struct lab *kept, *forgetful;
    struct block blocks[ADDRESSES];
    uint64_t random;
};

static uint64_t address_of(size_t i)
{
    return 0x10000 + 64 * i;
}

static struct event heap_event(unsigned kind, unsigned cause, size_t block, unsigned thread)
{
    return (struct event){
        .kind = (uint8_t)kind, .cause = (uint8_t)cause, .addr = address_of(block), .thread_id = thread};
}

static struct event random_event(struct pair *pair)
{
    size_t i = (size_t)random_below(&pair->random, ADDRESSES);
    struct block *block = &pair->blocks[i];
    unsigned thread = 1 + (unsigned)random_below(&pair->random, THREADS);
    struct event event;
    if (block->waits_in != 0) {
        bool has_failed = random_below(&pair->random, 3) == 0;
        event = heap_event(VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, i, block->waits_in);
        event.arg = event.addr;
        event.size = 1 + random_below(&pair->random, 5000);
        event.flags = has_failed ? VARVE_FLAG_FAILED : 0;
        *block = (struct block){.is_live = true};
    } else if (!block->is_live) {
        event = heap_event(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, i, thread);
        event.size = 1 + random_below(&pair->random, 5000);
        event.callsite = 1 + (uint32_t)random_below(&pair->random, 9);
        block->is_live = true;
    } else if (random_below(&pair->random, 4) == 0) {
        event = heap_event(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, i, thread);
        *block = (struct block){.waits_in = thread};
    } else {
        event = heap_event(VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, i, thread);
        block->is_live = false;
    }
    return event;
}

static struct event random_mapping(struct pair *pair)
{
    bool is_map = random_below(&pair->random, 2) == 0;
    return (struct event){.kind = is_map ? VARVE_KIND_MMAP : VARVE_KIND_MUNMAP,
                          .cause = is_map ? VARVE_CAUSE_MMAP : VARVE_CAUSE_MUNMAP,
                          .addr = 0x7f0000000000 + 4096 * random_below(&pair->random, 64),
                          .size = 4096 * (1 + random_below(&pair->random, 12)),
                          .callsite = 10,
                          .thread_id = 1 + (uint32_t)random_below(&pair->random, THREADS)};
}

static void compare_domain(const struct pair *pair, unsigned domain)
{
    const struct domain_totals *kept = &pair->kept->derive->domains[slot_of(domain, 0)];
    const struct domain_totals *forgetful = &pair->forgetful->derive->domains[slot_of(domain, 0)];
    const struct total *a = &kept->all;
    const struct total *b = &forgetful->all;
    assert_int_equal(a->allocations, b->allocations);
    assert_int_equal(a->frees, b->frees);
    assert_int_equal(a->live_bytes, b->live_bytes);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->peak_seq, b->peak_seq);
    assert_int_equal(a->temporary, b->temporary);
    assert_int_equal(kept->callsite_limit, forgetful->callsite_limit);
    for (size_t i = 0; i < kept->callsite_limit; i++) {
        assert_memory_equal(&kept->callsites[i], &forgetful->callsites[i], sizeof(kept->callsites[i]));
    }
}

static uint64_t live_rows(const struct derive *derive, uint64_t *addresses)
{
    uint64_t live = 0;
    for (uint64_t id = 1; id <= derive->scratch.count; id++) {
        const struct scratch_row *row = scratch_peek(&derive->scratch, id);
        if (row->free_seq == 0) {
            live++;
            *addresses += row->addr * (row->size + 1) + row->alloc_seq;
        }
    }
    return live;
}

static void compare_rows(const struct pair *pair)
{
    uint64_t kept = 0;
    uint64_t forgetful = 0;
    assert_int_equal(live_rows(pair->kept->derive, &kept), live_rows(pair->forgetful->derive, &forgetful));
    assert_int_equal(kept, forgetful);
}

static void run(struct pair *pair, uint64_t forget_at)
{
    uint64_t rows_before = 0;
    uint64_t live_max = 0;
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event event = random_below(&pair->random, 8) == 0 ? random_mapping(pair) : random_event(pair);
        if (i == forget_at) {
            derive_forget(pair->forgetful->derive);
            rows_before = pair->forgetful->derive->scratch.count;
        }
        struct event a = take(pair->kept, event);
        struct event b = take(pair->forgetful, event);
        assert_int_equal(a.size, b.size);
        assert_int_equal(a.callsite, b.callsite);
        assert_int_equal(a.cause, b.cause);
        assert_int_equal(a.id != 0, b.id != 0);
        compare_domain(pair, DOMAIN_HEAP);
        compare_domain(pair, DOMAIN_MMAP);
        uint64_t live = total_of(pair->kept, DOMAIN_HEAP, 0)->live_allocations +
                        total_of(pair->kept, DOMAIN_MMAP, 0)->live_allocations;
        live_max = live > live_max ? live : live_max;
        if (i % 97 == 0) {
            compare_rows(pair);
        }
    }
    compare_rows(pair);
    assert_int_equal(derive_allocations(pair->kept->derive), derive_allocations(pair->forgetful->derive));
    /* Those that wait for the end of a realloc, and what one event may open before it is over, come on top. */
    assert_in_range(pair->forgetful->derive->scratch.count, 1, rows_before + live_max + ADDRESSES + 64);
    assert_true(pair->kept->derive->scratch.count > EVENTS / 4);
}

TEST(test_totals_are_the_same)
{
    static const uint64_t moments[] = {0, 1, 777, EVENTS / 2};
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        struct pair pair = {.random = 41 + i};
        assert_int_equal(lab_begin((void **)&pair.kept), 0);
        assert_int_equal(lab_begin((void **)&pair.forgetful), 0);
        run(&pair, moments[i]);
        lab_end((void **)&pair.kept);
        lab_end((void **)&pair.forgetful);
    }
}
