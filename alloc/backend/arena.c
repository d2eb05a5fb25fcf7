/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMM's arena_memory_resource: the lowest address that serves, in two levels. Sizes are multiples of 256 bytes. Memory
 * is a sequence of superblocks of at least 1 MiB, each of which belongs to the global arena or to the arena of a
 * stream, and consists of blocks, free ones and used ones; free neighbours within a superblock merge at once.
 *
 *   up to 1 MiB   the stream's arena: its lowest superblock with a free block that serves, and there the lowest such
 *                 block. If there is none, the lowest superblock of the global arena that has one goes over to
 *                 the stream's arena.
 *   above         the same in the global arena, where the superblock stays
 *
 * Of an empty superblock only as much as is wanted is taken, at least 1 MiB, if at least 1 MiB is left, which becomes a
 * superblock of its own; others are taken whole, with what is used in them. A freed block goes back into its
 * superblock. An empty one of the global arena merges with empty neighbours; those of streams stay where they are until
 * a request fails: then all superblocks of all streams go to the global arena, used or not, and it is tried again.
 *
 * RMM takes one piece of memory when the arena is made, half of what the GPU has, and fails when that is full. Option
 * `size` does that (with the first request); without it (0) memory comes as needed in ranges of option `grow`, or of
 * the request if that is larger, and empty ranges go back on empty_cache and when a request fails: so what is reserved
 * can be compared with other policies. Ranges count as one behind the other in the order in which they came, wherever
 * the device has put them. RMM waits for a stream on the host when a large block is freed, and for all of them when
 * superblocks are collected; here a stream that gets memory of another one waits for that on the device. Not modelled:
 * arenas of threads.
 *
 * What is where: a piece's backend_word is its superblock; a superblock is in the ordered list of its arena.
 * Source: rapidsai/rmm mr/detail/arena.hpp and arena_memory_resource_impl.cpp, 2026 (without
 * RMM_ARENA_USE_SIZE_CLASSES).
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"
#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_UNIT UINT64_C(256)
#define SUPERBLOCK_LEAST (UINT64_C(1) << 20)
#define SPARES 2 /* superblocks that a request may need at most: of a new range, and the rest of a split one */

enum { OPTION_SIZE, OPTION_GROW };

static const struct varve_alloc_policy_option options[] = {
    {"size", "of the global arena, once and for all; 0: it grows", 0, 0, UINT64_C(1) << 60, true},
    {"grow", "what it grows by", UINT64_C(64) << 20, UINT64_C(2) << 20, UINT64_C(1) << 40, true},
    {.name = NULL},
};

struct superblock {
    struct arena *arena;
    struct block *blocks;     /* the lowest; the others follow by `next` */
    uint64_t addr, bytes;     /* of all its blocks */
    uint32_t range;           /* number of its range, in the order in which they came */
    uint64_t largest;         /* free block; 0: none */
    struct superblock *spare; /* while it is not used */
};

/* Superblocks by range and address; the largest free block is beside the pointer, since each search looks at all
 * that don't serve. */
struct arena {
    struct entry {
        uint64_t largest;
        struct superblock *superblock;
    } * entries;
    uint32_t count;
    size_t capacity;
};

/* Superblocks of all arenas fit into the global one. */
struct arenas {
    struct arena global;
    uint64_t size, grow;
    struct superblock *spares;
    uint32_t count; /* superblocks */
    bool has_size;  /* the one range of `size` has come */
};

static uint64_t arena_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, BLOCK_UNIT);
}

static uint64_t arena_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    uint64_t least = options[OPTION_GROW].initial;
    (void)config;
    return rounded > least ? rounding_up(rounded, ROUNDING_MIN_BLOCK) : least;
}

static int arena_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct arenas *arenas = calloc(1, sizeof(*arenas));
    if (arenas == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    arenas->size = rounding_up(values[OPTION_SIZE], ROUNDING_MIN_BLOCK);
    arenas->grow = rounding_up(values[OPTION_GROW], ROUNDING_MIN_BLOCK);
    alloc->backend_state = arenas;
    return VARVE_OK;
}

static struct superblock *superblock_of(const struct block *block)
{
    return (struct superblock *)(uintptr_t)block->backend_word; // NOLINT(performance-no-int-to-ptr)
}

static bool is_empty(const struct superblock *superblock)
{
    return superblock->largest == superblock->bytes;
}

/* ---- arenas: ordered lists ---- */

static int arena_reserve(struct arena *arena, uint32_t count)
{
    return ARRAY_GROW(arena->entries, arena->capacity, count) ? VARVE_OK : VARVE_ERROR_FULL;
}

static bool arena_is_before(const struct superblock *superblock, const struct superblock *other)
{
    return superblock->range != other->range ? superblock->range < other->range : superblock->addr < other->addr;
}

/* Where a superblock is, or would be. */
static uint32_t arena_find(const struct arena *arena, const struct superblock *superblock)
{
    uint32_t low = 0, high = arena->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (arena_is_before(arena->entries[middle].superblock, superblock)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void arena_insert(struct arena *arena, struct superblock *superblock)
{
    assert(arena != NULL && arena->count < arena->capacity);
    uint32_t at = arena_find(arena, superblock);
    memmove(&arena->entries[at + 1], &arena->entries[at], (arena->count - at) * sizeof(arena->entries[0]));
    arena->entries[at] = (struct entry){superblock->largest, superblock};
    arena->count++;
    superblock->arena = arena;
}

static void arena_remove(struct superblock *superblock)
{
    struct arena *arena = superblock->arena;
    assert(arena != NULL);
    uint32_t at = arena_find(arena, superblock);
    assert(arena->entries[at].superblock == superblock);
    arena->count--;
    memmove(&arena->entries[at], &arena->entries[at + 1], (arena->count - at) * sizeof(arena->entries[0]));
    superblock->arena = NULL;
}

static struct superblock *arena_first_fit(const struct arena *arena, uint64_t bytes)
{
    for (uint32_t i = 0; i < arena->count; i++) {
        if (arena->entries[i].largest >= bytes) {
            return arena->entries[i].superblock;
        }
    }
    return NULL;
}

/* ---- superblocks ---- */

static struct superblock *superblock_begin(struct arenas *arenas, struct block *block)
{
    struct superblock *superblock = arenas->spares;
    arenas->spares = superblock->spare;
    arenas->count++;
    *superblock =
        (struct superblock){.blocks = block, .addr = block->addr, .bytes = block->size, .range = block->segment_id};
    block->backend_word = (uintptr_t)superblock;
    return superblock;
}

static void superblock_end(struct arenas *arenas, struct superblock *superblock)
{
    superblock->spare = arenas->spares;
    arenas->spares = superblock;
    arenas->count--;
}

static void set_largest(struct superblock *superblock, uint64_t largest)
{
    struct arena *arena = superblock->arena;
    superblock->largest = largest;
    if (arena != NULL) {
        arena->entries[arena_find(arena, superblock)].largest = largest;
    }
}

static struct block *next_in(const struct superblock *superblock, const struct block *block)
{
    return block->next != NULL && superblock_of(block->next) == superblock ? block->next : NULL;
}

static void arena_put(struct varve_alloc *alloc, struct superblock *superblock, struct block *block)
{
    backend_put(alloc, block);
    if (block->size > superblock->largest) {
        set_largest(superblock, block->size);
    }
}

/* A held block absorbs a free neighbour of its superblock, which may be of another stream. */
static void arena_absorb(struct varve_alloc *alloc, struct superblock *superblock, struct block *block,
                         struct block *neighbour)
{
    if (neighbour == NULL || superblock_of(neighbour) != superblock ||
        !backend_take_for(alloc, neighbour, block->bins)) {
        return;
    }
    if (superblock->blocks == neighbour) {
        superblock->blocks = block;
    }
    backend_merge(alloc, block, neighbour);
}

static void find_largest(struct superblock *superblock)
{
    uint64_t largest = 0;
    for (const struct block *block = superblock->blocks; block != NULL; block = next_in(superblock, block)) {
        if (block->is_free && block->size > largest) {
            largest = block->size;
        }
    }
    set_largest(superblock, largest);
}

/* The lowest free block that serves, which there is, held and cut. NULL: the device can't let the
 * stream wait for it. */
static struct block *serve(struct varve_alloc *alloc, struct superblock *superblock, const struct wanted_block *wanted)
{
    uint64_t largest = superblock->largest;
    struct block *block = superblock->blocks;
    while (!block->is_free || block->size < wanted->rounded) {
        block = next_in(superblock, block);
    }
    if (!backend_take_for(alloc, block, wanted->bins)) {
        return NULL;
    }
    struct block *front = block;
    uint64_t found = block->size;
    if (found > wanted->rounded) {
        front = backend_cut(alloc, block, wanted->rounded);
        front->backend_word = block->backend_word;
        superblock->blocks = superblock->blocks == block ? front : superblock->blocks;
        arena_absorb(alloc, superblock, block, backend_free_behind(block));
        arena_put(alloc, superblock, block);
    }
    if (found == largest) {
        find_largest(superblock);
    }
    return front;
}

/* ---- the global arena ---- */

/* An empty superblock becomes two: the first has `bytes`. */
static void arena_split(struct varve_alloc *alloc, struct superblock *superblock, uint64_t bytes)
{
    struct arenas *arenas = alloc->backend_state;
    struct block *rest = superblock->blocks;
    backend_take(alloc, rest);
    struct block *front = backend_cut(alloc, rest, bytes);
    front->backend_word = (uintptr_t)superblock;
    superblock->blocks = front;
    superblock->bytes = bytes;
    backend_put(alloc, front);
    set_largest(superblock, bytes);
    struct superblock *tail = superblock_begin(arenas, rest);
    arena_insert(&arenas->global, tail);
    arena_put(alloc, tail, rest);
}

/* The lowest superblock of the global arena that has a free block of `bytes`, an empty one cut to
 * size. NULL: none has. */
static struct superblock *global_first_fit(struct varve_alloc *alloc, uint64_t bytes)
{
    struct arenas *arenas = alloc->backend_state;
    struct superblock *superblock = arena_first_fit(&arenas->global, bytes);
    uint64_t least = bytes > SUPERBLOCK_LEAST ? bytes : SUPERBLOCK_LEAST;
    if (superblock != NULL && is_empty(superblock) && superblock->bytes >= least + SUPERBLOCK_LEAST) {
        arena_split(alloc, superblock, least);
    }
    return superblock;
}

/* The superblock absorbs the one behind it, if both are empty and of the same range. False: not so, or the device can't
 * let one stream wait for the other. */
static bool absorb_behind(struct varve_alloc *alloc, struct superblock *superblock)
{
    struct arenas *arenas = alloc->backend_state;
    struct block *block = superblock->blocks, *next = is_empty(superblock) ? block->next : NULL;
    struct superblock *absorbed = next != NULL ? superblock_of(next) : NULL;
    if (absorbed == NULL || absorbed->arena != &arenas->global || !is_empty(absorbed) ||
        !backend_take_for(alloc, next, block->bins)) {
        return false;
    }
    arena_remove(absorbed);
    backend_take(alloc, block);
    backend_merge(alloc, block, next);
    superblock->bytes = block->size;
    backend_put(alloc, block);
    set_largest(superblock, block->size);
    superblock_end(arenas, absorbed);
    return true;
}

static void merge_empty(struct varve_alloc *alloc, struct superblock *superblock)
{
    struct arenas *arenas = alloc->backend_state;
    const struct block *before = superblock->blocks->prev;
    if (!is_empty(superblock)) {
        return;
    }
    absorb_behind(alloc, superblock);
    if (before != NULL && superblock_of(before)->arena == &arenas->global) {
        absorb_behind(alloc, superblock_of(before));
    }
}

/* All superblocks of the streams go to the global arena. */
static void arena_collect(struct varve_alloc *alloc)
{
    struct arenas *arenas = alloc->backend_state;
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        struct arena *arena = index->streams[i]->backend;
        while (arena != NULL && arena->count > 0) {
            struct superblock *superblock = arena->entries[0].superblock;
            arena_remove(superblock);
            arena_insert(&arenas->global, superblock);
            merge_empty(alloc, superblock);
        }
    }
}

/* Nothing fails half way: what a request may need is there before. */
static int arena_prepare(struct varve_alloc *alloc, struct stream_bins *bins)
{
    struct arenas *arenas = alloc->backend_state;
    struct superblock **spare = &arenas->spares;
    if (bins->backend == NULL) {
        bins->backend = calloc(1, sizeof(struct arena));
    }
    for (unsigned i = 0; i < SPARES; i++) {
        if (*spare == NULL && (*spare = calloc(1, sizeof(**spare))) == NULL) {
            return VARVE_ERROR_FULL;
        }
        spare = &(*spare)->spare;
    }
    if (bins->backend == NULL || arena_reserve(bins->backend, arenas->count + SPARES) != VARVE_OK ||
        arena_reserve(&arenas->global, arenas->count + SPARES) != VARVE_OK) {
        return VARVE_ERROR_FULL;
    }
    return backend_prepare(alloc, BACKEND_CUTS);
}

static int arena_grow(struct varve_alloc *alloc, struct request *request)
{
    struct arenas *arenas = alloc->backend_state;
    uint64_t wanted = rounding_up(request->wanted.rounded, ROUNDING_MIN_BLOCK);
    if (arenas->has_size) {
        return VARVE_ERROR_NO_MEMORY;
    }
    wanted = wanted > arenas->grow ? wanted : arenas->grow;
    wanted = arenas->size > 0 ? arenas->size : wanted;
    struct block *block = NULL;
    int error = backend_reserve(alloc, request, wanted, &block);
    if (error == VARVE_OK && arena_prepare(alloc, request->wanted.bins) != VARVE_OK) { /* others came in meanwhile */
        struct release_sum ignored = {0};
        backend_put(alloc, block);
        backend_give_back(alloc, block, VARVE_CAUSE_FREE, &ignored);
        error = VARVE_ERROR_FULL;
    }
    if (error != VARVE_OK) {
        return error;
    }
    arenas->has_size = arenas->size > 0;
    struct superblock *superblock = superblock_begin(arenas, block);
    arena_insert(&arenas->global, superblock);
    arena_put(alloc, superblock, block);
    return VARVE_OK;
}

/* ---- requests ---- */

static struct block *arena_find_block(struct varve_alloc *alloc, const struct wanted_block *wanted)
{
    struct arena *own = wanted->bins->backend;
    assert(own != NULL);
    struct superblock *superblock;
    if (wanted->rounded > SUPERBLOCK_LEAST) {
        superblock = global_first_fit(alloc, wanted->rounded);
    } else {
        superblock = arena_first_fit(own, wanted->rounded);
        if (superblock == NULL && (superblock = global_first_fit(alloc, wanted->rounded)) != NULL) {
            arena_remove(superblock);
            arena_insert(own, superblock);
        }
    }
    return superblock != NULL ? serve(alloc, superblock, wanted) : NULL;
}

static int arena_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    int error = arena_prepare(alloc, request->wanted.bins);
    if (error != VARVE_OK) {
        return error;
    }
    *block_out = arena_find_block(alloc, &request->wanted);
    if (*block_out != NULL || !may_grow) {
        return VARVE_OK;
    }
    error = arena_grow(alloc, request);
    if (error != VARVE_OK && error != VARVE_ERROR_NO_MEMORY) {
        return error;
    }
    if (error == VARVE_ERROR_NO_MEMORY) {
        arena_collect(alloc);
    }
    *block_out = arena_find_block(alloc, &request->wanted);
    return *block_out != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

static void arena_free(struct varve_alloc *alloc, struct block *block)
{
    struct arenas *arenas = alloc->backend_state;
    struct superblock *superblock = superblock_of(block);
    arena_absorb(alloc, superblock, block, backend_free_before(block));
    arena_absorb(alloc, superblock, block, backend_free_behind(block));
    arena_put(alloc, superblock, block);
    if (superblock->arena == &arenas->global) {
        merge_empty(alloc, superblock);
    }
}

static int arena_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    struct arenas *arenas = alloc->backend_state;
    arena_collect(alloc);
    uint32_t i = 0;
    while (arenas->size == 0 && i < arenas->global.count) {
        struct superblock *superblock = arenas->global.entries[i].superblock;
        bool is_whole = is_empty(superblock) && !block_is_split(superblock->blocks);
        if (is_whole && backend_give_back(alloc, superblock->blocks, cause, sum)) {
            arena_remove(superblock);
            superblock_end(arenas, superblock);
        } else {
            i++;
        }
    }
    return VARVE_OK;
}

/* ---- the end, and checks ---- */

static void arena_end(struct arenas *arenas, struct arena *arena)
{
    for (uint32_t i = 0; i < arena->count; i++) {
        superblock_end(arenas, arena->entries[i].superblock);
    }
    free(arena->entries);
}

static void arena_close(struct varve_alloc *alloc)
{
    struct arenas *arenas = alloc->backend_state;
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; arenas != NULL && i < index->stream_count; i++) {
        struct stream_bins *bins = index->streams[i];
        if (bins->backend != NULL) {
            arena_end(arenas, bins->backend);
            free(bins->backend);
            bins->backend = NULL;
        }
    }
    if (arenas != NULL) {
        arena_end(arenas, &arenas->global);
    }
    while (arenas != NULL && arenas->spares != NULL) {
        struct superblock *spare = arenas->spares;
        arenas->spares = spare->spare;
        free(spare);
    }
}

/* Its blocks fill it, free neighbours of one stream are merged, `largest` is right. */
static bool superblock_is_right(const struct superblock *superblock, uint64_t *free_blocks)
{
    const struct block *block = superblock->blocks;
    if (block->addr != superblock->addr || superblock_of(block) != superblock ||
        (block->prev != NULL && superblock_of(block->prev) == superblock)) {
        return false;
    }
    uint64_t bytes = 0, largest = 0;
    for (; block != NULL; block = next_in(superblock, block)) {
        const struct block *next = next_in(superblock, block);
        bytes += block->size;
        if (block->is_free) {
            ++*free_blocks;
            largest = block->size > largest ? block->size : largest;
            if (next != NULL && next->is_free && next->bins == block->bins) {
                return false;
            }
        }
    }
    return bytes == superblock->bytes && largest == superblock->largest;
}

static bool arena_is_right(const struct arena *arena, uint64_t *superblocks, uint64_t *free_blocks)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < arena->count; i++) {
        const struct superblock *superblock = arena->entries[i].superblock;
        is_right = superblock->arena == arena && arena->entries[i].largest == superblock->largest &&
                   (i == 0 || arena_is_before(arena->entries[i - 1].superblock, superblock)) &&
                   superblock_is_right(superblock, free_blocks);
    }
    *superblocks += arena->count;
    return is_right;
}

static int arena_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct arenas *arenas = alloc->backend_state;
    const struct free_index *index = &alloc->large.index;
    uint64_t superblocks = 0, free_blocks = 0, in_index = 0;
    bool is_right = arena_is_right(&arenas->global, &superblocks, &free_blocks);
    for (uint32_t i = 0; is_right && i < index->stream_count; i++) {
        const struct arena *arena = index->streams[i]->backend;
        in_index += index->streams[i]->blocks;
        is_right = arena == NULL || arena_is_right(arena, &superblocks, &free_blocks);
    }
    return is_right && superblocks == arenas->count && free_blocks == in_index
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_CORRUPT, "an arena is wrong");
}

static const struct pool_backend backend = {
    .options = options,
    .open = arena_open,
    .alloc = arena_alloc,
    .free = arena_free,
    .release = arena_release,
    .check = arena_check,
    .close = arena_close,
};

const struct alloc_policy policy_arena = {
    .name = "arena",
    .meaning = "RMM's arena, ordered by address: its size, once and for all, or (0) what it grows by.",
    .block_size = arena_block_size,
    .is_small = backend_is_small,
    .segment_size = arena_segment_size,
    .backend = &backend,
};
