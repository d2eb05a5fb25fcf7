/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding from descriptions that are missing, come late or again, or belong to another recording in the
 * same trace; the clock, figures of the sink itself, and call sites.
 * Costs: 1 s
 */
#include "support/rebuild.h"

/* ---- two recordings, no description, no clock ---- */

static void play_meta(struct studio *studio, uint64_t trace_id, const char *value)
{
    assert_int_equal(varve_rebuild_meta_text(studio->rebuild, trace_id, "command", value), VARVE_OK);
    assert_int_equal(varve_rebuild_meta_integer(studio->rebuild, trace_id, "complete", 1), VARVE_OK);
}

/* Process 1 of both has records before anybody is described; the first to be heard of is taken. */
TEST(test_two_recordings)
{
    struct varve_sink_origin other = origin_of(1, 1);
    other.pid = 9999;
    struct studio studio;
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
TEST(test_one_number_several_pids)
{
    struct studio studio;
    for (unsigned turn = 0; turn < 2; turn++) {
        studio_open(&studio);
        for (int32_t pid = 11; pid <= 13; pid++) {
            const struct varve_sink_origin origin = {.process = 3, .ring = 1, .pid = pid, .tid = pid};
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

TEST(test_nothing_but_records)
{
    struct studio studio;
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
TEST(test_no_anchor)
{
    struct studio studio;
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
TEST(test_anchors_shuffled)
{
    struct studio studio;
    struct varve_sink_clock clock = {TRACE_ID, 3000000, 30000000, 7};
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

TEST(test_stats_add_up)
{
    struct studio studio;
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
    const struct varve_sink_module module = {.process = 1,
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

static void play_callsite(struct studio *studio, uint32_t number, uint64_t pc)
{
    const struct varve_sink_callsite callsite = {
        .process = 1, .pid = 1001, .callsite = number, .native_count = 1, .native = &pc};
    assert_int_equal(varve_rebuild_callsite(studio->rebuild, &callsite), VARVE_OK);
}

/* All of it from the beginning, as when a second trace is started. */
static void play_callsites(struct studio *studio)
{
    play_module(studio, 0, 0x1000, "/lib/libone.so");
    play_callsite(studio, 1, 0x1100);
    assert_int_equal(varve_rebuild_module_gone(studio->rebuild, 1, 1001, 0), VARVE_OK);
    play_module(studio, 1, 0x1000, "/lib/libtwo.so");
    play_callsite(studio, 2, 0x1100);
}

TEST(test_call_sites_reported_again)
{
    struct studio studio;
    struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, 1000000, 0x5000, 0);
    studio_open(&studio);
    for (unsigned turn = 0; turn < 3; turn++) {
        play_callsites(&studio);
    }
    play_callsite(&studio, 3, 0x1100);
    for (uint32_t number = 1; number <= 3; number++) {
        const struct varve_sink_origin origin = origin_of(1, 1);
        record.callsite = number;
        record.addr += 64;
        assert_int_equal(varve_rebuild_record(studio.rebuild, &origin, number, &record), VARVE_OK);
    }
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM stats WHERE severity = 'error'", 0);
    studio_expect(&studio, "SELECT count(*) FROM module WHERE build_id = 'abcd'", 2);
    studio_expect(&studio, "SELECT count(*) FROM frame WHERE pc = 256", 2);
    studio_expect(&studio, "SELECT count(DISTINCT callsite_id) FROM event WHERE kind = 32 AND ring_seq IN (2, 3)", 1);
    studio_expect(&studio,
                  "SELECT module = '/lib/libone.so' FROM event JOIN frame USING (callsite_id) "
                  "WHERE ring_seq = 1",
                  1);
    studio_expect(&studio,
                  "SELECT module = '/lib/libtwo.so' FROM event JOIN frame USING (callsite_id) "
                  "WHERE ring_seq = 3",
                  1);
    studio_close(&studio);
}
