/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the allocator's structures cost alone, without its lock and its decisions, as they grow: the free
 * index (a search for the best fit, a removal and an insertion) with 10 to 10^6 free blocks, whose sizes are
 * all different, all the same, or mixed as programs mix them; and the map of addresses (find, remove, put).
 *
 * Two ways: `hot` is what a cached allocation and its free do, the best block for a size is taken out and
 * comes back, with sizes from a set of 16; `random` takes any of the blocks each time, so with many of them
 * it is the machine's cache misses that are measured. One JSON line each; the least of several rounds, since
 * others use the machine too. An argument is the largest number of blocks.
 */
#include "alloc/index/block_map.h"
#include "alloc/index/block_slab.h"
#include "alloc/index/free_index.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 7
#define STEPS 200000
#define HOT_SIZES 16

static uint64_t random_state = 42;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_free_index: %s\n", what);
    exit(1);
}

/* ---- the blocks ---- */

enum size_kind { SIZES_DIFFERENT, SIZES_SAME, SIZES_MIXED };
static const char *const kind_names[] = {"different", "same", "mixed"};

/* Many small ones of few sizes, activations of some dozens of sizes, and few large ones of any size. */
static uint64_t size_mixed(void)
{
    uint64_t choice = random_below(&random_state, 100);
    if (choice < 55) {
        return 512 * (1 + random_below(&random_state, 8));
    }
    if (choice < 75) {
        return 4096 * (2 + random_below(&random_state, 24));
    }
    if (choice < 95) {
        return (UINT64_C(1) << 20) * (1 + random_below(&random_state, 40)) + 512 * random_below(&random_state, 4);
    }
    return 512 * (2048 + random_below(&random_state, 2000000));
}

struct field {
    struct block_slab slab;
    struct block_map map;
    struct free_index index;
    struct stream_bins *bins;
    struct block **blocks; /* in random order */
    uint32_t *order;       /* of the steps: positions in `blocks` */
    uint64_t count;
};

static void field_open(struct field *field, enum size_kind kind, uint64_t count)
{
    *field = (struct field){.count = count};
    field->blocks = malloc(count * sizeof(struct block *));
    field->order = malloc(STEPS * sizeof(*field->order));
    field->bins = free_index_bins(&field->index, NULL, 0);
    if (field->blocks == NULL || field->order == NULL || field->bins == NULL ||
        block_slab_reserve(&field->slab, count) != VARVE_OK) {
        fail("no memory");
    }
    uint64_t addr = UINT64_C(0x7f0000000000);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = random_below(&random_state, i + 1);
        field->blocks[i] = field->blocks[j];
        struct block *block = block_slab_acquire(&field->slab);
        block->size = kind == SIZES_SAME ? 2048 : kind == SIZES_DIFFERENT ? 512 * (i + 1) : size_mixed();
        block->addr = addr;
        block->bins = field->bins;
        addr += (block->size + 511 + 512 * random_below(&random_state, 8)) & ~UINT64_C(511);
        field->blocks[j] = block;
    }
    for (uint64_t i = 0; i < STEPS; i++) {
        field->order[i] = (uint32_t)random_below(&random_state, count);
    }
}

static void field_close(struct field *field)
{
    struct varve_message message;
    if (free_index_check(&field->index, &message) != VARVE_OK || block_map_check(&field->map, &message) != VARVE_OK ||
        block_slab_check(&field->slab, &message) != VARVE_OK) {
        fail(message.text);
    }
    free_index_close(&field->index);
    block_map_close(&field->map);
    block_slab_close(&field->slab);
    free(field->blocks);
    free(field->order);
}

/* ---- one round each: ns per step ---- */

static double index_hot(struct field *field)
{
    uint64_t sizes[HOT_SIZES];
    for (unsigned i = 0; i < HOT_SIZES; i++) {
        sizes[i] = field->blocks[random_below(&random_state, field->count)]->size;
    }
    double start = now_ns();
    for (unsigned i = 0; i < STEPS; i++) {
        struct block *block = free_index_lower_bound(field->bins, sizes[i % HOT_SIZES], 0);
        free_index_remove(&field->index, block);
        free_index_insert(&field->index, block);
    }
    return (now_ns() - start) / STEPS;
}

static double index_random(struct field *field)
{
    uint64_t other = 0;
    double start = now_ns();
    for (unsigned i = 0; i < STEPS; i++) {
        struct block *block = field->blocks[field->order[i]];
        free_index_remove(&field->index, block);
        free_index_insert(&field->index, block);
        other += free_index_lower_bound(field->bins, block->size, block->addr) != block;
    }
    double ns = (now_ns() - start) / STEPS;
    if (other != 0) {
        fail("a search missed the block that is there");
    }
    return ns;
}

static double map_hot(struct field *field)
{
    double start = now_ns();
    for (unsigned i = 0; i < STEPS; i++) {
        struct block *block = field->blocks[field->order[i % HOT_SIZES]];
        if (block_map_find(&field->map, block->addr) != block) {
            fail("the map has lost a block");
        }
        block_map_remove(&field->map, block);
        if (block_map_reserve(&field->map) != VARVE_OK) {
            fail("no memory");
        }
        block_map_put(&field->map, block);
    }
    return (now_ns() - start) / STEPS;
}

static double map_random(struct field *field)
{
    double start = now_ns();
    for (unsigned i = 0; i < STEPS; i++) {
        struct block *block = field->blocks[field->order[i]];
        if (block_map_find(&field->map, block->addr) != block) {
            fail("the map has lost a block");
        }
        block_map_remove(&field->map, block);
        if (block_map_reserve(&field->map) != VARVE_OK) {
            fail("no memory");
        }
        block_map_put(&field->map, block);
    }
    return (now_ns() - start) / STEPS;
}

static double slab_hot(struct field *field)
{
    double start = now_ns();
    for (unsigned i = 0; i < STEPS; i++) {
        if (block_slab_reserve(&field->slab, 2) != VARVE_OK) {
            fail("no memory");
        }
        struct block *first = block_slab_acquire(&field->slab);
        block_slab_release(&field->slab, first);
    }
    return (now_ns() - start) / STEPS;
}

static void report(const char *metric, const char *kind, struct field *field, double (*round)(struct field *field))
{
    double least = round(field);
    for (unsigned i = 1; i < ROUNDS; i++) {
        double ns = round(field);
        least = ns < least ? ns : least;
    }
    printf("{\"bench\":\"free_index\",\"metric\":\"%s\",\"sizes\":\"%s\",\"blocks\":%llu,\"value\":%.1f,"
           "\"unit\":\"ns\"}\n",
           metric, kind, (unsigned long long)field->count, least);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint64_t counts[] = {10, 1000, 100000, 1000000};
    uint64_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX;
    for (unsigned kind = SIZES_DIFFERENT; kind <= SIZES_MIXED; kind++) {
        for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]) && counts[i] <= limit; i++) {
            struct field field;
            field_open(&field, (enum size_kind)kind, counts[i]);
            for (uint64_t j = 0; j < field.count; j++) {
                free_index_insert(&field.index, field.blocks[j]);
            }
            report("index, search remove insert, hot", kind_names[kind], &field, index_hot);
            report("index, remove insert search, random", kind_names[kind], &field, index_random);
            if (kind == SIZES_MIXED) {
                for (uint64_t j = 0; j < field.count; j++) {
                    if (block_map_reserve(&field.map) != VARVE_OK) {
                        fail("no memory");
                    }
                    block_map_put(&field.map, field.blocks[j]);
                }
                report("map, find remove reserve put, hot", kind_names[kind], &field, map_hot);
                report("map, find remove reserve put, random", kind_names[kind], &field, map_random);
                report("slab, reserve take give", kind_names[kind], &field, slab_hot);
            }
            field_close(&field);
        }
    }
    return 0;
}
