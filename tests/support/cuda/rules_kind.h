/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The devices that device_rules.h is for, and what each of its tests begins and ends with. They are opened with index 3
 * and the limit RULES_CAPACITY.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_RULES_KIND_H
#define VARVE_TESTS_SUPPORT_CUDA_RULES_KIND_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/alloc.h"

#include <stdlib.h>

#define RULES_INDEX 3
#define RULES_UNIT ((uint64_t)2 << 20)
#define RULES_CAPACITY (16 * RULES_UNIT)

struct rules_kind {
    const char *name;
    int (*open)(struct varve_device **device_out);
    int (*check)(const struct varve_device *device, struct varve_message *message);
    uint64_t stream;    /* one that the device knows, besides 0 */
    bool maps_anywhere; /* mappings need not begin at units */
    /* of rules_test_random; 0: what a device takes that is slow and maps units only */
    uint64_t piece_bytes, piece_max;
    size_t steps;
    bool has_bytes; /* memory keeps what is written to it */
};

struct rules_fixture {
    const struct rules_kind *kind;
    struct varve_device *device;
};

static inline int rules_setup(void **state)
{
    struct rules_fixture *fixture = calloc(1, sizeof(*fixture));
    if (!fixture) {
        return -1;
    }
    fixture->kind = *state;
    *state = fixture;
    return fixture->kind->open(&fixture->device);
}

static inline uint64_t rules_used(struct rules_fixture *fixture)
{
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(fixture->device->ops->memory_info(fixture->device, &free_bytes, &total), 0);
    assert_int_equal(total, RULES_CAPACITY);
    return total - free_bytes;
}

static inline void rules_check(struct rules_fixture *fixture)
{
    struct varve_message message = {""};
    if (fixture->kind->check(fixture->device, &message) != 0) {
        fail_msg("%s: %s", fixture->kind->name, message.text);
    }
}

static inline int rules_teardown(void **state)
{
    struct rules_fixture *fixture = *state;
    int error = fixture->kind->check(fixture->device, NULL);
    fixture->device->ops->close(fixture->device);
    free(fixture);
    return error;
}

#endif
