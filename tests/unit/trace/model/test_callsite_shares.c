/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each process has of each call site, after random events of several processes, some of which end, against
 * figures that are added up event by event: at the peak of all of them too, when ended ones are put together, and
 * when call sites are.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "support/random.h"

#include "trace/model/derive/derive.h"
#include "trace/model/derive/join.h"
#include "trace/model/domain.h"
#include "trace/model/scratch.h"
#include "trace/model/event.h"
#include "trace/model/state.h"
#include "trace/record.h"

#define EVENTS 2500U
#define PROCESSES 5U
#define ADDRESSES 20U
#define SITES 12U

struct naive {
    uint64_t allocations, frees, bytes, live_allocations, live_bytes, peak_bytes, peak_allocations;
};

struct model {
    struct naive shares[PROCESSES + 1][SITES + 1]; /* of process 0: those that are put together */
    uint64_t live, peak;
    struct {
        uint64_t size;
        uint32_t site; /* 0: free */
    } blocks[PROCESSES + 1][ADDRESSES];
    bool has_ended[PROCESSES + 1];
};

static void add(struct naive *to, const struct naive *from)
{
    to->allocations += from->allocations;
    to->frees += from->frees;
    to->bytes += from->bytes;
    to->live_allocations += from->live_allocations;
    to->live_bytes += from->live_bytes;
    to->peak_bytes += from->peak_bytes;
    to->peak_allocations += from->peak_allocations;
}

static void note_peak(struct model *model)
{
    if (model->live <= model->peak) {
        return;
    }
    model->peak = model->live;
    for (unsigned p = 0; p <= PROCESSES; p++) {
        for (unsigned n = 1; n <= SITES; n++) {
            model->shares[p][n].peak_bytes = model->shares[p][n].live_bytes;
            model->shares[p][n].peak_allocations = model->shares[p][n].live_allocations;
        }
    }
}

static void step(struct lab *lab, struct model *model, uint64_t *random)
{
    uint32_t p = 1 + (uint32_t)random_below(random, PROCESSES);
    size_t i = (size_t)random_below(random, ADDRESSES);
    struct event event = {.addr = 0x10000 + 1024 * i, .process_id = p};
    if (model->has_ended[p]) {
        return;
    }
    struct naive *share;
    if (model->blocks[p][i].site == 0) {
        model->blocks[p][i].site = 1 + (uint32_t)random_below(random, SITES);
        model->blocks[p][i].size = 1 + random_below(random, 1000);
        event.kind = VARVE_KIND_HEAP_ALLOC;
        event.cause = VARVE_CAUSE_MALLOC;
        event.callsite = model->blocks[p][i].site;
        event.size = model->blocks[p][i].size;
        share = &model->shares[p][event.callsite];
        share->allocations++;
        share->bytes += event.size;
        share->live_allocations++;
        share->live_bytes += event.size;
        model->live += event.size;
    } else {
        event.kind = VARVE_KIND_HEAP_FREE;
        event.cause = VARVE_CAUSE_FREE;
        share = &model->shares[p][model->blocks[p][i].site];
        share->frees++;
        share->live_allocations--;
        share->live_bytes -= model->blocks[p][i].size;
        model->live -= model->blocks[p][i].size;
        model->blocks[p][i].site = 0;
    }
    take(lab, event);
    note_peak(model);
}

/* What it has of call sites that others used first is kept, or not. */
static void end_process(struct lab *lab, struct model *model, uint32_t p, bool keep)
{
    const struct domain_totals *domain = &lab->derive->domains[slot_of(DOMAIN_HEAP, 0)];
    lab->derive->ended_shares = keep ? 0 : UINT64_C(1) << 20;
    for (unsigned n = 1; n <= SITES && !keep; n++) {
        if (domain->callsites[n].owner != p) {
            add(&model->shares[0][n], &model->shares[p][n]);
            model->shares[p][n] = (struct naive){0};
        }
    }
    derive_process_end(lab->derive, p);
    model->has_ended[p] = true;
}

struct found {
    struct naive shares[PROCESSES + 1][SITES + 1];
};

static bool is_wanted(void *context, uint32_t callsite)
{
    (void)context;
    return callsite != 0;
}

static int note(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share)
{
    struct found *found = context;
    const struct naive one = {share->allocations, share->frees,      share->bytes,           share->live_allocations,
                              share->live_bytes,  share->peak_bytes, share->peak_allocations};
    assert_in_range(process_id, 0, PROCESSES);
    assert_in_range(callsite, 1, SITES);
    add(&found->shares[process_id][callsite], &one);
    return VARVE_OK;
}

static void expect_shares(const struct lab *lab, const struct model *model, const uint32_t *joined)
{
    struct found found = {0};
    struct found expected = {0};
    const struct totals_share_reading reading = {.wanted = is_wanted, .take = note, .context = &found};
    assert_int_equal(totals_shares_each(&lab->derive->domains[slot_of(DOMAIN_HEAP, 0)], lab->derive->processes,
                                        lab->derive->process_limit, slot_of(DOMAIN_HEAP, 0), &reading),
                     VARVE_OK);
    for (unsigned p = 0; p <= PROCESSES; p++) {
        for (unsigned n = 1; n <= SITES; n++) {
            add(&expected.shares[p][joined != NULL ? joined[n] : n], &model->shares[p][n]);
        }
    }
    assert_memory_equal(&found, &expected, sizeof(found));
}

/* Over all processes, and where live allocations are. */
static void expect_sums(const struct lab *lab, const struct model *model, const uint32_t *joined)
{
    const struct domain_totals *totals = &lab->derive->domains[slot_of(DOMAIN_HEAP, 0)];
    struct naive expected[SITES + 1] = {0};
    struct naive found[SITES + 1] = {0};
    uint64_t live = 0;
    for (uint32_t n = 1; n <= SITES; n++) {
        const struct callsite_total *total = &totals->callsites[n];
        for (unsigned p = 0; p <= PROCESSES; p++) {
            add(&expected[joined[n]], &model->shares[p][n]);
        }
        found[n] = (struct naive){.allocations = total->allocations,
                                  .frees = total->frees,
                                  .bytes = total->bytes,
                                  .live_allocations = total->live_allocations,
                                  .live_bytes = total->live_bytes};
        totals_callsite_peak(totals, n, &found[n].peak_allocations, &found[n].peak_bytes);
    }
    assert_memory_equal(found, expected, sizeof(found));
    for (uint64_t id = 1; id <= lab->derive->scratch.count; id++) {
        const struct scratch_row *row = scratch_peek(&lab->derive->scratch, id);
        uint32_t process = lab->derive->threads[row->thread_id].process_id;
        if (row->free_seq == 0) {
            live++;
            assert_int_equal(row->callsite, joined[model->blocks[process][(row->addr - 0x10000) / 1024].site]);
        }
    }
    assert_int_equal(live, total_of(lab, DOMAIN_HEAP, 0)->live_allocations);
}

TEST(test_random)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct lab *lab;
        struct model model = {0};
        uint32_t joined[SITES + 1] = {0};
        uint64_t random = seed;
        assert_int_equal(lab_begin((void **)&lab), 0);
        if (seed % 2 == 0) {
            derive_forget(lab->derive);
        }
        for (unsigned i = 0; i < EVENTS; i++) {
            step(lab, &model, &random);
            if (i % 600 == 599) {
                end_process(lab, &model, 1 + (i / 600 + (uint32_t)seed) % PROCESSES, seed % 3 == 0);
                expect_shares(lab, &model, NULL);
            }
        }
        expect_shares(lab, &model, NULL);
        for (uint32_t n = 1; n <= SITES; n++) {
            uint32_t into = 1 + (uint32_t)random_below(&random, n);
            joined[n] = random_below(&random, 3) == 0 || joined[into] != into ? n : into;
        }
        assert_int_equal(join_callsites(lab->derive, joined, SITES + 1), VARVE_OK);
        expect_shares(lab, &model, joined);
        expect_sums(lab, &model, joined);
        struct varve_message message;
        assert_int_equal(derive_check(lab->derive, &message), VARVE_OK);
        lab_end((void **)&lab);
    }
}

/* One process has no rows of its own, however much it does. */
TEST(test_one_process)
{
    struct lab *lab;
    assert_int_equal(lab_begin((void **)&lab), 0);
    for (unsigned i = 0; i < 100; i++) {
        take(lab, (struct event){.kind = VARVE_KIND_HEAP_ALLOC,
                                 .cause = VARVE_CAUSE_MALLOC,
                                 .addr = 0x1000 + 64 * i,
                                 .size = 10,
                                 .callsite = i % 7});
    }
    assert_null((*process_total(lab->derive->processes[1], slot_of(DOMAIN_HEAP, 0)))->shares.rows);
    lab_end((void **)&lab);
}
