/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of support/cuda/device_rules.h on the sim and on the host device, and what these two promise beyond: events
 * complete when they are recorded, peers are there without hardware, and options that make no sense are
 * refused.
 * Costs: 1 s
 */
#include "support/cuda/device_rules.h"

#include <string.h>

static int sim_open(struct varve_device **device_out)
{
    const struct varve_sim_options options = {.index = RULES_INDEX, .capacity_bytes = RULES_CAPACITY};
    return varve_sim_open(&options, device_out, NULL);
}

static int sim_reusing_open(struct varve_device **device_out)
{
    const struct varve_sim_options options = {
        .index = RULES_INDEX, .capacity_bytes = RULES_CAPACITY, .reuses_addresses = true};
    return varve_sim_open(&options, device_out, NULL);
}

static int host_open(struct varve_device **device_out)
{
    const struct varve_host_options options = {.index = RULES_INDEX, .limit_bytes = RULES_CAPACITY};
    return varve_host_open(&options, device_out, NULL);
}

#define KIND(name, open, check, bytes)                                                                        \
    {                                                                                                         \
        name, open, check, .stream = 5, .maps_anywhere = true, .piece_bytes = RULES_UNIT / 2, .piece_max = 6, \
                           .steps = 3000, .has_bytes = (bytes)                                                \
    }

static const struct rules_kind kinds[] = {
    KIND("sim", sim_open, varve_sim_check, false),
    KIND("sim", sim_reusing_open, varve_sim_check, false),
    KIND("host", host_open, varve_host_check, true),
};

static void test_events_complete_at_once(void **state)
{
    struct varve_device *device = ((struct rules_fixture *)*state)->device;
    uint64_t event = 0;
    assert_int_equal(device->ops->event_create(device, &event), 0);
    assert_int_equal(device->ops->event_record(device, event, 5), 0);
    assert_int_equal(device->ops->event_query(device, event), 1);
    assert_int_equal(device->ops->event_destroy(device, event), 0);
}

static void test_access_of_a_peer(void **state)
{
    struct varve_device *device = ((struct rules_fixture *)*state)->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handles[4];
    assert_int_equal(ops->vmm_reserve(device, 4 * RULES_UNIT, NULL, &base), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->vmm_create(device, RULES_UNIT, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * RULES_UNIT, RULES_UNIT, handles[i]), 0);
    }
    assert_int_equal(ops->vmm_set_access(device, base, 4 * RULES_UNIT, device->index), 0);
    assert_int_equal(ops->vmm_set_access(device, base, 4 * RULES_UNIT, 0), 0);
    assert_int_equal(ops->vmm_unmap(device, base, 4 * RULES_UNIT), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->vmm_release(device, handles[i], RULES_UNIT), 0);
    }
    assert_int_equal(ops->vmm_address_free(device, base, 4 * RULES_UNIT), 0);
}

static void test_peers(void **state)
{
    struct varve_device *device = ((struct rules_fixture *)*state)->device;
    assert_int_equal(device->ops->peer_enable(device, 0), 0);
    assert_int_equal(device->ops->peer_enable(device, 255), 0);
    assert_int_equal(device->ops->peer_enable(device, 3), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->peer_enable(device, -1), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->peer_enable(device, 256), VARVE_ERROR_INVALID);
}

static void test_open_refuses(void **state)
{
    const struct varve_sim_options sims[] = {
        {.index = -1}, {.index = 256}, {.alignment = 3}, {.first_addr = UINT64_MAX}};
    const struct varve_host_options hosts[] = {{.index = -1}, {.index = 256}};
    struct varve_device *device = NULL;
    (void)state;
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

#define OWN(name, kind)                                                     \
    {                                                                       \
#name, name, rules_setup, rules_teardown, (void *)(uintptr_t)(kind) \
    }
#define ALL_OF(kind)                                                                                              \
    RULES_TESTS(kind, rules_teardown), OWN(test_events_complete_at_once, kind), OWN(test_access_of_a_peer, kind), \
        OWN(test_peers, kind)

static const struct CMUnitTest cases[] = {
    ALL_OF(&kinds[0]),
    ALL_OF(&kinds[1]),
    ALL_OF(&kinds[2]),
    cmocka_unit_test(test_open_refuses),
};

TEST_CASES(cases)
