/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only storages in a GPU's memory have: work that goes on behind the call, captured streams, the thread's
 * context, a second GPU, more elements than 32 bits count. The rest is in test_storage_cuda.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/storage_rules.h"

#include <inttypes.h>

#define COUNT 300000

static struct varve_scalar number(int64_t value)
{
    return (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = value};
}

static struct varve_storage *empty_of(struct varve_memory *memory, enum varve_dtype dtype, unsigned ndim,
                                      const int64_t *shape)
{
    struct varve_storage *storage;
    rule_ok(varve_storage_empty(&(struct varve_storage_options){.memory = memory}, dtype, ndim, shape, &storage,
                                &rule_message));
    return storage;
}

/* COUNT elements of that value. */
static struct varve_storage *full_of(struct varve_memory *memory, int64_t value)
{
    const int64_t shape[] = {COUNT};
    struct varve_storage *storage = empty_of(memory, VARVE_DTYPE_I32, 1, shape);
    rule_ok(varve_storage_fill(storage, number(value), &rule_message));
    return storage;
}

/* All elements, once they are in host memory. */
static void expect_all(struct varve_storage *storage, int64_t value)
{
    struct varve_storage *host;
    rule_ok(varve_storage_to(storage, varve_memory_host(), VARVE_DTYPE_I64, &host, &rule_message));
    const int64_t *seen = varve_storage_data(host);
    for (int64_t i = 0; i < varve_storage_count(host); i++) {
        if (seen[i] != value) {
            fail_msg("element %" PRId64 " is %" PRId64 ", not %" PRId64, i, seen[i], value);
        }
    }
    rule_release(host);
}

/* ---- streams ---- */

/* The stream is held back, and the calls return. */
TEST(test_behind_the_call)
{
    uint64_t stream = gpu_stream();
    struct pool pool;
    rule_ok(pool_open(&pool, &pool_cuda, &rule_message));
    struct varve_storage *one = full_of(pool.memory, 1);
    struct varve_storage *other = full_of(pool.memory, 2);
    expect_all(other, 2); /* kernels are loaded, and memory is there: either may wait for all streams */
    struct gpu_gate gate;
    gpu_gate_shut(&gate, stream);
    rule_ok(varve_storage_copy_on(other, one, stream, &rule_message));
    rule_ok(varve_storage_fill_on(one, number(3), stream, &rule_message));
    expect_all(one, 1); /* on another stream, which waits for nothing */
    expect_all(other, 2);
    gpu_gate_open(&gate);
    GPU_OK(gpu.stream_synchronize(gpu_stream_of(stream)));
    expect_all(one, 3);
    expect_all(other, 1);
    rule_release(one);
    rule_release(other);
    rule_ok(pool_close(&pool, &rule_message));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(stream)));
}

/* What a captured stream is given is done with each launch of the graph. */
TEST(test_captured)
{
    uint64_t stream = gpu_stream();
    gpu_graph_exec exec = NULL;
    gpu_graph graph = NULL;
    struct pool pool;
    rule_ok(pool_open(&pool, &pool_cuda, &rule_message));
    struct varve_storage *one = full_of(pool.memory, 1);
    struct varve_storage *other = full_of(pool.memory, 2);
    GPU_OK(gpu.capture_begin(gpu_stream_of(stream), CUDA_CAPTURE_MODE_GLOBAL));
    rule_ok(varve_storage_copy_on(other, one, stream, &rule_message));
    rule_ok(varve_storage_fill_on(one, number(7), stream, &rule_message));
    GPU_OK(gpu.capture_end(gpu_stream_of(stream), &graph));
    GPU_OK(gpu.graph_make(&exec, graph, 0));
    expect_all(other, 2);
    for (int64_t round = 3; round < 6; round++) {
        rule_ok(varve_storage_fill(one, number(round), &rule_message));
        GPU_OK(gpu.graph_launch(exec, gpu_stream_of(stream)));
        GPU_OK(gpu.stream_synchronize(gpu_stream_of(stream)));
        expect_all(other, round);
        expect_all(one, 7);
    }
    GPU_OK(gpu.graph_exec_destroy(exec));
    GPU_OK(gpu.graph_destroy(graph));
    rule_release(one);
    rule_release(other);
    rule_ok(pool_close(&pool, &rule_message));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(stream)));
}

/* A thread without a context has none afterwards, and one that has keeps it. */
TEST(test_context)
{
    const cuda_context contexts[] = {NULL, gpu.context};
    for (unsigned i = 0; i < 2; i++) {
        const int64_t rows[] = {1, 0, 1}, three[] = {3};
        struct varve_index by_rows = {.kind = VARVE_INDEX_ARRAY,
                                      .array = {.data = (void *)(uintptr_t)rows, .dtype = VARVE_DTYPE_I64}};
        cuda_context current = gpu.context;
        varve_geometry_contiguous(1, three, &by_rows.array.geometry, NULL);
        GPU_OK(gpu.context_set(contexts[i]));
        struct pool pool;
        rule_ok(pool_open(&pool, &pool_cuda, &rule_message));
        struct varve_storage *storage = rule_numbers(pool.memory, 2, rule_23);
        struct varve_storage *view, *half, *picked;
        rule_ok(varve_storage_transpose(storage, 0, 1, &view, &rule_message));
        rule_ok(varve_storage_to(view, pool.memory, VARVE_DTYPE_F16, &half, &rule_message));
        rule_ok(varve_storage_fill(view, number(2), &rule_message));
        rule_ok(varve_storage_index(half, &by_rows, 1, &picked, &rule_message));
        rule_expect(picked, 6, (const float[]){1, 4, 0, 3, 1, 4});
        rule_release(picked);
        rule_release(half);
        rule_release(view);
        rule_release(storage);
        rule_ok(pool_close(&pool, &rule_message));
        GPU_OK(gpu.context_get(&current));
        GPU_OK(gpu.context_set(gpu.context));
        assert_ptr_equal(current, contexts[i]);
    }
}

/* ---- another GPU ---- */

static void second_open(struct pool *pool)
{
    const struct varve_cuda_options device = {.index = 1, .ordinal = 1, .limit_bytes = POOL_LIMIT};
    *pool = (struct pool){.kind = &pool_cuda};
    rule_ok(varve_cuda_open(&device, &pool->device, &rule_message));
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.device = pool->device;
    rule_ok(varve_alloc_open(&options, &pool->alloc, &rule_message));
    rule_ok(varve_memory_open(pool->alloc, &pool->memory, &rule_message));
}

/* As they are, turned and converted. */
TEST(test_two_gpus)
{
    const float turned[] = {0, 3, 1, 4, 2, 5};
    if (gpu.count < 2) {
        skip("it needs two GPUs");
    }
    struct pool first, second;
    rule_ok(pool_open(&first, &pool_cuda, &rule_message));
    second_open(&second);
    struct varve_storage *storage = rule_numbers(first.memory, 2, rule_23);
    struct varve_storage *view, *there, *back;
    rule_ok(varve_storage_to(storage, second.memory, VARVE_DTYPE_F32, &there, &rule_message));
    rule_expect(there, 6, (const float[]){0, 1, 2, 3, 4, 5});
    rule_release(there);
    rule_ok(varve_storage_transpose(storage, 0, 1, &view, &rule_message));
    rule_ok(varve_storage_to(view, second.memory, VARVE_DTYPE_I16, &there, &rule_message));
    rule_expect(there, 6, turned);
    rule_ok(varve_storage_to(there, first.memory, VARVE_DTYPE_I16, &back, &rule_message));
    rule_expect(back, 6, turned);
    rule_release(back);
    rule_release(there);
    rule_release(view);
    rule_release(storage);
    rule_ok(pool_close(&second, &rule_message));
    rule_ok(pool_close(&first, &rule_message));
}

/* ---- more than 32 bits ---- */

/* A pool without a limit; false: this build has no kernels, or the GPU not as many bytes. */
static bool large_open(struct pool *pool, uint64_t bytes)
{
    const struct varve_array one = {.geometry = {.ndim = 0}, .dtype = VARVE_DTYPE_U8};
    struct varve_storage_plan *opened = NULL;
    uint64_t free_bytes = 0, total = 0;
    *pool = (struct pool){.kind = &pool_cuda, .device = cuda_open(0)};
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.device = pool->device;
    rule_ok(varve_alloc_open(&options, &pool->alloc, &rule_message));
    rule_ok(varve_memory_open(pool->alloc, &pool->memory, &rule_message));
    struct varve_index_plan *plan;
    rule_ok(varve_index_plan_get(&one, &(struct varve_index){.kind = VARVE_INDEX_ELLIPSIS}, 1, &plan, &rule_message));
    int error = varve_storage_plan_open(pool->memory, plan, &opened, &rule_message);
    varve_storage_plan_close(opened);
    varve_index_plan_free(plan);
    assert_int_equal(pool->device->ops->memory_info(pool->device, &free_bytes, &total), 0);
    if (error == VARVE_OK && free_bytes >= bytes) {
        return true;
    }
    rule_ok(pool_close(pool, &rule_message));
    return false;
}

/* `count` bytes from `at` on are like the pattern. */
static void expect_bytes(struct varve_storage *storage, int64_t at, int64_t count, int (*pattern)(int64_t))
{
    struct varve_storage *view, *host;
    rule_ok(varve_storage_slice(storage, 0, at, at + count, 1, &view, &rule_message));
    rule_ok(varve_storage_to(view, varve_memory_host(), VARVE_DTYPE_U8, &host, &rule_message));
    const uint8_t *seen = varve_storage_data(host);
    for (int64_t i = 0; i < count; i++) {
        if (seen[i] != pattern(at + i)) {
            fail_msg("element %" PRId64 " is %d, not %d", at + i, seen[i], pattern(at + i));
        }
    }
    rule_release(host);
    rule_release(view);
}

static int every_third(int64_t at)
{
    return at % 3 == 0 ? 2 : 1;
}

static int every_third_of_two(int64_t at)
{
    return every_third(2 * at + 1);
}

static int every_third_from_the_end(int64_t at)
{
    return every_third((INT64_C(1) << 32) + 4096 - 1 - at);
}

/* Of the last row, the first and the last. */
static int every_third_of_rows(int64_t at)
{
    return every_third(at / 4096 == 1 ? at - 4096 : (INT64_C(1) << 32) + at % 4096);
}

TEST(test_many_elements)
{
    const int64_t count = (INT64_C(1) << 32) + 4096, half = count / 2, rows[] = {1 << 20, 0, -1};
    const int64_t table[] = {(1 << 20) + 1, 4096}, three[] = {3}, flat[] = {3 * 4096};
    struct varve_index by_rows = {.kind = VARVE_INDEX_ARRAY,
                                  .array = {.data = (void *)(uintptr_t)rows, .dtype = VARVE_DTYPE_I64}};
    struct pool pool;
    if (!large_open(&pool, 10 * (uint64_t)half)) {
        skip("it needs kernels, and %" PRId64 " bytes of the GPU", 10 * half);
    }
    struct varve_storage *storage = empty_of(pool.memory, VARVE_DTYPE_U8, 1, &count);
    struct varve_storage *other = empty_of(pool.memory, VARVE_DTYPE_U8, 1, &count);
    rule_ok(varve_storage_fill(storage, number(1), &rule_message));
    struct varve_storage *view, *picked;
    rule_ok(varve_storage_slice(storage, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, 3, &view, &rule_message));
    rule_ok(varve_storage_fill(view, number(2), &rule_message));
    rule_release(view);
    expect_bytes(storage, count - 9000, 9000, every_third);
    expect_bytes(storage, (INT64_C(1) << 31) - 4000, 8000, every_third);
    rule_ok(varve_storage_slice(storage, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -1, &view, &rule_message));
    rule_ok(varve_storage_copy(other, view, &rule_message));
    rule_release(view);
    expect_bytes(other, count - 9000, 9000, every_third_from_the_end);
    rule_release(other);
    other = empty_of(pool.memory, VARVE_DTYPE_I16, 1, &half);
    rule_ok(varve_storage_slice(storage, 0, 1, VARVE_SLICE_NONE, 2, &view, &rule_message));
    rule_ok(varve_storage_copy(other, view, &rule_message));
    rule_release(view);
    expect_bytes(other, half - 9000, 9000, every_third_of_two);
    rule_ok(varve_storage_reshape(storage, 2, table, &view, &rule_message));
    varve_geometry_contiguous(1, three, &by_rows.array.geometry, NULL);
    rule_ok(varve_storage_index(view, &by_rows, 1, &picked, &rule_message));
    rule_release(view);
    rule_ok(varve_storage_reshape(picked, 1, flat, &view, &rule_message));
    rule_release(picked);
    expect_bytes(view, 0, 3 * 4096, every_third_of_rows);
    rule_release(view);
    rule_release(other);
    rule_release(storage);
    rule_ok(pool_close(&pool, &rule_message));
}

TEST_FILE(gpu_start, NULL)
