/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cheapest run of neighbouring pieces, beside all runs tried one by one.
 * Costs: 1 s
 */
#include "storage/remat/planner.h"
#include "support/random.h"

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>

#define PIECES 60
#define STORAGES 40

static uint64_t random_state;

static uint32_t below(uint64_t limit)
{
    return (uint32_t)random_below(&random_state, limit);
}

struct memory {
    struct varve_remat_piece pieces[PIECES];
    size_t count;
    uint64_t requested;
};

static size_t layout(void *context, uint64_t bytes, const struct varve_remat_piece **pieces_out)
{
    struct memory *memory = context;
    memory->requested = bytes;
    *pieces_out = memory->pieces;
    return memory->count;
}

/* Storages of all ages, the newest without any staleness; some evicted, pinned, free of cost. */
static struct varve_remat *open_planner(struct memory *memory)
{
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.heuristic = varve_remat_heuristic_find("window");
    options.driver = (struct varve_remat_driver){.context = memory, .layout = layout};
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, NULL), 0);
    uint32_t tensors[STORAGES];
    for (uint32_t i = 0; i < STORAGES; i++) {
        uint64_t magnitude = UINT64_C(1) << below(40);
        struct varve_remat_op op = {.inputs = i > 0 ? &tensors[below(i)] : NULL,
                                    .sizes = (const uint64_t[]){1 + below(100)},
                                    .aliases = (const int32_t[]){-1},
                                    .input_count = i > 0,
                                    .output_count = 1,
                                    .cost_ns = below(6) == 0 ? 0 : random_below(&random_state, magnitude)};
        assert_int_equal(varve_remat_compute(remat, &op, &tensors[i], NULL), 0);
    }
    for (uint32_t i = 0; i < STORAGES; i++) {
        if (below(4) == 0) {
            assert_int_equal(varve_remat_evict(remat, tensors[i], NULL), 0);
        } else if (below(10) == 0) {
            varve_remat_pin(remat, tensors[i]);
        }
    }
    return remat;
}

/* Resident storages at random addresses, free pieces between them, and what others have. */
static void lay_out(const struct varve_remat *remat, struct memory *memory)
{
    uint32_t order[STORAGES], left = STORAGES;
    for (uint32_t i = 0; i < STORAGES; i++) {
        order[i] = i;
    }
    memory->count = 0;
    while (memory->count < PIECES && left > 0) {
        struct varve_remat_piece *piece = &memory->pieces[memory->count];
        uint32_t kind = below(4), which = below(left), storage = order[which];
        *piece = (struct varve_remat_piece){.storage = VARVE_REMAT_NONE,
                                            .bytes = 1 + below(60),
                                            .is_free = kind == 0,
                                            .begins_segment = memory->count == 0 || below(12) == 0};
        if (kind > 0 && below(12) > 0) {
            order[which] = order[--left];
            if (!remat->graph.storages[storage].is_resident) {
                continue;
            }
            piece->storage = storage;
            piece->bytes = remat->graph.storages[storage].size + below(4);
        }
        memory->count++;
    }
}

/* What the run costs; NaN: it is none, or too small. */
static double cost_of(struct varve_remat *remat, const struct memory *memory, size_t first, size_t end, uint64_t bytes)
{
    uint64_t size = 0;
    double sum = 0;
    for (size_t i = first; i < end; i++) {
        const struct varve_remat_piece *piece = &memory->pieces[i];
        if ((i > first && piece->begins_segment) ||
            (!piece->is_free && (piece->storage == VARVE_REMAT_NONE ||
                                 remat->graph.storages[piece->storage].pool_slot == VARVE_REMAT_NONE))) {
            return NAN;
        }
        size += piece->bytes;
        sum += piece->is_free ? 0 : search_score(remat, piece->storage);
    }
    return size >= bytes ? sum : NAN;
}

static void check(struct varve_remat *remat, const struct memory *memory, uint64_t bytes)
{
    const struct varve_remat_piece *pieces;
    size_t first = 0, end = 0;
    bool is_found = search_window(remat, bytes, &pieces, &first, &end);
    double best = INFINITY, found = is_found ? cost_of(remat, memory, first, end, bytes) : INFINITY;
    for (size_t i = 0; i < memory->count; i++) {
        for (size_t j = i + 1; j <= memory->count; j++) {
            double cost = cost_of(remat, memory, i, j, bytes);
            best = cost < best ? cost : best;
        }
    }
    if (is_found != (best < INFINITY) || isnan(found) || (is_found && !(found <= best * (1 + 1e-12)))) {
        fail_msg("%" PRIu64 " bytes: a run for %g, the best is for %g", bytes, found, best);
    }
}

TEST(test_all_runs)
{
    random_state = test_first_seed(1);
    for (unsigned i = 0; i < 300; i++) {
        struct memory memory = {.count = 0};
        struct varve_remat *remat = open_planner(&memory);
        for (unsigned j = 0; j < 4; j++) {
            lay_out(remat, &memory);
            check(remat, &memory, 1 + below(20));
            check(remat, &memory, 1 + below(500));
        }
        assert_int_equal(varve_remat_check(remat, NULL), 0);
        varve_remat_close(remat);
    }
}
