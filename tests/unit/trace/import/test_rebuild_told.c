/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding what a trace does not hold whole: missing records are reported where they are missing and nothing is
 * counted twice; numbers may be damaged; descriptions are missing, come late or again, or belong to another recording
 * in the same trace; the clock, figures of the sink itself, and call sites.
 * Costs: 1 s
 */
#include "support/rebuild.h"

/* ---- what is told, in words ---- */

/* A number, and what follows: the next one if `mark` stands there, else `otherwise`. */
static uint64_t number_after(char mark, const char **at, uint64_t otherwise)
{
    char *end;
    if (**at != mark) {
        return otherwise;
    }
    uint64_t number = strtoull(*at + 1, &end, 10);
    *at = end;
    return number;
}

/*
 * mPROCESS.RING@PID:FIRST-LAST  marks with their number in `arg`, of a process that is not described with that pid
 * lPROCESS.RING:NUMBER*COUNT    a LOST record for so many before it
 * eRING:EMITTED*LOST            the end of a thread of process 1;  tRING its beginning
 * cTRACE  two anchors of the clock;  pTRACE.PROCESS@PID  a process, "/bin/PID";  iTRACE  texts and numbers of it
 */
static void play_word(struct studio *studio, const char *at)
{
    const char what = *at;
    const uint64_t first = number_after(what, &at, 0);
    const uint64_t second = number_after('.', &at, 1);
    const uint64_t pid = number_after('@', &at, 1000 + first);
    const uint64_t from = number_after(':', &at, 0);
    const uint64_t to = number_after('-', &at, from);
    const uint64_t count = number_after('*', &at, 0);
    struct varve_sink_origin origin = origin_of((uint32_t)first, (uint32_t)second);
    char name[32];
    origin.pid = (int32_t)pid;
    snprintf(name, sizeof(name), "/bin/%llu", (unsigned long long)pid);
    for (uint64_t number = from; what == 'm' && number <= to; number++) {
        const struct varve_record record =
            hand_record(VARVE_KIND_MARK_BEGIN, 1000000 + number * 10 + second, 0, number);
        assert_int_equal(PLAY(studio->rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
    }
    if (what == 'l') {
        play_lost(studio, (uint32_t)first, (uint32_t)second, from, count);
    } else if (what == 'e') {
        const struct varve_sink_thread_end end = {origin_of(1, (uint32_t)first), from, count, count * 100};
        assert_int_equal(PLAY(studio->rebuild, THREAD_END, .of.thread_end = end), VARVE_OK);
    } else if (what == 't') {
        const struct varve_sink_thread thread = {origin_of(1, (uint32_t)first), 1000500, "silent"};
        assert_int_equal(PLAY(studio->rebuild, THREAD, .of.thread = thread), VARVE_OK);
    } else if (what == 'c') {
        play_clock(studio, first);
    } else if (what == 'p') {
        play_process(studio, first, (uint32_t)second, (int32_t)pid, name);
    } else if (what == 'i') {
        assert_int_equal(PLAY(studio->rebuild, META_TEXT, .of.meta = {first, "command", name, 0}), VARVE_OK);
        assert_int_equal(PLAY(studio->rebuild, META_INTEGER, .of.meta = {first, "complete", NULL, 1}), VARVE_OK);
    }
}

#define THREADS "SELECT process_id, ring, emitted, stored, lost, lost_bytes, uncommitted FROM thread ORDER BY 1, 2"
#define STATS                                                                                              \
    "SELECT name, value FROM stats WHERE name IN ('records_missing', 'events_lost', 'records_of_others', " \
    "'records_damaged', 'clock_unknown') AND value <> 0 ORDER BY name"
#define GAPS "SELECT arg, ring_seq FROM event WHERE kind = 53 ORDER BY seq"

TEST(test_what_is_told)
{
    static const struct {
        const char *words;
        struct {
            const char *sql, *rows;
        } asked[6];
    } cases[] = {
        /* a gap in the middle */
        {"m1.1:1-100 m1.1:151-200 m1.1:201-6000",
         {{THREADS, "1 1 6001 5951 50 0 0\n"},
          {STATS, "clock_unknown 1\nevents_lost 50\nrecords_missing 50\n"},
          {GAPS, "50 -\n"},
          {"SELECT b.ring_seq, a.ts_ns - b.ts_ns FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE a.kind = 53",
           "151 0\n"}}},
        /* the trace began when the ring was at 5,000,000; some of what is missing comes late, some never */
        {"m1.1:5000000-5000100 m1.1:4999990-4999994 m1.1:4999990-5000100 e1:5000110*0",
         {{THREADS, "1 1 5000112 113 4999999 0 0\n"},
          {"SELECT count(*) FROM event WHERE kind = 15", "111\n"},
          {GAPS, "4999989 -\n10 -\n"}}},
        /* the workload's own losses are numbers too (11 to 13, 28 and 29), and LOST records may be missing themselves:
         * one of 4 is among 41 to 49 */
        {"m1.1:1-10 l1.1:14*3 m1.1:15-20 l1.1:30*2 m1.1:31-40 m1.1:50-60 e1:60*9",
         {{THREADS, "1 1 62 41 21 900 0\n"},
          {STATS, "clock_unknown 1\nevents_lost 21\nrecords_missing 16\n"},
          {GAPS, "3 14\n7 -\n2 30\n9 -\n"}}},
        /* a ring of which nothing came, one that nobody described, one without a record */
        {"c77 p77.1@1001 e1:6*0 t2 e2:4*4 t3",
         {{THREADS, "1 1 7 1 6 0 0\n1 2 4 0 4 400 0\n1 3 0 0 0 0 0\n"},
          {"SELECT start_ns FROM thread WHERE ring = 2", "500\n"},
          {GAPS, "6 -\n"}}},
        /* numbers that jump, 2^40 and 2^50, cost neither space nor the records around them */
        {"m1.1:1-1000 m1.1:1099511627776 m1.1:1001-9000 m1.1:1125899906842624 m1.1:0 m1.1:1099511627778-1099511628776",
         {{STATS, "clock_unknown 1\nevents_lost 1099511618776\nrecords_damaged 2\nrecords_missing 1099511618776\n"},
          {"SELECT sum(kind = 15), sum(kind = 53) FROM event", "10000 2\n"},
          {"SELECT page_count * page_size < 8000000 FROM pragma_page_count, pragma_page_size", "1\n"}}},
        /* LOST records whose count cannot be: of the first only 6 and 7 can be meant, the other is not believed;
         * numbers of rings and processes, and a pid, that make no sense */
        {"m1.1:1-5 l1.1:8*1000 l1.1:9*18446744073709551615 m1.1:10-12 m4294967295.1:1 m1.4294967295:1 m1.1@0:1",
         {{"SELECT emitted, stored, lost FROM thread", "12 10 2\n"},
          {STATS, "clock_unknown 1\nevents_lost 2\nrecords_damaged 3\n"}}},
        /* two recordings, whose process 1 has records before anybody is described: the first to be heard of is taken */
        {"m1.1@9999:1-50 m1.1:1-70 m1.1@9999:51-100 m1.1:71-100 i77 i5 c5 c77 p5.1@9999 p77.1@1001",
         {{"SELECT pid, count(*) FROM event GROUP BY 1", "1001 100\n"},
          {"SELECT pid, executable FROM process", "1001 /bin/1001\n"},
          {"SELECT key, value FROM meta WHERE key IN ('command', 'trace_id') ORDER BY key",
           "command /bin/1077\ntrace_id 77\n"},
          {STATS, "records_of_others 100\n"},
          {"SELECT count(*) FROM clock_anchor", "2\n"}}},
        /* of several that nobody described the first is taken; a described one comes before all */
        {"m3.1@11:1 m3.1@12:1 m3.1@13:1",
         {{"SELECT pid FROM event", "11\n"}, {STATS, "clock_unknown 1\nrecords_of_others 2\n"}}},
        {"m3.1@11:1 m3.1@12:1 m3.1@13:1 p77.3@12",
         {{"SELECT pid FROM event", "12\n"}, {STATS, "records_of_others 2\n"}}},
        /* nothing but records */
        {"m2.0:3-100 m2.1:1-100 m2.0:1-2 m7.3:1-50",
         {{"SELECT count(*), min(ts_ns), max(ts_ns) FROM event", "250 0 991\n"},
          {"SELECT id, pid FROM process ORDER BY id", "2 1002\n7 1007\n"},
          {"SELECT ring, tid FROM thread ORDER BY 1", "0 2000\n1 2001\n3 2003\n"},
          {STATS, "clock_unknown 1\n"},
          {"SELECT * FROM meta WHERE key = 'trace_id'", ""}}},
        /* ticks are ns if the clock is the kernel's: nothing is unknown then */
        {"p77.1@1001 m1.1:1-100",
         {{STATS, ""}, {"SELECT max(ts_ns), (SELECT start_ns FROM process) FROM event", "1001 0\n"}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct studio studio;
        studio_open(&studio);
        for (const char *word = cases[i].words; *word != '\0'; word += strcspn(word, " "), word += *word == ' ') {
            play_word(&studio, word);
        }
        studio_finish(&studio);
        expect_numbers(&studio);
        for (size_t k = 0; k < 6 && cases[i].asked[k].sql != NULL; k++) {
            studio_rows(&studio, cases[i].asked[k].sql, cases[i].asked[k].rows);
        }
        studio_expect(&studio, "SELECT value FROM stats WHERE name = 'events_lost'", (int64_t)studio.result.lost);
        studio_close(&studio);
    }
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
        assert_int_equal(PLAY(studio.rebuild, RECORD, .of.record = {origin, numbers[i], record}), VARVE_OK);
        origin.ring = 1;
        record.arg = numbers[i] + 1;
        assert_int_equal(PLAY(studio.rebuild, RECORD, .of.record = {origin, numbers[i] + 1, record}), VARVE_OK);
    }
    play_mark(&studio, 1, 1, 1);
    studio_finish(&studio);
    studio_rows(&studio, "SELECT ring_seq, kind, arg FROM event WHERE tid = 101 ORDER BY seq",
                "1 15 0\n2 15 1\n3 15 4\n4 15 3\n- 53 4\n9 15 2\n- 53 1\n11 15 9\n");
    studio_expect(&studio, "SELECT count(*) FROM event WHERE kind = 15 AND tid = 2001 AND arg = ring_seq", 7);
    studio_close(&studio);
}

/* Anchors in any order, and twice. */
TEST(test_anchors_shuffled)
{
    struct studio studio;
    struct varve_sink_clock clock = {TRACE_ID, 3000000, 30000000, 7};
    studio_open(&studio);
    play_process(&studio, TRACE_ID, 1, 1001, "/bin/a");
    assert_int_equal(PLAY(studio.rebuild, CLOCK, .of.clock = clock), VARVE_OK);
    play_clock(&studio, TRACE_ID);
    play_clock(&studio, TRACE_ID);
    play_word(&studio, "m1.1:1-100");
    studio_finish(&studio);
    studio_rows(&studio, "SELECT max(ts_ns), (SELECT count(*) FROM clock_anchor) FROM event", "1001 3\n");
    studio_close(&studio);
}

/* Ticks may be damaged: the first ring of a process that has ended begins at 0, its others when that was stored long
 * ago, with more rings in between than are opened at a time. */
TEST(test_ticks_of_zero)
{
    struct studio studio;
    const struct varve_sink_process_end end = {1, 1001, VARVE_SINK_END_EXITED, ""};
    studio_open(&studio);
    assert_int_equal(PLAY(studio.rebuild, PROCESS_END, .of.process_end = end), VARVE_OK);
    for (uint32_t ring = 1; ring <= 300; ring++) {
        const struct varve_sink_origin origin = origin_of(ring == 1 || ring > 250 ? 1 : 2, ring);
        for (uint64_t number = 1; number <= 20; number++) {
            const struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, (ring - 1) * 100000, 0, number);
            assert_int_equal(PLAY(studio.rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
        }
    }
    studio_finish(&studio);
    expect_numbers(&studio);
    studio_rows(&studio, "SELECT count(*), end_cause FROM event JOIN process USING (pid) GROUP BY pid",
                "1020 exit\n4980 running\n");
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
    studio_rows(
        &studio,
        "SELECT name, severity, value FROM stats WHERE source = 'lttng' AND name < 'q' AND name <> 'clock_unknown' "
        "ORDER BY 1",
        "discarded data_loss 12\nhuge info 9223372036854775807\npackets info 2\n");
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
    assert_int_equal(PLAY(studio->rebuild, MODULE, .of.module = module), VARVE_OK);
}

static void play_callsite(struct studio *studio, uint32_t number, uint64_t pc)
{
    const struct varve_sink_callsite callsite = {
        .process = 1, .pid = 1001, .callsite = number, .native_count = 1, .native = &pc};
    assert_int_equal(PLAY(studio->rebuild, CALLSITE, .of.callsite = callsite), VARVE_OK);
}

/* All of it from the beginning each time, as when a second trace is started. */
TEST(test_call_sites_reported_again)
{
    struct studio studio;
    struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, 1000000, 0x5000, 0);
    studio_open(&studio);
    for (unsigned turn = 0; turn < 3; turn++) {
        play_module(&studio, 0, 0x1000, "/lib/libone.so");
        play_callsite(&studio, 1, 0x1100);
        assert_int_equal(PLAY(studio.rebuild, MODULE_GONE, .of.module_gone = {1, 1001, 0}), VARVE_OK);
        play_module(&studio, 1, 0x1000, "/lib/libtwo.so");
        play_callsite(&studio, 2, 0x1100);
    }
    play_callsite(&studio, 3, 0x1100);
    for (uint32_t number = 1; number <= 3; number++) {
        const struct varve_sink_origin origin = origin_of(1, 1);
        record.callsite = number;
        record.addr += 64;
        assert_int_equal(PLAY(studio.rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
    }
    studio_finish(&studio);
    studio_rows(&studio, "SELECT name FROM stats WHERE severity = 'error'", "");
    studio_rows(&studio, "SELECT path, build_id FROM module", "/lib/libone.so abcd\n/lib/libtwo.so abcd\n");
    studio_rows(&studio,
                "SELECT ring_seq, callsite_id, module, pc FROM event JOIN frame USING (callsite_id) ORDER BY 1",
                "1 1 /lib/libone.so 256\n2 2 /lib/libtwo.so 256\n3 2 /lib/libtwo.so 256\n");
    studio_close(&studio);
}
