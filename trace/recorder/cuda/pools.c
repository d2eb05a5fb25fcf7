/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocation and the pools that it is served from. While a stream records a graph, what is
 * called on it becomes a part of the graph: such allocations are recorded with the cause `graph`, the memory
 * exists when the graph runs.
 */
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/entry.h"
#include "trace/recorder/cuda/hooks.h"
#include "trace/recorder/cuda/record.h"
#include "trace/recorder/cuda/resources.h"
#include "trace/trace.h"

#include <stddef.h>

static void begin_alloc(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_cause cause,
                        size_t bytes, void *stream, bool is_own)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_ALLOC_ASYNC, cause, VARVE_MEMORY_DEVICE);
    scope->call.is_alloc = true;
    scope->call.bytes = bytes;
    scope->is_captured = scope->is_recorded && cuda_is_captured(stream, is_own);
    if (scope->is_captured) {
        scope->call.cause = VARVE_CAUSE_GRAPH;
        scope->began_ns = varve_clock_monotonic_ns();
    }
}

static int end_alloc(struct cuda_scope *scope, int result, const uint64_t *addr_out, void *pool, void *stream,
                     bool is_own)
{
    if (cuda_returned(scope, result) == 0) {
        scope->call.addr = *addr_out;
    }
    cuda_resolve_stream(scope, stream, is_own);
    scope->has_context = scope->has_context || scope->is_captured; /* number 0: the pool can't be asked for */
    if (!scope->is_captured && (result == 0 || result == CUDA_RESULT_OUT_OF_MEMORY)) {
        cuda_resolve_pool(scope, pool);
    }
    return cuda_end(scope);
}

static int alloc(const struct cuda_entry *entry, uint64_t *addr_out, size_t bytes, void *stream, bool is_own)
{
    struct cuda_scope scope;

    begin_alloc(&scope, entry, VARVE_CAUSE_CU_MEM_ALLOC_ASYNC, bytes, stream, is_own);
    return end_alloc(&scope, CUDA_REAL(entry, cuMemAllocAsync)(addr_out, bytes, stream), addr_out, NULL,
                     stream, is_own);
}

static int alloc_from(const struct cuda_entry *entry, uint64_t *addr_out, size_t bytes, void *pool,
                      void *stream, bool is_own)
{
    struct cuda_scope scope;

    begin_alloc(&scope, entry, VARVE_CAUSE_CU_MEM_ALLOC_FROM_POOL_ASYNC, bytes, stream, is_own);
    return end_alloc(&scope, CUDA_REAL(entry, cuMemAllocFromPoolAsync)(addr_out, bytes, pool, stream),
                     addr_out, pool, stream, is_own);
}

static int free_ordered(const struct cuda_entry *entry, uint64_t addr, void *stream, bool is_own)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_FREE_ASYNC, VARVE_CAUSE_CU_MEM_FREE_ASYNC, VARVE_MEMORY_DEVICE);
    scope.is_recorded = scope.is_recorded && addr != 0;
    scope.call.addr = addr;
    scope.is_captured = scope.is_recorded && cuda_is_captured(stream, is_own);
    cuda_resolve_stream(&scope, stream, is_own);
    cuda_free_emit(&scope);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemFreeAsync)(addr, stream));
}

CUDA_ENTRIES(cuMemAllocAsync, (uint64_t * addr_out, size_t bytes, void *stream), (addr_out, bytes, stream),
             alloc(entry, addr_out, bytes, stream, false));
CUDA_ENTRIES(cuMemAllocAsync_ptsz, (uint64_t * addr_out, size_t bytes, void *stream),
             (addr_out, bytes, stream), alloc(entry, addr_out, bytes, stream, true));
CUDA_ENTRIES(cuMemAllocFromPoolAsync, (uint64_t * addr_out, size_t bytes, void *pool, void *stream),
             (addr_out, bytes, pool, stream), alloc_from(entry, addr_out, bytes, pool, stream, false));
CUDA_ENTRIES(cuMemAllocFromPoolAsync_ptsz, (uint64_t * addr_out, size_t bytes, void *pool, void *stream),
             (addr_out, bytes, pool, stream), alloc_from(entry, addr_out, bytes, pool, stream, true));
CUDA_ENTRIES(cuMemFreeAsync, (uint64_t addr, void *stream), (addr, stream),
             free_ordered(entry, addr, stream, false));
CUDA_ENTRIES(cuMemFreeAsync_ptsz, (uint64_t addr, void *stream), (addr, stream),
             free_ordered(entry, addr, stream, true));

/* ---- pools ---- */

static int create(const struct cuda_entry *entry, void **pool_out, const struct cuda_pool_properties *wanted)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_POOL, VARVE_CAUSE_CU_MEM_POOL_CREATE, VARVE_MEMORY_DEVICE);
    if (wanted != NULL) {
        cuda_resolve_location(&scope, &wanted->location);
        if (wanted->type == CUDA_ALLOCATION_MANAGED) {
            scope.call.memory = VARVE_MEMORY_MANAGED;
        }
    }
    if (cuda_returned(&scope, CUDA_REAL(entry, cuMemPoolCreate)(pool_out, wanted)) == 0) {
        scope.call.addr = (uintptr_t)*pool_out;
        cuda_pool_made(*pool_out, &scope);
        cuda_resolve_pool(&scope, *pool_out);
    }
    return cuda_end(&scope);
}

static int destroy(const struct cuda_entry *entry, void *pool)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_POOL, VARVE_CAUSE_CU_MEM_POOL_DESTROY, VARVE_MEMORY_DEVICE);
    cuda_resolve_pool(&scope, pool);
    scope.call.addr = (uintptr_t)pool;
    if (scope.is_recorded) {
        cuda_pool_gone(pool); /* another one may get the handle before this call has returned */
    }
    cuda_returned(&scope, CUDA_REAL(entry, cuMemPoolDestroy)(pool));
    return cuda_end(&scope);
}

static int trim(const struct cuda_entry *entry, void *pool, size_t bytes_to_keep)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_POOL, VARVE_CAUSE_CU_MEM_POOL_TRIM_TO, VARVE_MEMORY_DEVICE);
    cuda_resolve_pool(&scope, pool);
    scope.call.addr = (uintptr_t)pool;
    scope.call.arg = bytes_to_keep;
    cuda_returned(&scope, CUDA_REAL(entry, cuMemPoolTrimTo)(pool, bytes_to_keep));
    return cuda_end(&scope);
}

/* Of what can be set, only the bytes that a pool may keep are about memory. */
static int set_attribute(const struct cuda_entry *entry, void *pool, int attribute, void *value)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_POOL, VARVE_CAUSE_CU_MEM_POOL_SET_ATTRIBUTE,
               VARVE_MEMORY_DEVICE);
    scope.is_recorded = scope.is_recorded && attribute == CUDA_POOL_THRESHOLD && value != NULL;
    cuda_resolve_pool(&scope, pool);
    scope.call.addr = (uintptr_t)pool;
    if (scope.is_recorded && value != NULL) {
        scope.call.arg = *(const uint64_t *)value;
    }
    cuda_returned(&scope, CUDA_REAL(entry, cuMemPoolSetAttribute)(pool, attribute, value));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuMemPoolCreate, (void **pool_out, const struct cuda_pool_properties *wanted),
             (pool_out, wanted), create(entry, pool_out, wanted));
CUDA_ENTRIES(cuMemPoolDestroy, (void *pool), (pool), destroy(entry, pool));
CUDA_ENTRIES(cuMemPoolTrimTo, (void *pool, size_t bytes_to_keep), (pool, bytes_to_keep),
             trim(entry, pool, bytes_to_keep));
CUDA_ENTRIES(cuMemPoolSetAttribute, (void *pool, int attribute, void *value), (pool, attribute, value),
             set_attribute(entry, pool, attribute, value));
