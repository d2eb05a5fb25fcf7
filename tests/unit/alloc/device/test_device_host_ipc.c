/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of the host device in other processes: both sides write and read, while the exporter frees and
 * closes; handles that are stale or forged are refused; a fork child has nothing of its parent's device.
 * Costs: 1 s
 */
#include "support/cuda/device.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct message {
    struct varve_ipc_handle handle;
    uint64_t bytes;
};

static bool read_all(int fd, void *into, size_t bytes)
{
    return read(fd, into, bytes) == (ssize_t)bytes;
}

/* The exporter: shows a segment, waits for the importer's mark in it, frees it, closes; a byte for each step.
 */
static int exporter_run(int in, int out)
{
    const struct varve_host_options options = {.limit_bytes = 64 * MIB};
    struct message message = {.bytes = 3 * MIB};
    struct varve_device *device;
    uint64_t unused, addr;
    if (varve_host_open(&options, &device, NULL) != 0 || device->ops->segment_alloc(device, MIB, 0, &unused) != 0 ||
        device->ops->segment_alloc(device, message.bytes, 0, &addr) != 0 ||
        device->ops->ipc_export(device, addr, &message.handle) != 0) {
        return 1;
    }
    memset(at(addr), 0x5a, message.bytes);
    char step;
    if (write(out, &message, sizeof(message)) != (ssize_t)sizeof(message) || !read_all(in, &step, 1) ||
        at(addr)[message.bytes - 1] != 0x77) {
        return 2;
    }
    if (device->ops->segment_free(device, addr, message.bytes) != 0 || write(out, "f", 1) != 1 ||
        !read_all(in, &step, 1)) {
        return 3;
    }
    device->ops->close(device);
    return write(out, "c", 1) == 1 && read_all(in, &step, 1) ? 0 : 4;
}

static pid_t exporter_start(int *in_out, int *out_out)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        _exit(exporter_run(to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    *out_out = to[1];
    *in_out = from[0];
    return child;
}

TEST(test_host_ipc)
{
    struct message message;
    uint64_t addr = 0, second = 0;
    int in = -1, out = -1, status = -1;
    pid_t child = exporter_start(&in, &out);
    struct varve_device *device = host_open(MIB); /* what others own counts against their limits */
    assert_true(read_all(in, &message, sizeof(message)));
    assert_int_equal(device->ops->ipc_open(device, &message.handle, &addr), 0);
    for (size_t i = 0; i < message.bytes; i += 1024) {
        assert_int_equal(at(addr)[i], 0x5a);
    }
    assert_int_equal(device->ops->ipc_open(device, &message.handle, &second), 0);
    assert_true(second != addr);
    at(second)[message.bytes - 1] = 0x77;
    assert_int_equal(device->ops->segment_free(device, second, message.bytes), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(device->ops->ipc_close(device, second), 0);
    assert_int_equal(device->ops->ipc_close(device, second), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(write(out, "1", 1), 1);
    char step;
    assert_true(read_all(in, &step, 1) && step == 'f');
    assert_int_equal(device->ops->ipc_open(device, &message.handle, &second), VARVE_ERROR_NOT_FOUND);
    at(addr)[0] = 1; /* still ours to touch */
    assert_int_equal(write(out, "2", 1), 1);
    assert_true(read_all(in, &step, 1) && step == 'c');
    assert_int_equal(device->ops->ipc_open(device, &message.handle, &second), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(write(out, "3", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(device->ops->ipc_open(device, &message.handle, &second), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(device->ops->ipc_close(device, addr), 0);
    close(in);
    close(out);
    host_close(device);
}

TEST(test_host_ipc_refuses)
{
    struct varve_device *device = host_open(64 * MIB);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, base = 0, opened = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &base), 0);
    struct varve_ipc_handle handle, again, forged;
    assert_int_equal(ops->ipc_export(device, base, &handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addr + 4096, &handle), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->ipc_export(device, addr, &handle), 0);
    assert_int_equal(ops->ipc_export(device, addr, &again), 0);
    assert_memory_equal(&handle, &again, sizeof(handle));
    memset(&forged, 0, sizeof(forged));
    assert_int_equal(ops->ipc_open(device, &forged, &opened), VARVE_ERROR_INVALID);
    for (size_t i = 0; i < 56; i++) { /* whichever byte is wrong */
        forged = handle;
        forged.bytes[i] ^= 0x41;
        int error = ops->ipc_open(device, &forged, &opened);
        assert_true(error == VARVE_ERROR_INVALID || error == VARVE_ERROR_NOT_FOUND || error == VARVE_ERROR_PERMISSION);
    }
    assert_int_equal(ops->ipc_open(device, &handle, &opened), 0); /* in the same process too */
    at(addr)[9] = 9;
    assert_int_equal(at(opened)[9], 9);
    assert_int_equal(ops->ipc_export(device, opened, &again), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, addr, UNIT), 0);
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->ipc_open(device, &handle, &base), VARVE_ERROR_NOT_FOUND);
    at(opened)[9] = 77;
    assert_int_equal(at(addr)[9], 0); /* an exported place is not given to the next segment */
    assert_int_equal(ops->ipc_export(device, addr, &again), 0);
    assert_memory_not_equal(&handle, &again, sizeof(handle));
    assert_int_equal(ops->ipc_close(device, opened), 0);
    host_close(device);
}

TEST(test_host_after_fork)
{
    struct varve_device *device = host_open(64 * MIB);
    uint64_t addr = 0, handle = 0;
    int status = -1;
    assert_int_equal(device->ops->segment_alloc(device, UNIT, 0, &addr), 0);
    at(addr)[0] = 5;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool is_refused = device->ops->segment_alloc(device, UNIT, 0, &handle) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->segment_free(device, addr, UNIT) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->event_create(device, &handle) == VARVE_ERROR_UNSUPPORTED;
        device->ops->close(device);
        _exit(is_refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(at(addr)[0], 5);
    assert_int_equal(device->ops->segment_free(device, addr, UNIT), 0);
    host_close(device);
}
