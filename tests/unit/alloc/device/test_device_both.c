/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of support/cuda/device_rules.h on the sim and on the host device, and what these two promise beyond: events
 * complete when they are recorded, peers are there without hardware, and options that make no sense are
 * refused. Runs threads: on one device.
 * Costs: 2 s
 */
#include "support/cuda/device_rules.h"
#include "tests/cmocka.h"

#include <sched.h>
#include <string.h>

static int open_sim(const struct device_case *one, struct varve_device **device_out)
{
    struct varve_sim_options options = one->sim;
    options.index = RULES_INDEX;
    options.capacity_bytes = RULES_CAPACITY;
    return varve_sim_open(&options, device_out, NULL);
}

static int open_sim_reusing(const struct device_case *one, struct varve_device **device_out)
{
    return open_sim(&(struct device_case){.what = one->what, .sim = {.reuses_addresses = true}}, device_out);
}

static int open_host(const struct device_case *one, struct varve_device **device_out)
{
    (void)one;
    return varve_host_open(&(struct varve_host_options){.index = RULES_INDEX, .limit_bytes = RULES_CAPACITY},
                           device_out, NULL);
}

static void hold_host(struct varve_device *device, uint64_t stream)
{
    assert_int_equal(varve_host_stream_block(device, stream), 0);
    sched_yield();
    assert_int_equal(varve_host_stream_release(device, stream), 0);
}

#define KIND(name, open, check, bytes, holds)                                                                          \
    {                                                                                                                  \
        name, open, check, .stream = 5, .maps_anywhere = true, .piece_bytes = UNIT / 2, .piece_max = 6, .steps = 3000, \
                           .has_bytes = (bytes), .hold = (holds)                                                       \
    }
static const struct device_kind kinds[] = {
    KIND("sim", open_sim, varve_sim_check, false, NULL),
    KIND("sim", open_sim_reusing, varve_sim_check, false, NULL),
    KIND("host", open_host, varve_host_check, true, hold_host),
};

static const struct device_case beyond[] = {
    PLAY("events complete at once", "e=event record:e@5 query:e?1 no_event:e"),
    PLAY("access of a peer", "r=reserve:4u h=create:2u map:r:2u:h i=create:2u map:r+2u:2u:i access:r:4u access:r:4u:0 "
                             "unmap:r:4u release:h:2u release:i:2u unreserve:r:4u"),
    PLAY("peers", "peer:0 peer:255 peer:3!invalid peer:-1!invalid peer:256!invalid"),
};

TEST_WITH(test_beyond, device_play_setup, device_play_teardown)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        device_play_cases(*state, &kinds[i], beyond, sizeof(beyond) / sizeof(beyond[0]));
    }
}

TEST(test_open_refuses)
{
    const struct varve_sim_options sims[] = {
        {.index = -1}, {.index = 256}, {.alignment = 3}, {.first_addr = UINT64_MAX}};
    const struct varve_host_options hosts[] = {{.index = -1}, {.index = 256}};
    struct varve_device *device = NULL;
    for (size_t i = 0; i < sizeof(sims) / sizeof(sims[0]); i++) {
        struct varve_message message = {""};
        assert_int_equal(varve_sim_open(&sims[i], &device, &message), VARVE_ERROR_INVALID);
        assert_true(strlen(message.text) > 10);
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct varve_message message = {""};
        assert_int_equal(varve_host_open(&hosts[i], &device, &message), VARVE_ERROR_INVALID);
        assert_true(strlen(message.text) > 10);
    }
    assert_null(device);
}

static const struct CMUnitTest rules[] = {RULES_TESTS(&kinds[0]), RULES_TESTS(&kinds[1]), RULES_TESTS(&kinds[2]),
                                          RULES_TEST(threads, &kinds[0]), RULES_TEST(threads, &kinds[2])};

TEST_CASES(rules)
