/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding what a trace does not hold whole: missing records are reported where they are missing and nothing
 * is counted twice; numbers may be damaged.
 * Costs: 1 s
 */
#include "support/rebuild.h"

static void play_thread_end(struct studio *studio, uint32_t ring, uint64_t emitted, uint64_t lost)
{
    const struct varve_sink_thread_end end = {origin_of(1, ring), emitted, lost, lost * 100};
    assert_int_equal(varve_rebuild_thread_end(studio->rebuild, &end), VARVE_OK);
}

/* ---- gaps ---- */

TEST(test_gap_in_the_middle)
{
    struct studio studio;
    studio_open(&studio);
    play_marks(&studio, 1, 1, 1, 100);
    play_marks(&studio, 1, 1, 151, 200);
    play_marks(&studio, 1, 1, 201, 6000);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 53", 1);
    studio_expect(&studio, "SELECT arg FROM event WHERE kind = 53 AND ring_seq IS NULL", 50);
    studio_expect(&studio,
                  "SELECT count(*) FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE a.kind = 53 AND "
                  "b.ring_seq = 151 AND a.ts_ns = b.ts_ns",
                  1);
    studio_expect(&studio, "SELECT emitted FROM thread", 6001);
    studio_expect(&studio, "SELECT stored FROM thread", 5951);
    studio_expect(&studio, "SELECT lost FROM thread", 50);
    studio_expect(&studio, "SELECT uncommitted FROM thread", 0);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 50);
    studio_expect(&studio, STUDIO_STAT("events_lost"), 50);
    assert_int_equal(studio.result.lost, 50);
    studio_close(&studio);
}

/* The trace began when the ring was at 5,000,000; some of what is missing comes late, some never. */
TEST(test_late_start)
{
    struct studio studio;
    studio_open(&studio);
    play_marks(&studio, 1, 1, 5000000, 5000100);
    play_marks(&studio, 1, 1, 4999990, 4999994);
    play_marks(&studio, 1, 1, 4999990, 5000100);
    play_thread_end(&studio, 1, 5000110, 0);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 15", 111);
    studio_expect(&studio, "SELECT min(arg) FROM event WHERE kind = 53", 10);
    studio_expect(&studio, "SELECT max(arg) FROM event WHERE kind = 53", 4999989);
    studio_expect(&studio, "SELECT lost FROM thread", 4999989 + 10);
    studio_expect(&studio, "SELECT emitted FROM thread", 5000110 + 2);
    studio_close(&studio);
}

/* Of equal numbers the first to come counts, in its place or late; of threads that share a ring the one that
 * emitted the first record. */
TEST(test_first_of_equal_ones)
{
    static const uint64_t numbers[] = {1, 2, 9, 4, 3, 3, 4, 9, 2, 11, 9, 1};
    struct studio studio;
    studio_open(&studio);
    for (uint64_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct varve_sink_origin origin = origin_of(1, 0);
        struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, 1000000 + numbers[i], 0, i);
        origin.tid = 100 + (int32_t)numbers[i];
        assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, numbers[i], &record), VARVE_OK);
        origin.ring = 1;
        record.arg = numbers[i] + 1;
        assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, numbers[i] + 1, &record), VARVE_OK);
    }
    play_mark(&studio, 1, 1, 1);
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 15 AND tid = 101", 6);
    studio_expect(&studio, "SELECT sum(arg * ring_seq) FROM event WHERE kind = 15 AND tid = 101",
                  0 * 1 + 1 * 2 + 4 * 3 + 3 * 4 + 2 * 9 + 9 * 11);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 53 AND arg = 4 AND tid = 101", 1);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 15 AND tid = 2001 AND arg = ring_seq", 7);
    studio_close(&studio);
}

/* The workload's own losses are numbers too, and LOST records may be missing themselves. */
TEST(test_losses_and_gaps)
{
    struct studio studio;
    studio_open(&studio);
    play_marks(&studio, 1, 1, 1, 10);
    play_lost(&studio, 1, 1, 14, 3); /* 11 to 13 */
    play_marks(&studio, 1, 1, 15, 20);
    play_lost(&studio, 1, 1, 30, 2); /* 28 and 29; 21 to 27 are missing */
    play_marks(&studio, 1, 1, 31, 40);
    play_marks(&studio, 1, 1, 50, 60); /* a LOST record of 4 among 41 to 49 */
    play_thread_end(&studio, 1, 60, 9);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT sum(arg) FROM event WHERE kind = 53 AND ring_seq IS NULL", 7 + 9);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 53 AND ring_seq IN (14, 30)", 2);
    studio_expect(&studio, "SELECT lost FROM thread", 5 + 16);
    studio_expect(&studio, "SELECT emitted FROM thread", 62);
    studio_expect(&studio, "SELECT lost_bytes FROM thread", 900);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 16);
    studio_close(&studio);
}

/* A ring of which nothing came, one that nobody described, one without a record. */
TEST(test_only_descriptions)
{
    struct studio studio;
    struct varve_sink_thread thread = {origin_of(1, 2), 1000500, "silent"};
    studio_open(&studio);
    play_clock(&studio, TRACE_ID);
    play_process(&studio, TRACE_ID, 1, 1001, "/bin/a");
    play_thread_end(&studio, 1, 6, 0);
    assert_int_equal(varve_rebuild_thread(studio.rebuild, &thread), VARVE_OK);
    play_thread_end(&studio, 2, 4, 4);
    thread.origin.ring = 3;
    assert_int_equal(varve_rebuild_thread(studio.rebuild, &thread), VARVE_OK);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", 1);
    studio_expect(&studio, "SELECT lost FROM thread WHERE ring = 1", 6);
    studio_expect(&studio, "SELECT lost FROM thread WHERE ring = 2", 4);
    studio_expect(&studio, "SELECT start_ns FROM thread WHERE ring = 2", 500);
    studio_expect(&studio, "SELECT emitted FROM thread WHERE ring = 3", 0);
    studio_close(&studio);
}

/* ---- damage ---- */

/* Numbers that jump cost neither space nor the records around them. */
TEST(test_numbers_that_jump)
{
    struct studio studio;
    const uint64_t far = UINT64_C(1) << 40;
    studio_open(&studio);
    play_marks(&studio, 1, 1, 1, 1000);
    play_mark(&studio, 1, 1, far);
    play_marks(&studio, 1, 1, 1001, 9000);
    play_mark(&studio, 1, 1, UINT64_C(1) << 50);
    play_mark(&studio, 1, 1, 0);
    play_marks(&studio, 1, 1, far + 2, far + 1000);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 15", 9000 + 1 + 999);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 53", 2);
    studio_expect(&studio, "SELECT lost FROM thread", (int64_t)far - 9001 + 1);
    studio_expect(&studio, STUDIO_STAT("records_damaged"), 2);
    studio_expect(&studio, "SELECT page_count * page_size < 8000000 FROM pragma_page_count, pragma_page_size", 1);
    studio_close(&studio);
}

/* LOST records whose count cannot be, and numbers of rings and processes that make no sense. */
TEST(test_impossible_records)
{
    struct studio studio;
    struct varve_sink_origin origin = origin_of(1, 1);
    const struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, 1000000, 0, 1);
    studio_open(&studio);
    play_marks(&studio, 1, 1, 1, 5);
    play_lost(&studio, 1, 1, 8, 1000);       /* only 6 and 7 can be meant */
    play_lost(&studio, 1, 1, 9, UINT64_MAX); /* nobody believes that */
    play_marks(&studio, 1, 1, 10, 12);
    origin.process = UINT32_MAX;
    assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, 1, &record), VARVE_OK);
    origin = origin_of(1, UINT32_MAX);
    assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, 1, &record), VARVE_OK);
    origin = origin_of(1, 1);
    origin.pid = 0;
    assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, 1, &record), VARVE_OK);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", 10);
    studio_expect(&studio, "SELECT lost FROM thread", 2);
    studio_expect(&studio, STUDIO_STAT("records_damaged"), 3);
    studio_close(&studio);
}
