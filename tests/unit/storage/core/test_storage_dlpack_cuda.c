/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack's tensors in a CUDA device's memory, on a fake driver: which streams are made to wait for which, what a
 * block waits for when it is freed, and which device a tensor may lie in. Elements are never looked at.
 * Costs: 1 s
 */
#include "support/cuda/driver_fake.h"
#include "support/storage/storage_rules.h"

#define STREAM 0x5000
#define OTHER 0x6000

static const int64_t shape[] = {4, 4};

static int fake_open(struct varve_device **device_out, struct varve_message *message)
{
    const struct varve_cuda_options options = {.index = FAKE_ORDINAL + 4, .ordinal = FAKE_ORDINAL};
    fake_reset();
    int error = cuda_device_open(&fake_driver, &options, device_out, message);
    fake.device = error == VARVE_OK ? *device_out : NULL;
    return error;
}

static int fake_check(const struct varve_device *device, struct varve_message *message)
{
    (void)device;
    (void)message;
    fake.device = NULL;
    return VARVE_OK;
}

static const struct pool_kind pool_fake = {.name = "fake", .open = fake_open, .check = fake_check};

static int fake_teardown(void **state)
{
    int error = pool_teardown(state);
    return error == VARVE_OK && fake.wrong[0] == '\0' && fake_count(FAKE_NONE) == FAKE_OBJECTS ? VARVE_OK : -1;
}

#define FAKE_CASE(function)                                                                                   \
    {                                                                                                         \
        .name = #function, .test_func = (function), .setup_func = pool_setup, .teardown_func = fake_teardown, \
        .initial_state = (void *)(uintptr_t)&pool_fake                                                        \
    }

static struct varve_storage *made(const struct pool *pool, uint64_t stream)
{
    struct varve_storage *storage;
    rule_ok(varve_storage_empty(&(struct varve_storage_options){.memory = pool->memory, .stream = stream},
                                VARVE_DTYPE_F32, 2, shape, &storage, &rule_message));
    return storage;
}

/* Export for `stream`, and the wait that comes of it: none if `waiting` is UINT64_MAX. */
static void export_for(const struct pool *pool, int64_t stream, uint64_t producer, uint64_t waiting)
{
    struct varve_storage *storage = made(pool, producer);
    fake.orders = 0;
    struct varve_dlpack_versioned *tensor;
    rule_ok(varve_storage_to_dlpack(storage, stream, false, &tensor, &rule_message));
    assert_int_equal(tensor->tensor.device.type, VARVE_DLPACK_CUDA);
    assert_int_equal(tensor->tensor.device.id, FAKE_ORDINAL);
    assert_int_equal(fake.orders, waiting != UINT64_MAX);
    if (waiting != UINT64_MAX) {
        assert_int_equal(fake.order[0].stream, waiting);
        assert_int_equal(fake.order[0].other, producer);
    }
    rule_release(storage);
    assert_int_equal(varve_storage_live(), 2); /* the storage, and the tensor's view of it */
    tensor->deleter(tensor);
    assert_int_equal(varve_storage_live(), 0);
}

static void test_streams(void **state)
{
    const struct pool *pool = *state;
    export_for(pool, VARVE_DLPACK_STREAM_NONE, STREAM, 0);
    export_for(pool, VARVE_DLPACK_STREAM_LEGACY, STREAM, 0);
    export_for(pool, VARVE_DLPACK_STREAM_PER_THREAD, STREAM, 2);
    export_for(pool, OTHER, STREAM, OTHER);
    export_for(pool, OTHER, 0, OTHER);
    export_for(pool, STREAM, STREAM, UINT64_MAX);
    export_for(pool, VARVE_DLPACK_STREAM_NONE, 0, UINT64_MAX);
    export_for(pool, VARVE_DLPACK_STREAM_UNORDERED, STREAM, UINT64_MAX);
    struct varve_storage *storage = made(pool, STREAM);
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(storage, 0, false, &tensor, &rule_message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_to_dlpack(storage, -2, false, &tensor, &rule_message), VARVE_ERROR_INVALID);
    assert_string_equal(rule_message.text, "stream -2 of a CUDA device");
    assert_int_equal(varve_storage_use_count(storage), 1);
    rule_release(storage);
    assert_int_equal(varve_alloc_empty_cache(pool->alloc), VARVE_OK);
}

/* The consumer's stream may still use the block when the consumer gives it back: nobody else gets it before. */
static void test_block_waits_for_the_consumer(void **state)
{
    const struct pool *pool = *state;
    struct varve_storage *storage = made(pool, STREAM);
    void *data = varve_storage_data(storage);
    struct varve_dlpack_versioned *tensor;
    rule_ok(varve_storage_to_dlpack(storage, OTHER, false, &tensor, &rule_message));
    rule_release(storage);
    fake.is_event_pending = true;
    tensor->deleter(tensor);
    storage = made(pool, STREAM);
    assert_ptr_not_equal(varve_storage_data(storage), data);
    rule_release(storage);
    fake.is_event_pending = false;
    assert_int_equal(varve_alloc_process_events(pool->alloc), VARVE_OK);
    storage = made(pool, STREAM);
    assert_ptr_equal(varve_storage_data(storage), data);
    rule_release(storage);
}

/* A driver that fails somewhere: an error or a tensor, and nothing is lost. */
TEST(test_failing_driver)
{
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call++) {
        struct pool pool;
        rule_ok(pool_open(&pool, &pool_fake, &rule_message));
        struct varve_storage *storage = made(&pool, STREAM);
        fake.fail_at = call;
        fake.fail_with = 719;
        struct varve_dlpack_versioned *tensor;
        int error = varve_storage_to_dlpack(storage, OTHER, false, &tensor, &rule_message);
        has_failed = fake.fail_at == 0;
        fake.fail_at = 0;
        assert_true(error == VARVE_OK || has_failed);
        assert_true(error == VARVE_OK ||
                    strstr(rule_message.text, "the consumer's stream can't be made to wait") != NULL);
        if (error == VARVE_OK) {
            tensor->deleter(tensor);
        }
        assert_int_equal(varve_storage_use_count(storage), 1);
        rule_release(storage);
        rule_ok(pool_close(&pool, &rule_message));
        assert_string_equal(fake.wrong, "");
        assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
        assert_true(call > 1 || error != VARVE_OK);
    }
}

static void test_import(void **state)
{
    const struct pool *pool = *state;
    struct varve_storage *storage = made(pool, STREAM);
    struct varve_dlpack_versioned *tensor;
    rule_ok(varve_storage_to_dlpack(storage, STREAM, false, &tensor, &rule_message));
    struct varve_storage *imported;
    rule_ok(varve_storage_from_dlpack(tensor, pool->memory, NULL, &imported, &rule_message));
    assert_ptr_equal(varve_storage_data(imported), varve_storage_data(storage));
    assert_ptr_equal(varve_storage_memory(imported), pool->memory);
    rule_release(storage);
    fake.orders = 0;
    rule_ok(varve_storage_to_dlpack(imported, OTHER, false, &tensor, &rule_message));
    assert_int_equal(fake.orders, 1); /* no block of ours: behind the default stream */
    assert_int_equal(fake.order[0].other, 0);
    rule_release(imported);
    tensor->tensor.device.id = 0; /* another device than the memory's */
    assert_int_equal(varve_storage_from_dlpack(tensor, pool->memory, NULL, &imported, &rule_message),
                     VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_storage_live(), 0);
    storage = made(pool, STREAM);
    rule_ok(varve_storage_to_dlpack(storage, STREAM, false, &tensor, &rule_message));
    rule_release(storage);
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &imported, &rule_message), VARVE_ERROR_UNSUPPORTED);
}

/* ---- tensors in memory of others ---- */

static unsigned deletions;

static void count_deletion(struct varve_dlpack_versioned *self)
{
    (void)self;
    deletions++;
}

/* A tensor of 4 × 4 floats at an address of the device. */
static struct varve_dlpack_versioned tensor_at(uint64_t addr)
{
    static int64_t sizes[] = {4, 4}, strides[] = {4, 1};
    return (struct varve_dlpack_versioned){
        .version = {1, 0},
        .deleter = count_deletion,
        .tensor = {.data = (void *)(uintptr_t)addr,
                   .device = {VARVE_DLPACK_CUDA, FAKE_ORDINAL},
                   .ndim = 2,
                   .dtype = {VARVE_DLPACK_FLOAT, 32, 1},
                   .shape = sizes,
                   .strides = strides},
    };
}

static void last_transfer_is(const char *name, uint64_t target, uint64_t source)
{
    const struct fake_transfer *last = &fake.transfer[fake.transfers - 1];
    assert_in_range(fake.transfers, 1, FAKE_TRANSFERS);
    assert_string_equal(last->name, name);
    assert_int_equal(last->target, target);
    assert_int_equal(last->source, source);
    fake.transfers = 0;
}

/* It is filled, copied from and to, and viewed, by the device of the memory that was given with it. */
static void test_memory_of_others(void **state)
{
    const struct pool *pool = *state;
    const struct varve_scalar three = {.kind = VARVE_SCALAR_INTEGER, .integer = 3};
    deletions = 0;
    uint64_t addr = fake_add(FAKE_SEGMENT, 0, FAKE_UNIT);
    struct varve_dlpack_versioned tensor = tensor_at(addr);
    struct varve_storage *imported, *row, *host;
    rule_ok(varve_storage_from_dlpack(&tensor, pool->memory, NULL, &imported, &rule_message));
    rule_ok(varve_storage_fill(imported, three, &rule_message));
    last_transfer_is("cuMemsetD32Async", addr, 0);
    rule_ok(varve_storage_to(imported, varve_memory_host(), VARVE_DTYPE_F32, &host, &rule_message));
    last_transfer_is("cuMemcpyAsync", (uintptr_t)varve_storage_data(host), addr);
    rule_ok(varve_storage_select(imported, 0, 2, &row, &rule_message));
    rule_ok(varve_storage_fill(row, three, &rule_message));
    last_transfer_is("cuMemsetD32Async", addr + 32, 0);
    struct varve_storage *own = made(pool, STREAM);
    rule_ok(varve_storage_copy_on(imported, own, STREAM, &rule_message));
    last_transfer_is("cuMemcpyAsync", addr, (uintptr_t)varve_storage_data(own));
    rule_release(own);
    rule_release(row);
    rule_release(host);
    rule_release(imported);
    assert_int_equal(deletions, 1);
    assert_int_equal(fake_drop(FAKE_SEGMENT, addr, FAKE_UNIT), CUDA_RESULT_SUCCESS);
}

/* A tensor that lies where the driver knows of no memory: what touches its elements is refused. */
static void test_memory_of_nobody(void **state)
{
    const struct pool *pool = *state;
    struct varve_dlpack_versioned tensor = tensor_at(UINT64_C(0x123456789000));
    struct varve_storage *imported;
    rule_ok(varve_storage_from_dlpack(&tensor, pool->memory, NULL, &imported, &rule_message));
    assert_int_equal(varve_storage_fill(imported, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &rule_message),
                     VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(rule_message.text, "0x123456789000 lies in no memory of CUDA device 1"));
    rule_release(imported);
    tensor.tensor.device.id = 2;
    assert_int_equal(varve_storage_from_dlpack(&tensor, pool->memory, NULL, &imported, &rule_message),
                     VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(rule_message.text, "an allocator on CUDA device 2, and was given that of another device"));
}

static const struct CMUnitTest cases[] = {
    FAKE_CASE(test_streams),          FAKE_CASE(test_block_waits_for_the_consumer),
    FAKE_CASE(test_import),           FAKE_CASE(test_memory_of_others),
    FAKE_CASE(test_memory_of_nobody),
};

TEST_CASES(cases)
