/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of the host device in other processes: both sides write and read, while the exporter frees and
 * closes; handles that are stale or forged are refused; a fork child has nothing of its parent's device.
 * Costs: 1 s
 */
#include "support/cuda/device_play.h"
#include "tests/cmocka.h"

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

/* What others own counts against their limits. */
TEST_DEVICE(test_host_ipc, &host_kind, .limit = MIB)
{
    struct message message;
    int in = -1, out = -1, status = -1;
    pid_t child = exporter_start(&in, &out);
    char step;
    assert_true(read_all(in, &message, sizeof(message)));
    play->handles[0] = message.handle;
    device_words(play,
                 "a=import:0 all:a:3M?0x5a b=import:0 differ:a:b?1 set:b+3M-1:1:0x77 free:b:3M!missing unimport:b "
                 "unimport:b!missing");
    assert_int_equal(write(out, "1", 1), 1);
    assert_true(read_all(in, &step, 1) && step == 'f');
    device_words(play, "import:0!missing set:a:1:1"); /* still ours to touch */
    assert_int_equal(write(out, "2", 1), 1);
    assert_true(read_all(in, &step, 1) && step == 'c');
    device_words(play, "import:0!missing");
    assert_int_equal(write(out, "3", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    device_words(play, "import:0!missing unimport:a");
    close(in);
    close(out);
}

TEST_DEVICE(test_host_ipc_refuses, &host_kind, .limit = 64 * MIB)
{
    device_words(play, "a=alloc:1u r=reserve:1u export:r:0!missing export:a+4096:0!missing import:3!invalid export:a:0 "
                       "export:a:1");
    assert_memory_equal(&play->handles[0], &play->handles[1], sizeof(play->handles[0]));
    for (size_t i = 0; i < 56; i++) { /* whichever byte is wrong */
        struct varve_ipc_handle forged = play->handles[0];
        uint64_t opened = 0;
        forged.bytes[i] ^= 0x41;
        int error = ops->ipc_open(play->device, &forged, &opened);
        assert_true(error == VARVE_ERROR_INVALID || error == VARVE_ERROR_NOT_FOUND || error == VARVE_ERROR_PERMISSION);
    }
    /* opened in the same process too; an exported place is not given to the next segment */
    device_words(play, "o=import:0 set:a+9:1:9 byte:o+9?9 export:o:1!missing free:a:1u a=alloc:1u import:0!missing "
                       "set:o+9:1:77 byte:a+9?0 export:a:1 unimport:o");
    assert_memory_not_equal(&play->handles[0], &play->handles[1], sizeof(play->handles[0]));
}

/* Nothing of it is a fork child's. */
TEST_DEVICE(test_host_after_fork, &host_kind, .limit = 64 * MIB)
{
    struct varve_device *device = play->device;
    int status = -1;
    device_words(play, "a=alloc:1u set:a:1:5");
    uint64_t addr = play->named[0], out = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int errors[] = {ops->segment_alloc(device, UNIT, 0, &out),
                              ops->segment_free(device, addr, UNIT),
                              ops->event_create(device, &out),
                              ops->fill(device, addr, 1, 1, 1, 0),
                              ops->stream_create(device, &out),
                              ops->host_alloc(device, 1, &out),
                              ops->copy(device, addr, addr + 10, 1, VARVE_COPY_WITHIN, 0)};
        size_t i = 0, count = sizeof(errors) / sizeof(errors[0]);
        while (i < count && errors[i] == VARVE_ERROR_UNSUPPORTED) {
            i++;
        }
        ops->close(device);
        _exit(i == count ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    device_words(play, "byte:a?5 free:a:1u");
}
