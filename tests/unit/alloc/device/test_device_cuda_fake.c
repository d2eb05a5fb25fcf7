/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device on a fake driver: what it calls, with what arguments, in which context and mode, and what becomes of
 * every failure. This is all of the device that can be seen without a GPU; whether the real driver does what it is
 * called for is tested in tests/gpu.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"
#include "tests/cmocka.h"

#include <sys/wait.h>
#include <unistd.h>

static const struct device_word words[] = {FAKE_WORDS, {NULL, NULL}};
#define KIND(closed_)                                                                                               \
    {                                                                                                               \
        .name = "cuda", .open = fake_open, .check = varve_cuda_check, .closing = fake_closing, .closed = (closed_), \
        .words = words, .stream = STREAM                                                                            \
    }
static const struct device_kind kind = KIND(nothing_is_left);
static const struct device_kind ended_kind = KIND(nothing_is_wrong); /* its driver has ended, and got nothing back */

static const struct device_case plays[] = {
    PLAY("reasons; what fails has not counted",
         "reason{} has_no_memory:1 alloc:12345!memory reason{cuMemAlloc of 12345 bytes: CUDA_ERROR_OUT_OF_MEMORY "
         "(said by the driver)} create:1u!memory reason{cuMemCreate of 2097152 bytes: } has_no_memory:0 a=alloc:16u "
         "context_result:719 free:a:16u!io reason{context of CUDA device 1: CUDA_ERROR_OTHER} context_result:0 "
         "free:a:16u"),
    PLAY("captured streams take no events and no waits, nor does the default one; it is as if nothing had been asked "
         "for",
         "e=event captured:s record:e@s!busy finish@s!busy reason{0x5000 is being captured} record:e!busy finish!busy "
         "event_records?0 waits?0 query:e?1 record:e@s+16 finish@s+16 alloc:1u@s alloc_async:1u@s!busy pools?0 "
         "a=alloc_async:1u@s+16 wait:e@s!busy free_async:a:1u@s!busy captured:0 record:e@s free_async:a:1u@s"),
    PLAY("peers: itself, CUDA devices -1 and 3, one out of reach; the other's context is asked to let us in",
         "peer:3!invalid peer:-1!invalid peer:256!invalid peer:1!missing peer:5!missing peer:4!unsupported retains?1 "
         "peer_result:704 peer:2 peer:2 peer_from?0 peer_to?1 retained:0?1"),
    PLAY("segments of others are closed as often as they were opened",
         "a=alloc:2u export:a+1u:0!missing export:a:0 foreign:a:0 b=import:0 import:0?b free:b:1u!missing unimport:b "
         "unimport:b unimport:b!missing unimport:a!missing spoil:0 import:0!invalid spoil:0 import:0?b import:0?b"),
    PLAY("peers are let into the pool, once there is one",
         "pool_peer:-1 peer:2 pool_peer?max alloc_async:512@s pool_peer?0 pools?1"), /* closed with the memory out */
    PLAY("copies, and those that don't come to the driver",
         "a=alloc:1u in:a:0x99000:5000@s out:0x99000:a+7:5000 peer_in:a:0x99000:5000@s peer_out:0x99000:a+7:5000 "
         "cuMemcpyAsync:a:0x99000:5000@s cuMemcpyAsync:0x99000:a+7:5000 cuMemcpyAsync:a:0x99000:5000@s "
         "cuMemcpyAsync:0x99000:a+7:5000 copy:a+100:a:100@0x7000 cuMemcpyAsync:a+100:a:100@0x7000 "
         "copy:a+99:a:100@0x7000!invalid in:a:0x99000:0@0x7000 transfers?0"),
    PLAY("rows: with the largest pitch that a driver takes; with a larger one it is asked for each row; with nothing "
         "between them they are one",
         "a=alloc:1u rows_in:a:512:0x99000:300:200:50@s cuMemcpy2DAsync:a:512:0x99000:300:200:50@s "
         "rows_in:a:512:0x99000:0x7fffffff:200:50@s cuMemcpy2DAsync:a:512:0x99000:0x7fffffff:200:50@s "
         "rows_in:a:512:0x99000:2G:200:3@s cuMemcpyAsync:a:0x99000:200@s cuMemcpyAsync:a+512:0x99000+2G:200@s "
         "cuMemcpyAsync:a+1024:0x99000+4G:200@s rows_in:a:200:0x99000:200:200:3@s cuMemcpyAsync:a:0x99000:600@s "
         "rows_in:a:200:0x99000:201:200:1@s cuMemcpyAsync:a:0x99000:200@s transfers?0"),
    PLAY("fills; 8 bytes whose halves differ take two",
         "a=alloc:1u v=value:0x1122334455667788 fill:a+1:v:1:9@s cuMemsetD8Async:a+1:0x88:9@s fill:a+2:v:2:9@s "
         "cuMemsetD16Async:a+2:0x7788:9@s fill:a+4:v:4:9@s cuMemsetD32Async:a+4:0x55667788:9@s "
         "fill:a+8:0x5566778855667788:8:9@s cuMemsetD32Async:a+8:0x55667788:18@s fill:a+8:v:8:9@s "
         "cuMemsetD2D32Async:a+8:8:0x55667788:1:9@s cuMemsetD2D32Async:a+12:8:0x11223344:1:9@s fill:a:v:8:0@s "
         "fill:a+1u-8:v:8:2@s!invalid transfers?0"),
    PLAY("reasons of transfers; the context takes two calls",
         "a=alloc:1u failing:3:700 in:a:0x99000:5000@s!io reason{cuMemcpyAsync of 1 * 5000 bytes from 0x99000 to } "
         "reason{on the stream 0x5000: CUDA_ERROR_OTHER} has_no_memory:1 pin:5000!memory "
         "reason{cuMemHostAlloc of 5000 bytes: CUDA_ERROR_OUT_OF_MEMORY} has_no_memory:0"),
    PLAY("transfers become a part of the graph; what would end the capture of another stream is refused",
         "a=alloc:1u t=stream captured:t h=pin:100 in:a:h:100@t fill:a:1:4:10@t fill:a:1:4:10@s "
         "cuMemcpyAsync:a:h:100@t cuMemsetD32Async:a:1:10@t cuMemsetD32Async:a:1:10@s in:a:h:100!busy "
         "fill:a:1:4:10!busy transfers?0 no_stream:t!busy reason{is being captured} unpin:h captured:0 no_stream:t "
         "fill:a:1:4:10 cuMemsetD32Async:a:1:10"),
    PLAY("what is left goes with the device; its own stream is none of the caller's",
         "stream t=stream stream pin:5000 h=pin:5000 pin:5000 streams?3 pinned?3 j=join no_stream:j!missing "
         "no_stream:t unpin:h streams?3 pinned?2"),
    PLAY("programs: what a launch hands on",
         "a=load:1 b=load:1 differ:a:b?1 f=find:a:1?a+1 launch:f@s cuLaunchKernel:f:24:64@s transfers?0 modules?2"),
    PLAY("programs that are refused; a launch becomes a part of the graph",
         "load:0!unsupported reason{cuModuleLoadData} a=load:1 find:a:0!unsupported reason{missing} f=find:a:1 "
         "captured:s launch:f!busy transfers?0 launch:f@s cuLaunchKernel:f:24:64@s captured:0"),
    PLAY("programs are unloaded",
         "a=load:1 b=load:1 load:1 unload:b modules?2 unload:b!missing unload:0!missing unload:a modules?1"),
};
TEST_DEVICE_PLAYS(test_cuda, &kind, plays)

/* ---- contexts ---- */

TEST_DEVICE(test_context, &kind)
{
    static const cuda_context contexts[] = {NULL, (cuda_context)0xc0001, (cuda_context)0xc0002};
    assert_ptr_equal(contexts[1], fake_context(FAKE_ORDINAL));
    for (size_t i = 0; i < 3; i++) {
        enum cuda_capture_mode mode = i == 1 ? CUDA_CAPTURE_MODE_RELAXED : CUDA_CAPTURE_MODE_GLOBAL;
        fake_thread = (struct fake_thread){.contexts = {contexts[i]}, .depth = i != 0, .mode = mode};
        device_words(play, "alloc:1u alloc:max!memory query:9!missing");
        assert_int_equal(fake_thread.depth, i != 0);
        assert_ptr_equal(fake_current(), contexts[i]);
        assert_int_equal(fake_thread.mode, mode);
    }
    fake_thread = (struct fake_thread){.depth = 0};
}

/* ---- failures ---- */

/* Whichever call fails, in whichever way: it is reported, the resource table holds, and closing leaves nothing behind:
 * all that was taken so far is still out. */
static const char everything[] =
    "a=alloc:1u used r=reserve:4u h=create:1u map:r:1u:h map:r+1u:1u:h access:r:1u e=event record:e@s query:e?1 "
    "sync:e finish@s peer:2 export:a:0 foreign:a:0 i=import:0 import:0 unimport:i b=alloc_async:512@s wait:e@s j=join "
    "wait:e@j free_async:b:512@j alloc_async:512@s trim:0 t=stream k=pin:512 in:a:k:512@t rows:a:64:a+1M:128:32:10 "
    "fill:a:7:8:32@t unpin:k no_stream:t release:h:1u unmap:r:2u unreserve:r:4u no_event:e free:a:1u";

TEST_WITH(test_every_call_fails, device_play_setup, device_play_teardown)
{
    static const cuda_result results[] = {CUDA_RESULT_INVALID_VALUE, CUDA_RESULT_OUT_OF_MEMORY, 700,
                                          CUDA_RESULT_NOT_PERMITTED, CUDA_RESULT_NOT_SUPPORTED};
    static const struct device_case one = {.what = "one of everything"};
    struct device_play *play = *state;
    device_play_open(play, &kind, &one);
    uint64_t calls = fake.calls;
    device_words(play, everything);
    calls = fake.calls - calls;
    device_play_close(play);
    assert_true(calls > 50);
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        for (uint64_t nth = 1; nth <= calls; nth++) {
            device_play_open(play, &kind, &one);
            fake.fail_at = nth;
            fake.fail_with = results[i];
            int error = device_words_until(play, everything);
            /* only asking for the number of devices, on the way to a peer, has an answer of its own */
            if (error != cuda_driver_error(results[i]) && error != VARVE_ERROR_NOT_FOUND) {
                fail_msg("call %d with result %u: error %d", (int)nth, results[i], error);
            }
            struct varve_message message;
            play->device->ops->reason(play->device, &message);
            assert_true(strlen(message.text) > 10);
            device_play_close(play);
        }
    }
}

static void close_untouched(struct varve_device *device)
{
    fake.device = NULL;
    device->ops->close(device);
    nothing_is_left();
}

TEST(test_open_fails)
{
    struct varve_cuda_options options = {.index = 3, .ordinal = FAKE_ORDINAL, .shares = true};
    struct varve_device *device = NULL;
    struct varve_message message = {""};
    uint64_t handle = 0;
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
        close_untouched(device);
    }
}

/* Drivers that lack some: all transfers or none, and pools need two of them. */
TEST(test_old_drivers)
{
    static const struct {
        const char *without;
        bool has_pools, has_copies, has_programs;
    } cases[] = {{"pools", false, true, true},
                 {"pool_free", false, true, true},
                 {"copy_2d", true, false, true},
                 {"stream_create", false, false, true},
                 {"module_function", true, true, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct varve_cuda_options options = {.index = RULES_INDEX, .ordinal = FAKE_ORDINAL};
        struct cuda_driver old = fake_driver;
        struct varve_device *device = NULL;
        fake_reset();
        fake.has_no_pools = i == 0;
        old.pool_free = i == 1 ? NULL : old.pool_free;
        old.copy_2d = i == 2 || i == 3 ? NULL : old.copy_2d;
        old.stream_create = i == 3 ? NULL : old.stream_create;
        old.module_function = i == 4 ? NULL : old.module_function;
        assert_int_equal(cuda_device_open(&old, &options, &device, NULL), VARVE_OK);
        const struct varve_device_ops *ops = device->ops;
        const bool copies[] = {ops->copy != NULL,          ops->copy_2d != NULL,        ops->fill != NULL,
                               ops->stream_create != NULL, ops->stream_destroy != NULL, ops->host_alloc != NULL,
                               ops->host_free != NULL};
        const bool programs[] = {ops->program_load != NULL, ops->program_unload != NULL, ops->program_find != NULL,
                                 ops->launch != NULL};
        for (size_t k = 0; k < 7; k++) {
            if (copies[k] != cases[i].has_copies || (ops->alloc_async != NULL) != cases[i].has_pools ||
                (k < 4 && programs[k] != cases[i].has_programs)) {
                fail_msg("without %s: entry %zu", cases[i].without, k);
            }
        }
        assert_non_null(ops->stream_synchronize);
        assert_true(ops->stream_wait_event != NULL || !(cases[i].has_pools || cases[i].has_copies));
        close_untouched(device);
    }
}

/* ---- the end ---- */

/* Giving back is no error, the rest is; and once the end is known, the driver is left alone. `how`: the driver has
 * ended, the context is gone, or that is noticed by a free. */
static void end(struct device_play *play, int how)
{
    device_words(play, "a=alloc:1u r=reserve:1u h=create:1u map:r:1u:h e=event join b=alloc:1u t=stream k=pin:100");
    void *pinned = (void *)(uintptr_t)play->named['k' - 'a'];
    fake.has_ended = how == 0;
    fake.context_result = how == 1 ? CUDA_RESULT_CONTEXT_IS_DESTROYED : 0;
    if (how == 2) {
        fake.fail_at = 3;
        fake.fail_with = CUDA_RESULT_CONTEXT_IS_DESTROYED;
        device_words(play, "free:b:1u");
    }
    uint64_t calls = fake.calls;
    device_words(play, "free:a:1u");
    assert_true(how == 2 ? fake.calls == calls : fake.calls <= calls + 2);
    calls = fake.calls;
    device_words(play, "unmap:r:1u release:h:1u unreserve:r:1u no_event:e unimport:0x1000 unpin:k no_stream:t "
                       "alloc:1u!unsupported reserve:1u!unsupported query:e!unsupported join!unsupported "
                       "finish!unsupported stream!unsupported pin:100!unsupported copy:b+100:b:100!unsupported "
                       "fill:b:0:1:1!unsupported reason{CUDA}");
    assert_int_equal(fake.calls, calls);
    device_play_close(play);
    assert_int_equal(fake.calls - calls, how != 0);
    assert_int_equal(fake_count(FAKE_RETAIN), how == 0); /* a reset device is still to be released */
    free(pinned);                                        /* as the end of a process would */
}

TEST_WITH(test_end, device_play_setup, device_play_teardown)
{
    for (int how = 0; how < 3; how++) {
        device_play_open(*state, &ended_kind, &(const struct device_case){.what = "the end"});
        end(*state, how);
    }
}

TEST_DEVICE(test_after_fork, &kind)
{
    struct varve_device *device = play->device;
    uint64_t addr = 0;
    int status = -1;
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
}

/* ---- much of it ---- */

/* What an event's last owner recorded is nothing to the next. */
TEST_DEVICE(test_events, &kind)
{
    uint64_t events[100];
    for (size_t round = 0; round < 10; round++) {
        for (size_t i = 0; i < 100; i++) {
            device_words(play, "e=event is_event_pending:1 query:e?1 record:e@s query:e?0 is_event_pending:0 "
                               "query:e?1");
            events[i] = play->named['e' - 'a'];
        }
        for (size_t i = 0; i < 100; i++) {
            play->named['e' - 'a'] = events[i];
            device_words(play, "no_event:e record:e@s!missing");
        }
    }
    device_words(play, "event_creates?100");
}

/* One of our own is a look into the table, counted, until its segment is gone. */
TEST_DEVICE(test_own_ipc, &kind)
{
    uint64_t addrs[12];
    for (size_t i = 0; i < 12; i++) {
        play->named['n' - 'a'] = i;
        device_words(play, "a=alloc:4K export:a:n free:a:4K a=alloc:4K export:a:n");
        addrs[i] = play->named[0];
    }
    play->named[0] = addrs[3];
    device_words(play, "export:a:12 import:3?a import:3?a import:3?a imports?0 unimport:a unimport:a unimport:a "
                       "unimport:a!missing import:3?a free:a:4K unimport:a!missing");
    assert_memory_equal(&play->handles[12], &play->handles[3], sizeof(play->handles[3]));
}

/* Memory that others have got from the driver, in two pieces that follow each other: the driver says whose it is. */
TEST_DEVICE(test_foreign_memory, &kind)
{
    uint64_t addr = fake_add(FAKE_SEGMENT, 0, UNIT), next = fake_add(FAKE_SEGMENT, addr + UNIT, UNIT);
    play->named[0] = addr;
    device_words(play, "o=alloc:1u fill:a:7:1:2u@s out:0x99000:a+5:1u@s copy:o:a+1u:1u@s cuMemsetD8Async:a:7:2u@s "
                       "cuMemcpyAsync:0x99000:a+5:1u@s cuMemcpyAsync:o:a+1u:1u@s fill:a:7:1:2u+1@s!missing "
                       "reason{lies in no memory of CUDA device 1} fill:o:7:1:1u+1@s!invalid pointer_device:1 "
                       "fill:a:7:1:1@s!missing pointer_device:0");
    for (uint64_t call = 1; call <= 6; call++) { /* each of what is asked of the driver, and the fill itself */
        play->named['n' - 'a'] = call;
        device_words(play, "failing:n:719 fill:a:7:1:1@s!io fail_at?0");
    }
    assert_int_equal(fake_drop(FAKE_SEGMENT, addr, UNIT) | fake_drop(FAKE_SEGMENT, next, UNIT), 0);
    device_words(play, "transfers?0 fill:a:7:1:1@s!missing free:o:1u");
}

static const struct CMUnitTest rules[] = {RULES_TESTS(&kind)};

TEST_CASES(rules)
