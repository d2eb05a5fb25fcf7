/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The depth-first search of skyline_search.h. A frame of the recursion is one step or one split into groups; what it
 * needs lies on a stack of numbers of the search, so that frames stay small.
 */
#include "analysis/whatif/skyline_search.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 10000,    /* of the recursion: two small frames each */
    STEPS_PER_LOOK = 16,  /* at the clock */
    MEMORY_BITS_MIN = 12, /* states, as a power of two */
    MEMORY_BITS_MAX = 22,
    MEMORY_WAYS = 4, /* slots in which a state may lie */
};

struct state_hash {
    uint64_t a, b;
};

struct skyline_memory {
    struct state_hash *states; /* a == 0: none */
    unsigned bits;
    size_t count;
};

struct search {
    struct skyline *skyline;
    struct skyline_memory *memory;
    const struct skyline_order *order;
    uint64_t steps;
    unsigned depth;
    bool is_stopped;
    uint32_t *failures; /* of a section: how often all of its items were tried without success */
    uint32_t *numbers;  /* the stack: items to try of the steps, groups of the splits */
    size_t numbered, numbers_capacity;
};

static uint64_t skyline_search_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void hash_add(struct state_hash *hash, uint64_t kind, uint64_t index, uint64_t value)
{
    uint64_t a = skyline_search_mix(skyline_search_mix(index * 2 + kind + UINT64_C(0x9e3779b97f4a7c15)) + value);
    hash->a ^= a;
    hash->b ^= skyline_search_mix(a + skyline_search_mix(value ^ UINT64_C(0x6a09e667f3bcc909)));
}

struct skyline_memory *skyline_memory_make(void)
{
    struct skyline_memory *memory = memory_resize(NULL, sizeof(*memory));
    size_t bytes = ((size_t)1 << MEMORY_BITS_MIN) * sizeof(*memory->states);
    *memory = (struct skyline_memory){.states = memory_resize(NULL, bytes), .bits = MEMORY_BITS_MIN};
    memset(memory->states, 0, bytes);
    return memory;
}

void skyline_memory_free(struct skyline_memory *memory)
{
    free(memory->states);
    free(memory);
}

static struct state_hash *memory_slot(const struct skyline_memory *memory, struct state_hash hash, unsigned way)
{
    return &memory->states[(hash.a + way) & (((size_t)1 << memory->bits) - 1)];
}

static bool memory_has(const struct skyline_memory *memory, struct state_hash hash)
{
    for (unsigned way = 0; way < MEMORY_WAYS; way++) {
        const struct state_hash *slot = memory_slot(memory, hash, way);
        if (slot->a == hash.a && slot->b == hash.b) {
            return true;
        }
    }
    return false;
}

/* Where all slots are taken, one of the states there is forgotten. */
static void memory_put(struct skyline_memory *memory, struct state_hash hash)
{
    unsigned way = 0;
    while (way < MEMORY_WAYS && memory_slot(memory, hash, way)->a != 0) {
        way++;
    }
    memory->count += way < MEMORY_WAYS;
    *memory_slot(memory, hash, way < MEMORY_WAYS ? way : hash.b % MEMORY_WAYS) = hash;
}

static void memory_add(struct skyline_memory *memory, struct state_hash hash)
{
    if (memory->bits < MEMORY_BITS_MAX && memory->count >= (size_t)1 << (memory->bits - 1)) {
        size_t states = (size_t)1 << memory->bits;
        struct skyline_memory larger = {.bits = memory->bits + 2};
        larger.states = memory_resize(NULL, ((size_t)1 << larger.bits) * sizeof(*larger.states));
        memset(larger.states, 0, ((size_t)1 << larger.bits) * sizeof(*larger.states));
        for (size_t i = 0; i < states; i++) {
            if (memory->states[i].a != 0) {
                memory_put(&larger, memory->states[i]);
            }
        }
        free(memory->states);
        *memory = larger;
    }
    memory_put(memory, hash);
}

/* Of all that the rest of a search in sections [first, end) depends on. */
static struct state_hash skyline_search_hash_of(const struct skyline *skyline, uint32_t first, uint32_t end)
{
    struct state_hash hash = {1, 1};
    for (uint32_t s = first; s < end; s++) {
        if (skyline->left[s] > 0) {
            hash_add(&hash, 0, s, (uint64_t)skyline->floor[s]);
        }
        for (size_t i = skyline->begin[s]; i < skyline->begin[s + 1]; i++) {
            if (skyline->low[i] != SKYLINE_PLACED) {
                hash_add(&hash, 1, i, 0);
            }
        }
    }
    hash.a += hash.a == 0;
    return hash;
}

/* A section to branch on. */
struct branch {
    uint32_t section;
    uint32_t items; /* that can lie on its floor; twins count once */
    int64_t raised; /* floor without any of them; above height - left: it can't be */
    uint64_t options;
};

/* The floor that the section has if none of the items that could lie on it does. `first`: where the group begins. */
static int64_t raised_floor(const struct skyline *skyline, uint32_t first, uint32_t section)
{
    int64_t floor = skyline->floor[section];
    uint32_t hull_first = section;
    uint32_t hull_end = section + 1;
    int64_t raised = INT64_MAX;
    if (floor >= skyline->height - skyline->left[section]) {
        return raised;
    }
    for (uint32_t k = skyline->placed[section]; k < skyline->covered[section]; k++) {
        uint32_t i = skyline->cover[section][k];
        const struct skyline_item *item = &skyline->items[i];
        if (skyline->low[i] == floor) {
            hull_first = item->first < hull_first ? item->first : hull_first;
            hull_end = item->end > hull_end ? item->end : hull_end;
        } else if (skyline->low[i] < raised) {
            raised = skyline->low[i];
        }
    }
    for (size_t i = skyline->begin[first]; i < skyline->begin[hull_end]; i++) {
        const struct skyline_item *item = &skyline->items[i];
        bool covers = item->first <= section && section < item->end;
        if (item->end > hull_first && skyline->low[i] < raised - item->size && !(covers && skyline->low[i] == floor)) {
            raised = skyline->low[i] + item->size;
        }
    }
    return raised;
}

/* Forced steps and dead ends first, whatever the order. */
static bool is_better(const struct search *search, const struct branch *a, const struct branch *b)
{
    if (a->options <= 1 || b->options <= 1 || search->order->choice == SKYLINE_FULLEST) {
        return a->options != b->options ? a->options < b->options
                                        : search->skyline->left[a->section] > search->skyline->left[b->section];
    }
    return a->options * (1 + (uint64_t)search->failures[b->section]) <
           b->options * (1 + (uint64_t)search->failures[a->section]);
}

/* Replaces the best branch so far by that at the section if it is better. */
static void skyline_search_look_at(const struct search *search, uint32_t first, uint32_t section, struct branch *best)
{
    struct skyline *skyline = search->skyline;
    struct branch branch = {.section = section, .items = skyline_options(skyline, section), .raised = INT64_MAX};
    branch.options = branch.items;
    if (best->options != UINT64_MAX && !is_better(search, &branch, best)) {
        return; /* nor would one option more make it so */
    }
    branch.raised = raised_floor(skyline, first, section);
    branch.options += branch.raised <= skyline->height - skyline->left[section];
    if (best->options == UINT64_MAX || is_better(search, &branch, best)) {
        *best = branch;
    }
}

/* The best section in the valleys of a group, of which there is always one; the first that leaves no choice. */
static struct branch skyline_search_choose(const struct search *search, uint32_t first, uint32_t end)
{
    const struct skyline *skyline = search->skyline;
    struct branch best = {.options = UINT64_MAX};
    uint32_t valley = first;
    while (valley < end && best.options > 1) {
        int64_t floor = skyline->floor[valley];
        uint32_t valley_end = valley + 1;
        while (valley_end < end && skyline->floor[valley_end] == floor) {
            valley_end++;
        }
        if ((valley == first || skyline->floor[valley - 1] > floor) &&
            (valley_end == end || skyline->floor[valley_end] > floor)) {
            for (uint32_t s = valley; s < valley_end && best.options > 1; s++) {
                skyline_search_look_at(search, first, s, &best);
            }
        }
        valley = valley_end;
    }
    return best;
}

static void skyline_search_push(struct search *search, uint32_t number)
{
    *MEMORY_ADD(search->numbers, search->numbered, search->numbers_capacity) = number;
}

/* Push the items that can lie on the floor of the section, the highest rank first. */
static void push_options(struct search *search, uint32_t section)
{
    const struct skyline *skyline = search->skyline;
    const double *rank = search->order->rank;
    size_t begin = search->numbered;
    for (uint32_t k = skyline->placed[section]; k < skyline->covered[section]; k++) {
        uint32_t item = skyline->cover[section][k];
        size_t at = search->numbered;
        if (!skyline_is_option(skyline, item, section)) {
            continue;
        }
        skyline_search_push(search, item);
        for (; at > begin && (rank[search->numbers[at - 1]] < rank[item] ||
                              (rank[search->numbers[at - 1]] == rank[item] && search->numbers[at - 1] > item));
             at--) {
            search->numbers[at] = search->numbers[at - 1];
        }
        search->numbers[at] = item;
    }
}

static bool must_stop(struct search *search)
{
    placement_clock_step(search->order->clock);
    if (search->steps++ % STEPS_PER_LOOK == 0) {
        search->is_stopped = placement_clock_now(search->order->clock) > search->order->end;
    }
    search->is_stopped = search->is_stopped || search->steps > search->order->steps || search->depth > DEPTH_MAX;
    return search->is_stopped;
}

static bool search_groups(struct search *search, uint32_t first, uint32_t end);

static bool try_options(struct search *search, uint32_t first, uint32_t end, const struct branch *branch)
{
    struct skyline *skyline = search->skyline;
    size_t changes = skyline->changes;
    size_t begin = search->numbered;
    push_options(search, branch->section);
    bool found = false;
    for (uint32_t i = 0; !found && !search->is_stopped && i < branch->items; i++) {
        found = skyline_place(skyline, search->numbers[begin + i]) && search_groups(search, first, end);
        if (!found) {
            skyline_undo(skyline, changes);
        }
    }
    search->numbered = begin;
    if (!found && !search->is_stopped && branch->options > branch->items) {
        found = skyline_raise(skyline, branch->section, branch->raised) && search_groups(search, first, end);
        if (!found) {
            skyline_undo(skyline, changes);
        }
    }
    return found;
}

/* Sections [first, end) hang together by items left, and no item left reaches out of them. */
static bool search_group(struct search *search, uint32_t first, uint32_t end)
{
    if (must_stop(search)) {
        return false;
    }
    struct state_hash hash = skyline_search_hash_of(search->skyline, first, end);

    if (memory_has(search->memory, hash)) {
        return false;
    }
    struct branch branch = skyline_search_choose(search, first, end);

    if (try_options(search, first, end, &branch)) {
        return true;
    }
    if (!search->is_stopped) {
        memory_add(search->memory, hash);
        search->failures[branch.section]++;
    }
    return false;
}

/* Small groups first: they fail at less cost. */
static bool search_groups(struct search *search, uint32_t first, uint32_t end)
{
    const struct skyline *skyline = search->skyline;
    size_t begin = search->numbered;
    bool found = true;
    uint32_t s = first;
    search->depth++;
    while (s < end) {
        uint32_t group_end = s + 1;
        size_t at = search->numbered;
        if (skyline->left[s] > 0) {
            while (group_end < end && skyline->crossings[group_end] > 0) {
                group_end++;
            }
            skyline_search_push(search, s);
            skyline_search_push(search, group_end);
            for (; at > begin && search->numbers[at - 1] - search->numbers[at - 2] > group_end - s; at -= 2) {
                search->numbers[at] = search->numbers[at - 2];
                search->numbers[at + 1] = search->numbers[at - 1];
            }
            search->numbers[at] = s;
            search->numbers[at + 1] = group_end;
        }
        s = group_end;
    }
    size_t groups_end = search->numbered;

    for (size_t i = begin; found && i < groups_end; i += 2) {
        found = search_group(search, search->numbers[i], search->numbers[i + 1]);
    }
    search->numbered = begin;
    search->depth--;
    return found;
}

enum skyline_outcome skyline_search(struct skyline *skyline, struct skyline_memory *memory,
                                    const struct skyline_order *order)
{
    struct search search = {.skyline = skyline, .memory = memory, .order = order};
    size_t changes = skyline->changes;
    size_t bytes = skyline->sections * sizeof(*search.failures);
    search.failures = memory_resize(NULL, bytes + 1);
    memset(search.failures, 0, bytes);
    bool found = search_groups(&search, 0, skyline->sections);
    if (!found) {
        skyline_undo(skyline, changes);
    }
    free(search.failures);
    free(search.numbers);
    return found ? SKYLINE_FOUND : search.is_stopped ? SKYLINE_STOPPED : SKYLINE_NONE;
}
