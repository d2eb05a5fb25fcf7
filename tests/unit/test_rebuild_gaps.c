/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding what a trace does not hold whole: missing records are told where they are missing and nothing
 * is counted twice; descriptions and the clock may be missing, or belong to another recording; numbers may be
 * damaged.
 */
#include "rebuild_support.h"

#define TRACE_ID 77U

static void play_marks(struct studio *studio, uint32_t process, uint32_t ring, uint64_t first, uint64_t last)
{
    for (uint64_t number = first; number <= last; number++) {
        play_mark(studio, process, ring, number);
    }
}

static void play_clock(struct studio *studio, uint64_t trace_id)
{
    for (uint64_t ticks = 1000000; ticks <= 2000000; ticks += 1000000) {
        const struct varve_mirror_clock clock = {trace_id, ticks, (int64_t)ticks, (int64_t)ticks + 5};
        assert_int_equal(varve_rebuild_clock(studio->rebuild, &clock), VARVE_OK);
    }
}

static void play_process(struct studio *studio, uint64_t trace_id, uint32_t process, int32_t pid,
                         const char *name)
{
    const struct varve_mirror_process told = {.trace_id = trace_id,
                                              .process = process,
                                              .pid = pid,
                                              .rank = -1,
                                              .clock_kind = VARVE_CLOCK_MONOTONIC,
                                              .start_ticks = 1000000,
                                              .executable = name,
                                              .command_line = name};

    assert_int_equal(varve_rebuild_process(studio->rebuild, &told), VARVE_OK);
}

static void play_thread_end(struct studio *studio, uint32_t ring, uint64_t emitted, uint64_t lost)
{
    const struct varve_mirror_thread_end end = {origin_of(1, ring), emitted, lost, lost * 100};

    assert_int_equal(varve_rebuild_thread_end(studio->rebuild, &end), VARVE_OK);
}

/* Marks carry their number in arg; what the database says of them must agree. */
static void expect_numbers(const struct studio *studio)
{
    studio_expect(studio, STUDIO_CONSERVED, 0);
    studio_expect(studio, "SELECT count(*) FROM event WHERE kind = 15 AND arg IS NOT ring_seq", 0);
    studio_expect(studio, "SELECT count(*) FROM event WHERE flags & ~7", 0);
    studio_expect(studio,
                  "SELECT count(*) FROM (SELECT 1 FROM event WHERE kind = 15 GROUP BY thread_id, arg"
                  " HAVING count(*) > 1)",
                  0);
}

/* ---- gaps ---- */

static void test_gap_in_the_middle(void **state)
{
    struct studio studio;

    (void)state;
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
static void test_late_start(void **state)
{
    struct studio studio;

    (void)state;
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

/* The workload's own losses are numbers too, and LOST records may be missing themselves. */
static void test_losses_and_gaps(void **state)
{
    struct studio studio;

    (void)state;
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
static void test_only_descriptions(void **state)
{
    struct studio studio;
    struct varve_mirror_thread thread = {origin_of(1, 2), 1000500, "silent"};

    (void)state;
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
static void test_numbers_that_jump(void **state)
{
    struct studio studio;
    const uint64_t far = UINT64_C(1) << 40;

    (void)state;
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
    studio_expect(&studio, "SELECT page_count * page_size < 8000000 FROM pragma_page_count, pragma_page_size",
                  1);
    studio_close(&studio);
}

/* LOST records whose count cannot be, and numbers of rings and processes that make no sense. */
static void test_impossible_records(void **state)
{
    struct studio studio;
    struct varve_mirror_origin origin = origin_of(1, 1);
    const struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, 1000000, 0, 1);

    (void)state;
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

/* ---- two recordings, no description, no clock ---- */

static void play_meta(struct studio *studio, uint64_t trace_id, const char *value)
{
    assert_int_equal(varve_rebuild_meta_text(studio->rebuild, trace_id, "command", value), VARVE_OK);
    assert_int_equal(varve_rebuild_meta_integer(studio->rebuild, trace_id, "complete", 1), VARVE_OK);
}

/* Process 1 of both has records before anybody is described; the first to be heard of is taken. */
static void test_two_recordings(void **state)
{
    struct studio studio;
    struct varve_mirror_origin other = origin_of(1, 1);

    (void)state;
    other.pid = 9999;
    studio_open(&studio);
    for (uint64_t number = 1; number <= 100; number++) {
        const struct varve_record record = hand_record(VARVE_KIND_MARK_END, 1000000 + number, 0, number);
        assert_int_equal(varve_rebuild_record(studio.rebuild, &other, number, &record), VARVE_OK);
        play_mark(&studio, 1, 1, number);
    }
    play_meta(&studio, TRACE_ID, "the first");
    play_meta(&studio, 5, "the other");
    play_clock(&studio, 5);
    play_clock(&studio, TRACE_ID);
    play_process(&studio, 5, 1, 9999, "/bin/other");
    play_process(&studio, TRACE_ID, 1, 1001, "/bin/first");
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", 100);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE pid = 1001 AND kind = 15", 100);
    studio_expect(&studio, "SELECT count(*) FROM process", 1);
    studio_expect(&studio, "SELECT executable = '/bin/first' FROM process", 1);
    studio_expect(&studio, "SELECT value = 'the first' FROM meta WHERE key = 'command'", 1);
    studio_expect(&studio, "SELECT value FROM meta WHERE key = 'trace_id'", TRACE_ID);
    studio_expect(&studio, STUDIO_STAT("records_of_others"), 100);
    studio_expect(&studio, "SELECT count(*) FROM clock_anchor", 2);
    studio_close(&studio);
}

/* Of two that nobody described the first is taken; a described one comes before both. */
static void test_one_number_several_pids(void **state)
{
    struct studio studio;

    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        studio_open(&studio);
        for (int32_t pid = 11; pid <= 13; pid++) {
            const struct varve_mirror_origin origin = {.process = 3, .ring = 1, .pid = pid, .tid = pid};
            const struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, 1000000, 0, 1);
            assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, 1, &record), VARVE_OK);
        }
        if (turn == 1) {
            play_process(&studio, TRACE_ID, 3, 12, "/bin/b");
        }
        studio_finish(&studio);
        expect_numbers(&studio);
        studio_expect(&studio, "SELECT sum(pid) FROM event", turn == 0 ? 11 : 12);
        studio_expect(&studio, STUDIO_STAT("records_of_others"), 2);
        studio_close(&studio);
    }
}

static void test_nothing_but_records(void **state)
{
    struct studio studio;

    (void)state;
    studio_open(&studio);
    play_marks(&studio, 2, 0, 3, 100);
    play_marks(&studio, 2, 1, 1, 100);
    play_marks(&studio, 2, 0, 1, 2);
    play_marks(&studio, 7, 3, 1, 50);
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", 250);
    studio_expect(&studio, "SELECT count(*) FROM process WHERE pid = 1000 + id", 2);
    studio_expect(&studio, "SELECT count(*) FROM thread WHERE tid = 2000 + ring", 3);
    studio_expect(&studio, STUDIO_STAT("clock_unknown"), 1);
    studio_expect(&studio, "SELECT min(ts_ns) FROM event", 0);
    studio_expect(&studio, "SELECT max(ts_ns) FROM event", 991);
    studio_expect(&studio, "SELECT count(*) FROM meta WHERE key = 'trace_id'", 0);
    studio_close(&studio);
}

/* Ticks are ns if the clock is the kernel's: nothing is unknown then. */
static void test_no_anchor(void **state)
{
    struct studio studio;

    (void)state;
    studio_open(&studio);
    play_process(&studio, TRACE_ID, 1, 1001, "/bin/a");
    play_marks(&studio, 1, 1, 1, 100);
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_STAT("clock_unknown"), -1);
    studio_expect(&studio, "SELECT max(ts_ns) FROM event", 1001);
    studio_expect(&studio, "SELECT start_ns FROM process", 0);
    studio_close(&studio);
}

/* Anchors in any order, and twice. */
static void test_anchors_shuffled(void **state)
{
    struct studio studio;
    struct varve_mirror_clock clock = {TRACE_ID, 3000000, 30000000, 7};

    (void)state;
    studio_open(&studio);
    play_process(&studio, TRACE_ID, 1, 1001, "/bin/a");
    assert_int_equal(varve_rebuild_clock(studio.rebuild, &clock), VARVE_OK);
    play_clock(&studio, TRACE_ID);
    play_clock(&studio, TRACE_ID);
    play_marks(&studio, 1, 1, 1, 100);
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM clock_anchor", 3);
    studio_expect(&studio, "SELECT max(ts_ns) FROM event", 1001);
    studio_close(&studio);
}

/* ---- stats and call sites ---- */

static void test_stats_add_up(void **state)
{
    struct studio studio;

    (void)state;
    studio_open(&studio);
    play_mark(&studio, 1, 1, 1);
    assert_int_equal(varve_rebuild_stat(studio.rebuild, "discarded", true, 5), VARVE_OK);
    assert_int_equal(varve_rebuild_stat(studio.rebuild, "packets", false, 2), VARVE_OK);
    assert_int_equal(varve_rebuild_stat(studio.rebuild, "discarded", true, 7), VARVE_OK);
    assert_int_equal(varve_rebuild_stat(studio.rebuild, "huge", false, UINT64_MAX), VARVE_OK);
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_STAT("discarded"), 12);
    studio_expect(&studio,
                  "SELECT count(*) FROM stats WHERE source = 'lttng' AND severity = 'data_loss' AND "
                  "name = 'discarded'",
                  1);
    studio_expect(&studio, "SELECT severity = 'info' FROM stats WHERE name = 'packets'", 1);
    studio_expect(&studio, STUDIO_STAT("huge"), INT64_MAX);
    studio_close(&studio);
}

static void play_module(struct studio *studio, uint32_t number, uint64_t base, const char *path)
{
    static const uint8_t build_id[] = {0xab, 0xcd};
    const struct varve_mirror_module module = {.process = 1,
                                               .pid = 1001,
                                               .base = base,
                                               .end = base + 0x1000,
                                               .bias = base,
                                               .number = number,
                                               .build_id_bytes = 2,
                                               .build_id = build_id,
                                               .path = path};

    assert_int_equal(varve_rebuild_module(studio->rebuild, &module), VARVE_OK);
}

static void play_site(struct studio *studio, uint32_t number, uint64_t pc)
{
    const struct varve_mirror_callsite site = {
        .process = 1, .pid = 1001, .callsite = number, .native_count = 1, .native = &pc};

    assert_int_equal(varve_rebuild_callsite(studio->rebuild, &site), VARVE_OK);
}

/* All of it from the beginning, as when a second trace is started. */
static void play_sites(struct studio *studio)
{
    play_module(studio, 0, 0x1000, "/lib/libone.so");
    play_site(studio, 1, 0x1100);
    assert_int_equal(varve_rebuild_module_gone(studio->rebuild, 1, 1001, 0), VARVE_OK);
    play_module(studio, 1, 0x1000, "/lib/libtwo.so");
    play_site(studio, 2, 0x1100);
}

static void test_call_sites_told_again(void **state)
{
    struct studio studio;
    struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, 1000000, 0x5000, 0);

    (void)state;
    studio_open(&studio);
    for (unsigned turn = 0; turn < 3; turn++) {
        play_sites(&studio);
    }
    play_site(&studio, 3, 0x1100);
    for (uint32_t number = 1; number <= 3; number++) {
        const struct varve_mirror_origin origin = origin_of(1, 1);
        record.callsite = number;
        record.addr += 64;
        assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, number, &record), VARVE_OK);
    }
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM stats WHERE severity = 'error'", 0);
    studio_expect(&studio, "SELECT count(*) FROM module WHERE build_id = 'abcd'", 2);
    studio_expect(&studio, "SELECT count(*) FROM callsite_frame WHERE pc = 256", 2);
    studio_expect(&studio,
                  "SELECT count(DISTINCT callsite_id) FROM event WHERE kind = 32 AND ring_seq IN (2, 3)", 1);
    studio_expect(&studio,
                  "SELECT module = '/lib/libone.so' FROM event JOIN callsite_frame USING (callsite_id) "
                  "JOIN symbol ON symbol.id = symbol_id WHERE ring_seq = 1",
                  1);
    studio_expect(&studio,
                  "SELECT module = '/lib/libtwo.so' FROM event JOIN callsite_frame USING (callsite_id) "
                  "JOIN symbol ON symbol.id = symbol_id WHERE ring_seq = 3",
                  1);
    studio_close(&studio);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gap_in_the_middle),     cmocka_unit_test(test_late_start),
        cmocka_unit_test(test_losses_and_gaps),       cmocka_unit_test(test_only_descriptions),
        cmocka_unit_test(test_numbers_that_jump),     cmocka_unit_test(test_impossible_records),
        cmocka_unit_test(test_two_recordings),        cmocka_unit_test(test_one_number_several_pids),
        cmocka_unit_test(test_nothing_but_records),   cmocka_unit_test(test_no_anchor),
        cmocka_unit_test(test_anchors_shuffled),      cmocka_unit_test(test_stats_add_up),
        cmocka_unit_test(test_call_sites_told_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
