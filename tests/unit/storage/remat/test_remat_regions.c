/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over evicted storages beside a depth-first search from each storage on its own. The regions that planners
 * keep are compared with such walks by varve_remat_check, in every test of random programs.
 *
 * Costs: 2 s
 */
#include "storage/remat/regions.h"
#include "support/random.h"

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

static uint32_t below(uint64_t limit)
{
    return (uint32_t)random_below(&random_state, limit);
}

/* Storages that are inputs of one operator are `near` each other in number. */
static uint32_t add_op(struct remat_graph *graph, uint32_t near, bool has_wide_views)
{
    uint32_t inputs[4], number;
    uint64_t sizes[3];
    int32_t aliases[3];
    struct varve_remat_op op = {.inputs = inputs, .sizes = sizes, .aliases = aliases, .cost_ns = below(100)};
    uint32_t window = graph->tensor_count < near ? graph->tensor_count : near;
    op.input_count = graph->tensor_count > 0 ? below(5) : 0;
    op.output_count = 1 + below(3);
    for (unsigned i = 0; i < op.input_count; i++) {
        uint32_t range = below(20) == 0 ? graph->tensor_count : window;
        inputs[i] = graph->tensor_count - 1 - below(range);
    }
    for (unsigned i = 0; i < op.output_count; i++) {
        bool is_view = op.input_count > 0 && (has_wide_views || op.input_count == 1) && below(6) == 0;
        aliases[i] = is_view ? (int32_t)below(op.input_count) : -1;
        sizes[i] = is_view ? 0 : 1 + below(100);
        op.cost_ns = is_view ? 0 : op.cost_ns; /* regions have the costs of the moment at which they were found */
    }
    assert_int_equal(graph_add(graph, &op, &number), 0);
    return number;
}

/* ---- the naive search ---- */

struct naive {
    struct {
        uint32_t to, next;
    } * edges;
    uint32_t edge_count;
    uint32_t *first;
    bool *is_inside, *is_end;
    uint32_t *stack;
};

static void naive_open(struct naive *naive, const struct remat_graph *graph, enum reach_direction direction)
{
    *naive = (struct naive){.edges = malloc(12UL * (graph->op_count + 1) * sizeof(*naive->edges)),
                            .first = malloc(graph->storage_count * sizeof(uint32_t)),
                            .is_inside = malloc(graph->storage_count),
                            .is_end = malloc(graph->storage_count),
                            .stack = malloc(graph->storage_count * sizeof(uint32_t))};
    memset(naive->first, 0xff, graph->storage_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct remat_op *op = &graph->ops[i];
        for (uint32_t j = 0; j < op->input_count * op->output_count; j++) {
            uint32_t ends[] = {graph->tensors[op->inputs[j % op->input_count]].storage,
                               graph->tensors[remat_op_outputs(op)[j / op->input_count]].storage};
            uint32_t from = ends[direction == REACH_UP], to = ends[direction == REACH_DOWN];
            naive->edges[naive->edge_count].to = to;
            naive->edges[naive->edge_count].next = naive->first[from];
            naive->first[from] = naive->edge_count++;
        }
    }
}

static void naive_close(struct naive *naive)
{
    free(naive->edges);
    free(naive->first);
    free(naive->is_inside);
    free(naive->is_end);
    free(naive->stack);
}

static int64_t naive_walk(struct naive *naive, const struct remat_graph *graph, uint32_t base)
{
    uint32_t depth = 0;
    int64_t cost = 0;
    memset(naive->is_inside, 0, graph->storage_count);
    memset(naive->is_end, 0, graph->storage_count);
    naive->stack[depth++] = base;
    while (depth > 0) {
        uint32_t from = naive->stack[--depth];
        for (uint32_t e = naive->first[from]; e != UINT32_MAX; e = naive->edges[e].next) {
            uint32_t to = naive->edges[e].to;
            if (graph->storages[to].is_resident) {
                naive->is_end[to] = to != base;
            } else if (!naive->is_inside[to]) {
                naive->is_inside[to] = true;
                cost += graph->storages[to].compute;
                naive->stack[depth++] = to;
            }
        }
    }
    return cost;
}

static void check_sets(const struct naive *naive, const struct remat_graph *graph, const struct reach_set *interior,
                       const struct reach_set *frontier, uint32_t base)
{
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        if (naive->is_inside[i] != reach_set_has(interior, i) || naive->is_end[i] != reach_set_has(frontier, i)) {
            fail_msg("storage %u seen from %u: inside %d, at the end %d", i, base, naive->is_inside[i],
                     naive->is_end[i]);
        }
    }
}

static void check_walks(struct reach *reach, const struct remat_graph *graph, unsigned count)
{
    struct reach_set sets[REACH_LANES][2];
    uint64_t bytes = 0, visits = 0;
    memset(sets, 0, sizeof(sets));
    struct reach_found found[REACH_LANES];
    uint32_t bases[REACH_LANES];
    for (unsigned d = 0; d < REACH_DIRECTIONS; d++) {
        struct naive naive;
        naive_open(&naive, graph, (enum reach_direction)d);
        for (unsigned i = 0; i < count; i++) {
            do {
                bases[i] = below(graph->storage_count);
            } while (!graph->storages[bases[i]].is_resident);
            found[i] = (struct reach_found){.interior = &sets[i][0], .frontier = &sets[i][1]};
        }
        assert_true(reach_walk(reach, graph, bases, count, (enum reach_direction)d, found, &bytes, &visits));
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(naive_walk(&naive, graph, bases[i]), found[i].cost);
            check_sets(&naive, graph, &sets[i][0], &sets[i][1], bases[i]);
        }
        naive_close(&naive);
    }
    for (unsigned i = 0; i < REACH_LANES; i++) {
        bytes -= (sets[i][0].capacity + (uint64_t)sets[i][1].capacity) * sizeof(uint64_t);
        free(sets[i][0].words);
        free(sets[i][1].words);
    }
    assert_int_equal(bytes, 0);
}

/* Graphs of all densities and widths, with views that lead back, sparse ones of more than 64 words. */
TEST(test_walks)
{
    random_state = test_first_seed(1);
    for (unsigned i = 0; i < 120; i++) {
        struct remat_graph graph = {0};
        struct reach reach = {0};
        uint32_t storages = i % 12 == 0 ? 9000 : 2 + below(500), near = 1 + below(i % 3 == 0 ? 400 : 8);
        uint32_t resident = 1 + below(20);
        while (graph.storage_count < storages) {
            add_op(&graph, near, i % 2 == 1);
        }
        assert_true(reach_reserve(&reach, &graph));
        for (uint32_t j = 0; j < graph.storage_count; j++) {
            graph.storages[j].is_resident = j == 0 || below(20) < resident;
            reach_set_resident(&reach, j, graph.storages[j].is_resident);
        }
        for (unsigned j = 0; j < 3; j++) {
            check_walks(&reach, &graph, j == 0 ? REACH_LANES : 1 + below(REACH_LANES));
        }
        reach_free(&reach);
        graph_free(&graph);
    }
}
