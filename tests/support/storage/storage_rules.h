/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What storages do alike in any memory (pool.h): they are created, wrapped, counted, viewed, copied and resized.
 * Elements are read back by way of host memory, since the processor may not look into a device's. STORAGE_RULES has
 * the list; indices, plans, batches and copies of any views are beside NumPy in tests/conformance/storage_cases.py, in
 * the same memories.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_STORAGE_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_STORAGE_RULES_H

#include <cmocka.h>

#include "support/storage/pool.h"

#include <stdlib.h>
#include <string.h>

static const int64_t rule_23[] = {2, 3};
static struct varve_message rule_message;

static inline void rule_release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &rule_message), VARVE_OK);
}

static inline void rule_ok(int error)
{
    if (error != VARVE_OK) {
        fail_msg("%s: %s", varve_strerror(error), rule_message.text);
    }
}

/// The call failed so, and what it said has the text.
static inline void rule_refused(int error, int expected, const char *text)
{
    if (error != expected || strstr(rule_message.text, text) == NULL) {
        fail_msg("%s: %s; expected %s: … %s", varve_strerror(error), rule_message.text, varve_strerror(expected), text);
    }
    rule_message.text[0] = '\0';
}

/// A float storage with the numbers 0, 1, 2, …
static inline struct varve_storage *rule_numbers(struct varve_memory *memory, unsigned ndim, const int64_t *shape)
{
    static float values[4096];
    struct varve_array array = {.data = values, .dtype = VARVE_DTYPE_F32};
    rule_ok(varve_geometry_contiguous(ndim, shape, &array.geometry, &rule_message));
    for (int64_t i = 0; i < varve_geometry_count(&array.geometry); i++) {
        values[i] = (float)i;
    }
    struct varve_storage *storage;
    rule_ok(
        varve_storage_from_array(&(struct varve_storage_options){.memory = memory}, &array, &storage, &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    return storage;
}

static inline void rule_fill(struct varve_storage *storage, int64_t value)
{
    rule_ok(varve_storage_fill(storage, (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = value},
                               &rule_message));
}

/// The elements, in order, are these.
static inline void rule_expect(struct varve_storage *storage, size_t count, const float *expected)
{
    struct varve_storage *copy;
    rule_ok(varve_storage_to(storage, varve_memory_host(), VARVE_DTYPE_F64, &copy, &rule_message));
    assert_int_equal(varve_storage_count(copy), count);
    const double *seen = varve_storage_data(copy);
    for (size_t i = 0; i < count; i++) {
        if (seen[i] != (double)expected[i]) {
            fail_msg("element %zu is %g, not %g", i, seen[i], (double)expected[i]);
        }
    }
    rule_release(copy);
}

/* ---- creating ---- */

static inline void rule_create(void **state)
{
    const struct pool *pool = *state;
    const float expected[] = {7, 7, 7, 7, 7, 7}, zeros[6] = {0};
    struct varve_storage_options options = {.memory = pool->memory, .name = "weights"};
    struct varve_storage *storage;
    rule_ok(varve_storage_full(&options, VARVE_DTYPE_F16, 2, rule_23,
                               (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 7}, &storage,
                               &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    assert_int_equal((uintptr_t)varve_storage_data(storage) % (pool->alloc == NULL ? 64 : 512), 0);
    assert_string_equal(varve_storage_name(storage), "weights");
    assert_int_equal(varve_storage_bytes(storage), 12);
    assert_int_equal(varve_storage_dtype(storage), VARVE_DTYPE_F16);
    assert_ptr_equal(varve_storage_memory(storage), pool->memory);
    assert_null(varve_storage_base(storage));
    rule_expect(storage, 6, expected);
    rule_release(storage);
    for (unsigned shift = 0; shift < 17; shift++) {
        options.alignment = UINT64_C(1) << shift;
        rule_ok(varve_storage_zeros(&options, VARVE_DTYPE_U8, 2, rule_23, &storage, &rule_message));
        assert_int_equal((uintptr_t)varve_storage_data(storage) % options.alignment, 0);
        rule_ok(varve_storage_check(storage, &rule_message));
        rule_expect(storage, 6, zeros);
        rule_release(storage);
    }
}

/* No memory at all for no elements; a block of the pool for others, which knows its stream. */
static inline void rule_block(void **state)
{
    const struct pool *pool = *state;
    const int64_t empty[] = {4, 0, 2};
    struct varve_storage_options options = {.memory = pool->memory};
    struct varve_storage *storage;
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_I64, 3, empty, &storage, &rule_message));
    assert_null(varve_storage_data(storage));
    rule_ok(varve_storage_check(storage, &rule_message));
    rule_release(storage);
    if (pool->alloc == NULL) {
        return;
    }
    rule_ok(pool->device->ops->stream_create(pool->device, &options.stream));
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 2, rule_23, &storage, &rule_message));
    struct varve_allocation_info info;
    rule_ok(varve_alloc_describe(pool->alloc, varve_storage_allocation(storage), &info));
    assert_int_equal(info.stream, options.stream);
    assert_int_equal(info.block.addr, (uintptr_t)varve_storage_data(storage));
    assert_int_equal(varve_memory_close(pool->memory, &rule_message), VARVE_ERROR_BUSY);
    assert_string_equal(rule_message.text, "1 storages still have memory of it");
    rule_release(storage);
    rule_ok(varve_alloc_empty_cache(pool->alloc)); /* what the pool keeps belongs to the stream */
    rule_ok(pool->device->ops->stream_destroy(pool->device, options.stream));
}

static inline void rule_create_errors(void **state)
{
    const struct pool *pool = *state;
    const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 30}, large[] = {POOL_LIMIT + 1}, negative[] = {-2};
    struct varve_storage_options options = {.memory = pool->memory, .alignment = 48};
    struct varve_storage *storage = NULL;
    rule_refused(varve_storage_empty(&options, VARVE_DTYPE_U8, 2, rule_23, &storage, &rule_message),
                 VARVE_ERROR_INVALID, "an alignment of 48 bytes; powers of two up to 2^40 are possible");
    options.alignment = 0;
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_LIMIT, 2, rule_23, &storage, &rule_message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 2, huge, &storage, &rule_message),
                     VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, negative, &storage, &rule_message),
                     VARVE_ERROR_INVALID);
    if (pool->alloc != NULL) {
        rule_refused(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, large, &storage, &rule_message),
                     VARVE_ERROR_NO_MEMORY, "out of memory: 67108865 bytes");
    }
    assert_null(storage);
}

/* ---- references ---- */

static inline void rule_references(void **state)
{
    const struct pool *pool = *state;
    struct varve_storage *storage = rule_numbers(pool->memory, 2, rule_23);
    struct varve_storage_weak *weak = varve_storage_weak_retain(storage);
    assert_ptr_equal(varve_storage_retain(storage), storage);
    assert_int_equal(varve_storage_use_count(storage), 2);
    rule_release(storage);
    assert_ptr_equal(varve_storage_weak_lock(weak), storage);
    rule_release(storage);
    rule_release(storage);
    assert_null(varve_storage_weak_lock(weak));
    assert_int_equal(varve_storage_live(), 0);
    rule_refused(varve_storage_release(storage, &rule_message), VARVE_ERROR_INVALID, "has been released already");
    varve_storage_weak_release(weak);
    assert_int_equal(varve_storage_release(storage, &rule_message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_release(NULL, &rule_message), VARVE_OK);
}

struct rule_owner {
    const struct pool *pool;
    void *data;
    unsigned releases;
};

static inline void rule_owner_release(void *context, void *data)
{
    struct rule_owner *owner = context;
    assert_ptr_equal(data, owner->data);
    owner->releases++;
    if (owner->pool->alloc == NULL) {
        free(data);
    } else {
        rule_ok(varve_alloc_raw_delete(owner->pool->alloc, (uintptr_t)data, &rule_message));
    }
}

/* Four integers, in memory that the test has obtained itself. */
static inline void rule_foreign(void **state)
{
    const struct pool *pool = *state;
    const int64_t shape[] = {4};
    struct rule_owner owner = {.pool = pool, .data = malloc(16)};
    struct varve_foreign foreign = {.bytes = 16, .release = rule_owner_release, .memory = pool->memory};
    uint64_t addr;
    if (pool->alloc != NULL) {
        free(owner.data);
        rule_ok(varve_alloc_raw_alloc(pool->alloc, 16, &addr, &rule_message));
        owner.data = (void *)(uintptr_t)addr;
    }
    assert_non_null(owner.data);
    foreign.data = owner.data;
    foreign.context = &owner;
    struct varve_geometry geometry;
    varve_geometry_contiguous(1, shape, &geometry, NULL);
    struct varve_storage *storage, *view;
    rule_refused(varve_storage_wrap(&foreign, VARVE_DTYPE_I64, &geometry, NULL, &storage, &rule_message),
                 VARVE_ERROR_INVALID, "elements of shape (4,) lie outside of the 2 that there are");
    rule_ok(varve_storage_wrap(&foreign, VARVE_DTYPE_I32, &geometry, "mine", &storage, &rule_message));
    assert_ptr_equal(varve_storage_data(storage), owner.data);
    rule_fill(storage, 3);
    rule_ok(varve_storage_slice(storage, 0, 1, 3, 1, &view, &rule_message));
    rule_fill(view, -9);
    rule_expect(storage, 4, (const float[]){3, -9, -9, 3});
    rule_release(storage);
    assert_int_equal(owner.releases, 0); /* the view keeps it */
    rule_expect(view, 2, (const float[]){-9, -9});
    rule_release(view);
    assert_int_equal(owner.releases, 1);
}

/* Elements at addresses that are no multiples of their size: bytes of a storage under another type. */
static inline void rule_unaligned(void **state)
{
    const struct pool *pool = *state;
    const int64_t bytes[] = {64}, shape[] = {5};
    struct varve_storage *whole, *storage, *view, *numbers = rule_numbers(pool->memory, 1, shape);
    struct varve_foreign foreign = {.bytes = 40, .memory = pool->memory};
    rule_ok(varve_storage_zeros(&(struct varve_storage_options){.memory = pool->memory}, VARVE_DTYPE_U8, 1, bytes,
                                &whole, &rule_message));
    foreign.data = (char *)varve_storage_data(whole) + 3;
    struct varve_geometry geometry;
    varve_geometry_contiguous(1, shape, &geometry, NULL);
    rule_ok(varve_storage_wrap(&foreign, VARVE_DTYPE_I64, &geometry, NULL, &storage, &rule_message));
    rule_fill(storage, 2);
    rule_expect(storage, 5, (const float[]){2, 2, 2, 2, 2});
    rule_ok(varve_storage_slice(storage, 0, 1, 5, 2, &view, &rule_message));
    rule_fill(view, 0);
    rule_expect(storage, 5, (const float[]){2, 0, 2, 0, 2});
    rule_fill(storage, 0); /* a pattern of zeros alone */
    rule_expect(storage, 5, (const float[]){0, 0, 0, 0, 0});
    rule_ok(varve_storage_copy(storage, numbers, &rule_message));
    rule_expect(view, 2, (const float[]){1, 3});
    rule_release(view);
    rule_release(storage);
    rule_release(whole);
    rule_release(numbers);
}

/* ---- views ---- */

/* A view of a view is one of its base, which it keeps; what views show is NumPy's matter. */
static inline void rule_views(void **state)
{
    const struct pool *pool = *state;
    const float reversed[] = {5, 4, 3, 2, 1, 0};
    const int64_t six[] = {6};
    struct varve_storage *storage = rule_numbers(pool->memory, 2, rule_23), *view, *second, *none = NULL;
    rule_ok(varve_storage_transpose(storage, 0, 1, &view, &rule_message));
    assert_ptr_equal(varve_storage_base(view), storage);
    assert_int_equal(varve_storage_reshape(view, 1, six, &none, &rule_message), VARVE_ERROR_UNSUPPORTED);
    rule_release(view);
    struct varve_geometry geometry;
    rule_ok(varve_geometry_contiguous(2, rule_23, &geometry, NULL));
    for (geometry.offset = -1; geometry.offset < 2; geometry.offset += 2) {
        rule_refused(varve_storage_view(storage, &geometry, &none, &rule_message), VARVE_ERROR_INVALID,
                     "elements of shape (2, 3) lie outside of the 6 that there are");
    }
    rule_refused(varve_storage_select(storage, 2, 0, &none, &rule_message), VARVE_ERROR_INVALID,
                 "axis 2 is out of bounds for 2 dimensions");
    assert_null(none);
    assert_int_equal(varve_storage_use_count(storage), 1);
    rule_ok(varve_storage_reshape(storage, 1, six, &view, &rule_message));
    rule_ok(varve_storage_slice(view, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -1, &second, &rule_message));
    assert_ptr_equal(varve_storage_base(second), storage);
    rule_release(view);
    rule_release(storage);
    rule_expect(second, 6, reversed);
    rule_ok(varve_storage_check(second, &rule_message));
    rule_release(second);
}

/* ---- copies ---- */

/* From the C library's memory to this one and back, in other types and orders; refused copies change nothing. */
static inline void rule_copy_and_clone(void **state)
{
    const struct pool *pool = *state;
    const float first[] = {0, 1, 2, 0, 1, 2}, mirrored[] = {0, 3, 1, 4, 2, 5};
    struct varve_memory *const memories[] = {varve_memory_host(), pool->memory};
    struct varve_storage *storage, *row, *view, *copy;
    for (unsigned i = 0; i < 2; i++) {
        storage = rule_numbers(memories[i], 2, rule_23);
        rule_ok(varve_storage_transpose(storage, 0, 1, &view, &rule_message));
        rule_ok(varve_storage_clone(view, NULL, &copy, &rule_message));
        assert_ptr_equal(varve_storage_memory(copy), memories[i]);
        rule_expect(copy, 6, mirrored);
        rule_release(copy);
        rule_ok(varve_storage_to(view, pool->memory, VARVE_DTYPE_BF16, &copy, &rule_message));
        assert_int_equal(varve_storage_dtype(copy), VARVE_DTYPE_BF16);
        assert_ptr_equal(varve_storage_memory(copy), pool->memory);
        rule_expect(copy, 6, mirrored);
        rule_ok(varve_storage_to(copy, pool->memory, VARVE_DTYPE_BF16, &row, &rule_message));
        assert_ptr_equal(row, copy);
        rule_release(row);
        rule_release(copy);
        rule_ok(varve_storage_select(storage, 0, 0, &row, &rule_message));
        rule_ok(varve_storage_copy(storage, row, &rule_message)); /* onto itself, broadcast */
        rule_expect(storage, 6, first);
        assert_int_equal(varve_storage_copy(row, storage, &rule_message), VARVE_ERROR_INVALID);
        assert_int_equal(varve_storage_copy(view, storage, &rule_message), VARVE_ERROR_INVALID);
        rule_expect(storage, 6, first);
        rule_release(row);
        rule_release(view);
        rule_release(storage);
    }
}

/* Behind what a stream has: filled, copied there and back, and looked at when the stream is done. */
static inline void rule_streams(void **state)
{
    const struct pool *pool = *state;
    const int64_t shape[] = {300000};
    struct varve_storage_options options = {.memory = pool->memory};
    struct varve_device *device = pool->device;
    if (device == NULL) {
        return; /* no streams */
    }
    rule_ok(device->ops->stream_create(device, &options.stream));
    struct varve_storage *one, *other, *host;
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 1, shape, &one, &rule_message));
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 1, shape, &other, &rule_message));
    options.memory = NULL;
    rule_ok(varve_storage_zeros(&options, VARVE_DTYPE_F32, 1, shape, &host, &rule_message));
    for (unsigned round = 1; round <= 20; round++) {
        const struct varve_scalar value = {.kind = VARVE_SCALAR_REAL, .real = round};
        rule_ok(varve_storage_fill_on(one, value, options.stream, &rule_message));
        rule_ok(varve_storage_copy_on(other, one, options.stream, &rule_message));
        rule_ok(varve_storage_copy_on(host, other, options.stream, &rule_message));
        rule_ok(device->ops->stream_synchronize(device, options.stream));
        for (int64_t i = 0; i < shape[0]; i++) {
            if (((float *)varve_storage_data(host))[i] != (float)round) {
                fail_msg("element %lld of round %u", (long long)i, round);
            }
        }
    }
    rule_release(host);
    rule_release(one);
    rule_release(other);
    rule_ok(varve_alloc_empty_cache(pool->alloc));
    rule_ok(device->ops->stream_destroy(device, options.stream));
}

/* The first copy that fails ends a batch; those before it are done. What batches do: storage_cases.py. */
static inline void rule_batch_error(void **state)
{
    const struct pool *pool = *state;
    const int64_t two[] = {2};
    const float expected[] = {0, 1};
    struct varve_storage *from = rule_numbers(NULL, 1, two), *other = rule_numbers(NULL, 2, rule_23);
    struct varve_storage *to = rule_numbers(pool->memory, 1, two), *kept = rule_numbers(pool->memory, 1, two);
    rule_fill(to, 9);
    assert_int_equal(
        varve_storage_copy_batch((struct varve_storage_pair[]){{to, from}, {kept, other}}, 2, 2, &rule_message),
        VARVE_ERROR_INVALID);
    assert_string_not_equal(rule_message.text, "");
    rule_expect(to, 2, expected);
    rule_expect(kept, 2, expected);
    rule_ok(varve_storage_copy_batch(NULL, 0, 1, &rule_message));
    assert_int_equal(varve_storage_copy_batch(NULL, 0, 0, &rule_message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_copy_batch(NULL, 0, 17, &rule_message), VARVE_ERROR_INVALID);
    rule_release(from);
    rule_release(other);
    rule_release(to);
    rule_release(kept);
}

static inline void rule_resize(void **state)
{
    const struct pool *pool = *state;
    const int64_t larger[] = {300, 30}, six[] = {6}, smaller[] = {2};
    struct varve_storage *storage = rule_numbers(pool->memory, 2, rule_23), *view, *begin;
    rule_ok(varve_storage_slice(storage, 0, 0, 1, 1, &view, &rule_message));
    assert_int_equal(varve_storage_resize(view, 1, smaller, &rule_message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_resize(storage, 2, larger, &rule_message), VARVE_ERROR_BUSY);
    rule_release(view);
    rule_ok(varve_storage_resize(storage, 2, larger, &rule_message));
    rule_ok(varve_storage_check(storage, &rule_message));
    rule_ok(varve_storage_select(storage, 0, 0, &view, &rule_message));
    rule_ok(varve_storage_slice(view, 0, 0, six[0], 1, &begin, &rule_message));
    rule_expect(begin, 6, (const float[]){0, 1, 2, 3, 4, 5});
    rule_release(begin);
    rule_release(view);
    rule_ok(varve_storage_resize(storage, 1, smaller, &rule_message));
    rule_expect(storage, 2, (const float[]){0, 1});
    rule_release(storage);
}

/* A larger piece of memory is what was asked for first: aligned so, and of that stream. */
static inline void rule_resize_keeps(void **state)
{
    const struct pool *pool = *state;
    const int64_t sizes[] = {0, 3, 100, 5000, 70000};
    struct varve_storage_options options = {.memory = pool->memory, .alignment = 1 << 16};
    if (pool->device != NULL) {
        rule_ok(pool->device->ops->stream_create(pool->device, &options.stream));
    }
    struct varve_storage *storage;
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 1, &sizes[0], &storage, &rule_message));
    struct varve_allocation_info info;
    for (unsigned i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rule_ok(varve_storage_resize(storage, 1, &sizes[i], &rule_message));
        assert_int_equal((uintptr_t)varve_storage_data(storage) % options.alignment, 0);
        if (pool->alloc != NULL) {
            rule_ok(varve_alloc_describe(pool->alloc, varve_storage_allocation(storage), &info));
            assert_int_equal(info.stream, options.stream);
        }
    }
    rule_release(storage);
    if (pool->device != NULL) {
        rule_ok(varve_alloc_empty_cache(pool->alloc));
        rule_ok(pool->device->ops->stream_destroy(pool->device, options.stream));
    }
}

/* Foreign memory stays where it is, so its elements have to lie as those of the new shape. */
static inline void rule_resize_foreign(void **state)
{
    const struct pool *pool = *state;
    const struct varve_geometry refused[] = {
        {.ndim = 2, .shape = {3, 2}, .strides = {1, 3}},
        {.ndim = 1, .shape = {3}, .strides = {2}},
        {.ndim = 1, .shape = {4}, .strides = {1}, .offset = 2},
        {.ndim = 1, .shape = {4}, .strides = {0}},
    };
    const struct varve_geometry taken = {.ndim = 2, .shape = {2, 3}, .strides = {3, 1}};
    const int64_t smaller[] = {2}, larger[] = {7};
    struct varve_storage *owner = rule_numbers(pool->memory, 2, rule_23), *storage;
    const struct varve_foreign foreign = {
        .data = varve_storage_data(owner), .bytes = varve_storage_bytes(owner), .memory = pool->memory};
    struct varve_array array;
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        rule_ok(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &refused[i], NULL, &storage, &rule_message));
        rule_refused(varve_storage_resize(storage, 1, smaller, &rule_message), VARVE_ERROR_INVALID,
                     "one behind the other");
        varve_storage_get_array(storage, &array); /* nothing has changed */
        assert_true(varve_geometry_has_shape(&array.geometry, refused[i].ndim, refused[i].shape));
        assert_int_equal(array.geometry.offset, refused[i].offset);
        rule_release(storage);
    }
    rule_ok(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &taken, NULL, &storage, &rule_message));
    assert_int_equal(varve_storage_resize(storage, 1, larger, &rule_message), VARVE_ERROR_INVALID);
    rule_ok(varve_storage_resize(storage, 1, smaller, &rule_message));
    rule_expect(storage, 2, (const float[]){0, 1});
    rule_release(storage);
    rule_release(owner);
}

/* Cases of cmocka, for one kind of memory that keeps bytes. */
#define STORAGE_RULES(kind)                                                                                  \
    POOL_CASE(rule_create, kind), POOL_CASE(rule_block, kind), POOL_CASE(rule_create_errors, kind),          \
        POOL_CASE(rule_references, kind), POOL_CASE(rule_foreign, kind), POOL_CASE(rule_unaligned, kind),    \
        POOL_CASE(rule_views, kind), POOL_CASE(rule_copy_and_clone, kind), POOL_CASE(rule_streams, kind),    \
        POOL_CASE(rule_batch_error, kind), POOL_CASE(rule_resize, kind), POOL_CASE(rule_resize_keeps, kind), \
        POOL_CASE(rule_resize_foreign, kind)

#endif
