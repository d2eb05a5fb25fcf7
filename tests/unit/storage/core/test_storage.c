/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages and views by the rules of all memories (support/storage): the C library's, a pool on the host device, a
 * pool of a device that the processor leaves everything to. What that device is asked for is seen on the simulated
 * one.
 * Costs: 1 s
 */
#include "support/storage/storage_rules.h"

#define MIB (UINT64_C(1) << 20)

/* What the processor can't address is copied by the device, or by way of host memory; its clock and its errors show
 * it. */
static void test_device_copies(void **state)
{
    const struct pool *pool = *state;
    struct varve_storage *host = rule_numbers(varve_memory_host(), 2, rule_23), *storage, *view;
    assert_false(varve_memory_is_addressable(pool->memory));
    rule_ok(varve_storage_to(host, pool->memory, VARVE_DTYPE_F32, &storage, &rule_message));
    assert_int_equal(varve_sim_calls(pool->device, VARVE_DEVICE_COPY), 1);
    rule_ok(varve_storage_transpose(storage, 0, 1, &view, &rule_message));
    assert_int_equal(varve_storage_copy(view, host, &rule_message), VARVE_ERROR_INVALID); /* (3, 2) and (2, 3) */
    rule_release(view);
    rule_ok(varve_storage_slice(storage, 1, 0, 2, 1, &view, &rule_message));
    rule_ok(varve_storage_fill(view, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &rule_message));
    assert_int_equal(varve_sim_calls(pool->device, VARVE_DEVICE_FILL), 0); /* there and back: two copies */
    rule_ok(varve_storage_fill(storage, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &rule_message));
    assert_int_equal(varve_sim_calls(pool->device, VARVE_DEVICE_FILL), 1);
    varve_sim_fail(pool->device, VARVE_DEVICE_COPY, 1, 1, VARVE_ERROR_IO);
    assert_int_equal(varve_storage_copy(host, storage, &rule_message), VARVE_ERROR_IO);
    assert_non_null(strstr(rule_message.text, "the device failed to copy: "));
    rule_ok(varve_storage_copy_on(host, storage, 0, &rule_message));
    rule_release(view);
    rule_release(storage);
    rule_release(host);
}

/* A storage keeps a view of the next alive, and that its base: as many as no stack has room for. */
static void test_long_chain(void **state)
{
    static const int64_t four[] = {4};
    struct varve_storage *first = NULL;
    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        struct varve_storage *storage, *view;
        rule_ok(varve_storage_zeros(NULL, VARVE_DTYPE_U8, 1, four, &storage, &rule_message));
        rule_ok(varve_storage_slice(storage, 0, 0, 2, 1, &view, &rule_message));
        if (first != NULL) {
            rule_ok(varve_storage_attach(storage, first, &rule_message));
            rule_release(first);
        }
        rule_release(storage);
        first = view;
    }
    assert_int_equal(varve_storage_live(), 400000);
    rule_release(first);
    assert_int_equal(varve_storage_live(), 0);
}

static int far_open(struct varve_device **device_out, struct varve_message *message)
{
    const struct varve_sim_options options = {.capacity_bytes = POOL_LIMIT, .first_addr = UINT64_C(1) << 46};
    return varve_sim_open(&options, device_out, message);
}

/* Addresses that no other device has, as with GPUs. */
static const struct pool_kind pool_far = {.name = "far", .open = far_open, .check = varve_sim_check};

/* A device is asked to copy from another one of its kind; where it can't, the bytes go by the host. */
static void test_peers(void **state)
{
    const struct pool *pool = *state;
    struct pool other;
    struct varve_storage *here = rule_numbers(pool->memory, 2, rule_23);
    uint64_t copies = varve_sim_calls(pool->device, VARVE_DEVICE_COPY);
    rule_ok(pool_open(&other, &pool_far, &rule_message));
    struct varve_storage *there = rule_numbers(other.memory, 2, rule_23);
    rule_ok(varve_storage_copy(there, here, &rule_message));
    assert_int_equal(varve_sim_calls(pool->device, VARVE_DEVICE_COPY), copies);
    assert_int_equal(varve_sim_calls(other.device, VARVE_DEVICE_COPY), 2); /* of the numbers, and this one */
    varve_sim_fail(other.device, VARVE_DEVICE_COPY, 1, 1, VARVE_ERROR_INVALID);
    rule_ok(varve_storage_copy(there, here, &rule_message));
    assert_int_equal(varve_sim_calls(pool->device, VARVE_DEVICE_COPY), copies + 1);
    assert_int_equal(varve_sim_calls(other.device, VARVE_DEVICE_COPY), 4);
    rule_release(here);
    rule_release(there);
    rule_ok(pool_close(&other, &rule_message));
}

/* ---- what a copy waits for ---- */

static struct {
    const struct varve_device_ops *ops;
    unsigned copies, unfinished; /* all; since the stream was last waited for */
    unsigned waits, streams;
} counted;

static int copy_counted(struct varve_device *device, uint64_t target_addr, uint64_t source_addr, uint64_t bytes,
                        enum varve_copy_direction direction, uint64_t stream)
{
    counted.copies++;
    counted.unfinished++;
    return counted.ops->copy(device, target_addr, source_addr, bytes, direction, stream);
}

static int synchronize_counted(struct varve_device *device, uint64_t stream)
{
    counted.unfinished = 0;
    counted.waits++;
    return counted.ops->stream_synchronize(device, stream);
}

/* Those of the device, which count what they do. */
static struct varve_device_ops counted_ops(const struct varve_device *device)
{
    struct varve_device_ops ops = *device->ops;
    counted.ops = device->ops;
    ops.copy = copy_counted;
    ops.stream_synchronize = synchronize_counted;
    return ops;
}

/* Larger ones go to a device through pinned pieces, of which the last are on the way when all has been read: the call
 * waits. */
static void test_copies_are_done(void **state)
{
    static const enum varve_dtype types[] = {VARVE_DTYPE_F32, VARVE_DTYPE_I32}; /* as it is; by way of host memory */
    const struct pool *pool = *state;
    const struct varve_storage_options there = {.memory = pool->memory};
    const int64_t count = (int64_t)(3 * MIB);
    struct varve_device_ops ops = counted_ops(pool->device);
    struct varve_storage *from, *to;
    rule_ok(varve_storage_full(NULL, VARVE_DTYPE_F32, 1, &count,
                               (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 3}, &from,
                               &rule_message));
    for (unsigned i = 0; i < 2; i++) {
        rule_ok(varve_storage_empty(&there, types[i], 1, &count, &to, &rule_message));
        counted.copies = 0;
        pool->device->ops = &ops;
        rule_ok(varve_storage_copy(to, from, &rule_message));
        pool->device->ops = counted.ops;
        assert_true(counted.copies > 1);
        assert_int_equal(counted.unfinished, 0);
        rule_release(to);
    }
    rule_release(from);
}

/* A stream is the target's device's: another device has none of that number, or it is another one there. */
static void test_between_devices(void **state)
{
    static const enum varve_dtype types[] = {VARVE_DTYPE_F32, VARVE_DTYPE_I16}; /* as it is; by way of host memory */
    const struct pool *pool = *state;
    const struct varve_device_ops *ops = pool->device->ops;
    struct pool other;
    rule_ok(pool_open(&other, &pool_apart, &rule_message));
    struct varve_storage *from = rule_numbers(other.memory, 2, rule_23);
    uint64_t stream, gone;
    rule_ok(ops->stream_create(pool->device, &stream));
    rule_ok(ops->stream_create(other.device, &gone));
    rule_ok(ops->stream_destroy(other.device, gone));
    assert_int_equal(gone, stream);
    struct varve_device_ops both = counted_ops(other.device);
    struct varve_storage *to;
    for (unsigned i = 0; i < 2; i++) {
        rule_ok(varve_storage_empty(&(struct varve_storage_options){.memory = pool->memory}, types[i], 2, rule_23, &to,
                                    &rule_message));
        counted.waits = 0;
        pool->device->ops = other.device->ops = &both;
        rule_ok(varve_storage_copy_on(to, from, stream, &rule_message));
        pool->device->ops = other.device->ops = counted.ops;
        assert_true(counted.waits > 0);
        rule_expect(to, 6, (const float[]){0, 1, 2, 3, 4, 5});
        rule_release(to);
    }
    rule_release(from);
    rule_ok(ops->stream_destroy(pool->device, stream));
    rule_ok(pool_close(&other, &rule_message));
}

static int stream_create_counted(struct varve_device *device, uint64_t *stream_out)
{
    counted.streams++;
    return counted.ops->stream_create(device, stream_out);
}

/* Streams are made once, so that blocks that the allocator keeps for them are found again; more are added where they
 * are wanted. */
static void test_batch_streams(void **state)
{
    const struct pool *pool = *state;
    const unsigned streams[] = {3, 2, 3, 5};
    struct varve_device_ops ops = counted_ops(pool->device);
    struct varve_storage *from = rule_numbers(NULL, 2, rule_23), *to = rule_numbers(pool->memory, 2, rule_23);
    const struct varve_storage_pair pair = {to, from};
    ops.stream_create = stream_create_counted;
    counted.streams = 0;
    pool->device->ops = &ops;
    for (unsigned i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        rule_ok(varve_storage_copy_batch(&pair, 1, streams[i], &rule_message));
        assert_int_equal(counted.streams, i < 3 ? 3 : 5);
    }
    pool->device->ops = counted.ops;
    rule_expect(to, 6, (const float[]){0, 1, 2, 3, 4, 5});
    rule_release(from);
    rule_release(to);
}

/* ---- blocks that go from hand to hand in the order of a stream ---- */

static struct {
    const struct varve_device_ops *ops;
    uint64_t stream;
    bool is_blocked;
} held;

/* The stream gets on as soon as somebody waits for it. */
static int synchronize_held(struct varve_device *device, uint64_t stream)
{
    if (stream == held.stream && held.is_blocked) {
        held.is_blocked = false;
        rule_ok(varve_host_stream_release(device, stream));
    }
    return held.ops->stream_synchronize(device, stream);
}

/* 0: full, 1: from_array, 2: clone. Elements are 0 to 5, or all 3. */
static struct varve_storage *make(unsigned way, const struct varve_storage_options *options,
                                  struct varve_storage *numbers)
{
    const struct varve_scalar three = {.kind = VARVE_SCALAR_INTEGER, .integer = 3};
    struct varve_array array;
    varve_storage_get_array(numbers, &array);
    struct varve_storage *storage;
    rule_ok(way == 0   ? varve_storage_full(options, VARVE_DTYPE_F32, 2, rule_23, three, &storage, &rule_message)
            : way == 1 ? varve_storage_from_array(options, &array, &storage, &rule_message)
                       : varve_storage_clone(numbers, options, &storage, &rule_message));
    return storage;
}

/* A block was released while its stream still had work on it: what is made in it next is not overwritten by that. */
static void test_recycled_block(void **state)
{
    const struct pool *pool = *state;
    struct varve_device_ops ops = *pool->device->ops;
    struct varve_storage *numbers = rule_numbers(NULL, 2, rule_23), *before, *after;
    struct varve_storage_options options = {.memory = pool->memory};
    held.ops = pool->device->ops;
    ops.stream_synchronize = synchronize_held;
    rule_ok(held.ops->stream_create(pool->device, &held.stream));
    options.stream = held.stream;
    for (unsigned way = 0; way < 3; way++) {
        rule_ok(varve_storage_empty(&options, VARVE_DTYPE_F32, 2, rule_23, &before, &rule_message));
        const void *block = varve_storage_data(before);
        rule_ok(varve_host_stream_block(pool->device, held.stream));
        held.is_blocked = true;
        rule_ok(varve_storage_fill_on(before, (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 7},
                                      held.stream, &rule_message));
        rule_release(before);
        pool->device->ops = &ops;
        after = make(way, &options, numbers);
        rule_ok(ops.stream_synchronize(pool->device, held.stream));
        pool->device->ops = held.ops;
        assert_ptr_equal(varve_storage_data(after), block);
        rule_expect(after, 6, way == 0 ? (const float[]){3, 3, 3, 3, 3, 3} : (const float[]){0, 1, 2, 3, 4, 5});
        rule_release(after);
    }
    rule_release(numbers);
    rule_ok(varve_alloc_empty_cache(pool->alloc));
    rule_ok(held.ops->stream_destroy(pool->device, held.stream));
}

/* ---- operators that are refused, and a result over its inputs: what results are is in storage_cases.py ---- */

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

/* out[i] = a[i] + a[i] where out begins one element behind a. */
static void test_operator_overlap(void **state)
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

static void test_operators_of_two(void **state)
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
static void test_operator_refusals(void **state)
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

static void test_operator_read_only(void **state)
{
    const struct varve_foreign foreign = {.data = (void *)(uintptr_t)left, .bytes = sizeof(left), .is_read_only = true};
    (void)state;
    struct varve_geometry geometry;
    rule_ok(varve_geometry_contiguous(2, shape_34, &geometry, NULL));
    struct varve_storage *fixed;
    rule_ok(varve_storage_wrap(&foreign, VARVE_DTYPE_F32, &geometry, NULL, &fixed, &rule_message));
    rule_refused(varve_storage_op_relu(fixed, fixed, 0, &rule_message), VARVE_ERROR_PERMISSION, "only be read");
    rule_release(fixed);
}

static const struct CMUnitTest cases[] = {
    STORAGE_RULES(pool_libc),
    STORAGE_RULES(pool_host),
    STORAGE_RULES(pool_apart),
    POOL_CASE(test_device_copies, pool_sim),
    POOL_CASE(test_peers, pool_sim),
    POOL_CASE(test_long_chain, pool_libc),
    POOL_CASE(test_copies_are_done, pool_apart),
    POOL_CASE(test_between_devices, pool_apart),
    POOL_CASE(test_recycled_block, pool_apart),
    POOL_CASE(test_batch_streams, pool_apart),
    POOL_CASE(test_operator_overlap, pool_libc),
    POOL_CASE(test_operator_overlap, pool_apart),
    POOL_CASE(test_operators_of_two, pool_apart),
    POOL_CASE(test_operator_refusals, pool_libc),
    POOL_CASE(test_operator_refusals, pool_apart),
    POOL_CASE(test_operator_read_only, pool_libc),
};

TEST_CASES(cases)
