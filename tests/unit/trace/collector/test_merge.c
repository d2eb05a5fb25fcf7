/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings into one order. By time where the clocks agree; where two CPUs read them the wrong way round by a few
 * us, a block is still freed before its address is handed out again, and each ring keeps its own order. No
 * event is merged while an older one may still come from a ring with an event in the middle. Numbers of rings and
 * processes that were taken, but whose file is not there yet: their owner may be about to bring an event older than all
 * others, may be stopped, or dead. The merge waits a second at most, once for all that is missing; what comes later is
 * stored all the same.
 * Costs: 5 s
 */
#include "base/monotonic.h"
#include "support/collector.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "trace/format/ring_format.h"
#include "trace/record.h"

#define EVENTS 3000U
#define RINGS_MOST 6U

/* ---- what happened, in its true order ---- */

struct step {
    bool is_alloc;
    unsigned ring;
    uint64_t addr, ticks;
    unsigned of_alloc; /* frees: the step that allocated */
};

struct story {
    unsigned rings, pool; /* pool: addresses that are used again and again */
    uint64_t jitter_ns;   /* a clock is read so much too early or too late */
    uint64_t pace_ns;     /* at most between two steps */
    uint64_t random;
    struct step steps[EVENTS];
};

static void emit_story(struct story *story, uint64_t begin)
{
    unsigned live[64] = {0}; /* step + 1 that allocated the address */
    uint64_t newest[RINGS_MOST] = {0};
    uint64_t now = begin + 10 * story->jitter_ns;
    assert_true(story->pool <= 64 && story->rings <= RINGS_MOST);
    for (unsigned i = 0; i < EVENTS; i++) {
        struct step *step = &story->steps[i];
        unsigned at = (unsigned)(random_next(&story->random) % story->pool);
        uint64_t jitter = story->jitter_ns > 0 ? random_next(&story->random) % (2 * story->jitter_ns) : 0;
        now += random_next(&story->random) % (story->pace_ns + 1);
        step->ring = (unsigned)(random_next(&story->random) % story->rings);
        step->addr = 0x1000 + 16 * (uint64_t)at;
        step->is_alloc = live[at] == 0;
        step->of_alloc = live[at] - 1;
        live[at] = step->is_alloc ? i + 1 : 0;
        step->ticks = now + jitter - story->jitter_ns;
        if (step->ticks < newest[step->ring]) {
            step->ticks = newest[step->ring]; /* one thread's clock does not go back */
        }
        newest[step->ring] = step->ticks;
    }
}

static void emit_step(struct ring_header *const *rings, const struct story *story, unsigned i)
{
    const struct step *step = &story->steps[i];
    hand_emit(rings[step->ring], step->is_alloc ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE, step->ticks, step->addr,
              i + 1);
}

/* ---- what the database says ---- */

#define IN_ORDER "SELECT group_concat(arg, '') FROM (SELECT arg FROM event ORDER BY seq)"

/* Each ring in its own order, each free of the allocation that it was of. */
static void check_story(const struct lab *lab, const struct story *story)
{
    sqlite3 *db = lab_database(lab);
    sqlite3_stmt *insert;
    sqlite3_exec(db, "CREATE TEMP TABLE step(id INTEGER PRIMARY KEY, ring, is_alloc, addr, of_alloc)", NULL, NULL,
                 NULL);
    assert_int_equal(sqlite3_prepare_v2(db, "INSERT INTO step VALUES(?, ?, ?, ?, ?)", -1, &insert, NULL), SQLITE_OK);
    for (int i = 0; i < (int)EVENTS; i++) {
        const struct step *step = &story->steps[i];
        const int64_t values[] = {i + 1, step->ring + 1, step->is_alloc, (int64_t)step->addr, step->of_alloc + 1};
        for (int k = 0; k < 5; k++) {
            sqlite3_bind_int64(insert, k + 1, values[k]);
        }
        assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    assert_int_equal(
        sqlite3_exec(db,
                     "CREATE TEMP TABLE found AS SELECT s.*, e.addr AS found, e.kind = 32 AS is_found, "
                     "e.id AS allocation, e.seq FROM (SELECT *, row_number() OVER (PARTITION BY ring ORDER "
                     "BY id) AS n FROM step) s LEFT JOIN (SELECT e.*, ring, row_number() OVER (PARTITION "
                     "BY ring ORDER BY seq) AS n FROM event e JOIN thread t ON t.id = e.thread_id) e "
                     "USING (ring, n); CREATE INDEX temp.found_id ON found(id)",
                     NULL, NULL, NULL),
        SQLITE_OK);
    query_expect(db, "SELECT ring, id, seq FROM found WHERE (addr, is_alloc) IS NOT (found, is_found) LIMIT 5", "");
    query_expect(
        db,
        "SELECT f.id, f.allocation, a.allocation FROM found f LEFT JOIN found a ON a.id = f.of_alloc WHERE NOT "
        "f.is_alloc AND (f.allocation = 0 OR f.allocation IS NOT a.allocation) LIMIT 5",
        "");
    assert_int_equal(query_integer(db, "SELECT count(*) FROM event"), EVENTS);
    sqlite3_close(db);
}

static void run_story(unsigned rings_count, unsigned pool, uint64_t jitter_ns, uint64_t pace_ns, uint64_t seed,
                      bool is_live)
{
    static struct story story;
    struct lab *lab = lab_begin();
    unsigned done = 0;
    story =
        (struct story){.rings = rings_count, .pool = pool, .jitter_ns = jitter_ns, .pace_ns = pace_ns, .random = seed};
    emit_story(&story, lab->begin);
    hand_process(lab, lab_living(lab));
    struct ring_header *rings[RINGS_MOST];
    for (unsigned i = 0; i < rings_count; i++) {
        rings[i] = hand_ring(lab, 1, 4096);
        rings[i]->emitted += is_live ? 1 : 0; /* always in the middle of one: its next may be as old as its last */
    }
    while (done < EVENTS) {
        unsigned until = is_live ? done + 1 + (unsigned)(random_next(&story.random) % 100) : EVENTS;
        for (; done < until && done < EVENTS; done++) {
            emit_step(rings, &story, done);
        }
        if (is_live) {
            lab_round(lab);
        }
    }
    for (unsigned i = 0; i < rings_count; i++) {
        rings[i]->emitted = rings[i]->head;
    }
    lab_finish(lab);
    check_story(lab, &story);
    lab_end(lab);
}

TEST(test_pairs_with_exact_clocks)
{
    run_story(1, 4, 0, 300, 1, false);
    run_story(2, 1, 0, 300, 2, false);
    run_story(6, 20, 0, 300, 3, false);
    run_story(4, 8, 0, 300, 4, true);
}

/* Nanoseconds: two CPUs in a hurry. Many addresses, so that chains of inversions do not build up. */
TEST(test_pairs_with_close_clocks)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(4, 4); seed++) {
        run_story(2, 4, 40, 400, seed, false);
        run_story(6, 64, 40, 100, seed, seed % 2 == 0);
    }
}

/* Microseconds, ties and chains: an allocation waits for a free that is itself behind a waiting allocation.
 */
TEST(test_pairs_with_wrong_clocks)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(4, 4); seed++) {
        run_story(2, 64, 1500, 1000, seed, seed % 2 == 0);
        run_story(3, 64, 1500, 2000, seed, seed % 2 == 1);
        run_story(6, 64, 1500, 2000, seed, seed % 2 == 0);
    }
}

/* Both clocks say the same, or the free seems to come first: its allocation is in the other ring, which is
 * looked at first once and last once. A mapping likewise, and a realloc. */
TEST(test_frees_wait_for_their_allocation)
{
    static const enum varve_kind kinds[][2] = {{VARVE_KIND_HEAP_ALLOC, VARVE_KIND_HEAP_FREE},
                                               {VARVE_KIND_HEAP_REALLOC, VARVE_KIND_HEAP_FREE},
                                               {VARVE_KIND_MMAP, VARVE_KIND_MUNMAP}};
    struct lab *lab = lab_begin();
    uint64_t addr = 0x10000, count = 0;
    hand_process(lab, lab_living(lab));
    struct ring_header *rings[2];
    rings[0] = hand_ring(lab, 1, 64);
    rings[1] = hand_ring(lab, 1, 64);
    for (unsigned i = 0; i < 3 * 2 * 2; i++, addr += 0x1000, count++) {
        uint64_t ticks = lab->begin + 1000000 * (uint64_t)i;
        struct varve_record alloc = hand_record(kinds[i % 3][0], ticks + (i % 2 == 0 ? 0 : 300), addr, 0);
        struct varve_record release = hand_record(kinds[i % 3][1], ticks, addr, 0);
        alloc.size = release.size = 0x1000;
        alloc.cause = kinds[i % 3][0] == VARVE_KIND_MMAP ? VARVE_CAUSE_MMAP : VARVE_CAUSE_MALLOC;
        for (unsigned k = 0; k < 2; k++) {
            hand_begin(rings[k]);
            hand_commit(rings[k], k == i / 6 ? &alloc : &release);
        }
    }
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM event WHERE id = 0", 0);
    lab_expect(lab, "SELECT count(*) FROM allocation WHERE free_ns IS NOT NULL", (int64_t)count);
    lab_end(lab);
}

/* A free of what nobody allocated waits for a moment, not forever, and nothing of its ring overtakes it. */
TEST(test_free_of_nothing_goes_on)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    struct ring_header *other = hand_ring(lab, 1, 64);
    hand_emit(ring, VARVE_KIND_HEAP_FREE, lab->begin + 1000, 0x1000, 0);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, lab->begin + 1001, 0, 3);
    hand_emit(other, VARVE_KIND_MARK_BEGIN, lab->begin + 2000, 0, 1);
    hand_emit(other, VARVE_KIND_MARK_BEGIN, lab->begin + 2 * MERGE_HOLD_BACK_NS, 0, 4);
    assert_int_equal(lab_rounds(lab, 20000000), 4);
    lab_finish(lab);
    lab_expect(lab, IN_ORDER, 134);
    lab_expect(lab, "SELECT seq FROM event WHERE addr = 4096", 2);
    lab_end(lab);
}

/* However many such frees a ring has, it is behind by one wait: each is taken when its own is over. The clock of the
 * rounds does not get there, the watermark is set here. */
TEST(test_many_frees_of_nothing_wait_once)
{
    struct lab *lab = lab_begin();
    uint64_t first = lab->begin + UINT64_C(100000000000);
    hand_process(lab, lab_living(lab));
    struct ring_header *rings[2];
    for (unsigned i = 0; i < 2; i++) {
        rings[i] = hand_ring(lab, 1, 1024);
    }
    for (unsigned i = 0; i < 1000; i++) {
        hand_emit(rings[i % 2], VARVE_KIND_HEAP_FREE, first + 1000 * (uint64_t)i, 0x1000 + 16 * i, 0);
    }
    lab_rounds(lab, 1000000);
    assert_int_equal(lab->collector->seq, 0);
    uint64_t moved;
    for (unsigned i = 0; i < 1000; i += 100) {
        lab->collector->watermark = first + MERGE_HOLD_BACK_NS + 1000 * (uint64_t)i;
        LAB_OK(lab, merge_run(lab->collector, &moved, &lab->message));
        assert_int_equal(lab->collector->seq, i + 1);
    }
    lab_end(lab);
}

/* ---- by time ---- */

TEST(test_order_is_by_time)
{
    struct lab *lab = lab_begin();
    uint64_t ticks[RINGS_MOST], random = 5;
    hand_process(lab, lab_living(lab));
    struct ring_header *rings[RINGS_MOST];
    for (unsigned i = 0; i < RINGS_MOST; i++) {
        rings[i] = hand_ring(lab, 1, 1024);
        ticks[i] = lab->begin;
    }
    for (unsigned i = 0; i < EVENTS; i++) {
        unsigned at = (unsigned)(random_next(&random) % RINGS_MOST);
        ticks[at] += random_next(&random) % 2000;
        hand_emit(rings[at], VARVE_KIND_MARK_BEGIN, ticks[at], 0, i + 1);
    }
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM event", EVENTS);
    lab_rows(lab, "SELECT a.seq FROM event a JOIN event b ON b.seq = a.seq + 1 WHERE b.ts_ns < a.ts_ns", "");
    lab_end(lab);
}

/* ---- the watermark ---- */

/* An event that was begun may be as old as the last one of its ring: what is younger waits for it. */
TEST(test_event_in_the_middle_holds_others_back)
{
    struct lab *lab = lab_begin();
    uint64_t ticks = lab->begin;
    hand_process(lab, lab_living(lab));
    struct ring_header *slow = hand_ring(lab, 1, 64);
    struct ring_header *fast = hand_ring(lab, 1, 64);
    hand_emit(slow, VARVE_KIND_MARK_BEGIN, ticks + 10, 0, 1);
    hand_begin(slow);
    hand_emit(fast, VARVE_KIND_MARK_BEGIN, ticks + 5, 0, 2);
    hand_emit(fast, VARVE_KIND_MARK_BEGIN, ticks + 20, 0, 3);
    assert_int_equal(lab_rounds(lab, 20000000), 2); /* 2 and 1, not 3 */
    struct varve_record record = hand_record(VARVE_KIND_MARK_BEGIN, ticks + 15, 0, 4);
    hand_commit(slow, &record);
    assert_int_equal(lab_rounds(lab, 20000000), 2);
    lab_finish(lab);
    lab_expect(lab, IN_ORDER, 2143);
    lab_end(lab);
}

/* A record of this very moment: another ring may have one that is older and not visible yet. */
TEST(test_newest_events_wait_a_moment)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 1000000);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, monotonic_ns() + 300000000, 0, 1); /* 300 ms ahead */
    assert_int_equal(lab_rounds(lab, 15000000), 0);
    assert_int_equal(lab_rounds(lab, 400000000), 1);
    lab_end(lab);
}

/* ---- what is not there yet ---- */

#define HANGS_NS UINT64_C(60000000000)

/* Time until the one event that is there moves. */
static uint64_t time_until_moved(struct lab *lab)
{
    uint64_t begin = monotonic_ns();
    while (lab_rounds(lab, 1000000) == 0) {
        if (monotonic_ns() - begin > HANGS_NS) {
            fail_msg("an event is held back for ever");
        }
    }
    return monotonic_ns() - begin;
}

/* It may be about to bring an event that is older than all that is seen; but its owner may be dead. */
static void check_missing(struct lab *lab, struct ring_header *ring, const uint32_t *given_up, uint32_t missing)
{
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 1);
    uint64_t took_ns = time_until_moved(lab);
    if (took_ns < UINT64_C(500000000)) {
        fail_msg("waited only %llu ms for %u that are missing", (unsigned long long)(took_ns / 1000000), missing);
    }
    lab_round(lab);
    assert_int_equal(*given_up, missing); /* all at once, and so not waited for again */
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 2);
    time_until_moved(lab);
    assert_int_equal(*given_up, missing);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM event", 2);
    lab_end(lab);
}

TEST(test_missing_rings_and_processes_hold_back_for_a_second)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    lab->controls[0]->ring_count = 40; /* 1 … 38 were never made: a second for all of them together */
    struct ring_header *ring = hand_ring_file(lab, 1, 39, 64);
    lab_rounds(lab, 2000000);
    check_missing(lab, ring, &lab->collector->processes[0]->rings_missing, 38);

    lab = lab_begin();
    hand_process(lab, lab_living(lab));
    ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 2000000);
    lab->collector->directory.counts->process_count = 8; /* 2 … 8 are missing */
    check_missing(lab, ring, &lab->collector->processes_missing, 7);
}

/* It came after all, before the second was over: nothing was merged past it. */
TEST(test_ring_that_comes_late_is_in_order)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 2000000);
    lab->controls[0]->ring_count++; /* the number is taken … */
    uint64_t taken_ticks = monotonic_ns();
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, taken_ticks + 2000, 0, 2);
    assert_int_equal(lab_rounds(lab, 100000000), 0);
    struct ring_header *late = hand_ring_file(lab, 1, 2, 64); /* … and here is its ring */
    hand_emit(late, VARVE_KIND_MARK_BEGIN, taken_ticks + 1000, 0, 1);
    assert_int_equal(lab_rounds(lab, 20000000), 2);
    lab_finish(lab);
    lab_expect(lab, IN_ORDER, 12);
    lab_end(lab);
}

/* A thread that was stopped for longer, between taking its number and making its ring: late, not lost. */
TEST(test_ring_that_comes_very_late_is_stored)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab->controls[0]->ring_count++;
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 1);
    time_until_moved(lab);
    struct ring_header *late = hand_ring_file(lab, 1, 2, 64);
    hand_emit(late, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 2);
    lab_rounds(lab, 20000000);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM event", 2);
    lab_end(lab);
}

/* A process that was stopped between taking a process' number and making its page; the newer image of its pid
 * is known by then. */
static void check_late_process(bool is_last_look, bool is_replaced, bool is_first_over)
{
    struct lab *lab = lab_begin();
    pid_t child = lab_living(lab), first = lab_living(lab);
    hand_process(lab, first);
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab->collector->directory.counts->process_count = 2;
    if (is_replaced) {
        hand_process(lab, child)->start_ticks_proc = 7;
    }
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 1);
    time_until_moved(lab);
    lab_round(lab);
    assert_int_equal(lab->collector->processes_missing, 1);
    if (is_first_over) { /* no process is left open before the one that comes */
        lab_kill(lab, first);
        lab_rounds(lab, 10000000);
        lab_drain(lab);
        assert_int_equal(lab->collector->first_open, lab->collector->process_count);
    }
    hand_control(lab, 2, child)->start_ticks_proc = 7;
    struct ring_header *late = hand_ring(lab, 2, 64);
    hand_emit(late, VARVE_KIND_MARK_BEGIN, monotonic_ns(), 0, 2);
    if (!is_last_look) {
        time_until_moved(lab); /* looked for every second */
        assert_int_equal(lab->collector->processes_missing, 0);
    }
    lab_finish(lab);
    lab_rows(lab, "SELECT (SELECT sum(arg) FROM event), count(*), sum(end_cause = 'exec') FROM process",
             is_replaced ? "3 3 1\n" : "3 2 0\n");
    lab_end(lab);
}

TEST(test_process_that_comes_very_late_is_stored)
{
    check_late_process(false, false, false);
    check_late_process(true, false, false);
    check_late_process(false, true, false);
    check_late_process(false, false, true);
}
