/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings into one order. By time where the clocks agree; where two CPUs read them the wrong way round by a few
 * us, a block is still freed before its address is handed out again, and each ring keeps its own order. No
 * event is merged while an older one may still come from a ring with an event in the middle. Rings that are
 * not there yet: test_merge_missing.c.
 * Costs: 3 s
 */
#include "support/collector.h"
#include "trace/collector/clock.h"
#include "trace/collector/collector.h"
#include "trace/collector/merge.h"
#include "trace/format/ring.h"
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

struct reported {
    unsigned ring, kind;
    uint64_t addr, arg, id;
    int64_t ts_ns;
};

/* Events in order of seq; returns their number. */
static unsigned read_events(const struct lab *lab, struct reported *reported, unsigned most)
{
    sqlite3 *db = lab_database(lab);
    sqlite3_stmt *statement;
    unsigned count = 0;
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT t.ring, e.kind, e.addr, e.arg, e.id, e.ts_ns FROM event e JOIN "
                                        "thread t ON t.id = e.thread_id ORDER BY e.seq",
                                        -1, &statement, NULL),
                     SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW && count < most) {
        reported[count].ring = (unsigned)sqlite3_column_int64(statement, 0) - 1;
        reported[count].kind = (unsigned)sqlite3_column_int64(statement, 1);
        reported[count].addr = (uint64_t)sqlite3_column_int64(statement, 2);
        reported[count].arg = (uint64_t)sqlite3_column_int64(statement, 3);
        reported[count].id = (uint64_t)sqlite3_column_int64(statement, 4);
        reported[count].ts_ns = sqlite3_column_int64(statement, 5);
        count++;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return count;
}

/* The step that this event of a ring must be: the ring's next one. */
static unsigned next_step(const struct story *story, unsigned *next_of_ring, const struct reported *reported,
                          const char *what)
{
    unsigned at = next_of_ring[reported->ring];
    while (at < EVENTS && story->steps[at].ring != reported->ring) {
        at++;
    }
    next_of_ring[reported->ring] = at + 1;
    if (at == EVENTS || story->steps[at].addr != reported->addr ||
        story->steps[at].is_alloc != (reported->kind == VARVE_KIND_HEAP_ALLOC)) {
        fail_msg("%s: ring %u out of its order", what, reported->ring);
    }
    return at;
}

static void check_story(const struct lab *lab, const struct story *story, const char *what)
{
    static struct reported reported[EVENTS + 1];
    static uint64_t ids[EVENTS];
    unsigned next_of_ring[RINGS_MOST] = {0};
    unsigned count = read_events(lab, reported, EVENTS + 1);
    if (count != EVENTS) {
        fail_msg("%s: %u events", what, count);
    }
    memset(ids, 0, sizeof(ids));
    for (unsigned i = 0; i < count; i++) {
        unsigned at = next_step(story, next_of_ring, &reported[i], what);
        const struct step *step = &story->steps[at];
        if (step->is_alloc) {
            ids[at] = reported[i].id;
        } else if (reported[i].id == 0 || reported[i].id != ids[step->of_alloc]) {
            fail_msg("%s: the free of step %u belongs to allocation %llu, not %llu (allocated in step %u)", what, at,
                     (unsigned long long)reported[i].id, (unsigned long long)ids[step->of_alloc], step->of_alloc);
        }
    }
}

static void run_story(unsigned rings_count, unsigned pool, uint64_t jitter_ns, uint64_t pace_ns, uint64_t seed,
                      bool is_live)
{
    static struct story story;
    struct lab *lab = lab_begin();
    unsigned done = 0;
    memset(&story, 0, sizeof(story));
    story.rings = rings_count;
    story.pool = pool;
    story.jitter_ns = jitter_ns;
    story.pace_ns = pace_ns;
    story.random = seed;
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
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message)); /* rows of threads */
    char what[128];
    snprintf(what, sizeof(what), "%u rings, %u addresses, jitter %llu ns, pace %llu ns, seed %llu%s", rings_count, pool,
             (unsigned long long)jitter_ns, (unsigned long long)pace_ns, (unsigned long long)seed,
             is_live ? ", live" : "");
    check_story(lab, &story, what);
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
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 4; seed++) {
        run_story(2, 4, 40, 400, seed, false);
        run_story(6, 64, 40, 100, seed, seed % 2 == 0);
    }
}

/* Microseconds, ties and chains: an allocation waits for a free that is itself behind a waiting allocation.
 */
TEST(test_pairs_with_wrong_clocks)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 4; seed++) {
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
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
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
    lab_drain(lab);
    lab_expect(lab, "SELECT group_concat(arg, '') FROM (SELECT arg FROM event ORDER BY seq)", 134);
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
    static struct reported reported[EVENTS];
    struct lab *lab = lab_begin();
    uint64_t ticks[RINGS_MOST], random = 5;
    int64_t before = INT64_MIN;
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
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    assert_int_equal(read_events(lab, reported, EVENTS), EVENTS);
    for (unsigned i = 0; i < EVENTS; i++) {
        if (reported[i].ts_ns < before) {
            fail_msg("event %u goes back by %lld ns", i, (long long)(before - reported[i].ts_ns));
        }
        before = reported[i].ts_ns;
    }
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
    lab_drain(lab);
    lab_expect(lab, "SELECT group_concat(arg, '') FROM (SELECT arg FROM event ORDER BY seq)", 2143);
    lab_end(lab);
}

/* A record of this very moment: another ring may have one that is older and not visible yet. */
TEST(test_newest_events_wait_a_moment)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 1000000);
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns() + 300000000, 0, 1); /* 300 ms ahead */
    assert_int_equal(lab_rounds(lab, 15000000), 0);
    assert_int_equal(lab_rounds(lab, 400000000), 1);
    lab_end(lab);
}
