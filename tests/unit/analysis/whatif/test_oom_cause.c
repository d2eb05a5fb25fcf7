/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cause of a failed request: each class by an accounting made for it, and what happens at its edges.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/whatif/oom_cause.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* 40 MiB asked for; 100 MiB may be reserved and are: 60 in use, 40 free in two pieces. */
static struct oom_memory in_pieces(void)
{
    return (struct oom_memory){
        .requested = 40 * MIB,
        .rounded = 40 * MIB,
        .segment = 40 * MIB,
        .limit = 100 * MIB,
        .reserved = 100 * MIB,
        .allocated = 60 * MIB,
        .live = 60 * MIB,
        .own_free = 40 * MIB,
        .own_largest = 22 * MIB,
        .with_pending = 22 * MIB,
        .device_free = OOM_UNKNOWN,
        .max_split_size = UINT64_MAX,
        .max_rounding = 20 * MIB,
    };
}

static void expect(const struct oom_memory *memory, enum oom_cause cause, const char *word)
{
    char text[OOM_SENTENCE_BYTES];
    oom_sentence(memory, text);
    if (oom_cause_of(memory) != cause) {
        fail_msg("%s instead of %s: %s", oom_cause_name(oom_cause_of(memory)), oom_cause_name(cause), text);
    }
    if (strstr(text, word) == NULL) {
        fail_msg("no '%s' in: %s", word, text);
    }
}

TEST(test_fragmentation)
{
    struct oom_memory memory = in_pieces();
    expect(&memory, OOM_FRAGMENTATION,
           "40.0 MiB free would do, but the largest free block is 22.0 MiB, 18.0 MiB too small");
    assert_int_equal(oom_excess(&memory), 0);
    /* part of it not reserved yet */
    memory.reserved = 90 * MIB;
    memory.own_free = 30 * MIB;
    expect(&memory, OOM_FRAGMENTATION, "30.0 MiB free and 10.0 MiB not reserved would do");
    /* no limit is known */
    memory.limit = 0;
    expect(&memory, OOM_NOT_ENOUGH, "10.0 MiB less than the request");
}

TEST(test_over_limit)
{
    struct oom_memory memory = in_pieces();
    memory.requested = memory.rounded = 40 * MIB + 512;
    memory.segment = 42 * MIB;
    expect(&memory, OOM_OVER_LIMIT, "60.0 MiB in use and 40.0 MiB asked for are 512 B more than 100 MiB");
    assert_int_equal(oom_excess(&memory), 512);
    /* blocks that are larger than what was asked for do not count: another allocator could do without */
    memory.live -= 512;
    assert_int_equal(oom_excess(&memory), 0);
    expect(&memory, OOM_ROUNDING, "rounding");
}

TEST(test_device)
{
    struct oom_memory memory = in_pieces();
    memory.limit = 0;
    memory.reserved = 60 * MIB;
    memory.own_free = memory.own_largest = memory.with_pending = 0;
    memory.device_free = 30 * MIB;
    memory.device_total = 120 * MIB;
    expect(&memory, OOM_FOREIGN, "of 120 MiB this allocator has 60.0 MiB and 30.0 MiB is free, so 30.0 MiB is held");
    assert_int_equal(oom_excess(&memory), 10 * MIB);
    /* alone on the device it would not fit either */
    memory.device_total = 99 * MIB;
    expect(&memory, OOM_OVER_LIMIT, "than 90.0 MiB");
    /* the device had enough, so that it was a limit */
    memory.device_free = 40 * MIB;
    memory.limit = 70 * MIB;
    expect(&memory, OOM_OVER_LIMIT, "30.0 MiB more than 70.0 MiB");
}

TEST(test_streams_and_pools)
{
    struct oom_memory memory = in_pieces();
    memory.pending = 20 * MIB;
    memory.with_pending = 40 * MIB;
    expect(&memory, OOM_PENDING, "it would leave a block of 40.0 MiB");
    memory.with_pending = 40 * MIB - 512;
    expect(&memory, OOM_FRAGMENTATION, "too small");
    memory = in_pieces();
    memory.own_free = memory.own_largest = 0;
    memory.other_free = memory.other_largest = 40 * MIB;
    expect(&memory, OOM_OTHER_POOL, "a free block of 40.0 MiB would fit");
    memory.other_largest = 20 * MIB;
    expect(&memory, OOM_OTHER_POOL, "they hold 40.0 MiB of the 40.0 MiB that is free");
}

TEST(test_own_block)
{
    struct oom_memory memory = in_pieces();
    memory.own_largest = 40 * MIB;
    expect(&memory, OOM_NOT_SEARCHED, "the same request made again is served");
    memory.max_split_size = 41 * MIB;
    expect(&memory, OOM_NOT_SEARCHED, "made again");
    /* too large to be cut for a small request */
    memory.own_free = memory.own_largest = 41 * MIB;
    expect(&memory, OOM_SPLIT_LIMIT, "max_split_size_mb");
    /* a large request takes a whole block, if that is not larger by max_rounding */
    memory.max_split_size = 30 * MIB;
    expect(&memory, OOM_NOT_SEARCHED, "made again");
    memory.own_free = memory.own_largest = 60 * MIB;
    expect(&memory, OOM_SPLIT_LIMIT, "60.0 MiB");
}

TEST(test_segment_size)
{
    struct oom_memory memory = in_pieces();
    memory.requested = memory.rounded = 5 * MIB;
    memory.segment = 20 * MIB;
    memory.reserved = memory.allocated = memory.live = 90 * MIB;
    memory.own_free = memory.own_largest = 0;
    expect(&memory, OOM_SEGMENT_SIZE,
           "10.0 MiB can still be reserved, enough for the block of 5.00 MiB, but its segment is 20.0 MiB");
    memory.segment = 10 * MIB;
    expect(&memory, OOM_UNEXPLAINED, "could still be reserved");
}
