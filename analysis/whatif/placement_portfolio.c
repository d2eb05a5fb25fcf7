/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take numbers of rounds: the first ones place once in each of the orders, the others improve, each from an
 * order and with random numbers of its own. All share the best answer. A round does not depend on others: where it ends
 * after a number of rounds, it is the same with any number of threads.
 */
#include "analysis/whatif/placement.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/progress.h"
#include "analysis/whatif/placement_occupied.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_PASSES 12
#define PLACED_BETWEEN_LOOKS 1024

/* X(NAME, key, text): the buffer with the lowest key is placed first. */
#define ORDER_LIST(X)                                                               \
    X(SIZE_LIFETIME, -size *size *lifetime, "first fit by size and lifetime")       \
    X(SIZE, -size, "first fit by size")                                             \
    X(BIRTH, (double)item->first, "first fit by birth")                             \
    X(AREA, -size *lifetime, "first fit by area")                                   \
    X(SIZE_BREVITY, -size *size / lifetime, "first fit by size and short lifetime") \
    X(LIFETIME, -lifetime, "first fit by lifetime")

enum order {
#define ORDER_ENUM(name, key, text) ORDER_##name,
    ORDER_LIST(ORDER_ENUM)
#undef ORDER_ENUM
        ORDER_LIMIT
};

#define GOOD_ROUNDS (ORDER_LIMIT + 2U)

static const char *const order_texts[ORDER_LIMIT] = {
#define ORDER_TEXT(name, key, text) text,
    ORDER_LIST(ORDER_TEXT)
#undef ORDER_TEXT
};

struct ranked {
    double key;
    uint32_t item;
};

struct shared {
    struct portfolio *portfolio;
    pthread_mutex_t lock; /* guards all below and the answer */
    unsigned next_round;
};

/* One thread's. */
struct work {
    struct shared *shared;
    const struct placement_instance *instance;
    struct ranked *order; /* the next to be placed first */
    uint64_t *offsets;
    uint64_t *size_min; /* of the places from this one on in `order`, the smallest size */
    struct occupied *occupied;
};

/* Equal keys: the larger one first, then by number, so that the order is one. */
static int placement_portfolio_compare_ranked(const void *a_untyped, const void *b_untyped, void *items_untyped)
{
    const struct ranked *a = a_untyped;
    const struct ranked *b = b_untyped;
    const struct placement_item *items = items_untyped;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    if (items[a->item].size != items[b->item].size) {
        return items[a->item].size > items[b->item].size ? -1 : 1;
    }
    return a->item < b->item ? -1 : a->item > b->item;
}

static void sort_order(struct work *work)
{
    qsort_r(work->order, work->instance->count, sizeof(*work->order), placement_portfolio_compare_ranked,
            work->instance->items);
}

static double placement_portfolio_key_of(enum order order, const struct placement_item *item)
{
    double size = (double)item->size;
    double lifetime = (double)(item->end - item->first);
    switch (order) {
#define ORDER_CASE(name, key, text) \
    case ORDER_##name:              \
        return key;
        ORDER_LIST(ORDER_CASE)
#undef ORDER_CASE
    case ORDER_LIMIT:
        break;
    }
    return 0;
}

static void begin_order(struct work *work, enum order order)
{
    for (size_t i = 0; i < work->instance->count; i++) {
        work->order[i] = (struct ranked){placement_portfolio_key_of(order, &work->instance->items[i]), (uint32_t)i};
    }
    sort_order(work);
}

/* Whether there is a placement that is good enough for the time that has gone. The lock is held. */
static bool placement_portfolio_is_over(const struct shared *shared)
{
    const struct portfolio *portfolio = shared->portfolio;
    return portfolio->height != 0 && (portfolio->height <= portfolio->target ||
                                      placement_clock_now(portfolio->clock) >= portfolio->begin + portfolio->seconds);
}

/* Rounds that are running go on where those after them are not needed, so that the answer does not depend on
 * which were the first. */
static bool needs_round(const struct shared *shared)
{
    const struct portfolio *portfolio = shared->portfolio;
    return !placement_portfolio_is_over(shared) &&
           (shared->next_round < GOOD_ROUNDS || portfolio->height > portfolio->good);
}

static bool look_whether_over(struct work *work)
{
    pthread_mutex_lock(&work->shared->lock);
    bool answer = placement_portfolio_is_over(work->shared);
    pthread_mutex_unlock(&work->shared->lock);
    return answer;
}

/* Returns the height, UINT64_MAX if it was over before all were placed. */
static uint64_t placement_portfolio_place(struct work *work)
{
    const struct placement_item *items = work->instance->items;
    uint64_t smallest = UINT64_MAX;
    for (size_t i = work->instance->count; i-- > 0;) {
        uint64_t size = items[work->order[i].item].size;
        smallest = size < smallest ? size : smallest;
        work->size_min[i] = smallest;
    }
    occupied_clear(work->occupied);
    uint64_t height = 0;
    for (size_t i = 0; i < work->instance->count; i++) {
        uint32_t number = work->order[i].item;
        const struct placement_item *item = &items[number];
        if (i % PLACED_BETWEEN_LOOKS == PLACED_BETWEEN_LOOKS - 1 && look_whether_over(work)) {
            return UINT64_MAX;
        }
        placement_clock_step(work->shared->portfolio->clock);
        uint64_t offset = occupied_first_fit(work->occupied, item->first, item->end, item->size);
        occupied_add(work->occupied, item->first, item->end, offset, item->size, work->size_min[i]);
        work->offsets[number] = offset;
        height = offset + item->size > height ? offset + item->size : height;
    }
    return height;
}

/* What ended above the target is moved forward: by a share of its rank, or by a share of all. */
static void blame(struct work *work, bool by_rank, unsigned short random[3])
{
    const struct portfolio *portfolio = work->shared->portfolio;
    uint64_t high = portfolio->target + portfolio->target / 1024;
    double all = (double)work->instance->count;
    for (size_t i = 0; i < work->instance->count; i++) {
        struct ranked *ranked = &work->order[i];
        ranked->key = (double)i;
        if (work->offsets[ranked->item] + work->instance->items[ranked->item].size > high) {
            ranked->key = by_rank ? ranked->key * (0.3 + 0.6 * erand48(random))
                                  : ranked->key - all * (0.05 + 0.1 * erand48(random));
        }
    }
    sort_order(work);
}

/* Keeps what was placed if it is the best. False: it is over. */
static bool placement_portfolio_keep(struct work *work, uint64_t height, enum order order)
{
    struct portfolio *portfolio = work->shared->portfolio;
    pthread_mutex_lock(&work->shared->lock);
    if (height != UINT64_MAX && (portfolio->height == 0 || height < portfolio->height)) {
        portfolio->height = height;
        portfolio->method = order_texts[order];
        memcpy(portfolio->offsets, work->offsets, work->instance->count * sizeof(*work->offsets));
    }
    if (portfolio->progress != NULL) {
        progress_step(portfolio->progress, "placing",
                      (uint64_t)((placement_clock_now(portfolio->clock) - portfolio->begin) * 1e3),
                      (uint64_t)(portfolio->seconds * 1e3));
    }
    bool goes_on = !placement_portfolio_is_over(work->shared);
    pthread_mutex_unlock(&work->shared->lock);
    return goes_on;
}

/* Ends after ROUND_PASSES passes that were no better than those before them. */
static void improve(struct work *work, unsigned round, enum order order)
{
    unsigned short random[3] = {(unsigned short)round, (unsigned short)(round >> 16), 0x330e};
    begin_order(work, order);
    uint64_t best = UINT64_MAX;
    bool goes_on = true;
    for (unsigned since = 0; goes_on && since < ROUND_PASSES; since++) {
        uint64_t height = placement_portfolio_place(work);
        if (height < best) {
            best = height;
            since = 0;
        }
        goes_on = placement_portfolio_keep(work, height, order);
        if (goes_on) {
            blame(work, round / ORDER_LIMIT % 2 == 1, random);
        }
    }
}

static void run_rounds(void *shared_untyped, size_t thread)
{
    (void)thread; /* each takes rounds until none is needed */
    struct shared *shared = shared_untyped;
    const struct placement_instance *instance = shared->portfolio->instance;
    struct work work = {
        .shared = shared,
        .instance = instance,
        .order = memory_resize(NULL, instance->count * sizeof(*work.order)),
        .offsets = memory_resize(NULL, instance->count * sizeof(*work.offsets)),
        .size_min = memory_resize(NULL, instance->count * sizeof(*work.size_min)),
        .occupied = occupied_new(instance->points),
    };
    for (;;) {
        pthread_mutex_lock(&shared->lock);
        bool is_needed = needs_round(shared);
        unsigned round = shared->next_round++;
        pthread_mutex_unlock(&shared->lock);
        if (!is_needed) {
            break;
        }
        enum order order = (enum order)(round % ORDER_LIMIT);
        if (round < ORDER_LIMIT) {
            begin_order(&work, order);
            placement_portfolio_keep(&work, placement_portfolio_place(&work), order);
        } else {
            improve(&work, round - ORDER_LIMIT, order);
        }
    }
    free(work.order);
    free(work.offsets);
    free(work.size_min);
    occupied_free(work.occupied);
}

void portfolio_run(struct portfolio *portfolio)
{
    struct shared shared = {.portfolio = portfolio, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (portfolio->instance->count == 0) {
        return;
    }
    parallel_run(portfolio->threads, portfolio->threads, run_rounds, &shared);
    pthread_mutex_destroy(&shared.lock);
}
