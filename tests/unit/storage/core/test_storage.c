/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages and views on all kinds of memory: the C library's, a pool on the host device, a pool of a device that the processor can't
 * address. When a test ends there is no storage left, and its pool has every byte back.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "storage/storage.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

struct pool {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_memory *memory;
};

static const int64_t shape_23[] = {2, 3};
static struct varve_message message;

static void pool_open(struct pool *pool, bool is_sim)
{
    struct varve_alloc_options options;

    if (is_sim) {
        assert_int_equal(
            varve_sim_open(&(struct varve_sim_options){.capacity_bytes = 64 * MIB}, &pool->device, NULL),
            VARVE_OK);
    } else {
        assert_int_equal(
            varve_host_open(&(struct varve_host_options){.limit_bytes = 64 * MIB}, &pool->device, NULL),
            VARVE_OK);
    }
    varve_alloc_options_init(&options);
    options.device = pool->device;
    assert_int_equal(varve_alloc_open(&options, &pool->alloc, &message), VARVE_OK);
    assert_int_equal(varve_memory_open(pool->alloc, &pool->memory, &message), VARVE_OK);
}

static void pool_close(struct pool *pool)
{
    assert_int_equal(varve_memory_close(pool->memory, &message), VARVE_OK);
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 0);
    varve_alloc_close(pool->alloc);
    pool->device->ops->close(pool->device);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return varve_storage_live() == 0 ? 0 : -1;
}

static void release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &message), VARVE_OK);
}

/* A float storage with the numbers 0, 1, 2, … */
static struct varve_storage *numbers(struct varve_memory *memory, unsigned ndim, const int64_t *shape)
{
    static float values[4096];
    struct varve_array array = {.data = values, .dtype = VARVE_DTYPE_F32};
    struct varve_storage *storage;

    assert_int_equal(varve_geometry_contiguous(ndim, shape, &array.geometry, NULL), VARVE_OK);
    for (int64_t i = 0; i < varve_geometry_count(&array.geometry); i++) {
        values[i] = (float)i;
    }
    assert_int_equal(varve_storage_from_array(&(struct varve_storage_options){.memory = memory}, &array,
                                              &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
    return storage;
}

/* The elements, in order, as the processor sees them. */
static void expect(struct varve_storage *storage, size_t count, const float *expected)
{
    struct varve_storage *copy;

    assert_int_equal(varve_storage_to(storage, varve_memory_host(), VARVE_DTYPE_F64, &copy, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_count(copy), count);
    for (size_t i = 0; i < count; i++) {
        assert_true(((double *)varve_storage_data(copy))[i] == (double)expected[i]);
    }
    release(copy);
}

/* ---- creating ---- */

static void create_in(struct varve_memory *memory, uint64_t alignment)
{
    const float expected[] = {7, 7, 7, 7, 7, 7};
    struct varve_storage_options options = {.memory = memory, .name = "weights"};
    struct varve_storage *storage;

    assert_int_equal(varve_storage_full(&options, VARVE_DTYPE_F16, 2, shape_23,
                                        (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 7},
                                        &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
    assert_int_equal((uintptr_t)varve_storage_data(storage) % alignment, 0);
    assert_string_equal(varve_storage_name(storage), "weights");
    assert_int_equal(varve_storage_bytes(storage), 12);
    assert_int_equal(varve_storage_dtype(storage), VARVE_DTYPE_F16);
    assert_ptr_equal(varve_storage_memory(storage), memory);
    assert_null(varve_storage_base(storage));
    expect(storage, 6, expected);
    release(storage);
    for (unsigned shift = 0; shift < 17; shift++) {
        options.alignment = UINT64_C(1) << shift;
        assert_int_equal(varve_storage_zeros(&options, VARVE_DTYPE_U8, 2, shape_23, &storage, &message),
                         VARVE_OK);
        assert_int_equal((uintptr_t)varve_storage_data(storage) % options.alignment, 0);
        assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
        release(storage);
    }
}

static void test_create(void **state)
{
    struct pool pool;

    (void)state;
    create_in(varve_memory_host(), 64);
    pool_open(&pool, false);
    create_in(pool.memory, 512);
    pool_close(&pool);
}

/* No memory at all for no elements; addresses that nobody may follow on a device. */
static void test_create_elsewhere(void **state)
{
    const int64_t empty[] = {4, 0, 2};
    struct varve_storage *storage;
    struct varve_allocation_info info;
    struct pool pool;

    (void)state;
    assert_int_equal(varve_storage_empty(NULL, VARVE_DTYPE_I64, 3, empty, &storage, &message), VARVE_OK);
    assert_null(varve_storage_data(storage));
    assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
    release(storage);
    pool_open(&pool, true);
    assert_false(varve_memory_is_addressable(pool.memory));
    assert_int_equal(varve_storage_empty(&(struct varve_storage_options){.memory = pool.memory, .stream = 5},
                                         VARVE_DTYPE_F32, 2, shape_23, &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_alloc_describe(pool.alloc, varve_storage_allocation(storage), &info), VARVE_OK);
    assert_int_equal(info.stream, 5);
    assert_int_equal(info.block.addr, (uintptr_t)varve_storage_data(storage));
    assert_int_equal(varve_memory_close(pool.memory, &message), VARVE_ERROR_BUSY);
    assert_string_equal(message.text, "1 storages still have memory of it");
    release(storage);
    pool_close(&pool);
}

static void test_create_errors(void **state)
{
    const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 30}, large[] = {65 * (int64_t)MIB},
                  negative[] = {-2};
    struct varve_storage_options options = {.alignment = 48};
    struct varve_storage *storage = NULL;
    struct pool pool;

    (void)state;
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 2, shape_23, &storage, &message),
                     VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "an alignment of 48 bytes; powers of two up to 2^40 are possible");
    assert_int_equal(varve_storage_empty(NULL, VARVE_DTYPE_LIMIT, 2, shape_23, &storage, &message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_empty(NULL, VARVE_DTYPE_U8, 2, huge, &storage, &message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_empty(NULL, VARVE_DTYPE_U8, 1, negative, &storage, &message),
                     VARVE_ERROR_INVALID);
    pool_open(&pool, false);
    options = (struct varve_storage_options){.memory = pool.memory};
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, large, &storage, &message),
                     VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(message.text, "out of memory: 68157440 bytes"));
    pool_close(&pool);
    assert_null(storage);
}

/* ---- references ---- */

static void test_references(void **state)
{
    struct varve_storage *storage = numbers(varve_memory_host(), 2, shape_23);
    struct varve_storage_weak *weak = varve_storage_weak_retain(storage);

    (void)state;
    assert_ptr_equal(varve_storage_retain(storage), storage);
    assert_int_equal(varve_storage_use_count(storage), 2);
    release(storage);
    assert_ptr_equal(varve_storage_weak_lock(weak), storage);
    release(storage);
    release(storage);
    assert_null(varve_storage_weak_lock(weak));
    assert_int_equal(varve_storage_live(), 0);
    assert_int_equal(varve_storage_release(storage, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "has been released already"));
    varve_storage_weak_release(weak);
    assert_int_equal(varve_storage_release(storage, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_release(NULL, &message), VARVE_OK);
}

struct owner {
    void *data;
    unsigned releases;
};

static void owner_release(void *context, void *data)
{
    struct owner *owner = context;

    assert_ptr_equal(data, owner->data);
    owner->releases++;
    free(data);
}

static void test_foreign(void **state)
{
    const int64_t shape[] = {4};
    struct owner owner = {.data = calloc(4, sizeof(int32_t))};
    struct varve_foreign foreign = {
        .data = owner.data, .bytes = 16, .release = owner_release, .context = &owner};
    struct varve_geometry geometry;
    struct varve_storage *storage, *view;

    (void)state;
    varve_geometry_contiguous(1, shape, &geometry, NULL);
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I64, &geometry, NULL, &storage, &message),
                     VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "elements of shape (4,) lie outside of the 2 that there are");
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I32, &geometry, "mine", &storage, &message),
                     VARVE_OK);
    assert_ptr_equal(varve_storage_data(storage), owner.data);
    assert_int_equal(varve_storage_slice(storage, 0, 1, 3, 1, &view, &message), VARVE_OK);
    release(storage);
    assert_int_equal(owner.releases, 0); /* the view keeps it */
    ((int32_t *)varve_storage_data(view))[1] = 9;
    assert_int_equal(((int32_t *)owner.data)[2], 9);
    release(view);
    assert_int_equal(owner.releases, 1);
}

/* ---- views ---- */

static void views_in(struct varve_memory *memory)
{
    const float column[] = {2, 5}, transposed[] = {0, 3, 1, 4, 2, 5}, reversed[] = {5, 4, 3, 2, 1, 0};
    const int64_t six[] = {6}, expanded[] = {2, 2};
    struct varve_storage *storage = numbers(memory, 2, shape_23), *view, *second, *third;

    assert_int_equal(varve_storage_select(storage, 1, 2, &view, &message), VARVE_OK);
    assert_ptr_equal(varve_storage_base(view), storage);
    expect(view, 2, column);
    release(view);
    assert_int_equal(varve_storage_transpose(storage, 0, 1, &view, &message), VARVE_OK);
    expect(view, 6, transposed);
    assert_int_equal(varve_storage_reshape(view, 1, six, &second, &message), VARVE_ERROR_UNSUPPORTED);
    release(view);
    assert_int_equal(varve_storage_reshape(storage, 1, six, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_slice(view, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -1, &second, &message),
                     VARVE_OK);
    assert_ptr_equal(varve_storage_base(second), storage); /* not a view of the view */
    release(view);
    release(storage);
    expect(second, 6, reversed);
    assert_int_equal(varve_storage_check(second, &message), VARVE_OK);
    assert_int_equal(varve_storage_slice(second, 0, 0, 2, 1, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_expand(view, 2, expanded, &third, &message), VARVE_OK);
    expect(third, 4, (const float[]){5, 4, 5, 4});
    release(view);
    release(second);
    release(third);
}

static void test_views(void **state)
{
    struct pool pool;

    (void)state;
    views_in(varve_memory_host());
    pool_open(&pool, false);
    views_in(pool.memory);
    pool_close(&pool);
}

static void test_view_errors(void **state)
{
    struct varve_storage *storage = numbers(varve_memory_host(), 2, shape_23), *view = NULL;
    struct varve_geometry geometry;

    (void)state;
    assert_int_equal(varve_geometry_contiguous(2, shape_23, &geometry, NULL), VARVE_OK);
    geometry.offset = 1;
    assert_int_equal(varve_storage_view(storage, &geometry, &view, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "elements of shape (2, 3) lie outside of the 6 that there are");
    geometry.offset = -1;
    assert_int_equal(varve_storage_view(storage, &geometry, &view, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_select(storage, 2, 0, &view, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "axis 2 is out of bounds for 2 dimensions");
    assert_int_equal(varve_storage_select(storage, 0, -3, &view, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "index -3 is out of bounds for axis 0 with size 2");
    assert_null(view);
    assert_int_equal(varve_storage_use_count(storage), 1);
    release(storage);
}

/* ---- copies ---- */

static void test_copy_and_clone(void **state)
{
    const float first[] = {0, 1, 2, 0, 1, 2}, mirrored[] = {0, 3, 1, 4, 2, 5};
    struct varve_storage *storage = numbers(varve_memory_host(), 2, shape_23), *row, *view, *copy;
    struct pool pool;

    (void)state;
    pool_open(&pool, false);
    assert_int_equal(varve_storage_transpose(storage, 0, 1, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_clone(view, NULL, &copy, &message), VARVE_OK);
    expect(copy, 6, mirrored);
    release(copy);
    assert_int_equal(varve_storage_to(view, pool.memory, VARVE_DTYPE_BF16, &copy, &message), VARVE_OK);
    assert_int_equal(varve_storage_dtype(copy), VARVE_DTYPE_BF16);
    assert_ptr_equal(varve_storage_memory(copy), pool.memory);
    expect(copy, 6, mirrored);
    assert_int_equal(varve_storage_to(copy, pool.memory, VARVE_DTYPE_BF16, &row, &message), VARVE_OK);
    assert_ptr_equal(row, copy);
    release(row);
    release(copy);
    assert_int_equal(varve_storage_select(storage, 0, 0, &row, &message), VARVE_OK);
    assert_int_equal(varve_storage_copy(storage, row, &message), VARVE_OK); /* onto itself, broadcast */
    expect(storage, 6, first);
    assert_int_equal(varve_storage_copy(row, storage, &message), VARVE_ERROR_INVALID);
    release(row);
    release(view);
    release(storage);
    pool_close(&pool);
}

static void test_resize(void **state)
{
    const int64_t larger[] = {3, 3}, smaller[] = {2};
    struct varve_storage *storage = numbers(varve_memory_host(), 2, shape_23), *view;

    (void)state;
    assert_int_equal(varve_storage_slice(storage, 0, 0, 1, 1, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_resize(view, 1, smaller, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_resize(storage, 2, larger, &message), VARVE_ERROR_BUSY);
    release(view);
    assert_int_equal(varve_storage_resize(storage, 2, larger, &message), VARVE_OK);
    assert_int_equal(varve_storage_check(storage, &message), VARVE_OK);
    for (unsigned i = 0; i < 6; i++) {
        assert_true(((float *)varve_storage_data(storage))[i] == (float)i);
    }
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_OK);
    expect(storage, 2, (const float[]){0, 1});
    release(storage);
}

/* A larger piece of memory is what was asked for first: aligned so, and of that stream. */
static void resize_keeps(struct varve_memory *memory, uint64_t alignment)
{
    const int64_t sizes[] = {0, 3, 100, 5000, 70000};
    const struct varve_storage_options options = {.memory = memory, .alignment = alignment, .stream = 0x5000};
    struct varve_allocation_info info;
    struct varve_storage *storage;

    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_F32, 1, &sizes[0], &storage, &message),
                     VARVE_OK);
    for (unsigned i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(varve_storage_resize(storage, 1, &sizes[i], &message), VARVE_OK);
        assert_int_equal((uintptr_t)varve_storage_data(storage) % alignment, 0);
        if (varve_memory_alloc(memory) != NULL) {
            assert_int_equal(
                varve_alloc_describe(varve_memory_alloc(memory), varve_storage_allocation(storage), &info),
                VARVE_OK);
            assert_int_equal(info.stream, options.stream);
        }
    }
    release(storage);
}

static void test_resize_keeps(void **state)
{
    struct pool pool;

    (void)state;
    resize_keeps(varve_memory_host(), 1 << 16);
    pool_open(&pool, false);
    resize_keeps(pool.memory, 1 << 16);
    pool_close(&pool);
}

/* Foreign memory stays where it is, so its elements have to lie as those of the new shape. */
static void test_resize_foreign(void **state)
{
    static float values[] = {0, 1, 2, 3, 4, 5};
    const struct varve_foreign foreign = {.data = values, .bytes = sizeof(values)};
    const struct varve_geometry refused[] = {
        {.ndim = 2, .shape = {3, 2}, .strides = {1, 3}},
        {.ndim = 1, .shape = {3}, .strides = {2}},
        {.ndim = 1, .shape = {4}, .strides = {1}, .offset = 2},
        {.ndim = 1, .shape = {4}, .strides = {0}},
    };
    const struct varve_geometry taken = {.ndim = 2, .shape = {2, 3}, .strides = {3, 1}};
    const int64_t smaller[] = {2}, larger[] = {7};
    struct varve_storage *storage;
    struct varve_array array;

    (void)state;
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &refused[i], NULL, &storage, &message),
                         VARVE_OK);
        assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_ERROR_INVALID);
        assert_non_null(strstr(message.text, "one behind the other"));
        varve_storage_get_array(storage, &array); /* nothing has changed */
        assert_true(varve_geometry_has_shape(&array.geometry, refused[i].ndim, refused[i].shape));
        assert_int_equal(array.geometry.offset, refused[i].offset);
        release(storage);
    }
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &taken, NULL, &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_resize(storage, 1, larger, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_resize(storage, 1, smaller, &message), VARVE_OK);
    expect(storage, 2, values);
    release(storage);
}

/* What the processor can't address is copied by the device, or by way of host memory; its clock and its errors show it. */
static void test_device_copies(void **state)
{
    struct varve_storage *host = numbers(varve_memory_host(), 2, shape_23), *storage, *view;
    struct pool pool;

    (void)state;
    pool_open(&pool, true);
    assert_int_equal(varve_storage_to(host, pool.memory, VARVE_DTYPE_F32, &storage, &message), VARVE_OK);
    assert_int_equal(varve_sim_calls(pool.device, VARVE_DEVICE_COPY), 1);
    assert_int_equal(varve_storage_transpose(storage, 0, 1, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_copy(view, host, &message), VARVE_ERROR_INVALID); /* (3, 2) and (2, 3) */
    release(view);
    assert_int_equal(varve_storage_slice(storage, 1, 0, 2, 1, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_fill(view, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &message),
                     VARVE_OK);
    assert_int_equal(varve_sim_calls(pool.device, VARVE_DEVICE_FILL), 0); /* there and back: two copies */
    assert_int_equal(varve_storage_fill(storage, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &message),
                     VARVE_OK);
    assert_int_equal(varve_sim_calls(pool.device, VARVE_DEVICE_FILL), 1);
    varve_sim_fail(pool.device, VARVE_DEVICE_COPY, 1, 1, VARVE_ERROR_IO);
    assert_int_equal(varve_storage_copy(host, storage, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "the device failed to copy: "));
    assert_int_equal(varve_storage_copy_on(host, storage, 0, &message), VARVE_OK);
    release(view);
    release(storage);
    release(host);
    pool_close(&pool);
}

/* ---- indices ---- */

static void index_in(struct varve_memory *memory)
{
    const int64_t rows[] = {1, 0, 1}, one[] = {3};
    struct varve_index by_rows = {.kind = VARVE_INDEX_ARRAY,
                                  .array = {.data = (void *)(uintptr_t)rows, .dtype = VARVE_DTYPE_I64}};
    const struct varve_index row = {.kind = VARVE_INDEX_INTEGER, .start = -1};
    struct varve_storage *storage = numbers(memory, 2, shape_23), *view, *picked, *value;

    varve_geometry_contiguous(1, one, &by_rows.array.geometry, NULL);
    assert_int_equal(varve_storage_index(storage, &row, 1, &view, &message), VARVE_OK);
    assert_ptr_equal(varve_storage_base(view), storage);
    assert_int_equal(varve_storage_index(storage, &by_rows, 1, &picked, &message), VARVE_OK);
    assert_null(varve_storage_base(picked));
    assert_ptr_equal(varve_storage_memory(picked), memory);
    if (varve_memory_is_addressable(memory)) {
        expect(view, 3, (const float[]){3, 4, 5});
        expect(picked, 9, (const float[]){3, 4, 5, 0, 1, 2, 3, 4, 5});
    }
    value = numbers(varve_memory_host(), 1, one);
    assert_int_equal(varve_storage_index_set(storage, &row, 1, value, &message), VARVE_OK);
    assert_int_equal(varve_storage_index_fill(picked, &by_rows, 1,
                                              (struct varve_scalar){.kind = VARVE_SCALAR_REAL, .real = 0.5},
                                              &message),
                     VARVE_OK);
    if (varve_memory_is_addressable(memory)) {
        expect(storage, 6, (const float[]){0, 1, 2, 0, 1, 2});
        expect(picked, 9, (const float[]){0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 3, 4, 5});
    }
    assert_int_equal(varve_storage_index_set(storage, &row, 1, picked, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_index(view, &(struct varve_index){.start = 3}, 1, &storage, &message),
                     VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "index 3 is out of bounds for axis 0 with size 3");
    release(value);
    release(view);
    release(picked);
    release(storage);
}

static void test_indices(void **state)
{
    struct pool pool;

    (void)state;
    index_in(varve_memory_host());
    for (int is_sim = 0; is_sim < 2; is_sim++) {
        pool_open(&pool, is_sim);
        index_in(pool.memory);
        pool_close(&pool);
    }
}

int main(void)
{
#define STORAGE_TEST(function) cmocka_unit_test_teardown(function, nothing_is_left)
    const struct CMUnitTest tests[] = {
        STORAGE_TEST(test_create),         STORAGE_TEST(test_create_elsewhere),
        STORAGE_TEST(test_create_errors),  STORAGE_TEST(test_references),
        STORAGE_TEST(test_foreign),        STORAGE_TEST(test_views),
        STORAGE_TEST(test_view_errors),    STORAGE_TEST(test_copy_and_clone),
        STORAGE_TEST(test_resize),         STORAGE_TEST(test_device_copies),
        STORAGE_TEST(test_indices),        STORAGE_TEST(test_resize_keeps),
        STORAGE_TEST(test_resize_foreign),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
