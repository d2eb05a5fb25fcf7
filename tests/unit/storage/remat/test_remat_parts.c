/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the planner beside naive models: the pool's order, the tournament's winner, the sums of classes.
 * Costs: 1 s
 */
#include "storage/remat/classes.h"
#include "storage/remat/pool.h"
#include "storage/remat/tournament.h"
#include "support/random.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define STORAGES 120
#define STEPS 20000

static uint64_t random_state;

static uint32_t below(uint64_t limit)
{
    return (uint32_t)random_below(&random_state, limit);
}

/* An operator with random inputs among what there is; its outputs are new, or views. */
static uint32_t add_op(struct remat_graph *graph)
{
    uint32_t inputs[4], number;
    uint64_t sizes[3];
    int32_t aliases[3];
    struct varve_remat_op op = {.inputs = inputs, .sizes = sizes, .aliases = aliases, .cost_ns = below(100)};

    op.input_count = graph->tensor_count > 0 ? below(5) : 0;
    op.output_count = 1 + below(3);
    for (unsigned i = 0; i < op.input_count; i++) {
        inputs[i] = below(graph->tensor_count);
    }
    for (unsigned i = 0; i < op.output_count; i++) {
        aliases[i] = op.input_count > 0 && below(4) == 0 ? (int32_t)below(op.input_count) : -1;
        sizes[i] = aliases[i] < 0 ? 1 + below(100) : 0;
    }
    assert_int_equal(graph_add(graph, &op, &number), 0);
    return number;
}

/* ---- pool ---- */

TEST(test_pool)
{
    struct remat_graph graph = {0};
    struct remat_pool pool = {0};
    uint32_t model[STORAGES + 8] = {0}, count = 0;

    random_state = test_first_seed(1);
    while (graph.storage_count < STORAGES) {
        add_op(&graph);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        uint32_t storage = below(STORAGES), place = 0, seen = 0;

        while (place < count && model[place] != storage) {
            place++;
        }
        if (below(2) == 0) {
            assert_true(pool_append(&pool, &graph, storage));
            model[count] = storage;
            count += place == count;
        } else {
            pool_remove(&pool, &graph, storage);
            if (place < count) {
                memmove(&model[place], &model[place + 1], (--count - place) * sizeof(model[0]));
            }
        }
        if (below(50) == 0) {
            pool_compact(&pool, &graph);
            assert_int_equal(pool.used, count);
        }
        assert_int_equal(pool.count, count);
        for (uint32_t j = 0; j < pool.used; j++) {
            if (pool.slots[j] != VARVE_REMAT_NONE) {
                assert_int_equal(pool.slots[j], model[seen++]);
                assert_int_equal(graph.storages[pool.slots[j]].pool_slot, j);
            }
        }
        assert_int_equal(seen, count);
        assert_true(pool.used <= 2 * STORAGES + 64);
    }
    pool_free(&pool);
    graph_free(&graph);
}

/* ---- tournament ---- */

TEST(test_tournament)
{
    struct remat_tournament tournament = {0};
    struct tournament_entry entries[STORAGES];
    bool is_in[STORAGES] = {false};
    double now = 0;

    random_state = test_first_seed(1);
    for (unsigned i = 0; i < STEPS; i++) {
        uint32_t number = below(1 + i / 50 < STORAGES ? 1 + i / 50 : STORAGES), winner;
        double best = -1;

        if (below(3) > 0) {
            bool is_flat = below(3) == 0;

            entries[number] = (struct tournament_entry){.level = is_flat ? below(1000) : 0,
                                                        .rate = is_flat ? 0 : below(1000) / 100.0,
                                                        .since = now - below(100)};
            is_in[number] = true;
            assert_true(tournament_set(&tournament, number, &entries[number], now));
        } else {
            tournament_remove(&tournament, number);
            is_in[number] = false;
        }
        now += below(3) == 0 ? below(1000) : 0;
        if (below(3) == 0) {
            continue;
        }
        winner = tournament_winner(&tournament, now);
        for (uint32_t j = 0; j < STORAGES; j++) {
            double priority = is_in[j] ? tournament_priority(&entries[j], now) : -1;

            best = priority > best ? priority : best;
        }
        assert_true((winner == UINT32_MAX) == (best < 0));
        assert_true(best < 0 ||
                    (is_in[winner] && tournament_priority(&entries[winner], now) >= best * (1 - 1e-12)));
    }
    tournament_free(&tournament);
}

/* ---- classes ---- */

/* A forest that forgets nothing and compresses nothing. */
struct naive {
    uint32_t parent[2 * STEPS];
    int64_t cost[2 * STEPS];
    uint32_t count;
    uint32_t of[4 * STORAGES]; /* by storage */
};

static uint32_t naive_add(struct naive *naive, int64_t cost)
{
    naive->parent[naive->count] = naive->count;
    naive->cost[naive->count] = cost;
    return naive->count++;
}

static uint32_t naive_root(const struct naive *naive, uint32_t node)
{
    while (naive->parent[node] != node) {
        node = naive->parent[node];
    }
    return node;
}

static bool has_storage(const struct remat_graph *graph, const uint32_t *tensors, uint32_t count,
                        uint32_t storage)
{
    for (uint32_t i = 0; i < count; i++) {
        if (graph->tensors[tensors[i]].storage == storage) {
            return true;
        }
    }
    return false;
}

/* The roots of the evicted storages that an operator has beside `storage`, some more than once. */
static uint32_t naive_around(const struct naive *naive, const struct remat_graph *graph, uint32_t storage,
                             uint32_t *roots)
{
    uint32_t count = 0;

    for (uint32_t other = 0; other < graph->storage_count; other++) {
        bool is_beside = false;

        for (uint32_t i = 0; i < graph->op_count && !is_beside; i++) {
            const struct remat_op *op = &graph->ops[i];
            const uint32_t *outputs = remat_op_outputs(op);

            is_beside = (has_storage(graph, op->inputs, op->input_count, storage) &&
                         has_storage(graph, outputs, op->output_count, other)) ||
                        (has_storage(graph, op->inputs, op->input_count, other) &&
                         has_storage(graph, outputs, op->output_count, storage));
        }
        if (is_beside && other != storage && naive->of[other] != VARVE_REMAT_NONE) {
            roots[count++] = naive_root(naive, naive->of[other]);
        }
    }
    return count;
}

static void check_costs(struct remat_classes *classes, const struct remat_graph *graph,
                        const struct naive *naive, uint32_t storage)
{
    uint32_t roots[4 * STORAGES], count = naive_around(naive, graph, storage, roots);
    int64_t cost = 0;

    for (uint32_t i = 0; i < count; i++) {
        bool is_first = true;

        for (uint32_t j = 0; j < i; j++) {
            is_first &= roots[j] != roots[i];
        }
        cost += is_first ? naive->cost[roots[i]] : 0;
    }
    assert_int_equal(classes_cost(classes, graph, &graph->storages[storage]), cost);
}

static void evict(struct remat_classes *classes, struct remat_graph *graph, struct naive *naive,
                  uint32_t storage)
{
    uint32_t roots[4 * STORAGES], count = naive_around(naive, graph, storage, roots);
    uint32_t own = naive_add(naive, graph->storages[storage].compute);

    graph->storages[storage].is_resident = false;
    assert_true(classes_evict(classes, graph, storage));
    naive->of[storage] = own;
    for (uint32_t i = 0; i < count; i++) {
        if (naive->parent[roots[i]] == roots[i]) { /* not joined yet */
            naive->parent[roots[i]] = own;
            naive->cost[own] += naive->cost[roots[i]];
        }
    }
}

static void leave(struct remat_classes *classes, struct remat_graph *graph, struct naive *naive,
                  uint32_t storage)
{
    naive->cost[naive_root(naive, naive->of[storage])] -= graph->storages[storage].compute;
    naive->of[storage] = VARVE_REMAT_NONE;
    classes_leave(classes, &graph->storages[storage]);
    graph->storages[storage].is_resident = true;
}

/* An operator comes: new storages have a node of their own before their first run, views make evicted storages dearer. */
static void grow(struct remat_classes *classes, struct remat_graph *graph, struct naive *naive)
{
    uint32_t before = graph->storage_count;

    add_op(graph);
    for (uint32_t i = before; i < graph->storage_count; i++) {
        assert_true(classes_add(classes, &graph->storages[i], 0));
        naive->of[i] = naive_add(naive, 0);
    }
}

TEST(test_classes)
{
    struct remat_graph graph = {.has_neighbours = true};
    struct remat_classes classes = {.unused = VARVE_REMAT_NONE};
    struct naive *naive = calloc(1, sizeof(*naive));
    struct varve_message message;

    random_state = test_first_seed(1);
    grow(&classes, &graph, naive);
    for (unsigned i = 0; i < STEPS / 4; i++) {
        uint32_t storage = below(graph.storage_count);

        if (graph.storage_count < STORAGES && below(8) == 0) {
            grow(&classes, &graph, naive);
        } else if (graph.storages[storage].is_resident) {
            evict(&classes, &graph, naive, storage);
        } else if (below(2) == 0) {
            leave(&classes, &graph, naive, storage);
        }
        if (classes_check(&classes, &graph, false, &message) != 0) {
            fail_msg("step %u: %s", i, message.text);
        }
        check_costs(&classes, &graph, naive, below(graph.storage_count));
    }
    assert_true(classes.count < 3 * STORAGES); /* nodes are used again */
    free(naive);
    classes_free(&classes);
    graph_free(&graph);
}
