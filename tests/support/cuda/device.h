/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Devices for tests: opened with a check that it worked, and closed with a check of their resources.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_DEVICE_H
#define VARVE_TESTS_SUPPORT_CUDA_DEVICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/alloc.h"

#define MIB (UINT64_C(1) << 20)
#define UNIT (2 * MIB)

static inline struct varve_device *sim_open(const struct varve_sim_options *options)
{
    struct varve_device *device = NULL;
    assert_int_equal(varve_sim_open(options, &device, NULL), 0);
    return device;
}

static inline void sim_close(struct varve_device *device)
{
    struct varve_message message = {""};
    if (varve_sim_check(device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    device->ops->close(device);
}

static inline uint64_t segment(struct varve_device *device, uint64_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(device->ops->segment_alloc(device, bytes, 0, &addr), 0);
    return addr;
}

static inline unsigned char *at(uint64_t addr)
{
    return (unsigned char *)(uintptr_t)addr;
}

#endif
