/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The cuda device on the fake driver, opened with the limit of device_rules.h, and closed with a look at what
 * it has left behind.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_DEVICE_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_DEVICE_H

#include "support/cuda/device_rules.h"
#include "support/cuda/driver_fake.h"

#define UNIT RULES_UNIT
#define STREAM 0x5000

static inline int fake_open(struct varve_device **device_out)
{
    const struct varve_cuda_options options = {
        .index = RULES_INDEX, .ordinal = FAKE_ORDINAL, .limit_bytes = RULES_CAPACITY};
    fake_reset();
    if (cuda_device_open(&fake_driver, &options, device_out, NULL) != VARVE_OK) {
        return -1;
    }
    fake.device = *device_out;
    return 0;
}

static inline struct varve_device *fake_opened(void)
{
    struct varve_device *device = NULL;
    assert_int_equal(fake_open(&device), 0);
    return device;
}

static inline void nothing_is_wrong(void)
{
    if (fake.wrong[0] != '\0') {
        fail_msg("%s", fake.wrong);
    }
}

/* Nothing is left at the driver, and the thread has what it had. */
static inline void fake_closed(struct varve_device *device)
{
    struct varve_message message = {""};
    if (varve_cuda_check(device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    fake.device = NULL;
    device->ops->close(device);
    nothing_is_wrong();
    assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
    assert_int_equal(fake_thread.depth, 0);
    assert_int_equal(fake_thread.mode, CUDA_CAPTURE_MODE_GLOBAL);
}

static inline const char *reason(struct varve_device *device)
{
    static struct varve_message message;
    device->ops->reason(device, &message);
    return message.text;
}

/* As another process would have made it of a segment there. */
static inline struct varve_ipc_handle foreign_handle(uint64_t addr)
{
    struct varve_ipc_handle handle;
    memset(&handle, 0x5a, sizeof(handle));
    addr += (uint64_t)1 << 48;
    memcpy(handle.bytes, &addr, sizeof(addr));
    return handle;
}

#endif
