/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on storages that are refused, in the C library's memory and in a device's, and a result over its inputs.
 * What results are is beside NumPy in tests/conformance/storage_cases.py.
 * Costs: 1 s
 */
#include "support/storage/storage_rules.h"

#define COUNT 12

static const int64_t shape_34[] = {3, 4}, shape_3[] = {3}, shape_4[] = {4};

static struct varve_storage *storage_of(struct varve_memory *memory, unsigned ndim, const int64_t *shape,
                                        const float *elements)
{
    struct varve_array array = {.data = (void *)(uintptr_t)elements, .dtype = VARVE_DTYPE_F32};
    rule_ok(varve_geometry_contiguous(ndim, shape, &array.geometry, NULL));
    struct varve_storage *storage;
    rule_ok(
        varve_storage_from_array(&(struct varve_storage_options){.memory = memory}, &array, &storage, &rule_message));
    return storage;
}

static const float left[COUNT] = {1, -2, 3, 4, 0.5F, 6, -7, 8, 9, 10, 11, -12}, right[4] = {2, 4, -1, 0.5F};

struct operands {
    struct varve_storage *out, *a, *b, *row_sums;
};

static void operands_make(struct operands *operands, struct varve_memory *memory)
{
    static const float nothing[COUNT];
    operands->a = storage_of(memory, 2, shape_34, left);
    operands->b = storage_of(memory, 1, shape_4, right);
    operands->out = storage_of(memory, 2, shape_34, nothing);
    operands->row_sums = storage_of(memory, 1, shape_3, nothing);
}

static void operands_release(const struct operands *operands)
{
    rule_release(operands->a);
    rule_release(operands->b);
    rule_release(operands->out);
    rule_release(operands->row_sums);
}

/* ---- overlap ---- */

/* out[i] = a[i] + a[i] where out begins one element behind a. */
static void test_overlap(void **state)
{
    static const int64_t shape[] = {5};
    static const float before[] = {1, 2, 3, 4, 5}, after[] = {1, 2, 4, 6, 8};
    struct varve_storage *whole = storage_of(((const struct pool *)*state)->memory, 1, shape, before);
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

static void test_other_device(void **state)
{
    struct operands near, away;
    operands_make(&near, varve_memory_host());
    operands_make(&away, ((const struct pool *)*state)->memory);
    rule_refused(varve_storage_op_add(near.out, near.a, away.a, 0, &rule_message), VARVE_ERROR_INVALID, "'apart'");
    rule_refused(varve_storage_op_relu(away.out, near.a, 0, &rule_message), VARVE_ERROR_INVALID, "'host'");
    operands_release(&near);
    operands_release(&away);
}

/* The host's words, wherever the operands lie, and nothing is changed; storage_cases.py compares all errors. */
static void test_refusals(void **state)
{
    static const float nothing[COUNT];
    struct operands o;
    operands_make(&o, ((const struct pool *)*state)->memory);
    rule_refused(varve_storage_op_add(o.row_sums, o.a, o.b, 0, &rule_message), VARVE_ERROR_INVALID,
                 "add: the result has shape (3, 4), not (3,)");
    rule_refused(varve_storage_op_sum(o.row_sums, o.a, 2, 0, &rule_message), VARVE_ERROR_INVALID,
                 "sum: axis 2 is out of bounds");
    rule_refused(varve_storage_op_normal(o.out, 1, 1, 0, -1, 0, &rule_message), VARVE_ERROR_INVALID, "normal");
    rule_expect(o.out, COUNT, nothing);
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
    rule_refused(varve_storage_op_relu(fixed, fixed, 0, &rule_message), VARVE_ERROR_PERMISSION, "only be read");
    rule_release(fixed);
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_overlap, pool_libc),  POOL_CASE(test_overlap, pool_apart),  POOL_CASE(test_other_device, pool_apart),
    POOL_CASE(test_refusals, pool_libc), POOL_CASE(test_refusals, pool_apart), POOL_CASE(test_read_only, pool_libc),
};

TEST_CASES(cases)
