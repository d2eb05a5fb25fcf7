/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/remat_regions.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64

/* ---- sets ---- */

static bool remat_reach_reserve(struct reach_set *set, uint32_t words, uint64_t *bytes)
{
    uint32_t before = set->capacity;
    if (!growth_reserve(&set->words, &set->capacity, words, sizeof(*set->words))) {
        return false;
    }
    *bytes += (uint64_t)(set->capacity - before) * sizeof(*set->words);
    return true;
}

bool reach_set_cover(struct reach_set *set, uint32_t begin, uint32_t end, uint64_t *bytes)
{
    uint32_t old_begin = set->begin, old_count = set->end - set->begin;
    if (old_count == 0) {
        old_begin = begin;
    } else if (begin >= set->begin && end <= set->end) {
        return true;
    } else {
        begin = begin < set->begin ? begin : set->begin;
        end = end > set->end ? end : set->end;
    }
    if (!remat_reach_reserve(set, end - begin, bytes)) {
        return false;
    }
    memmove(set->words + (old_begin - begin), set->words, old_count * sizeof(*set->words));
    memset(set->words, 0, (old_begin - begin) * sizeof(*set->words));
    memset(set->words + (old_begin - begin) + old_count, 0, (end - old_begin - old_count) * sizeof(*set->words));
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
    free(reach->groups);
    number_list_free(&reach->ops);
}

static bool reserve_marks(struct reach_marks *marks, uint32_t words)
{
    return growth_reserve(&marks->lanes, &marks->capacity, (uint64_t)words * WORD_BITS, sizeof(*marks->lanes)) &&
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

/* Of two storages the one that was banished first has been taken from the other's lists, and has kept the
 * other in its own. */
static bool remat_reach_is_cut(const struct remat_graph *graph, uint32_t from, uint32_t to)
{
    return graph->storages[to].banished_as < graph->storages[from].banished_as;
}

static void arrive(struct reach *reach, const struct remat_graph *graph, uint32_t from, const uint32_t *storages,
                   uint32_t count, uint64_t lanes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = storages[i], word = number / WORD_BITS;
        uint64_t bit = UINT64_C(1) << number % WORD_BITS;
        if (graph->banished > 0 && remat_reach_is_cut(graph, from, number)) {
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
    for (uint32_t t = graph->storages[number].tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
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

/* Numbers grow along most edges, so that one sweep in the direction of the walk finds nearly all, and mostly
 * each storage once. */
static void sweep(struct reach *reach, const struct remat_graph *graph, enum reach_direction direction)
{
    while (reach->pending_count > 0) {
        uint32_t begin = reach->inside.begin, end = reach->inside.end;
        for (uint32_t i = begin; i < end; i++) {
            uint32_t word = direction == REACH_DOWN ? i : begin + end - 1 - i;
            while (reach->pending[word] != 0) {
                unsigned bit =
                    (unsigned)(direction == REACH_DOWN ? __builtin_ctzll(reach->pending[word])
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

/* Lanes differ at few storages, so that a word mostly has one group. Groups of runs of storages: lanes may be
 * those of two groups. */
static void add_groups(struct reach *reach, const struct remat_graph *graph, const struct reach_marks *marks,
                       uint32_t word, enum reach_direction direction)
{
    const uint64_t *lanes = marks->lanes + (size_t)word * WORD_BITS;
    struct reach_group *group = NULL;
    for (uint64_t bits = marks->any[word]; bits != 0; bits &= bits - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(bits);
        const struct remat_storage *storage = &graph->storages[word * WORD_BITS + bit];
        if (group == NULL || group->lanes != lanes[bit]) {
            group = &reach->groups[reach->group_count++];
            *group = (struct reach_group){.word = word, .lanes = lanes[bit]};
        }
        group->bits |= bits & -bits;
        group->cost += storage->compute;
        group->visits += direction == REACH_DOWN ? storage->child_visits : storage->parent_visits;
    }
}

/* The marks become groups, and are zero again. */
static bool take_groups(struct reach *reach, const struct remat_graph *graph, struct reach_marks *marks,
                        enum reach_direction direction)
{
    reach->group_count = 0;
    bool is_done = true;
    for (uint32_t word = marks->begin; word < marks->end; word++) {
        if (marks->any[word] == 0) {
            continue;
        }
        is_done &= growth_reserve(&reach->groups, &reach->group_capacity, (uint64_t)reach->group_count + WORD_BITS,
                                  sizeof(*reach->groups));
        if (is_done) {
            add_groups(reach, graph, marks, word, direction);
        }
        memset(marks->lanes + (size_t)word * WORD_BITS, 0, WORD_BITS * sizeof(*marks->lanes));
        marks->any[word] = 0;
    }
    return is_done;
}

/* The set becomes that of a lane, without zeros at its ends. */
static bool put_groups(const struct reach *reach, unsigned lane, uint32_t words, struct reach_set *set, int64_t *cost,
                       uint64_t *bytes, uint64_t *visits)
{
    set->begin = set->end = 0;
    if (!remat_reach_reserve(set, words, bytes)) {
        return false;
    }
    uint32_t begin = 0, end = 0;
    for (uint32_t i = 0; i < reach->group_count; i++) {
        const struct reach_group *group = &reach->groups[i];
        if ((group->lanes >> lane & 1) == 0) {
            continue;
        }
        if (begin == end) {
            begin = end = group->word;
        }
        while (end <= group->word) {
            set->words[end++ - begin] = 0;
        }
        set->words[group->word - begin] |= group->bits;
        *cost += group->cost;
        *visits += group->visits;
    }
    set->begin = begin;
    set->end = end;
    return true;
}

static bool remat_reach_collect(struct reach *reach, const struct remat_graph *graph, unsigned count,
                                enum reach_direction direction, struct reach_found *found, uint64_t *bytes,
                                uint64_t *visits)
{
    struct reach_marks *const both[] = {&reach->inside, &reach->ends};
    bool is_done = true;
    for (unsigned i = 0; i < 2; i++) {
        struct reach_marks *marks = both[i];
        uint32_t words = marks->begin < marks->end ? marks->end - marks->begin : 0;
        is_done &= take_groups(reach, graph, marks, direction);
        marks->begin = UINT32_MAX;
        marks->end = 0;
        for (unsigned lane = 0; lane < count; lane++) {
            int64_t ends_cost = 0;
            uint64_t ends_visits = 0;
            is_done &= i == 0 ? put_groups(reach, lane, words, found[lane].interior, &found[lane].cost, bytes, visits)
                              : put_groups(reach, lane, words, found[lane].frontier, &ends_cost, bytes, &ends_visits);
        }
    }
    return is_done;
}

bool reach_walk(struct reach *reach, const struct remat_graph *graph, const uint32_t *bases, unsigned count,
                enum reach_direction direction, struct reach_found *found, uint64_t *bytes, uint64_t *visits)
{
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
    bool is_done = remat_reach_collect(reach, graph, count, direction, found, bytes, visits);
    for (unsigned lane = 0; lane < count; lane++) {
        reach_set_remove(found[lane].frontier, bases[lane]);
    }
    return is_done;
}
