/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sums over the death of a collector: what it had retired, closed and removed before it died is in the
 * sums of the one that recovers, once; numbers in pages that no program can have counted to are neither
 * followed nor added up.
 * Costs: 1 s
 */
#include "support/collector.h"
#include "trace/collector/collector.h"
#include "trace/collector/process.h"
#include "trace/format/ring.h"
#include "trace/record.h"
#include "trace/trace.h"

#define BIG 0xffffffffU

static void expect_stat(const struct lab *lab, const char *name, int64_t expected)
{
    char sql[160];
    snprintf(sql, sizeof(sql), "SELECT ifnull(sum(value), 0) FROM stats WHERE name = '%s'", name);
    lab_expect(lab, sql, expected);
}

static void recover(struct lab *lab, struct varve_collect_result *result)
{
    char directory[128];
    snprintf(directory, sizeof(directory), "%s.d", lab->database);
    LAB_OK(lab, varve_collect_recover(directory, NULL, NULL, NULL, NULL, result, &lab->message));
}

static void emit(const struct lab *lab, struct ring_header *ring, unsigned count)
{
    for (unsigned i = 1; i <= count; i++) {
        hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + i, 0, i);
    }
}

static void lose(struct ring_header *ring, unsigned count)
{
    ring->emitted += count;
    ring->lost += count;
    ring->lost_bytes += 100U * count;
    ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] += count;
}

/* Rows of what ended, committed; and once more, so that the files are gone. */
static void catch_up(struct lab *lab)
{
    for (unsigned i = 0; i < 3; i++) {
        lab_rounds(lab, 1000000);
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    }
}

TEST(test_what_ended_before)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->unattached = 7;
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit(lab, ring, 5);
    lose(ring, 3);
    ring = hand_ring(lab, 1, 64);
    lose(ring, 11); /* nothing of it is stored */
    lab_rounds(lab, 1000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    catch_up(lab);
    assert_int_equal(lab->collector->reader_count, 0);
    hand_process(lab, lab_dead())->unattached = 2;
    emit(lab, hand_ring(lab, 2, 64), 4);
    lab->collector->directory.counts->unattached = 1;
    lab_drop_collector(lab);
    struct varve_collect_result result;
    recover(lab, &result);
    expect_stat(lab, "events_emitted", 5 + 3 + 11 + 4 + 7 + 2 + 1);
    expect_stat(lab, "events_stored", 9);
    expect_stat(lab, "events_lost", 14);
    expect_stat(lab, "bytes_lost", 1400);
    expect_stat(lab, "events_unattached", 10);
    lab_expect(lab, "SELECT count(*) FROM thread", 3);
    lab_expect(lab, "SELECT sum(unattached) FROM process", 9);
    assert_int_equal(result.lost, 24);
    assert_int_equal(result.events, 9);
    lab_end(lab);
}

/* As a program may leave them that means harm, or one that wrote over its memory. */
TEST(test_numbers_of_the_pages)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead())->ring_count = BIG;
    lab->controls[0]->unattached = UINT64_MAX;
    emit(lab, hand_ring_file(lab, 1, 5, 64), 4);
    lab->collector->directory.counts->process_count = BIG;
    lab_drop_collector(lab);
    struct varve_collect_result result;
    recover(lab, &result);
    lab_expect(lab, "SELECT count(*) FROM event", 4);
    lab_expect(lab, "SELECT count(*) FROM thread", 1);
    lab_expect(lab, "SELECT count(*) FROM process", 1);
    lab_end(lab);
}

/* The same while it records: rounds end, and what is there is found. */
TEST(test_numbers_while_it_records)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->ring_count = BIG;
    emit(lab, hand_ring_file(lab, 1, 3, 64), 2);
    emit(lab, hand_ring_file(lab, 1, 9, 64), 3);
    lab->collector->directory.counts->process_count = BIG;
    hand_control(lab, 5, lab_dead());
    emit(lab, hand_ring_file(lab, 5, 1, 64), 4);
    lab->controls[4]->ring_count = 2;
    lab_rounds(lab, 2500000000U);
    hand_control(lab, 3, lab_dead()); /* late */
    emit(lab, hand_ring_file(lab, 3, 1, 64), 5);
    lab->controls[2]->ring_count = 2;
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    lab_expect(lab, "SELECT count(*) FROM event", 14);
    lab_expect(lab, "SELECT count(*) FROM process", 3);
    lab_end(lab);
}

/* Pages and rings that were made, as their makers have counted, and that are not there. */
TEST(test_made_and_gone)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead())->rings_made = 2; /* and the one that is there */
    emit(lab, hand_ring(lab, 1, 64), 4);
    lab->collector->directory.counts->process_pages = 2;
    lab_drop_collector(lab);
    struct varve_collect_result result;
    recover(lab, &result);
    lab_expect(lab, "SELECT value FROM data_loss WHERE name = 'rings_missing' AND idx = 1", 2);
    lab_expect(lab, "SELECT value FROM data_loss WHERE name = 'processes_missing'", 1);
    lab_end(lab);
}

static void emit_block(struct ring_header *ring, enum varve_kind kind, uint64_t dev_seq, unsigned flags,
                       struct varve_record record)
{
    record.dev_seq_kind_flags = varve_record_tag(dev_seq, kind, flags);
    hand_begin(ring);
    hand_commit(ring, &record);
}

/* The collector died when it had stored one event of two of a record: the other one is what comes next. */
TEST(test_half_a_folded_record)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_block(
        ring, VARVE_KIND_SEGMENT_ALLOC, 1, 0,
        (struct varve_record){.ticks = lab->begin + 1, .addr = 65536, .size = 1 << 20, .requested = 4096, .arg = 1});
    emit_block(ring, VARVE_KIND_ALLOC, 2, VARVE_FLAG_FOLDED,
               (struct varve_record){.ticks = lab->begin + 2,
                                     .addr = 65536,
                                     .size = 4096,
                                     .requested = 4000,
                                     .arg = UINT64_C(2048) << 32 | 1,
                                     .id_stream = 1});
    lab_rounds(lab, 1000000);
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    lab_drop_collector(lab);
    char path[128];
    snprintf(path, sizeof(path), "%s.d/trace.db", lab->database);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "DELETE FROM event WHERE seq = 3; DELETE FROM thread;"
                                  "INSERT OR REPLACE INTO ring_position SELECT 1, 1, 1, 1, 0, 2, 0, 0, 1, 1, 0, 0",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    struct varve_collect_result result;
    recover(lab, &result);
    lab_expect(lab, "SELECT count(*) FROM event", 3);
    lab_expect(lab, "SELECT kind FROM event WHERE seq = 2", VARVE_KIND_SPLIT);
    lab_expect(lab, "SELECT kind FROM event WHERE seq = 3 AND ring_seq = 3 AND dev_seq = 3", VARVE_KIND_ALLOC);
    lab_expect(lab, "SELECT stored FROM thread", 3);
    lab_expect(lab, "SELECT emitted FROM thread", 3);
    lab_end(lab);
}
