/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker of the free index: every block is in the bin of its size and found from the root by links that
 * agree in both directions, in strictly rising order, under a parent of no lower priority; bitmaps say which
 * bins have blocks; counts and mapped bytes add up. It reads everything, so only tests and debug builds call
 * it.
 */
#include "alloc/index/free_index.h"

/* Deeper than any treap that fits a machine; links that form a circle end here. */
#define DEPTH_MAX 256U

struct walk {
    const struct index_stream *home;
    const struct block *last; /* visited, in order */
    uint64_t counted;
    unsigned bin;
};

static bool is_node_sound(const struct walk *walk, const struct block *block, const struct block *up)
{
    return block->up == up && block->is_free && block->home == walk->home &&
           index_bin_of(block->size) == walk->bin &&
           ((up == NULL && block->left == NULL && block->right == NULL) || /* alone: it has no priority */
            (block->balance == index_priority_of(block->addr) &&
             (up == NULL || block->balance <= up->balance)));
}

static bool is_tree_sound(struct walk *walk, const struct block *block, const struct block *up,
                          unsigned depth)
{
    if (block == NULL) {
        return true;
    }
    if (depth > DEPTH_MAX || !is_node_sound(walk, block, up) ||
        !is_tree_sound(walk, block->left, block, depth + 1)) {
        return false;
    }
    if (walk->last != NULL && !index_is_before(walk->last, block->size, block->addr)) {
        return false;
    }
    walk->last = block;
    walk->counted++;
    return walk->counted <= walk->home->blocks && is_tree_sound(walk, block->right, block, depth + 1);
}

static int stream_check(const struct index_stream *home, struct varve_message *message)
{
    struct walk walk = {.home = home};
    for (; walk.bin < INDEX_BIN_COUNT; walk.bin++) {
        unsigned word = walk.bin / 64;
        const struct block *root = home->bins[walk.bin];
        bool is_marked = (home->words[word] >> walk.bin % 64 & 1) != 0;
        bool is_summed = (home->summary >> word & 1) != 0;
        if (is_marked != (root != NULL) || is_summed != (home->words[word] != 0) ||
            !is_tree_sound(&walk, root, NULL, 1)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "free index: stream 0x%llx, bin %u, after %llu blocks of %llu",
                                     (unsigned long long)home->handle, walk.bin,
                                     (unsigned long long)walk.counted, (unsigned long long)home->blocks);
        }
    }
    if (walk.counted != home->blocks || home->summary >> INDEX_WORD_COUNT != 0) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "free index: stream 0x%llx has %llu blocks, counted %llu",
                                 (unsigned long long)home->handle, (unsigned long long)home->blocks,
                                 (unsigned long long)walk.counted);
    }
    return VARVE_OK;
}

int free_index_check(const struct free_index *index, struct varve_message *message)
{
    uint64_t blocks = 0;
    uint64_t taken = 0;
    uint64_t bytes = index->stream_capacity * sizeof(struct index_stream *);
    for (const struct index_chunk *chunk = index->chunks; chunk != NULL; chunk = chunk->next) {
        taken += chunk->used;
        bytes += INDEX_CHUNK_BYTES;
    }
    bool is_recent_found = index->recent == NULL;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct index_stream *home = index->streams[i];
        if (home->position != i || home->index != index ||
            (i > 0 && index->streams[i - 1]->handle >= home->handle)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "free index: stream %u of %u is misplaced",
                                     i, index->stream_count);
        }
        int code = stream_check(home, message);
        if (code != VARVE_OK) {
            return code;
        }
        blocks += home->blocks;
        is_recent_found |= home == index->recent;
    }
    if (blocks != index->blocks || taken != index->stream_count || bytes != index->mapped_bytes ||
        index->stream_count > index->stream_capacity || !is_recent_found) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "free index: %llu blocks, counted %llu; %u streams, %llu taken; %llu bytes, "
                                 "counted %llu",
                                 (unsigned long long)index->blocks, (unsigned long long)blocks,
                                 index->stream_count, (unsigned long long)taken,
                                 (unsigned long long)index->mapped_bytes, (unsigned long long)bytes);
    }
    return VARVE_OK;
}
