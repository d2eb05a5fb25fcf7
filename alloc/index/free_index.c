/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free blocks in the order that searches want them: by stream, then size, then address. A stream has bins of
 * sizes: one per multiple of 512 bytes at first, then 32 per doubling; two levels of bitmaps find the next
 * bin that has a block. A bin with one block is a pointer; more form a treap, a search tree by (size,
 * address) whose parents have the higher priority, a hash of the address. So trees are as balanced as random
 * ones whatever the order of operations was, and insertion and removal need no rebalancing on the way up.
 * Most of the time bins have one block, the rest of a large segment or a hole of a size of its own: such a
 * block has no priority until a second one comes. Called under the allocator's lock by the policies'
 * searches, by free and by the release of segments.
 */
#include "alloc/index/hot.h"

/* ---- Bins ---- */

/* Last bin with blocks before `bin`; INDEX_BIN_COUNT if there is none. */
static unsigned bin_before(const struct index_stream *home, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits = word == INDEX_WORD_COUNT ? 0 : home->words[word] & ((UINT64_C(1) << bin % 64) - 1);
    if (bits == 0) {
        uint64_t words = home->summary & ((UINT64_C(1) << word) - 1);
        if (words == 0) {
            return INDEX_BIN_COUNT;
        }
        word = 63 - (unsigned)__builtin_clzll(words);
        bits = home->words[word];
    }
    return word * 64 + 63 - (unsigned)__builtin_clzll(bits);
}

/* ---- Trees ---- */

void free_index_tree_insert(struct block **root, struct block *block)
{
    struct block **link = root;
    struct block *up = NULL;
    uint32_t priority = index_priority_of(block->addr);
    block->balance = priority;
    if ((*root)->left == NULL && (*root)->right == NULL) {
        (*root)->balance = index_priority_of((*root)->addr); /* it was alone */
    }
    while (*link != NULL && (*link)->balance >= priority) {
        up = *link;
        assert(up->size != block->size || up->addr != block->addr);
        link = index_is_before(up, block->size, block->addr) ? &up->right : &up->left;
    }
    /* What is below that place comes below the block: cut along its key, both edges growing downwards. */
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
        if (left->balance >= right->balance) {
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
    struct index_stream **streams = pages_map(capacity * sizeof *streams);
    if (streams == NULL) {
        return false;
    }
    if (index->streams != NULL) {
        memcpy(streams, index->streams, index->stream_count * sizeof *streams);
        pages_unmap(index->streams, index->stream_capacity * sizeof *streams);
    }
    index->mapped_bytes += (capacity - index->stream_capacity) * sizeof *streams;
    index->streams = streams;
    index->stream_capacity = capacity;
    return true;
}

static struct index_stream *stream_take(struct free_index *index)
{
    if (index->chunks == NULL || index->chunks->used == INDEX_CHUNK_STREAMS) {
        struct index_chunk *chunk = pages_map(INDEX_CHUNK_BYTES);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = index->chunks;
        index->chunks = chunk;
        index->mapped_bytes += INDEX_CHUNK_BYTES;
    }
    return &index->chunks->streams[index->chunks->used++];
}

/* Position of the first stream whose handle is not below the given one. */
static uint32_t stream_position(const struct free_index *index, uint64_t handle)
{
    uint32_t first = 0;
    uint32_t end = index->stream_count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (index->streams[middle]->handle < handle) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

static struct index_stream *stream_add(struct free_index *index, struct pool *pool, uint64_t handle)
{
    uint32_t position = stream_position(index, handle);
    if (index->stream_count == index->stream_capacity && !streams_grow(index)) {
        return NULL;
    }
    struct index_stream *home = stream_take(index);
    if (home == NULL) {
        return NULL;
    }
    home->handle = handle;
    home->pool = pool;
    home->index = index;
    for (uint32_t i = index->stream_count; i > position; i--) {
        index->streams[i] = index->streams[i - 1];
        index->streams[i]->position = i;
    }
    index->streams[position] = home;
    home->position = position;
    index->stream_count++;
    return home;
}

struct index_stream *free_index_find_stream(struct free_index *index, uint64_t stream)
{
    struct index_stream *recent = index->recent;
    if (recent != NULL && recent->handle == stream) {
        return recent;
    }
    uint32_t position = stream_position(index, stream);
    if (position == index->stream_count || index->streams[position]->handle != stream) {
        return NULL;
    }
    index->recent = index->streams[position];
    return index->recent;
}

struct index_stream *free_index_stream(struct free_index *index, struct pool *pool, uint64_t stream)
{
    struct index_stream *home = free_index_find_stream(index, stream);
    if (home == NULL) {
        home = stream_add(index, pool, stream);
        if (home != NULL) {
            index->recent = home;
        }
    }
    return home;
}

uint64_t index_stream_handle(const struct index_stream *home)
{
    return home->handle;
}

uint16_t index_stream_number(const struct index_stream *home)
{
    return home->number;
}

void index_stream_set_number(struct index_stream *home, uint16_t number)
{
    home->number = number;
}

struct pool *index_stream_pool(const struct index_stream *home)
{
    return home->pool;
}

bool index_stream_has_freed(const struct index_stream *home)
{
    return home->has_freed;
}

void index_stream_set_freed(struct index_stream *home, bool has_freed)
{
    home->has_freed = has_freed;
}

/* ---- Blocks ---- */

void free_index_insert(struct free_index *index, struct block *block)
{
    index_insert(index, block);
}

void free_index_remove(struct free_index *index, struct block *block)
{
    index_remove(index, block);
}

void free_index_move(struct free_index *index, struct block *block, uint64_t addr, uint64_t size)
{
    assert(block->home->index == index);
    (void)index;
    index_move(block, addr, size);
}

void free_index_replace(struct free_index *index, struct block *old, struct block *block)
{
    assert(block->home->index == index);
    (void)index;
    index_replace(old, block);
}

struct block *free_index_bin_first(const struct index_stream *home, unsigned bin)
{
    return tree_first(home->bins[bin]);
}

struct block *free_index_lower_bound(const struct index_stream *home, uint64_t size, uint64_t addr)
{
    if (size >= FREE_INDEX_SIZE_LIMIT) {
        return NULL;
    }
    unsigned bin = index_bin_of(size);
    struct block *found = NULL;
    for (struct block *block = home->bins[bin]; block != NULL;) {
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
    bin = bin_from(home, bin + 1);
    return bin < INDEX_BIN_COUNT ? tree_first(home->bins[bin]) : NULL;
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
    unsigned bin = bin_from(block->home, index_bin_of(block->size) + 1);
    return bin < INDEX_BIN_COUNT ? tree_first(block->home->bins[bin]) : NULL;
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
    unsigned bin = bin_before(block->home, index_bin_of(block->size));
    return bin < INDEX_BIN_COUNT ? tree_last(block->home->bins[bin]) : NULL;
}

struct block *free_index_last(const struct index_stream *home)
{
    unsigned bin = bin_before(home, INDEX_BIN_COUNT);
    return bin < INDEX_BIN_COUNT ? tree_last(home->bins[bin]) : NULL;
}

static struct block *first_from(const struct free_index *index, uint32_t position)
{
    for (; position < index->stream_count; position++) {
        const struct index_stream *home = index->streams[position];
        if (home->blocks > 0) {
            return tree_first(home->bins[bin_from(home, 0)]);
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
    return next != NULL ? next : first_from(index, block->home->position + 1);
}

void free_index_close(struct free_index *index)
{
    while (index->chunks != NULL) {
        struct index_chunk *next = index->chunks->next;
        pages_unmap(index->chunks, INDEX_CHUNK_BYTES);
        index->chunks = next;
    }
    pages_unmap(index->streams, index->stream_capacity * sizeof(struct index_stream *));
    *index = (struct free_index){0};
}
