/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on storages that are refused, in the C library's memory and in a device's, and a result over its inputs.
 * What results are is beside NumPy in tests/conformance/storage_cases.py.
 * Costs: 1 s
 */
#include "support/storage/storage_rules.h"

#define COUNT 12

static const int64_t shape_34[] = {3, 4}, shape_3[] = {3}, shape_4[] = {4}, shape_33[] = {3, 3};

static struct varve_storage *storage_of(struct varve_memory *memory, enum varve_dtype dtype, unsigned ndim,
                                        const int64_t *shape, const void *elements)
{
    struct varve_array array = {.data = (void *)(uintptr_t)elements, .dtype = dtype};
    rule_ok(varve_geometry_contiguous(ndim, shape, &array.geometry, NULL));
    struct varve_storage *storage;
    rule_ok(
        varve_storage_from_array(&(struct varve_storage_options){.memory = memory}, &array, &storage, &rule_message));
    return storage;
}

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

/* ---- overlap ---- */

/* out[i] = a[i] + a[i] where out begins one element behind a. */
static void test_overlap(void **state)
{
    static const int64_t shape[] = {5};
    static const float before[] = {1, 2, 3, 4, 5}, after[] = {1, 2, 4, 6, 8};
    struct varve_storage *whole = storage_of(((const struct pool *)*state)->memory, VARVE_DTYPE_F32, 1, shape, before);
    struct varve_storage *a, *out;
    rule_ok(varve_storage_slice(whole, 0, 0, 4, 1, &a, &rule_message));
    rule_ok(varve_storage_slice(whole, 0, 1, 5, 1, &out, &rule_message));
    rule_ok(varve_storage_op_add(out, a, a, 0, &rule_message));
    rule_expect(whole, 5, after);
    rule_release(a);
    rule_release(out);
    rule_release(whole);
}

/* ---- what is refused ---- */

static void expect_refused(int error, int expected, const char *words)
{
    assert_int_equal(error, expected);
    if (strstr(rule_message.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", rule_message.text, words);
    }
}

static void test_other_device(void **state)
{
    struct operands near, away;
    operands_make(&near, varve_memory_host());
    operands_make(&away, ((const struct pool *)*state)->memory);
    expect_refused(varve_storage_op_add(near.out, near.a, away.a, 0, &rule_message), VARVE_ERROR_INVALID, "'apart'");
    expect_refused(varve_storage_op_relu(away.out, near.a, 0, &rule_message), VARVE_ERROR_INVALID, "'host'");
    operands_release(&near);
    operands_release(&away);
}

/* The same words wherever the operands lie, and nothing is changed. */
static void test_refusals(void **state)
{
    static const float nothing[COUNT];
    struct varve_memory *memory = ((const struct pool *)*state)->memory;
    struct varve_storage *integers = storage_of(memory, VARVE_DTYPE_I32, 2, shape_34, left);
    struct operands o;
    operands_make(&o, memory);
    expect_refused(varve_storage_op_add(o.row_sums, o.a, o.b, 0, &rule_message), VARVE_ERROR_INVALID,
                   "add: the result has shape (3, 4), not (3,)");
    expect_refused(varve_storage_op_add(o.out, o.a, integers, 0, &rule_message), VARVE_ERROR_INVALID,
                   "add: operands have types f32 and i32");
    expect_refused(varve_storage_op_exp(integers, integers, 0, &rule_message), VARVE_ERROR_INVALID,
                   "exp: not supported for i32");
    expect_refused(varve_storage_op_sum(o.row_sums, o.a, 2, 0, &rule_message), VARVE_ERROR_INVALID,
                   "sum: axis 2 is out of bounds");
    expect_refused(varve_storage_op_matmul(o.square, o.a, o.a, 0, &rule_message), VARVE_ERROR_INVALID, "matmul");
    expect_refused(varve_storage_op_uniform(o.out, 1, 1, 2, 1, 0, &rule_message), VARVE_ERROR_INVALID, "uniform");
    expect_refused(varve_storage_op_normal(o.out, 1, 1, 0, -1, 0, &rule_message), VARVE_ERROR_INVALID, "normal");
    rule_expect(o.out, COUNT, nothing);
    varve_storage_release(integers, NULL);
    operands_release(&o);
}

static void test_read_only(void **state)
{
    const struct varve_foreign foreign = {.data = (void *)(uintptr_t)left, .bytes = sizeof(left), .is_read_only = true};
    (void)state;
    struct varve_geometry geometry;
    rule_ok(varve_geometry_contiguous(2, shape_34, &geometry, NULL));
    struct varve_storage *fixed;
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &geometry, NULL, &fixed, &rule_message), VARVE_OK);
    expect_refused(varve_storage_op_relu(fixed, fixed, 0, &rule_message), VARVE_ERROR_PERMISSION, "only be read");
    varve_storage_release(fixed, NULL);
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_overlap, pool_libc),  POOL_CASE(test_overlap, pool_apart),  POOL_CASE(test_other_device, pool_apart),
    POOL_CASE(test_refusals, pool_libc), POOL_CASE(test_refusals, pool_apart), POOL_CASE(test_read_only, pool_libc),
};

TEST_CASES(cases)
