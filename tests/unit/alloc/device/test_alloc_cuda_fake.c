/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator on the cuda device, on a fake driver, where a program does what allocators hardly see
 * otherwise: it captures streams that the allocator does not know of, resets the GPU under it, ends the driver
 * before the last free, forks. Nothing may crash or get lost, requests that can be served are, and the others
 * are refused in CUDA's words.
 * Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/cuda/driver_fake.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define STREAM 0x5000
#define OTHER 0x6000

static const char *const policies[] = {"pytorch", "cuda-async"};

static struct varve_alloc *opened(const char *policy, uint64_t limit)
{
    const struct varve_cuda_options device = {.index = 3, .ordinal = FAKE_ORDINAL};
    struct varve_alloc *alloc = NULL;
    fake_reset();
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    options.policy = policy;
    options.memory_limit = limit;
    assert_int_equal(cuda_device_open(&fake_driver, &device, &options.device, NULL), VARVE_OK);
    fake.device = options.device;
    assert_int_equal(varve_alloc_open(&options, &alloc, NULL), VARVE_OK);
    return alloc;
}

static void checked(struct varve_alloc *alloc)
{
    struct varve_message message = {""};
    if (varve_alloc_check(alloc, &message) != VARVE_OK || varve_cuda_check(fake.device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    if (fake.wrong[0] != '\0') {
        fail_msg("%s", fake.wrong);
    }
}

/* With nothing left at the driver, if it still was one. */
static void closed(struct varve_alloc *alloc)
{
    struct varve_device *device = fake.device;
    checked(alloc);
    varve_alloc_close(alloc);
    fake.device = NULL;
    device->ops->close(device);
    if (fake.wrong[0] != '\0') {
        fail_msg("%s", fake.wrong);
    }
}

static void closed_clean(struct varve_alloc *alloc)
{
    closed(alloc);
    assert_int_equal(fake_count(FAKE_NONE), FAKE_OBJECTS);
    assert_int_equal(fake_thread.depth, 0);
}

static uint64_t taken(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream)
{
    struct varve_message message = {""};
    uint64_t addr = 0;
    if (varve_alloc_raw_alloc_with_stream(alloc, bytes, stream, &addr, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    checked(alloc);
    return addr;
}

static void given(struct varve_alloc *alloc, uint64_t addr)
{
    struct varve_message message = {""};
    if (varve_alloc_raw_delete(alloc, addr, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    checked(alloc);
}

/* ---- captures that the allocator does not know of ---- */

/* A block that a captured stream uses is freed: it waits for the end of the capture, and nobody else does. */
TEST(test_free_of_what_a_capture_uses)
{
    for (size_t i = 0; i < 2; i++) {
        struct varve_alloc *alloc = opened(policies[i], 0);
        uint64_t addr = taken(alloc, 5 * MIB, STREAM), other = taken(alloc, 5 * MIB, STREAM);
        assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER, NULL), VARVE_OK);
        assert_int_equal(varve_alloc_record_stream(alloc, other, OTHER + 16, NULL), VARVE_OK);
        fake.captured = OTHER;
        given(alloc, addr);
        given(alloc, other);
        assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
        checked(alloc);
        uint64_t records = fake.event_records;
        assert_int_equal(records, i == 0 ? 1 : 3); /* of the other one; and of the stream of both */
        for (int k = 0; k < 3; k++) {
            given(alloc, taken(alloc, 700, STREAM));
        }
        assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
        checked(alloc);
        struct varve_alloc_stats stats;
        varve_alloc_get_device_stats(alloc, &stats);
        assert_int_equal(stats.allocated_bytes[0].current, 0);
        assert_int_equal(stats.active_bytes[0].current, 5 * MIB);
        fake.captured = 0;
        assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
        assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
        checked(alloc);
        varve_alloc_get_device_stats(alloc, &stats);
        assert_int_equal(stats.active_bytes[0].current, 0);
        assert_int_equal(fake.event_records, records + 1);
        closed_clean(alloc);
    }
}

/* The request can't be served while the block waits: it is out of memory, not in trouble. */
TEST(test_no_memory_during_a_capture)
{
    for (size_t i = 0; i < 2; i++) {
        struct varve_alloc *alloc = opened(policies[i], 30 * MIB);
        uint64_t addr = taken(alloc, 22 * MIB, STREAM), late = 1;
        struct varve_message message = {""};
        assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER, NULL), VARVE_OK);
        fake.captured = OTHER;
        given(alloc, addr);
        assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 22 * MIB, STREAM, &late, &message),
                         VARVE_ERROR_NO_MEMORY);
        assert_int_equal(late, 0);
        assert_non_null(strstr(message.text, "pending 23068672"));
        checked(alloc);
        fake.captured = 0;
        given(alloc, taken(alloc, 22 * MIB, STREAM));
        closed_clean(alloc);
    }
}

/* On the captured stream itself: cached and new segments are the graph's affair; the driver's pool is not. */
TEST(test_captured_stream)
{
    struct varve_alloc *alloc = opened("pytorch", 0);
    struct varve_message message = {""};
    uint64_t addr = 0;
    fake.captured = STREAM;
    given(alloc, taken(alloc, 5 * MIB, STREAM));
    given(alloc, taken(alloc, 5 * MIB, STREAM));
    fake.captured = 0;
    closed_clean(alloc);

    alloc = opened("cuda-async", 0);
    addr = taken(alloc, 5 * MIB, STREAM);
    fake.captured = STREAM;
    given(alloc, addr); /* put off */
    assert_int_equal(fake_count(FAKE_POOLED), 1);
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 512, STREAM, &addr, &message), VARVE_ERROR_BUSY);
    assert_string_equal(message.text, "the device failed to allocate 512 bytes: the stream 0x5000 is being captured");
    given(alloc, taken(alloc, 512, OTHER));
    assert_int_equal(fake_count(FAKE_POOLED), 1);
    fake.captured = 0;
    given(alloc, taken(alloc, 512, OTHER));
    assert_int_equal(fake_count(FAKE_POOLED), 0);
    closed_clean(alloc);
}

/* ---- the pool's order ---- */

/* The last free was on a stream that is none of the program's, which had been made to wait for those. */
static void own_stream_waits_for(const uint64_t *others, uint64_t count)
{
    assert_int_equal(fake.orders, count);
    assert_int_equal(fake.free_orders, count);
    assert_non_null(fake_find(FAKE_STREAM, fake.free_stream));
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(fake.order[i].stream, fake.free_stream);
        assert_int_equal(fake.order[i].other, others[i]);
    }
}

TEST(test_order)
{
    struct varve_alloc *alloc = opened("cuda-async", 0);
    uint64_t addr = taken(alloc, 5 * MIB, STREAM);
    assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_record_stream(alloc, addr, 0, NULL), VARVE_OK);
    fake.is_event_pending = true;                 /* and stays so: nobody asks */
    assert_int_equal(fake_count(FAKE_STREAM), 0); /* nobody has needed one */
    given(alloc, addr);
    own_stream_waits_for((const uint64_t[]){STREAM, 0, OTHER}, 3);
    assert_int_equal(fake.event_creates, 1); /* the same one again */
    assert_int_equal(fake.waits, 0);
    assert_int_equal(fake_count(FAKE_POOLED), 0);
    given(alloc, taken(alloc, 5 * MIB, STREAM));
    assert_int_equal(fake.free_stream, STREAM); /* nobody else has used it */
    assert_int_equal(fake.orders, 3);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(fake.waits, 2); /* of both streams that freed */
    assert_int_equal(fake.trims, 1);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(fake.waits, 2); /* which have not freed anything since */
    closed_clean(alloc);
}

/* Part of the users is waited for, then one is captured: the rest follows, once each, and the free is last.
 */
TEST(test_order_after_a_capture)
{
    for (int ends = 0; ends < 2; ends++) {
        struct varve_alloc *alloc = opened("cuda-async", 0);
        uint64_t addr = taken(alloc, 5 * MIB, STREAM);
        assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER, NULL), VARVE_OK);
        assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER + 16, NULL), VARVE_OK);
        fake.captured = OTHER + 16;
        given(alloc, addr);
        assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
        assert_int_equal(fake.orders, 2);
        assert_int_equal(fake_count(FAKE_POOLED), 1);
        if (ends) {
            fake.captured = 0;
            assert_int_equal(varve_alloc_process_events(alloc), VARVE_OK);
            own_stream_waits_for((const uint64_t[]){STREAM, OTHER, OTHER + 16}, 3);
            assert_int_equal(fake_count(FAKE_POOLED), 0);
            closed_clean(alloc);
        } else {
            closed_clean(alloc); /* it is not freed on its own stream, which waits for nobody */
            assert_int_not_equal(fake.free_stream, STREAM);
            assert_int_equal(fake.orders, 2);
        }
    }
}

/* In use at the close: it goes back behind all that use it. */
TEST(test_order_of_a_close)
{
    struct varve_alloc *alloc = opened("cuda-async", 0);
    uint64_t addr = taken(alloc, 5 * MIB, STREAM);
    assert_int_equal(varve_alloc_record_stream(alloc, addr, OTHER, NULL), VARVE_OK);
    closed_clean(alloc);
    assert_int_equal(fake.orders, 2);
    assert_int_equal(fake.free_orders, 2);
    assert_int_equal(fake.order[0].other, STREAM);
    assert_int_equal(fake.order[1].other, OTHER);
    assert_int_equal(fake.order[1].stream, fake.free_stream);
    assert_int_not_equal(fake.free_stream, STREAM);
}

/* The driver has less than the limit: it is asked a second time, with its pool trimmed. */
TEST(test_driver_without_memory)
{
    struct varve_alloc *alloc = opened("cuda-async", 0);
    struct varve_message message = {""};
    uint64_t addr = 1;
    fake.has_no_memory = true;
    assert_int_equal(varve_alloc_raw_alloc(alloc, MIB, &addr, &message), VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(message.text, "out of memory: 1048576 bytes"));
    assert_int_equal(fake.trims, 1);
    fake.has_no_memory = false;
    taken(alloc, MIB, 0);
    closed_clean(alloc); /* with the block in use */
}

/* ---- the end of the GPU and of the driver ---- */

TEST(test_end)
{
    for (size_t i = 0; i < 4; i++) {
        struct varve_alloc *alloc = opened(policies[i % 2], 0);
        uint64_t plain = taken(alloc, 700, STREAM), used = taken(alloc, 5 * MIB, STREAM), addr = 1;
        struct varve_message message = {""};
        assert_int_equal(varve_alloc_record_stream(alloc, used, OTHER, NULL), VARVE_OK);
        given(alloc, taken(alloc, 3 * MIB, STREAM));
        fake.has_ended = i < 2;
        fake.context_result = i < 2 ? CUDA_RESULT_SUCCESS : CUDA_RESULT_CONTEXT_IS_DESTROYED;
        /* a used block's event can't be recorded any more: reported, and the block is lost to nobody */
        assert_int_equal(varve_alloc_raw_delete(alloc, used, &message), VARVE_ERROR_UNSUPPORTED);
        assert_non_null(strstr(message.text, "CUDA_ERROR_"));
        checked(alloc);
        given(alloc, plain);
        uint64_t calls = fake.calls;
        assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 100 * MIB, STREAM, &addr, &message),
                         VARVE_ERROR_UNSUPPORTED);
        assert_int_equal(addr, 0);
        assert_non_null(strstr(message.text, "CUDA_ERROR_"));
        assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_ERROR_UNSUPPORTED);
        checked(alloc);
        assert_true(fake.calls <= calls + 1); /* the driver is left alone */
        closed(alloc);
    }
}

TEST(test_fork_child)
{
    for (size_t i = 0; i < 2; i++) {
        struct varve_alloc *alloc = opened(policies[i], 0);
        uint64_t addr = taken(alloc, 5 * MIB, STREAM);
        int status = -1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            uint64_t calls = fake.calls, late = 0;
            struct varve_message message = {""};
            bool is_reported = varve_alloc_raw_alloc(alloc, 200 * MIB, &late, &message) == VARVE_ERROR_UNSUPPORTED &&
                               strlen(message.text) > 10;
            varve_alloc_raw_delete(alloc, addr, NULL);
            varve_alloc_empty_cache(alloc);
            varve_alloc_close(alloc);
            fake.device->ops->close(fake.device);
            _exit(is_reported && fake.calls == calls ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        given(alloc, addr);
        closed_clean(alloc);
    }
}

/* ---- settings ---- */

TEST(test_unit)
{
    const struct varve_cuda_options device = {.index = 3, .ordinal = FAKE_ORDINAL};
    struct varve_alloc *alloc = NULL;
    struct varve_message message = {""};
    fake_reset();
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(cuda_device_open(&fake_driver, &device, &options.device, NULL), VARVE_OK);
    options.config.expandable_segments = true;
    options.config.large_segment_size = 11 * MIB;
    options.config.max_non_split_rounding_size = 11 * MIB;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "expandable_segments: device cuda maps memory in pieces of 2097152 bytes; "
                                      "large_segment_size is 11534336: set large_segment_size_mb to a multiple of 2");
    options.config.large_segment_size = 12 * MIB;
    options.config.max_non_split_rounding_size = 12 * MIB;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_OK);
    fake.device = options.device;
    taken(alloc, 5 * MIB, STREAM);
    closed_clean(alloc);
}
