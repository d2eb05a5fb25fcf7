/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack's tensors in a CUDA device's memory, on a fake driver: which streams are made to wait for which, what a
 * block waits for when it is freed, and which device a tensor may lie in. Elements are never looked at.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/storage.h"
#include "support/cuda/driver_fake.h"

#include <string.h>

#define STREAM 0x5000
#define OTHER 0x6000

static const int64_t shape[] = {4, 4};
static struct varve_message message;

struct pool {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_memory *memory;
};

static void pool_open(struct pool *pool)
{
    const struct varve_cuda_options device = {.index = FAKE_ORDINAL + 4, .ordinal = FAKE_ORDINAL};
    fake_reset();
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(cuda_device_open(&fake_driver, &device, &pool->device, NULL), VARVE_OK);
    fake.device = options.device = pool->device;
    assert_int_equal(varve_alloc_open(&options, &pool->alloc, NULL), VARVE_OK);
    assert_int_equal(varve_memory_open(pool->alloc, &pool->memory, &message), VARVE_OK);
}

static void pool_close(struct pool *pool)
{
    assert_int_equal(varve_memory_close(pool->memory, &message), VARVE_OK);
    assert_int_equal(varve_alloc_memory_allocated(pool->alloc), 0);
    assert_int_equal(varve_alloc_check(pool->alloc, &message), VARVE_OK);
    varve_alloc_close(pool->alloc);
    fake.device = NULL;
    pool->device->ops->close(pool->device);
    assert_string_equal(fake.wrong, "");
    assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
    assert_int_equal(varve_storage_live(), 0);
}

static struct varve_storage *made(struct pool *pool, uint64_t stream)
{
    struct varve_storage *storage;
    assert_int_equal(varve_storage_empty(&(struct varve_storage_options){.memory = pool->memory, .stream = stream},
                                         VARVE_DTYPE_F32, 2, shape, &storage, &message),
                     VARVE_OK);
    return storage;
}

static void release(struct varve_storage *storage)
{
    assert_int_equal(varve_storage_release(storage, &message), VARVE_OK);
}

/* Export for `stream`, and the wait that comes of it: none if `waiting` is UINT64_MAX. */
static void export_for(struct pool *pool, int64_t stream, uint64_t producer, uint64_t waiting)
{
    struct varve_storage *storage = made(pool, producer);
    fake.orders = 0;
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(storage, stream, false, &tensor, &message), VARVE_OK);
    assert_int_equal(tensor->tensor.device.type, VARVE_DLPACK_CUDA);
    assert_int_equal(tensor->tensor.device.id, FAKE_ORDINAL);
    assert_int_equal(fake.orders, waiting != UINT64_MAX);
    if (waiting != UINT64_MAX) {
        assert_int_equal(fake.order[0].stream, waiting);
        assert_int_equal(fake.order[0].other, producer);
    }
    release(storage);
    assert_int_equal(varve_storage_live(), 2); /* the storage, and the tensor's view of it */
    tensor->deleter(tensor);
    assert_int_equal(varve_storage_live(), 0);
}

TEST(test_streams)
{
    struct pool pool;
    pool_open(&pool);
    export_for(&pool, VARVE_DLPACK_STREAM_NONE, STREAM, 0);
    export_for(&pool, VARVE_DLPACK_STREAM_LEGACY, STREAM, 0);
    export_for(&pool, VARVE_DLPACK_STREAM_PER_THREAD, STREAM, 2);
    export_for(&pool, OTHER, STREAM, OTHER);
    export_for(&pool, OTHER, 0, OTHER);
    export_for(&pool, STREAM, STREAM, UINT64_MAX);
    export_for(&pool, VARVE_DLPACK_STREAM_NONE, 0, UINT64_MAX);
    export_for(&pool, VARVE_DLPACK_STREAM_UNORDERED, STREAM, UINT64_MAX);
    struct varve_storage *storage = made(&pool, STREAM);
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(storage, 0, false, &tensor, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_to_dlpack(storage, -2, false, &tensor, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "stream -2 of a CUDA device");
    assert_int_equal(varve_storage_use_count(storage), 1);
    release(storage);
    assert_int_equal(varve_alloc_empty_cache(pool.alloc), VARVE_OK);
    pool_close(&pool);
}

/* The consumer's stream may still use the block when the consumer gives it back: nobody else gets it before. */
TEST(test_block_waits_for_the_consumer)
{
    struct pool pool;
    pool_open(&pool);
    struct varve_storage *storage = made(&pool, STREAM);
    void *data = varve_storage_data(storage);
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(storage, OTHER, false, &tensor, &message), VARVE_OK);
    release(storage);
    fake.is_event_pending = true;
    tensor->deleter(tensor);
    storage = made(&pool, STREAM);
    assert_ptr_not_equal(varve_storage_data(storage), data);
    release(storage);
    fake.is_event_pending = false;
    assert_int_equal(varve_alloc_process_events(pool.alloc), VARVE_OK);
    storage = made(&pool, STREAM);
    assert_ptr_equal(varve_storage_data(storage), data);
    release(storage);
    pool_close(&pool);
}

/* A driver that fails somewhere: an error or a tensor, and nothing is lost. */
TEST(test_failing_driver)
{
    bool has_failed = true;
    for (uint64_t call = 1; has_failed; call++) {
        struct pool pool;
        pool_open(&pool);
        struct varve_storage *storage = made(&pool, STREAM);
        fake.fail_at = call;
        fake.fail_with = 719;
        struct varve_dlpack_versioned *tensor;
        int error = varve_storage_to_dlpack(storage, OTHER, false, &tensor, &message);
        has_failed = fake.fail_at == 0;
        fake.fail_at = 0;
        assert_true(error == VARVE_OK || has_failed);
        assert_true(error == VARVE_OK || strstr(message.text, "the consumer's stream can't be made to wait") != NULL);
        if (error == VARVE_OK) {
            tensor->deleter(tensor);
        }
        assert_int_equal(varve_storage_use_count(storage), 1);
        release(storage);
        pool_close(&pool);
        assert_true(call > 1 || error != VARVE_OK);
    }
}

TEST(test_import)
{
    struct pool pool;
    pool_open(&pool);
    struct varve_storage *storage = made(&pool, STREAM);
    struct varve_dlpack_versioned *tensor;
    assert_int_equal(varve_storage_to_dlpack(storage, STREAM, false, &tensor, &message), VARVE_OK);
    struct varve_storage *imported;
    assert_int_equal(varve_storage_from_dlpack(tensor, pool.memory, NULL, &imported, &message), VARVE_OK);
    assert_ptr_equal(varve_storage_data(imported), varve_storage_data(storage));
    assert_ptr_equal(varve_storage_memory(imported), pool.memory);
    release(storage);
    fake.orders = 0;
    assert_int_equal(varve_storage_to_dlpack(imported, OTHER, false, &tensor, &message), VARVE_OK);
    assert_int_equal(fake.orders, 1); /* no block of ours: behind the default stream */
    assert_int_equal(fake.order[0].other, 0);
    release(imported);
    tensor->tensor.device.id = 0; /* another device than the memory's */
    assert_int_equal(varve_storage_from_dlpack(tensor, pool.memory, NULL, &imported, &message),
                     VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_storage_live(), 0);
    storage = made(&pool, STREAM);
    assert_int_equal(varve_storage_to_dlpack(storage, STREAM, false, &tensor, &message), VARVE_OK);
    release(storage);
    assert_int_equal(varve_storage_from_dlpack(tensor, NULL, NULL, &imported, &message), VARVE_ERROR_UNSUPPORTED);
    pool_close(&pool);
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
TEST(test_memory_of_others)
{
    const struct varve_scalar three = {.kind = VARVE_SCALAR_INTEGER, .integer = 3};
    struct pool pool;
    pool_open(&pool);
    deletions = 0;
    uint64_t addr = fake_add(FAKE_SEGMENT, 0, FAKE_UNIT);
    struct varve_dlpack_versioned tensor = tensor_at(addr);
    struct varve_storage *imported, *row, *host;
    assert_int_equal(varve_storage_from_dlpack(&tensor, pool.memory, NULL, &imported, &message), VARVE_OK);
    assert_int_equal(varve_storage_fill(imported, three, &message), VARVE_OK);
    last_transfer_is("cuMemsetD32Async", addr, 0);
    assert_int_equal(varve_storage_to(imported, varve_memory_host(), VARVE_DTYPE_F32, &host, &message), VARVE_OK);
    last_transfer_is("cuMemcpyAsync", (uintptr_t)varve_storage_data(host), addr);
    assert_int_equal(varve_storage_select(imported, 0, 2, &row, &message), VARVE_OK);
    assert_int_equal(varve_storage_fill(row, three, &message), VARVE_OK);
    last_transfer_is("cuMemsetD32Async", addr + 32, 0);
    struct varve_storage *own = made(&pool, STREAM);
    assert_int_equal(varve_storage_copy_on(imported, own, STREAM, &message), VARVE_OK);
    last_transfer_is("cuMemcpyAsync", addr, (uintptr_t)varve_storage_data(own));
    release(own);
    release(row);
    release(host);
    release(imported);
    assert_int_equal(deletions, 1);
    assert_int_equal(fake_drop(FAKE_SEGMENT, addr, FAKE_UNIT), CUDA_RESULT_SUCCESS);
    pool_close(&pool);
}

/* A tensor that lies where the driver knows of no memory: what touches its elements is refused. */
TEST(test_memory_of_nobody)
{
    struct varve_dlpack_versioned tensor = tensor_at(UINT64_C(0x123456789000));
    struct pool pool;
    pool_open(&pool);
    struct varve_storage *imported;
    assert_int_equal(varve_storage_from_dlpack(&tensor, pool.memory, NULL, &imported, &message), VARVE_OK);
    assert_int_equal(varve_storage_fill(imported, (struct varve_scalar){.kind = VARVE_SCALAR_BOOL}, &message),
                     VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "0x123456789000 lies in no memory of CUDA device 1"));
    release(imported);
    tensor.tensor.device.id = 2;
    assert_int_equal(varve_storage_from_dlpack(&tensor, pool.memory, NULL, &imported, &message),
                     VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "an allocator on CUDA device 2, and was given that of another device"));
    pool_close(&pool);
}
