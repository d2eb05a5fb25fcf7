/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are wrong: each is refused with a reason, and afterwards everything is as it was: blocks,
 * statistics, records, and the calls that the device has seen.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

struct before {
    char *layout;
    struct varve_alloc_stats stats;
    uint64_t device_calls;
    size_t records;
};

static uint64_t all_calls(const struct rig *rig)
{
    uint64_t calls = 0;
    for (int call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        calls += calls_of(rig, (enum varve_device_call)call);
    }
    return calls;
}

static void look(struct rig *rig, struct before *before)
{
    before->layout = layout_of(rig);
    before->stats = stats_of(rig);
    before->device_calls = all_calls(rig);
    before->records = rig->count;
    rig->message.text[0] = '\0';
}

static void assert_unchanged(struct rig *rig, struct before *before)
{
    struct varve_alloc_stats stats = stats_of(rig);
    char *layout = layout_of(rig);
    rig_check(rig);
    assert_string_equal(layout, before->layout);
    assert_memory_equal(&stats, &before->stats, sizeof(stats));
    assert_int_equal(all_calls(rig), before->device_calls);
    assert_int_equal(rig->count, before->records);
    free(layout);
    free(before->layout);
}

/* A bit of everything: used, free and pending blocks, and a private pool. Returns a used block's address. */
static uint64_t prepare(struct rig *rig, uint64_t first_addr, const char *config)
{
    rig_open(rig, &(struct rig_options){
                      .sim = {.events_are_scripted = true, .capacity_bytes = 1000 * MIB, .first_addr = first_addr},
                      .config = config});
    play(rig, "a=3M b=3M c=600@2 6000@2 c~9 -c -a [7 30M ]7");
    return rig->named[1];
}

/* ---- addresses ---- */

static void assert_not_ours(struct rig *rig, uint64_t addr)
{
    struct before before;
    uint64_t base = 1, bytes = 1;
    look(rig, &before);
    assert_int_equal(varve_alloc_raw_delete(rig->alloc, addr, &rig->message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(rig->message.text, "0x"));
    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_record_stream(rig->alloc, addr, 5, &rig->message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(rig->message.text, "0x"));
    assert_int_equal(varve_alloc_raw_delete(rig->alloc, addr, NULL), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_record_stream(rig->alloc, addr, 5, NULL), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, addr, &base, &bytes), VARVE_ERROR_NOT_FOUND);
    struct varve_alloc_ipc ipc;
    assert_int_equal(varve_alloc_ipc_export(rig->alloc, addr, &ipc), VARVE_ERROR_NOT_FOUND);
    assert_true(varve_alloc_ipc_close(rig->alloc, addr) < 0);
    assert_unchanged(rig, &before);
}

static void addresses(struct rig *rig, const char *config)
{
    uint64_t addr = prepare(rig, UINT64_C(0x7f0000000000), config);
    uint64_t elsewhere = prepare(rig + 1, UINT64_C(0x600000000000), config);

    /* inside a block, at its end, a free one, the remainder, what is before all; another allocator's */
    const uint64_t wrong[] = {1,
                              UINT64_MAX,
                              UINT64_MAX - 511,
                              addr + 1,
                              addr + 512,
                              addr + 3 * MIB - 1,
                              addr - 3 * MIB,
                              addr + 3 * MIB,
                              addr - 3 * MIB - 512,
                              elsewhere};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_not_ours(rig, wrong[i]);
    }
    assert_not_ours(rig + 1, addr);
    rig_close(rig + 1);
    rig_close(rig);
}

TEST_WITH(test_addresses, rig_setup, rig_teardown)
{
    addresses(*state, NULL);
    memset(*state, 0, 2 * sizeof(struct rig));
    addresses(*state, "expandable_segments:True");
}

/* Freed already, pending; address 0; and an imported mapping's address is known by ipc_open alone: this device has
 * none. */
TEST_WITH(test_freed_and_foreign, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr = prepare(rig, 0, NULL), out;
    play(rig, "b=5M -b");
    assert_not_ours(rig, rig->named[1]);
    play(rig, "b=5M b~3 -b -b!missing says{freed already}");
    assert_not_ours(rig, rig->named[1]);
    struct varve_alloc_ipc ipc;
    memset(&ipc, 0, sizeof(ipc));
    struct before before;
    look(rig, &before);
    assert_int_equal(varve_alloc_raw_delete(rig->alloc, 0, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_record_stream(rig->alloc, 0, 3, NULL), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_ipc_export(rig->alloc, addr, &ipc), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_alloc_ipc_open(rig->alloc, &ipc, &out, &rig->message), VARVE_ERROR_UNSUPPORTED);
    assert_string_not_equal(rig->message.text, "");
    assert_unchanged(rig, &before);
}

/* ---- sizes ---- */

TEST_WITH(test_sizes, rig_setup, rig_teardown)
{
    static const uint64_t too_large[] = {UINT64_C(1) << 60, (UINT64_C(1) << 60) + 1, UINT64_C(1) << 63,
                                         UINT64_MAX - 511, UINT64_MAX};
    struct rig *rig = *state;
    uint64_t addr = 1;
    prepare(rig, 0, NULL);
    struct before before;
    look(rig, &before);
    assert_int_equal(varve_alloc_raw_alloc(rig->alloc, 0, &addr, &rig->message), VARVE_OK);
    assert_int_equal(addr, 0);
    struct varve_alloc_forecast forecast;
    struct varve_alloc_release released[4];
    size_t count;
    bool is_enough;
    for (size_t i = 0; i < sizeof(too_large) / sizeof(too_large[0]); i++) {
        refused(rig, too_large[i], VARVE_ERROR_INVALID);
        assert_non_null(strstr(rig->message.text, "2^60"));
        assert_int_equal(varve_alloc_raw_alloc(rig->alloc, too_large[i], &addr, NULL), VARVE_ERROR_INVALID);
        assert_int_equal(varve_alloc_forecast(rig->alloc, too_large[i], 0, &forecast), VARVE_ERROR_INVALID);
        assert_int_equal(varve_alloc_forecast_release(rig->alloc, VARVE_ALLOC_STAGE_RELEASE_CACHED, too_large[i], 0,
                                                      NULL, 0, released, 4, &count, &is_enough),
                         VARVE_ERROR_INVALID);
    }
    assert_unchanged(rig, &before);
}

TEST_WITH(test_largest_size, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim.total_bytes = 80 * 1024 * MIB}); /* without a capacity */
    play(rig, "a=1152921504606846975 a{a1099511627776M} -a 512M>a limit=1152921504606846976 x1152921504606846975");
}

/* ---- settings ---- */

TEST_WITH(test_fractions, rig_setup, rig_teardown)
{
    const double wrong[] = {0, -0.5, -1, 1.0000001, 2, __builtin_nan(""), __builtin_inf()};
    struct rig *rig = *state;
    prepare(rig, 0, NULL);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 0.75), VARVE_OK);
    struct before before;
    look(rig, &before);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, wrong[i]), VARVE_ERROR_INVALID);
        assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), 0.75, 1e-12);
    }
    assert_unchanged(rig, &before);
}

TEST_WITH(test_opening, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_alloc *alloc = NULL;
    rig_open(rig, &(struct rig_options){.limit = 0});
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_INVALID);
    options.device = rig->device;
    options.policy = "no-such-policy";
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(rig->message.text, "no-such-policy"));
    for (const char *const *name = varve_alloc_policies(); *name != NULL; name++) {
        assert_non_null(strstr(rig->message.text, *name)); /* what would be right */
    }
    options.policy = "rmm-pool:initial=2G:maximum=1G";
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_INVALID);
    assert_string_equal(rig->message.text, "policy rmm-pool: initial is more than maximum");
    struct varve_device_ops poor = *rig->device->ops;
    struct varve_device plain = {&poor, 0};
    poor.alloc_async = NULL;
    options.device = &plain;
    options.policy = "cuda-async";
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_UNSUPPORTED);
    assert_string_equal(rig->message.text, "policy cuda-async: device sim has no pool of stream-ordered memory");
    options.policy = NULL;
    poor.vmm_reserve = NULL;
    options.config.expandable_segments = true;
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(rig->message.text, "expandable_segments"));
    struct varve_alloc_config config = options.config;
    options.config.expandable_segments = false;
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_OK);
    assert_int_equal(varve_alloc_set_config(alloc, &config, &rig->message), VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(rig->message.text, "expandable_segments"));
    varve_alloc_close(alloc);
    alloc = NULL;
    plain.index = 256;
    assert_int_equal(varve_alloc_open(&options, &alloc, &rig->message), VARVE_ERROR_INVALID);
    assert_null(alloc);
}

/* An allocator closes with everything in use, and the device has got it all back. */
TEST_WITH(test_close_with_blocks_in_use, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    prepare(rig, 0, NULL);
    play(rig, "[8 a=30M a~4 -a"); /* the free waits for the capture's end, which does not come */
    rig_close(rig);
    prepare(rig, 0, "expandable_segments:True");
}
