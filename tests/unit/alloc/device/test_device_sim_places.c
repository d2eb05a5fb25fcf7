/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments lie where the CUDA driver would have them: a recorded sequence of its addresses comes out, and nothing
 * overlaps in any other.
 * Costs: 1 s
 */
#include "alloc/device.h"
#include "support/cuda/cuda_addresses.h"
#include "support/random.h"
#include "tests/cmocka.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)
#define UNIT (2 * MIB)
#define CALLS (sizeof(cuda_addresses) / sizeof(cuda_addresses[0]))

static struct varve_device *open_device(void)
{
    struct varve_device *device;
    assert_int_equal(varve_sim_open(&(struct varve_sim_options){.places_as_cuda = true}, &device, NULL), 0);
    return device;
}

static uint64_t take(struct varve_device *device, uint64_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(device->ops->segment_alloc(device, bytes, 0, &addr), 0);
    return addr;
}

/* The end of the free addresses, and the driver's own chunk with 24 MiB of room: the first segments show them. */
static void find_bases(uint64_t *end_out, uint64_t *own_out)
{
    struct varve_device *device = open_device();
    uint64_t whole = take(device, 32 * MIB);
    *end_out = whole + 32 * MIB;
    *own_out = take(device, 24 * MIB) - 8 * MIB;
    assert_true(*own_out > *end_out);
    device->ops->close(device);
}

TEST(test_recorded_addresses)
{
    struct varve_device *device = open_device();
    uint64_t end, own, given[CALLS];
    size_t allocations = 0;
    find_bases(&end, &own);
    for (size_t i = 0; i < CALLS; i++) {
        const struct cuda_address *call = &cuda_addresses[i];
        uint64_t expected = (call->is_own ? own : end) + (uint64_t)((int64_t)call->place * (int64_t)UNIT);
        if (call->is_free) {
            assert_int_equal(device->ops->segment_free(device, expected, call->mib * MIB), 0);
        } else {
            given[allocations] = take(device, call->mib * MIB);
            assert_int_equal(given[allocations], expected);
            allocations++;
        }
    }
    assert_int_equal(allocations, 262);
    assert_int_equal(varve_sim_check(device, NULL), 0);
    device->ops->close(device);
}

/* The device refuses what overlaps, so it is enough that nothing is refused; what is given back is given out again. */
TEST(test_nothing_overlaps)
{
    struct varve_device *device = open_device();
    uint64_t random = 11, live[64], sizes[64], lowest = UINT64_MAX, first = 0;
    size_t count = 0;
    for (unsigned step = 0; step < 20000; step++) {
        if (count == 64 || (count > 0 && random_below(&random, 2) == 0)) {
            size_t i = (size_t)random_below(&random, count);
            assert_int_equal(device->ops->segment_free(device, live[i], sizes[i]), 0);
            count--;
            live[i] = live[count];
            sizes[i] = sizes[count];
        } else {
            sizes[count] = (1 + random_below(&random, 200)) * MIB + random_below(&random, 2) * 512;
            live[count] = take(device, sizes[count]);
            lowest = live[count] < lowest ? live[count] : lowest;
            first = first == 0 ? live[count] : first;
            count++;
        }
    }
    assert_int_equal(varve_sim_check(device, NULL), 0);
    assert_true(first - lowest < 64 * 4 * 234 * MIB); /* not ever further down */
    device->ops->close(device);
}
