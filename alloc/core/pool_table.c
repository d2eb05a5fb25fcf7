/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pool a request goes to, and how private pools come and go. A pool without references stays in the list
 * of freeable ones until a release of cached segments finds nothing in it.
 */
#include "alloc/core/allocator_emit.h"
#include "alloc/core/allocator_state.h"
#include "base/error.h"
#include "base/grown_array.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <stdlib.h>

#define STREAM_NUMBER_MAX 65535U
#define POOL_NUMBER_MAX 65535U

void pool_init(struct varve_alloc *alloc, struct pool *pool, struct private_pool *owner, bool is_small)
{
    *pool = (struct pool){.owner = owner, .is_small = is_small};
    pool->number = (uint16_t)(2 * (alloc->pool_numbers / 2) + is_small);
    alloc->pool_numbers += alloc->pool_numbers < POOL_NUMBER_MAX;
}

struct private_pool *private_pool_find(const struct varve_alloc *alloc, struct varve_pool_id id)
{
    struct private_pool *pool = alloc->private_pools;
    while (pool != NULL && (pool->id.capture != id.capture || pool->id.user != id.user)) {
        pool = pool->next;
    }
    return pool;
}

static bool is_lower(const struct varve_pool_id *a, const struct varve_pool_id *b)
{
    return a->capture != b->capture ? a->capture < b->capture : a->user < b->user;
}

struct private_pool *private_pool_make(struct varve_alloc *alloc, struct varve_pool_id id)
{
    struct private_pool **link = &alloc->private_pools;
    struct private_pool *pool = private_pool_find(alloc, id);
    if (pool != NULL) {
        return pool;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return NULL;
    }
    pool->id = id;
    pool_init(alloc, &pool->large, pool, false);
    pool_init(alloc, &pool->small, pool, true);
    while (*link != NULL && is_lower(&(*link)->id, &id)) {
        link = &(*link)->next;
    }
    pool->next = *link;
    *link = pool;
    return pool;
}

static void freeable_remove(struct varve_alloc *alloc, const struct private_pool *pool)
{
    struct private_pool **link = &alloc->freeable_pools;
    while (*link != NULL && *link != pool) {
        link = &(*link)->next_freeable;
    }
    if (*link != NULL) {
        *link = pool->next_freeable;
    }
}

static void freeable_append(struct varve_alloc *alloc, struct private_pool *pool)
{
    struct private_pool **link = &alloc->freeable_pools;
    while (*link != NULL) {
        link = &(*link)->next_freeable;
    }
    pool->next_freeable = NULL;
    *link = pool;
}

static void private_pool_incref(struct varve_alloc *alloc, struct private_pool *pool)
{
    if (pool->use_count++ == 0) {
        freeable_remove(alloc, pool);
    }
}

/* An expandable segment is there as long as any of its blocks, in use, free or unmapped. */
static bool has_segments(const struct varve_alloc *alloc, const struct private_pool *pool)
{
    for (const struct expandable *segment = alloc->expandables; segment != NULL; segment = segment->next) {
        if (segment->pool == &pool->large || segment->pool == &pool->small) {
            return true;
        }
    }
    return pool->segment_count > 0;
}

static bool pool_table_is_captured(const struct varve_alloc *alloc, const struct private_pool *pool)
{
    for (uint32_t i = 0; i < alloc->capture_count; i++) {
        if (alloc->captures[i].pool == pool) {
            return true;
        }
    }
    return false;
}

static void private_pool_free(struct private_pool *pool)
{
    free_index_close(&pool->large.index);
    free_index_close(&pool->small.index);
    free(pool);
}

void private_pools_close(struct varve_alloc *alloc)
{
    while (alloc->private_pools != NULL) {
        struct private_pool *pool = alloc->private_pools;
        alloc->private_pools = pool->next;
        private_pool_free(pool);
    }
}

void private_pools_erase_empty(struct varve_alloc *alloc)
{
    struct private_pool **link = &alloc->private_pools;
    while (*link != NULL) {
        struct private_pool *pool = *link;
        /* the properties of a pool outlive its blocks */
        if (pool->use_count > 0 || pool->request_count > 0 || pool->large.no_split || pool->use_on_oom ||
            has_segments(alloc, pool) || pool_table_is_captured(alloc, pool)) {
            link = &pool->next;
            continue;
        }
        freeable_remove(alloc, pool);
        *link = pool->next;
        private_pool_free(pool);
    }
}

struct pool *pool_of_captures(struct varve_alloc *alloc, uint64_t stream, bool is_small)
{
    for (uint32_t i = alloc->capture_count; i-- > 0;) {
        const struct capture *capture = &alloc->captures[i];
        if (capture->filter == NULL || capture->filter(capture->context, stream)) {
            return is_small ? &capture->pool->small : &capture->pool->large;
        }
    }
    return is_small ? &alloc->small : &alloc->large;
}

/* Numbers in order of first appearance; the default stream is 0. Beyond the field's width all share one. */
static int number_stream(struct varve_alloc *alloc, uint64_t stream, uint16_t *number_out)
{
    if (emits_names(alloc)) {
        *number_out = (uint16_t)varve_stream_number((unsigned)alloc->device->index, stream);
        return VARVE_OK;
    }
    for (uint32_t i = 0; i < alloc->stream_count; i++) {
        if (alloc->streams[i] == stream) {
            *number_out = (uint16_t)i;
            return VARVE_OK;
        }
    }
    if (alloc->stream_count >= STREAM_NUMBER_MAX) {
        *number_out = STREAM_NUMBER_MAX;
        return VARVE_OK;
    }
    if (!ARRAY_GROW(alloc->streams, alloc->stream_capacity, alloc->stream_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *number_out = (uint16_t)alloc->stream_count;
    alloc->streams[alloc->stream_count++] = stream;
    return VARVE_OK;
}

struct stream_bins *pool_bins(struct varve_alloc *alloc, struct pool *pool, uint64_t stream)
{
    struct stream_bins *bins = free_index_find_bins(&pool->index, stream);
    bool is_first = pool->index.stream_count == 0;
    uint16_t number;

    /* the number first: a stream that is in the index has one */
    if (bins != NULL || number_stream(alloc, stream, &number) != VARVE_OK) {
        return bins;
    }
    bins = free_index_bins(&pool->index, pool, stream);
    if (bins != NULL) {
        bins->number = number;
        bins->record_last = varve_record_last(0, pool->number, (unsigned)alloc->device->index & 0xffU, 0);
        if (is_first && emits_names(alloc)) {
            emit_pool(alloc, pool); /* every record of the pool has a stream of it */
        }
    }
    return bins;
}

struct pool *pool_each(struct varve_alloc *alloc, const struct pool *pool)
{
    if (pool == NULL) {
        return &alloc->large;
    }
    if (pool == &alloc->large) {
        return &alloc->small;
    }
    if (!pool->is_small) {
        return &pool->owner->small;
    }
    const struct private_pool *next = pool->owner == NULL ? alloc->private_pools : pool->owner->next;
    return next != NULL ? (struct pool *)&next->large : NULL;
}

/* ---- public ---- */

int varve_alloc_resolve_record(struct varve_alloc *alloc, const struct varve_record *record, uint64_t *stream_out,
                               struct varve_pool_id *pool_out)
{
    uint16_t number = (uint16_t)varve_record_stream(record);
    *stream_out = 0;
    *pool_out = (struct varve_pool_id){0, 0};
    alloc_lock(alloc);
    int error = VARVE_ERROR_NOT_FOUND;
    for (const struct pool *pool = pool_each(alloc, NULL); error != VARVE_OK && pool != NULL;
         pool = pool_each(alloc, pool)) {
        for (uint32_t i = 0; pool->number == record->pool && i < pool->index.stream_count; i++) {
            if (pool->index.streams[i]->number == number) {
                *stream_out = pool->index.streams[i]->stream;
                *pool_out = pool->owner != NULL ? pool->owner->id : *pool_out;
                error = VARVE_OK;
                break;
            }
        }
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_begin_allocate_to_pool(struct varve_alloc *alloc, struct varve_pool_id id,
                                       bool (*filter)(void *context, uint64_t stream), void *context)
{
    if (id.capture == 0 && id.user == 0) {
        return VARVE_ERROR_INVALID;
    }
    alloc_lock(alloc);
    int error = VARVE_OK;
    for (uint32_t i = 0; i < alloc->capture_count; i++) {
        const struct varve_pool_id *other = &alloc->captures[i].pool->id;
        error = other->capture == id.capture && other->user == id.user ? VARVE_ERROR_BUSY : error;
    }
    if (error == VARVE_OK && alloc->capture_count == CAPTURES_MAX) {
        error = VARVE_ERROR_FULL;
    }
    struct private_pool *pool = error == VARVE_OK ? private_pool_make(alloc, id) : NULL;
    if (pool != NULL) {
        private_pool_incref(alloc, pool);
        alloc->captures[alloc->capture_count++] = (struct capture){pool, filter, context};
    } else if (error == VARVE_OK) {
        error = VARVE_ERROR_NO_MEMORY;
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_end_allocate_to_pool(struct varve_alloc *alloc, struct varve_pool_id id)
{
    alloc_lock(alloc);
    int error = VARVE_ERROR_NOT_FOUND;
    for (uint32_t i = 0; i < alloc->capture_count; i++) {
        const struct varve_pool_id *other = &alloc->captures[i].pool->id;
        if (other->capture == id.capture && other->user == id.user) {
            for (uint32_t k = i; k + 1 < alloc->capture_count; k++) {
                alloc->captures[k] = alloc->captures[k + 1];
            }
            alloc->capture_count--;
            error = VARVE_OK;
            break;
        }
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_create_or_incref_pool(struct varve_alloc *alloc, struct varve_pool_id id)
{
    if (id.capture == 0 && id.user == 0) {
        return VARVE_ERROR_INVALID;
    }
    alloc_lock(alloc);
    struct private_pool *pool = private_pool_make(alloc, id);
    if (pool != NULL) {
        private_pool_incref(alloc, pool);
    }
    alloc_unlock(alloc);
    return pool != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

uint32_t varve_alloc_pool_use_count(struct varve_alloc *alloc, struct varve_pool_id id)
{
    alloc_lock(alloc);
    const struct private_pool *pool = private_pool_find(alloc, id);
    uint32_t count = pool != NULL ? pool->use_count : 0;
    alloc_unlock(alloc);
    return count;
}

int varve_alloc_release_pool(struct varve_alloc *alloc, struct varve_pool_id id)
{
    int error = VARVE_OK;
    alloc_lock(alloc);
    struct private_pool *pool = private_pool_find(alloc, id);
    if (pool == NULL) {
        error = VARVE_ERROR_NOT_FOUND;
    } else if (pool->use_count == 0) {
        error = VARVE_ERROR_INVALID;
    } else if (--pool->use_count == 0) {
        freeable_append(alloc, pool);
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_set_no_split(struct varve_alloc *alloc, struct varve_pool_id id)
{
    alloc_lock(alloc);
    struct private_pool *pool = private_pool_find(alloc, id);
    if (pool != NULL) {
        pool->large.no_split = pool->small.no_split = true;
    }
    alloc_unlock(alloc);
    return pool != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

int varve_alloc_set_use_on_oom(struct varve_alloc *alloc, struct varve_pool_id id, bool is_used)
{
    alloc_lock(alloc);
    struct private_pool *pool = private_pool_find(alloc, id);
    if (pool != NULL) {
        pool->use_on_oom = is_used;
    }
    alloc_unlock(alloc);
    return pool != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}
