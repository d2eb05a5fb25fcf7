/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers of devices and streams mean, which are a process' own until derive has seen them, and what
 * calls of the CUDA API cost.
 * Costs: 1 s
 */
#include "support/derive/lab.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/device/calls.h"
#include "trace/model/device/names.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"

/* ---- numbers ---- */

static struct event device(uint32_t process, unsigned ordinal, uint64_t uuid)
{
    return (struct event){.kind = VARVE_KIND_DEVICE,
                          .process_id = process,
                          .device = (uint8_t)ordinal,
                          .addr = uuid,
                          .arg = 1,
                          .size = 1 << 20};
}

static unsigned number_of(struct lab *lab, uint32_t process, unsigned ordinal)
{
    struct event event = alloc_of(0x1000 * ++lab->seq, 10, VARVE_MEMORY_DEVICE);
    event.process_id = process;
    event.device = (uint8_t)ordinal;
    return take(lab, event).device;
}

/* Two ranks call their device 0; a third process sees both the other way round. */
TEST_WITH(test_devices_are_reported_apart, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event reported = take(lab, device(1, 0, 0xaa));
    assert_int_equal(reported.device, 0);
    reported = take(lab, device(2, 0, 0xbb));
    assert_int_equal(reported.device, 1);
    assert_int_equal(reported.id, 0);
    take(lab, device(3, 0, 0xbb));
    reported = take(lab, device(3, 1, 0xaa));
    assert_int_equal(reported.device, 0);
    assert_int_equal(reported.id, 1);
    assert_int_equal(number_of(lab, 1, 0), 0);
    assert_int_equal(number_of(lab, 2, 0), 1);
    assert_int_equal(number_of(lab, 3, 0), 1);
    assert_int_equal(number_of(lab, 3, 1), 0);
    assert_int_equal(number_of(lab, 3, 2), 2); /* not named: as it is */
    assert_int_equal(number_of(lab, 4, 0), 0);
    assert_int_equal(total_of(lab, DOMAIN_DEVICE, 1)->allocations, 2);
    /* blocks of an allocator too, and the order of its events */
    struct event block = {.kind = VARVE_KIND_ALLOC, .process_id = 2, .addr = 0x100000, .size = 512, .dev_seq = 1};
    assert_int_equal(take(lab, block).device, 1);
    block =
        (struct event){.kind = VARVE_KIND_FREE_COMPLETED, .process_id = 2, .addr = 0x100000, .size = 512, .dev_seq = 2};
    assert_false(derive_is_out_of_order(lab->derive, &block));
    assert_int_equal(take(lab, block).id, lab->derive->scratch.count);
    assert_int_equal(total_of(lab, DOMAIN_BLOCK, 1)->frees, 1);
    /* read back from a database: it has the number of the trace already */
    block.is_stored = true;
    block.device = 1;
    assert_int_equal(take(lab, block).device, 1);
}

TEST_WITH(test_all_numbers_are_taken, lab_begin, lab_end)
{
    struct lab *lab = *state;
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        assert_int_equal(take(lab, device(1, i, 0x1000 + i)).device, i);
    }
    assert_int_equal(take(lab, device(2, 5, 0x1)).device, 5); /* what else */
    struct event nameless = device(3, 9, 0);
    nameless.arg = 0;
    assert_int_equal(take(lab, nameless).device, 9);
}

TEST_WITH(test_names, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event name = {.kind = VARVE_KIND_DEVICE_NAME, .process_id = 2};
    char text[33] = "NVIDIA H200";
    take(lab, device(1, 0, 0xaa));
    take(lab, device(2, 0, 0xbb));
    uint64_t words[4];
    memcpy(words, text, sizeof(words));
    name.addr = words[0];
    name.size = words[1];
    name.requested = words[2];
    name.arg = words[3];
    take(lab, name);
    assert_string_equal(lab->derive->names->devices[1].name, "NVIDIA H200");
    assert_string_equal(lab->derive->names->devices[0].name, "");
    name.addr = UINT64_C(0xff01414141414141); /* damaged, and no end */
    name.size = name.requested = name.arg = UINT64_C(0x4242424242424242);
    take(lab, name);
    assert_string_equal(lab->derive->names->devices[1].name, "AAAAAA??BBBBBBBBBBBBBBBBBBBBBBBB");
}

/* A stream may be used before its device is. */
TEST_WITH(test_streams, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event stream = {.kind = VARVE_KIND_STREAM, .process_id = 2, .stream = 4, .addr = 0xdead};
    take(lab, device(1, 0, 0xaa));
    struct event reported = take(lab, stream);
    assert_int_equal(reported.device, 0);
    take(lab, device(2, 0, 0xbb));
    stream.stream = 5;
    assert_int_equal(take(lab, stream).device, 1);
    reported.is_stored = true; /* as it comes back from a database */
    take(lab, reported);
    assert_int_equal(lab->derive->names->meaning_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct derive_meaning *meaning = &lab->derive->names->meanings[i];
        assert_int_equal(names_device_of(lab->derive, meaning), 1);
        assert_int_equal(meaning->number, i == 1 ? 5 : 4);
        assert_int_equal(meaning->ids[0], 0xdead);
    }
}

/* ---- calls ---- */

static const struct derive_call *call_of(const struct lab *lab, enum varve_cause cause)
{
    for (size_t i = 0; i < lab->derive->calls->call_count; i++) {
        if (lab->derive->calls->calls[i].cause == cause) {
            return &lab->derive->calls->calls[i];
        }
    }
    fail_msg("no call of cause %u", cause);
    return NULL;
}

TEST_WITH(test_calls, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct event alloc = alloc_of(0x1000, 77, VARVE_MEMORY_DEVICE);
    struct event time = {.kind = VARVE_KIND_DEV_SYNC, .cause = VARVE_CAUSE_CUDA_FREE, .requested = 40};
    struct event wait = {.kind = VARVE_KIND_DEV_SYNC, .cause = VARVE_CAUSE_CUDA_STREAM_SYNCHRONIZE, .requested = 500};
    struct event pool = {.kind = VARVE_KIND_DEV_POOL, .cause = VARVE_CAUSE_POOL_CREATED, .requested = 12345};
    struct event info = {
        .kind = VARVE_KIND_DEV_MEMORY, .cause = VARVE_CAUSE_CU_MEM_GET_INFO, .size = 1000, .requested = 400};
    alloc.device = 1;
    alloc.stream = 6;
    take(lab, alloc);
    info.device = 1;
    take(lab, info);
    take(lab, failed(alloc));
    take(lab, free_of(0x1000));
    take(lab, failed(free_of(0x1000)));
    struct event reported = take(lab, time); /* the current device is another one */
    assert_int_equal(reported.device, 1);
    assert_int_equal(reported.stream, 6);
    take(lab, free_of(0x1000));
    take(lab, time);
    take(lab, wait);
    take(lab, pool);
    const struct derive_call *call = call_of(lab, VARVE_CAUSE_CUDA_MALLOC);
    assert_int_equal(call->calls, 2);
    assert_int_equal(call->failed, 1);
    assert_int_equal(call->ns, 100);
    assert_int_equal(call->bytes, 77);
    assert_int_equal(call->class, CALL_ALLOC);
    call = call_of(lab, VARVE_CAUSE_CUDA_FREE);
    assert_int_equal(call->calls, 2);
    assert_int_equal(call->failed, 1);
    assert_int_equal(call->ns, 80);
    assert_int_equal(call->max_ns, 40);
    assert_int_equal(call->bytes, 2 * 77);
    assert_int_equal(call->class, CALL_FREE);
    assert_int_equal(call->device, 1);
    assert_int_equal(call_of(lab, VARVE_CAUSE_CUDA_STREAM_SYNCHRONIZE)->class, CALL_WAIT);
    assert_int_equal(lab->derive->calls->call_count, 3);
    assert_int_equal(lab->derive->calls->memory_count, 1);
    assert_int_equal(lab->derive->calls->memories[0].live_bytes, 77);
}

static int count_events(void *context, uint64_t seq, unsigned kind)
{
    uint64_t *last = context;
    assert_int_equal(seq, *last + 1);
    assert_int_equal(kind, VARVE_KIND_DEV_SYNC);
    *last = seq;
    return VARVE_OK;
}

/* More events than a buffer holds. */
TEST_WITH(test_the_list_of_events, lab_begin, lab_end)
{
    struct lab *lab = *state;
    struct varve_message message;
    uint64_t last = 0;
    struct event wait = {.kind = VARVE_KIND_DEV_SYNC, .process_id = 1, .thread_id = 1};
    for (unsigned i = 0; i < 2 * SEQS_BUFFERED + 100; i++) {
        wait.seq = ++lab->seq;
        assert_int_equal(derive_event(lab->derive, &wait, &message), VARVE_OK);
    }
    assert_int_equal(seqs_each(&lab->derive->calls->events, count_events, &last, &message), VARVE_OK);
    assert_int_equal(last, lab->seq);
}
