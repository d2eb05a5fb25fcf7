/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary buddies: every block has 2^k bytes and lies at a multiple of 2^k in its segment; a request is rounded up to
 * the next power of two, takes the smallest free block that serves, lowest address first, and halves it until it fits;
 * a freed block merges with its buddy, the other half, as long as that is free. One pool for each stream; a segment has
 * the size of option `segment`, or of the request if that is larger. Source: Knowlton 1965; Knuth, TAOCP 1, 2.5.
 *
 * Proven bound, for each stream. Let P(k) be the most bytes that blocks of 2^k bytes have in use at one time, those
 * that wait for other streams with them. Then there are at no time more segments of 2^k bytes than
 *
 *     (P(0) + P(1) + … + P(k)) / 2^k, rounded up
 *
 * So with requests up to the size of a segment, reserved <= P(0) + … + P(k), rounded up to a whole segment, which is at
 * most the number of sizes in use times the most bytes in use (Knuth, TAOCP 1, 2.5, exercise 41: (r + 1) n); there are
 * sequences that need 1 + r/2 times as much. What requests are rounded up by comes on top: less than
 * half of each block.
 *
 * Proof. A block of 2^k bytes is in use (u of them), free (f), halved (h), and is a segment or one half of a block of
 * the next order, so u(k) + f(k) + h(k) = segments(k) + 2 h(k+1). A block is halved only if none of the orders below it
 * down to the wanted one is free; afterwards one of each is, the other half. So 2 h(k+1) <= u(k) + h(k) + 1 when h(k+1)
 * grows, and the most that h(k+1) ever is, is at most half of the sum of the most that u(k) and h(k) ever are, rounded
 * up. A segment comes only if none of its order is free, and is in use or halved then: segments(k) <= u(k) + h(k).
 * Merging and giving back only lower them.
 *
 * With release_lock_on_cudamalloc others may free, or get a segment too, while the device is asked; such a segment
 * (`late`) may be one more. buddy_check tests the bound.
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>
#include <string.h>

#define ORDERS 54U /* blocks of 2^9 to 2^62 bytes */

enum { OPTION_SEGMENT };

static const struct varve_alloc_policy_option options[] = {
    {"segment", "size of a new segment, rounded up to a power of two", 64 * (UINT64_C(1) << 20), UINT64_C(1) << 20,
     UINT64_C(1) << 40, true},
    {.name = NULL},
};

struct buddy {
    uint64_t segment; /* bytes of a new segment, a power of two */
    uint64_t steps;   /* requests begun and served, frees */
};

/* Of a stream, by order: bins->backend. */
struct orders {
    uint64_t in_use[ORDERS], peak[ORDERS]; /* blocks */
    uint64_t late[ORDERS];                 /* segments that came when others had acted meanwhile */
    uint64_t segments[ORDERS];             /* buddy_check's own */
};

static uint64_t power_from(uint64_t bytes)
{
    return bytes <= ROUNDING_MIN_BLOCK ? ROUNDING_MIN_BLOCK : UINT64_C(1) << (64 - __builtin_clzll(bytes - 1));
}

static uint64_t buddy_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return power_from(bytes);
}

static uint64_t buddy_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounded > options[OPTION_SEGMENT].initial ? rounded : options[OPTION_SEGMENT].initial;
}

static int buddy_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct buddy *buddy = malloc(sizeof(*buddy));
    if (buddy == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *buddy = (struct buddy){.segment = power_from(values[OPTION_SEGMENT])};
    alloc->backend_state = buddy;
    return VARVE_OK;
}

static void buddy_close(struct varve_alloc *alloc)
{
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        free(index->streams[i]->backend);
        index->streams[i]->backend = NULL;
    }
}

static unsigned order_of(uint64_t bytes)
{
    return (unsigned)__builtin_ctzll(bytes / ROUNDING_MIN_BLOCK);
}

/* A new segment is free at first: whatever happened meanwhile, the smallest free block is halved. */
static int buddy_grow(struct varve_alloc *alloc, struct request *request)
{
    struct buddy *buddy = alloc->backend_state;
    struct orders *orders = request->wanted.bins->backend;
    uint64_t wanted = request->wanted.rounded, steps = buddy->steps;
    struct block *block = NULL;
    int error = backend_reserve(alloc, request, wanted > buddy->segment ? wanted : buddy->segment, &block);
    if (error == VARVE_OK) {
        block->backend_word = 0;
        orders->late[order_of(block->size)] += buddy->steps != steps;
        backend_put(alloc, block);
    }
    return error;
}

/* backend_word: where the piece begins in its segment. The block of the request is cut out of a free one. */
static struct block *halve(struct varve_alloc *alloc, struct block *block, uint64_t wanted)
{
    backend_take(alloc, block);
    while (block->size > wanted) {
        uint64_t offset = block->backend_word, half = block->size / 2;
        struct block *front = backend_cut(alloc, block, half);
        front->backend_word = offset;
        block->backend_word = offset + half;
        backend_put(alloc, block);
        block = front;
    }
    return block;
}

static int buddy_prepare(struct varve_alloc *alloc, struct stream_bins *bins)
{
    if (bins->backend == NULL) {
        bins->backend = calloc(1, sizeof(struct orders));
    }
    return bins->backend != NULL ? backend_prepare(alloc, BACKEND_CUTS) : VARVE_ERROR_FULL;
}

static int buddy_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    struct buddy *buddy = alloc->backend_state;
    struct stream_bins *bins = request->wanted.bins;
    uint64_t wanted = request->wanted.rounded;
    unsigned order = order_of(wanted);
    int error = buddy_prepare(alloc, bins);
    if (error != VARVE_OK) {
        return error;
    }
    buddy->steps++;
    struct block *block = free_index_best(bins, wanted);
    if (block == NULL && may_grow) {
        error = buddy_grow(alloc, request);
        block = error == VARVE_OK ? free_index_best(bins, wanted) : NULL;
    }
    if (block != NULL) {
        struct orders *orders = bins->backend;
        *block_out = halve(alloc, block, wanted);
        buddy->steps++;
        orders->in_use[order]++;
        if (orders->peak[order] < orders->in_use[order]) {
            orders->peak[order] = orders->in_use[order];
        }
    }
    return error;
}

/* The other half of the block that both were cut from; NULL: it is not there in one piece. */
static struct block *buddy_of(const struct block *block)
{
    bool is_second = (block->backend_word & block->size) != 0;
    struct block *other = is_second ? backend_free_before(block) : backend_free_behind(block);
    return other != NULL && other->size == block->size ? other : NULL;
}

static void buddy_free(struct varve_alloc *alloc, struct block *block)
{
    struct orders *orders = block->bins->backend;
    struct buddy *buddy = alloc->backend_state;
    buddy->steps++;
    orders->in_use[order_of(block->size)]--;
    struct block *other;
    while ((other = buddy_of(block)) != NULL) {
        uint64_t offset = block->backend_word < other->backend_word ? block->backend_word : other->backend_word;
        backend_take(alloc, other);
        backend_merge(alloc, block, other);
        block->backend_word = offset;
    }
    backend_put(alloc, block);
}

/* The piece that begins a segment counts it. */
static void buddy_count_segment(const struct varve_alloc *alloc, const struct block *block)
{
    struct orders *orders = block->bins->backend;
    if (block_pool(block) == &alloc->large && block->prev == NULL) {
        orders->segments[order_of(block_bytes_onwards(block))]++;
    }
}

static void count_segments(const struct varve_alloc *alloc)
{
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        struct orders *orders = index->streams[i]->backend;
        if (orders != NULL) {
            memset(orders->segments, 0, sizeof(orders->segments));
        }
    }
    const struct block *block;
    for (block = free_index_first(index); block != NULL; block = free_index_following(index, block)) {
        buddy_count_segment(alloc, block);
    }
    uint64_t position = 0;
    while ((block = block_map_each(&alloc->map, &position)) != NULL) {
        if (!block->is_free) {
            buddy_count_segment(alloc, block);
        }
    }
}

/* `halved`: the most blocks of the order that can be at one time. */
static bool is_within_bound(const struct orders *orders)
{
    uint64_t halved = 0;
    bool is_within = true;
    for (unsigned k = 0; is_within && k < ORDERS; k++) {
        uint64_t most = orders->peak[k] + halved;
        is_within = orders->segments[k] <= most + orders->late[k];
        halved = (most + 1) / 2;
    }
    return is_within;
}

static int buddy_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct free_index *index = &alloc->large.index;
    const struct block *block = free_index_first(index);
    for (; block != NULL; block = free_index_following(index, block)) {
        if ((block->size & (block->size - 1)) != 0 || block->backend_word % block->size != 0) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a buddy of a wrong size or place");
        }
        if (buddy_of(block) != NULL) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free buddies were not merged");
        }
    }
    count_segments(alloc);
    for (uint32_t i = 0; i < index->stream_count; i++) {
        if (index->streams[i]->backend != NULL && !is_within_bound(index->streams[i]->backend)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "more segments than the proven bound of buddies");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = buddy_open,
    .alloc = buddy_alloc,
    .free = buddy_free,
    .release = backend_release_whole,
    .check = buddy_check,
    .close = buddy_close,
};

const struct alloc_policy policy_buddy = {
    .name = "buddy",
    .meaning = "Powers of two, halved and merged with their other half. What is reserved has a proven bound.",
    .block_size = buddy_block_size,
    .is_small = backend_is_small,
    .segment_size = buddy_segment_size,
    .backend = &backend,
};
