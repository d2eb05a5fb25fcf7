/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/regions.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64

/* ---- sets ---- */

static bool has_bit(const struct region_set *set, uint32_t number)
{
    uint32_t word = number / WORD_BITS;

    return word >= set->begin && word < set->end &&
           (set->words[word - set->begin] >> number % WORD_BITS & 1) != 0;
}

/* Words from begin to end have a place; those that are new are zero. */
static bool cover(struct region_set *set, uint32_t begin, uint32_t end, uint64_t *bytes)
{
    uint32_t old_begin = set->begin, old_count = set->end - set->begin;
    uint32_t before = set->capacity;

    if (set->end == set->begin) {
        old_begin = begin;
        old_count = 0;
        set->begin = begin;
        set->end = begin;
    }
    if (begin >= set->begin && end <= set->end) {
        return true;
    }
    begin = begin < set->begin ? begin : set->begin;
    end = end > set->end ? end : set->end;
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

static bool add_set(struct region_set *to, const struct region_set *from, uint64_t *bytes)
{
    if (from->begin == from->end) {
        return true;
    }
    if (!cover(to, from->begin, from->end, bytes)) {
        return false;
    }
    for (uint32_t i = from->begin; i < from->end; i++) {
        to->words[i - to->begin] |= from->words[i - from->begin];
    }
    return true;
}

/* The bits of the scratch set move to `to`; the scratch set is zero then. */
static bool move_set(struct region_set *to, struct region_set *scratch, uint64_t *bytes)
{
    uint32_t count = scratch->end - scratch->begin;

    to->begin = to->end = 0;
    if (count > 0) {
        uint64_t *from = scratch->words + scratch->begin;

        if (!cover(to, scratch->begin, scratch->end, bytes)) {
            return false;
        }
        memcpy(to->words, from, count * sizeof(*from));
        memset(from, 0, count * sizeof(*from));
    }
    scratch->begin = scratch->end = 0;
    return true;
}

/* Scratch sets have all words at their place; begin and end only say where bits may be. True: it was not there. */
static bool put(struct region_set *scratch, uint32_t number)
{
    uint32_t word = number / WORD_BITS;
    uint64_t bit = UINT64_C(1) << number % WORD_BITS;

    if ((scratch->words[word] & bit) != 0) {
        return false;
    }
    scratch->words[word] |= bit;
    if (scratch->begin == scratch->end) {
        scratch->begin = word;
        scratch->end = word + 1;
    } else if (word < scratch->begin) {
        scratch->begin = word;
    } else if (word >= scratch->end) {
        scratch->end = word + 1;
    }
    return true;
}

static void wipe(struct region_set *scratch)
{
    memset(scratch->words + scratch->begin, 0, (scratch->end - scratch->begin) * sizeof(*scratch->words));
    scratch->begin = scratch->end = 0;
}

/* For each storage of a set. */
#define FOR_EACH_BIT(number, set)                                                                            \
    for (uint32_t word_ = (set)->begin, number = 0; word_ < (set)->end; word_++)                             \
        for (uint64_t bits_ = (set)->words[word_ - (set)->begin];                                            \
             bits_ != 0 && (number = word_ * WORD_BITS + (unsigned)__builtin_ctzll(bits_), true); \
             bits_ &= bits_ - 1)

/* ---- memory ---- */

void regions_free(struct remat_regions *regions)
{
    for (uint32_t i = 0; i < regions->capacity; i++) {
        for (unsigned d = 0; d < REGION_DIRECTIONS; d++) {
            free(regions->of[i][d].interior.words);
            free(regions->of[i][d].frontier.words);
        }
    }
    free(regions->of);
    free(regions->interior.words);
    free(regions->frontier.words);
    free(regions->ends[REGION_DOWN].words);
    free(regions->ends[REGION_UP].words);
    free(regions->stack);
    free(regions->op_stamps);
}

static bool reserve_scratch(struct region_set *scratch, uint32_t words)
{
    return growth_reserve(&scratch->words, &scratch->capacity, words, sizeof(*scratch->words));
}

bool regions_reserve(struct remat_regions *regions, const struct remat_graph *graph)
{
    uint32_t words = graph->storage_capacity / WORD_BITS + 1;

    return growth_reserve(&regions->of, &regions->capacity, graph->storage_count, sizeof(*regions->of)) &&
           growth_reserve(&regions->stack, &regions->stack_capacity, graph->storage_count + 1U,
                          sizeof(*regions->stack)) &&
           growth_reserve(&regions->op_stamps, &regions->op_capacity, graph->op_count,
                          sizeof(*regions->op_stamps)) &&
           reserve_scratch(&regions->interior, words) && reserve_scratch(&regions->frontier, words);
}

/* ---- walks ---- */

struct walk {
    struct remat_regions *regions;
    const struct remat_graph *graph;
    uint32_t base, depth; /* depth: storages on the stack */
    int64_t cost;
};

static void reach(struct walk *walk, const uint32_t *storages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = storages[i];
        const struct remat_storage *storage = &walk->graph->storages[number];

        if (storage->is_banished) {
            continue;
        }
        if (storage->is_resident) {
            if (number != walk->base) {
                put(&walk->regions->frontier, number);
            }
        } else if (put(&walk->regions->interior, number)) {
            walk->cost += storage->compute;
            walk->regions->stack[walk->depth++] = number;
        }
    }
}

static bool is_first_visit(struct walk *walk, uint32_t op)
{
    if (walk->regions->op_stamps[op] == walk->regions->stamp) {
        return false;
    }
    walk->regions->op_stamps[op] = walk->regions->stamp;
    return true;
}

static void expand_down(struct walk *walk, const struct remat_storage *storage)
{
    walk->regions->accesses += storage->child_visits;
    for (uint32_t i = 0; i < storage->consumers.count; i++) {
        uint32_t op = storage->consumers.numbers[i];

        if (is_first_visit(walk, op)) {
            const struct remat_op *of = &walk->graph->ops[op];

            reach(walk, remat_op_output_storages(of), of->output_storage_count);
        }
    }
}

static void expand_up(struct walk *walk, const struct remat_storage *storage)
{
    walk->regions->accesses += storage->parent_visits;
    for (uint32_t t = storage->tensor_first; t != VARVE_REMAT_NONE; t = walk->graph->tensors[t].next) {
        uint32_t op = walk->graph->tensors[t].op;

        if (op != VARVE_REMAT_NONE && is_first_visit(walk, op)) {
            const struct remat_op *of = &walk->graph->ops[op];

            reach(walk, remat_op_input_storages(of), of->input_storage_count);
        }
    }
}

/* Interior and frontier of one direction into the scratch sets; returns the interior's cost. */
static int64_t walk_from(struct remat_regions *regions, const struct remat_graph *graph, uint32_t base,
                         enum region_direction direction)
{
    struct walk walk = {.regions = regions, .graph = graph, .base = base};

    regions->stamp++;
    regions->stack[walk.depth++] = base;
    while (walk.depth > 0) {
        const struct remat_storage *storage = &graph->storages[regions->stack[--walk.depth]];

        if (direction == REGION_DOWN) {
            expand_down(&walk, storage);
        } else {
            expand_up(&walk, storage);
        }
    }
    return walk.cost;
}

static bool rebuild(struct remat_regions *regions, const struct remat_graph *graph, uint32_t base,
                    enum region_direction direction)
{
    struct region *region = &regions->of[base][direction];

    region->cost = walk_from(regions, graph, base, direction);
    return move_set(&region->interior, &regions->interior, &regions->bytes) &&
           move_set(&region->frontier, &regions->frontier, &regions->bytes);
}

/* ---- changes ---- */

/* `evicted` moves from the frontier of `to` into its interior, and its own region with it. */
static bool absorb(struct remat_regions *regions, const struct remat_graph *graph, struct region *to,
                   const struct region *from, uint32_t evicted)
{
    uint32_t word = evicted / WORD_BITS;
    const struct region_set *more = &from->interior;

    if (has_bit(&to->frontier, evicted)) {
        to->frontier.words[word - to->frontier.begin] &= ~(UINT64_C(1) << evicted % WORD_BITS);
    }
    if (!add_set(&to->frontier, &from->frontier, &regions->bytes) ||
        !cover(&to->interior, word, word + 1, &regions->bytes) ||
        (more->begin != more->end && !cover(&to->interior, more->begin, more->end, &regions->bytes))) {
        return false;
    }
    for (uint32_t i = more->begin; i < more->end; i++) {
        uint64_t *words = &to->interior.words[i - to->interior.begin];
        uint64_t news = more->words[i - more->begin] & ~*words;

        *words |= news;
        regions->accesses += (unsigned)__builtin_popcountll(news);
        for (; news != 0; news &= news - 1) {
            to->cost += graph->storages[i * WORD_BITS + (unsigned)__builtin_ctzll(news)].compute;
        }
    }
    to->interior.words[word - to->interior.begin] |= UINT64_C(1) << evicted % WORD_BITS;
    regions->accesses++;
    to->cost += graph->storages[evicted].compute;
    return true;
}


static void clear(struct region *region)
{
    region->interior.begin = region->interior.end = 0;
    region->frontier.begin = region->frontier.end = 0;
    region->cost = 0;
}

bool regions_evict(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage)
{
    struct region *own = regions->of[storage];
    bool is_done = true;

    for (unsigned d = 0; d < REGION_DIRECTIONS; d++) {
        const struct region_set *ends = &own[REGION_DIRECTIONS - 1 - d].frontier;

        FOR_EACH_BIT(number, ends)
        {
            if (number != storage) {
                is_done &= absorb(regions, graph, &regions->of[number][d], &own[d], storage);
            }
        }
    }
    clear(&own[REGION_DOWN]);
    clear(&own[REGION_UP]);
    return is_done;
}

bool regions_made(struct remat_regions *regions, const struct remat_graph *graph, const uint32_t *storages,
                  uint32_t count)
{
    bool is_done = true;

    for (uint32_t i = 0; i < count; i++) {
        for (unsigned d = 0; d < REGION_DIRECTIONS; d++) {
            is_done &= rebuild(regions, graph, storages[i], (enum region_direction)d);
            is_done &= add_set(&regions->ends[d], &regions->of[storages[i]][d].frontier, &regions->bytes);
        }
    }
    for (unsigned d = 0; d < REGION_DIRECTIONS; d++) {
        struct region_set *ends = &regions->ends[REGION_DIRECTIONS - 1 - d];

        FOR_EACH_BIT(number, ends)
        {
            is_done &= rebuild(regions, graph, number, (enum region_direction)d);
        }
        ends->begin = ends->end = 0;
    }
    return is_done;
}

static void remove_bit(struct region_set *set, uint32_t number)
{
    if (has_bit(set, number)) {
        set->words[number / WORD_BITS - set->begin] &= ~(UINT64_C(1) << number % WORD_BITS);
    }
}

void regions_forget(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage)
{
    const struct region_set *ends = &regions->frontier;

    walk_from(regions, graph, storage, REGION_UP);
    for (uint32_t word = ends->begin; word < ends->end; word++) {
        for (uint64_t bits = ends->words[word]; bits != 0; bits &= bits - 1) {
            struct region *region =
                &regions->of[word * WORD_BITS + (unsigned)__builtin_ctzll(bits)][REGION_DOWN];

            if (has_bit(&region->interior, storage)) {
                region->cost -= graph->storages[storage].compute;
            }
            remove_bit(&region->interior, storage);
            remove_bit(&region->frontier, storage);
        }
    }
    wipe(&regions->interior);
    wipe(&regions->frontier);
    clear(&regions->of[storage][REGION_DOWN]);
    clear(&regions->of[storage][REGION_UP]);
}

bool regions_union_cost(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage,
                        int64_t *cost_out, int64_t *last_access_out)
{
    struct region_set *both = &regions->ends[REGION_DOWN], *other = &regions->ends[REGION_UP];
    bool is_done = true;

    for (unsigned d = 0; d < REGION_DIRECTIONS; d++) {
        walk_from(regions, graph, storage, (enum region_direction)d);
        wipe(&regions->frontier);
        is_done &= move_set(&regions->ends[d], &regions->interior, &regions->bytes);
    }
    is_done &= add_set(both, other, &regions->bytes);
    *cost_out = 0;
    FOR_EACH_BIT(number, both)
    {
        const struct remat_storage *of = &graph->storages[number];

        *cost_out += of->compute;
        *last_access_out = of->last_access > *last_access_out ? of->last_access : *last_access_out;
    }
    both->begin = both->end = other->begin = other->end = 0;
    return is_done;
}

/* The stored set is what the walk has found, which is forgotten. */
static bool is_same(const struct region_set *stored, struct region_set *found)
{
    bool is_equal = true;

    FOR_EACH_BIT(number, stored)
    {
        is_equal &= (found->words[number / WORD_BITS] >> number % WORD_BITS & 1) != 0;
    }
    for (uint32_t word = found->begin; word < found->end; word++) {
        for (uint64_t bits = found->words[word]; bits != 0; bits &= bits - 1) {
            is_equal &= has_bit(stored, word * WORD_BITS + (unsigned)__builtin_ctzll(bits));
        }
    }
    wipe(found);
    return is_equal;
}

int regions_check(struct remat_regions *regions, const struct remat_graph *graph,
                  struct varve_message *message)
{
    uint64_t accesses = regions->accesses;
    int error = 0;

    for (uint32_t i = 0; i < graph->storage_count; i++) {
        for (unsigned d = 0; d < REGION_DIRECTIONS && graph->storages[i].is_resident; d++) {
            bool is_equal;

            walk_from(regions, graph, i, (enum region_direction)d);
            is_equal = is_same(&regions->of[i][d].interior, &regions->interior);
            is_equal &= is_same(&regions->of[i][d].frontier, &regions->frontier);
            if (!is_equal && error == 0) {
                error = varve_message_set(message, VARVE_ERROR_CORRUPT, "storage %u: a region %s is wrong", i,
                                          d == REGION_DOWN ? "down" : "up");
            }
        }
    }
    regions->accesses = accesses;
    return error;
}
