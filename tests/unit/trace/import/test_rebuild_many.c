/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding with many rings and with errors: ten thousand processes, hundreds of threads whose buffers do
 * not fit into memory together, few descriptors; and a rebuild that cannot be finished leaves nothing behind
 * and says why.
 * Costs: 10 s, full 12 s
 */
#include "support/rebuild.h"

#include <sys/resource.h>

#define PROCESSES 10000
#define THREADS 300U
#define THREAD_RECORDS 5000U

/* ---- many ---- */

TEST(test_ten_thousand_processes)
{
    struct studio studio;
    uint32_t processes = (uint32_t)test_rounds(PROCESSES / 8, PROCESSES);
    studio_open(&studio);
    for (uint32_t process = 1; process <= processes; process++) {
        const struct varve_sink_process reported = {.process = process,
                                                    .pid = 1000 + (int32_t)process,
                                                    .rank = -1,
                                                    .clock_kind = VARVE_CLOCK_MONOTONIC,
                                                    .start_ticks = 1000000 + process,
                                                    .start_ticks_proc = process,
                                                    .executable = "/bin/cc",
                                                    .command_line = "cc -c file.c"};
        const struct varve_sink_process_end end = {process, reported.pid, VARVE_SINK_END_EXITED, ""};
        const struct varve_sink_callsite callsite = {.process = process, .pid = reported.pid, .callsite = 1};
        assert_int_equal(PLAY(studio.rebuild, PROCESS, .of.process = reported), VARVE_OK);
        assert_int_equal(PLAY(studio.rebuild, PROCESS_END, .of.process_end = end), VARVE_OK);
        assert_int_equal(PLAY(studio.rebuild, CALLSITE, .of.callsite = callsite), VARVE_OK);
    }
    for (uint64_t number = 1; number <= 3; number++) {
        for (uint32_t process = 1; process <= processes; process++) {
            play_mark(&studio, process, 1, number);
        }
    }
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE ring_seq = arg", 3 * (int64_t)processes);
    studio_expect(&studio, "SELECT count(*) FROM process WHERE end_cause = 'exit'", processes);
    studio_expect(&studio, "SELECT count(*) FROM thread WHERE stored = 3 AND spilled = 0", processes);
    studio_expect(&studio, "SELECT count(*) FROM stats WHERE severity = 'error'", 0);
    studio_close(&studio);
}

static long resident_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Bytes that cannot be packed, in fields that marks do not have. */
static void play_noise(struct studio *studio, uint64_t *seed, uint32_t ring, uint64_t number)
{
    const struct varve_sink_origin origin = origin_of(1, ring);
    struct varve_record record = hand_record(VARVE_KIND_MARK_END, 1000000 + number * 10, 0, number);
    record.addr = random_next(seed);
    record.size = random_next(seed);
    record.requested = random_next(seed);
    record.id_stream = number | random_next(seed) << 48;
    assert_int_equal(PLAY(studio->rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
}

/* All threads at once, record by record; a few of each come late. More than what is kept in memory. */
TEST(test_many_threads)
{
    struct studio studio;
    const int64_t events = (int64_t)THREADS * THREAD_RECORDS;
    uint64_t seed = 99;
    long before = resident_kib();
    studio_open(&studio);
    for (uint64_t number = 1; number <= THREAD_RECORDS; number++) {
        for (uint32_t ring = 1; ring <= THREADS; ring++) {
            if (number % 100 != ring % 100) {
                play_noise(&studio, &seed, ring, number);
            }
            if (number > 2000 && (number - 2000) % 100 == ring % 100) {
                play_noise(&studio, &seed, ring, number - 2000);
            }
        }
    }
    if (test_rounds(PROCESSES, PROCESSES) == PROCESSES) { /* a sanitizer keeps what is freed */
        assert_true(resident_kib() - before < 100 << 10);
    }
    for (uint64_t number = THREAD_RECORDS - 1999; number <= THREAD_RECORDS; number++) {
        for (uint32_t ring = 1; ring <= THREADS; ring++) {
            if (number % 100 == ring % 100) {
                play_noise(&studio, &seed, ring, number);
            }
        }
    }
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE ring_seq = id", events);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE arg IS NOT ring_seq", 0);
    studio_expect(&studio, "SELECT count(*) FROM event", events);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 0);
    studio_close(&studio);
}

/* More rings than are opened at a time, each beginning when some of the others are at work. */
TEST(test_one_after_the_other)
{
    struct studio studio;
    const uint32_t rings = 400;
    studio_open(&studio);
    for (uint32_t ring = rings; ring > 0; ring--) {
        const struct varve_sink_origin origin = origin_of(1 + ring % 3, ring);
        for (uint64_t number = 1; number <= 50; number++) {
            const struct varve_record record =
                hand_record(VARVE_KIND_MARK_BEGIN, 1000000 + ring * 100 + number * 200, 0, number);
            assert_int_equal(PLAY(studio.rebuild, RECORD, .of.record = {origin, number, record}), VARVE_OK);
        }
    }
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", rings * 50);
    studio_expect(&studio, "SELECT count(*) FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE b.ts_ns < a.ts_ns", 0);
    studio_expect(&studio,
                  "SELECT count(*) FROM thread a JOIN thread b ON b.id = a.id + 1 WHERE b.start_ns < a.start_ns", 0);
    studio_close(&studio);
}

/* Rings that would need more descriptors at a time than there are. */
TEST(test_few_descriptors)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit low = limit;
    low.rlim_cur = 40;
    struct studio studio;
    studio_open(&studio);
    for (uint64_t number = 1; number <= THREAD_RECORDS; number++) {
        for (uint32_t ring = 1; ring <= 60; ring++) {
            play_mark(&studio, 1, ring, number);
        }
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    studio_finish(&studio);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE ring_seq = arg", 60 * THREAD_RECORDS);
    studio_expect(&studio, STUDIO_STAT("spill_unreadable"), 0);
    studio_expect(&studio, STUDIO_STAT("events_spilled"), 0);
    studio_close(&studio);
}

/* The worst order that there is: backwards, in slices that overlap. */
TEST(test_backwards)
{
    struct studio studio;
    const uint64_t records = (uint64_t)test_rounds(20000, 100000);
    studio_open(&studio);
    for (uint64_t turn = 0; turn < 7; turn++) {
        for (uint64_t number = records - turn; number > 0 && number <= records; number -= number > 7 ? 7 : number) {
            play_mark(&studio, 1, 1, number);
        }
    }
    studio_finish(&studio);
    studio_expect(&studio, STUDIO_CONSERVED, 0);
    studio_expect(&studio, "SELECT count(*) FROM event WHERE ring_seq = arg AND seq = arg", (int64_t)records);
    studio_expect(&studio, STUDIO_STAT("records_missing"), 0);
    studio_close(&studio);
}

/* ---- errors ---- */

/* It fails with that, says why, and leaves so many files. */
static int fail_to_finish(struct studio *studio, int entries)
{
    int code = varve_rebuild_finish(studio->rebuild, NULL, NULL, &studio->result, &studio->message);
    assert_true(studio->message.text[0] != '\0');
    assert_int_equal(entries_of(studio->folder), entries);
    return code;
}

TEST(test_target_exists)
{
    struct studio studio;
    struct varve_rebuild *other = NULL;
    studio_open(&studio);
    play_mark(&studio, 1, 1, 1);
    FILE *file = fopen(studio.database, "w");
    assert_non_null(file);
    assert_true(fputs("mine", file) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(varve_rebuild_open(studio.database, false, &other, &studio.message), VARVE_ERROR_INVALID);
    assert_null(other);
    /* it came while the rebuild went on: it stays */
    assert_int_equal(fail_to_finish(&studio, 1), VARVE_ERROR_INVALID);
    file = fopen(studio.database, "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), 'm');
    fclose(file);
    LAB_OK(&studio, varve_rebuild_open(studio.database, true, &studio.rebuild, &studio.message));
    play_mark(&studio, 1, 1, 1);
    studio_finish(&studio);
    studio_expect(&studio, "SELECT count(*) FROM event", 1);
    studio_close(&studio);
}

TEST(test_places_that_cannot_be)
{
    struct studio studio;
    struct varve_rebuild *rebuild = NULL;
    studio_open(&studio);
    char path[256];
    snprintf(path, sizeof(path), "%s/none/x.db", studio.folder);
    assert_int_equal(varve_rebuild_open(path, false, &rebuild, &studio.message), VARVE_ERROR_NOT_FOUND);
    assert_null(rebuild);
    assert_int_equal(varve_rebuild_open(studio.folder, true, &rebuild, &studio.message), VARVE_ERROR_INVALID);
    assert_null(rebuild);
    varve_rebuild_abandon(studio.rebuild);
    varve_rebuild_abandon(NULL);
    assert_int_equal(entries_of(studio.folder), 0);
    studio_close(&studio);
}

TEST(test_nothing_in_it)
{
    struct studio studio;
    studio_open(&studio);
    assert_int_equal(fail_to_finish(&studio, 0), VARVE_ERROR_FORMAT);
    studio_close(&studio);
}

/* Files may not grow past the limit: while records come, or when the database is written. */
TEST(test_no_space)
{
    static const rlim_t limits[] = {20000, 300000, 2000000};
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit low = {limits[i], limit.rlim_max};
        struct studio studio;
        int code = VARVE_OK;
        studio_open(&studio);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        for (uint64_t number = 1; code == VARVE_OK && number <= 100000; number++) {
            const struct varve_sink_origin origin = origin_of(1, 1);
            const struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, 1000000 + number, number * 64, 0);
            code = PLAY(studio.rebuild, RECORD, .of.record = {origin, number, record});
        }
        if (code != VARVE_OK) { /* sticks */
            assert_int_equal(varve_rebuild_stat(studio.rebuild, "x", false, 1), code);
        }
        code = fail_to_finish(&studio, 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_true(code == VARVE_ERROR_FULL || code == VARVE_ERROR_DATABASE || code == VARVE_ERROR_IO);
        studio_close(&studio);
    }
}

static void count_stages(void *context, const char *stage, uint64_t done, uint64_t total)
{
    unsigned *stages = context;
    if (strcmp(stage, "writing events") == 0 && done == total && total == 100) {
        (*stages)++;
    }
}

TEST(test_progress)
{
    struct studio studio;
    unsigned stages = 0;
    studio_open(&studio);
    for (uint64_t number = 1; number <= 100; number++) {
        play_mark(&studio, 1, 1, number);
    }
    LAB_OK(&studio, varve_rebuild_finish(studio.rebuild, count_stages, &stages, &studio.result, &studio.message));
    assert_true(stages > 0);
    assert_string_equal(studio.result.database_path, studio.database);
    studio_close(&studio);
}
