/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device on a fake driver: what it calls, in which context and mode, and what becomes of every
 * failure. This is all of the device that can be seen without a GPU; whether the real driver does what it is
 * called for is tested in tests/gpu. Peers, other processes and pools: test_device_cuda_fake_share.c.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"

#include <sys/wait.h>
#include <unistd.h>

static const struct rules_kind kind = {.name = "cuda", .open = fake_open, .check = varve_cuda_check, .stream = STREAM};

static int rules_teardown_strict(void **state)
{
    int error = rules_teardown(state);
    return error != 0 || fake.wrong[0] != '\0' || fake_count(FAKE_NONE) != FAKE_OBJECTS;
}

/* ---- contexts ---- */

static void test_context(void **state)
{
    static const cuda_context contexts[] = {NULL, (cuda_context)0xc0001, (cuda_context)0xc0002};
    struct varve_device *device = fake_opened();
    uint64_t addr = 0;
    (void)state;
    assert_ptr_equal(contexts[1], fake_context(FAKE_ORDINAL));
    for (size_t i = 0; i < 3; i++) {
        enum cuda_capture_mode mode = i == 1 ? CUDA_CAPTURE_MODE_RELAXED : CUDA_CAPTURE_MODE_GLOBAL;
        fake_thread = (struct fake_thread){.contexts = {contexts[i]}, .depth = i != 0, .mode = mode};
        assert_int_equal(device->ops->segment_alloc(device, UNIT, 0, &addr), 0);
        assert_int_equal(device->ops->segment_alloc(device, UINT64_MAX, 0, &addr), VARVE_ERROR_NO_MEMORY);
        assert_int_equal(device->ops->event_query(device, 9), VARVE_ERROR_NOT_FOUND);
        assert_int_equal(fake_thread.depth, i != 0);
        assert_ptr_equal(fake_current(), contexts[i]);
        assert_int_equal(fake_thread.mode, mode);
    }
    fake_thread = (struct fake_thread){.depth = 0};
    fake_closed(device);
}

/* ---- failures ---- */

static void test_reasons(void **state)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, handle = 0;
    (void)state;
    assert_string_equal(reason(device), "");
    fake.has_no_memory = true;
    assert_int_equal(ops->segment_alloc(device, 12345, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_string_equal(reason(device), "cuMemAlloc of 12345 bytes: CUDA_ERROR_OUT_OF_MEMORY (said by the driver)");
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(reason(device), "cuMemCreate of 2097152 bytes: "));
    fake.has_no_memory = false;
    assert_int_equal(ops->segment_alloc(device, RULES_CAPACITY, 0, &addr), 0); /* neither has counted */
    fake.context_result = 719;
    assert_int_equal(ops->segment_free(device, addr, RULES_CAPACITY), VARVE_ERROR_IO);
    assert_non_null(strstr(reason(device), "context of CUDA device 1: CUDA_ERROR_OTHER"));
    fake.context_result = 0;
    assert_int_equal(ops->segment_free(device, addr, RULES_CAPACITY), 0);
    fake_closed(device);
}

#define TRY(call, wanted)               \
    if ((error = (call)) != (wanted)) { \
        return error;                   \
    }

/* One of everything; returns the first error, with all that was taken so far still out. */
static int one_of_everything(struct varve_device *device)
{
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr, base, handle, event, import, pooled, joined, stream, host, free_bytes, total;
    int error;
    TRY(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    TRY(ops->memory_info(device, &free_bytes, &total), 0);
    TRY(ops->vmm_reserve(device, 4 * UNIT, NULL, &base), 0);
    TRY(ops->vmm_create(device, UNIT, &handle), 0);
    TRY(ops->vmm_map(device, base, UNIT, handle), 0);
    TRY(ops->vmm_map(device, base + UNIT, UNIT, handle), 0);
    TRY(ops->vmm_set_access(device, base, UNIT, RULES_INDEX), 0);
    TRY(ops->event_create(device, &event), 0);
    TRY(ops->event_record(device, event, STREAM), 0);
    TRY(ops->event_query(device, event), 1);
    TRY(ops->event_synchronize(device, event), 0);
    TRY(ops->stream_synchronize(device, STREAM), 0);
    TRY(ops->peer_enable(device, RULES_INDEX - FAKE_ORDINAL), 0);
    struct varve_ipc_handle ipc;
    TRY(ops->ipc_export(device, addr, &ipc), 0);
    ipc = foreign_handle(addr);
    TRY(ops->ipc_open(device, &ipc, &import), 0);
    TRY(ops->ipc_open(device, &ipc, &import), 0);
    TRY(ops->ipc_close(device, import), 0);
    TRY(ops->alloc_async(device, 512, STREAM, &pooled), 0);
    TRY(ops->stream_wait_event(device, STREAM, event), 0);
    TRY(ops->join_stream(device, &joined), 0);
    TRY(ops->stream_wait_event(device, joined, event), 0);
    TRY(ops->free_async(device, pooled, 512, joined), 0);
    TRY(ops->alloc_async(device, 512, STREAM, &pooled), 0);
    TRY(ops->pool_trim(device, 0), 0);
    TRY(ops->stream_create(device, &stream), 0);
    TRY(ops->host_alloc(device, 512, &host), 0);
    TRY(ops->copy(device, addr, host, 512, VARVE_COPY_HOST_TO_DEVICE, stream), 0);
    TRY(ops->copy_2d(device, &(struct varve_copy_2d){VARVE_COPY_WITHIN, addr, 64, addr + UNIT / 2, 128, 32, 10}, 0), 0);
    TRY(ops->fill(device, addr, 7, 8, 32, stream), 0);
    TRY(ops->host_free(device, host), 0);
    TRY(ops->stream_destroy(device, stream), 0);
    TRY(ops->vmm_release(device, handle, UNIT), 0);
    TRY(ops->vmm_unmap(device, base, 2 * UNIT), 0);
    TRY(ops->vmm_address_free(device, base, 4 * UNIT), 0);
    TRY(ops->event_destroy(device, event), 0);
    TRY(ops->segment_free(device, addr, UNIT), 0);
    return 0;
}

/* Whichever call fails, in whichever way: it is reported, the resource table holds, and closing leaves nothing
 * behind. */
static void test_every_call_fails(void **state)
{
    static const cuda_result results[] = {CUDA_RESULT_INVALID_VALUE, CUDA_RESULT_OUT_OF_MEMORY, 700,
                                          CUDA_RESULT_NOT_PERMITTED, CUDA_RESULT_NOT_SUPPORTED};
    (void)state;
    uint64_t calls;
    {
        struct varve_device *device = fake_opened();
        calls = fake.calls;
        assert_int_equal(one_of_everything(device), 0);
        calls = fake.calls - calls;
        fake_closed(device);
    }
    assert_true(calls > 50);
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        for (uint64_t nth = 1; nth <= calls; nth++) {
            struct varve_device *device = fake_opened();
            fake.fail_at = nth;
            fake.fail_with = results[i];
            int error = one_of_everything(device);
            /* only asking for the number of devices, on the way to a peer, has an answer of its own */
            if (error != cuda_driver_error(results[i]) && error != VARVE_ERROR_NOT_FOUND) {
                fail_msg("call %d with result %u: error %d", (int)nth, results[i], error);
            }
            assert_true(strlen(reason(device)) > 10);
            fake_closed(device);
        }
    }
}

static void test_open_fails(void **state)
{
    struct varve_cuda_options options = {.index = 3, .ordinal = FAKE_ORDINAL, .shares = true};
    struct varve_device *device = NULL;
    struct varve_message message = {""};
    uint64_t handle = 0;
    (void)state;
    for (uint64_t nth = 1; nth <= 20; nth++) {
        fake_reset();
        fake.fail_at = nth;
        fake.fail_with = CUDA_RESULT_DEVICE_UNAVAILABLE;
        int error = cuda_device_open(&fake_driver, &options, &device, &message);
        fake.fail_at = 0;
        if (error == VARVE_OK) { /* not asked that often, or it was about virtual memory only */
            device->ops->close(device);
        } else {
            assert_int_equal(error, VARVE_ERROR_BUSY);
            assert_non_null(strstr(message.text, "CUDA device 1"));
        }
        assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
    }
    fake_reset();
    options.ordinal = FAKE_DEVICES;
    assert_int_equal(cuda_device_open(&fake_driver, &options, &device, &message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "no CUDA device 3; this process sees 3"));
    options.ordinal = FAKE_ORDINAL;
    for (size_t i = 0; i < 3; i++) {
        static const size_t granularities[] = {0, (size_t)4 << 20, (size_t)64 << 10};
        fake_reset();
        fake.granularity = granularities[i];
        assert_int_equal(cuda_device_open(&fake_driver, &options, &device, &message), 0);
        assert_true((device->ops->vmm_reserve != NULL) == (i == 2));
        assert_int_equal(device->ops->vmm_create(device, UNIT, &handle), 0);
        assert_int_equal(fake.handle_types, i == 0 ? CUDA_HANDLE_TYPE_NONE : CUDA_HANDLE_TYPE_FD);
        fake_closed(device);
    }
}

/* ---- the end ---- */

/* Giving back is no error, the rest is; and once the end is known, the driver is left alone. */
static void after_the_end(struct varve_device *device, const uint64_t ids[4], bool is_known)
{
    const struct varve_device_ops *ops = device->ops;
    uint64_t calls = fake.calls, out = 0;
    assert_int_equal(ops->segment_free(device, ids[0], UNIT), 0);
    assert_true(is_known ? fake.calls == calls : fake.calls <= calls + 2);
    calls = fake.calls;
    assert_int_equal(ops->vmm_unmap(device, ids[1], UNIT), 0);
    assert_int_equal(ops->vmm_release(device, ids[2], UNIT), 0);
    assert_int_equal(ops->vmm_address_free(device, ids[1], UNIT), 0);
    assert_int_equal(ops->event_destroy(device, ids[3]), 0);
    assert_int_equal(ops->ipc_close(device, 0x1000), 0);
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &out), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &out), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->event_query(device, ids[3]), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->join_stream(device, &out), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->stream_synchronize(device, 0), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(fake.calls, calls);
    assert_true(strlen(reason(device)) > 10);
}

static void test_end(void **state)
{
    static const cuda_result ends[] = {CUDA_RESULT_DEINITIALIZED, CUDA_RESULT_CONTEXT_IS_DESTROYED,
                                       CUDA_RESULT_CONTEXT_IS_DESTROYED};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct varve_device *device = fake_opened();
        const struct varve_device_ops *ops = device->ops;
        uint64_t ids[4], other = 0;
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &ids[0]), 0);
        assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &ids[1]), 0);
        assert_int_equal(ops->vmm_create(device, UNIT, &ids[2]), 0);
        assert_int_equal(ops->vmm_map(device, ids[1], UNIT, ids[2]), 0);
        assert_int_equal(ops->event_create(device, &ids[3]), 0);
        assert_int_equal(ops->join_stream(device, &other), 0);
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &other), 0);
        fake.has_ended = i == 0;
        fake.context_result = i == 1 ? ends[i] : 0;
        if (i == 2) { /* noticed by the free itself */
            fake.fail_at = 3;
            fake.fail_with = ends[i];
            assert_int_equal(ops->segment_free(device, other, UNIT), 0);
        }
        after_the_end(device, ids, i == 2);
        assert_int_equal(varve_cuda_check(device, NULL), 0);
        fake.device = NULL;
        uint64_t calls = fake.calls;
        device->ops->close(device);
        nothing_is_wrong();
        assert_int_equal(fake.calls - calls, i != 0);
        assert_int_equal(fake_count(FAKE_RETAIN), i == 0); /* a reset device is still to be released */
    }
}

static void test_after_fork(void **state)
{
    struct varve_device *device = fake_opened();
    uint64_t addr = 0;
    int status = -1;
    (void)state;
    assert_int_equal(device->ops->segment_alloc(device, UNIT, 0, &addr), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint64_t calls = fake.calls;
        struct varve_message message;
        bool is_refused = device->ops->segment_alloc(device, UNIT, 0, &addr) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->segment_free(device, addr, UNIT) == VARVE_ERROR_UNSUPPORTED &&
                          device->ops->event_query(device, 1) == VARVE_ERROR_UNSUPPORTED &&
                          varve_cuda_check(device, NULL) == VARVE_ERROR_UNSUPPORTED;
        device->ops->reason(device, &message);
        device->ops->close(device);
        _exit(is_refused && fake.calls == calls ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(device->ops->segment_free(device, addr, UNIT), 0);
    fake_closed(device);
}

/* ---- streams and events ---- */

static void test_capture(void **state)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t event = 0, addr = 0;
    (void)state;
    assert_int_equal(ops->event_create(device, &event), 0);
    fake.captured = STREAM;
    assert_int_equal(ops->event_record(device, event, STREAM), VARVE_ERROR_BUSY);
    assert_int_equal(ops->stream_synchronize(device, STREAM), VARVE_ERROR_BUSY);
    assert_non_null(strstr(reason(device), "0x5000 is being captured"));
    assert_int_equal(ops->event_record(device, event, 0), VARVE_ERROR_BUSY);
    assert_int_equal(ops->stream_synchronize(device, 0), VARVE_ERROR_BUSY);
    assert_int_equal(fake.event_records + fake.waits, 0);
    assert_int_equal(ops->event_query(device, event), 1); /* as if nothing had been asked for */
    assert_int_equal(ops->event_record(device, event, STREAM + 16), 0);
    assert_int_equal(ops->stream_synchronize(device, STREAM + 16), 0);
    assert_int_equal(ops->segment_alloc(device, UNIT, STREAM, &addr), 0);
    assert_int_equal(ops->alloc_async(device, UNIT, STREAM, &addr), VARVE_ERROR_BUSY);
    assert_int_equal(fake_count(FAKE_POOL), 0);
    assert_int_equal(ops->alloc_async(device, UNIT, STREAM + 16, &addr), 0);
    assert_int_equal(ops->stream_wait_event(device, STREAM, event), VARVE_ERROR_BUSY);
    assert_int_equal(ops->free_async(device, addr, UNIT, STREAM), VARVE_ERROR_BUSY);
    fake.captured = 0;
    assert_int_equal(ops->event_record(device, event, STREAM), 0);
    assert_int_equal(ops->free_async(device, addr, UNIT, STREAM), 0);
    fake_closed(device); /* with the segment out */
}

static void test_events(void **state)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    (void)state;
    uint64_t events[100];
    for (size_t round = 0; round < 10; round++) {
        for (size_t i = 0; i < 100; i++) {
            assert_int_equal(ops->event_create(device, &events[i]), 0);
            fake.is_event_pending = true; /* what the last owner recorded is nothing to the next */
            assert_int_equal(ops->event_query(device, events[i]), 1);
            assert_int_equal(ops->event_record(device, events[i], STREAM), 0);
            assert_int_equal(ops->event_query(device, events[i]), 0);
            fake.is_event_pending = false;
            assert_int_equal(ops->event_query(device, events[i]), 1);
        }
        for (size_t i = 0; i < 100; i++) {
            assert_int_equal(ops->event_destroy(device, events[i]), 0);
            assert_int_equal(ops->event_record(device, events[i], STREAM), VARVE_ERROR_NOT_FOUND);
        }
    }
    assert_int_equal(fake.event_creates, 100);
    fake_closed(device);
}

static const struct CMUnitTest cases[] = {
    RULES_TESTS(&kind, rules_teardown_strict), cmocka_unit_test(test_context),    cmocka_unit_test(test_reasons),
    cmocka_unit_test(test_every_call_fails),   cmocka_unit_test(test_open_fails), cmocka_unit_test(test_end),
    cmocka_unit_test(test_after_fork),         cmocka_unit_test(test_capture),    cmocka_unit_test(test_events),
};

TEST_CASES(cases)
