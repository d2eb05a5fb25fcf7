/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector over processes made by hand: what it stores and what it says about what it could not store
 * adds up for every ring; space goes back to a producer after the commit and not before; files go when their
 * rows are committed; and a collector that dies at any point leaves a directory from which `recover` makes
 * the same database, each event once.
 * Costs: 2 s
 */
#include "support/collector.h"
#include "trace/collector/collector.h"
#include "trace/collector/process.h"
#include "trace/collector/session/directory.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/model/derive/derive.h"
#include "trace/record.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"
#include "trace/trace.h"

#include <sys/stat.h>

#define CONSERVED "SELECT count(*) FROM thread WHERE emitted <> stored + lost + uncommitted"

static bool has_file(const struct lab *lab, bool in_rings, const char *name)
{
    char path[DIRECTORY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", in_rings ? lab->collector->directory.rings : lab->collector->directory.path,
             name);
    struct stat status;
    return stat(path, &status) == 0;
}

static void emit_marks(struct lab *lab, struct ring_header *ring, uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + at, 0, at);
    }
}

static void finish(struct lab *lab)
{
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    lab_expect(lab, CONSERVED, 0);
}

/* Each of 1 … last once, in this order. */
static void expect_marks(const struct lab *lab, int64_t last)
{
    lab_expect(lab, "SELECT count(*) FROM event WHERE kind = 15", last);
    lab_expect(lab, "SELECT count(DISTINCT arg) FROM event WHERE kind = 15", last);
    lab_expect(lab, "SELECT ifnull(max(arg), 0) FROM event WHERE kind = 15", last);
    lab_expect(lab,
               "SELECT count(*) FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE a.kind = 15 AND b.kind "
               "= 15 AND "
               "b.arg <> a.arg + 1",
               0);
}

/* ---- the ends of processes and rings ---- */

/* SIGKILL in the middle of the sixth event. */
TEST(test_killed_in_the_middle)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->parent_pid = (int32_t)getpid();
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 5);
    hand_begin(ring);
    lab_rounds(lab, 5000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    finish(lab);
    expect_marks(lab, 5);
    lab_expect(lab, "SELECT uncommitted FROM thread", 1);
    lab_expect(lab, "SELECT emitted FROM thread", 6);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_uncommitted'", 1);
    lab_expect(lab, "SELECT end_cause = 'signal' AND exit_status = 9 FROM process", 1);
    lab_end(lab);
}

/* How a child ended arrives by waitpid, maybe before its page was seen. */
TEST(test_exit_status_that_comes_first)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_dead();
    collect_process_reaped(lab->collector, pid, 3 << 8, 0);
    hand_process(lab, pid)->parent_pid = (int32_t)getpid();
    emit_marks(lab, hand_ring(lab, 1, 64), 1, 3);
    finish(lab);
    expect_marks(lab, 3);
    lab_expect(lab, "SELECT end_cause = 'exit' AND exit_status = 3 FROM process", 1);
    lab_end(lab);
}

/* A second image under the same pid that began at the same time: exec. */
TEST(test_exec_replaces)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->start_ticks_proc = 77;
    lab->controls[0]->state = PROCESS_STATE_EXECUTING;
    strcpy(lab->controls[0]->exec_path, "/bin/other");
    emit_marks(lab, hand_ring(lab, 1, 64), 1, 3);
    lab_rounds(lab, 5000000);
    hand_process(lab, pid)->start_ticks_proc = 77;
    emit_marks(lab, hand_ring(lab, 2, 64), 4, 6);
    lab_rounds(lab, 5000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    finish(lab);
    expect_marks(lab, 6);
    lab_expect(lab, "SELECT end_cause = 'exec' AND exit_status IS NULL FROM process WHERE id = 1", 1);
    lab_expect(lab, "SELECT end_cause = 'signal' FROM process WHERE id = 2", 1);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'processes_unrecorded'", 0);
    lab_end(lab);
}

/* A thread's ring goes while its process lives, and its number does not come back. */
TEST(test_retired_ring_goes)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 4);
    emit_marks(lab, hand_ring(lab, 1, 64), 5, 6);
    ring->state = RING_STATE_RETIRED;
    lab_rounds(lab, 5000000);
    bool is_pending = store_pending(lab->collector->store) == 6;  /* on a slow machine a commit came by itself */
    LAB_OK(lab, collector_commit(lab->collector, &lab->message)); /* its events, then its row */
    assert_true(!is_pending || has_file(lab, true, "p1.r1"));     /* the row is not committed yet */
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    assert_false(has_file(lab, true, "p1.r1"));
    assert_true(has_file(lab, true, "p1.r2"));
    lab_expect(lab, "SELECT stored FROM thread WHERE ring = 1", 4);
    finish(lab);
    expect_marks(lab, 6);
    lab_expect(lab, "SELECT end_cause = 'running' FROM process", 1);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'processes_running'", 1);
    lab_end(lab);
}

/* ---- space ---- */

TEST(test_space_is_handed_back_after_the_commit)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 1024);
    emit_marks(lab, ring, 1, 20);
    assert_int_equal(lab_rounds(lab, 2000000), 20);
    /* on a slow machine the time for a commit may have come already */
    assert_int_equal(ring->tail, 20 - store_pending(lab->collector->store));
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    assert_int_equal(ring->tail, 20);
    emit_marks(lab, ring, 21, 900); /* more than half of the ring: its thread could soon be short of space */
    lab_rounds(lab, 20000000);
    assert_int_equal(ring->tail, 900);
    emit_marks(lab, ring, 901, 910);
    lab_rounds(lab, 400000000); /* and in any case after a while */
    assert_int_equal(ring->tail, 910);
    finish(lab);
    expect_marks(lab, 910);
    lab_end(lab);
}

/* ---- what was lost ---- */

TEST(test_losses_are_in_the_rows)
{
    struct lab *lab = lab_begin();
    struct process_control *control = hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 5);
    ring->emitted += 7;
    ring->lost = 7;
    ring->lost_bytes = 700;
    ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] = 7;
    control->unattached = 3;
    control->unattached_bytes = 30;
    finish(lab);
    lab_expect(lab, "SELECT lost FROM thread", 7);
    lab_expect(lab, "SELECT lost_bytes FROM thread", 700);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_lost'", 7);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'bytes_lost'", 700);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_unattached'", 3);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_emitted'", 15);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_stored'", 5);
    lab_end(lab);
}

/* ---- records that are several events (trace/record_fold.h) ---- */

static void emit_block(struct ring_header *ring, enum varve_kind kind, uint64_t ticks, uint64_t dev_seq,
                       struct varve_record record)
{
    unsigned flags = varve_record_flags(&record);
    record.ticks = ticks;
    record.dev_seq_kind_flags = varve_record_tag(dev_seq, kind, flags);
    hand_begin(ring);
    hand_commit(ring, &record);
}

#define FOLDED .dev_seq_kind_flags = VARVE_FLAG_FOLDED

/* A block is cut from a segment of 1 MiB in one thread, freed and merged in another; the address is used again by the
 * first, whose clock is ahead: that record waits for all events of the free. */
static void emit_folded(struct lab *lab, struct ring_header *ring, struct ring_header *other)
{
    const uint64_t found = UINT64_C(2048) << 32 | 1;
    emit_block(ring, VARVE_KIND_SEGMENT_ALLOC, lab->begin + 1, 1,
               (struct varve_record){.addr = 65536, .size = 1 << 20, .requested = 4096, .arg = 1});
    emit_block(
        ring, VARVE_KIND_ALLOC, lab->begin + 2, 2,
        (struct varve_record){.addr = 65536, .size = 4096, .requested = 4000, .arg = found, .id_stream = 1, FOLDED});
    emit_block(
        ring, VARVE_KIND_ALLOC, lab->begin + 3, 7,
        (struct varve_record){.addr = 65536, .size = 512, .requested = 500, .arg = found, .id_stream = 2, FOLDED});
    emit_block(
        other, VARVE_KIND_FREE_REQUESTED, lab->begin + 4, 4,
        (struct varve_record){
            .addr = 65536, .size = 4096, .requested = 4000, .arg = 1, .id_stream = 1, .callsite = 2048 - 8, FOLDED});
}

TEST(test_folded_records)
{
    static const uint8_t kinds[] = {VARVE_KIND_SEGMENT_ALLOC,  VARVE_KIND_SPLIT,          VARVE_KIND_ALLOC,
                                    VARVE_KIND_FREE_REQUESTED, VARVE_KIND_FREE_COMPLETED, VARVE_KIND_MERGE,
                                    VARVE_KIND_SPLIT,          VARVE_KIND_ALLOC};
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    struct ring_header *other = hand_ring(lab, 1, 64);
    emit_folded(lab, ring, other);
    other->emitted += 2; /* two records are lost, of 4 events in all */
    other->lost = 2;
    other->lost_folded = 2;
    other->lost_by_kind[VARVE_KIND_FREE_REQUESTED] = other->lost_by_kind[VARVE_KIND_FREE_COMPLETED] = 2;
    finish(lab);
    for (size_t i = 0; i < sizeof(kinds); i++) {
        char sql[100];
        snprintf(sql, sizeof(sql), "SELECT kind FROM event WHERE seq = %zu AND dev_seq = %zu", i + 1, i + 1);
        lab_expect(lab, sql, kinds[i]);
    }
    lab_expect(lab, "SELECT count(*) FROM event", sizeof(kinds));
    lab_expect(lab, "SELECT max(ring_seq) FROM event WHERE thread_id = 1", 5);
    lab_expect(lab, "SELECT count(DISTINCT ring_seq) FROM event WHERE thread_id = 2", 3);
    lab_expect(lab, "SELECT count(*) FROM event WHERE callsite_id IS NOT NULL AND callsite_id <> 0", 0);
    lab_expect(lab, "SELECT requested FROM event WHERE seq = 2", (1 << 20) - 4096);
    lab_expect(lab, "SELECT arg FROM event WHERE seq = 6", 65536 + 4096);
    lab_expect(lab, "SELECT size FROM event WHERE seq = 6", 1 << 20);
    lab_expect(lab, "SELECT stored FROM thread WHERE ring = 1", 5);
    lab_expect(lab, "SELECT stored FROM thread WHERE ring = 2", 3);
    lab_expect(lab, "SELECT lost FROM thread WHERE ring = 2", 4);
    lab_expect(lab, "SELECT sum(emitted - stored - lost) FROM thread", 0);
    lab_expect(lab, "SELECT value FROM stats WHERE name = 'events_emitted'", 12);
    lab_end(lab);
}

/* Events of handlers that were put aside when their thread was killed; late events; both have their flags. */
TEST(test_nested_and_late_events)
{
    struct lab *lab = lab_begin();
    struct process_control *control = hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 2);
    hand_begin(ring); /* the append that the handler had interrupted */
    ring->nested[0] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + 3, 0, 3);
    ring->nested[1] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + 4, 0, 4);
    ring->nested[0].dev_seq_kind_flags |= VARVE_FLAG_NESTED;
    ring->nested[1].dev_seq_kind_flags |= VARVE_FLAG_NESTED;
    ring->nested_count = 2;
    struct ring_header *late = hand_ring_file(lab, 1, 0, 64);
    emit_marks(lab, late, 5, 6);
    control->late_created = 1;
    finish(lab);
    expect_marks(lab, 6);
    lab_expect(lab, "SELECT count(*) FROM event WHERE flags = 2 AND arg IN (3, 4)", 2);
    lab_expect(lab, "SELECT uncommitted FROM thread WHERE ring = 1", 1);
    lab_expect(lab, "SELECT stored FROM thread WHERE ring = 0", 2);
    lab_end(lab);
}

/* ---- a collector that dies ---- */

/* What it takes and what it commits before that. */
static void die_and_recover(unsigned commits, bool takes_more, bool has_orphans)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    uint64_t at = 0;
    LAB_OK(lab,
           store_meta_integer(lab->collector->store, "trace_id", (int64_t)lab->collector->directory.control->trace_id));
    hand_process(lab, pid);
    struct ring_header *rings[3];
    for (unsigned i = 0; i < 3; i++) {
        rings[i] = hand_ring(lab, 1, 256);
    }
    for (unsigned commit = 0; commit < commits; commit++) {
        for (unsigned i = 0; i < 50; i++) {
            at++;
            emit_marks(lab, rings[at % 3], at, at);
        }
        lab_rounds(lab, 2000000);
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    }
    for (unsigned i = 0; i < 50; i++) {
        at++;
        emit_marks(lab, rings[at % 3], at, at);
    }
    if (takes_more) {
        lab_rounds(lab, 2000000);
    }
    if (has_orphans) {
        at++;
        rings[1]->nested[0] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + at, 0, at);
        rings[1]->nested_count = 1;
    }
    lab_drop_collector(lab);
    lab_kill(lab, pid);
    char directory[128];
    snprintf(directory, sizeof(directory), "%s.d", lab->database);
    struct varve_collect_result result;
    LAB_OK(lab, varve_collect_recover(directory, NULL, NULL, NULL, NULL, &result, &lab->message));
    assert_int_equal(result.events, at);
    expect_marks(lab, (int64_t)at);
    lab_expect(lab, CONSERVED, 0);
    lab_expect(lab, "SELECT count(*) FROM thread", 3);
    lab_expect(lab, "SELECT sum(stored) FROM thread", (int64_t)at);
    assert_true(access(directory, F_OK) != 0);
    lab_end(lab);
}

TEST(test_recover_stores_each_event_once)
{
    die_and_recover(0, false, false);
    die_and_recover(0, true, false);
    die_and_recover(1, false, false);
    die_and_recover(3, true, false);
    die_and_recover(2, true, true);
}

/* It died between the commit and the release: the ring still shows what the database has already. */
TEST(test_death_between_commit_and_release)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    LAB_OK(lab,
           store_meta_integer(lab->collector->store, "trace_id", (int64_t)lab->collector->directory.control->trace_id));
    hand_process(lab, pid);
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 10);
    ring->nested[0] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + 11, 0, 11);
    ring->nested[1] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + 12, 0, 12);
    ring->nested_count = 2;
    lab_rounds(lab, 2000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    lab_rounds(lab, 2000000);
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    lab_expect(lab, "SELECT count(*) FROM event", 12);
    ring->tail = 0;
    ring->nested_count = 2;
    lab_drop_collector(lab);
    char directory[128];
    snprintf(directory, sizeof(directory), "%s.d", lab->database);
    struct varve_collect_result result;
    LAB_OK(lab, varve_collect_recover(directory, NULL, NULL, NULL, NULL, &result, &lab->message));
    expect_marks(lab, 12);
    lab_end(lab);
}

/* ---- many, and odd ---- */

/* Any kind, cause and flags, the same few addresses, sizes that no call would get: stored, and the sums
 * agree. */
static struct varve_record odd_record(uint64_t *random, uint64_t ticks)
{
    bool is_heap = random_next(random) % 3 != 0;
    unsigned kind = is_heap ? 32 + (unsigned)(random_next(random) % 16) : (unsigned)(random_next(random) % 256);
    struct varve_record record;
    memset(&record, 0, sizeof(record));
    record.ticks = ticks;
    record.addr = random_next(random) % 4 != 0 ? 0x1000 * (random_next(random) % 30) : random_next(random);
    record.size = random_next(random) % 3 != 0 ? 0x1000 * (random_next(random) % 9) : random_next(random) >> 24;
    record.arg = random_next(random) % 3 != 0 ? random_next(random) : 0x1000 * (random_next(random) % 30);
    record.requested = random_next(random) >> 24;
    record.id_stream = random_next(random);
    record.pool = (uint16_t)random_next(random);
    record.device = (uint8_t)random_next(random);
    record.cause = (uint8_t)random_next(random);
    record.dev_seq_kind_flags =
        varve_record_tag(random_next(random) >> 16, (enum varve_kind)kind,
                         (unsigned)(random_next(random) % 4 == 0 ? random_next(random) % 256 : 0));
    return record;
}

TEST(test_odd_records)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct lab *lab = lab_begin();
        uint64_t random = seed * 7919;
        unsigned unwritten = 0; /* no kind: zeros over a part of the ring */
        uint64_t events = 0;    /* more than records, where one has the flag that makes several of it */
        hand_process(lab, lab_dead());
        struct ring_header *rings[3];
        for (unsigned i = 0; i < 3; i++) {
            rings[i] = hand_ring(lab, 1, 1024);
        }
        for (unsigned i = 0; i < 3000; i++) {
            const struct varve_record record = odd_record(&random, lab->begin + 10 * i);
            unwritten += varve_record_kind(&record) == 0;
            struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
            events += varve_record_kind(&record) != 0 ? varve_record_unfold(&record, parts) : 0;
            hand_begin(rings[i % 3]);
            hand_commit(rings[i % 3], &record);
        }
        lab_drain(lab);
        LAB_OK(lab, derive_check(lab->collector->derive, &lab->message));
        finish(lab);
        lab_expect(lab, "SELECT count(*) FROM event", events);
        lab_expect(lab, "SELECT sum(stored) FROM thread", events);
        lab_expect(lab, "SELECT count(*) FROM event WHERE flags > 63", 0);
        lab_expect(lab, "SELECT sum(unreadable) FROM thread", unwritten);
        lab_expect(lab, "SELECT sum(emitted - stored - lost - uncommitted) FROM thread", 0);
        lab_end(lab);
    }
}

/* Threads come and go all the time, more of them than are open at once. */
TEST(test_many_short_rings)
{
    struct lab *lab = lab_begin();
    uint64_t at = 0;
    hand_process(lab, lab_living(lab));
    for (unsigned round = 0; round < 25; round++) {
        for (unsigned i = 0; i < 12; i++) {
            struct ring_header *ring = hand_ring(lab, 1, 64);
            at += 3;
            emit_marks(lab, ring, at - 2, at);
            ring->state = RING_STATE_RETIRED;
        }
        for (uint64_t moved = 0; moved < 36;) {
            moved += lab_rounds(lab, 300000);
        }
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
        assert_int_equal(lab->collector->reader_count, 0);
        while (lab->ring_count > 0) {
            lab->ring_count--;
            munmap(lab->rings[lab->ring_count].ring, lab->rings[lab->ring_count].bytes);
        }
    }
    finish(lab);
    expect_marks(lab, (int64_t)at);
    lab_expect(lab, "SELECT count(*) FROM thread", 300);
    assert_false(has_file(lab, true, "p1.r300"));
    lab_end(lab);
}
