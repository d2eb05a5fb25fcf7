/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector over processes made by hand: what it stores and what it says about what it could not store
 * adds up for every ring; space goes back to a producer after the commit and not before; files go when their
 * rows are committed; and a collector that dies at any point leaves a directory from which `recover` makes
 * the same database, each event and each sum once. Numbers in pages that no program can have counted to are neither
 * followed nor added up.
 * Costs: 3 s
 */
#include "support/collector.h"
#include "trace/collector/collector.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/event_log.h"
#include "trace/store/store.h"
#include "trace/collect.h"
#include "trace/emit.h"
#include "trace/record_fold.h"

#include <sys/stat.h>

#define BIG 0xffffffffU

static bool has_file(const struct lab *lab, const char *name)
{
    struct stat status;
    return fstatat(lab->collector->directory.rings_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static void emit_marks(struct lab *lab, struct ring_header *ring, uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + at, 0, at);
    }
}

static void lose(struct ring_header *ring, unsigned count)
{
    ring->emitted += count;
    ring->lost += count;
    ring->lost_bytes += 100U * count;
    ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] += count;
}

/* Each of 1 … last once, in this order. */
static void expect_marks(const struct lab *lab, uint64_t last)
{
    char rows[64];
    snprintf(rows, sizeof(rows), "%llu %llu %llu\n", (unsigned long long)last, (unsigned long long)last,
             (unsigned long long)last);
    lab_rows(lab, "SELECT count(*), count(DISTINCT arg), max(arg) FROM event WHERE kind = 15", rows);
    lab_rows(lab,
             "SELECT a.arg, b.arg FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE a.kind = 15 AND b.kind = 15 AND "
             "b.arg <> a.arg + 1",
             "");
}

#define STATS(names) "SELECT name, value FROM stats WHERE name IN (" names ") ORDER BY name"
#define PROCESSES "SELECT id, end_cause, exit_status FROM process ORDER BY id"

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
    lab_finish(lab);
    expect_marks(lab, 5);
    lab_rows(lab, "SELECT emitted, uncommitted FROM thread", "6 1\n");
    lab_rows(lab, STATS("'events_uncommitted'"), "events_uncommitted 1\n");
    lab_rows(lab, PROCESSES, "1 signal 9\n");
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
    lab_finish(lab);
    expect_marks(lab, 3);
    lab_rows(lab, PROCESSES, "1 exit 3\n");
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
    lab_finish(lab);
    expect_marks(lab, 6);
    lab_rows(lab, "SELECT end_cause, exit_status IS NULL FROM process ORDER BY id", "exec 1\nsignal 0\n");
    lab_rows(lab, STATS("'processes_unrecorded'"), "processes_unrecorded 0\n");
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
    assert_true(!is_pending || has_file(lab, "p1.r1"));           /* the row is not committed yet */
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    assert_true(!has_file(lab, "p1.r1") && has_file(lab, "p1.r2"));
    lab_expect(lab, "SELECT stored FROM thread WHERE ring = 1", 4);
    lab_finish(lab);
    expect_marks(lab, 6);
    lab_rows(lab, PROCESSES, "1 running -\n");
    lab_rows(lab, STATS("'processes_running'"), "processes_running 1\n");
    lab_end(lab);
}

/* ---- space ---- */

/* Commits are made by a thread: rounds until the space comes back, or for too long. */
static void expect_tail(struct lab *lab, const struct ring_header *ring, uint64_t tail)
{
    for (unsigned tries = 0; ring->tail != tail && tries < 10000; tries++) {
        lab_rounds(lab, 1000000);
    }
    assert_int_equal(ring->tail, tail);
}

TEST(test_space_is_handed_back_after_the_commit)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 1024);
    emit_marks(lab, ring, 1, 20);
    assert_int_equal(lab_rounds(lab, 2000000), 20);
    /* on a slow machine the time for a commit may have come already */
    while (lab->collector->is_committing) {
        lab_rounds(lab, 1);
    }
    assert_int_equal(ring->tail, 20 - store_pending(lab->collector->store));
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    assert_int_equal(ring->tail, 20);
    emit_marks(lab, ring, 21, 900); /* more than half of the ring: its thread could soon be short of space */
    lab_rounds(lab, 20000000);
    assert_int_equal(store_pending(lab->collector->store), 0); /* a commit was begun before its time */
    expect_tail(lab, ring, 900);
    emit_marks(lab, ring, 901, 910);
    expect_tail(lab, ring, 910); /* and in any case after a while */
    lab_finish(lab);
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
    lose(ring, 7);
    control->unattached = 3;
    control->unattached_bytes = 30;
    lab_finish(lab);
    lab_rows(lab, "SELECT lost, lost_bytes FROM thread", "7 700\n");
    lab_rows(lab, STATS("'events_lost', 'bytes_lost', 'events_unattached', 'events_emitted', 'events_stored'"),
             "bytes_lost 700\nevents_emitted 15\nevents_lost 7\nevents_stored 5\nevents_unattached 3\n");
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
#define FOUND (UINT64_C(2048) << 32 | 1)

static void emit_cut(struct lab *lab, struct ring_header *ring)
{
    emit_block(ring, VARVE_KIND_SEGMENT_ALLOC, lab->begin + 1, 1,
               (struct varve_record){.addr = 65536, .size = 1 << 20, .requested = 4096, .arg = 1});
    emit_block(
        ring, VARVE_KIND_ALLOC, lab->begin + 2, 2,
        (struct varve_record){.addr = 65536, .size = 4096, .requested = 4000, .arg = FOUND, .id_stream = 1, FOLDED});
}

/* A block is cut from a segment of 1 MiB in one thread, freed and merged in another; the address is used again by the
 * first, whose clock is ahead: that record waits for all events of the free. */
TEST(test_folded_records)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead());
    struct ring_header *ring = hand_ring(lab, 1, 64);
    struct ring_header *other = hand_ring(lab, 1, 64);
    emit_cut(lab, ring);
    emit_block(
        ring, VARVE_KIND_ALLOC, lab->begin + 3, 7,
        (struct varve_record){.addr = 65536, .size = 512, .requested = 500, .arg = FOUND, .id_stream = 2, FOLDED});
    emit_block(
        other, VARVE_KIND_FREE_REQUESTED, lab->begin + 4, 4,
        (struct varve_record){
            .addr = 65536, .size = 4096, .requested = 4000, .arg = 1, .id_stream = 1, .callsite = 2048 - 8, FOLDED});
    other->emitted += 2; /* two records are lost, of 4 events in all */
    other->lost = 2;
    other->lost_folded = 2;
    other->lost_by_kind[VARVE_KIND_FREE_REQUESTED] = other->lost_by_kind[VARVE_KIND_FREE_COMPLETED] = 2;
    lab_finish(lab);
    lab_rows(lab, "SELECT seq, dev_seq, kind FROM events ORDER BY seq",
             "1 1 segment_alloc\n2 2 split\n3 3 alloc\n4 4 free_requested\n5 5 free_completed\n6 6 merge\n7 7 split\n"
             "8 8 alloc\n");
    lab_rows(lab, "SELECT max(ring_seq), count(DISTINCT ring_seq) FROM event GROUP BY thread_id", "5 5\n3 3\n");
    lab_rows(lab, "SELECT seq FROM event WHERE callsite_id IS NOT NULL AND callsite_id <> 0", "");
    lab_expect(lab, "SELECT requested FROM event WHERE seq = 2", (1 << 20) - 4096);
    lab_expect(lab, "SELECT arg FROM event WHERE seq = 6", 65536 + 4096);
    lab_expect(lab, "SELECT size FROM event WHERE seq = 6", 1 << 20);
    lab_rows(lab, "SELECT ring, emitted, stored, lost FROM thread", "1 5 5 0\n2 7 3 4\n");
    lab_rows(lab, STATS("'events_emitted'"), "events_emitted 12\n");
    lab_end(lab);
}

/* The collector died when it had stored one event of two of a record: the other one is what comes next. */
struct taken {
    struct event events[8];
    unsigned count;
};

static int take_event(void *context, struct event *event, bool is_held)
{
    struct taken *taken = context;
    assert_false(is_held);
    assert_true(taken->count < 8);
    taken->events[taken->count++] = *event;
    return VARVE_OK;
}

/* The log of the recording ends behind its first `count` events. Returns its length. */
static unsigned long long log_cut(const struct lab *lab, unsigned count)
{
    char path[160];
    struct taken taken = {.count = 0};
    struct event_log *log;
    struct varve_message message;
    struct stat status;
    snprintf(path, sizeof(path), "%s.d/trace.db-events", lab->database);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(event_log_resume(path, (uint64_t)status.st_size, &log, &message), VARVE_OK);
    assert_int_equal(event_log_each(log, take_event, &taken, &message), VARVE_OK);
    event_log_close(log);
    assert_true(taken.count > count);
    assert_int_equal(event_log_create(path, &log, &message), VARVE_OK);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(event_log_append(log, &taken.events[i], false), VARVE_OK);
    }
    assert_int_equal(event_log_flush(log, &message), VARVE_OK);
    unsigned long long bytes = event_log_bytes(log);
    event_log_close(log);
    return bytes;
}

TEST(test_half_a_folded_record)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead());
    emit_cut(lab, hand_ring(lab, 1, 64));
    lab_rounds(lab, 1000000);
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    lab_drop_collector(lab);
    char path[128];
    snprintf(path, sizeof(path), "%s.d/trace.db", lab->database);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char sql[512];
    snprintf(sql, sizeof(sql),
             "DELETE FROM thread; UPDATE meta SET value = 2 WHERE key = 'events_taken'; UPDATE meta SET value = %llu "
             "WHERE key = 'events_bytes';"
             "INSERT OR REPLACE INTO ring_position SELECT 1, 1, 1, 1, 0, 2, 0, 0, 1, 1, 0, 0",
             log_cut(lab, 2));
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    lab_recover(lab);
    lab_rows(lab, "SELECT seq, ring_seq, dev_seq, kind FROM events ORDER BY seq",
             "1 1 1 segment_alloc\n2 2 2 split\n3 3 3 alloc\n");
    lab_rows(lab, "SELECT emitted, stored FROM thread", "3 3\n");
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
    hand_put_aside(lab, ring, 3, 2);
    emit_marks(lab, hand_ring_file(lab, 1, 0, 64), 5, 6);
    control->late_created = 1;
    lab_finish(lab);
    expect_marks(lab, 6);
    lab_rows(lab, "SELECT arg FROM event WHERE flags = 2", "3\n4\n");
    lab_rows(lab, "SELECT ring, stored, uncommitted FROM thread ORDER BY ring", "0 2 0\n1 4 1\n");
    lab_end(lab);
}

/* ---- a collector that dies ---- */

static struct ring_header *begin_recoverable(struct lab *lab, unsigned rings, uint32_t capacity)
{
    LAB_OK(lab,
           store_meta_integer(lab->collector->store, "trace_id", (int64_t)lab->collector->directory.control->trace_id));
    hand_process(lab, lab_living(lab));
    for (unsigned i = 0; i < rings; i++) {
        hand_ring(lab, 1, capacity);
    }
    return lab->rings[0].ring;
}

/* What it takes and what it commits before that. */
static void die_and_recover(unsigned commits, bool takes_more, bool has_orphans)
{
    struct lab *lab = lab_begin();
    uint64_t at = 0;
    begin_recoverable(lab, 3, 256);
    for (unsigned commit = 0; commit <= commits; commit++) {
        for (unsigned i = 0; i < 50; i++) {
            at++;
            emit_marks(lab, lab->rings[at % 3].ring, at, at);
        }
        if (commit < commits || takes_more) {
            lab_rounds(lab, 2000000);
        }
        if (commit < commits) {
            LAB_OK(lab, collector_commit(lab->collector, &lab->message));
        }
    }
    if (has_orphans) {
        hand_put_aside(lab, lab->rings[1].ring, ++at, 1);
    }
    lab_drop_collector(lab);
    lab_kill(lab, lab->holders[0]);
    assert_int_equal(lab_recover(lab).events, at);
    expect_marks(lab, at);
    lab_expect(lab, "SELECT sum(stored) FROM thread", (int64_t)at);
    lab_expect(lab, "SELECT count(*) FROM thread", 3);
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

static void emit_heap(struct lab *lab, unsigned at, enum varve_kind kind, enum varve_cause cause, uint64_t addr,
                      uint64_t size, uint64_t arg, unsigned flags)
{
    emit_block(lab->rings[0].ring, kind, lab->begin + at, 0,
               (struct varve_record){.addr = addr,
                                     .size = size,
                                     .requested = size,
                                     .arg = arg,
                                     .cause = (uint8_t)cause,
                                     .dev_seq_kind_flags = flags});
}

#define REALLOC_EVENTS "SELECT seq, kind, cause, flags, addr, size, arg, id FROM event ORDER BY seq"

/* Reallocs that fail, stay where they were, and move: most of their events are held by rows of allocations, and all are
 * seen once. After a failed one the block is freed in a signal handler: by an event with a row of its own. */
static void realloc_events(bool dies)
{
    struct lab *lab = lab_begin();
    begin_recoverable(lab, 1, 64);
    emit_heap(lab, 1, VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC, 4096, 100, 0, 0);
    emit_heap(lab, 2, VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 4096, 0, 0, 0);
    emit_heap(lab, 3, VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 4096, 7777, 4096, VARVE_FLAG_FAILED);
    emit_heap(lab, 4, VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 4096, 0, 0, VARVE_FLAG_NESTED);
    emit_heap(lab, 5, VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_CALLOC, 8192, 50, 0, 0);
    emit_heap(lab, 6, VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 8192, 0, 0, 0);
    emit_heap(lab, 7, VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 8192, 60, 8192, 0);
    emit_heap(lab, 8, VARVE_KIND_HEAP_FREE, VARVE_CAUSE_REALLOC, 8192, 0, 0, 0);
    emit_heap(lab, 9, VARVE_KIND_HEAP_REALLOC, VARVE_CAUSE_REALLOC, 16384, 70, 8192, 0);
    emit_heap(lab, 10, VARVE_KIND_HEAP_FREE, VARVE_CAUSE_FREE, 16384, 0, 0, 0);
    if (dies) {
        lab_rounds(lab, 2000000);
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
        lab_drop_collector(lab);
        lab_kill(lab, lab->holders[0]);
        lab_recover(lab);
    } else {
        lab_finish(lab);
    }
    lab_rows(lab, REALLOC_EVENTS,
             "1 32 16 0 4096 100 0 1\n2 33 18 0 4096 100 - 1\n3 34 18 1 4096 7777 4096 1\n4 33 25 2 4096 100 - 1\n"
             "5 32 17 0 8192 50 0 2\n6 33 18 0 8192 50 - 2\n7 34 18 0 8192 60 8192 3\n8 33 18 0 8192 60 - 3\n"
             "9 34 18 0 16384 70 8192 4\n10 33 25 0 16384 70 - 4\n");
    lab_rows(lab, "SELECT seq FROM event_row WHERE kind BETWEEN 32 AND 34 ORDER BY seq", "2\n3\n4\n9\n");
    lab_end(lab);
}

TEST(test_events_of_reallocs)
{
    realloc_events(false);
    realloc_events(true);
}

/* It died between the commit and the release: the ring still shows what the database has already. */
TEST(test_death_between_commit_and_release)
{
    struct lab *lab = lab_begin();
    struct ring_header *ring = begin_recoverable(lab, 1, 64);
    pid_t pid = lab->holders[0];
    emit_marks(lab, ring, 1, 10);
    hand_put_aside(lab, ring, 11, 2);
    lab_rounds(lab, 2000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    lab_rounds(lab, 2000000);
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    lab_expect(lab, "SELECT value FROM meta WHERE key = 'events_taken'", 12);
    ring->tail = 0;
    ring->nested_count = 2;
    lab_drop_collector(lab);
    lab_recover(lab);
    expect_marks(lab, 12);
    lab_end(lab);
}

static void note_unrecordable(const struct lab *lab, const char *path)
{
    struct session_counts *counts = lab->collector->directory.counts;
    struct session_exec *slot = &counts->execs[counts->execs_noted];
    slot->kind = EXEC_KIND_BEGUN;
    slot->reason = EXEC_REASON_STATIC;
    slot->order = ++counts->execs_noted;
    strcpy(slot->path, path);
    slot->state = EXEC_STATE_WRITTEN;
    counts->execs_written++;
}

/* The same with notes of programs that can't be recorded: of one its commit was made and of the other one not. */
TEST(test_death_between_commit_and_notes)
{
    struct lab *lab = lab_begin();
    begin_recoverable(lab, 1, 64);
    struct session_exec *slots = lab->collector->directory.counts->execs;
    note_unrecordable(lab, "/bin/stored");
    lab_rounds(lab, 2000000);
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    assert_int_equal(slots[0].state, EXEC_STATE_FREE);
    slots[0].state = EXEC_STATE_COUNTED;
    note_unrecordable(lab, "/bin/counted");
    lab_rounds(lab, 2000000);
    note_unrecordable(lab, "/bin/written");
    lab_drop_collector(lab);
    lab_kill(lab, lab->holders[0]);
    lab_recover(lab);
    lab_rows(lab, "SELECT path, count FROM unrecorded_program ORDER BY path",
             "/bin/counted 1\n/bin/stored 1\n/bin/written 1\n");
    lab_end(lab);
}

/* What it had retired, closed and removed before it died is in the sums of the one that recovers, once. */
TEST(test_sums_of_what_ended_before)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->unattached = 7;
    struct ring_header *ring = hand_ring(lab, 1, 64);
    emit_marks(lab, ring, 1, 5);
    lose(ring, 3);
    lose(hand_ring(lab, 1, 64), 11); /* nothing of it is stored */
    lab_rounds(lab, 1000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    for (unsigned i = 0; i < 3; i++) { /* rows of what ended, committed; and once more, so that the files are gone */
        lab_rounds(lab, 1000000);
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
    }
    assert_int_equal(lab->collector->reader_count, 0);
    hand_process(lab, lab_dead())->unattached = 2;
    emit_marks(lab, hand_ring(lab, 2, 64), 1, 4);
    lab->collector->directory.counts->unattached = 1;
    lab_drop_collector(lab);
    struct varve_collect_result result = lab_recover(lab);
    lab_rows(lab, STATS("'events_emitted', 'events_stored', 'events_lost', 'bytes_lost', 'events_unattached'"),
             "bytes_lost 1400\nevents_emitted 33\nevents_lost 14\nevents_stored 9\nevents_unattached 10\n");
    lab_rows(lab, "SELECT (SELECT count(*) FROM thread), sum(unattached) FROM process", "3 9\n");
    assert_int_equal(result.lost, 24);
    assert_int_equal(result.events, 9);
    lab_end(lab);
}

#define COUNTS "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM thread), count(*) FROM process"

/* As a program may leave them that means harm, or one that wrote over its memory. */
TEST(test_numbers_of_the_pages)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead())->ring_count = BIG;
    lab->controls[0]->unattached = UINT64_MAX;
    emit_marks(lab, hand_ring_file(lab, 1, 5, 64), 1, 4);
    lab->collector->directory.counts->process_count = BIG;
    lab_drop_collector(lab);
    lab_recover(lab);
    lab_rows(lab, COUNTS, "4 1 1\n");
    lab_end(lab);
}

/* The same while it records: rounds end, and what is there is found. */
TEST(test_numbers_while_it_records)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->ring_count = BIG;
    emit_marks(lab, hand_ring_file(lab, 1, 3, 64), 1, 2);
    emit_marks(lab, hand_ring_file(lab, 1, 9, 64), 1, 3);
    lab->collector->directory.counts->process_count = BIG;
    hand_control(lab, 5, lab_dead());
    emit_marks(lab, hand_ring_file(lab, 5, 1, 64), 1, 4);
    lab->controls[4]->ring_count = 2;
    lab_rounds(lab, 2500000000U);
    hand_control(lab, 3, lab_dead()); /* late */
    emit_marks(lab, hand_ring_file(lab, 3, 1, 64), 1, 5);
    lab->controls[2]->ring_count = 2;
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    lab_finish(lab);
    lab_rows(lab, COUNTS, "14 4 3\n");
    lab_end(lab);
}

/* Pages and rings that were made, as their makers have counted, and that are not there. */
TEST(test_made_and_gone)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_dead())->rings_made = 2; /* and the one that is there */
    emit_marks(lab, hand_ring(lab, 1, 64), 1, 4);
    lab->collector->directory.counts->process_pages = 2;
    lab_drop_collector(lab);
    lab_recover(lab);
    lab_rows(lab, "SELECT name, value FROM data_loss WHERE name LIKE '%s_missing' ORDER BY name",
             "processes_missing 1\nrings_missing 2\n");
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
        for (unsigned i = 0; i < 3; i++) {
            hand_ring(lab, 1, 1024);
        }
        for (unsigned i = 0; i < 3000; i++) {
            const struct varve_record record = odd_record(&random, lab->begin + 10 * i);
            unwritten += varve_record_kind(&record) == 0;
            struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
            events += varve_record_kind(&record) != 0 ? varve_record_unfold(&record, parts) : 0;
            hand_begin(lab->rings[i % 3].ring);
            hand_commit(lab->rings[i % 3].ring, &record);
        }
        lab_drain(lab);
        LAB_OK(lab, derive_check(lab->collector->derive, &lab->message));
        lab_finish(lab);
        char rows[64];
        snprintf(rows, sizeof(rows), "%u %u %u\n", (unsigned)events, (unsigned)events, unwritten);
        lab_rows(lab, "SELECT (SELECT count(*) FROM event WHERE flags <= 63), sum(stored), sum(unreadable) FROM thread",
                 rows);
        lab_expect(lab, "SELECT count(*) FROM event WHERE flags > 63", 0);
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
    lab_finish(lab);
    expect_marks(lab, at);
    lab_expect(lab, "SELECT count(*) FROM thread", 300);
    assert_false(has_file(lab, "p1.r300"));
    lab_end(lab);
}
