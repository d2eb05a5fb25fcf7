/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy cuda-async: every request and every free goes to the device's own pool, in the order of streams,
 * and the allocator keeps nothing but what the device can't take back yet. Private pools are cached all the
 * same. What is looked at: records, figures, calls of the device, and that nothing is lost whatever fails.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"
#include "support/random.h"

static void open_async(struct rig *rig, struct rig_options options)
{
    options.policy = "cuda-async";
    rig_open(rig, &options);
}

/* ---- one request, one allocation ---- */

TEST_WITH(test_each_goes_to_the_device, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;
    struct varve_alloc_stats stats;

    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    a = take(rig, 1000);
    expect(rig, "segment_alloc new_segment 1024\n"
                "alloc new_segment 1024\n");
    b = take_on(rig, 5 * MIB, 8);
    expect(rig, "segment_alloc new_segment 5M\n"
                "alloc new_segment 5M\n");
    stats = stats_of(rig);
    assert_int_equal(stats.segment[VARVE_ALLOC_STAT_SMALL_POOL].current, 1);
    assert_int_equal(stats.segment[VARVE_ALLOC_STAT_LARGE_POOL].current, 1);
    assert_int_equal(stats.reserved_bytes[0].current, 5 * MIB + 1024);
    assert_int_equal(stats.allocated_bytes[0].current, 5 * MIB + 1024);
    assert_int_equal(stats.requested_bytes[0].current, 5 * MIB + 1000);
    give(rig, a);
    expect(rig, "free_requested 1024\n"
                "free_completed 1024\n"
                "segment_free free 1024\n");
    give(rig, b);
    forget(rig);
    take(rig, 1000); /* nothing is kept */
    expect(rig, "segment_alloc new_segment 1024\n"
                "alloc new_segment 1024\n");
    stats = stats_of(rig);
    assert_int_equal(stats.num_device_alloc, 3);
    assert_int_equal(stats.num_device_free, 2);
    assert_int_equal(stats.inactive_split_bytes[0].peak, 0);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_ALLOC_ASYNC), 3);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_FREE_ASYNC), 2);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_SEGMENT_ALLOC), 0);
    rig_close(rig); /* with a block in use */
}

TEST_WITH(test_base_and_sharing, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_alloc_ipc ipc;
    uint64_t addr, base = 0, bytes = 0;

    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    addr = take(rig, 700);
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, addr, &base, &bytes), VARVE_OK);
    assert_int_equal(base, addr);
    assert_int_equal(bytes, 1024);
    assert_int_equal(varve_alloc_ipc_export(rig->alloc, addr, &ipc), VARVE_ERROR_UNSUPPORTED);
    expect_segment(rig, addr, "a1024");
}

/* ---- streams ---- */

/* The device's own stream waits, for the block's and the two others: the events never complete here. */
TEST_WITH(test_other_streams, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    open_async(rig, (struct rig_options){.sim = {.events_are_scripted = true}});
    addr = take_on(rig, 3 * MIB, 8);
    use_on(rig, addr, 9);
    use_on(rig, addr, 10);
    use_on(rig, addr, 8);
    forget(rig);
    give(rig, addr);
    expect(rig, "free_requested 3M\n"
                "free_completed 3M\n"
                "segment_free free 3M\n");
    assert_int_equal(calls_of(rig, VARVE_DEVICE_EVENT_RECORD), 3);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 3);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_EVENT_QUERY), 0);
    take(rig, 1);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_EVENT_QUERY), 0);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 512);
}

/* Whatever call fails: the error is reported, the block stays as pending, and the next request tries again. */
TEST_WITH(test_failures, rig_setup, rig_teardown)
{
    static const enum varve_device_call calls[] = {VARVE_DEVICE_EVENT_RECORD, VARVE_DEVICE_STREAM_WAIT_EVENT,
                                                   VARVE_DEVICE_FREE_ASYNC};
    struct rig *rig = *state;

    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    for (size_t i = 0; i < 3; i++) {
        uint64_t addr = take(rig, 1000);

        use_on(rig, addr, 9);
        assert_int_equal(varve_sim_fail(rig->device, calls[i], 1, 1, VARVE_ERROR_IO), VARVE_OK);
        assert_int_equal(varve_alloc_raw_delete(rig->alloc, addr, &rig->message), VARVE_ERROR_IO);
        assert_non_null(strstr(rig->message.text, "is tried again"));
        rig_check(rig);
        expect_segment(rig, addr, "p1024");
        assert_int_equal(varve_alloc_raw_delete(rig->alloc, addr, &rig->message), VARVE_ERROR_NOT_FOUND);
        assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 0);
        assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 1024);
        assert_int_equal(varve_alloc_process_events(rig->alloc), VARVE_OK);
        rig_check(rig);
        assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
    }
    assert_int_equal(calls_of(rig, VARVE_DEVICE_STREAM_WAIT_EVENT), 3 * 2 + 1); /* none twice, but the failed */
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_ALLOC_ASYNC, 1, 1, VARVE_ERROR_IO), VARVE_OK);
    refused(rig, 1000, VARVE_ERROR_IO);
}

/* What is captured by somebody else keeps its blocks, and only them. */
TEST_WITH(test_busy_streams, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    a = take_on(rig, 1000, 8);
    b = take_on(rig, 2000, 9);
    c = take_on(rig, 3000, 8);
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_FREE_ASYNC, 1, 4, VARVE_ERROR_BUSY), VARVE_OK);
    give(rig, a);
    give(rig, b);
    give(rig, c);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 1024 + 2048 + 3072);
    assert_int_equal(varve_alloc_process_events(rig->alloc), VARVE_OK); /* a can't yet, b and c can */
    rig_check(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 1024);
    take(rig, 512);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 512);
}

/* ---- no memory ---- */

TEST_WITH(test_limit, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    open_async(rig, (struct rig_options){.sim = {.index = 0}, .limit = 10 * MIB});
    addr = take(rig, 8 * MIB);
    forget(rig);
    refused(rig, 3 * MIB, VARVE_ERROR_NO_MEMORY);
    expect(rig, "oom_retry release_cached 3M freed 0M\n"
                "oom 3M\n");
    assert_non_null(strstr(rig->message.text, "reserved 8388608"));
    assert_int_equal(calls_of(rig, VARVE_DEVICE_POOL_TRIM), 1);
    assert_int_equal(stats_of(rig).num_ooms, 1);
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
    give(rig, addr);
    take(rig, 3 * MIB);
}

static bool is_nine(void *context, uint64_t stream)
{
    (void)context;
    return stream == 9;
}

/* What the pool holds unused is given to those who need a segment. */
TEST_WITH(test_trim, rig_setup, rig_teardown)
{
    const struct varve_pool_id pool = {0, 1};
    struct rig *rig = *state;
    uint64_t addr;

    open_async(rig, (struct rig_options){.sim = {.capacity_bytes = 40 * MIB}});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, is_nine, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    addr = take(rig, 30 * MIB);
    give(rig, addr);
    assert_int_equal(varve_sim_used(rig->device), 30 * MIB);
    empty_cache(rig);
    assert_int_equal(varve_sim_used(rig->device), 0);
    give(rig, take(rig, 30 * MIB));
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, is_nine, NULL), VARVE_OK);
    addr = 0;
    assert_int_equal(varve_alloc_raw_alloc_with_stream(rig->alloc, 3 * MIB, 9, &addr, NULL),
                     VARVE_ERROR_NO_MEMORY); /* 20 MiB, and nothing may wait in a capture */
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    empty_cache(rig);
    assert_int_equal(varve_sim_used(rig->device), 0);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, pool), VARVE_OK);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, pool), VARVE_OK);
}

/* ---- captures and private pools ---- */

TEST_WITH(test_private_pools_are_cached, rig_setup, rig_teardown)
{
    const struct varve_pool_id pool = {1, 0};
    struct rig *rig = *state;
    uint64_t graph, plain, used;

    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    plain = take(rig, 4000);
    used = take(rig, 5000);
    use_on(rig, used, 9);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, is_nine, NULL), VARVE_OK);
    forget(rig);
    graph = take_on(rig, 3 * MIB, 9);
    expect(rig, "segment_alloc new_segment 20M\n"
                "split 3M left 17M\n"
                "alloc new_segment 3M\n");
    give(rig, graph);
    forget(rig);
    assert_int_equal(take_on(rig, 3 * MIB, 9), graph);
    expect(rig, "split 3M left 17M\n"
                "alloc cache 3M\n");
    give(rig, plain); /* a stream that nobody captures */
    expect(rig, "free_requested 4096\n"
                "free_completed 4096\n"
                "segment_free free 4096\n");
    give(rig, used); /* the other stream may be under capture */
    expect(rig, "free_requested 5120\n");
    assert_int_equal(calls_of(rig, VARVE_DEVICE_EVENT_RECORD), 0);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    give(rig, graph);
    forget(rig);
    take_on(rig, 3 * MIB, 9); /* of the default pool, after what was put off */
    expect(rig, "free_completed 5120\n"
                "segment_free free 5120\n"
                "segment_alloc new_segment 3M\n"
                "alloc new_segment 3M\n");
    assert_int_equal(varve_alloc_release_pool(rig->alloc, pool), VARVE_OK);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 3 * MIB);
}

/* ---- opening ---- */

TEST(test_device_without_pools)
{
    struct varve_alloc_options options;
    struct varve_alloc *alloc = NULL;
    struct varve_message message = {""};

    varve_alloc_options_init(&options);
    options.policy = "cuda-async";
    assert_int_equal(varve_host_open(&(struct varve_host_options){.limit_bytes = MIB}, &options.device, NULL),
                     VARVE_OK);
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_ERROR_UNSUPPORTED);
    assert_string_equal(message.text, "policy cuda-async: device host has no pool of stream-ordered memory");
    options.device->ops->close(options.device);
}

/* ---- at random: what is out is what is asked for, rounded ---- */

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addrs[64] = {0}, bytes[64] = {0}, sum = 0, seed = 7, random;

    open_async(rig, (struct rig_options){.sim = {.capacity_bytes = 24 * MIB, .reuses_addresses = true}});
    for (unsigned step = 0; step < 3000; step++) {
        unsigned i;

        random = random_next(&seed);
        i = (unsigned)(random >> 58);
        if (addrs[i] != 0) {
            if (random >> 57 & 1) {
                use_on(rig, addrs[i], 1 + (random >> 40) % 3);
            }
            give(rig, addrs[i]);
            sum -= bytes[i];
            addrs[i] = 0;
        } else {
            uint64_t asked = 1 + (random >> 20) % (2 * MIB);

            bytes[i] = (asked + 511) / 512 * 512;
            if (varve_alloc_raw_alloc_with_stream(rig->alloc, asked, random % 3, &addrs[i], NULL) == VARVE_OK) {
                sum += bytes[i];
            } else {
                assert_true(sum + bytes[i] > 22 * MIB);
            }
        }
        rig_check(rig);
        assert_int_equal(varve_alloc_memory_reserved(rig->alloc), sum);
        assert_int_equal(varve_alloc_memory_allocated(rig->alloc), sum);
        rig->count = rig->mark = 0;
    }
}
