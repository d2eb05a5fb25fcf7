/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The free index against a naive model, one array of all free blocks that is searched from end to end:
 * random insertions, removals, searches and walks with one stream and with hundreds, with equal sizes, few
 * sizes, sizes of every magnitude up to 2^60 and sizes beside the edges of bins. check() runs after each step
 * of the small runs, and is shown each kind of damage once. Then what a model can't say: trees stay flat for every
 * order and stride of addresses, and a lack of memory changes nothing.
 * Costs: 5 s
 */
#include "alloc/index/block_slab.h"
#include "alloc/index/free_index.h"
#include "support/structure.h"

#define BLOCKS_MAX 2000U

enum sizes { SIZES_EQUAL, SIZES_FEW, SIZES_ANY, SIZES_EDGES, SIZES_ODD, SIZES_ALL_KINDS };

static uint64_t random_size(enum sizes sizes)
{
    uint64_t power = UINT64_C(1) << (9 + random_below(&random_state, 52)); /* 2^9 to 2^60 */
    switch (sizes) {
    case SIZES_EQUAL:
        return 2048;
    case SIZES_FEW:
        return 512 * (1 + random_below(&random_state, 7));
    case SIZES_ANY: /* 512 to 2^60, as many of each magnitude */
        return power == UINT64_C(1) << 60 ? power : (power + random_below(&random_state, power)) / 512 * 512;
    case SIZES_EDGES: /* around powers of two and their 32 parts */
        power += power / 32 * random_below(&random_state, 33) + 512 * random_below(&random_state, 3);
        power = power > 1024 ? power - 512 : power;
        return power > UINT64_C(1) << 60 ? UINT64_C(1) << 60 : power / 512 * 512;
    case SIZES_ODD: /* not multiples of 512: nothing depends on it */
        return 1 + random_below(&random_state, 2 * power < UINT64_C(1) << 61 ? 2 * power : power);
    case SIZES_ALL_KINDS:
        break;
    }
    return random_size((enum sizes)random_below(&random_state, SIZES_ALL_KINDS));
}

/* ---- the model ---- */

struct model {
    struct free_index index;
    struct block_slab slab;
    struct block *blocks[BLOCKS_MAX]; /* in no order */
    unsigned count;
    uint64_t streams[400]; /* handles, in no order */
    unsigned stream_count;
};

static struct model *model;

static int setup(void **state)
{
    (void)state;
    model = calloc(1, sizeof(*model));
    return model != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free_index_close(&model->index);
    block_slab_close(&model->slab);
    free(model);
    return 0;
}

static int compare(const struct block *block, uint64_t stream, uint64_t size, uint64_t addr)
{
    uint64_t have[] = {block->bins->stream, block->size, block->addr};
    uint64_t want[] = {stream, size, addr};
    for (unsigned i = 0; i < 3; i++) {
        if (have[i] != want[i]) {
            return have[i] < want[i] ? -1 : 1;
        }
    }
    return 0;
}

/* The first block of the stream that is not before the key, by looking at all of them; the last one of all keys. */
static struct block *model_find(const struct stream_bins *bins, uint64_t size, uint64_t addr, bool is_last)
{
    struct block *found = NULL;
    for (unsigned i = 0; i < model->count; i++) {
        struct block *block = model->blocks[i];
        if (block->bins == bins && compare(block, bins->stream, size, addr) >= 0 &&
            (found == NULL || (compare(block, bins->stream, found->size, found->addr) < 0) != is_last)) {
            found = block;
        }
    }
    return found;
}

static struct stream_bins *stream_at_random(void)
{
    uint64_t handle = model->streams[random_below(&random_state, model->stream_count)];
    struct stream_bins *bins = free_index_bins(&model->index, NULL, handle);
    assert_non_null(bins);
    assert_int_equal(bins->stream, handle);
    return bins;
}

static void insert_at_random(enum sizes sizes)
{
    struct stream_bins *bins = stream_at_random();
    uint64_t size = random_size(sizes), addr = 512 * random_below(&random_state, 1 << 14);
    struct block *there = model_find(bins, size, addr, false);
    if (there != NULL && there->size == size && there->addr == addr) {
        return; /* two blocks do not begin at one address */
    }
    struct block *block = block_slab_acquire(&model->slab);
    assert_non_null(block);
    *block = (struct block){.addr = addr, .size = size, .bins = bins};
    free_index_insert(&model->index, block);
    assert_true(block->is_free);
    model->blocks[model->count++] = block;
}

static void remove_at_random(void)
{
    struct block **slot = &model->blocks[random_below(&random_state, model->count)];
    free_index_remove(&model->index, *slot);
    assert_false((*slot)->is_free);
    block_slab_release(&model->slab, *slot);
    *slot = model->blocks[--model->count];
}

static void search_at_random(unsigned step, enum sizes sizes)
{
    const uint64_t ends[] = {0, 1, UINT64_C(1) << 60, (UINT64_C(1) << 61) - 1, UINT64_C(1) << 61, UINT64_MAX};
    struct stream_bins *bins = stream_at_random();
    uint64_t size = random_size(sizes);
    uint64_t addr = random_below(&random_state, 3) == 0 ? 0 : 512 * random_below(&random_state, 1 << 14);
    uint64_t choice = random_below(&random_state, 10);
    if (choice == 0) {
        size = ends[random_below(&random_state, 6)];
        addr = random_below(&random_state, 2) == 0 ? UINT64_MAX : addr;
    } else if (choice < 5 && model->count > 0) { /* one that is there, or a neighbour of its key */
        const struct block *block = model->blocks[random_below(&random_state, model->count)];
        bins = block->bins;
        size = block->size + random_below(&random_state, 3) - 1;
        addr = block->addr + random_below(&random_state, 3) - 1;
    }
    if (free_index_lower_bound(bins, size, addr) != model_find(bins, size, addr, false)) {
        fail_msg("step %u: lower bound of (0x%llx, 0x%llx)", step, (unsigned long long)size, (unsigned long long)addr);
    }
    assert_ptr_equal(free_index_last(bins), model_find(bins, 0, 0, true));
}

static void index_is_sound(unsigned step)
{
    struct varve_message message;
    if (free_index_check(&model->index, &message) != VARVE_OK) {
        fail_msg("step %u: %s", step, message.text);
    }
}

/* A walk meets all blocks in their order, and each knows its neighbours of the same stream. */
static void all_as_expected(unsigned step)
{
    index_is_sound(step);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < model->index.stream_count; i++) {
        blocks += model->index.streams[i]->blocks;
    }
    assert_int_equal(blocks, model->count);
    struct block *before = NULL;
    unsigned met = 0;
    for (struct block *block = free_index_first(&model->index); block != NULL && met <= model->count;
         block = free_index_following(&model->index, block), met++) {
        bool is_same = before != NULL && before->bins == block->bins;
        if ((before != NULL && compare(before, block->bins->stream, block->size, block->addr) >= 0) ||
            free_index_previous(block) != (is_same ? before : NULL) ||
            (before != NULL && free_index_next(before) != (is_same ? block : NULL))) {
            fail_msg("step %u: block %u of %u", step, met, model->count);
        }
        before = block;
    }
    assert_true(before == NULL || free_index_next(before) == NULL);
    assert_int_equal(met, model->count);
}

struct run {
    uint64_t seed;
    unsigned steps, blocks, streams, check_every;
    enum sizes sizes;
};

static void run(const struct run *run)
{
    random_state = run->seed;
    model->stream_count = run->streams;
    assert_true(run->streams <= sizeof(model->streams) / sizeof(model->streams[0]) && run->blocks < BLOCKS_MAX);
    for (unsigned i = 0; i < run->streams; i++) { /* small numbers, pointers, and both ends */
        uint64_t odd = random_below(&random_state, 2) == 0
                           ? random_next(&random_state)
                           : UINT64_C(0x55d0c0000000) + 16 * random_below(&random_state, 9999);
        model->streams[i] = i < 3 ? i : i == 3 ? UINT64_MAX : i == 4 ? UINT64_C(1) << 63 : odd;
    }
    for (unsigned step = 0; step < run->steps; step++) {
        uint64_t choice = random_below(&random_state, 100);
        unsigned inserts = step / (run->steps / 6) % 2 == 0 ? 45 : 20; /* tides */
        if (choice < inserts && model->count < run->blocks) {
            insert_at_random(run->sizes);
        } else if (choice < 65 && model->count > 0) {
            remove_at_random();
        } else {
            search_at_random(step, run->sizes);
        }
        if (step % run->check_every == 0) {
            all_as_expected(step);
        }
    }
    while (model->count > 0) {
        remove_at_random();
    }
    all_as_expected(run->steps);
    assert_null(free_index_first(&model->index));
}

TEST_WITH(test_random, setup, teardown)
{
    static const struct run runs[] = {
        {300, 20000, 900, 400, 500, SIZES_FEW},
        {301, 20000, 900, 400, 500, SIZES_ALL_KINDS},
        {400, 100000, 700, 3, 500, SIZES_ALL_KINDS},
        {401, 100000, 700, 1, 500, SIZES_EQUAL},
    };
    for (unsigned sizes = SIZES_EQUAL; sizes <= SIZES_ALL_KINDS; sizes++) { /* walked after each step */
        run(&(struct run){100 + sizes, 5000, 80, 1, 1, (enum sizes)sizes});
        run(&(struct run){200 + sizes, 2000, 100, 6, 1, (enum sizes)sizes});
    }
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        run(&runs[i]);
    }
}

/* ---- the walker itself ---- */

TEST_WITH(test_check_sees_damage, setup, teardown)
{
    random_state = 600;
    model->stream_count = 2;
    model->streams[1] = 7;
    while (model->count < 100) {
        insert_at_random(SIZES_FEW);
    }
    all_as_expected(0);
    unsigned at = 0;
    while (model->blocks[at]->up != NULL || model->blocks[at]->left == NULL || model->blocks[at]->right == NULL) {
        at++; /* some tree of a hundred blocks in 14 has a root with two children */
        assert_true(at < model->count);
    }
    struct block *parent = model->blocks[at], *child = parent->left;
    struct stream_bins *bins = parent->bins;
    uint64_t addr = parent->addr;
#define DAMAGE(change, undo)                                                          \
    change;                                                                           \
    assert_int_equal(free_index_check(&model->index, &message), VARVE_ERROR_CORRUPT); \
    undo
    struct varve_message message;
    DAMAGE(child->up = child, child->up = parent);
    DAMAGE(parent->left = NULL, parent->left = child); /* a subtree hides */
    DAMAGE(parent->addr = child->addr, parent->addr = addr);
    DAMAGE(parent->priority = 0, parent->priority = index_priority_of(addr));
    DAMAGE(parent->size += 512, parent->size -= 512);
    DAMAGE(child->is_free = false, child->is_free = true);
    DAMAGE(bins->words[0] ^= UINT64_C(1) << 40, bins->words[0] ^= UINT64_C(1) << 40); /* a bin without blocks */
    DAMAGE(bins->summary |= UINT64_C(1) << 20, bins->summary ^= UINT64_C(1) << 20);
    DAMAGE(bins->blocks--, bins->blocks++);
    DAMAGE(child->bin ^= 1, child->bin ^= 1);
    DAMAGE(child->is_alone = true, child->is_alone = false);
    DAMAGE(bins->position ^= 1, bins->position ^= 1);
#undef DAMAGE
    all_as_expected(1);
}

/* ---- what a model can't say ---- */

static char pool[1]; /* for its address only */

static unsigned depth_of(const struct block *block)
{
    unsigned depth = 1;
    for (; block->up != NULL; block = block->up) {
        depth++;
    }
    return depth;
}

/* 2 ln n is what a random tree has at its typical node, some 50 for the deepest of 10^5. */
TEST_WITH(test_trees_stay_flat, setup, teardown)
{
    enum { COUNT = 100000 };
    struct stream_bins *bins = free_index_bins(&model->index, (struct pool *)(void *)pool, 0);
    static struct block *blocks[COUNT];
    assert_non_null(bins);
    for (uint64_t stride = 512; stride <= UINT64_C(1) << 32; stride = stride * 3 / 512 * 512 + 1024) {
        for (unsigned order = 0; order < 2; order++) { /* rising, falling */
            for (unsigned i = 0; i < COUNT; i++) {
                uint64_t k = order == 0 ? i : COUNT - 1 - i;
                blocks[i] = block_slab_acquire(&model->slab);
                assert_non_null(blocks[i]);
                blocks[i]->addr = UINT64_C(0x7f0000000000) + k * stride;
                blocks[i]->size = 512;
                blocks[i]->bins = bins;
                free_index_insert(&model->index, blocks[i]);
            }
            unsigned deepest = 0;
            for (unsigned i = 0; i < COUNT; i++) {
                unsigned depth = depth_of(blocks[i]);
                deepest = depth > deepest ? depth : deepest;
            }
            if (deepest > 65) {
                fail_msg("stride %llu, order %u: depth %u", (unsigned long long)stride, order, deepest);
            }
            for (unsigned i = 0; i < COUNT; i++) {
                free_index_remove(&model->index, blocks[i]);
                block_slab_release(&model->slab, blocks[i]);
            }
        }
    }
    index_is_sound(0);
}

TEST_WITH(test_no_memory, setup, teardown)
{
    unsigned refused = 0;
    struct stream_bins *last = NULL;
    for (uint64_t handle = 0; handle < 600; handle++) {
        struct rlimit before = mappings_refuse();
        struct stream_bins *bins = free_index_bins(&model->index, (struct pool *)(void *)pool, handle);
        struct stream_bins *found =
            handle > 0 ? free_index_bins(&model->index, (struct pool *)(void *)pool, handle - 1) : NULL;
        mappings_allow(before);
        assert_ptr_equal(found, last); /* old streams are found without memory */
        if (bins == NULL) {
            refused++;
            assert_int_equal(model->index.stream_count, handle);
            index_is_sound((unsigned)handle);
            bins = free_index_bins(&model->index, (struct pool *)(void *)pool, handle);
            assert_non_null(bins);
        }
        last = bins;
    }
    assert_true(refused >= 600 / INDEX_CHUNK_STREAMS); /* once per chunk */
}
