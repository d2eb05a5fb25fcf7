/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device on a fake driver, and others: peers, handles of other processes and of its own, and the
 * pool of stream-ordered memory, which a driver may lack and peers are let into.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"

TEST(test_peers)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    assert_int_equal(ops->peer_enable(device, 3), VARVE_ERROR_INVALID); /* itself */
    assert_int_equal(ops->peer_enable(device, -1), VARVE_ERROR_INVALID);
    assert_int_equal(ops->peer_enable(device, 256), VARVE_ERROR_INVALID);
    assert_int_equal(ops->peer_enable(device, 1), VARVE_ERROR_NOT_FOUND); /* CUDA device -1 */
    assert_int_equal(ops->peer_enable(device, 5), VARVE_ERROR_NOT_FOUND); /* CUDA device 3 */
    assert_int_equal(ops->peer_enable(device, 4), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(fake_count(FAKE_RETAIN), 1);
    fake.peer_result = CUDA_RESULT_PEER_ACCESS_ALREADY_ENABLED; /* by the program itself */
    assert_int_equal(ops->peer_enable(device, 2), 0);
    assert_int_equal(ops->peer_enable(device, 2), 0);
    assert_int_equal(fake.peer_from, 0); /* it may read us: asked for in its context */
    assert_int_equal(fake.peer_to, FAKE_ORDINAL);
    assert_int_equal(fake_find(FAKE_RETAIN, 1)->count, 1);
    fake_closed(device);
}

TEST(test_ipc)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, first = 0, second = 0;
    assert_int_equal(ops->segment_alloc(device, 2 * UNIT, 0, &addr), 0);
    struct varve_ipc_handle handle;
    assert_int_equal(ops->ipc_export(device, addr + UNIT, &handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addr, &handle), 0);
    handle = foreign_handle(addr);
    assert_int_equal(ops->ipc_open(device, &handle, &first), 0);
    assert_int_equal(ops->ipc_open(device, &handle, &second), 0);
    assert_int_equal(first, second);
    assert_int_equal(ops->segment_free(device, first, UNIT), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_close(device, first), 0);
    assert_int_equal(ops->ipc_close(device, first), 0);
    assert_int_equal(ops->ipc_close(device, first), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_close(device, addr), VARVE_ERROR_NOT_FOUND);
    handle.bytes[63] ^= 1;
    assert_int_equal(ops->ipc_open(device, &handle, &first), VARVE_ERROR_INVALID);
    handle.bytes[63] ^= 1;
    assert_int_equal(ops->ipc_open(device, &handle, &first), 0);
    assert_int_equal(ops->ipc_open(device, &handle, &first), 0);
    fake_closed(device); /* closed as often as it was opened */
}

/* One of our own is a look into the table, counted, until its segment is gone. */
TEST(test_own_ipc)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    struct varve_ipc_handle handles[12], again;
    uint64_t addrs[12], opened = 0;
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(ops->segment_alloc(device, 4096, 0, &addrs[i]), 0);
        assert_int_equal(ops->ipc_export(device, addrs[i], &handles[i]), 0);
        assert_int_equal(ops->segment_free(device, addrs[i], 4096), 0);
        assert_int_equal(ops->segment_alloc(device, 4096, 0, &addrs[i]), 0);
        assert_int_equal(ops->ipc_export(device, addrs[i], &handles[i]), 0);
    }
    assert_int_equal(ops->ipc_export(device, addrs[3], &again), 0);
    assert_memory_equal(&again, &handles[3], sizeof(again));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->ipc_open(device, &handles[3], &opened), 0);
        assert_int_equal(opened, addrs[3]);
    }
    assert_int_equal(fake_count(FAKE_IMPORT), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->ipc_close(device, addrs[3]), 0);
    }
    assert_int_equal(ops->ipc_close(device, addrs[3]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_open(device, &handles[3], &opened), 0);
    assert_int_equal(ops->segment_free(device, addrs[3], 4096), 0);
    assert_int_equal(ops->ipc_close(device, addrs[3]), VARVE_ERROR_NOT_FOUND);
    fake_closed(device);
}

/* ---- stream-ordered memory ---- */

TEST(test_no_pools)
{
    static const struct varve_cuda_options options = {.index = 3, .ordinal = FAKE_ORDINAL};
    struct cuda_driver old = fake_driver;
    struct varve_device *device = NULL;
    fake_reset();
    fake.has_no_pools = true;
    assert_int_equal(cuda_device_open(&fake_driver, &options, &device, NULL), VARVE_OK);
    assert_null(device->ops->alloc_async);
    fake_closed(device);
    fake_reset();
    old.pool_free = NULL; /* a driver from before there were any */
    assert_int_equal(cuda_device_open(&old, &options, &device, NULL), VARVE_OK);
    assert_null(device->ops->alloc_async);
    fake_closed(device);
}

TEST(test_pool_peers)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0;
    fake.pool_peer = -1;
    assert_int_equal(ops->peer_enable(device, 2), 0);
    assert_int_equal(fake.pool_peer, -1); /* there is no pool yet */
    assert_int_equal(ops->alloc_async(device, 512, STREAM, &addr), 0);
    assert_int_equal(fake.pool_peer, 0);
    assert_int_equal(fake_count(FAKE_POOL), 1);
    fake_closed(device); /* with the memory out */
}
