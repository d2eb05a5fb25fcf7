/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/reach.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64

/* ---- sets ---- */

void reach_set_remove(struct reach_set *set, uint32_t number)
{
    if (reach_set_has(set, number)) {
        set->words[number / WORD_BITS - set->begin] &= ~(UINT64_C(1) << number % WORD_BITS);
    }
}

bool reach_set_cover(struct reach_set *set, uint32_t begin, uint32_t end, uint64_t *bytes)
{
    uint32_t old_begin = set->begin, old_count = set->end - set->begin, before = set->capacity;

    if (old_count == 0) {
        old_begin = begin;
    } else if (begin >= set->begin && end <= set->end) {
        return true;
    } else {
        begin = begin < set->begin ? begin : set->begin;
        end = end > set->end ? end : set->end;
    }
    if (!growth_reserve(&set->words, &set->capacity, end - begin, sizeof(*set->words))) {
        return false;
    }
    *bytes += (uint64_t)(set->capacity - before) * sizeof(*set->words);
    memmove(set->words + (old_begin - begin), set->words, old_count * sizeof(*set->words));
    memset(set->words, 0, (old_begin - begin) * sizeof(*set->words));
    memset(set->words + (old_begin - begin) + old_count, 0,
           (end - old_begin - old_count) * sizeof(*set->words));
    set->begin = begin;
    set->end = end;
    return true;
}

bool reach_set_add(struct reach_set *to, const struct reach_set *from, uint64_t *bytes)
{
    if (from->begin == from->end) {
        return true;
    }
    if (!reach_set_cover(to, from->begin, from->end, bytes)) {
        return false;
    }
    for (uint32_t i = from->begin; i < from->end; i++) {
        to->words[i - to->begin] |= from->words[i - from->begin];
    }
    return true;
}

/* ---- memory ---- */

void reach_free(struct reach *reach)
{
    free(reach->inside.lanes);
    free(reach->inside.any);
    free(reach->ends.lanes);
    free(reach->ends.any);
    free(reach->pending);
    free(reach->resident);
    free(reach->op_lanes);
    number_list_free(&reach->ops);
}

static bool reserve_marks(struct reach_marks *marks, uint32_t words)
{
    return growth_reserve(&marks->lanes, &marks->capacity, (uint64_t)words * WORD_BITS,
                          sizeof(*marks->lanes)) &&
           growth_reserve(&marks->any, &marks->any_capacity, words, sizeof(*marks->any));
}

bool reach_reserve(struct reach *reach, const struct remat_graph *graph)
{
    uint32_t words = graph->storage_count / WORD_BITS + 1;

    return reserve_marks(&reach->inside, words) && reserve_marks(&reach->ends, words) &&
           growth_reserve(&reach->pending, &reach->pending_capacity, words, sizeof(*reach->pending)) &&
           growth_reserve(&reach->resident, &reach->resident_capacity, words, sizeof(*reach->resident)) &&
           growth_reserve(&reach->op_lanes, &reach->op_capacity, graph->op_count, sizeof(*reach->op_lanes)) &&
           growth_reserve(&reach->ops.numbers, &reach->ops.capacity, graph->op_count, sizeof(uint32_t));
}

void reach_set_resident(struct reach *reach, uint32_t storage, bool is_resident)
{
    uint64_t bit = UINT64_C(1) << storage % WORD_BITS, *word = &reach->resident[storage / WORD_BITS];

    *word = is_resident ? *word | bit : *word & ~bit;
}

/* ---- the walk ---- */

static void mark(struct reach_marks *marks, uint32_t number, uint64_t lanes)
{
    uint32_t word = number / WORD_BITS;

    marks->lanes[number] |= lanes;
    marks->any[word] |= UINT64_C(1) << number % WORD_BITS;
    marks->begin = word < marks->begin ? word : marks->begin;
    marks->end = word >= marks->end ? word + 1 : marks->end;
}

/* Of two storages the one that was banished first has been taken from the other's lists, and has kept the other in its own. */
static bool is_cut(const struct remat_graph *graph, uint32_t from, uint32_t to)
{
    return graph->storages[to].banished_as < graph->storages[from].banished_as;
}

static void arrive(struct reach *reach, const struct remat_graph *graph, uint32_t from,
                   const uint32_t *storages, uint32_t count, uint64_t lanes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = storages[i], word = number / WORD_BITS;
        uint64_t bit = UINT64_C(1) << number % WORD_BITS;

        if (graph->banished > 0 && is_cut(graph, from, number)) {
            continue;
        }
        if ((reach->resident[word] & bit) != 0) {
            mark(&reach->ends, number, lanes);
        } else if ((lanes & ~reach->inside.lanes[number]) != 0) {
            mark(&reach->inside, number, lanes);
            reach->pending_count += (reach->pending[word] & bit) == 0;
            reach->pending[word] |= bit;
        }
    }
}

/* The lanes that have not been at this operator yet; with edges that are cut it matters from where they come. */
static uint64_t new_lanes(struct reach *reach, const struct remat_graph *graph, uint32_t op, uint64_t lanes)
{
    if (graph->banished > 0) {
        return lanes;
    }
    lanes &= ~reach->op_lanes[op];
    if (lanes != 0 && reach->op_lanes[op] == 0) {
        reach->ops.numbers[reach->ops.count++] = op;
    }
    reach->op_lanes[op] |= lanes;
    return lanes;
}

static void leave_down(struct reach *reach, const struct remat_graph *graph, uint32_t number, uint64_t lanes)
{
    const struct number_list *consumers = &graph->storages[number].consumers;

    for (uint32_t i = 0; i < consumers->count; i++) {
        uint64_t news = new_lanes(reach, graph, consumers->numbers[i], lanes);
        const struct remat_op *op = &graph->ops[consumers->numbers[i]];

        if (news != 0) {
            arrive(reach, graph, number, remat_op_output_storages(op), op->output_storage_count, news);
        }
    }
}

static void leave_up(struct reach *reach, const struct remat_graph *graph, uint32_t number, uint64_t lanes)
{
    for (uint32_t t = graph->storages[number].tensor_first; t != VARVE_REMAT_NONE;
         t = graph->tensors[t].next) {
        uint32_t number_of_op = graph->tensors[t].op;

        if (number_of_op != VARVE_REMAT_NONE) {
            uint64_t news = new_lanes(reach, graph, number_of_op, lanes);
            const struct remat_op *op = &graph->ops[number_of_op];

            if (news != 0) {
                arrive(reach, graph, number, remat_op_input_storages(op), op->input_storage_count, news);
            }
        }
    }
}

/* Numbers grow along most edges, so that one sweep in the direction of the walk finds nearly all, and mostly each storage once. */
static void sweep(struct reach *reach, const struct remat_graph *graph, enum reach_direction direction)
{
    while (reach->pending_count > 0) {
        uint32_t begin = reach->inside.begin, end = reach->inside.end;

        for (uint32_t i = begin; i < end; i++) {
            uint32_t word = direction == REACH_DOWN ? i : begin + end - 1 - i;

            while (reach->pending[word] != 0) {
                unsigned bit = (unsigned)(direction == REACH_DOWN
                                              ? __builtin_ctzll(reach->pending[word])
                                              : WORD_BITS - 1 - __builtin_clzll(reach->pending[word]));
                uint32_t number = word * WORD_BITS + bit;

                reach->pending[word] &= ~(UINT64_C(1) << bit);
                reach->pending_count--;
                if (direction == REACH_DOWN) {
                    leave_down(reach, graph, number, reach->inside.lanes[number]);
                } else {
                    leave_up(reach, graph, number, reach->inside.lanes[number]);
                }
            }
            if (reach->inside.begin != begin || reach->inside.end != end) {
                break; /* the range has grown: go on with the new one */
            }
        }
    }
}

/* ---- what was found ---- */

/* Rows and columns of 64 x 64 bits change places. Source: Warren, Hacker's Delight (2nd ed.), 7-3. */
static void transpose(uint64_t rows[WORD_BITS])
{
    uint64_t mask = UINT64_C(0x00000000ffffffff);

    for (unsigned j = 32; j != 0; j >>= 1, mask ^= mask << j) {
        for (unsigned k = 0; k < WORD_BITS; k += 2 * j) {
            for (unsigned i = k; i < k + j; i++) {
                uint64_t t = (rows[i] >> j ^ rows[i + j]) & mask;

                rows[i] ^= t << j;
                rows[i + j] ^= t;
            }
        }
    }
}

static int64_t sum_of(const struct remat_graph *graph, uint32_t word, uint64_t bits)
{
    int64_t sum = 0;

    for (; bits != 0; bits &= bits - 1) {
        sum += graph->storages[word * WORD_BITS + (unsigned)__builtin_ctzll(bits)].compute;
    }
    return sum;
}

/* Costs of 64 storages for each lane: most lanes have all of them or hardly any. */
static void add_costs(const struct remat_graph *graph, uint32_t word, const uint64_t *rows, uint64_t any,
                      unsigned count, struct reach_found *found)
{
    int64_t total = sum_of(graph, word, any);

    for (unsigned lane = 0; lane < count; lane++) {
        bool is_most = __builtin_popcountll(rows[lane]) * 2 > __builtin_popcountll(any);

        found[lane].cost +=
            is_most ? total - sum_of(graph, word, any & ~rows[lane]) : sum_of(graph, word, rows[lane]);
    }
}

static void put_rows(const uint64_t *rows, uint32_t word, unsigned count, struct reach_found *found,
                     bool is_inside)
{
    for (unsigned lane = 0; lane < count; lane++) {
        struct reach_set *set = is_inside ? found[lane].interior : found[lane].frontier;

        if (rows[lane] == 0 && set->begin == set->end) {
            set->begin = set->end = word + 1; /* leading zeros are left out */
        } else {
            set->words[word - set->begin] = rows[lane];
            set->end = word + 1;
        }
    }
}

/* The marks become sets, one for each lane, and are zero again. */
static bool collect(const struct remat_graph *graph, struct reach_marks *marks, unsigned count,
                    struct reach_found *found, bool is_inside, uint64_t *bytes)
{
    uint64_t rows[WORD_BITS];
    bool is_done = true;

    for (unsigned lane = 0; lane < count; lane++) {
        struct reach_set *set = is_inside ? found[lane].interior : found[lane].frontier;

        set->begin = set->end = 0;
        if (marks->begin < marks->end) {
            is_done &= reach_set_cover(set, marks->begin, marks->end, bytes);
            set->begin = set->end = marks->begin;
        }
    }
    for (uint32_t word = marks->begin; word < marks->end; word++) {
        uint64_t *lanes = marks->lanes + (size_t)word * WORD_BITS;

        if (is_done) {
            memcpy(rows, lanes, sizeof(rows));
            if (marks->any[word] != 0) {
                transpose(rows);
                if (is_inside) {
                    add_costs(graph, word, rows, marks->any[word], count, found);
                }
            }
            put_rows(rows, word, count, found, is_inside);
        }
        memset(lanes, 0, sizeof(rows));
        marks->any[word] = 0;
    }
    marks->begin = UINT32_MAX;
    marks->end = 0;
    return is_done;
}

static void count_visits(const struct reach *reach, const struct remat_graph *graph,
                         enum reach_direction direction, uint64_t *visits)
{
    for (uint32_t word = reach->inside.begin; word < reach->inside.end; word++) {
        for (uint64_t bits = reach->inside.any[word]; bits != 0; bits &= bits - 1) {
            uint32_t number = word * WORD_BITS + (unsigned)__builtin_ctzll(bits);
            const struct remat_storage *storage = &graph->storages[number];

            *visits += (unsigned)__builtin_popcountll(reach->inside.lanes[number]) *
                       (direction == REACH_DOWN ? storage->child_visits : storage->parent_visits);
        }
    }
}

bool reach_walk(struct reach *reach, const struct remat_graph *graph, const uint32_t *bases, unsigned count,
                enum reach_direction direction, struct reach_found *found, uint64_t *bytes, uint64_t *visits)
{
    bool is_done;

    reach->inside.begin = reach->ends.begin = UINT32_MAX;
    for (unsigned lane = 0; lane < count; lane++) {
        const struct remat_storage *base = &graph->storages[bases[lane]];

        *visits += direction == REACH_DOWN ? base->child_visits : base->parent_visits;
        found[lane].cost = 0;
        if (direction == REACH_DOWN) {
            leave_down(reach, graph, bases[lane], UINT64_C(1) << lane);
        } else {
            leave_up(reach, graph, bases[lane], UINT64_C(1) << lane);
        }
    }
    sweep(reach, graph, direction);
    for (uint32_t i = 0; i < reach->ops.count; i++) {
        reach->op_lanes[reach->ops.numbers[i]] = 0;
    }
    reach->ops.count = 0;
    count_visits(reach, graph, direction, visits);
    is_done = collect(graph, &reach->inside, count, found, true, bytes);
    is_done &= collect(graph, &reach->ends, count, found, false, bytes);
    for (unsigned lane = 0; lane < count; lane++) {
        reach_set_remove(found[lane].frontier, bases[lane]);
    }
    return is_done;
}
