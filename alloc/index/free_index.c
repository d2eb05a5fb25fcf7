/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes have a bin per multiple of 512 bytes at first, then 32 per doubling. A bin with one block is a pointer;
 * more form a treap, a search tree by (size, address) whose parents have the higher priority, a hash of the
 * address: as balanced as a random tree whatever the order of operations was, without rebalancing on the way
 * up. Most of the time a bin has one block, which has no priority until a second one comes.
 */
#include "alloc/index/free_index.h"
#include "alloc/index/block.h"

#include <string.h>

static bool index_is_before(const struct block *block, uint64_t size, uint64_t addr)
{
    return block->size < size || (block->size == size && block->addr < addr);
}

/* ---- Bins ---- */

/* Last bin with blocks before `bin`; INDEX_BIN_COUNT if there is none. */
static unsigned bin_before(const struct stream_bins *bins, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits = word == INDEX_WORD_COUNT ? 0 : bins->words[word] & ((UINT64_C(1) << bin % 64) - 1);
    if (bits == 0) {
        uint64_t words = bins->summary & ((UINT64_C(1) << word) - 1);
        if (words == 0) {
            return INDEX_BIN_COUNT;
        }
        word = 63 - (unsigned)__builtin_clzll(words);
        bits = bins->words[word];
    }
    return word * 64 + 63 - (unsigned)__builtin_clzll(bits);
}

/* ---- Trees ---- */

void free_index_tree_insert(struct block **root, struct block *block)
{
    struct block **link = root;
    uint32_t priority = index_priority_of(block->addr);
    block->priority = priority;
    block->is_alone = false;
    if ((*root)->is_alone) {
        (*root)->is_alone = false;
        (*root)->priority = index_priority_of((*root)->addr);
    }
    struct block *up = NULL;
    while (*link != NULL && (*link)->priority >= priority) {
        up = *link;
        assert(up->size != block->size || up->addr != block->addr);
        link = index_is_before(up, block->size, block->addr) ? &up->right : &up->left;
    }
    /* What is below that point comes below the block: cut along its key, both edges growing downwards. */
    struct block *rest = *link;
    struct block **left = &block->left;
    struct block **right = &block->right;
    struct block *left_up = block;
    struct block *right_up = block;
    *link = block;
    block->up = up;
    while (rest != NULL) {
        if (index_is_before(rest, block->size, block->addr)) {
            *left = rest;
            rest->up = left_up;
            left_up = rest;
            left = &rest->right;
            rest = rest->right;
        } else {
            *right = rest;
            rest->up = right_up;
            right_up = rest;
            right = &rest->left;
            rest = rest->left;
        }
    }
    *left = NULL;
    *right = NULL;
}

void free_index_tree_remove(struct block **root, struct block *block)
{
    struct block *up = block->up;
    struct block *left = block->left;
    struct block *right = block->right;
    struct block **link = up == NULL ? root : up->left == block ? &up->left : &up->right;
    assert(*link == block);
    while (left != NULL && right != NULL) {
        if (left->priority >= right->priority) {
            *link = left;
            left->up = up;
            up = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            right->up = up;
            up = right;
            link = &right->left;
            right = right->left;
        }
    }
    struct block *rest = left != NULL ? left : right;
    *link = rest;
    if (rest != NULL) {
        rest->up = up;
    }
    block->up = block->left = block->right = NULL;
    if (*root != NULL && (*root)->left == NULL && (*root)->right == NULL) {
        (*root)->is_alone = true;
    }
}

static struct block *tree_first(struct block *root)
{
    while (root->left != NULL) {
        root = root->left;
    }
    return root;
}

static struct block *tree_last(struct block *root)
{
    while (root->right != NULL) {
        root = root->right;
    }
    return root;
}

/* ---- Streams ---- */

static bool streams_grow(struct free_index *index)
{
    uint32_t capacity = index->stream_capacity == 0 ? 512 : 2 * index->stream_capacity;
    if (capacity < index->stream_capacity) {
        return false;
    }
    struct stream_bins **streams = pages_map(capacity * sizeof(*streams));
    if (streams == NULL) {
        return false;
    }
    if (index->streams != NULL) {
        memcpy(streams, index->streams, index->stream_count * sizeof(*streams));
        pages_unmap(index->streams, index->stream_capacity * sizeof(*streams));
    }
    index->streams = streams;
    index->stream_capacity = capacity;
    return true;
}

static struct stream_bins *bins_acquire(struct free_index *index)
{
    if (index->chunks == NULL || index->chunks->used == INDEX_CHUNK_STREAMS) {
        struct index_chunk *chunk = pages_map(INDEX_CHUNK_BYTES);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = index->chunks;
        index->chunks = chunk;
    }
    return &index->chunks->streams[index->chunks->used++];
}

/* Position of the first stream whose handle is not below the given one. */
static uint32_t free_index_stream_position(const struct free_index *index, uint64_t handle)
{
    uint32_t first = 0;
    uint32_t end = index->stream_count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (index->streams[middle]->stream < handle) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

static struct stream_bins *stream_add(struct free_index *index, struct pool *pool, uint64_t handle)
{
    uint32_t position = free_index_stream_position(index, handle);
    if (index->stream_count == index->stream_capacity && !streams_grow(index)) {
        return NULL;
    }
    struct stream_bins *bins = bins_acquire(index);
    if (bins == NULL) {
        return NULL;
    }
    bins->stream = handle;
    bins->pool = pool;
    bins->is_small = pool != NULL && pool->is_small;
    bins->index = index;
    for (uint32_t i = index->stream_count; i > position; i--) {
        index->streams[i] = index->streams[i - 1];
        index->streams[i]->position = i;
    }
    index->streams[position] = bins;
    bins->position = position;
    index->stream_count++;
    return bins;
}

struct stream_bins *free_index_find_bins(struct free_index *index, uint64_t stream)
{
    struct stream_bins *recent = index->recent;
    if (recent != NULL && recent->stream == stream) {
        return recent;
    }
    uint32_t position = free_index_stream_position(index, stream);
    if (position == index->stream_count || index->streams[position]->stream != stream) {
        return NULL;
    }
    index->recent = index->streams[position];
    return index->recent;
}

struct stream_bins *free_index_bins(struct free_index *index, struct pool *pool, uint64_t stream)
{
    struct stream_bins *bins = free_index_find_bins(index, stream);
    if (bins == NULL) {
        bins = stream_add(index, pool, stream);
        if (bins != NULL) {
            index->recent = bins;
        }
    }
    return bins;
}

/* ---- Blocks ---- */

struct block *free_index_bin_first(const struct stream_bins *bins, unsigned bin)
{
    return tree_first(bins->roots[bin]);
}

struct block *free_index_lower_bound(const struct stream_bins *bins, uint64_t size, uint64_t addr)
{
    if (size >= FREE_INDEX_SIZE_LIMIT) {
        return NULL;
    }
    unsigned bin = index_bin_of(size);
    struct block *found = NULL;
    for (struct block *block = bins->roots[bin]; block != NULL;) {
        if (index_is_before(block, size, addr)) {
            block = block->right;
        } else {
            found = block;
            block = block->left;
        }
    }
    if (found != NULL) {
        return found;
    }
    bin = bin_from(bins, bin + 1);
    return bin < INDEX_BIN_COUNT ? tree_first(bins->roots[bin]) : NULL;
}

struct block *free_index_next(const struct block *block)
{
    if (block->right != NULL) {
        return tree_first(block->right);
    }
    const struct block *below = block;
    struct block *up = block->up;
    while (up != NULL && up->right == below) {
        below = up;
        up = up->up;
    }
    if (up != NULL) {
        return up;
    }
    unsigned bin = bin_from(block->bins, index_bin_of(block->size) + 1);
    return bin < INDEX_BIN_COUNT ? tree_first(block->bins->roots[bin]) : NULL;
}

struct block *free_index_previous(const struct block *block)
{
    if (block->left != NULL) {
        return tree_last(block->left);
    }
    const struct block *below = block;
    struct block *up = block->up;
    while (up != NULL && up->left == below) {
        below = up;
        up = up->up;
    }
    if (up != NULL) {
        return up;
    }
    unsigned bin = bin_before(block->bins, index_bin_of(block->size));
    return bin < INDEX_BIN_COUNT ? tree_last(block->bins->roots[bin]) : NULL;
}

struct block *free_index_last(const struct stream_bins *bins)
{
    unsigned bin = bin_before(bins, INDEX_BIN_COUNT);
    return bin < INDEX_BIN_COUNT ? tree_last(bins->roots[bin]) : NULL;
}

static struct block *first_from(const struct free_index *index, uint32_t position)
{
    for (; position < index->stream_count; position++) {
        const struct stream_bins *bins = index->streams[position];
        if (bins->blocks > 0) {
            return tree_first(bins->roots[bin_from(bins, 0)]);
        }
    }
    return NULL;
}

struct block *free_index_first(const struct free_index *index)
{
    return first_from(index, 0);
}

struct block *free_index_following(const struct free_index *index, const struct block *block)
{
    struct block *next = free_index_next(block);
    return next != NULL ? next : first_from(index, block->bins->position + 1);
}

void free_index_close(struct free_index *index)
{
    while (index->chunks != NULL) {
        struct index_chunk *next = index->chunks->next;
        pages_unmap(index->chunks, INDEX_CHUNK_BYTES);
        index->chunks = next;
    }
    pages_unmap(index->streams, index->stream_capacity * sizeof(struct stream_bins *));
    *index = (struct free_index){0};
}

/* ---- The walker ---- */

/* Every block is in the bin of its size and found from the root by links that agree in both directions, in
 * strictly rising order, under a parent of no lower priority; bitmaps say which bins have blocks; counts and
 * mapped bytes add up. It reads everything, so only tests and debug builds call it. */

/* Deeper than any treap that fits a machine; links that form a circle end here. */
#define DEPTH_MAX 256U

struct walk {
    const struct stream_bins *bins;
    const struct block *last; /* visited, in order */
    uint64_t counted;
    unsigned bin;
};

static bool is_node_sound(const struct walk *walk, const struct block *block, const struct block *up)
{
    return block->up == up && block->is_free && block->bins == walk->bins && index_bin_of(block->size) == walk->bin &&
           block->bin == walk->bin && block->is_alone == (up == NULL && block->left == NULL && block->right == NULL) &&
           (block->is_alone || /* it has no priority */
            (block->priority == index_priority_of(block->addr) && (up == NULL || block->priority <= up->priority)));
}

static bool is_tree_sound(struct walk *walk, const struct block *block, const struct block *up, unsigned depth)
{
    if (block == NULL) {
        return true;
    }
    if (depth > DEPTH_MAX || !is_node_sound(walk, block, up) || !is_tree_sound(walk, block->left, block, depth + 1)) {
        return false;
    }
    if (walk->last != NULL && !index_is_before(walk->last, block->size, block->addr)) {
        return false;
    }
    walk->last = block;
    walk->counted++;
    return walk->counted <= walk->bins->blocks && is_tree_sound(walk, block->right, block, depth + 1);
}

static int stream_check(const struct stream_bins *bins, struct varve_message *message)
{
    struct walk walk = {.bins = bins};
    for (; walk.bin < INDEX_BIN_COUNT; walk.bin++) {
        unsigned word = walk.bin / 64;
        const struct block *root = bins->roots[walk.bin];
        bool is_marked = (bins->words[word] >> walk.bin % 64 & 1) != 0;
        bool is_summed = (bins->summary >> word & 1) != 0;
        if (is_marked != (root != NULL) || is_summed != (bins->words[word] != 0) ||
            !is_tree_sound(&walk, root, NULL, 1)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "free index: stream 0x%llx, bin %u, after %llu blocks of %llu",
                                     (unsigned long long)bins->stream, walk.bin, (unsigned long long)walk.counted,
                                     (unsigned long long)bins->blocks);
        }
    }
    if (walk.counted != bins->blocks || bins->summary >> INDEX_WORD_COUNT != 0) {
        return varve_message_set(
            message, VARVE_ERROR_CORRUPT, "free index: stream 0x%llx has %llu blocks, counted %llu",
            (unsigned long long)bins->stream, (unsigned long long)bins->blocks, (unsigned long long)walk.counted);
    }
    return VARVE_OK;
}

int free_index_check(const struct free_index *index, struct varve_message *message)
{
    uint64_t taken = 0;
    for (const struct index_chunk *chunk = index->chunks; chunk != NULL; chunk = chunk->next) {
        taken += chunk->used;
    }
    bool is_recent_found = index->recent == NULL;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct stream_bins *bins = index->streams[i];
        if (bins->position != i || bins->index != index || (i > 0 && index->streams[i - 1]->stream >= bins->stream)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "free index: stream %u of %u is misplaced", i,
                                     index->stream_count);
        }
        int error = stream_check(bins, message);
        if (error != VARVE_OK) {
            return error;
        }
        is_recent_found |= bins == index->recent;
    }
    if (taken != index->stream_count || index->stream_count > index->stream_capacity || !is_recent_found) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "free index: %u streams, %llu taken",
                                 index->stream_count, (unsigned long long)taken);
    }
    return VARVE_OK;
}
