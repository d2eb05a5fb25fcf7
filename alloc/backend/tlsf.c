/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-level segregated fit: good fit in constant time. Free blocks are in lists by size: the first level is the power
 * of two, the second cuts each of those into 2^L equal ranges (option `second`, L = 5), and a bitmap for each level
 * says which lists are not empty. A request is rounded up to where a range begins, so that any block of that list or a
 * later one serves, and takes the block that came last into the first list that has any. The block is cut to the
 * rounded size, so that a block that comes back serves the same request again (an implementation that does not cut so,
 * mattconte/tlsf, does not find it again). A freed block merges with its free neighbours at once. What rounding costs
 * is less than 1/2^L of a block.
 *
 * Made for memory of one fixed size; here more comes by segments of option `segment`, or of the request if that is
 * larger (tlsf_add_pool), and wholly free ones go back on empty_cache and when a request fails (tlsf_remove_pool). Each
 * stream has lists of its own. There are no headers in GPU memory: sizes are multiples of 512 bytes, and
 * the least rest too.
 *
 * Source: Masmano, Ripoll, Crespo, Real: TLSF, a new dynamic memory allocator for real-time systems, ECRTS 2004, and
 * their tlsf.c (MAPPING_SEARCH).
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>

#define FIRST_COUNT 54U /* lists' first level: sizes are below 2^61, in units of 2^9 */
#define SECOND_MAX 64U

enum { OPTION_SEGMENT, OPTION_SECOND };

static const struct varve_alloc_policy_option options[] = {
    {"segment", "size of a new segment", UINT64_C(64) << 20, UINT64_C(1) << 20, UINT64_C(1) << 40, true},
    {"second", "log2 of the number of lists for each power of two", 5, 1, 6, false},
    {.name = NULL},
};

struct tlsf {
    uint64_t segment;
    unsigned second; /* log2 */
};

/* Of a stream: bins->backend. */
struct lists {
    uint64_t first;               /* bit f: second[f] is not 0 */
    uint64_t second[FIRST_COUNT]; /* bit s: heads[f][s] is not NULL */
    struct block *heads[FIRST_COUNT][SECOND_MAX];
};

struct place {
    unsigned first, second;
};

static uint64_t tlsf_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounded > options[OPTION_SEGMENT].initial ? rounded : options[OPTION_SEGMENT].initial;
}

static int tlsf_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct tlsf *tlsf = malloc(sizeof(*tlsf));
    if (tlsf == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *tlsf = (struct tlsf){rounding_up(values[OPTION_SEGMENT], ROUNDING_MIN_BLOCK), (unsigned)values[OPTION_SECOND]};
    alloc->backend_state = tlsf;
    return VARVE_OK;
}

static void tlsf_close(struct varve_alloc *alloc)
{
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        free(index->streams[i]->backend);
        index->streams[i]->backend = NULL;
    }
}

/* ---- lists ---- */

static unsigned log2_of(uint64_t value)
{
    return 63 - (unsigned)__builtin_clzll(value);
}

/* The list of a size: mapping_insert. Sizes of fewer than 2^L units have a list each. */
static struct place tlsf_place_of(const struct tlsf *tlsf, uint64_t bytes)
{
    uint64_t units = bytes / ROUNDING_MIN_BLOCK;
    if (units >> tlsf->second == 0) {
        return (struct place){0, (unsigned)units};
    }
    unsigned log2 = log2_of(units);
    return (struct place){log2 - tlsf->second + 1,
                          (unsigned)((units >> (log2 - tlsf->second)) - (UINT64_C(1) << tlsf->second))};
}

/* Up to where a range begins: mapping_search. */
static uint64_t rounded_up(const struct tlsf *tlsf, uint64_t bytes)
{
    uint64_t units = bytes / ROUNDING_MIN_BLOCK;
    unsigned log2 = log2_of(units);
    return log2 < tlsf->second ? bytes : rounding_up(bytes, ROUNDING_MIN_BLOCK << (log2 - tlsf->second));
}

/* `bytes` has been rounded up. */
static struct block *tlsf_find(const struct tlsf *tlsf, const struct lists *lists, uint64_t bytes)
{
    struct place place = tlsf_place_of(tlsf, bytes);
    uint64_t second = lists->second[place.first] & (~UINT64_C(0) << place.second);
    if (second == 0) {
        uint64_t first = lists->first & (~UINT64_C(0) << (place.first + 1));
        if (first == 0) {
            return NULL;
        }
        place.first = (unsigned)__builtin_ctzll(first);
        second = lists->second[place.first];
    }
    return lists->heads[place.first][__builtin_ctzll(second)];
}

static void tlsf_put(struct varve_alloc *alloc, struct block *block)
{
    const struct tlsf *tlsf = alloc->backend_state;
    struct lists *lists = block->bins->backend;
    struct place place = tlsf_place_of(tlsf, block->size);
    struct block **head = &lists->heads[place.first][place.second];
    backend_put(alloc, block);
    block->list_prev = NULL;
    block->list_next = *head;
    if (*head != NULL) {
        (*head)->list_prev = block;
    }
    *head = block;
    lists->second[place.first] |= UINT64_C(1) << place.second;
    lists->first |= UINT64_C(1) << place.first;
}

static void unlink_free(const struct tlsf *tlsf, struct block *block)
{
    struct lists *lists = block->bins->backend;
    struct place place = tlsf_place_of(tlsf, block->size);
    if (block->list_next != NULL) {
        block->list_next->list_prev = block->list_prev;
    }
    if (block->list_prev != NULL) {
        block->list_prev->list_next = block->list_next;
        return;
    }
    lists->heads[place.first][place.second] = block->list_next;
    if (block->list_next == NULL) {
        lists->second[place.first] &= ~(UINT64_C(1) << place.second);
        if (lists->second[place.first] == 0) {
            lists->first &= ~(UINT64_C(1) << place.first);
        }
    }
}

static void tlsf_take(struct varve_alloc *alloc, struct block *block)
{
    unlink_free(alloc->backend_state, block);
    backend_take(alloc, block);
}

/* ---- requests ---- */

static int tlsf_prepare(struct varve_alloc *alloc, struct stream_bins *bins)
{
    if (bins->backend == NULL) {
        bins->backend = calloc(1, sizeof(struct lists));
    }
    return bins->backend != NULL ? backend_prepare(alloc, 1) : VARVE_ERROR_FULL;
}

static int tlsf_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    const struct tlsf *tlsf = alloc->backend_state;
    uint64_t wanted = rounded_up(tlsf, request->wanted.rounded);
    int error = tlsf_prepare(alloc, request->wanted.bins);
    struct block *block = error == VARVE_OK ? tlsf_find(tlsf, request->wanted.bins->backend, wanted) : NULL;
    if (block != NULL) {
        tlsf_take(alloc, block);
    } else if (error == VARVE_OK && may_grow) {
        error = backend_reserve(alloc, request, wanted > tlsf->segment ? wanted : tlsf->segment, &block);
    }
    if (block != NULL && block->size > wanted) {
        struct block *front = backend_cut(alloc, block, wanted);
        tlsf_put(alloc, block);
        block = front;
    }
    *block_out = block;
    return error;
}

static void tlsf_free(struct varve_alloc *alloc, struct block *block)
{
    struct block *neighbours[] = {backend_free_before(block), backend_free_behind(block)};
    for (unsigned i = 0; i < 2; i++) {
        if (neighbours[i] != NULL) {
            tlsf_take(alloc, neighbours[i]);
            backend_merge(alloc, block, neighbours[i]);
        }
    }
    tlsf_put(alloc, block);
}

static int tlsf_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    struct block *block = free_index_first(&alloc->large.index);
    while (block != NULL) {
        struct block *next = free_index_following(&alloc->large.index, block);
        if (!block_is_split(block)) {
            unlink_free(alloc->backend_state, block);
            if (!backend_give_back(alloc, block, cause, sum)) { /* it is still free */
                backend_take(alloc, block);
                tlsf_put(alloc, block);
            }
        }
        block = next;
    }
    return VARVE_OK;
}

/* ---- check ---- */

static bool list_is_right(const struct tlsf *tlsf, const struct lists *lists, struct place place, uint64_t *count)
{
    const struct block *block = lists->heads[place.first][place.second];
    if ((block != NULL) != ((lists->second[place.first] >> place.second & 1) != 0)) {
        return false;
    }
    const struct block *previous = NULL;
    for (; block != NULL; previous = block, block = block->list_next) {
        struct place own = tlsf_place_of(tlsf, block->size);
        ++*count;
        if (!block->is_free || block->list_prev != previous || block->bins->backend != lists ||
            own.first != place.first || own.second != place.second || backend_free_behind(block) != NULL) {
            return false;
        }
    }
    return true;
}

static int tlsf_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct lists *lists = index->streams[i]->backend;
        uint64_t count = 0;
        bool is_right = true;
        for (unsigned place = 0; is_right && lists != NULL && place < FIRST_COUNT * SECOND_MAX; place++) {
            struct place at = {place / SECOND_MAX, place % SECOND_MAX};
            is_right = list_is_right(alloc->backend_state, lists, at, &count) &&
                       (lists->first >> at.first & 1) == (lists->second[at.first] != 0);
        }
        if (!is_right || count != index->streams[i]->blocks) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a list of free blocks is wrong");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = tlsf_open,
    .alloc = tlsf_alloc,
    .free = tlsf_free,
    .release = tlsf_release,
    .check = tlsf_check,
    .close = tlsf_close,
};

const struct alloc_policy policy_tlsf = {
    .name = "tlsf",
    .meaning = "Two-level segregated fit, in constant time: the size of a segment, and log2 of the number of lists "
               "for each power of two.",
    .block_size = backend_block_size,
    .is_small = backend_is_small,
    .segment_size = tlsf_segment_size,
    .backend = &backend,
};
