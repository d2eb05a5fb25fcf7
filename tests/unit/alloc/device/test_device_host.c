/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the host device does: memory that is really there, within its limit and gone when it is freed; access that
 * comes with set_access alone; streams held back and waited for: copies and fills wait, in order, and what waits for
 * them waits as well, freeing the memory that they use included.
 * Costs: 1 s
 */
#include "support/cuda/device_play.h"
#include "tests/cmocka.h"

#include <pthread.h>
#include <unistd.h>

static const struct device_case plays[] = {
    PLAY(
        "mappings: another device's access is not ours, one memory at two addresses, a new mapping has no access again",
        "r=reserve:100u readable:r?0 h=create:1u map:r:1u:h i=create:1u map:r+1u:1u:i readable:r?0 access:r:2u:1 "
        "readable:r?0 access:r:2u set:r:2u:0x33 map:r+50u:1u:i access:r+50u:1u byte:r+50u+17?0x33 "
        "set:r+50u+17:1:0x44 byte:r+1u+17?0x44 unmap:r:2u readable:r?0 readable:r+1u?0 byte:r+50u+17?0x44 map:r:1u:h "
        "readable:r?0 release:h:1u release:i:1u byte:r+50u+17?0x44",
        .limit = 8 * UNIT),
    PLAY("sizes are those of pages",
         "reason{} reserve:100!invalid reason{100} create:100!invalid reserve:0x100000000000000!memory "
         "reserve:max-4095!memory r=reserve:4u h=create:1u map:r+100:1u:h!invalid",
         .limit = 8 * UNIT),
    PLAY("a stream that is held back; asynchronous copies see what is written later",
         "a=alloc:4K h=pin:4K e=event set:h:4K:0x11 hold@8 in:a:h:1000@8 fill:a+500:0x2233:2:100@8 "
         "copy:a+2000:a+400:400@8 record:e@8 fill:a+1999:0x44:1:1@9 query:e?0 byte:a?0 byte:a+1999?0x44 byte:a+2000?0 "
         "set:h:1:0x55 go@8 query:e?1 byte:a?0x55 byte:a+499?0x11 byte:a+500?0x33 byte:a+501?0x22 byte:a+2099?0x11 "
         "byte:a+2100?0x33 byte:a+2399?0x11 byte:a+2400?0 fill:a:0x66:1:1@8 byte:a?0x66"),
    PLAY("a chain: 3 waits for 2, which waits for 1, which is held back; the record of an event that is gone is waited "
         "for all the same; then 2 is held back by itself",
         "a=alloc:4K e=event f=event g=event hold@1 fill:a:0x10:1:100@1 record:e@1 query:e?0 wait:e@2 "
         "fill:a+1:0x11:1:100@2 record:f@2 query:f?0 wait:f@3 fill:a+2:0x12:1:100@3 record:g@3 query:g?0 wait:e@1 "
         "hold@2 no_event:f fill:a+500:0x77:1:1@4 wait:e@4 byte:a+500?0x77 all:a:3?0 go@1 byte:a?0x10 byte:a+2?0x10 "
         "query:e?1 query:g?0 fill:a+3000:0x99:1:1@4 byte:a+3000?0x99 go@2 byte:a+1?0x11 byte:a+2?0x12 byte:a+101?0x12 "
         "query:g?1"),
    PLAY("two records of one stream with a wait between them: who waits for the second is not let go by the first",
         "a=alloc:4K e=event f=event g=event hold@1 hold@2 record:e@1 record:f@2 wait:e@2 record:g@2 wait:g@3 "
         "fill:a:1:1:1@3 go@2 query:f?1 query:g?0 byte:a?0 go@1 query:g?1 byte:a?1"),
    PLAY(
        "a stream that is gone takes no more work; what it has is still done",
        "a=alloc:4K e=event t=stream hold@t fill:a:7:1:1@t no_stream:t fill:a:8:1:1@t!missing copy:a:a+10:10@t!missing "
        "record:e@t!missing wait:e@t!missing finish@t!missing u=stream differ:u:t?1 go@t byte:a?7"),
};
TEST_DEVICE_PLAYS(test_host, &host_kind, plays)

TEST_DEVICE(test_host_segment_memory, &host_kind, .limit = 8 * MIB)
{
    device_words(play, "a=alloc:4M b=alloc:4M alloc:1!memory set:a:4M:0x11 set:b:4M:0x22 all:a:4M?0x11 all:b:4M?0x22 "
                       "free:a:4M c=alloc:100 all:c:100?0 total?8M used?4M+p byte:b+5?0x22");
    uint64_t addr = play->named['b' - 'a'];
    device_play_close(play); /* with segments out */
    assert_false(device_is_readable(addr));
}

TEST_DEVICE(test_host_default_limit, &host_kind)
{
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(ops->memory_info(play->device, &free_bytes, &total), 0);
    assert_true(total > 0 && total <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4);
    assert_int_equal(free_bytes, total);
}

/* More segments and handles than a process may have files open. */
TEST_DEVICE(test_host_many, &host_kind, .limit = UINT64_MAX / 2)
{
    static uint64_t segments[3000], handles[3000];
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(ops->segment_alloc(play->device, UNIT, 0, &segments[i]), 0);
        assert_int_equal(ops->vmm_create(play->device, UNIT, &handles[i]), 0);
        at(segments[i])[i] = 1;
    }
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(at(segments[i])[i], 1);
        assert_int_equal(ops->segment_free(play->device, segments[i], UNIT), 0);
        assert_int_equal(ops->vmm_release(play->device, handles[i], UNIT), 0);
    }
}

/* What is queued when the device closes is never done. */
TEST_DEVICE(test_queue_is_dropped, &host_kind)
{
    unsigned char host[10] = {0};
    play->named['h' - 'a'] = (uint64_t)(uintptr_t)host;
    device_words(play, "a=alloc:4K fill:a:1:1:10@8 hold@8 out:h:a:10@8");
    device_play_close(play);
    assert_int_equal(host[0], 0);
}

/* ---- what waits ---- */

/* A thread that calls what waits, and says when it is done. */
struct waiter {
    pthread_t thread;
    struct varve_device *device;
    int (*wait)(struct varve_device *device, uint64_t of);
    uint64_t of;
    int result;
    uint32_t done; /* atomic */
};

static void *wait_in_thread(void *context)
{
    struct waiter *waiter = context;
    waiter->result = waiter->wait(waiter->device, waiter->of);
    __atomic_store_n(&waiter->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int free_segment(struct varve_device *device, uint64_t addr)
{
    return device->ops->segment_free(device, addr, 4096);
}

/* Both wait until stream 8 goes on; meanwhile the device serves others: `words`, again and again. */
static void wait_for_both(struct device_play *play, struct waiter waiters[2], const char *words)
{
    for (size_t i = 0; i < 2; i++) {
        waiters[i].device = play->device;
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        device_words_unchecked(play, words);
        assert_int_equal(__atomic_load_n(&waiters[i % 2].done, __ATOMIC_ACQUIRE), 0);
        usleep(1000);
    }
    device_words_unchecked(play, "go@8");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        assert_int_equal(waiters[i].result, 0);
    }
}

TEST_DEVICE(test_host_streams, &host_kind)
{
    device_words(play, "e=event b=event o=event go@8!invalid record:b@8 hold@8 hold@8!invalid record:e@8 record:o@9 "
                       "query:e?0 query:b?1 query:o?1 finish@9");
    struct waiter waiters[2] = {{.wait = ops->event_synchronize, .of = play->named['e' - 'a']},
                                {.wait = ops->stream_synchronize, .of = 8}};
    wait_for_both(play, waiters, "query:e?0");
    device_words(play, "query:e?1 hold@8 query:e?1"); /* recorded before it was held back again */
}

/* Both ends of a queued copy are freed: that waits for the copy. Unmapping is refused until then. */
TEST_DEVICE(test_freeing_waits, &host_kind)
{
    device_words(play, "a=alloc:4K h=pin:4K r=reserve:1u i=create:1u map:r:1u:i access:r:1u set:h:4K:0x61 hold@8 "
                       "in:a:h:4K@8 copy:r+5:a:4K@8");
    struct waiter waiters[2] = {{.wait = free_segment, .of = play->named[0]},
                                {.wait = ops->host_free, .of = play->named['h' - 'a']}};
    wait_for_both(play, waiters, "unmap:r:1u!busy o=alloc:4K free:o:4K"); /* which nobody uses */
    device_words(play, "all:r+5:4K?0x61 unmap:r:1u");
}

/* ---- under an allocator ---- */

static uint64_t block_on(struct varve_alloc *alloc, uint64_t stream)
{
    uint64_t addr = 0;
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 4 * MIB, stream, &addr, NULL), 0);
    return addr;
}

/* A block is freed while a copy on another stream has still to read it: not before that is done does its memory serve
 * another request. */
TEST_DEVICE(test_block_is_still_read, &host_kind)
{
    struct varve_alloc_options options;
    struct varve_alloc *alloc = NULL;
    varve_alloc_options_init(&options);
    options.device = play->device;
    assert_int_equal(varve_alloc_open(&options, &alloc, NULL), 0);
    uint64_t source = play->named[0] = block_on(alloc, 9);
    play->named[1] = block_on(alloc, 9);
    device_words(play, "fill:a:0x11:1:4M@9 hold@8 copy:b:a:4M@8");
    assert_int_equal(varve_alloc_record_stream(alloc, source, 8, NULL), 0);
    assert_int_equal(varve_alloc_raw_delete(alloc, source, NULL), 0);
    play->named[2] = block_on(alloc, 9);
    device_words(play, "differ:c:a?1 fill:c:0x22:1:4M@9 go@8 all:b:4M?0x11");
    assert_int_equal(block_on(alloc, 9), source);
    assert_int_equal(varve_alloc_check(alloc, NULL), 0);
    varve_alloc_close(alloc);
}
