/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on storages in each kind of memory: the C library's, a pool on the host device, and a pool of a device
 * that the processor can't address and that has no kernels. The results are those of the operators on arrays, the
 * refusals have their words.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/storage.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define COUNT 12

static struct varve_message message;
static const int64_t shape_34[] = {3, 4}, shape_3[] = {3}, shape_4[] = {4}, shape_33[] = {3, 3};

/* ---- memories ---- */

struct pool {
    struct varve_device_ops ops; /* those of the host device, under another name where the memory is to be far */
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_memory *memory;
};

static void pool_open(struct pool *pool, bool is_far)
{
    struct varve_alloc_options options;

    assert_int_equal(varve_host_open(&(struct varve_host_options){.limit_bytes = 64 * MIB}, &pool->device, NULL),
                     VARVE_OK);
    if (is_far) {
        pool->ops = *pool->device->ops;
        pool->ops.name = "far";
        pool->device->ops = &pool->ops;
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

static struct varve_storage *storage_of(struct varve_memory *memory, enum varve_dtype dtype, unsigned ndim,
                                        const int64_t *shape, const void *elements)
{
    struct varve_array array = {.data = (void *)(uintptr_t)elements, .dtype = dtype};
    struct varve_storage *storage;

    assert_int_equal(varve_geometry_contiguous(ndim, shape, &array.geometry, NULL), VARVE_OK);
    assert_int_equal(
        varve_storage_from_array(&(struct varve_storage_options){.memory = memory}, &array, &storage, &message),
        VARVE_OK);
    return storage;
}

static void expect(struct varve_storage *storage, const float *expected, const char *what)
{
    struct varve_storage *host;
    const float *values;

    assert_int_equal(varve_storage_clone(storage, &(struct varve_storage_options){0}, &host, &message), VARVE_OK);
    values = varve_storage_data(host);
    for (int64_t i = 0; i < varve_storage_count(host); i++) {
        if (values[i] != expected[i]) {
            fail_msg("%s: element %d is %g, not %g", what, (int)i, (double)values[i], (double)expected[i]);
        }
    }
    varve_storage_release(host, NULL);
}

/* ---- all operators ---- */

static const float left[COUNT] = {1, -2, 3, 4, 0.5F, 6, -7, 8, 9, 10, 11, -12}, right[4] = {2, 4, -1, 0.5F};

struct operands {
    struct varve_storage *out, *a, *b, *row_sums, *column_sums, *square;
};

static void operands_make(struct operands *operands, struct varve_memory *memory)
{
    static const float nothing[COUNT];

    operands->a = storage_of(memory, VARVE_DTYPE_F32, 2, shape_34, left);
    operands->b = storage_of(memory, VARVE_DTYPE_F32, 1, shape_4, right);
    operands->out = storage_of(memory, VARVE_DTYPE_F32, 2, shape_34, nothing);
    operands->row_sums = storage_of(memory, VARVE_DTYPE_F32, 1, shape_3, nothing);
    operands->column_sums = storage_of(memory, VARVE_DTYPE_F32, 1, shape_4, nothing);
    operands->square = storage_of(memory, VARVE_DTYPE_F32, 2, shape_33, nothing);
}

static void operands_release(struct operands *operands)
{
    varve_storage_release(operands->a, NULL);
    varve_storage_release(operands->b, NULL);
    varve_storage_release(operands->out, NULL);
    varve_storage_release(operands->row_sums, NULL);
    varve_storage_release(operands->column_sums, NULL);
    varve_storage_release(operands->square, NULL);
}

/* On host memory, into the first bytes of `expected`. */
static struct varve_array array_of(const void *data, unsigned ndim, const int64_t *shape)
{
    struct varve_array array = {.data = (void *)(uintptr_t)data, .dtype = VARVE_DTYPE_F32};

    assert_int_equal(varve_geometry_contiguous(ndim, shape, &array.geometry, NULL), VARVE_OK);
    return array;
}

/* `to`: the storage of the result, `to_array` its array beside it. */
#define BOTH(name, to, to_array, storages, arrays, ...)                                            \
    do {                                                                                           \
        assert_int_equal(varve_op_##name(&(to_array), arrays, ##__VA_ARGS__, &message), VARVE_OK); \
        if (varve_storage_op_##name(to, storages, ##__VA_ARGS__, 0, &message) != VARVE_OK) {       \
            fail_msg("%s: %s", #name, message.text);                                               \
        }                                                                                          \
        expect(to, expected, #name);                                                               \
    } while (0)
#define TWO(x, y) x, y

static void check_inputs(struct operands *o)
{
    float expected[COUNT] = {0};
    struct varve_array a = array_of(left, 2, shape_34), b = array_of(right, 1, shape_4);
    struct varve_array out = array_of(expected, 2, shape_34), rows = array_of(expected, 1, shape_3);
    struct varve_array columns = array_of(expected, 1, shape_4), square = array_of(expected, 2, shape_33);
    struct varve_storage *turned;

    BOTH(add, o->out, out, TWO(o->a, o->b), TWO(&a, &b));
    BOTH(sub, o->out, out, TWO(o->a, o->b), TWO(&a, &b));
    BOTH(mul, o->out, out, TWO(o->a, o->b), TWO(&a, &b));
    BOTH(div, o->out, out, TWO(o->a, o->b), TWO(&a, &b));
    BOTH(relu, o->out, out, o->a, &a);
    BOTH(exp, o->out, out, o->a, &a);
    BOTH(pow, o->out, out, TWO(o->out, o->b), TWO(&out, &b)); /* in place, and of what exp left */
    BOTH(sum, o->row_sums, rows, o->a, &a, -1);
    BOTH(mean, o->column_sums, columns, o->a, &a, 0);
    BOTH(max, o->row_sums, rows, o->a, &a, 1);
    assert_int_equal(varve_storage_transpose(o->a, 0, 1, &turned, &message), VARVE_OK);
    b = a;
    assert_int_equal(varve_geometry_transpose(&b.geometry, 0, 1, NULL), VARVE_OK);
    BOTH(matmul, o->square, square, TWO(o->a, turned), TWO(&a, &b));
    varve_storage_release(turned, NULL);
}

static void check_generators(struct operands *o)
{
    const struct varve_scalar start = {.kind = VARVE_SCALAR_INTEGER, .integer = 3};
    const struct varve_scalar step = {.kind = VARVE_SCALAR_REAL, .real = -0.25};
    float expected[COUNT] = {0};
    struct varve_array out = array_of(expected, 2, shape_34);

    BOTH(fill, o->out, out, step, step);
    BOTH(arange, o->out, out, TWO(start, step), TWO(start, step));
    BOTH(uniform, o->out, out, TWO(5, 6), TWO(5, 6), -1, 2);
    BOTH(normal, o->out, out, TWO(5, 7), TWO(5, 7), 1, 2);
}

static void check_memory(struct varve_memory *memory)
{
    struct operands operands;

    operands_make(&operands, memory);
    check_inputs(&operands);
    check_generators(&operands);
    operands_release(&operands);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return varve_storage_live() == 0 ? 0 : -1;
}

TEST_WITH(test_all_operators, NULL, nothing_is_left)
{
    struct pool pool, far;

    pool_open(&pool, false);
    pool_open(&far, true);
    assert_false(varve_memory_is_addressable(far.memory));
    check_memory(varve_memory_host());
    check_memory(pool.memory);
    check_memory(far.memory);
    pool_close(&pool);
    pool_close(&far);
}

/* ---- overlap ---- */

/* out[i] = a[i] + a[i] where out begins one element behind a. */
static void check_overlap(struct varve_memory *memory)
{
    static const int64_t shape[] = {5};
    static const float before[] = {1, 2, 3, 4, 5}, after[] = {1, 2, 4, 6, 8};
    struct varve_storage *whole = storage_of(memory, VARVE_DTYPE_F32, 1, shape, before), *a, *out;

    assert_int_equal(varve_storage_slice(whole, 0, 0, 4, 1, &a, &message), VARVE_OK);
    assert_int_equal(varve_storage_slice(whole, 0, 1, 5, 1, &out, &message), VARVE_OK);
    assert_int_equal(varve_storage_op_add(out, a, a, 0, &message), VARVE_OK);
    expect(whole, after, "a result that overlaps its inputs");
    varve_storage_release(a, NULL);
    varve_storage_release(out, NULL);
    varve_storage_release(whole, NULL);
}

TEST_WITH(test_overlap, NULL, nothing_is_left)
{
    struct pool far;

    pool_open(&far, true);
    check_overlap(varve_memory_host());
    check_overlap(far.memory);
    pool_close(&far);
}

/* ---- what is refused ---- */

static void expect_refused(int error, int expected, const char *words)
{
    assert_int_equal(error, expected);
    if (strstr(message.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", message.text, words);
    }
}

TEST_WITH(test_other_device, NULL, nothing_is_left)
{
    struct operands near, away;
    struct pool far;

    pool_open(&far, true);
    operands_make(&near, varve_memory_host());
    operands_make(&away, far.memory);
    expect_refused(varve_storage_op_add(near.out, near.a, away.a, 0, &message), VARVE_ERROR_INVALID, "'far'");
    expect_refused(varve_storage_op_relu(away.out, near.a, 0, &message), VARVE_ERROR_INVALID, "'host'");
    operands_release(&near);
    operands_release(&away);
    pool_close(&far);
}

/* The same words wherever the operands lie, and nothing is changed. */
static void check_refusals(struct varve_memory *memory)
{
    static const float nothing[COUNT];
    struct varve_storage *integers = storage_of(memory, VARVE_DTYPE_I32, 2, shape_34, left);
    struct operands o;

    operands_make(&o, memory);
    expect_refused(varve_storage_op_add(o.row_sums, o.a, o.b, 0, &message), VARVE_ERROR_INVALID,
                   "add: the result has shape (3, 4), not (3,)");
    expect_refused(varve_storage_op_add(o.out, o.a, integers, 0, &message), VARVE_ERROR_INVALID,
                   "add: operands have types f32 and i32");
    expect_refused(varve_storage_op_exp(integers, integers, 0, &message), VARVE_ERROR_INVALID,
                   "exp: not supported for i32");
    expect_refused(varve_storage_op_sum(o.row_sums, o.a, 2, 0, &message), VARVE_ERROR_INVALID,
                   "sum: axis 2 is out of bounds");
    expect_refused(varve_storage_op_matmul(o.square, o.a, o.a, 0, &message), VARVE_ERROR_INVALID, "matmul");
    expect_refused(varve_storage_op_uniform(o.out, 1, 1, 2, 1, 0, &message), VARVE_ERROR_INVALID, "uniform");
    expect_refused(varve_storage_op_normal(o.out, 1, 1, 0, -1, 0, &message), VARVE_ERROR_INVALID, "normal");
    expect(o.out, nothing, "a refused operation");
    varve_storage_release(integers, NULL);
    operands_release(&o);
}

TEST_WITH(test_refusals, NULL, nothing_is_left)
{
    struct pool far;

    pool_open(&far, true);
    check_refusals(varve_memory_host());
    check_refusals(far.memory);
    pool_close(&far);
}

TEST_WITH(test_read_only, NULL, nothing_is_left)
{
    const struct varve_foreign foreign = {.data = (void *)(uintptr_t)left, .bytes = sizeof(left), .is_read_only = true};
    struct varve_array array = array_of(left, 2, shape_34);
    struct varve_storage *fixed;

    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &array.geometry, NULL, &fixed, &message), VARVE_OK);
    expect_refused(varve_storage_op_relu(fixed, fixed, 0, &message), VARVE_ERROR_PERMISSION, "only be read");
    varve_storage_release(fixed, NULL);
}
