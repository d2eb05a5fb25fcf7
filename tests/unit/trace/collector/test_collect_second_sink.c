/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's part of the second sink, over processes and rings made by hand: it emits the records that
 * the workload did not, under the numbers that the database has, and everything else with the database's
 * values, once, and once more when a trace begins in mid-run. Without a database it emits the same. Call-site files
 * likewise: each entry once, when the collector has taken it, in the order of the file; all of them again when a trace
 * begins in mid-run, from files that are still there and as they were.
 * Costs: 1 s
 */
#include "support/callsites.h"
#include "support/lttng/second_sink.h"

/* ---- records ---- */

static void hand_flagged(struct ring_header *ring, enum varve_kind kind, uint64_t ticks, uint64_t tag)
{
    struct varve_record record = hand_record(kind, ticks, 0, tag);
    record.dev_seq_kind_flags |= VARVE_FLAG_SECOND_SINK;
    hand_begin(ring);
    hand_commit(ring, &record);
}

/* Records emitted so far: "number:arg number:arg …" of a ring. */
static void expect_event(const struct sink_log *log, uint32_t process, uint32_t ring, const char *expected)
{
    char text[1024] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < log->record_count && length < sizeof(text); i++) {
        const struct sink_event *reported = &log->records[i];
        if (reported->origin.process == process && reported->origin.ring == ring) {
            assert_int_equal(reported->origin.tid, 100 * process + ring);
            assert_int_equal(reported->emitter, getpid());
            length +=
                (size_t)snprintf(text + length, sizeof(text) - length, "%llu:%llu ",
                                 (unsigned long long)reported->ring_seq, (unsigned long long)reported->record.arg);
        }
    }
    assert_string_equal(text, expected);
}

TEST(test_emits_what_the_workload_did_not)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 0);
    int32_t pid = lab_living(lab);
    hand_process(lab, pid);
    struct ring_header *one = hand_ring(lab, 1, 64);
    struct ring_header *other = hand_ring(lab, 1, 64);
    log->enabled_there[VARVE_KIND_MARK_END] = 0;
    hand_emit(one, VARVE_KIND_MARK_BEGIN, lab->begin + 1, 0, 11);
    hand_flagged(one, VARVE_KIND_MARK_BEGIN, lab->begin + 3, 12);
    hand_emit(one, VARVE_KIND_LOST, lab->begin + 5, 0, 40); /* 3 to 42 are lost, it has 43 */
    hand_emit(one, VARVE_KIND_MARK_BEGIN, lab->begin + 7, 0, 13);
    hand_flagged(one, VARVE_KIND_LOST, lab->begin + 9, 100);
    hand_emit(one, VARVE_KIND_MARK_END, lab->begin + 11, 0, 14); /* nobody wants it */
    hand_emit(one, VARVE_KIND_MARK_BEGIN, lab->begin + 13, 0, 15);
    hand_flagged(other, VARVE_KIND_MARK_BEGIN, lab->begin + 2, 21);
    hand_emit(other, VARVE_KIND_MARK_BEGIN, lab->begin + 4, 0, 22);
    lab_drain(lab);
    expect_event(log, 1, 1, "1:11 43:40 44:13 147:15 ");
    expect_event(log, 1, 2, "2:22 ");
    assert_int_equal(log->records[0].origin.pid, pid);
    log->enabled_there[VARVE_KIND_MARK_END] = 1;
    hand_emit(other, VARVE_KIND_MARK_END, lab->begin + 20, 0, 23);
    lab_finish(lab);
    expect_event(log, 1, 2, "2:22 3:23 ");
    lab_rows(lab, "SELECT thread_id, arg, ring_seq, flags FROM event ORDER BY thread_id, ring_seq",
             "1 11 1 0\n1 12 2 0\n1 40 43 0\n1 13 44 0\n1 100 145 0\n1 14 146 0\n1 15 147 0\n2 21 1 0\n2 22 2 0\n"
             "2 23 3 0\n");
    lab_sink_end(lab, log);
}

/* A killed thread leaves records of handlers in their slots, the first of which is filed. */
TEST(test_orphans_have_numbers)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 0);
    hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    hand_flagged(ring, VARVE_KIND_MARK_BEGIN, lab->begin + 1, 1);
    hand_flagged(ring, VARVE_KIND_MARK_BEGIN, lab->begin + 2, 2);
    hand_put_aside(lab, ring, 2, 4);
    lab_finish(lab);
    expect_event(log, 1, 1, "3:3 4:4 5:5 ");
    lab_expect(lab, "SELECT ring_seq FROM event WHERE arg = 5 AND flags = 2", 5);
    lab_sink_end(lab, log);
}

/* A spill file that is gone: what was in it keeps its numbers. */
TEST(test_unreadable_records_have_numbers)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 0);
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + 1, 0, 1);
    ring_staging(ring)[0] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + 9, 0, 9);
    ring->spill_flushed = RING_STAGING_RECORDS;
    ring->emitted += RING_STAGING_RECORDS + 1;
    __atomic_store_n(&ring->spill_head, RING_STAGING_RECORDS + 1, __ATOMIC_RELEASE);
    lab_finish(lab);
    expect_event(log, 1, 1, "1:1 4098:9 ");
    lab_expect(lab, "SELECT ring_seq FROM event WHERE arg = 9", 4098);
    lab_sink_end(lab, log);
}

/* ---- everything else ---- */

static void expect_fact(const struct sink_log *log, unsigned times, const char *text)
{
    unsigned found = 0;
    for (uint32_t i = 0; i < log->fact_count; i++) {
        found += strcmp(log->facts[i].text, text) == 0;
    }
    if (found != times) {
        fail_msg("reported %u times: %s", found, text);
    }
}

/* Each row of this query is emitted as the whole text of `times` facts, and the facts that begin with `word` are
 * no others. */
static void expect_facts(const struct lab *lab, const struct sink_log *log, const char *word, unsigned times,
                         const char *sql)
{
    sqlite3 *db = lab_database(lab);
    sqlite3_stmt *row;
    unsigned rows = 0;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
    while (sqlite3_step(row) == SQLITE_ROW) {
        expect_fact(log, times, (const char *)sqlite3_column_text(row, 0));
        rows++;
    }
    sqlite3_finalize(row);
    sqlite3_close(db);
    if (rows == 0 || sink_facts(log, word) != rows * times) {
        fail_msg("%u rows, %u facts: %s", rows, sink_facts(log, word), word);
    }
}

/* Facts as the database has them. Times in it count from its first anchor; the clock is monotonic. */
#define TRACE_ID "(SELECT value FROM meta WHERE key = 'trace_id')"
#define TICKS "start_ns + (SELECT min(mono_ns) FROM clock_anchor)"

static const char clock_facts[] =
    "SELECT printf('clock trace_id=%d ticks=%d mono=%d real=%d', " TRACE_ID ", ticks, mono_ns, real_ns) "
    "FROM clock_anchor";
static const char meta_facts[] =
    "SELECT printf('meta trace_id=%d %s %s=%s', " TRACE_ID ", key, typeof(value), value) FROM meta "
    "WHERE key IN ('trace_id', 'command', 'least', 'empty', 'duration_ns')";
static const char process_facts[] =
    "SELECT printf('process %d pid=%d parent=%d parent_pid=%d rank=%d trace_id=%d clock=0 start=%d proc=%d "
    "executable=%s command=%s', id, pid, ifnull(parent_id, 0), parent_pid, ifnull(rank, -1), " TRACE_ID ", " TICKS
    ", id, executable, command_line) FROM process";
static const char thread_facts[] =
    "SELECT printf('thread p%d.r%d pid=%d tid=%d created=%d name=%s', process_id, ring, pid, tid, " TICKS
    ", name) FROM thread";
static const char thread_end_facts[] =
    "SELECT printf('thread_end p%d.r%d pid=%d tid=%d emitted=%d lost=%d lost_bytes=%d', process_id, ring, "
    "pid, tid, emitted, lost, lost_bytes) FROM thread";

static void emit_meta(struct lab *lab)
{
    int64_t trace_id = (int64_t)lab->collector->directory.control->trace_id;
    LAB_OK(lab, collect_meta_integer(lab->collector, "trace_id", trace_id));
    LAB_OK(lab, collect_meta_text(lab->collector, "command", "# = \"a b\" #12"));
    LAB_OK(lab, collect_meta_integer(lab->collector, "least", INT64_MIN));
    LAB_OK(lab, collect_meta_text(lab->collector, "empty", ""));
}

/* Two processes, one of which ends by exec, and one thread of the other. The ring of this one has lost 7. */
static void make_lives(struct lab *lab)
{
    hand_process(lab, lab_dead())->state = PROCESS_STATE_EXECUTING;
    strcpy(lab->controls[0]->exec_path, "/bin/other one");
    lab->controls[0]->rank = 3;
    hand_emit(hand_ring(lab, 1, 64), VARVE_KIND_MARK_BEGIN, lab->begin + 1, 0, 1);
    hand_process(lab, lab_living(lab))->parent_id = 1;
    hand_emit(hand_ring(lab, 2, 64), VARVE_KIND_MARK_BEGIN, lab->begin + 2, 0, 2);
    struct ring_header *ring = hand_ring(lab, 2, 64);
    memcpy(ring->thread_name, "sixteen letters!", sizeof(ring->thread_name));
    ring->emitted = ring->lost = ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] = 7;
    ring->lost_bytes = 700;
    hand_emit(ring, VARVE_KIND_LOST, lab->begin + 3, 0, 7);
    ring->state = RING_STATE_RETIRED;
}

TEST(test_emits_the_rows_of_the_database)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 0);
    emit_meta(lab);
    make_lives(lab);
    lab_rounds(lab, 10000000);
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    expect_facts(lab, log, "meta ", 1, meta_facts);
    expect_facts(lab, log, "clock ", 1, clock_facts);
    expect_facts(lab, log, "process ", 1, process_facts);
    expect_facts(lab, log, "thread ", 1, thread_facts);
    expect_facts(lab, log, "thread_end ", 1, thread_end_facts); /* also of the one that lives */
    assert_int_equal(sink_facts(log, "process_end "), 1);
    char text[128];
    snprintf(text, sizeof(text), "process_end 1 pid=%d end=3 exec=/bin/other one", lab->controls[0]->pid);
    expect_fact(log, 1, text);
    lab_sink_end(lab, log);
}

/* Dropped at the very end: no record speaks of them, so no number does. */
TEST(test_lost_at_the_end)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 0);
    hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + 1, 0, 1);
    ring->lost = ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] = 5;
    ring->lost_bytes = 50;
    ring->emitted += 5;
    lab_drain(lab);
    lab_drain(lab);
    char text[128];
    snprintf(text, sizeof(text), "thread_end p1.r1 pid=%d tid=101 emitted=1 lost=5 lost_bytes=50",
             lab->controls[0]->pid);
    expect_fact(log, 1, text);
    lab_sink_end(lab, log);
}

/* ---- a trace that begins in mid-run ---- */

TEST(test_everything_again)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    emit_meta(lab);
    make_lives(lab);
    hand_process(lab, lab_dead());
    hand_emit(hand_ring(lab, 3, 64), VARVE_KIND_MARK_BEGIN, lab->begin + 4, 0, 3);
    lab_rounds(lab, 10000000);
    lab_drain(lab);
    lab_drain(lab); /* processes 1 and 3 and a thread are closed by now */
    assert_int_equal(sink_facts(log, "process_end "), 2);
    assert_int_equal(sink_facts(log, "thread_end "), 3);
    unsigned meta = sink_facts(log, "meta ");
    unsigned clocks = sink_facts(log, "clock ");
    unsigned records = log->record_count;
    for (unsigned traces = 1; traces <= 2; traces++) {
        const struct {
            const char *fact;
            unsigned times;
        } expected[] = {{"meta ", meta * (traces + 1)},
                        {"clock ", clocks * (traces + 1)},
                        {"process 1 ", 1},
                        {"process 2 ", 1 + traces},
                        {"process 3 ", 1},
                        {"thread p1", 1},
                        {"thread p2.r1 ", 1 + traces},
                        {"thread p2.r2 ", 1},
                        {"process_end ", 2},
                        {"thread_end ", 3}};
        lab->collector->next_anchor_ns = UINT64_MAX; /* no new ones meanwhile */
        assert_true(sink_start(log));
        lab_round(lab);
        lab_round(lab); /* once per trace */
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
            assert_int_equal(sink_facts(log, expected[i].fact), expected[i].times);
        }
        assert_int_equal(log->record_count, records);
    }
    expect_facts(lab, log, "meta ", 3, meta_facts);
    lab_sink_end(lab, log);
}

/* The library's threads live on when a collector is gone: what they say then must not go into its memory. */
TEST(test_trace_begins_after_the_end)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    assert_true(sink_start(log));
    collector_close(lab->collector);
    session_directory_remove(&lab->collector->directory);
    free(lab->collector);
    lab->collector = NULL;
    assert_true(sink_start(log));
    lab_sink_end(lab, log);
}

/* ---- without a database, without a library ---- */

TEST(test_without_database)
{
    struct lab *lab = lab_begin();
    struct session_directory directory = lab->collector->directory;
    collector_close(lab->collector);
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "rm -f '%.1000s'/trace.db*", directory.path);
    assert_int_equal(system(path), 0);
    memset(lab->collector, 0, sizeof(*lab->collector));
    lab->collector->directory = directory;
    lab->collector->is_unstored = true;
    lab_open_collector(lab, STORE_CREATE);
    struct sink_log *log = lab_sink(lab, 1);
    emit_meta(lab);
    make_lives(lab);
    hand_flagged(lab->rings[1].ring, VARVE_KIND_MARK_BEGIN, lab->begin + 5, 9);
    hand_emit(lab->rings[1].ring, VARVE_KIND_HEAP_FREE, lab->begin + 6, 0x5000, 10);
    assert_true(sink_start(log));
    lab_rounds(lab, 10000000);
    lab_drain(lab);
    assert_int_equal(lab->rings[1].ring->tail, 3); /* space is handed back all the same */
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    expect_event(log, 1, 1, "1:1 ");
    expect_event(log, 2, 1, "1:2 3:10 ");
    expect_event(log, 2, 2, "8:7 ");
    assert_int_equal(sink_facts(log, "process_end "), 1);
    assert_int_equal(sink_facts(log, "thread_end "), 3);
    assert_true(sink_facts(log, "process ") >= 2 && sink_facts(log, "thread ") >= 3);
    assert_true(sink_facts(log, "clock ") >= lab->collector->clock.count);
    assert_true(sink_facts(log, "meta ") >= 5);
    LAB_OK(lab, collector_publish(lab->collector, lab->database, &lab->message));
    assert_int_not_equal(access(lab->database, F_OK), 0);
    snprintf(path, sizeof(path), "test -z \"$(ls '%.1000s' | grep trace.db)\"", directory.path);
    assert_int_equal(system(path), 0);
    lab_sink_end(lab, log);
}

TEST(test_no_library)
{
    static const char *const paths[] = {"/nonexistent.so", VARVE_BUILD_DIR "/programs/lib_callback.so", SINK_FAKE};
    struct lab *lab = lab_begin();
    struct sink_log *log = sink_log_open(lab->folder);
    log->version = SINK_INTERFACE_VERSION + 1;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        lab->message.text[0] = '\0';
        assert_int_equal(collect_sink_open(lab->collector, paths[i], &lab->message), VARVE_ERROR_UNSUPPORTED);
        assert_true(lab->message.text[0] != '\0');
        assert_null(lab->collector->sink.provider);
    }
    emit_meta(lab);
    make_lives(lab);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM event", 3);
    assert_int_equal(log->record_count + log->fact_count, 0);
    lab_sink_end(lab, log);
}

/* ---- call sites ---- */

static struct writer callsite_file_of(const struct lab *lab, uint32_t process)
{
    struct writer writer;
    snprintf(writer.path, sizeof(writer.path), "%.480s/p%u.sites", lab->collector->directory.path, process);
    writer.stream = fopen(writer.path, "w");
    assert_non_null(writer.stream);
    return writer;
}

static void hand_callsite(struct ring_header *ring, uint64_t ticks, uint32_t callsite)
{
    struct varve_record record = hand_record(VARVE_KIND_HEAP_ALLOC, ticks, 0x1000 * (uint64_t)callsite, 0);
    record.callsite = callsite;
    hand_begin(ring);
    hand_commit(ring, &record);
}

static void write_callsites(struct writer *writer)
{
    const struct callsite_file_python python[] = {{7, 3}, {7, CALLSITE_FILE_PYTHON_ENTRY | 4}};
    const uint64_t pcs[] = {0x10100, 0x20200, UINT64_MAX};
    put_module(writer, 0, 0x10000, 0x1000, 0x8000, "/bin/x y", "\x01\xfe");
    put_module(writer, 1, 0x20000, 0x1000, 0, "/lib/none", "");
    put_code(writer, 7, "f", "a dir/m.py");
    put_callsite(writer, 1, pcs, 3, python, 2);
    put_gone(writer, 1);
    put_callsite(writer, 2, NULL, 0, python, 1);
}

/* What write_callsites has written, and nothing else, so many times. */
static void expect_callsites(const struct sink_log *log, int32_t pid, unsigned times)
{
    static const char *const facts[][2] = {
        {"module 1", "number=0 base=10000 end=11000 bias=8000 path=/bin/x y build_id=01fe"},
        {"module 1", "number=1 base=20000 end=21000 bias=0 path=/lib/none build_id="},
        {"code 1", "code=7 line=1 function=f file=a dir/m.py"},
        {"callsite 1", "callsite=1 native=10100,20200,ffffffffffffffff, python=7:3,7:80000004,"},
        {"module_gone 1", "number=1"},
        {"callsite 1", "callsite=2 native= python=7:3,"}};
    size_t next = 0, count = sizeof(facts) / sizeof(facts[0]);
    char expected[256];
    for (uint32_t i = 0; i < log->fact_count; i++) {
        const char *fact = log->facts[i].text;
        if (strncmp(fact, "mod", 3) == 0 || strncmp(fact, "code", 4) == 0 || strncmp(fact, "call", 4) == 0) {
            snprintf(expected, sizeof(expected), "%.20s pid=%d %.200s", facts[next % count][0], pid,
                     facts[next % count][1]);
            assert_string_equal(fact, expected);
            next++;
        }
    }
    assert_int_equal(next, times * count);
}

TEST(test_call_sites)
{
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    int32_t pid = lab_living(lab);
    hand_process(lab, pid);
    struct ring_header *ring = hand_ring(lab, 1, 64);
    struct writer writer = callsite_file_of(lab, 1);
    write_callsites(&writer);
    put_head(&writer, CALLSITE_FILE_TAG_STACK, 64); /* the next one is being written */
    assert_int_equal(fflush(writer.stream), 0);
    hand_callsite(ring, lab->begin + 1, 1);
    lab_drain(lab);
    hand_callsite(ring, lab->begin + 2, 2);
    hand_callsite(ring, lab->begin + 3, 1);
    lab_drain(lab);
    expect_callsites(log, pid, 1);
    assert_true(sink_start(log));
    lab_round(lab);
    expect_callsites(log, pid, 2);
    assert_int_equal(ftruncate(fileno(writer.stream), 30), 0); /* what cannot be read is not reported */
    assert_true(sink_start(log));
    lab_round(lab);
    expect_callsites(log, pid, 2);
    fclose(writer.stream);
    lab_sink_end(lab, log);
}

/* Written over after it was taken, with counts that no entry can have: then it is not emitted again. */
TEST(test_damaged_afterwards)
{
    const struct callsite_file_module module = {.base = 1, .end = 2, .build_id_bytes = UINT16_MAX, .path_bytes = 1};
    const struct callsite_file_code code = {.code = 7, .name_bytes = UINT16_MAX, .file_bytes = UINT16_MAX};
    const struct callsite_file_stack callsite = {.callsite = 1, .native_count = UINT16_MAX, .python_count = UINT16_MAX};
    long at[3] = {sizeof(struct callsite_file_entry)};
    struct lab *lab = lab_begin();
    struct sink_log *log = lab_sink(lab, 1);
    uint64_t pc = 0x10100;
    hand_process(lab, lab_living(lab));
    struct writer writer = callsite_file_of(lab, 1);
    put_module(&writer, 0, 0x10000, 0x1000, 0, "/bin/x", "id");
    at[1] = ftell(writer.stream) + (long)sizeof(struct callsite_file_entry);
    put_code(&writer, 7, "f", "m.py");
    at[2] = ftell(writer.stream) + (long)sizeof(struct callsite_file_entry);
    put_callsite(&writer, 1, &pc, 1, NULL, 0);
    put_native(&writer, 2, pc);
    hand_callsite(hand_ring(lab, 1, 64), lab->begin + 1, 2);
    lab_drain(lab);
    assert_int_equal(sink_facts(log, "module ") + sink_facts(log, "code "), 2);
    assert_int_equal(sink_facts(log, "callsite "), 2);
    assert_int_equal(pwrite(fileno(writer.stream), &module, sizeof(module), at[0]), sizeof(module));
    assert_int_equal(pwrite(fileno(writer.stream), &code, sizeof(code), at[1]), sizeof(code));
    assert_int_equal(pwrite(fileno(writer.stream), &callsite, sizeof(callsite), at[2]), sizeof(callsite));
    assert_true(sink_start(log));
    lab_round(lab);
    assert_int_equal(sink_facts(log, "module ") + sink_facts(log, "code "), 2);
    assert_int_equal(sink_facts(log, "callsite "), 2 + 1);
    fclose(writer.stream);
    lab_sink_end(lab, log);
}
